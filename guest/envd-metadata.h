/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a client says about a file beside its bytes: fields "X-Metadata-KEY: VALUE" of its upload, kept as extended attributes
 * "user.e2b.KEY". */

#include "guest/http-parser.h"
#include "guest/json.h"

#define METADATA_MESSAGE_MAX 128

/* Names in lower case, NULL when there are none. -EINVAL: ret_message says what is wrong. */
int metadata_parse(const HttpRequest *q, json_object **ret, char ret_message[static METADATA_MESSAGE_MAX]);
/* In place of all that the file had. -EOPNOTSUPP where the file system keeps none. */
int metadata_set(int fd, json_object *metadata);
/* Of the file itself, NULL when it has none. */
json_object *metadata_get(const char *path);
