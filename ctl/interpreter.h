/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The code interpreter of a sandbox: HTTP on port 49999 in the guest, over connections that cubed hands out. libcurl speaks
 * it; it opens no socket of its own, and asks no proxy. Whoever answers there is the guest. All of these say what went
 * wrong. */

#include "ctl/cell-event.h"
#include "ctl/removal.h"

typedef struct Interpreter {
        sd_bus *bus;
        const char *id;
        Removal removal;
} Interpreter;

int interpreter_init(Interpreter *i, sd_bus *bus, const char *id);
void interpreter_done(Interpreter *i);

/* Runs a cell; what comes of it goes to the handler, which tells its errors itself but for -ENOMEM. */
int interpreter_execute(Interpreter *i, json_object *request, CellEventHandler handler, void *userdata);
/* Makes a context for a language (NULL: Python). */
int interpreter_add_context(Interpreter *i, const char *language, char **ret_id);
