/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/client.h"

int client_exit_status(const AgentExit *e) {
        if (e->timed_out)
                return 124;
        return e->signaled ? 128 + (int) e->status : (int) e->status;
}
