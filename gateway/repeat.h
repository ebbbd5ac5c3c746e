/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Creates that may come twice, with the same header Idempotency-Key: a client that had no answer sends it again, and gets the
 * sandbox of the first time, for as long as there is one. cubed knows them by their request-id, which tells nothing of what the
 * client said; that the request was the same a label of the sandbox tells. One at a time: who comes amid the first is told so. */

#include "gateway/request.h"

/* Into r->repeat_id, "" without one; false: it is none, or one is under way, and the request is answered. */
bool repeat_begin(Request *r);
/* Of any request, when it is over. */
void repeat_end(Request *r);
/* What the request was, as the sandbox's label. */
void repeat_fingerprint(const Request *r, char ret[static TOKEN_SIZE]);
/* Of the request's sandbox, once its properties are known: was it made for an earlier request? That one may have been told. */
bool repeat_was_before(const Request *r);
/* false: that was another request, and this one is answered. */
bool repeat_is_same(Request *r);
