/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "gateway/image-ref.h"

#define DOCKER "docker.io"
#define DIGITS "0123456789"
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define TAG_MAX 128U
#define DIGEST "sha256:"
#define DIGEST_DIGITS 64U

/* Labels of letters, digits and dashes, and maybe a port. */
static bool registry_valid(const char *s) {
        size_t n = strspn(s, LOWER DIGITS "-.");
        uint32_t port;

        if (n == 0 || n > 253 || strchr("-.", *s) || strchr("-.", s[n - 1]) || strstr(s, ".."))
                return false;
        return !s[n] || (s[n] == ':' && parse_u32(s + n + 1, &port) >= 0 && port > 0 && port <= UINT16_MAX);
}

/* Parts between slashes: words with one of . _ __ or dashes between. */
static bool repository_valid(const char *s) {
        for (;;) {
                size_t n = strspn(s, LOWER DIGITS);
                if (n == 0)
                        return false;
                s += n;
                if (!*s)
                        return true;
                size_t dashes = strspn(s, "-"), lines = strspn(s, "_");
                s += dashes > 0 ? dashes : lines > 0 && lines <= 2 ? lines : *s == '.' || *s == '/' ? 1 : 0;
        }
}

static bool tag_valid(const char *s) {
        size_t n = strlen(s);

        return n > 0 && n <= TAG_MAX && !strchr(".-", *s) && strspn(s, LOWER UPPER DIGITS "_.-") == n;
}

static bool digest_valid(const char *s) {
        const char *digits = startswith(s, DIGEST);

        return digits && strlen(digits) == DIGEST_DIGITS && strspn(digits, DIGITS "abcdef") == DIGEST_DIGITS;
}

/* What is before the first slash is a registry when it looks like a host, and no part of a name at Docker's. */
static const char *take_registry(const char *text, char ret[static IMAGE_REGISTRY_MAX]) {
        size_t n = strcspn(text, "/");

        if (!text[n] || n >= IMAGE_REGISTRY_MAX || (!memchr(text, '.', n) && !memchr(text, ':', n) && !startswith(text, "localhost/"))) {
                strcpy(ret, DOCKER);
                return text;
        }
        for (size_t i = 0; i < n; i++)
                ret[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char) (text[i] - 'A' + 'a') : text[i];
        ret[n] = 0;
        if (streq(ret, "index." DOCKER))
                strcpy(ret, DOCKER);
        return text + n + 1;
}

int image_ref_parse(const char *text, ImageRef *ret) {
        char repository[256], tag[TAG_MAX + 2] = "latest";
        const char *digest;

        text = take_registry(text, ret->registry);
        digest = strchr(text, '@');
        size_t n = strcspn(text, ":@");
        if (n >= sizeof(repository))
                return -EINVAL;
        memcpy(repository, text, n);
        repository[n] = 0;
        if (text[n] == ':') {
                size_t k = strcspn(text + n + 1, "@");
                if (k > TAG_MAX)
                        return -EINVAL;
                memcpy(tag, text + n + 1, k);
                tag[k] = 0;
        }
        if (!registry_valid(ret->registry) || !repository_valid(repository) || !tag_valid(tag) || (digest && !digest_valid(digest + 1)))
                return -EINVAL;
        bool official = streq(ret->registry, DOCKER) && !strchr(repository, '/');
        int k = snprintf(ret->name, sizeof(ret->name), "%s/%s%s%s%s", ret->registry, official ? "library/" : "", repository,
                         digest ? "@" : ":", digest ? digest + 1 : tag);
        return k < (int) sizeof(ret->name) ? 0 : -EINVAL;
}

static bool word_matches(const char *word, size_t n, const char *registry) {
        size_t size = strlen(registry);

        if (n > 1 && *word == '*')
                return size >= n && memcmp(registry + size - (n - 1), word + 1, n - 1) == 0;
        return n == size ? memcmp(word, registry, n) == 0 : n == 1 && *word == '*';
}

bool image_registry_listed(const char *list, const char *registry) {
        for (;;) {
                list += strspn(list, " ");
                size_t n = strcspn(list, " ");
                if (n == 0)
                        return false;
                if (word_matches(list, n, registry))
                        return true;
                list += n;
        }
}
