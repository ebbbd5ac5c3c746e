/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <strings.h>
#include <sys/xattr.h>

#include "guest/envd-metadata.h"

#define FIELD_PREFIX "X-Metadata-"
#define ATTRIBUTE_PREFIX "user.e2b."
#define METADATA_KEY_MAX 246U
#define METADATA_VALUE_MAX 4096U
/* As much as the kernel lists. */
#define LIST_MAX 65536U

static bool printable(const char *s) {
        for (; *s; s++)
                if ((unsigned char) *s < ' ' || (unsigned char) *s > '~')
                        return false;
        return true;
}

int metadata_parse(const HttpRequest *q, json_object **ret, char ret_message[static METADATA_MESSAGE_MAX]) {
        _cleanup_json_ json_object *metadata = NULL;

        for (unsigned i = 0; i < q->n_fields; i++) {
                const char *name = q->text + q->names[i], *value = q->text + q->values[i];
                char key[METADATA_KEY_MAX + 1];

                if (strncasecmp(name, FIELD_PREFIX, strlen(FIELD_PREFIX)) != 0)
                        continue;
                name += strlen(FIELD_PREFIX);
                size_t n = strlen(name);
                if (n == 0 || n > METADATA_KEY_MAX || !printable(name)) {
                        snprintf(ret_message, METADATA_MESSAGE_MAX, "a key has 1 to %u printable ASCII characters",
                                 METADATA_KEY_MAX);
                        return -EINVAL;
                }
                if (strlen(value) > METADATA_VALUE_MAX || !printable(value)) {
                        snprintf(ret_message, METADATA_MESSAGE_MAX, "a value has up to %u printable ASCII characters",
                                 METADATA_VALUE_MAX);
                        return -EINVAL;
                }
                for (size_t k = 0; k <= n; k++)
                        key[k] = (char) tolower((unsigned char) name[k]);
                if (!metadata)
                        metadata = json_object_new_object();
                json_put_text(metadata, key, value);
        }
        *ret = TAKE_PTR(metadata);
        return 0;
}

static int remove_all(int fd) {
        _cleanup_free_ char *names = malloc(LIST_MAX);

        if (!names)
                return -ENOMEM;
        ssize_t n = flistxattr(fd, names, LIST_MAX);
        for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1)
                if (startswith(name, ATTRIBUTE_PREFIX) && fremovexattr(fd, name) < 0)
                        return -errno;
        return n < 0 ? -errno : 0;
}

int metadata_set(int fd, json_object *metadata) {
        char name[sizeof(ATTRIBUTE_PREFIX) + METADATA_KEY_MAX];

        int r = remove_all(fd);
        if (r < 0 || !metadata)
                return r;
        json_object_object_foreach(metadata, key, value) {
                const char *text = json_object_get_string(value);

                snprintf(name, sizeof(name), ATTRIBUTE_PREFIX "%s", key);
                if (fsetxattr(fd, name, text, strlen(text), 0) < 0)
                        return -errno;
        }
        return 0;
}

json_object *metadata_get(const char *path) {
        char small[1024], value[METADATA_VALUE_MAX + 1];
        _cleanup_free_ char *large = NULL;
        json_object *metadata = NULL;
        char *names = small;

        /* Most files have none. */
        ssize_t n = llistxattr(path, small, sizeof(small));
        if (n < 0 && errno == ERANGE) {
                names = large = malloc(LIST_MAX);
                n = large ? llistxattr(path, large, LIST_MAX) : -1;
        }
        for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
                const char *key = startswith(name, ATTRIBUTE_PREFIX);
                ssize_t size = key ? lgetxattr(path, name, value, METADATA_VALUE_MAX) : -1;

                if (size < 0)
                        continue;
                value[size] = 0;
                if (!metadata)
                        metadata = json_object_new_object();
                json_put_text(metadata, key, value);
        }
        return metadata;
}
