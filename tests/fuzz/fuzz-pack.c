/* SPDX-License-Identifier: Apache-2.0 */

/* A template as one file, as an import reads it. What is taken has members as large as its pack.json says, and no more
 * data than may be; packed anew from what came out it is taken again.
 *
 * Input: a tar, compressed or not. */

#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/pack.h"
#include "daemon/json-strict.h"
#include "fuzz.h"

#define DATA_MAX KIB(512)

static PackFds open_fds(void) {
        PackFds fds = { memfd_create("in", MFD_CLOEXEC), memfd_create("out", MFD_CLOEXEC), memfd_create("progress", MFD_CLOEXEC), {} };

        for (int i = 0; i < _PACK_MEMBER_MAX; i++)
                fds.members[i] = memfd_create("member", MFD_CLOEXEC);
        FUZZ_CHECK(fds.in >= 0 && fds.out >= 0 && fds.progress >= 0 && fds.members[_PACK_MEMBER_MAX - 1] >= 0);
        return fds;
}

static void close_fds(PackFds *fds) {
        close_many(fds->members, _PACK_MEMBER_MAX);
        close(fds->in);
        close(fds->out);
        close(fds->progress);
}

static json_object *read_json(int fd) {
        char text[65536];
        json_object *o = NULL;

        ssize_t n = pread(fd, text, sizeof(text), 0);
        FUZZ_CHECK(n > 0 && (n == sizeof(text) || json_parse_strict(text, (size_t) n, &o) >= 0));
        return o;
}

static void check_members(const PackFds *fds, json_object *manifest) {
        bool guest = json_object_object_get_ex(manifest, "guest", NULL);
        json_object *members;
        uint64_t data = 0;

        FUZZ_CHECK(json_get(manifest, "members", json_type_object, &members) >= 0);
        for (int i = 0; i < _PACK_MEMBER_MAX; i++) {
                struct stat st;
                PackSum sum;

                FUZZ_CHECK(fstat(fds->members[i], &st) == 0);
                data += (uint64_t) st.st_blocks * 512;
                if (pack_members[i].guest && !guest)
                        FUZZ_CHECK(st.st_size == 0);
                else
                        FUZZ_CHECK(pack_sum_from_json(members, &pack_members[i], &sum) >= 0 && sum.bytes == (uint64_t) st.st_size);
        }
        /* Whole pages of memory files. */
        FUZZ_CHECK(data <= 2 * DATA_MAX + _PACK_MEMBER_MAX * KIB(8));
}

/* Another pack of the same, in place of in. */
static void pack_again(PackFds *fds, json_object *manifest) {
        Fault fault = {};

        json_object_object_del(manifest, "members");
        const char *text = json_object_to_json_string_ext(manifest, JSON_C_TO_STRING_PLAIN);
        FUZZ_CHECK(ftruncate(fds->in, 0) == 0 && lseek(fds->in, 0, SEEK_SET) == 0 && write_full(fds->in, text, strlen(text)) >= 0);
        FUZZ_CHECK(lseek(fds->in, 0, SEEK_SET) == 0 && ftruncate(fds->out, 0) == 0 && lseek(fds->out, 0, SEEK_SET) == 0);
        int r = pack_write(fds, &fault);
        if (r < 0)
                fprintf(stderr, "%s\n", fault.text);
        FUZZ_CHECK(r >= 0);
}

static void read_again(PackFds *fds) {
        PackFds again = open_fds();
        Fault fault = {};

        close(again.in);
        again.in = dup(fds->out);
        FUZZ_CHECK(lseek(again.in, 0, SEEK_SET) == 0);
        int r = pack_read(&again, 2 * DATA_MAX, &fault);
        if (r < 0)
                fprintf(stderr, "%s\n", fault.text);
        FUZZ_CHECK(r >= 0);
        close_fds(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        PackFds fds = open_fds();
        Fault fault = {};

        FUZZ_CHECK(write_full(fds.in, data, size) >= 0 && lseek(fds.in, 0, SEEK_SET) == 0);
        int r = pack_read(&fds, DATA_MAX, &fault);
        FUZZ_CHECK(r >= 0 || *fault.text);
        if (r >= 0) {
                json_object *manifest = read_json(fds.out);
                if (manifest) {
                        check_members(&fds, manifest);
                        pack_again(&fds, manifest);
                        read_again(&fds);
                        json_object_put(manifest);
                }
        }
        close_fds(&fds);
        return 0;
}
