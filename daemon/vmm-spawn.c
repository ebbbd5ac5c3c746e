/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/fd-util.h"
#include "base/vmm-proto.h"
#include "daemon/core-sched.h"
#include "daemon/vmm-spawn.h"

/* Of a VMM: cubed protects itself from the OOM killer, its sandboxes shall go before the host's
 * services. */
#define VMM_OOM_SCORE "200"

/* The child's descriptors. All others are closed before it waits: a fork of a large daemon must
 * not keep other sandboxes' sockets, memory and gates open. */
enum {
        CHILD_GATE = VMM_LISTEN_FD + 1,
        CHILD_NETNS,
        CHILD_STATUS,
        _CHILD_FDS,
};

typedef enum SpawnStep {
        STEP_FDS,
        STEP_NAMESPACES,
        STEP_NETNS,
        STEP_STREAMS,
        STEP_CORES,
        STEP_EXEC,
        _STEP_MAX,
} SpawnStep;

static const char *const step_text[_STEP_MAX] = {
        [STEP_FDS] = "arranging its descriptors",
        [STEP_NAMESPACES] = "making its namespaces",
        [STEP_NETNS] = "entering its network namespace",
        [STEP_STREAMS] = "opening its standard streams",
        [STEP_CORES] = "keeping its cores from others",
        [STEP_EXEC] = "executing cube-vmm",
};

typedef struct SpawnFailure {
        int32_t step, error;
} SpawnFailure;

/* All that the child needs, made before the fork: it may only make system calls. */
typedef struct ChildPlan {
        const VmmSpawn *spawn;
        int gate_fd, status_fd;
        char *argv[4];
        char *env[3];
        struct sockaddr_un journal;
        socklen_t journal_len;
} ChildPlan;

static const char journal_header[] = "cube-vmm\n\n6\n1\n0\n0\n0\n";

static _noreturn_ void child_fail(int status_fd, SpawnStep step) {
        SpawnFailure f = { (int32_t) step, errno };
        ssize_t n = write(status_fd, &f, sizeof(f));

        (void) n;
        _exit(127);
}

/* Moves all descriptors out of the way first, then to where they belong. */
static int child_arrange_fds(const ChildPlan *p) {
        int from[_CHILD_FDS - VMM_LISTEN_FD] = { p->spawn->listen_fd, p->gate_fd, p->spawn->netns_fd, p->status_fd };

        for (size_t i = 0; i < ELEMENTSOF(from); i++) {
                if (from[i] < 0)
                        continue;
                from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64);
                if (from[i] < 0)
                        return -1;
        }
        for (size_t i = 0; i < ELEMENTSOF(from); i++) {
                int to = VMM_LISTEN_FD + (int) i;
                if (from[i] < 0)
                        (void) close(to);
                else if (dup3(from[i], to, to == VMM_LISTEN_FD ? 0 : O_CLOEXEC) < 0)
                        return -1;
        }
        return (int) syscall(SYS_close_range, _CHILD_FDS, ~0U, 0);
}

/* Connected by the child itself, so that the journal files its lines under its scope. */
static int child_open_journal(const ChildPlan *p) {
        int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -1;
        if (connect(fd, (const struct sockaddr *) &p->journal, p->journal_len) < 0 ||
            write(fd, journal_header, sizeof(journal_header) - 1) < 0) {
                (void) close(fd);
                return -1;
        }
        return fd;
}

static int child_open_streams(const ChildPlan *p) {
        int null = open("/dev/null", O_RDONLY|O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0)
                return -1;
        (void) close(null);

        int log = p->journal_len > 0 ? child_open_journal(p) : -1;
        if (log < 0)
                return dup2(STDERR_FILENO, STDOUT_FILENO);
        if (dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
                return -1;
        return close(log);
}

static void child_set_oom_score(void) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY|O_CLOEXEC);
        if (fd < 0)
                return;
        ssize_t n = write(fd, VMM_OOM_SCORE, sizeof(VMM_OOM_SCORE) - 1);
        (void) n;
        (void) close(fd);
}

static _noreturn_ void child_run(const ChildPlan *p) {
        sigset_t none;
        char byte;

        if (child_arrange_fds(p) < 0)
                child_fail(p->status_fd, STEP_FDS);
        /* Before the gate, since cubed may put another in its place then. */
        int r = core_sched_new();
        if (r < 0) {
                errno = -r;
                child_fail(CHILD_STATUS, STEP_CORES);
        }

        ssize_t n;
        do
                n = read(CHILD_GATE, &byte, 1);
        while (n < 0 && errno == EINTR);
        if (n != 1)
                _exit(1);

        /* Here and not by clone(): making them takes milliseconds, which are not the daemon's. */
        if (unshare(CLONE_NEWNS|CLONE_NEWIPC|CLONE_NEWUTS) < 0)
                child_fail(CHILD_STATUS, STEP_NAMESPACES);
        if (p->spawn->netns_fd >= 0 && setns(CHILD_NETNS, CLONE_NEWNET) < 0)
                child_fail(CHILD_STATUS, STEP_NETNS);
        if (child_open_streams(p) < 0)
                child_fail(CHILD_STATUS, STEP_STREAMS);
        child_set_oom_score();
        (void) close(CHILD_GATE);
        (void) close(CHILD_NETNS);

        (void) signal(SIGPIPE, SIG_DFL);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        execve(p->argv[0], p->argv, p->env);
        child_fail(CHILD_STATUS, STEP_EXEC);
}

static int plan_journal(ChildPlan *p) {
        const char *path = p->spawn->journal;

        if (!path)
                return 0;
        size_t n = strlen(path);
        if (n >= sizeof(p->journal.sun_path))
                return -ENAMETOOLONG;
        p->journal.sun_family = AF_UNIX;
        memcpy(p->journal.sun_path, path, n + 1);
        p->journal_len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + n + 1);
        return 0;
}

static int make_pipe(int *ret_read, int *ret_write) {
        int ends[2];

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        *ret_read = ends[0];
        *ret_write = ends[1];
        return 0;
}

int vmm_spawn(const VmmSpawn *spawn, VmmProcess *ret) {
        _cleanup_close_ int gate = -EBADF, status = -EBADF;
        _cleanup_(vmm_process_done) VmmProcess p = VMM_PROCESS_INIT;
        static char path[] = "PATH=/usr/sbin:/usr/bin", lang[] = "LANG=C.UTF-8";
        char uid[32], gid[32];
        ChildPlan plan = { .spawn = spawn, .argv = { (char *) spawn->path, uid, gid }, .env = { path, lang } };

        (void) snprintf(uid, sizeof(uid), "--uid=%u", spawn->uid);
        (void) snprintf(gid, sizeof(gid), "--gid=%u", spawn->uid);
        int r = plan_journal(&plan);
        if (r >= 0)
                r = make_pipe(&gate, &p.gate_fd);
        if (r >= 0)
                r = make_pipe(&p.status_fd, &status);
        if (r < 0)
                return r;
        plan.gate_fd = gate;
        plan.status_fd = status;

        /* With the semantics of fork: a copy of the stack. PID 1 of its own pid namespace, so that
         * nothing in there outlives it. */
        long pid = syscall(SYS_clone, CLONE_NEWPID|CLONE_PIDFD|SIGCHLD, NULL, &p.pid_fd, NULL, 0);
        if (pid < 0)
                return -errno;
        if (pid == 0)
                child_run(&plan);

        p.pid = (pid_t) pid;
        *ret = p;
        p = VMM_PROCESS_INIT;
        return 0;
}

int vmm_gate_open(VmmProcess *p) {
        int r = write_full(p->gate_fd, "", 1);

        p->gate_fd = safe_close(p->gate_fd);
        return r;
}

void vmm_process_done(VmmProcess *p) {
        p->gate_fd = safe_close(p->gate_fd);
        p->status_fd = safe_close(p->status_fd);
        p->pid_fd = safe_close(p->pid_fd);
}

bool vmm_process_failure(const VmmProcess *p, const char **ret_step, int *ret_errno) {
        SpawnFailure f;

        if (p->status_fd < 0 || fd_set_nonblock(p->status_fd, true) < 0 ||
            read(p->status_fd, &f, sizeof(f)) != sizeof(f) || f.step < 0 || f.step >= _STEP_MAX)
                return false;
        *ret_step = step_text[f.step];
        *ret_errno = f.error;
        return true;
}
