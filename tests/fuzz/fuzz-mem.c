/* SPDX-License-Identifier: Apache-2.0 */

/* The memory device (script.h). Whatever is asked of it, no more is plugged than there is. */

#include "script.h"
#include "vmm/virtio-mem.h"

#define PLUG MIB(128)

enum {
        HOST_REQUEST,          /* u16 MiB */
        HOST_COUNT,
        _HOST_MAX,
};

static void on_counter(void *userdata, const char *name, uint64_t value) {
        if (streq(name, "mem-plugged-bytes"))
                FUZZ_CHECK(value <= PLUG);
}

static void act(void *userdata, unsigned what, FuzzInput *in) {
        if (what % _HOST_MAX == HOST_REQUEST)
                (void) virtio_mem_request(userdata, MIB((uint64_t) fuzz_u16(in)));
        else
                virtio_mem_counters(userdata, on_counter, NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        script_init(PLUG);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        VirtioMem *m;

        script_begin();
        FUZZ_CHECK(virtio_mem_new(&script_vm, script_stepper.loop, 0xc0800000, script_on_error, NULL, &m) == 0);
        script_run(virtio_mem_pci(m), &(ScriptHost) { .act = act, .userdata = m }, &in);
        virtio_mem_counters(m, on_counter, NULL);
        virtio_mem_free(m);
        return 0;
}
