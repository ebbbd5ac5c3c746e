/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What envd tells about its sandbox: variables and use of resources. */

#include "guest/agent.h"
#include "guest/http-conn.h"

void info_reply_variables(Agent *a, HttpConn *c);
void info_reply_metrics(Agent *a, HttpConn *c);
