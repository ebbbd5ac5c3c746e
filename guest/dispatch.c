/* SPDX-License-Identifier: Apache-2.0 */
#include "base/agent-proto.h"
#include "guest/claim.h"
#include "guest/dispatch.h"
#include "guest/envd.h"
#include "guest/files.h"
#include "guest/freeze.h"
#include "guest/listing.h"
#include "guest/process.h"
#include "guest/remove.h"
#include "guest/shutdown.h"
#include "guest/usage.h"

static void handle_ping(Agent *a, Request *q, Reply reply) {
        reply_ok(&reply, NULL);
}

static const struct {
        uint16_t type;
        bool always;            /* before the claim and while the file system is frozen, too */
        void (*handle)(Agent *a, Request *q, Reply reply);
} handlers[] = {
        { AGENT_CLAIM, true, handle_claim },
        { AGENT_EXEC, false, handle_exec },
        { AGENT_SIGNAL, false, handle_signal },
        { AGENT_RESIZE, false, handle_resize },
        { AGENT_LIST_PROCESSES, false, handle_list_processes },
        { AGENT_STAT, false, handle_stat },
        { AGENT_LIST_DIRECTORY, false, handle_list_directory },
        { AGENT_REMOVE, false, handle_remove },
        { AGENT_RENAME, false, handle_rename },
        { AGENT_MKDIR, false, handle_mkdir },
        { AGENT_SET_TIME, true, handle_set_time },
        { AGENT_ADD_ENTROPY, true, handle_add_entropy },
        { AGENT_POWEROFF, true, handle_poweroff },
        { AGENT_PING, true, handle_ping },
        { AGENT_FREEZE, false, handle_freeze },
        { AGENT_THAW, true, handle_thaw },
        { AGENT_SYMLINK, false, handle_symlink },
        { AGENT_ENVD, false, handle_envd },
        { AGENT_USAGE, false, handle_usage },
};

void dispatch_request(Agent *a, uint16_t type, Request *q, Reply reply) {
        for (size_t i = 0; i < ELEMENTSOF(handlers); i++) {
                if (handlers[i].type != type)
                        continue;
                if (!a->claimed && !handlers[i].always)
                        reply_error(&reply, -EAGAIN, "not claimed yet");
                else if (a->frozen && !handlers[i].always)
                        reply_error(&reply, -EAGAIN, "the file system is frozen");
                else
                        handlers[i].handle(a, q, reply);
                return;
        }
        reply_error(&reply, -EOPNOTSUPP, "request %u belongs on a stream of its own", type);
}
