/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is left of a sandbox that is gone: the journal's entry of its end. */

#include <json-c/json.h>

/* Its properties (Id, State "gone", Reason, ...). -ENOENT when the journal has nothing. */
int gone_properties(const char *id, json_object **ret);
