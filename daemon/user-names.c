/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd-util.h"
#include "daemon/user-names.h"

#define NAMES_MAX 64U
/* What the child says of a name that is nobody's. */
#define NOBODY UINT32_MAX

/* NAMES_MAX + 1 when there are more. */
static size_t split(char *text, const char *words[static NAMES_MAX]) {
        size_t n = 0;

        for (char *save = NULL, *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
                if (n == NAMES_MAX)
                        return n + 1;
                words[n++] = w;
        }
        return n;
}

static _noreturn_ void find_child(const char *const *words, size_t n, int fd) {
        for (size_t i = 0; i < n; i++) {
                const struct passwd *p = getpwnam(words[i]);
                uint32_t uid = p ? p->pw_uid : NOBODY;

                if (write_full(fd, &uid, sizeof(uid)) < 0)
                        _exit(1);
        }
        _exit(0);
}

static uint64_t now_usec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
}

/* timeout_usec is for all of them. */
static int read_answers(int fd, uint64_t timeout_usec, uint32_t *uids, size_t n) {
        uint64_t deadline = now_usec() + timeout_usec;
        size_t size = 0;

        while (size < n * sizeof(*uids)) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                uint64_t now = now_usec();
                int k = poll(&p, 1, (int) MIN((deadline - MIN(now, deadline)) / USEC_PER_MSEC, 60000U));
                ssize_t got = k > 0 ? read(fd, (uint8_t *) uids + size, n * sizeof(*uids) - size) : 0;

                if (k == 0)
                        return -ETIMEDOUT;
                if ((k < 0 || got < 0) && errno != EINTR)
                        return -errno;
                if (k > 0 && got == 0)
                        return -EIO;
                size += got > 0 ? (size_t) got : 0;
        }
        return 0;
}

static int ask_child(const char *const *words, size_t n, uint64_t timeout_usec, uint32_t *uids) {
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        int ends[2];

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        in = ends[0];
        out = ends[1];
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                find_child(words, n, out);
        out = safe_close(out);

        int r = read_answers(in, timeout_usec, uids, n);
        (void) kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return r;
}

int user_names_find(const char *names, uint64_t timeout_usec, uint32_t *uids, size_t max, size_t *ret_n, char **ret_unknown) {
        _cleanup_free_ char *text = strdup(names), *unknown = NULL;
        const char *words[NAMES_MAX];
        uint32_t found[NAMES_MAX];
        size_t n, known = 0, size = 0;
        FILE *f;

        if (!text)
                return -ENOMEM;
        n = split(text, words);
        if (n > MIN(max, (size_t) NAMES_MAX))
                return -E2BIG;
        int r = ask_child(words, n, timeout_usec, found);
        if (r < 0)
                return r;
        f = open_memstream(&unknown, &size);
        if (!f)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                if (found[i] == NOBODY)
                        fprintf(f, "%s%.64s", ftell(f) > 0 ? ", " : "", words[i]);
                else
                        uids[known++] = found[i];
        if (fclose(f) != 0)
                return -ENOMEM;
        *ret_n = known;
        *ret_unknown = size > 0 ? TAKE_PTR(unknown) : NULL;
        return 0;
}
