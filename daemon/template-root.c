/* SPDX-License-Identifier: Apache-2.0 */

/* The first and the longest step of a build: how is the root file system given, and its image. */

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/fd-util.h"
#include "daemon/json-strict.h"
#include "daemon/template-build-private.h"

/* What an image may have beyond its files. */
#define ROOT_BYTES_SLACK MIB(16)
#define DIGEST_MAX 80U
#define PROGRESS_INTERVAL (500 * USEC_PER_MSEC)

/* Probe: how is the root file system given? */

int build_probe_start(TemplateBuild *b) {
        const char *const argv[] = { b->store->tools.cube_image, b->image ? "image-info" : "probe", b->image, NULL };
        ToolSpec spec = build_tool_spec(b, argv);

        spec.fds[0] = b->rootfs_fd;
        spec.report = true;
        if (b->image)
                build_run_as_owner(b, &spec);
        return build_run(b, &spec);
}

/* An image that serves ports has a program for it, which is to run in its sandboxes. The command of others is a shell or an
 * interpreter, which ends as soon as it finds no terminal. */
static int take_command(TemplateBuild *b, json_object *o) {
        json_object *command, *ports;

        int r = json_get(o, "command", json_type_array, &command);
        if (r >= 0)
                r = json_get(o, "has_ports", json_type_boolean, &ports);
        if (r < 0)
                return r;
        size_t n = json_object_array_length(command);
        if (!json_object_get_boolean(ports) || n == 0 || !b->warm || b->warm->start || b->warm->no_start)
                return 0;
        b->warm->image_command = new0(char *, n + 1);
        if (!b->warm->image_command)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                json_object *word = json_object_array_get_idx(command, i);

                if (!json_object_is_type(word, json_type_string))
                        return -EBADMSG;
                b->warm->image_command[i] = strdup(json_object_get_string(word));
                if (!b->warm->image_command[i])
                        return -ENOMEM;
        }
        return 0;
}

static int finish_image(TemplateBuild *b) {
        static const char *const keys[] = { "manifest", "bytes", "defaults", "command", "has_ports", NULL };
        _cleanup_json_ json_object *o = NULL;
        json_object *defaults;
        const char *manifest;

        int r = build_parse_report(b, &o);
        if (r < 0)
                return r;
        r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_string(o, "manifest", DIGEST_MAX, &manifest);
        if (r >= 0)
                r = json_get_u64(o, "bytes", 0, INT64_MAX / 2, &b->rootfs_bytes);
        if (r >= 0)
                r = json_get(o, "defaults", json_type_object, &defaults);
        if (r >= 0)
                r = exec_defaults_from_json(defaults, &b->template->defaults);
        if (r >= 0 && !exec_defaults_fit_bus(&b->template->defaults))
                r = -EBADMSG;
        if (r >= 0)
                r = take_command(b, o);
        if (r < 0)
                return build_fail(b, r, "cube-image reported nonsense");

        /* What was looked at is what is read, whatever the name stands for by then. */
        free(b->image);
        b->image = strdup(manifest);
        b->template->root_type = strdup("image");
        return b->image && b->template->root_type ? 0 : build_fail(b, -ENOMEM, "out of memory");
}

int build_probe_finish(TemplateBuild *b) {
        static const char *const keys[] = { "type", "bytes", NULL };
        _cleanup_json_ json_object *o = NULL;
        const char *type;
        int r;

        if (b->image)
                return finish_image(b);
        r = build_parse_report(b, &o);
        if (r < 0)
                return r;
        r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_string(o, "type", 16, &type);
        if (r >= 0)
                r = json_get_u64(o, "bytes", 0, INT64_MAX, &b->rootfs_bytes);
        if (r >= 0 && !streq(type, "tar") && !streq(type, "directory") && !streq(type, "squashfs") &&
            !streq(type, "erofs"))
                r = -EBADMSG;
        if (r < 0)
                return build_fail(b, r, "cube-image reported nonsense");

        b->template->root_type = strdup(type);
        return b->template->root_type ? 0 : build_fail(b, -ENOMEM, "out of memory");
}

/* Root image */

/* The position that we share with the tool. lseek() would wait for a read() that a FUSE file system
 * never answers; this doesn't. */
static uint64_t shared_position(int fd) {
        _cleanup_free_ char *text = NULL;
        const char *digits;
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
        if (read_file(AT_FDCWD, path, 4096, &text, NULL) < 0)
                return 0;
        digits = startswith(text, "pos:\t");
        return digits ? strtoull(digits, NULL, 10) : 0;
}

static int on_progress(sd_event_source *source, uint64_t usec, void *userdata) {
        TemplateBuild *b = userdata;

        /* The layers of an image are read twice. */
        uint64_t all = b->image ? 2 * b->rootfs_bytes : b->rootfs_bytes;
        uint64_t done = shared_position(b->image ? b->position_fd : b->rootfs_fd);

        build_tell_part(b, MIN(done, all), all);
        return sd_event_source_set_time_relative(source, PROGRESS_INTERVAL);
}

static int watch_progress(TemplateBuild *b) {
        int r;

        if (b->rootfs_bytes == 0)
                return 0;
        r = sd_event_add_time_relative(b->event, &b->progress, CLOCK_MONOTONIC, PROGRESS_INTERVAL, 0, on_progress, b);
        if (r >= 0)
                r = sd_event_source_set_enabled(b->progress, SD_EVENT_ON);
        return r < 0 ? build_fail(b, r, "watching the progress: %s", strerror(-r)) : 0;
}

static int start_squashfs(TemplateBuild *b, int in_fd) {
        const char *const argv[] = {
                b->store->tools.mksquashfs, "-", TOOL_EXTRA_PATH, "-tar", "-noappend", "-quiet", "-no-progress",
                "-comp", "zstd", "-Xcompression-level", "3", "-mem", "256M",
                "-mkfs-time", "0", "-root-time", "0", "-root-mode", "0755", "-root-uid", "0", "-root-gid", "0", NULL,
        };
        ToolSpec spec = build_tool_spec(b, argv);

        spec.fds[0] = in_fd;
        spec.fds[TOOL_EXTRA_FD] = b->output_fd;
        spec.file_bytes_max = b->root_max_bytes + ROOT_BYTES_SLACK;
        return build_run(b, &spec);
}

static int start_tar(TemplateBuild *b, const char *max) {
        const char *const argv[] = { b->store->tools.cube_image, b->image ? "image" : "rootfs", max, b->image, NULL };
        _cleanup_close_ int read_fd = -EBADF, write_fd = -EBADF;
        ToolSpec spec = build_tool_spec(b, argv);
        int fds[2], r;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return build_fail(b, -errno, "making a pipe: %s", strerror(errno));
        read_fd = fds[0];
        write_fd = fds[1];
        (void) fcntl(write_fd, F_SETPIPE_SZ, (int) MIB(1));

        spec.fds[0] = b->rootfs_fd;
        spec.fds[1] = write_fd;
        if (b->image) {
                b->position_fd = memfd_create("position", MFD_CLOEXEC);
                if (b->position_fd < 0)
                        return build_fail(b, -errno, "making a file for the progress: %s", strerror(errno));
                spec.fds[TOOL_EXTRA_FD] = b->position_fd;
        }
        if (b->image || streq(b->template->root_type, "directory"))
                build_run_as_owner(b, &spec);
        r = build_run(b, &spec);
        return r < 0 ? r : start_squashfs(b, read_fd);
}

static int start_copy(TemplateBuild *b, const char *max) {
        const char *const argv[] = { b->store->tools.cube_image, "copy", max, NULL };
        ToolSpec spec = build_tool_spec(b, argv);

        spec.fds[0] = b->rootfs_fd;
        spec.fds[1] = b->output_fd;
        spec.file_bytes_max = b->root_max_bytes + ROOT_BYTES_SLACK;
        return build_run(b, &spec);
}

int build_root_start(TemplateBuild *b) {
        bool ready = streq(b->template->root_type, "squashfs") || streq(b->template->root_type, "erofs");
        char max[32];
        int r;

        if (*b->root_sum)
                return 1;
        (void) snprintf(max, sizeof(max), "%" PRIu64, b->root_max_bytes);
        r = build_output_create(b, TEMPLATE_FILE_ROOT);
        if (r >= 0)
                r = ready ? start_copy(b, max) : start_tar(b, max);
        return r < 0 ? r : watch_progress(b);
}

int build_root_finish(TemplateBuild *b) {
        int r = build_output_close(b, TEMPLATE_FILE_ROOT);

        return r < 0 ? r : build_root_typed(b);
}

int build_root_typed(TemplateBuild *b) {
        if (streq(b->template->root_type, "squashfs") || streq(b->template->root_type, "erofs"))
                return 0;
        free(b->template->root_type);
        b->template->root_type = strdup("squashfs");
        return b->template->root_type ? 0 : build_fail(b, -ENOMEM, "out of memory");
}
