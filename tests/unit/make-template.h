/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A template's directory as a build would leave it, with files of the right sizes and nothing in them. */

#include "daemon/template.h"
#include "temp-dir.h"

#define MADE_TEMPLATE_JSON                                                                                  \
        "{\"version\":1,\"id\":\"%s\",\"name\":\"%s\",\"tag\":\"latest\",\"owner_uid\":%u,"                   \
        "\"created_usec\":1700000000000000,\"root_type\":\"squashfs\","                                      \
        "\"kernel\":{\"release\":\"6.1.0-test\",\"entry\":16777216,\"segments\":[{\"gpa\":16777216,"         \
        "\"file_offset\":0,\"file_bytes\":4096,\"mem_bytes\":8192}],\"file_bytes\":8192,"                    \
        "\"floor_bytes\":33554432},\"cmdline\":\"a=b\",\"mem_bytes\":536870912,\"cpus\":2,"                  \
        "\"disk_bytes\":67108864,\"files\":{"                                                                \
        "\"vmlinux\":{\"bytes\":8192,\"sha256\":\"" MADE_SUM "\"},"                                          \
        "\"initramfs.cpio\":{\"bytes\":512,\"sha256\":\"" MADE_SUM "\"},"                                    \
        "\"root.img\":{\"bytes\":4096,\"sha256\":\"" MADE_SUM "\"},"                                         \
        "\"disk.img\":{\"bytes\":67108864,\"blocks_sha256\":\"" MADE_SUM "\"}}}"
#define MADE_SUM "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static inline void make_template_file(const TempDir *d, const char *id, const char *name, off_t size) {
        char path[128];
        int fd;

        (void) snprintf(path, sizeof(path), "%s/%s", id, name);
        fd = openat(d->fd, path, O_WRONLY|O_CREAT|O_CLOEXEC, 0600);
        assert(fd >= 0 && ftruncate(fd, size) == 0);
        close(fd);
}

static inline void make_template_json(const TempDir *d, const char *id, const char *json) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/template.json", id);
        temp_dir_write(d, path, json, strlen(json));
}

static inline void make_template(const TempDir *d, const char *id, const char *name, unsigned owner) {
        char json[4096];

        assert(mkdirat(d->fd, id, 0700) == 0);
        make_template_file(d, id, "vmlinux", 8192);
        make_template_file(d, id, "initramfs.cpio", 512);
        make_template_file(d, id, "root.img", 4096);
        make_template_file(d, id, "disk.img", 67108864);
        (void) snprintf(json, sizeof(json), MADE_TEMPLATE_JSON, id, name, owner);
        make_template_json(d, id, json);
}

static inline void make_template_name(const TempDir *d, unsigned owner, const char *name, const char *id) {
        char path[128], target[64];

        (void) mkdirat(d->fd, "names", 0755);
        (void) snprintf(path, sizeof(path), "names/%u", owner);
        (void) mkdirat(d->fd, path, 0755);
        (void) snprintf(path, sizeof(path), "names/%u/%s", owner, name);
        (void) snprintf(target, sizeof(target), "../../%s", id);
        (void) unlinkat(d->fd, path, 0);
        assert(symlinkat(target, d->fd, path) == 0);
}
