/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "base/vmm-proto.h"

static const char *const reason_table[_VMM_EXIT_REASON_MAX] = {
        [VMM_EXIT_NONE] = "none",
        [VMM_EXIT_POWEROFF] = "poweroff",
        [VMM_EXIT_RESET] = "reset",
        [VMM_EXIT_RESET_EARLY] = "reset-early",
        [VMM_EXIT_PANIC] = "panic",
        [VMM_EXIT_TRIPLE_FAULT] = "triple-fault",
        [VMM_EXIT_INTERNAL_ERROR] = "internal-error",
        [VMM_EXIT_KILLED] = "killed",
        [VMM_EXIT_STOP_TIMEOUT] = "stop-timeout",
        [VMM_EXIT_VMM_ERROR] = "vmm-error",
        [VMM_EXIT_FORBIDDEN_CALL] = "forbidden-call",
        [VMM_EXIT_OOM] = "oom-kill",
        [VMM_EXIT_SIGNAL] = "signal",
        [VMM_EXIT_LOST] = "lost",
        [VMM_EXIT_TIMEOUT] = "timeout",
        [VMM_EXIT_ROLLBACK] = "rollback-failed",
};

static const char *const state_table[_VMM_STATE_MAX] = {
        [VMM_STATE_NEW] = "new",
        [VMM_STATE_BUILT] = "built",
        [VMM_STATE_RUNNING] = "running",
        [VMM_STATE_STOPPING] = "stopping",
        [VMM_STATE_PAUSED] = "paused",
        [VMM_STATE_TORN] = "torn",
};

const char *vmm_exit_reason_to_string(VmmExitReason reason) {
        if ((unsigned) reason >= _VMM_EXIT_REASON_MAX)
                return "unknown";
        return reason_table[reason];
}

const char *vmm_state_to_string(VmmState state) {
        if ((unsigned) state >= _VMM_STATE_MAX)
                return "unknown";
        return state_table[state];
}
