/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The typed errors of org.cubed.Cube1. Every one carries a message that names the thing and the
 * next step. Failures inside the guest (a missing file, an unknown user) are errno errors of
 * sd-bus (System.Error.ENOENT, org.freedesktop.DBus.Error.FileNotFound ...) instead. */

#include <errno.h>

#define BUS_ERROR_PREFIX "org.cubed.Cube1.Error."
#define BUS_ERROR_NO_SUCH_SANDBOX BUS_ERROR_PREFIX "NoSuchSandbox"
#define BUS_ERROR_NO_SUCH_TEMPLATE BUS_ERROR_PREFIX "NoSuchTemplate"
#define BUS_ERROR_NO_SUCH_SNAPSHOT BUS_ERROR_PREFIX "NoSuchSnapshot"
#define BUS_ERROR_NO_SUCH_JOB BUS_ERROR_PREFIX "NoSuchJob"
#define BUS_ERROR_NO_SUCH_PROCESS BUS_ERROR_PREFIX "NoSuchProcess"
#define BUS_ERROR_INVALID_ARGUMENT BUS_ERROR_PREFIX "InvalidArgument"
#define BUS_ERROR_ACCESS_DENIED BUS_ERROR_PREFIX "AccessDenied"
/* The sandbox is in a state that has no such operation; the message names the state. */
#define BUS_ERROR_NOT_RUNNING BUS_ERROR_PREFIX "NotRunning"
#define BUS_ERROR_BUSY BUS_ERROR_PREFIX "Busy"
#define BUS_ERROR_QUOTA_EXCEEDED BUS_ERROR_PREFIX "QuotaExceeded"
#define BUS_ERROR_NO_RESOURCES BUS_ERROR_PREFIX "NoResources"
#define BUS_ERROR_HOST_UNSUPPORTED BUS_ERROR_PREFIX "HostUnsupported"
#define BUS_ERROR_TEMPLATE_INVALID BUS_ERROR_PREFIX "TemplateInvalid"
#define BUS_ERROR_TEMPLATE_IN_USE BUS_ERROR_PREFIX "TemplateInUse"
/* Its files are damaged, or of another version or host; the message says which. */
#define BUS_ERROR_SNAPSHOT_INVALID BUS_ERROR_PREFIX "SnapshotInvalid"
/* The message lists what stands on it. */
#define BUS_ERROR_SNAPSHOT_IN_USE BUS_ERROR_PREFIX "SnapshotInUse"
/* The guest ended or never answered while something waited for it. */
#define BUS_ERROR_GUEST_FAILED BUS_ERROR_PREFIX "GuestFailed"
#define BUS_ERROR_GUEST_TIMEOUT BUS_ERROR_PREFIX "GuestTimeout"
#define BUS_ERROR_INTERNAL BUS_ERROR_PREFIX "Internal"

/* A call of the system failed with it. What the host has too little of is no fault of ours. */
static inline const char *bus_error_of_errno(int r) {
        switch (r) {
        case -ENOMEM:
        case -ENOSPC:
        case -EDQUOT:
        case -EMFILE:
        case -ENFILE:
        case -EAGAIN:
                return BUS_ERROR_NO_RESOURCES;
        default:
                return BUS_ERROR_INTERNAL;
        }
}
