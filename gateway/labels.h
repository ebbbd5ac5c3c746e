/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the gateway has cubed keep with a sandbox, as its labels. */

#include <systemd/sd-bus.h>

#define LABEL_METADATA "e2b/metadata"   /* a JSON object: keys of E2B's may have any character */
#define LABEL_TRAFFIC "e2b/traffic"     /* "token": who has none reaches no port but envd's */
#define LABEL_MASK_HOST "e2b/mask-host" /* maskRequestHost */
#define LABEL_HTTPS_PORTS "e2b/https-ports" /* httpsPorts, with colons between */
#define LABEL_REQUEST "e2b/request"     /* of a create that may come twice: what it was (repeat.h) */
#define LABEL_SECURE "e2b/secure"       /* "yes": has an envd token */

/* Around the {ss} of each one, as an option of a call that makes a sandbox. */
int labels_begin(sd_bus_message *m);
int labels_end(sd_bus_message *m);
