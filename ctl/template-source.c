/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>

#include "base/work-directory.h"
#include "ctl/ctl.h"
#include "ctl/template-source.h"
#include "ctl/work.h"

#define LAYOUT "oci:"

/* The transports of skopeo that read neither a daemon nor the store of another program. */
static const char *const foreign[] = { "docker://", "docker-archive:", "oci-archive:" };

bool template_source_is_foreign(const char *from) {
        for (size_t i = 0; i < ELEMENTSOF(foreign); i++)
                if (startswith(from, foreign[i]))
                        return true;
        return false;
}

void template_source_done(TemplateSource *s) {
        s->fd = safe_close(s->fd);
        s->directory = work_directory_remove(s->directory);
        free(s->image);
        *s = TEMPLATE_SOURCE_INIT;
}

static int open_path(const char *path, int flags, TemplateSource *s) {
        s->fd = streq(path, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY|flags);
        if (s->fd >= 0)
                return 0;
        if (errno == ENOENT && *path != '/' && *path != '.')
                return ctl_fail_text(-ENOENT, "there is no such file; an image in a registry is docker://NAME",
                                     "open root file system %s", path);
        return ctl_fail(-errno, NULL, "open root file system %s", path);
}

/* Where its directory ends is where it ends for skopeo: at the first colon. */
static int open_layout(const char *where, TemplateSource *s) {
        const char *colon = strchrnul(where, ':');
        _cleanup_free_ char *directory = strndup(where, (size_t) (colon - where));

        s->image = strdup(*colon ? colon + 1 : "");
        if (!directory || !s->image)
                return -ENOMEM;
        return open_path(directory, O_DIRECTORY, s);
}

static int bring(const char *ref, const SkopeoOptions *options, TemplateSource *s) {
        _cleanup_free_ char *layout = NULL;
        int r = work_begin(&s->directory);

        if (r >= 0)
                r = skopeo_copy(ref, s->directory, options);
        if (r < 0)
                return r;
        s->image = strdup("");
        if (!s->image || asprintf(&layout, "%s/" SKOPEO_LAYOUT, s->directory) < 0) {
                layout = NULL;
                return -ENOMEM;
        }
        return open_path(layout, O_DIRECTORY, s);
}

int template_source_open(const char *from, const SkopeoOptions *options, TemplateSource *ret) {
        const char *layout = startswith(from, LAYOUT);

        if (template_source_is_foreign(from))
                return bring(from, options, ret);
        return layout ? open_layout(layout, ret) : open_path(from, 0, ret);
}
