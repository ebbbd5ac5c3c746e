/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vmm-proto.h"
#include "daemon/copy-range.h"
#include "daemon/disk-merge.h"

typedef struct DiskLayer {
        int fd;
        uint64_t data, end;       /* the next stretch of data, or one that was passed; UINT64_MAX: none more */
} DiskLayer;

/* The uppermost layer with data at offset, or -1; *ret_end: how far that holds, UINT64_MAX when nothing follows. */
static int uppermost(DiskLayer *layers, size_t n, uint64_t offset, int *ret_layer, uint64_t *ret_end) {
        *ret_layer = -1;
        *ret_end = UINT64_MAX;

        for (int i = (int) n - 1; i >= 0 && *ret_layer < 0; i--) {
                DiskLayer *l = &layers[i];

                if (l->end <= offset) {
                        int r = find_data(l->fd, offset, &l->data, &l->end);
                        if (r < 0)
                                return r;
                }
                if (l->data <= offset)
                        *ret_layer = i;
                *ret_end = MIN(*ret_end, l->data <= offset ? l->end : l->data);
        }
        return 0;
}

int disk_merge(const int *layers, size_t n_layers, int fd) {
        DiskLayer l[VMM_DISK_LAYERS_MAX] = {};
        uint64_t offset = 0, end, size = 0, longest = 0;
        int top;

        if (n_layers == 0 || n_layers > VMM_DISK_LAYERS_MAX)
                return -EINVAL;
        int r = check_regular(fd, true, NULL);
        for (size_t i = 0; i < n_layers && r >= 0; i++) {
                l[i].fd = layers[i];
                r = check_regular(layers[i], false, &size);
                longest = MAX(longest, size);
        }
        if (r < 0)
                return r;
        if (ftruncate(fd, (off_t) longest) < 0)
                return -errno;

        while ((r = uppermost(l, n_layers, offset, &top, &end)) >= 0 && end < UINT64_MAX) {
                if (top >= 0)
                        r = copy_range(l[top].fd, fd, (FileRange) { offset, offset, end - offset });
                if (r < 0)
                        return r;
                offset = end;
        }
        return r;
}
