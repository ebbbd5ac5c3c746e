/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The operations of E2B's control plane, one function each: it reads the request, calls cubed, and answers, now or from a
 * callback. Those of one sandbox find it in r->sandbox, and it is their tenant's. */

#include "gateway/request.h"

/* op-create.c */
void op_create(Request *r);
/* op-list.c */
void op_list(Request *r);
/* op-life.c */
void op_info(Request *r);
void op_kill(Request *r);
void op_connect(Request *r);
void op_resume(Request *r);
void op_timeout(Request *r);
void op_refresh(Request *r);
void op_pause(Request *r);
/* op-logs.c */
void op_logs(Request *r);
/* op-metrics.c */
void op_metrics(Request *r);
void op_metrics_of_all(Request *r);
/* op-network.c */
void op_network(Request *r);
/* op-snapshot.c */
void op_snapshot(Request *r);
void op_snapshots(Request *r);
/* op-fork.c */
void op_fork(Request *r);
/* op-template.c */
void op_templates(Request *r);
void op_alias(Request *r);
void op_remove(Request *r);
/* op-template-info.c */
void op_template_info(Request *r);
void op_template_update(Request *r);
/* op-build.c */
void op_build_request(Request *r);
void op_build_start(Request *r);
void op_build_status(Request *r);
void op_build_logs(Request *r);
/* op-upload.c */
void op_files(Request *r);
void op_upload_begin(Request *r);
void op_upload(Request *r);
/* op-tag.c */
void op_tags(Request *r);
void op_tag(Request *r);
void op_untag(Request *r);
