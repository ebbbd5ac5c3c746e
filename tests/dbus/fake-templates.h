/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The template store and the jobs on it, without files: a job takes four steps of 50 ms, and its log says what it was asked for.
 * One whose subject is "broken:latest" fails. The templates are those of fake-core.h; each has one alias at most. */

#include "daemon/manager.h"

TemplateStore *fake_templates_new(void);
void fake_templates_free(TemplateStore *s);
/* The manager's. */
void fake_jobs_free(Manager *m);
