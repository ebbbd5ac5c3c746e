/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "guest/bpf-load.h"
#include "guest/forward.h"
#include "guest/log.h"
#include "guest/loopback.h"
/* Speaks of what the others declare. */
#include "guest/bpf/loopback-insns.h"

#define FORWARDS_MAX 1024U
/* Connections taken in one turn of the loop. */
#define ACCEPT_BUDGET 32U

static const BpfProgram count_program = {
        .insns = loopback_count_insns, .n_insns = ELEMENTSOF(loopback_count_insns),
        .maps = loopback_count_maps, .n_maps = ELEMENTSOF(loopback_count_maps),
        .type = BPF_PROG_TYPE_SOCK_OPS, .attach = BPF_CGROUP_SOCK_OPS,
};

static const BpfProgram steer_program = {
        .insns = loopback_steer_insns, .n_insns = ELEMENTSOF(loopback_steer_insns),
        .maps = loopback_steer_maps, .n_maps = ELEMENTSOF(loopback_steer_maps),
        .type = BPF_PROG_TYPE_SK_LOOKUP, .attach = BPF_SK_LOOKUP,
};

static void on_listen(LoopSource *source, uint32_t events) {
        Loopback *l = source->userdata;

        for (unsigned i = 0; i < ACCEPT_BUDGET; i++) {
                /* The rest waits in the kernel's queue until one ends. */
                if (l->n_forwards >= FORWARDS_MAX)
                        return;
                int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
                if (fd < 0 && errno != ECONNABORTED && errno != EINTR)
                        return;
                /* Not a word about what failed: whoever connects could fill the log with it. */
                if (fd >= 0)
                        (void) forward_new(l, fd);
        }
        (void) loop_rearm(source);
}

void loopback_add(Loopback *l, Forward *f) {
        LIST_PREPEND(l->forwards, f);
        l->n_forwards++;
}

void loopback_remove(Loopback *l, Forward *f) {
        LIST_REMOVE(l->forwards, f);
        l->n_forwards--;
        /* What could not be accepted before, for want of a descriptor or of room, may be now. */
        for (unsigned i = 0; i < LOOPBACK_N_LISTENERS; i++)
                if (l->listeners[i].source.loop)
                        (void) loop_rearm(&l->listeners[i].source);
}

static int open_listener(int family, int *ret_fd) {
        struct sockaddr_in in4 = {
                .sin_family = AF_INET, .sin_port = htons(LOOPBACK_LISTENER_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        struct sockaddr_in6 in6 = {
                .sin6_family = AF_INET6, .sin6_port = htons(LOOPBACK_LISTENER_PORT), .sin6_addr = IN6ADDR_LOOPBACK_INIT,
        };
        const int one = 1;

        _cleanup_close_ int fd = socket(family, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        /* REUSEADDR: accepted connections have it from the listener, so that others can bind their port under them.
         * FREEBIND: the loopback link need not be up. */
        if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
            setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one)) < 0)
                return -errno;
        int r = family == AF_INET6 ? bind(fd, (struct sockaddr *) &in6, sizeof(in6)) :
                                     bind(fd, (struct sockaddr *) &in4, sizeof(in4));
        if (r < 0 || listen(fd, SOMAXCONN) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int start_listener(Loopback *l, unsigned which, int family) {
        LoopbackListener *x = &l->listeners[which];

        int r = open_listener(family, &x->fd);
        if (r < 0)
                return r;
        return loop_add(l->loop, &x->source, x->fd, EPOLLIN|EPOLLET, on_listen, l);
}

/* Before the programs: they do not count as servers. A kernel without IPv6 needs only one. */
static int start_listeners(Loopback *l) {
        int r = start_listener(l, LOOPBACK_LISTENER4, AF_INET);
        if (r < 0)
                return r;
        r = start_listener(l, LOOPBACK_LISTENER6, AF_INET6);
        return r == -EAFNOSUPPORT ? 0 : r;
}

static int write_config(Loopback *l, uint32_t card) {
        LoopbackConfig config = { .netns_cookie = l->netns_cookie, .card = card };

        return bpf_map_set(l->maps[LOOPBACK_CONFIG], 0, &config);
}

static int make_maps(Loopback *l) {
        int r = bpf_map_new(BPF_MAP_TYPE_ARRAY, sizeof(LoopbackConfig), 1, &l->maps[LOOPBACK_CONFIG]);
        if (r < 0)
                return r;
        r = bpf_map_new(BPF_MAP_TYPE_ARRAY, sizeof(uint64_t), LOOPBACK_N_PORTS, &l->maps[LOOPBACK_PORTS]);
        if (r < 0)
                return r;
        return bpf_map_new(BPF_MAP_TYPE_SOCKMAP, sizeof(uint64_t), LOOPBACK_N_LISTENERS, &l->maps[LOOPBACK_LISTENERS]);
}

static int fill_maps(Loopback *l) {
        socklen_t size = sizeof(l->netns_cookie);

        if (getsockopt(l->listeners[LOOPBACK_LISTENER4].fd, SOL_SOCKET, SO_NETNS_COOKIE, &l->netns_cookie, &size) < 0)
                return -errno;
        for (uint32_t i = 0; i < LOOPBACK_N_LISTENERS; i++) {
                uint64_t fd = (uint64_t) l->listeners[i].fd;

                if (l->listeners[i].fd < 0)
                        continue;
                int r = bpf_map_set(l->maps[LOOPBACK_LISTENERS], i, &fd);
                if (r < 0)
                        return r;
        }
        return write_config(l, 0);
}

/* The root of the cgroup tree, wherever and whether it is mounted in the image. */
static int open_cgroup_root(int *ret_fd) {
        _cleanup_close_ int fs = fsopen("cgroup2", FSOPEN_CLOEXEC);
        if (fs < 0)
                return -errno;
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        _cleanup_close_ int mount_fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
        if (mount_fd < 0)
                return -errno;
        int fd = openat(mount_fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

static int attach_programs(Loopback *l) {
        _cleanup_close_ int cgroup_fd = -EBADF, netns_fd = -EBADF;

        int r = open_cgroup_root(&cgroup_fd);
        if (r < 0)
                return r;
        netns_fd = open("/proc/self/ns/net", O_RDONLY|O_CLOEXEC);
        if (netns_fd < 0)
                return -errno;
        r = bpf_program_attach(&count_program, l->maps, cgroup_fd, &l->count_link);
        if (r < 0)
                return r;
        return bpf_program_attach(&steer_program, l->maps, netns_fd, &l->steer_link);
}

void loopback_start(Loopback *l, Loop *loop) {
        *l = (Loopback) {
                .loop = loop,
                .maps = { -EBADF, -EBADF, -EBADF },
                .count_link = -EBADF,
                .steer_link = -EBADF,
                .listeners = { { .fd = -EBADF }, { .fd = -EBADF } },
        };
        const char *what = "listeners";
        int r = start_listeners(l);
        if (r >= 0) {
                what = "BPF maps";
                r = make_maps(l);
        }
        if (r >= 0)
                r = fill_maps(l);
        if (r >= 0) {
                what = "BPF programs on network and cgroups";
                r = attach_programs(l);
        }
        if (r < 0) {
                log_warning("servers on 127.0.0.1 can't be reached from outside: %s: %s", what, strerror(-r));
                loopback_done(l);
        }
}

void loopback_set_card(Loopback *l, uint32_t index) {
        if (!l->loop)
                return;
        int r = write_config(l, index);
        if (r < 0)
                log_warning("servers on 127.0.0.1 can't be reached from outside: %s", strerror(-r));
}

void loopback_abandon(Loopback *l) {
        while (l->forwards)
                forward_abandon(l->forwards);
}

void loopback_done(Loopback *l) {
        if (!l->loop)
                return;
        loopback_abandon(l);
        for (unsigned i = 0; i < LOOPBACK_N_LISTENERS; i++) {
                loop_remove(&l->listeners[i].source);
                l->listeners[i].fd = safe_close(l->listeners[i].fd);
        }
        l->steer_link = safe_close(l->steer_link);
        l->count_link = safe_close(l->count_link);
        for (unsigned i = 0; i < _LOOPBACK_MAP_MAX; i++)
                l->maps[i] = safe_close(l->maps[i]);
        l->loop = NULL;
}
