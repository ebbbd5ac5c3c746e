/* SPDX-License-Identifier: Apache-2.0 */

/* The entropy device (script.h), with a kernel that may give less than was asked for, or nothing. */

#include <sys/random.h>

#include "script.h"
#include "vmm/virtio-rng.h"

enum {
        HOST_SHORT,            /* from here on half of it */
        HOST_FAIL,             /* from here on none */
        HOST_COUNT,
        _HOST_MAX,
};

static unsigned kernel_gives;

/* Linked with --wrap=getrandom, so that an input does the same each time. */
ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags);

ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags) {
        if (kernel_gives == HOST_FAIL) {
                errno = EAGAIN;
                return -1;
        }
        if (kernel_gives == HOST_SHORT)
                size /= 2;
        memset(data, 0x5a, size);
        return (ssize_t) size;
}

static void act(void *userdata, unsigned what, FuzzInput *in) {
        if (what % _HOST_MAX == HOST_COUNT)
                virtio_rng_counters(userdata, script_on_counter, NULL);
        else
                kernel_gives = what % _HOST_MAX;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        script_init(0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        VirtioRng *g;

        script_begin();
        kernel_gives = _HOST_MAX;
        FUZZ_CHECK(virtio_rng_new(&script_vm, script_stepper.loop, 0xc0400000, script_on_error, NULL, &g) == 0);
        script_run(virtio_rng_pci(g), &(ScriptHost) { .act = act, .userdata = g }, &in);
        virtio_rng_free(g);
        return 0;
}
