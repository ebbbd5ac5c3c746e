/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The payload's idea of cube-agent: base/agent-proto.h over vsock, with programs that exist only in
 * here (process.c). One frame is built at a time, in a buffer that send_frame() empties. */

#include "base/agent-proto.h"
#include "process.h"

void agent_start(uint64_t mem_bytes, bool stalled, bool ignore_poweroff);
/* Connects once more when the VMM did not let it in. True when it did. */
bool agent_try_again(void);
/* Behind something that took vsock down, or may have: connects anew, and is ready. False: vsock does not come up. */
bool agent_restart(void);

/* Says once more that it is ready, with another kernel, as often as it is called and there is room. True when it did. */
bool agent_flood(void);
/* The control stream, NULL while there is none; agent_connect() makes a new one. */
Conn *agent_control(void);
void agent_connect(void);
/* As one whose next claim is never answered. */
void agent_ignore_claims(bool yes);
/* As one that takes seconds before it looks at a claim. */
void agent_claim_slowly(void);
/* As one that never answers when it is told to serve envd. */
void agent_ignore_envd(void);

void put_u32(uint16_t tag, uint32_t v);
void put_u64(uint16_t tag, uint64_t v);
void put_bytes(uint16_t tag, const void *data, uint32_t len);
/* The records put so far become the frame's body. */
void send_frame(Conn *c, uint16_t type, uint32_t id);
