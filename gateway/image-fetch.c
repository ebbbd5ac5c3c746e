/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "base/tlv.h"
#include "fetch/fetch-proto.h"
#include "gateway/image-fetch.h"

struct ImageFetch {
        int link_fd;
        sd_event_source *io, *timer;
        ImageFetchLog log;
        ImageFetchDone done;
        void *userdata;
        uint64_t timeout_usec;
        bool over;                 /* whoever wants it was told; the connection is held for the image's sake */
};

ImageFetch *image_fetch_free(ImageFetch *f) {
        if (!f)
                return NULL;

        sd_event_source_disable_unref(f->io);
        sd_event_source_disable_unref(f->timer);
        safe_close(f->link_fd);
        free(f);
        return NULL;
}

static void end(ImageFetch *f, int layout_fd, const char *why) {
        if (f->over)
                return;
        f->over = true;
        f->io = sd_event_source_disable_unref(f->io);
        f->timer = sd_event_source_disable_unref(f->timer);
        f->done(layout_fd, why, f->userdata);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        char text[FORMAT_USEC_MAX + 64], most[FORMAT_USEC_MAX];
        ImageFetch *f = userdata;

        (void) snprintf(text, sizeof(text), "The image was not there within %s (ImageTimeoutSec=)", format_usec(most, f->timeout_usec));
        end(f, -EBADF, text);
        return 0;
}

/* Of cube-fetch, which has to do with registries of anybody's. */
static void take_packet(ImageFetch *f, char *packet, size_t size, int fd) {
        packet[size] = 0;
        if (*packet == FETCH_LOG && fd < 0)
                f->log(packet + 1, size - 1, f->userdata);
        else if (*packet == FETCH_FAILED && fd < 0)
                end(f, -EBADF, packet + 1);
        else if (*packet == FETCH_DONE && fd >= 0)
                end(f, fd, NULL);
        else
                end(f, -EBADF, "The service that fetches images does not speak as it should; see journalctl -u 'cube-fetch@*'");
}

static int on_link(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        char packet[FETCH_TEXT_MAX + 2];
        ImageFetch *f = userdata;
        int received = -EBADF;
        size_t n_fds = 0;

        ssize_t n = recv_packet(fd, packet, sizeof(packet) - 1, &received, 1, &n_fds);
        if (n == -EAGAIN)
                return 0;
        if (n <= 0) {
                end(f, -EBADF, "The service that fetches images has ended, or fetches as many as it may: try again");
                return 0;
        }
        take_packet(f, packet, (size_t) n, n_fds > 0 ? received : -EBADF);
        if (n_fds > 0)
                safe_close(received);
        return 0;
}

static int connect_to(const char *path, int *ret_fd) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        strcpy(address.sun_path, path);
        if (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int send_networks(int fd, const char *networks) {
        const struct iovec iov[] = { { (char[]) { FETCH_NETWORKS }, 1 }, { (char *) networks, strlen(networks) } };

        return send_packet(fd, iov, ELEMENTSOF(iov), NULL, 0);
}

static int send_image(int fd, const ImageFetchSpec *s, int relay_fd) {
        TlvWriter w = TLV_WRITER_INIT(FETCH_PACKET_MAX - 1);

        tlv_put_str(&w, FETCH_TAG_NAME, s->ref.name);
        tlv_put_str(&w, FETCH_TAG_REGISTRY, s->ref.registry);
        if (s->user) {
                tlv_put_str(&w, FETCH_TAG_USER, s->user);
                tlv_put_str(&w, FETCH_TAG_PASSWORD, s->password);
        }
        tlv_put_u64(&w, FETCH_TAG_BYTES_MAX, s->bytes_max);
        int r = tlv_writer_finish(&w);
        const struct iovec iov[] = { { (char[]) { FETCH_IMAGE }, 1 }, { w.data, w.size } };
        if (r >= 0)
                r = send_packet(fd, iov, ELEMENTSOF(iov), &relay_fd, 1);
        if (w.data)
                explicit_bzero(w.data, w.size);
        tlv_writer_done(&w);
        return r;
}

int image_fetch_start(sd_event *e, const ImageFetchSpec *spec, ImageFetchLog log, ImageFetchDone done, void *userdata, ImageFetch **ret) {
        _cleanup_close_ int relay_fd = -EBADF;
        ImageFetch *f = new0(ImageFetch, 1);

        if (!f)
                return -ENOMEM;
        *f = (ImageFetch) { .link_fd = -EBADF, .log = log, .done = done, .userdata = userdata, .timeout_usec = spec->timeout_usec };
        int r = connect_to(spec->relay_socket, &relay_fd);
        if (r >= 0)
                r = send_networks(relay_fd, spec->networks);
        if (r >= 0)
                r = connect_to(spec->socket, &f->link_fd);
        if (r >= 0)
                r = send_image(f->link_fd, spec, relay_fd);
        if (r >= 0)
                r = sd_event_add_io(e, &f->io, f->link_fd, EPOLLIN, on_link, f);
        /* Requests go first. */
        if (r >= 0)
                r = sd_event_source_set_priority(f->io, SD_EVENT_PRIORITY_IDLE);
        if (r >= 0)
                r = sd_event_add_time_relative(e, &f->timer, CLOCK_MONOTONIC, spec->timeout_usec, 0, on_timer, f);
        if (r < 0) {
                image_fetch_free(f);
                /* systemd closes what is one too many (MaxConnections=) as soon as it has come. */
                return r == -EPIPE || r == -ECONNRESET ? -EAGAIN : r;
        }
        *ret = f;
        return 0;
}
