/* SPDX-License-Identifier: Apache-2.0 */
#include <pwd.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "daemon/nss-child.h"
#include "daemon/user-names.h"

#define NAMES_MAX 64U
/* What the child says of a name that is nobody's. */
#define NOBODY UINT32_MAX

/* NAMES_MAX + 1 when there are more. */
static size_t split(char *text, const char *words[static NAMES_MAX]) {
        size_t n = 0;

        for (char *save = NULL, *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
                if (n == NAMES_MAX)
                        return n + 1;
                words[n++] = w;
        }
        return n;
}

typedef struct Names {
        const char *words[NAMES_MAX];
        size_t n;
} Names;

static void find_child(int fd, const void *arg) {
        const Names *names = arg;

        for (size_t i = 0; i < names->n; i++) {
                const struct passwd *p = getpwnam(names->words[i]);
                uint32_t uid = p ? p->pw_uid : NOBODY;

                if (write_full(fd, &uid, sizeof(uid)) < 0)
                        return;
        }
}

int user_names_find(const char *names, uint64_t timeout_usec, uint32_t *uids, size_t max, size_t *ret_n, char **ret_unknown) {
        _cleanup_free_ char *text = strdup(names), *unknown = NULL;
        uint32_t found[NAMES_MAX];
        size_t known = 0, size = 0, answered;
        Names wanted;
        FILE *f;

        if (!text)
                return -ENOMEM;
        wanted.n = split(text, wanted.words);
        if (wanted.n > MIN(max, (size_t) NAMES_MAX))
                return -E2BIG;
        int r = nss_child_ask(find_child, &wanted, timeout_usec, found, wanted.n * sizeof(*found), &answered);
        if (r < 0)
                return r;
        if (answered < wanted.n * sizeof(*found))
                return -EIO;
        f = open_memstream(&unknown, &size);
        if (!f)
                return -ENOMEM;
        for (size_t i = 0; i < wanted.n; i++)
                if (found[i] == NOBODY)
                        fprintf(f, "%s%.64s", ftell(f) > 0 ? ", " : "", wanted.words[i]);
                else
                        uids[known++] = found[i];
        if (fclose(f) != 0)
                return -ENOMEM;
        *ret_n = known;
        *ret_unknown = size > 0 ? TAKE_PTR(unknown) : NULL;
        return 0;
}
