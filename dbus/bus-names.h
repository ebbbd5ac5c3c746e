/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of the D-Bus API, for server and clients. The digit is the API's generation: it changes
 * in all of them together, and only for an incompatible change. */

#define CUBE_BUS_NAME "org.cubed.Cube1"
#define CUBE_BUS_PATH "/org/cubed/Cube1"
#define CUBE_BUS_PATH_SANDBOX CUBE_BUS_PATH "/sandbox"
#define CUBE_BUS_PATH_TEMPLATE CUBE_BUS_PATH "/template"
#define CUBE_BUS_PATH_SNAPSHOT CUBE_BUS_PATH "/snapshot"
#define CUBE_BUS_PATH_JOB CUBE_BUS_PATH "/job"
#define CUBE_BUS_MANAGER CUBE_BUS_NAME ".Manager"
#define CUBE_BUS_SANDBOX CUBE_BUS_NAME ".Sandbox"
#define CUBE_BUS_TEMPLATE CUBE_BUS_NAME ".Template"
#define CUBE_BUS_SNAPSHOT CUBE_BUS_NAME ".Snapshot"
#define CUBE_BUS_JOB CUBE_BUS_NAME ".Job"
/* Longest of the paths above, a slash, an id, a NUL. */
#define CUBE_BUS_PATH_MAX (sizeof(CUBE_BUS_PATH_TEMPLATE) + 1 + 20)

/* Of cube-gateway, which makes and revokes API keys. */
#define GATEWAY_BUS_NAME "org.cubed.Gateway1"
#define GATEWAY_BUS_PATH "/org/cubed/Gateway1"
/* One of ListKeys: id, name, tenant, created. */
#define GATEWAY_BUS_KEY "ssst"

/* A file as StatFile and CopyFrom tell it, and ListDirectory in an array:
 * name, mode (type bits included), uid, gid, size, mtime (ns since the epoch), target of a link. */
#define CUBE_BUS_FILE "suuutts"
/* One of ListSnapshots: id, name, kind, number of a checkpoint, sandbox, owner, created, bytes on disk, path. */
#define CUBE_BUS_SNAPSHOT_ITEM "ssstsutto"
/* One of Fork: done, id, path ("/"), name and message of the error. */
#define CUBE_BUS_FORKED "bsoss"
/* One of ListProcesses: pid, uid, name, state ("running", "exited"), on a pty. */
#define CUBE_BUS_PROCESS "uussb"
