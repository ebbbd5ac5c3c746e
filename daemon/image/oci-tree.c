/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <search.h>
#include <stdio.h>

#include "daemon/image/clean-tar.h"
#include "daemon/image/oci-tree.h"

#define WHITEOUT ".wh."
#define WHITEOUT_META ".wh..wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"

#define LAYERS_MAX 512U
#define SYMLINKS_MAX 40U
#define NAME_SIZE_MAX 255U
/* What the index of names takes for each. */
#define INDEX_SIZE 64U

struct OciFile {
        uint32_t layer, entry;
        bool symlink;
        OciNode *names;
        char target[];             /* of a symbolic link */
};

struct OciNode {
        OciNode *parent, *children, *next, *previous;
        OciFile *file;             /* NULL: a directory that no layer has an entry for */
        OciNode *next_name, *previous_name; /* of the same file */
        bool directory;
        uint32_t given;            /* the last layer that has something of it, counted from 1 */
        uint32_t cleared;          /* the last layer that said that nothing beneath it stays */
        uint32_t path_size;        /* without a NUL */
        char name[];
};

typedef struct Layer {
        OciFile **files;           /* by entry; NULL where nothing is left */
        size_t n, allocated;
} Layer;

struct OciTree {
        OciNode *root;
        void *index;               /* of tsearch(): by directory and name */
        Layer layers[LAYERS_MAX];
        uint32_t n_layers;
        size_t memory, memory_max;
        Fault *fault;
};

/* How far a walk has come. */
typedef struct Walk {
        OciNode *at;
        char rest[2 * OCI_PATH_SIZE];
        unsigned n_symlinks;
} Walk;

static int compare(const void *a, const void *b) {
        const OciNode *x = a, *y = b;

        if (x->parent != y->parent)
                return x->parent < y->parent ? -1 : 1;
        return strcmp(x->name, y->name);
}

static int take_memory(OciTree *t, size_t size) {
        if (size > t->memory_max - t->memory)
                return fault_set(t->fault, -EFBIG, "the image has more files than can be handled");
        t->memory += size;
        return 0;
}

/* Files. */

static OciFile *file_free(OciTree *t, OciFile *f) {
        t->layers[f->layer].files[f->entry] = NULL;
        t->memory -= sizeof(OciFile) + strlen(f->target) + 1;
        free(f);
        return NULL;
}

static int file_new(OciTree *t, const char *target, OciFile **ret) {
        size_t size = sizeof(OciFile) + strlen(strempty(target)) + 1;
        Layer *l = &t->layers[t->n_layers - 1];
        OciFile *f;

        int r = take_memory(t, size);
        if (r < 0)
                return r;
        f = calloc(1, size);
        if (!f)
                return -ENOMEM;
        f->layer = t->n_layers - 1;
        f->entry = (uint32_t) l->n - 1;
        f->symlink = target;
        strcpy(f->target, strempty(target));
        l->files[f->entry] = f;
        *ret = f;
        return 0;
}

static void node_give_file(OciNode *n, OciFile *f) {
        n->file = f;
        n->next_name = f->names;
        n->previous_name = NULL;
        if (f->names)
                f->names->previous_name = n;
        f->names = n;
}

static void node_drop_file(OciTree *t, OciNode *n) {
        OciFile *f = n->file;

        if (!f)
                return;
        if (n->next_name)
                n->next_name->previous_name = n->previous_name;
        if (n->previous_name)
                n->previous_name->next_name = n->next_name;
        else
                f->names = n->next_name;
        n->file = NULL;
        n->next_name = n->previous_name = NULL;
        if (!f->names)
                file_free(t, f);
}

/* Nodes. */

static OciNode *node_find(const OciTree *t, OciNode *parent, const char *name) {
        union {
                OciNode node;
                char space[sizeof(OciNode) + NAME_SIZE_MAX + 1];
        } key;

        if (strlen(name) > NAME_SIZE_MAX)
                return NULL;
        key.node.parent = parent;
        strcpy(key.node.name, name);
        void **found = tfind(&key.node, &t->index, compare);
        return found ? *found : NULL;
}

static int node_new(OciTree *t, OciNode *parent, const char *name, OciNode **ret) {
        size_t size = strlen(name);
        OciNode *n;

        if (size > NAME_SIZE_MAX || (parent && parent->path_size + 1 + size >= OCI_PATH_SIZE))
                return fault_set(t->fault, -ENAMETOOLONG, "a path is too long: .../%.100s", name);
        int r = take_memory(t, sizeof(OciNode) + size + INDEX_SIZE);
        if (r < 0)
                return r;
        n = calloc(1, sizeof(OciNode) + size + 1);
        if (!n)
                return -ENOMEM;
        strcpy(n->name, name);
        n->parent = parent;
        n->directory = true;
        n->given = t->n_layers;
        if (parent) {
                n->path_size = parent->path_size + (parent->path_size > 0) + (uint32_t) size;
                if (!tsearch(n, &t->index, compare)) {
                        free(n);
                        return -ENOMEM;
                }
                n->next = parent->children;
                if (n->next)
                        n->next->previous = n;
                parent->children = n;
        }
        *ret = n;
        return 0;
}

/* One that has nothing beneath it. */
static void node_free(OciTree *t, OciNode *n) {
        node_drop_file(t, n);
        if (n->parent) {
                (void) tdelete(n, &t->index, compare);
                if (n->next)
                        n->next->previous = n->previous;
                if (n->previous)
                        n->previous->next = n->next;
                else
                        n->parent->children = n->next;
        }
        t->memory -= sizeof(OciNode) + strlen(n->name) + INDEX_SIZE;
        free(n);
}

static void remove_beneath(OciTree *t, OciNode *top) {
        OciNode *n = top;

        for (;;)
                if (n->children)
                        n = n->children;
                else if (n == top)
                        return;
                else {
                        OciNode *parent = n->parent;
                        node_free(t, n);
                        n = parent;
                }
}

/* The next one in the tree beneath top that is not beneath n. */
static OciNode *next_beside(const OciNode *n, const OciNode *top) {
        while (n != top && !n->next)
                n = n->parent;
        return n == top ? NULL : n->next;
}

/* What this layer itself has stays, in whatever order it says so. */
static void remove_lower_beneath(OciTree *t, OciNode *top) {
        OciNode *n, *next;

        /* All that is left beneath it is of this layer. */
        if (top->cleared == t->n_layers)
                return;
        top->cleared = t->n_layers;
        for (n = top->children; n; n = next) {
                if (n->given == t->n_layers) {
                        next = n->children ? n->children : next_beside(n, top);
                        continue;
                }
                next = next_beside(n, top);
                remove_beneath(t, n);
                node_free(t, n);
        }
}

static void remove_lower(OciTree *t, OciNode *n) {
        if (n->given == t->n_layers) {
                remove_lower_beneath(t, n);
                return;
        }
        remove_beneath(t, n);
        node_free(t, n);
}

/* Ways. */

/* Cuts the first name off; NULL at the end. Points into buf, whose rest *ret_rest is. */
static char *cut_name(char **rest) {
        char *name = *rest + strspn(*rest, "/");

        if (!*name)
                return NULL;
        *rest = strchrnul(name, '/');
        if (**rest)
                *(*rest)++ = 0;
        return name;
}

/* Of the path that an archive has: "a/b" of "./a//./b/". Nothing of it leads upwards. */
static int normalize(OciTree *t, const char *path, char ret[static OCI_PATH_SIZE]) {
        char copy[OCI_PATH_SIZE], *rest = copy, *name;
        const char *clean = clean_tar_path(path);
        size_t size = 0;

        if (!clean)
                return fault_set(t->fault, -EBADMSG, "\"%.150s\" leads out of the root", path);
        if (strlen(clean) >= sizeof(copy))
                return fault_set(t->fault, -ENAMETOOLONG, "a path is too long: %.100s...", path);
        strcpy(copy, clean);
        *ret = 0;
        while ((name = cut_name(&rest)))
                if (!streq(name, "."))
                        size += (size_t) snprintf(ret + size, OCI_PATH_SIZE - size, "%s%s", size > 0 ? "/" : "", name);
        return 0;
}

/* Splits a normal path; *ret_directory is "" at the top. */
static char *split(char *path, const char **ret_directory) {
        char *slash = strrchr(path, '/');

        *ret_directory = slash ? path : "";
        if (!slash)
                return path;
        *slash = 0;
        return slash + 1;
}

static int follow(OciTree *t, Walk *w, const OciFile *link, const char *rest) {
        char path[2 * OCI_PATH_SIZE];

        if (++w->n_symlinks > SYMLINKS_MAX)
                return fault_set(t->fault, -ELOOP, "too many symbolic links on the way to \"%.150s\"", rest);
        if ((size_t) snprintf(path, sizeof(path), "%s/%s", link->target, rest) >= sizeof(path))
                return fault_set(t->fault, -ENAMETOOLONG, "a symbolic link leads to a path that is too long");
        strcpy(w->rest, path);
        if (*link->target == '/')
                w->at = t->root;
        return 0;
}

/* One name further. The root is above itself, as it is for those who live in it. */
static int step(OciTree *t, Walk *w, const char *name, const char *rest, bool make) {
        OciNode *n;
        int r;

        if (streq(name, "."))
                return 0;
        if (streq(name, "..")) {
                w->at = w->at->parent ? w->at->parent : t->root;
                return 0;
        }
        n = node_find(t, w->at, name);
        if (n && n->file && n->file->symlink)
                return follow(t, w, n->file, rest);
        if (n && !n->directory)
                return fault_set(t->fault, -ENOTDIR, "\"%.100s\" is no directory, but there is something in it", name);
        if (!n && !make)
                return -ENOENT;
        if (!n) {
                r = node_new(t, w->at, name, &n);
                if (r < 0)
                        return r;
        }
        if (make)
                n->given = t->n_layers;
        w->at = n;
        return 0;
}

/* To a directory. make: missing ones are made, and all on the way are of this layer from now on.
 * -ENOENT without words. */
static int walk(OciTree *t, const char *path, bool make, OciNode **ret) {
        Walk w = { .at = t->root };
        char *rest = w.rest, *name;

        if ((size_t) snprintf(w.rest, sizeof(w.rest), "%s", path) >= sizeof(w.rest))
                return -ENAMETOOLONG;
        while ((name = cut_name(&rest))) {
                unsigned had = w.n_symlinks;
                int r = step(t, &w, name, rest, make);
                if (r < 0)
                        return r;
                if (w.n_symlinks != had)
                        rest = w.rest;
        }
        *ret = w.at;
        return 0;
}

/* Entries. */

static int add_whiteout(OciTree *t, OciNode *directory, const char *path, const char *name) {
        OciNode *n;

        if (streq(name, WHITEOUT_OPAQUE)) {
                remove_lower_beneath(t, directory);
                return 0;
        }
        /* What aufs kept for itself. */
        if (startswith(name, WHITEOUT_META))
                return 0;
        name += strlen(WHITEOUT);
        if (streq(name, "") || streq(name, ".") || streq(name, ".."))
                return fault_set(t->fault, -EBADMSG, "\"%.150s\" removes what can't be removed", path);
        n = node_find(t, directory, name);
        if (n)
                remove_lower(t, n);
        return 0;
}

static bool is_beneath(const OciNode *n, const OciNode *top) {
        while (n && n != top)
                n = n->parent;
        return n;
}

static int find_link(OciTree *t, const OciEntry *e, const OciNode *replaced, OciFile **ret) {
        char target[OCI_PATH_SIZE];
        const char *directory, *name;
        OciNode *above, *n = NULL;

        int r = normalize(t, strempty(e->target), target);
        if (r < 0)
                return r;
        name = split(target, &directory);
        r = walk(t, directory, false, &above);
        if (r < 0 && r != -ENOENT)
                return r;
        if (r >= 0)
                n = node_find(t, above, name);
        if (!n || n->directory)
                return fault_set(t->fault, -EBADMSG, "\"%.100s\" is a hard link to \"%.100s\", which %s", e->path, e->target,
                                 n ? "is a directory" : "is not there");
        if (replaced && n != replaced && is_beneath(n, replaced))
                return fault_set(t->fault, -EBADMSG, "\"%.100s\" is a hard link to what it replaces", e->path);
        *ret = n->file;
        return 0;
}

/* There may be something in its place, and beneath that. */
static int add_node(OciTree *t, const OciEntry *e, OciNode *directory, const char *name) {
        OciNode *n = node_find(t, directory, name);
        OciFile *f = NULL;
        int r = 0;

        if (e->type == OCI_HARDLINK)
                r = find_link(t, e, n, &f);
        else if (e->type != OCI_NOTHING)
                r = file_new(t, e->type == OCI_SYMLINK ? strempty(e->target) : NULL, &f);
        if (r < 0)
                return r;
        if (n && f && n->file == f) {
                n->given = t->n_layers;
                return 0;
        }
        if (n && e->type != OCI_DIRECTORY)
                remove_beneath(t, n);
        if (n && e->type == OCI_NOTHING)
                node_free(t, n);
        if (e->type == OCI_NOTHING)
                return 0;
        if (n)
                node_drop_file(t, n);
        else {
                r = node_new(t, directory, name, &n);
                if (r < 0) {
                        if (!f->names)
                                file_free(t, f);
                        return r;
                }
        }
        n->directory = e->type == OCI_DIRECTORY;
        n->given = t->n_layers;
        node_give_file(n, f);
        return 0;
}

static int count_entry(OciTree *t) {
        Layer *l = &t->layers[t->n_layers - 1];

        if (l->n == l->allocated) {
                size_t more = MAX(l->allocated * 2, (size_t) 1024);
                int r = take_memory(t, (more - l->allocated) * sizeof(OciFile *));
                if (r < 0)
                        return r;
                OciFile **files = reallocarray(l->files, more, sizeof(OciFile *));
                if (!files)
                        return -ENOMEM;
                l->files = files;
                l->allocated = more;
        }
        l->files[l->n++] = NULL;
        return 0;
}

int oci_tree_add(OciTree *t, const OciEntry *e) {
        char path[OCI_PATH_SIZE];
        const char *directory, *name;
        OciNode *n;

        assert(t->n_layers > 0);
        if (e->type == OCI_SYMLINK && strlen(strempty(e->target)) >= OCI_PATH_SIZE)
                return fault_set(t->fault, -ENAMETOOLONG, "the symbolic link \"%.150s\" is too long", e->path);
        int r = count_entry(t);
        if (r >= 0)
                r = normalize(t, e->path, path);
        /* The root's own attributes are ours. */
        if (r < 0 || !*path)
                return r;
        name = split(path, &directory);
        r = walk(t, directory, true, &n);
        if (r < 0)
                return r;
        return startswith(name, WHITEOUT) ? add_whiteout(t, n, e->path, name) : add_node(t, e, n, name);
}

int oci_tree_make_directory(OciTree *t, const char *path) {
        OciNode *n;

        return walk(t, path, true, &n);
}

int oci_tree_begin_layer(OciTree *t) {
        if (t->n_layers == LAYERS_MAX)
                return fault_set(t->fault, -E2BIG, "the image has more than %u layers", LAYERS_MAX);
        t->n_layers++;
        return 0;
}

OciFile *oci_tree_find(const OciTree *t, size_t layer, size_t entry) {
        return layer < t->n_layers && entry < t->layers[layer].n ? t->layers[layer].files[entry] : NULL;
}

OciNode *oci_file_next_name(const OciFile *f, const OciNode *n) {
        return n ? n->next_name : f->names;
}

OciNode *oci_tree_next_implied(const OciTree *t, const OciNode *n) {
        OciNode *i = n ? (OciNode *) n : t->root;

        do
                i = i->children ? i->children : next_beside(i, t->root);
        while (i && (i->file || !i->directory));
        return i;
}

void oci_node_path(const OciNode *n, char ret[static OCI_PATH_SIZE]) {
        size_t end = n->path_size;

        assert(end < OCI_PATH_SIZE);
        ret[end] = 0;
        for (; n->parent; n = n->parent) {
                size_t size = strlen(n->name);

                end -= size;
                memcpy(ret + end, n->name, size);
                if (end > 0)
                        ret[--end] = '/';
        }
}

int oci_tree_new(size_t memory_max, OciTree **ret, Fault *fault) {
        _cleanup_(oci_tree_freep) OciTree *t = new0(OciTree, 1);
        if (!t)
                return -ENOMEM;

        t->fault = fault;
        t->memory_max = memory_max;
        int r = node_new(t, NULL, "", &t->root);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(t);
        return 0;
}

OciTree *oci_tree_free(OciTree *t) {
        if (!t)
                return NULL;
        if (t->root) {
                remove_beneath(t, t->root);
                node_free(t, t->root);
        }
        for (uint32_t i = 0; i < t->n_layers; i++)
                free(t->layers[i].files);
        free(t);
        return NULL;
}
