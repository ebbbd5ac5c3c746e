/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/ingress-files.h"

#define VARIABLES_MAX 4096U
#define GATEWAY_PART "/etc/cubed/gateway.conf.d/ingress.conf"

/* Addresses and names. */

static bool address_valid(const char *s) {
        unsigned char a[sizeof(struct in6_addr)];

        return inet_pton(strchr(s, ':') ? AF_INET6 : AF_INET, s, a) == 1;
}

int ingress_address_parse(const char *s, uint16_t default_port, char ret[static INGRESS_ADDRESS_MAX]) {
        char host[INGRESS_ADDRESS_MAX];
        uint32_t port = default_port;
        const char *rest;

        if (strlen(s) >= sizeof(host))
                return -EINVAL;
        strcpy(host, s);
        char *at = host;
        if (*host == '[') {
                char *end = strchr(host, ']');
                if (!end)
                        return -EINVAL;
                *end = 0;
                at = host + 1;
                rest = end + 1;
        } else {
                char *colon = strchr(host, ':');
                rest = colon ? s + (colon - host) : "";
                if (colon)
                        *colon = 0;
                else if (strspn(host, "0123456789") == strlen(host)) {
                        if (parse_u32(host, &port) < 0)
                                return -EINVAL;
                        strcpy(host, "127.0.0.1");
                }
        }
        if (*rest && (*rest != ':' || parse_u32(rest + 1, &port) < 0))
                return -EINVAL;
        if (port == 0 || port > UINT16_MAX || !address_valid(at) || (*host == '[') != (strchr(at, ':') != NULL))
                return -EINVAL;
        int n = snprintf(ret, INGRESS_ADDRESS_MAX, at == host ? "%s:%u" : "[%s]:%u", at, port);
        return n > 0 && (size_t) n < INGRESS_ADDRESS_MAX ? 0 : -EINVAL;
}

bool ingress_address_is_loopback(const char *address) {
        return startswith(address, "127.") || startswith(address, "[::1]:");
}

const char *ingress_address_port(const char *address) {
        const char *colon = strrchr(address, ':');

        return colon ? colon + 1 : "";
}

static bool is_any(const char *address) {
        return startswith(address, "0.0.0.0:") || startswith(address, "[::]:");
}

bool ingress_addresses_collide(const char *a, const char *b) {
        return streq(ingress_address_port(a), ingress_address_port(b)) && (streq(a, b) || is_any(a) || is_any(b));
}

/* A wildcard counts only above a name that has a dot itself. */
bool ingress_domain_valid(const char *s) {
        size_t label = 0;
        bool dot = false;

        if (strlen(s) >= INGRESS_HOST_MAX)
                return false;
        for (const char *p = s; *p; p++) {
                if (*p == '.') {
                        if (label == 0 || p[-1] == '-' || !p[1])
                                return false;
                        dot = true;
                        label = 0;
                        continue;
                }
                if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-", *p) || (*p == '-' && label == 0) || ++label > 63)
                        return false;
        }
        return dot && label > 0 && s[strlen(s) - 1] != '-';
}

/* Files. */

static int make_directory(const char *root, const char *path) {
        _cleanup_free_ char *full = NULL;

        if (asprintf(&full, "%s%s", root, path) < 0) {
                full = NULL;
                return -ENOMEM;
        }
        for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
                *p = 0;
                (void) mkdir(full, 0755);
                *p = '/';
        }
        if (mkdir(full, 0755) < 0 && errno != EEXIST)
                return ctl_fail(-errno, NULL, "make the directory %s", full);
        return 0;
}

static int write_file(const char *root, const char *path, const char *text) {
        _cleanup_free_ char *full = NULL, *temporary = NULL;
        _cleanup_close_ int fd = -EBADF;

        if (asprintf(&full, "%s%s", root, path) < 0 || asprintf(&temporary, "%s%s.new", root, path) < 0)
                return -ENOMEM;
        fd = open(temporary, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0644);
        if (fd < 0)
                return ctl_fail(-errno, NULL, "write %s", temporary);
        int r = write_full(fd, text, strlen(text));
        if (r >= 0 && (fchmod(fd, 0644) < 0 || fsync(fd) < 0 || rename(temporary, full) < 0))
                r = -errno;
        if (r < 0)
                (void) unlink(temporary);
        return r < 0 ? ctl_fail(r, NULL, "write %s", full) : 0;
}

static int remove_file(const char *root, const char *path) {
        _cleanup_free_ char *full = NULL;

        if (asprintf(&full, "%s%s", root, path) < 0) {
                full = NULL;
                return -ENOMEM;
        }
        return unlink(full) < 0 && errno != ENOENT ? ctl_fail(-errno, NULL, "remove %s", full) : 0;
}

static int write_gateway_part(const char *root, const IngressSpec *s) {
        _cleanup_free_ char *text = NULL;
        const char *port = ingress_address_port(s->https);

        if (!*s->domain)
                return remove_file(root, GATEWAY_PART);
        if (asprintf(&text, "# By cubectl ingress setup.\n[Gateway]\nDomain=%s%s%s\n", s->domain, streq(port, "443") ? "" : ":",
                     streq(port, "443") ? "" : port) < 0) {
                text = NULL;
                return -ENOMEM;
        }
        int r = make_directory(root, "/etc/cubed/gateway.conf.d");
        return r < 0 ? r : write_file(root, GATEWAY_PART, text);
}

int ingress_files_write(const char *root, const IngressSpec *s) {
        _cleanup_free_ char *text = NULL;

        int n = *s->domain ? asprintf(&text, "# By cubectl ingress setup; see cube-ingress(8).\nHTTP=%s\nHTTPS=%s\nDOMAIN=%s\n", s->http,
                                      s->https, s->domain)
                           : asprintf(&text, "# By cubectl ingress setup; see cube-ingress(8).\nHTTP=%s\n", s->http);
        if (n < 0) {
                text = NULL;
                return -ENOMEM;
        }
        int r = make_directory(root, INGRESS_DIRECTORY);
        if (r >= 0)
                r = write_gateway_part(root, s);
        return r < 0 ? r : write_file(root, INGRESS_VARIABLES, text);
}

static int take_variable(char *line, IngressSpec *ret) {
        char *value = line, *name = strsep(&value, "=");
        struct {
                const char *name;
                char *to;
                size_t size;
        } known[] = {
                { "HTTP", ret->http, sizeof(ret->http) },
                { "HTTPS", ret->https, sizeof(ret->https) },
                { "DOMAIN", ret->domain, sizeof(ret->domain) },
        };

        for (size_t i = 0; value && i < ELEMENTSOF(known); i++)
                if (streq(name, known[i].name)) {
                        if (strlen(value) >= known[i].size)
                                return -EINVAL;
                        strcpy(known[i].to, value);
                }
        return 0;
}

int ingress_files_read(const char *root, IngressSpec *ret) {
        _cleanup_free_ char *path = NULL, *text = NULL;
        char *at, *line;

        if (asprintf(&path, "%s" INGRESS_VARIABLES, root) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        *ret = (IngressSpec) {};
        int r = read_file(AT_FDCWD, path, VARIABLES_MAX, &text, NULL);
        if (r == -ENOENT)
                return r;
        at = text;
        while (r >= 0 && (line = strsep(&at, "\n")))
                if (*line != '#')
                        r = take_variable(line, ret);
        return r < 0 ? ctl_fail(r, NULL, "read %s", path) : 0;
}

int ingress_files_remove(const char *root) {
        static const char *const files[] = {
                INGRESS_VARIABLES, GATEWAY_PART, INGRESS_DIRECTORY "/ca.key", INGRESS_CA, INGRESS_DIRECTORY "/ca.domain",
                INGRESS_DIRECTORY "/tls.pem",
        };
        _cleanup_free_ char *directory = NULL;

        for (size_t i = 0; i < ELEMENTSOF(files); i++) {
                int r = remove_file(root, files[i]);
                if (r < 0)
                        return r;
        }
        if (asprintf(&directory, "%s" INGRESS_DIRECTORY, root) < 0) {
                directory = NULL;
                return -ENOMEM;
        }
        /* What an admin put there stays. */
        (void) rmdir(directory);
        return 0;
}
