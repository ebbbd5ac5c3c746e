/* SPDX-License-Identifier: Apache-2.0 */

/* cube-vmm: one virtual machine, in one jailed process.
 *
 * Started by cubed as root with the listening control socket as descriptor 3. Everything else comes
 * over that socket. First the jail, then the system call filter, then the first byte is read. */

#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>

#include "base/parse.h"
#include "vmm/control.h"
#include "vmm/forbidden.h"
#include "vmm/jail.h"
#include "vmm/seccomp.h"

#ifdef VMM_SANITIZED
#define FLAVOUR " (sanitizer build: no jail, no filters)"
#else
#define FLAVOUR ""
#endif

typedef struct Arguments {
        uint32_t uid;
        uint32_t gid;
} Arguments;

static int usage(FILE *f) {
        fprintf(f, "cube-vmm --uid=UID --gid=GID\n"
                   "\n"
                   "Runs the virtual machine of one sandbox. Started by cubed, which passes the\n"
                   "listening control socket as descriptor %d. UID and GID must not be 0.\n", VMM_LISTEN_FD);
        return f == stderr ? -EINVAL : 0;
}

/* 1 when there is something to run, 0 when all is said. */
static int parse_arguments(int argc, char **argv, Arguments *ret) {
        static const struct option options[] = {
                { "uid", required_argument, NULL, 'u' },
                { "gid", required_argument, NULL, 'g' },
                { "version", no_argument, NULL, 'V' },
                { "help", no_argument, NULL, 'h' },
                {},
        };
        int c, r = 0;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
                switch (c) {

                case 'u':
                        r = parse_u32(optarg, &ret->uid);
                        break;

                case 'g':
                        r = parse_u32(optarg, &ret->gid);
                        break;

                case 'V':
                        puts("cube-vmm " VERSION FLAVOUR);
                        return 0;

                case 'h':
                        return usage(stdout);

                default:
                        return usage(stderr);
                }
                if (r < 0) {
                        fprintf(stderr, "cube-vmm: not an id: %s\n", optarg);
                        return r;
                }
        }

        if (optind != argc || ret->uid == 0 || ret->gid == 0)
                return usage(stderr);
        return 1;
}

static int on_signal(LoopSource *s, int fd, uint32_t events, void *userdata) {
        struct signalfd_siginfo info;

        if (read(fd, &info, sizeof(info)) == sizeof(info))
                machine_terminate(userdata);
        return 0;
}

/* As PID 1 of its namespace a process gets no signal that it does not handle. */
static int watch_signals(Loop *loop, Machine *machine, ErrorText *e) {
        LoopSource *source;
        sigset_t set;

        (void) sigemptyset(&set);
        (void) sigaddset(&set, SIGTERM);
        (void) sigaddset(&set, SIGINT);
        (void) sigaddset(&set, SIGRTMIN + 4); /* "power off" for systemd and machinectl */
        (void) pthread_sigmask(SIG_BLOCK, &set, NULL);
        (void) signal(SIGPIPE, SIG_IGN);
        (void) signal(SIGXFSZ, SIG_IGN);

        int fd = signalfd(-1, &set, SFD_CLOEXEC|SFD_NONBLOCK);
        int r = fd < 0 ? -errno : loop_add_fd(loop, fd, EPOLLIN, on_signal, machine, &source);
        return r < 0 ? error_set_errno(e, r, "watching signals") : 0;
}

static int setup(const Arguments *arguments, Loop **ret_loop, Machine **ret_machine, ErrorText *e) {
        uid_t started_as = getuid();
        Control *control;

        int r = jail_enter(arguments->uid, arguments->gid, e);
        if (r < 0)
                return r;

        r = loop_new(ret_loop);
        if (r >= 0)
                r = machine_new(*ret_loop, ret_machine);
        if (r < 0)
                return error_set_errno(e, r, "setting up");

        r = control_new(*ret_loop, *ret_machine, VMM_LISTEN_FD, started_as, &control, e);
        if (r < 0)
                return r;
        r = watch_signals(*ret_loop, *ret_machine, e);
        if (r < 0)
                return r;

        r = seccomp_prepare(e);
        if (r >= 0)
                r = forbidden_calls_catch(e);
        if (r < 0)
                return r;
        r = seccomp_apply(SECCOMP_CONSTRUCT);
        return r < 0 ? error_set_errno(e, r, "system call filter") : 0;
}

int main(int argc, char **argv) {
        Arguments arguments = {};
        Machine *machine;
        Loop *loop;
        ErrorText e = {};

        int r = parse_arguments(argc, argv, &arguments);
        if (r <= 0)
                return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;

        /* Threads of their own arenas would cost memory and system calls, and gain nothing here. */
        (void) mallopt(M_ARENA_MAX, 1);

        r = setup(&arguments, &loop, &machine, &e);
        if (r < 0) {
                fprintf(stderr, "cube-vmm: %s\n", e.text);
                return EXIT_FAILURE;
        }

        r = loop_run(loop);
        if (r < 0) {
                (void) error_set_errno(&e, r, "event loop");
                machine_end(machine, VMM_EXIT_VMM_ERROR, (uint32_t) -r, e.text);
                machine_finish(machine);
        }

        /* The kernel takes down threads, VM and memory at once; nothing here needs an orderly end. */
        _exit(EXIT_SUCCESS);
}
