/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>

#include "guest/log.h"

static int kmsg_fd = -EBADF;

void log_open_kmsg(void) {
        /* The kernel drops all but a few user-space lines each five seconds by default. */
        int fd = open("/proc/sys/kernel/printk_devkmsg", O_WRONLY|O_CLOEXEC);
        if (fd >= 0) {
                (void) !write(fd, "on\n", 3);
                close(fd);
        }

        safe_close(kmsg_fd);
        kmsg_fd = open("/dev/kmsg", O_WRONLY|O_CLOEXEC|O_NOCTTY);
}

static void log_line(int level, const char *format, va_list ap) {
        char line[512];
        int saved = errno;

        int n = snprintf(line, sizeof(line), "<%d>cube-agent: ", LOG_DAEMON|level);
        int m = vsnprintf(line + n, sizeof(line) - (size_t) n - 1, format, ap);
        if (m < 0)
                return;
        size_t size = MIN((size_t) (n + m), sizeof(line) - 2);
        line[size++] = '\n';

        if (kmsg_fd >= 0)
                (void) !write(kmsg_fd, line, size);
        else {
                const char *text = strchr(line, '>') + 1;
                (void) !write(STDERR_FILENO, text, size - (size_t) (text - line));
        }
        errno = saved;
}

#define DEFINE_LOG(name, level)                         \
        void name(const char *format, ...) {            \
                va_list ap;                             \
                va_start(ap, format);                   \
                log_line(level, format, ap);            \
                va_end(ap);                             \
        }

DEFINE_LOG(log_info, LOG_INFO)
DEFINE_LOG(log_warning, LOG_WARNING)
DEFINE_LOG(log_error, LOG_ERR)
