/* SPDX-License-Identifier: Apache-2.0 */

/* The balloon (script.h). Pages that are taken out of the data of a driver, or from under its rings, read as zeros. */

#include "script.h"
#include "vmm/virtio-balloon.h"

enum {
        HOST_REQUEST,          /* u32 bytes, in 256ths of a page */
        HOST_COUNT,            /* gives statistics back to the driver */
        _HOST_MAX,
};

static void act(void *userdata, unsigned what, FuzzInput *in) {
        if (what % _HOST_MAX == HOST_REQUEST)
                (void) virtio_balloon_request(userdata, (uint64_t) fuzz_u32(in) << 4);
        else
                virtio_balloon_counters(userdata, script_on_counter, NULL);
}

static void pause_balloon(void *userdata) {
        VirtioPci *v = virtio_balloon_pci(userdata);

        virtio_pci_drain(v);
        virtio_balloon_settle(userdata);
        virtio_pci_pause(v);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        script_init(0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        VirtioBalloon *b;

        script_begin();
        FUZZ_CHECK(virtio_balloon_new(&script_vm, script_stepper.loop, 0xc0700000, script_on_error, NULL, &b) == 0);
        script_run(virtio_balloon_pci(b), &(ScriptHost) { act, pause_balloon, NULL, b, true }, &in);
        virtio_balloon_free(b);
        return 0;
}
