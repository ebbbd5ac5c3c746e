/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <nettle/sha2.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/image/pack.h"
#include "daemon/json-strict.h"

const PackMember pack_members[_PACK_MEMBER_MAX] = {
        [PACK_KERNEL] = { "vmlinux", false, false, GIB(1) },
        [PACK_INITRAMFS] = { "initramfs.cpio", false, false, GIB(1) },
        [PACK_ROOT] = { "root.img", false, false, GIB(33) },
        [PACK_DISK] = { "disk.img", true, false, GIB(1024) * 64 },
        [PACK_GUEST_STATE] = { "guest/state", false, true, MIB(4) },
        [PACK_GUEST_MEMORY] = { "guest/memory", true, true, GIB(128) },
        [PACK_GUEST_DISK] = { "guest/disk", true, true, GIB(1024) * 64 },
};

struct PackRunsState {
        struct sha256_ctx sha;
};

int pack_runs_new(PackRuns *r) {
        *r = (PackRuns) { .state = new0(struct PackRunsState, 1) };
        if (!r->state)
                return -ENOMEM;
        sha256_init(&r->state->sha);
        return 0;
}

static void flush_run(PackRuns *r) {
        uint64_t run[2] = { htole64(r->begin), htole64(r->end - r->begin) };

        if (r->end > r->begin)
                sha256_update(&r->state->sha, sizeof(run), (const uint8_t *) run);
}

void pack_runs_add(PackRuns *r, uint64_t offset, uint64_t bytes) {
        if (bytes == 0)
                return;
        if (offset != r->end || r->end == r->begin) {
                flush_run(r);
                r->begin = offset;
        }
        r->end = offset + bytes;
}

void pack_runs_finish(PackRuns *r, char ret[static SHA256_HEX_SIZE]) {
        static const char digits[] = "0123456789abcdef";
        uint8_t sum[SHA256_DIGEST_SIZE];

        flush_run(r);
        sha256_digest(&r->state->sha, sizeof(sum), sum);
        for (size_t i = 0; i < sizeof(sum); i++) {
                ret[2 * i] = digits[sum[i] >> 4];
                ret[2 * i + 1] = digits[sum[i] & 15];
        }
        ret[2 * sizeof(sum)] = 0;
}

void pack_runs_done(PackRuns *r) {
        free(r->state);
        r->state = NULL;
}

int pack_next_run(int fd, uint64_t *offset, uint64_t *ret_bytes) {
        off_t data = lseek(fd, (off_t) *offset, SEEK_DATA);

        if (data < 0)
                return errno == ENXIO ? 0 : -errno;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole < 0)
                return -errno;
        *offset = (uint64_t) data;
        *ret_bytes = (uint64_t) (hole - data);
        return 1;
}

void pack_tell(int progress_fd, uint64_t done, uint64_t total) {
        uint64_t numbers[2] = { done, total };

        /* Nobody may care. */
        if (lseek(progress_fd, 0, SEEK_SET) >= 0)
                (void) write_full(progress_fd, numbers, sizeof(numbers));
}

int pack_sum_to_json(const PackSum *s, const PackMember *m, json_object **ret) {
        _cleanup_json_ json_object *o = json_object_new_object();

        if (!o || json_add_u64(o, "bytes", s->bytes) < 0 || json_add_string(o, "sha256", s->sha256) < 0 ||
            (m->sparse && json_add_string(o, "runs_sha256", s->runs_sha256) < 0))
                return -ENOMEM;
        *ret = TAKE_PTR(o);
        return 0;
}

static int get_sum(json_object *o, const char *key, char ret[static SHA256_HEX_SIZE]) {
        const char *s;
        int r = json_get_string(o, key, SHA256_HEX_SIZE - 1, &s);

        if (r < 0)
                return r;
        if (strlen(s) != SHA256_HEX_SIZE - 1 || strspn(s, "0123456789abcdef") != SHA256_HEX_SIZE - 1)
                return -EBADMSG;
        strcpy(ret, s);
        return 0;
}

int pack_sum_from_json(json_object *members, const PackMember *m, PackSum *ret) {
        const char *const keys[] = { "bytes", "sha256", m->sparse ? "runs_sha256" : NULL, NULL };
        json_object *o;

        int r = json_get(members, m->name, json_type_object, &o);
        if (r >= 0)
                r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_u64(o, "bytes", 0, m->max_bytes, &ret->bytes);
        if (r >= 0)
                r = get_sum(o, "sha256", ret->sha256);
        return r < 0 || !m->sparse ? r : get_sum(o, "runs_sha256", ret->runs_sha256);
}
