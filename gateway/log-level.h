/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How grave a line of a log is, as clients have it: of a sandbox, and of a build. */

#include <errno.h>

typedef enum LogLevel {
        LOG_LEVEL_DEBUG,
        LOG_LEVEL_INFO,
        LOG_LEVEL_WARN,
        LOG_LEVEL_ERROR,
        _LOG_LEVEL_MAX,
        _LOG_LEVEL_INVALID = -EINVAL,
} LogLevel;
