/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>

#include "daemon/json-strict.h"
#include "daemon/kernel-info.h"

/* Above its highest segment a kernel needs room for its page array, the first allocations and
 * whatever lies there of user space. The part that grows with memory is a 64th (struct page). */
#define FLOOR_MARGIN MIB(20)

bool kernel_release_valid(const char *s) {
        if (!isdigit((unsigned char) *s) || strlen(s) > KERNEL_RELEASE_MAX)
                return false;
        for (; *s; s++)
                if (!isalnum((unsigned char) *s) && !strchr(".+~_-", *s))
                        return false;
        return true;
}

static int compare_segments(const void *a, const void *b) {
        const VmmSegment *x = a, *y = b;
        return x->gpa < y->gpa ? -1 : x->gpa > y->gpa;
}

static const char *segment_fault(const KernelInfo *k, const VmmSegment *s) {
        if (s->mem_bytes == 0 || s->file_bytes > s->mem_bytes)
                return "a segment is larger in the file than in memory";
        if (s->gpa < KERNEL_GPA_MIN)
                return "a segment lies below 1 MiB";
        if (s->gpa >= KERNEL_GPA_MAX || s->mem_bytes > KERNEL_GPA_MAX - s->gpa)
                return "a segment ends above 3 GiB";
        if (s->file_offset > k->file_bytes || s->file_bytes > k->file_bytes - s->file_offset)
                return "a segment lies outside the file";
        return NULL;
}

int kernel_info_check(KernelInfo *k, const char **ret_reason) {
        const char *fault = NULL;
        bool entered = false;

        if (k->n_segments == 0 || k->n_segments > KERNEL_SEGMENTS_MAX)
                fault = "it has no loadable segment, or too many";
        else
                qsort(k->segments, k->n_segments, sizeof(k->segments[0]), compare_segments);

        for (size_t i = 0; !fault && i < k->n_segments; i++) {
                const VmmSegment *s = &k->segments[i];

                fault = segment_fault(k, s);
                if (!fault && i > 0 && s[-1].gpa + s[-1].mem_bytes > s->gpa)
                        fault = "two segments overlap";
                if (k->entry >= s->gpa && k->entry - s->gpa < s->file_bytes)
                        entered = true;
        }
        if (!fault && !entered)
                fault = "the entry lies outside every segment";

        if (!fault)
                return 0;
        if (ret_reason)
                *ret_reason = fault;
        return -EBADMSG;
}

uint64_t kernel_info_floor(const KernelInfo *k, uint64_t initramfs_bytes) {
        const VmmSegment *last = &k->segments[k->n_segments - 1];
        /* The archive and, until it is freed, what has been unpacked from it. */
        uint64_t bytes = last->gpa + last->mem_bytes + FLOOR_MARGIN + 2 * initramfs_bytes;

        return ALIGN_UP(bytes + bytes / 64, MIB(1));
}

static json_object *segment_to_json(const VmmSegment *s) {
        _cleanup_json_ json_object *o = json_object_new_object();

        if (!o || json_add_u64(o, "gpa", s->gpa) < 0 || json_add_u64(o, "file_offset", s->file_offset) < 0 ||
            json_add_u64(o, "file_bytes", s->file_bytes) < 0 || json_add_u64(o, "mem_bytes", s->mem_bytes) < 0)
                return NULL;
        return TAKE_PTR(o);
}

static int segment_from_json(json_object *o, VmmSegment *ret) {
        static const char *const keys[] = { "gpa", "file_offset", "file_bytes", "mem_bytes", NULL };
        int r;

        if (!json_object_is_type(o, json_type_object))
                return -EBADMSG;
        r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_u64(o, "gpa", 0, UINT64_MAX, &ret->gpa);
        if (r >= 0)
                r = json_get_u64(o, "file_offset", 0, UINT64_MAX, &ret->file_offset);
        if (r >= 0)
                r = json_get_u64(o, "file_bytes", 0, UINT64_MAX, &ret->file_bytes);
        if (r >= 0)
                r = json_get_u64(o, "mem_bytes", 0, UINT64_MAX, &ret->mem_bytes);
        return r;
}

static json_object *segments_to_json(const KernelInfo *k) {
        _cleanup_json_ json_object *list = json_object_new_array_ext((int) k->n_segments);

        if (!list)
                return NULL;
        for (size_t i = 0; i < k->n_segments; i++) {
                json_object *s = segment_to_json(&k->segments[i]);
                if (!s)
                        return NULL;
                if (json_object_array_add(list, s) < 0) {
                        json_object_put(s);
                        return NULL;
                }
        }
        return TAKE_PTR(list);
}

json_object *kernel_info_to_json(const KernelInfo *k) {
        _cleanup_json_ json_object *o = json_object_new_object();

        if (!o || json_add_string(o, "release", k->release) < 0 || json_add_u64(o, "entry", k->entry) < 0 ||
            json_add(o, "segments", segments_to_json(k)) < 0 || json_add_u64(o, "file_bytes", k->file_bytes) < 0 ||
            json_add_u64(o, "floor_bytes", k->floor_bytes) < 0)
                return NULL;
        return TAKE_PTR(o);
}

static int segments_from_json(json_object *o, KernelInfo *k) {
        json_object *list;
        int r = json_get(o, "segments", json_type_array, &list);
        if (r < 0)
                return r;

        k->n_segments = json_object_array_length(list);
        if (k->n_segments > KERNEL_SEGMENTS_MAX)
                return -EBADMSG;
        for (size_t i = 0; i < k->n_segments; i++) {
                r = segment_from_json(json_object_array_get_idx(list, i), &k->segments[i]);
                if (r < 0)
                        return r;
        }
        return 0;
}

int kernel_info_from_json(json_object *o, KernelInfo *ret) {
        static const char *const keys[] = { "release", "entry", "segments", "file_bytes", "floor_bytes", NULL };
        const char *release;
        KernelInfo k = {};
        int r;

        r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_string(o, "release", KERNEL_RELEASE_MAX, &release);
        if (r >= 0)
                r = json_get_u64(o, "entry", 0, UINT64_MAX, &k.entry);
        if (r >= 0)
                r = json_get_u64(o, "file_bytes", 1, INT64_MAX, &k.file_bytes);
        if (r >= 0)
                r = json_get_u64(o, "floor_bytes", 1, INT64_MAX, &k.floor_bytes);
        if (r >= 0)
                r = segments_from_json(o, &k);
        if (r < 0)
                return r;
        if (*release && !kernel_release_valid(release))
                return -EBADMSG;
        strcpy(k.release, release);

        r = kernel_info_check(&k, NULL);
        if (r < 0)
                return r;
        *ret = k;
        return 0;
}
