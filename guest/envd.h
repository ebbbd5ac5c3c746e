/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* E2B's envd: what E2B's SDKs speak to inside a sandbox, on TCP port 49983 of the guest (docs/ENVD.md).
 *
 * Part of the agent. It does not listen until the host says so with AGENT_ENVD, which brings the token that clients must show,
 * and what holds for the sandbox: variables, user, working directory. A later AGENT_ENVD changes those. At an epoch all its
 * clients are those of another copy: their connections are reset, their programs go on. */

#include "guest/control.h"
#include "guest/http-server.h"
#include "guest/request.h"
#include "guest/usage.h"

typedef struct Agent Agent;

#define ENVD_PORT 49983U
/* What of E2B's envd this is as good as; SDKs choose by it what they ask for. */
#define ENVD_VERSION "0.6.13"

typedef struct Envd {
        HttpServer server;
        uint16_t port;
        char *token;            /* NULL: nobody is asked for one */
        char *user;             /* whose the programs and files are, unless a request says otherwise */
        char *cwd;              /* NULL: the user's home */
        StringList env;
        CpuTimes cpu;           /* when metrics were asked for last */
} Envd;

/* Takes NAME=VALUE, which may be NULL: -ENOMEM. The later one of two with a name wins; -E2BIG: they are too many. */
int envd_set_variable(StringList *env, char *assignment);
/* In a time that tells nothing of the token, which there must be. */
bool envd_token_is(const Envd *e, const char *token);
void handle_envd(Agent *a, Request *q, Reply reply);
/* Clients wait while the guest is not claimed or its file system frozen: it may be over. */
void envd_resume(Agent *a);
void envd_abandon(Agent *a);
void envd_done(Agent *a);
