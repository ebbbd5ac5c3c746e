/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A JSON object in the making: the first failure sticks, and makes it NULL. */

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct JsonMaker {
        json_object *object;
        bool failed;
} JsonMaker;

JsonMaker json_maker_new(void);
/* The object, which is the caller's; NULL without memory. */
json_object *json_maker_done(JsonMaker *m);
/* Takes v; NULL: there was no memory for it. */
void json_put(JsonMaker *m, const char *name, json_object *v);
void json_put_string(JsonMaker *m, const char *name, const char *s);
void json_put_null(JsonMaker *m, const char *name);
void json_put_time(JsonMaker *m, const char *name, uint64_t usec);

/* To a list, which may be NULL. false: there was no memory. */
bool json_append(json_object *list, json_object *v);
