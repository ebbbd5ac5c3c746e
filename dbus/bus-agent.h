/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A bus call that becomes one request to the agent, and the agent's answer its reply.
 * What guests answer is bounded here, and made fit for the bus. Private to dbus/. */

#include <systemd/sd-bus.h>

#include "base/tlv.h"
#include "daemon/sandbox.h"

typedef struct BusAgentListing {
        uint16_t tag;          /* of the records that become entries; others are -EBADMSG */
        const char *signature; /* of one entry, without its parentheses */
        bool array;            /* any number of entries; else exactly one */
        bool look;             /* is no use of the sandbox */
        int (*append)(sd_bus_message *reply, const Tlv *t);
} BusAgentListing;

/* listing NULL: the reply is empty. 1, or negative with error set or not. */
int bus_agent_call(sd_bus_message *m, Sandbox *s, AgentFrameType type, const TlvWriter *body,
                   const BusAgentListing *listing, sd_bus_error *error);

/* Appends an AGENT_TAG_FILE record as a struct CUBE_BUS_FILE. */
int bus_append_file(sd_bus_message *reply, const Tlv *t);
