/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the gateway has cubed keep with a sandbox, as its labels. */

#define LABEL_METADATA "e2b/metadata"   /* a JSON object: keys of E2B's may have any character */
#define LABEL_SECURE "e2b/secure"       /* "yes": has an envd token */
