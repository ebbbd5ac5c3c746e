/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>

#include "base/fd-util.h"
#include "net/name-servers.h"

#define FILE_MAX 65536U

socklen_t server_address_size(const ServerAddress *a) {
        return a->any.sa_family == AF_INET ? sizeof(a->in) : sizeof(a->in6);
}

/* "192.0.2.1", "2001:db8::1", "fe80::1%eth0" */
static bool parse_address(char *text, uint16_t port, ServerAddress *ret) {
        char *scope = strchr(text, '%');

        *ret = (ServerAddress) {};
        if (inet_pton(AF_INET, text, &ret->in.sin_addr) == 1) {
                ret->in.sin_family = AF_INET;
                ret->in.sin_port = htons(port);
                return true;
        }
        if (scope)
                *scope++ = 0;
        if (inet_pton(AF_INET6, text, &ret->in6.sin6_addr) != 1)
                return false;
        ret->in6.sin6_family = AF_INET6;
        ret->in6.sin6_port = htons(port);
        ret->in6.sin6_scope_id = scope ? if_nametoindex(scope) : 0;
        return true;
}

static void parse(NameServers *s, char *text, uint16_t port) {
        char *save = NULL;

        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                char *inner = NULL, *word = strtok_r(line, " \t\r", &inner);
                if (!word || !streq(word, "nameserver") || s->n >= NAME_SERVERS_MAX)
                        continue;
                word = strtok_r(NULL, " \t\r", &inner);
                if (word && parse_address(word, port, &s->servers[s->n]))
                        s->n++;
        }
}

static bool is_same(const struct stat *a, const struct stat *b) {
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
               a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

void name_servers_refresh(NameServers *s, const char *path, uint16_t port) {
        static char local[] = "127.0.0.1";
        _cleanup_free_ char *text = NULL;
        struct stat st = {};

        if (stat(path, &st) < 0)
                st = (struct stat) {};
        if (s->n > 0 && is_same(&st, &s->seen))
                return;
        s->seen = st;
        s->n = 0;
        if (read_file(AT_FDCWD, path, FILE_MAX, &text, NULL) >= 0)
                parse(s, text, port);
        if (s->n == 0 && parse_address(local, port, &s->servers[0]))
                s->n = 1;
}
