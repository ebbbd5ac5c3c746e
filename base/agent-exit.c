/* SPDX-License-Identifier: Apache-2.0 */
#include "base/agent-exit.h"
#include "base/agent-proto.h"
#include "base/tlv.h"

int agent_exit_parse(const uint8_t *body, size_t size, AgentExit *ret) {
        TlvReader reader = TLV_READER_INIT(body, size);
        bool have = false;
        AgentExit e = {};
        uint32_t v;
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0) {
                r = tlv_get_u32(&t, &v);
                if (r < 0)
                        return r;
                switch (t.tag) {
                case AGENT_TAG_EXIT_CODE:
                case AGENT_TAG_EXIT_SIGNAL:
                        if (have)
                                return -EBADMSG;
                        e.signaled = t.tag == AGENT_TAG_EXIT_SIGNAL;
                        e.status = v;
                        have = true;
                        break;
                case AGENT_TAG_TIMED_OUT:
                        e.timed_out = v != 0;
                        break;
                default:
                        return -EBADMSG;
                }
        }
        if (r < 0)
                return r;
        if (!have || e.status > (e.signaled ? 127U : 255U))
                return -EBADMSG;

        *ret = e;
        return 0;
}
