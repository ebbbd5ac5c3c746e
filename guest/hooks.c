/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd-util.h"
#include "guest/agent.h"
#include "guest/hooks.h"
#include "guest/log.h"
#include "guest/spawn.h"

static void add_failure(Hooks *h, const char *format, ...) _printf_(2, 3);

static void add_failure(Hooks *h, const char *format, ...) {
        size_t used = strlen(h->failures);
        char text[HOOKS_MESSAGE_MAX];
        va_list ap;

        va_start(ap, format);
        vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        log_warning("%s", text);
        snprintf(h->failures + used, sizeof(h->failures) - used, "%s%s", used > 0 ? "; " : "", text);
}

/* Not what editors and package managers leave behind. */
static bool is_hook(int dir_fd, const char *name) {
        struct stat st;

        return *name != '.' && name[strlen(name) - 1] != '~' && fstatat(dir_fd, name, &st, 0) >= 0 &&
               S_ISREG(st.st_mode) && (st.st_mode & 0111);
}

static int compare_names(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

static int read_names(Hooks *h, DIR *d) {
        struct dirent *de;

        while ((de = readdir(d))) {
                if (!is_hook(dirfd(d), de->d_name))
                        continue;
                if (h->n_names == HOOKS_MAX)
                        return -E2BIG;
                h->names[h->n_names] = strdup(de->d_name);
                if (!h->names[h->n_names])
                        return -ENOMEM;
                h->n_names++;
        }
        return 0;
}

static int find_hooks(Hooks *h) {
        DIR *d = opendir(h->path);
        if (!d)
                return errno == ENOENT ? 0 : -errno;

        int r = read_names(h, d);
        closedir(d);
        qsort(h->names, h->n_names, sizeof(char *), compare_names);
        return r;
}

static void read_output(Hooks *h) {
        char buf[512];
        ssize_t n;

        /* Bounded: one that writes without end would else hold us here. */
        for (unsigned i = 0; i < 128 && (n = read(h->output_fd, buf, sizeof(buf))) > 0; i++) {
                size_t keep = MIN((size_t) n, (size_t) HOOK_TAIL_MAX), old = MIN(h->tail_size, HOOK_TAIL_MAX - keep);

                memmove(h->tail, h->tail + h->tail_size - old, old);
                memcpy(h->tail + old, buf + n - keep, keep);
                h->tail_size = old + keep;
        }
}

static void on_output(LoopSource *s, uint32_t events) {
        read_output(s->userdata);
}

/* The last line that it wrote, where a traceback says what was wrong. */
static const char *last_line(Hooks *h) {
        while (h->tail_size > 0 && h->tail[h->tail_size - 1] == '\n')
                h->tail_size--;
        h->tail[h->tail_size] = 0;
        for (size_t i = 0; i < h->tail_size; i++)
                if (h->tail[i] == 0)
                        h->tail[i] = ' ';

        const char *newline = strrchr(h->tail, '\n');
        return newline ? newline + 1 : h->tail;
}

static void close_output(Hooks *h) {
        loop_remove(&h->output);
        h->output_fd = safe_close(h->output_fd);
        h->tail_size = 0;
}

void hooks_stop(Agent *a) {
        Hooks *h = &a->hooks;

        helper_kill(&h->helper);
        close_output(h);
        loop_remove(&h->timer);
        for (unsigned i = 0; i < h->n_names; i++)
                free(h->names[i]);
        free(TAKE_PTR(h->names));
        h->n_names = 0;
}

static void finish(Agent *a) {
        hooks_stop(a);
        a->hooks.done(a, *a->hooks.failures ? a->hooks.failures : NULL);
}

typedef struct HookRun {
        const Hooks *hooks;
        const char *name;
        int output_fd;
} HookRun;

/* In the child. */
static int run_hook(const void *userdata) {
        const HookRun *run = userdata;
        char path[4096], epoch[64];

        int null = open("/dev/null", O_RDONLY);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(run->output_fd, STDOUT_FILENO) < 0 ||
            dup2(run->output_fd, STDERR_FILENO) < 0 || chdir("/") < 0)
                return 126;
        (void) fcntl(run->output_fd, F_SETFD, FD_CLOEXEC);

        snprintf(path, sizeof(path), "%s/%s", run->hooks->path, run->name);
        snprintf(epoch, sizeof(epoch), "CUBE_EPOCH=%" PRIu64, run->hooks->epoch);
        char *const argv[] = { path, NULL };
        char *const env[] = { epoch, (char *) "PATH=" SPAWN_DEFAULT_PATH, (char *) "HOME=/root", NULL };
        (void) execve(path, argv, env);
        fprintf(stderr, "%s\n", strerror(errno));
        return 127;
}

static void start_next(Agent *a);

static void on_hook_exited(Helper *helper, int status) {
        Agent *a = helper->agent;
        Hooks *h = &a->hooks;
        const char *name = h->names[h->next++];

        read_output(h);
        const char *line = last_line(h), *separator = *line ? ": " : "";
        if (WIFSIGNALED(status))
                add_failure(h, "hook %s: signal %d%s%s", name, WTERMSIG(status), separator, line);
        else if (WEXITSTATUS(status) != 0)
                add_failure(h, "hook %s: exit status %d%s%s", name, WEXITSTATUS(status), separator, line);
        close_output(h);
        start_next(a);
}

static int start_hook(Agent *a, const char *name) {
        Hooks *h = &a->hooks;
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        h->output_fd = fds[0];
        _cleanup_close_ int output = fds[1];

        int r = fd_set_nonblock(h->output_fd, true);
        if (r >= 0)
                r = loop_add(&a->loop, &h->output, h->output_fd, EPOLLIN, on_output, h);
        if (r < 0)
                return r;

        HookRun run = { .hooks = h, .name = name, .output_fd = output };
        return helper_start(&h->helper, a, run_hook, &run, output, on_hook_exited);
}

static void start_next(Agent *a) {
        Hooks *h = &a->hooks;

        for (; h->next < h->n_names; h->next++) {
                int r = start_hook(a, h->names[h->next]);
                if (r >= 0)
                        return;
                close_output(h);
                add_failure(h, "hook %s: %s", h->names[h->next], strerror(-r));
        }
        finish(a);
}

static void on_limit(LoopSource *s, uint32_t events) {
        Agent *a = s->userdata;
        Hooks *h = &a->hooks;

        add_failure(h, "hook %s: not done within %u s, killed", h->names[h->next],
                    (unsigned) (h->limit_usec / USEC_PER_SEC));
        if (h->next + 1 < h->n_names)
                add_failure(h, "%u more not run", h->n_names - h->next - 1);
        finish(a);
}

void hooks_start(Agent *a, uint64_t epoch, void (*done)(Agent *a, const char *failures)) {
        Hooks *h = &a->hooks;

        assert(!h->names);

        h->epoch = epoch;
        h->done = done;
        h->next = 0;
        *h->failures = 0;
        h->names = new0(char *, HOOKS_MAX);
        int r = h->names ? find_hooks(h) : -ENOMEM;
        if (r >= 0 && h->n_names > 0)
                r = loop_add_timer(&a->loop, &h->timer, h->limit_usec, on_limit, a);
        if (r < 0) {
                add_failure(h, "hooks in %s: %s", h->path, strerror(-r));
                finish(a);
        } else
                start_next(a);
}
