/* SPDX-License-Identifier: Apache-2.0 */

/* The least that libmicrohttpd can do: answers every request at a unix socket with 204, until its input ends. What cube-gateway
 * adds to that is measured beside it. usage: bare-http SOCKET */

#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **context) {
        static int begun;

        if (!*context) {
                *context = &begun;
                return MHD_YES;
        }
        struct MHD_Response *response = MHD_create_response_from_buffer(0, (void *) "", MHD_RESPMEM_PERSISTENT);
        if (!response)
                return MHD_NO;
        enum MHD_Result k = MHD_queue_response(connection, MHD_HTTP_NO_CONTENT, response);
        MHD_destroy_response(response);
        return k;
}

int main(int argc, char *argv[]) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);

        if (argc != 2 || strlen(argv[1]) >= sizeof(address.sun_path)) {
                fputs("usage: bare-http SOCKET\n", stderr);
                return 2;
        }
        strcpy(address.sun_path, argv[1]);
        if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, 16) < 0) {
                perror("bare-http");
                return 1;
        }
        if (!MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
                              MHD_OPTION_END)) {
                fputs("bare-http: libmicrohttpd could not be started\n", stderr);
                return 1;
        }
        puts("ready");
        (void) fflush(stdout);
        while (read(STDIN_FILENO, (char [64]) {}, 64) > 0)
                ;
        return 0;
}
