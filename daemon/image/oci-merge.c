/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "daemon/image/archive-util.h"
#include "daemon/image/clean-tar.h"
#include "daemon/image/oci-layer.h"
#include "daemon/image/oci-merge.h"
#include "daemon/image/oci-tree.h"

/* For names; some millions of files. */
#define MEMORY_MAX MIB(768)

typedef struct Merge {
        int position_fd;
        const OciImage *image;
        OciTree *tree;
        CleanTar out;
        uint64_t bytes;          /* in all files of all layers */
        size_t layer;            /* where we are */
        size_t entry;
        char layer_name[48];
        size_t n_devices;        /* left out */
        char device[128];        /* the first of them */
        Fault *fault;
} Merge;

static void merge_done(Merge *m) {
        oci_tree_free(m->tree);
        clean_tar_done(&m->out);
}

/* What is wrong with an entry says where it is. */
static int in_layer(Merge *m, int r) {
        char text[sizeof(m->fault->text)];

        if (r >= 0 || startswith(m->fault->text, "layer "))
                return r;
        (void) snprintf(text, sizeof(text), "%s: %.200s", m->layer_name,
                        m->fault->text[0] ? m->fault->text : strerror(-r));
        memcpy(m->fault->text, text, sizeof(text));
        return r;
}

static int read_layer(Merge *m, const OciBlob *b, int (*handle)(Merge *m, struct archive_entry *e)) {
        _cleanup_(oci_layer_freep) OciLayer *l = NULL;
        struct archive_entry *e;

        m->entry = 0;
        (void) snprintf(m->layer_name, sizeof(m->layer_name), "layer %zu of %zu", m->layer + 1, m->image->n_layers);
        int r = oci_layer_open(m->image->fds[m->layer], b, m->layer_name, m->position_fd, &l, m->fault);
        if (r < 0)
                return in_layer(m, r);
        m->out.in = oci_layer_archive(l);
        while ((r = archive_read_next_header(m->out.in, &e)) != ARCHIVE_EOF) {
                r = r < ARCHIVE_WARN ? oci_layer_broken(l) : in_layer(m, handle(m, e));
                m->entry++;
                if (r < 0)
                        break;
        }
        /* The layer's own. */
        m->out.in = NULL;
        return r < 0 ? r : in_layer(m, oci_layer_finish(l));
}

/* Devices are the guest's own kernel's business, and no root file system needs them in a file. */
static OciType entry_type(Merge *m, struct archive_entry *e) {
        switch (archive_entry_filetype(e)) {
        case AE_IFDIR:
                return OCI_DIRECTORY;
        case AE_IFLNK:
                return OCI_SYMLINK;
        case AE_IFREG:
        case AE_IFIFO:
                return OCI_FILE;
        case AE_IFCHR:
        case AE_IFBLK:
                if (m->n_devices++ == 0)
                        (void) snprintf(m->device, sizeof(m->device), "%s", archive_entry_pathname(e));
                return OCI_NOTHING;
        default:
                return OCI_NOTHING;
        }
}

static int note_entry(Merge *m, struct archive_entry *e) {
        const char *link = archive_entry_hardlink(e);
        OciEntry entry = { .path = archive_entry_pathname(e) };

        if (!entry.path)
                return fault_set(m->fault, -EBADMSG, "a name can't be read");
        entry.type = link ? OCI_HARDLINK : entry_type(m, e);
        entry.target = link ? link : archive_entry_symlink(e);
        if (entry.type == OCI_FILE && archive_entry_size(e) > 0) {
                if ((uint64_t) archive_entry_size(e) > m->out.max_bytes - m->bytes)
                        return fault_set(m->fault, -EFBIG, "the image unpacks to more than %" PRIu64 " bytes",
                                         m->out.max_bytes);
                m->bytes += (uint64_t) archive_entry_size(e);
        }
        return oci_tree_add(m->tree, &entry);
}

static int note_layers(Merge *m) {
        int r = 0;

        for (m->layer = 0; m->layer < m->image->n_layers && r >= 0; m->layer++) {
                r = oci_tree_begin_layer(m->tree);
                if (r >= 0)
                        r = read_layer(m, &m->image->layers[m->layer], note_entry);
        }
        return r;
}

static int add_link(Merge *m, const OciNode *n, const char *target) {
        _cleanup_(archive_entry_freep) struct archive_entry *e = archive_entry_new();
        char path[OCI_PATH_SIZE];

        if (!e)
                return -ENOMEM;
        oci_node_path(n, path);
        archive_entry_set_pathname(e, path);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_hardlink(e, target);
        return clean_tar_add(&m->out, e);
}

static int pass_entry(Merge *m, struct archive_entry *e) {
        OciFile *f = oci_tree_find(m->tree, m->layer, m->entry);
        char path[OCI_PATH_SIZE];
        OciNode *n;

        if (!f)
                return 0;
        n = oci_file_next_name(f, NULL);
        oci_node_path(n, path);
        archive_entry_set_pathname(e, path);
        archive_entry_set_hardlink(e, NULL);
        int r = clean_tar_add(&m->out, e);
        while (r >= 0 && (n = oci_file_next_name(f, n)))
                r = add_link(m, n, path);
        return r;
}

static int pass_layers(Merge *m) {
        int r = 0;

        for (m->layer = 0; m->layer < m->image->n_layers && r >= 0; m->layer++) {
                OciBlob b = m->image->layers[m->layer];

                /* The same bytes unpack to the same. */
                b.unpacked[0] = 0;
                r = read_layer(m, &b, pass_entry);
        }
        return r;
}

static int pass_implied(Merge *m) {
        int r = 0;

        for (OciNode *n = NULL; r >= 0 && (n = oci_tree_next_implied(m->tree, n));) {
                _cleanup_(archive_entry_freep) struct archive_entry *e = archive_entry_new();
                char path[OCI_PATH_SIZE];

                if (!e)
                        return -ENOMEM;
                oci_node_path(n, path);
                archive_entry_set_pathname(e, path);
                archive_entry_set_mode(e, AE_IFDIR|0755);
                r = clean_tar_add(&m->out, e);
        }
        return r;
}

int oci_merge(const OciImage *image, int out_fd, int position_fd, uint64_t max_bytes, Fault *fault) {
        _cleanup_(merge_done) Merge m = {
                .position_fd = position_fd,
                .image = image,
                .out = { .verb = "reading the image", .max_bytes = max_bytes, .fault = fault },
                .fault = fault,
        };

        int r = oci_tree_new(MEMORY_MAX, &m.tree, fault);
        if (r >= 0)
                r = clean_tar_open(&m.out, out_fd);
        if (r >= 0)
                r = note_layers(&m);
        if (r >= 0 && image->defaults.cwd)
                r = oci_tree_make_directory(m.tree, image->defaults.cwd);
        if (r >= 0)
                r = pass_implied(&m);
        if (r >= 0)
                r = pass_layers(&m);
        if (r >= 0)
                r = clean_tar_close(&m.out);
        if (r >= 0 && m.n_devices > 0)
                fprintf(stderr, "left out %zu device nodes, the first is \"%s\": a guest has its own /dev\n", m.n_devices,
                        m.device);
        return r;
}
