/* SPDX-License-Identifier: Apache-2.0 */

/* The authority and its certificate, made by openssl(1). The authority can vouch for names below its domain alone, so that who
 * trusts it trusts it with nothing else. Keys are never seen by anybody but root: they are made in a directory of mode 0700. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "ctl/ctl.h"
#include "ctl/ingress-files.h"
#include "ctl/program.h"

#define FILE_MAX (64U * 1024U)
#define CA_DAYS "3650"
/* No longer than some clients accept. */
#define CERTIFICATE_DAYS "820"

/* One run of it, from the directory of the files to the one in which new ones are made. */
typedef struct Work {
        char *directory, *new;
} Work;

static char *path_in(const char *directory, const char *name) {
        char *p;

        return asprintf(&p, "%s/%s", directory, name) < 0 ? NULL : p;
}

static void work_done(Work *w) {
        static const char *const names[] = { "openssl.conf", "ca.key", "ca.pem", "tls.key", "tls.crt", "tls.pem", "ca.domain" };

        for (size_t i = 0; w->new && i < ELEMENTSOF(names); i++) {
                _cleanup_free_ char *p = path_in(w->new, names[i]);
                if (p)
                        (void) unlink(p);
        }
        if (w->new)
                (void) rmdir(w->new);
        free(w->new);
        free(w->directory);
}

static int write_new(const Work *w, const char *name, mode_t mode, const char *text) {
        _cleanup_free_ char *path = path_in(w->new, name);
        _cleanup_close_ int fd = -EBADF;

        if (!path)
                return -ENOMEM;
        fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, mode);
        if (fd < 0)
                return -errno;
        int r = write_full(fd, text, strlen(text));
        return r >= 0 && fsync(fd) < 0 ? -errno : r;
}

static int write_openssl_conf(const Work *w, const char *domain) {
        _cleanup_free_ char *text = NULL;

        if (asprintf(&text,
                     "[req]\ndistinguished_name = none\nprompt = no\n"
                     "[none]\n"
                     "[authority]\nbasicConstraints = critical,CA:TRUE,pathlen:0\nkeyUsage = critical,keyCertSign,cRLSign\n"
                     "subjectKeyIdentifier = hash\n"
                     "nameConstraints = critical,permitted;DNS:%s,excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:::/::\n"
                     "[server]\nbasicConstraints = critical,CA:FALSE\nkeyUsage = critical,digitalSignature\n"
                     "extendedKeyUsage = serverAuth\nsubjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n"
                     "subjectAltName = DNS:%s,DNS:*.%s\n", domain, domain, domain) < 0) {
                text = NULL;
                return -ENOMEM;
        }
        return write_new(w, "openssl.conf", 0600, text);
}

static int put(const Work *w, const char *name) {
        _cleanup_free_ char *from = path_in(w->new, name), *to = path_in(w->directory, name);

        if (!from || !to)
                return -ENOMEM;
        return rename(from, to) < 0 ? ctl_fail(-errno, NULL, "write %s", to) : 0;
}

static int make_key(const char *path) {
        const char *const argv[] = {
                "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path, NULL,
        };

        return program_run(argv);
}

static int make_authority(const Work *w, const char *domain) {
        _cleanup_free_ char *conf = path_in(w->new, "openssl.conf"), *key = path_in(w->new, "ca.key"),
                            *ca = path_in(w->new, "ca.pem"), *name = NULL;

        if (!conf || !key || !ca || asprintf(&name, "/O=cubed/CN=authority of this host for %.24s", domain) < 0) {
                name = NULL;
                return -ENOMEM;
        }
        const char *const argv[] = {
                "openssl", "req", "-x509", "-batch", "-config", conf, "-extensions", "authority", "-key", key, "-out", ca,
                "-days", CA_DAYS, "-subj", name, NULL,
        };
        int r = make_key(key);
        if (r >= 0)
                r = program_run(argv);
        if (r >= 0 && chmod(ca, 0644) < 0)
                r = ctl_fail(-errno, NULL, "set the mode of %s", ca);
        if (r >= 0)
                r = write_new(w, "ca.domain", 0644, domain);
        if (r >= 0)
                r = put(w, "ca.key");
        if (r >= 0)
                r = put(w, "ca.pem");
        /* Last: without it both are made anew. */
        return r < 0 ? r : put(w, "ca.domain");
}

static bool has_authority(const Work *w, const char *domain) {
        _cleanup_free_ char *path = path_in(w->directory, "ca.domain"), *text = NULL;

        return path && read_file(AT_FDCWD, path, INGRESS_HOST_MAX, &text, NULL) >= 0 && streq(text, domain);
}

/* haproxy wants the key in the same file. */
static int join(const Work *w, const char *key, const char *certificate) {
        _cleanup_free_ char *first = NULL, *second = NULL, *both = NULL;

        int r = read_file(AT_FDCWD, key, FILE_MAX, &first, NULL);
        if (r >= 0)
                r = read_file(AT_FDCWD, certificate, FILE_MAX, &second, NULL);
        if (r >= 0 && asprintf(&both, "%s%s", first, second) < 0) {
                both = NULL;
                r = -ENOMEM;
        }
        if (r >= 0)
                r = write_new(w, "tls.pem", 0600, both);
        if (first)
                explicit_bzero(first, strlen(first));
        if (both)
                explicit_bzero(both, strlen(both));
        return r;
}

static int make_certificate(const Work *w) {
        _cleanup_free_ char *conf = path_in(w->new, "openssl.conf"), *key = path_in(w->new, "tls.key"),
                            *certificate = path_in(w->new, "tls.crt"), *ca = path_in(w->directory, "ca.pem"),
                            *ca_key = path_in(w->directory, "ca.key");

        if (!conf || !key || !certificate || !ca || !ca_key)
                return -ENOMEM;
        const char *const argv[] = {
                "openssl", "req", "-x509", "-batch", "-config", conf, "-extensions", "server", "-key", key, "-out",
                certificate, "-days", CERTIFICATE_DAYS, "-subj", "/O=cubed/CN=sandboxes of this host", "-CA", ca, "-CAkey", ca_key, NULL,
        };
        int r = make_key(key);
        if (r >= 0)
                r = program_run(argv);
        if (r >= 0)
                r = join(w, key, certificate);
        return r < 0 ? r : put(w, "tls.pem");
}

static int work_begin(const char *root, Work *ret) {
        ret->directory = path_in(root, &INGRESS_DIRECTORY[1]);
        ret->new = ret->directory ? path_in(ret->directory, "new-XXXXXX") : NULL;
        if (!ret->new)
                return -ENOMEM;
        if (!mkdtemp(ret->new)) {
                int r = ctl_fail(-errno, NULL, "make a directory in %s", ret->directory);
                free(ret->new);
                ret->new = NULL;
                return r;
        }
        return 0;
}

int ingress_certificate_make(const char *root, const char *domain) {
        Work w = {};

        int r = work_begin(root, &w);
        if (r >= 0) {
                r = write_openssl_conf(&w, domain);
                if (r >= 0 && !has_authority(&w, domain))
                        r = make_authority(&w, domain);
                if (r >= 0)
                        r = make_certificate(&w);
        }
        work_done(&w);
        return r;
}
