/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <nettle/base64.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/tlv.h"
#include "fetch/fetch-proto.h"
#include "fetch/fetch-request.h"

/* What names of images and of registries are made of; no option of skopeo begins with a letter or a digit. */
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@"

void fetch_request_done(FetchRequest *r) {
        if (r->password)
                explicit_bzero(r->password, strlen(r->password));
        free(r->name);
        free(r->registry);
        free(r->user);
        free(r->password);
        *r = (FetchRequest) {};
}

static bool name_valid(const char *s) {
        return !isempty(s) && !strchr("._-/:@", *s) && !s[strspn(s, NAME_CHARACTERS)];
}

static int take_text(const Tlv *t, char **ret) {
        return *ret ? -EBADMSG : tlv_get_str(t, ret);
}

static int take(const Tlv *t, FetchRequest *r) {
        switch (t->tag) {
        case FETCH_TAG_NAME:
                return take_text(t, &r->name);
        case FETCH_TAG_REGISTRY:
                return take_text(t, &r->registry);
        case FETCH_TAG_USER:
                return take_text(t, &r->user);
        case FETCH_TAG_PASSWORD:
                return take_text(t, &r->password);
        case FETCH_TAG_BYTES_MAX:
                return tlv_get_u64(t, &r->bytes_max);
        default:
                return -EBADMSG;
        }
}

int fetch_request_parse(const void *data, size_t size, FetchRequest *ret) {
        TlvReader reader = TLV_READER_INIT(data, size);
        FetchRequest r = {};
        Tlv t;
        int k;

        while ((k = tlv_next(&reader, &t)) > 0) {
                k = take(&t, &r);
                if (k < 0)
                        break;
        }
        /* The authfile has user and password with a colon between. */
        if (k >= 0 && (!name_valid(r.name) || !name_valid(r.registry) || !r.user != !r.password || (r.user && strchr(r.user, ':')) ||
                       r.bytes_max == 0))
                k = -EBADMSG;
        if (k < 0) {
                fetch_request_done(&r);
                return k;
        }
        *ret = r;
        return 0;
}

static int encode(const FetchRequest *r, char **ret) {
        _cleanup_free_ char *plain = NULL;
        int n = asprintf(&plain, "%s:%s", r->user, r->password);

        if (n < 0) {
                plain = NULL;
                return -ENOMEM;
        }
        *ret = new0(char, BASE64_ENCODE_RAW_LENGTH((size_t) n) + 1);
        if (*ret)
                base64_encode_raw(*ret, (size_t) n, (const uint8_t *) plain);
        explicit_bzero(plain, (size_t) n);
        return *ret ? 0 : -ENOMEM;
}

int fetch_request_write_auth(const FetchRequest *r, int directory_fd, const char *name) {
        _cleanup_free_ char *auth = NULL, *text = NULL;
        _cleanup_close_ int fd = openat(directory_fd, name, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);

        if (fd < 0)
                return -errno;
        int k = r->user ? encode(r, &auth) : 0;
        if (k < 0)
                return k;
        int n = auth ? asprintf(&text, "{\"auths\":{\"%s\":{\"auth\":\"%s\"}}}\n", r->registry, auth) : asprintf(&text, "{\"auths\":{}}\n");
        if (n < 0) {
                text = NULL;
                return -ENOMEM;
        }
        k = write_full(fd, text, (size_t) n);
        explicit_bzero(text, (size_t) n);
        return k;
}
