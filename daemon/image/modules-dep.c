/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/image/modules-dep.h"

#define MODULE_PATH_MAX 512U

const ModuleWish module_wishes[] = {
        { .name = "pvpanic-pci" },
        { .name = "virtio_pci", .needed = "every device" },
        { .name = "virtio_blk", .needed = "the disks" },
        { .name = "vmw_vsock_virtio_transport", .needed = "the connection to cubed" },
        { .name = "virtio_rng" },
        { .name = "squashfs", .needed = "the root image", .or = "erofs" },
        { .name = "erofs" },
        { .name = "overlay", .needed = "the writable root" },
        /* ext4 asks for these by name while it mounts, when nothing answers request_module() yet. */
        { .name = "crc32c_generic" },
        { .name = "ext4", .needed = "the disk" },
        { .name = "virtio_net" },
        { .name = "virtio_balloon" },
        { .name = "virtio_mem" },
};
const size_t n_module_wishes = ELEMENTSOF(module_wishes);

/* A piece of a line; not terminated. */
typedef struct Span {
        const char *p;
        size_t n;
} Span;

static bool next_line(const char **text, Span *ret) {
        const char *end;

        if (!**text)
                return false;
        end = strchrnul(*text, '\n');
        *ret = (Span) { *text, (size_t) (end - *text) };
        *text = *end ? end + 1 : end;
        return true;
}

/* The last word of s, which is shortened by it. */
static bool take_last_word(Span *s, Span *ret) {
        size_t end;

        while (s->n > 0 && s->p[s->n - 1] == ' ')
                s->n--;
        end = s->n;
        while (s->n > 0 && s->p[s->n - 1] != ' ')
                s->n--;
        *ret = (Span) { s->p + s->n, end - s->n };
        return end > s->n;
}

static bool has_suffix(Span s, const char *suffix) {
        size_t n = strlen(suffix);
        return s.n >= n && memcmp(s.p + s.n - n, suffix, n) == 0;
}

static size_t suffix_size(Span path) {
        static const char *const suffixes[] = { ".ko", ".ko.xz", ".ko.zst" };

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++)
                if (has_suffix(path, suffixes[i]))
                        return strlen(suffixes[i]);
        return 0;
}

static Span stem(Span path) {
        const char *slash = memrchr(path.p, '/', path.n);
        size_t skip = slash ? (size_t) (slash + 1 - path.p) : 0;

        return (Span) { path.p + skip, path.n - skip - suffix_size(path) };
}

bool module_path_is(const char *path, size_t path_size, const char *name) {
        Span s = { path, path_size };

        if (suffix_size(s) == 0)
                return false;
        s = stem(s);
        if (s.n != strlen(name))
                return false;
        for (size_t i = 0; i < s.n; i++)
                if (s.p[i] != name[i] && !(strchr("-_", s.p[i]) && strchr("-_", name[i])))
                        return false;
        return true;
}

/* Below the directory, printable, a module that we can hand to the kernel. */
static bool path_valid(Span path) {
        bool component = false;

        if (path.n == 0 || path.n > MODULE_PATH_MAX || suffix_size(path) == 0 || stem(path).n == 0)
                return false;
        for (size_t i = 0; i < path.n; i++) {
                char c = path.p[i];

                if (c <= ' ' || c >= 0x7f)
                        return false;
                if (c == '/' && !component)
                        return false;
                /* Hidden files and ".." in one. */
                if (c == '.' && !component)
                        return false;
                component = c != '/';
        }
        return component;
}

void modules_plan_done(ModulesPlan *p) {
        for (size_t i = 0; i < p->n_modules; i++)
                free(p->modules[i].path);
        p->n_modules = 0;
}

static int plan_add(ModulesPlan *p, Span path, const char *params, Fault *fault) {
        if (!path_valid(path))
                return fault_set(fault, -EBADMSG, "modules.dep names \"%.*s\", which is no module's path",
                                 (int) MIN(path.n, (size_t) 80), path.p);
        for (size_t i = 0; i < p->n_modules; i++)
                if (strlen(p->modules[i].path) == path.n && memcmp(p->modules[i].path, path.p, path.n) == 0)
                        return 0;
        if (p->n_modules == MODULES_PLAN_MAX)
                return fault_set(fault, -E2BIG, "more than %u modules would be needed", MODULES_PLAN_MAX);

        p->modules[p->n_modules].path = strndup(path.p, path.n);
        if (!p->modules[p->n_modules].path)
                return -ENOMEM;
        p->modules[p->n_modules++].params = params;
        return 0;
}

/* The line of modules.dep for a module: its path, and what it depends on. */
static bool find_module(const char *dep, const char *name, Span *ret_path, Span *ret_deps) {
        Span line;

        while (next_line(&dep, &line)) {
                const char *colon = memchr(line.p, ':', line.n);
                size_t n = colon ? (size_t) (colon - line.p) : 0;

                if (!colon || !module_path_is(line.p, n, name))
                        continue;
                *ret_path = (Span) { line.p, n };
                *ret_deps = (Span) { colon + 1, line.n - n - 1 };
                return true;
        }
        return false;
}

static bool is_builtin(const char *builtin, const char *name) {
        Span line;

        while (next_line(&builtin, &line))
                if (module_path_is(line.p, line.n, name))
                        return true;
        return false;
}

static bool have_module(const char *dep, const char *builtin, const char *name) {
        Span path, deps;
        return is_builtin(builtin, name) || find_module(dep, name, &path, &deps);
}

/* depmod lists everything a module needs, what is needed first at the end. */
static int plan_wish(const char *dep, const char *builtin, const ModuleWish *w, ModulesPlan *p, Fault *fault) {
        Span path, deps, word;
        int r;

        if (is_builtin(builtin, w->name))
                return 0;
        if (!find_module(dep, w->name, &path, &deps)) {
                if (!w->needed || (w->or && have_module(dep, builtin, w->or)))
                        return 0;
                return fault_set(fault, -ENOENT, "this kernel has no %s, neither built in nor as a module; %s can't do without it",
                                 w->name, w->needed);
        }

        while (take_last_word(&deps, &word)) {
                r = plan_add(p, word, NULL, fault);
                if (r < 0)
                        return r;
        }
        return plan_add(p, path, w->params, fault);
}

int modules_plan_make(
                const char *dep,
                const char *builtin,
                const ModuleWish *wishes,
                size_t n_wishes,
                ModulesPlan *ret,
                Fault *fault) {
        _cleanup_(modules_plan_done) ModulesPlan p = {};

        for (size_t i = 0; i < n_wishes; i++) {
                int r = plan_wish(dep, builtin, &wishes[i], &p, fault);
                if (r < 0)
                        return r;
        }
        *ret = p;
        p.n_modules = 0;
        return 0;
}
