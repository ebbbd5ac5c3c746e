/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/oci-layout.h"
#include "daemon/image/slurp.h"
#include "daemon/json-strict.h"

#define JSON_BYTES_MAX MIB(4)
#define TEXT_MAX 4096U
#define LAYERS_MAX 512U
#define LAYER_BYTES_MAX (GIB(1024) * 16)
/* An index may lead to an index. */
#define INDEXES_MAX 4U
/* Of environment and command together: what a report has room for. */
#define CONFIG_BYTES_MAX 32768U
#define CONFIG_STRINGS_MAX 1024U

#define ARCHITECTURE "amd64"
#define SYSTEM "linux"

static const char *const index_types[] = {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        NULL,
};
static const char *const config_types[] = {
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
        NULL,
};
static const char *const layer_types[] = {
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        NULL,
};

static bool is_one_of(const char *s, const char *const *list) {
        while (*list && !streq(s, *list))
                list++;
        return *list;
}

bool oci_digest_valid(const char *s) {
        const char *hex = startswith(s, "sha256:");

        return hex && strlen(hex) == SHA256_HEX_SIZE - 1 && strspn(hex, "0123456789abcdef") == SHA256_HEX_SIZE - 1;
}

static void blob_path(const OciBlob *b, char *ret, size_t size) {
        (void) snprintf(ret, size, "blobs/sha256/%s", b->digest + strlen("sha256:"));
}

int oci_layout_open_layers(int dir_fd, OciImage *image, Fault *fault) {
        char path[128];

        image->fds = new0(int, image->n_layers + 1);
        if (!image->fds)
                return -ENOMEM;
        for (size_t i = 0; i < image->n_layers; i++)
                image->fds[i] = -EBADF;
        for (size_t i = 0; i < image->n_layers; i++) {
                blob_path(&image->layers[i], path, sizeof(path));
                int r = slurp_open_at(dir_fd, path, &image->fds[i]);
                if (r < 0)
                        return fault_set(fault, r, "layer %zu of %zu: %s: %s", i + 1, image->n_layers, path, strerror(-r));
        }
        return 0;
}

static int load_json(int dir_fd, const char *path, json_object **ret, const OciBlob *b, Fault *fault) {
        _cleanup_free_ uint8_t *text = NULL;
        char hex[SHA256_HEX_SIZE];
        struct sha256_ctx sum;
        size_t size;

        int r = slurp_at(dir_fd, path, JSON_BYTES_MAX, &text, &size);
        if (r < 0)
                return fault_set(fault, r, "%s: %s", path, strerror(-r));
        sha256_init(&sum);
        sha256_update(&sum, size, text);
        hash_finish(&sum, hex);
        if (b && (!streq(hex, b->digest + strlen("sha256:")) || (b->bytes != UINT64_MAX && b->bytes != size)))
                return fault_set(fault, -EBADMSG, "%s: wrong checksum: it is sha256:%s of %zu bytes", path, hex, size);
        r = json_parse_strict((const char *) text, size, ret);
        return r < 0 ? fault_set(fault, r, "%s is no JSON object", path) : 0;
}

static int load_blob(int dir_fd, const OciBlob *b, json_object **ret, Fault *fault) {
        char path[128];

        blob_path(b, path, sizeof(path));
        return load_json(dir_fd, path, ret, b, fault);
}

/* What a descriptor leads to, and of what type that is (borrowed). */
static int parse_descriptor(json_object *o, const char *what, OciBlob *ret, const char **ret_type, Fault *fault) {
        const char *digest;

        int r = json_object_is_type(o, json_type_object) ? json_get_string(o, "mediaType", TEXT_MAX, ret_type) : -EBADMSG;
        if (r >= 0)
                r = json_get_string(o, "digest", TEXT_MAX, &digest);
        if (r >= 0)
                r = json_get_u64(o, "size", 0, LAYER_BYTES_MAX, &ret->bytes);
        if (r < 0)
                return fault_set(fault, r, "%s: what it is made of can't be read", what);
        if (!oci_digest_valid(digest))
                return fault_set(fault, -EOPNOTSUPP, "%s has the digest \"%.80s\", but only sha256 is known", what, digest);
        strcpy(ret->digest, digest);
        return 0;
}

/* "" where there is none. */
static const char *optional_string(json_object *o, const char *key) {
        const char *s;

        return o && json_get_string(o, key, TEXT_MAX, &s) >= 0 ? s : "";
}

static json_object *optional_object(json_object *o, const char *key) {
        json_object *v;

        return json_object_is_type(o, json_type_object) && json_get(o, key, json_type_object, &v) >= 0 ? v : NULL;
}

/* Finding the manifest. */

typedef struct Choice {
        json_object *found;
        size_t n_found;
        bool not_for_us;       /* some are for other machines */
        char others[160];      /* what else there is, for people */
} Choice;

static void choice_note(Choice *c, const char *a, const char *b) {
        size_t n = strlen(c->others);

        (void) snprintf(c->others + n, sizeof(c->others) - n, "%s%s%s%s", n > 0 ? ", " : "", a, *b ? "/" : "", b);
}

static void choose(Choice *c, json_object *entry, const char *name) {
        json_object *platform = optional_object(entry, "platform");
        const char *system = optional_string(platform, "os"), *architecture = optional_string(platform, "architecture");
        const char *has = optional_string(optional_object(entry, "annotations"), "org.opencontainers.image.ref.name");

        if (name && *name && !streq(has, name)) {
                if (*has && !c->not_for_us)
                        choice_note(c, has, "");
                return;
        }
        if (platform && (!streq(system, SYSTEM) || !streq(architecture, ARCHITECTURE))) {
                if (!c->not_for_us)
                        c->others[0] = 0;
                c->not_for_us = true;
                choice_note(c, system, architecture);
                return;
        }
        /* Of the variants of a machine that an index has, the first; of images, the only one. */
        if (c->n_found++ == 0)
                c->found = entry;
}

static int choose_fault(const Choice *c, const char *name, Fault *fault) {
        if (c->not_for_us)
                return fault_set(fault, -ENOEXEC, "the image is not for %s/%s, but for %s", SYSTEM, ARCHITECTURE, c->others);
        if (name && *name)
                return fault_set(fault, -ENOENT, "there is no image named \"%.60s\" in it%s%s", name,
                                 c->others[0] ? ", but: " : "", c->others);
        return fault_set(fault, -ENOENT, "there is no image in it");
}

/* name: NULL below the top, where images have none. */
static int pick(json_object *index, const char *name, OciBlob *ret, const char **ret_type, Fault *fault) {
        json_object *manifests;
        Choice c = {};

        if (json_get(index, "manifests", json_type_array, &manifests) < 0)
                return fault_set(fault, -EBADMSG, "the list of its images can't be read");
        for (size_t i = 0; i < json_object_array_length(manifests); i++)
                choose(&c, json_object_array_get_idx(manifests, i), name);
        if (c.n_found == 0)
                return choose_fault(&c, name, fault);
        if (c.n_found > 1 && name)
                return fault_set(fault, -ENOTUNIQ, *name ? "there are several images of this name in it" :
                                 "there are several images in it: say which, as oci:DIR:NAME");
        return parse_descriptor(c.found, "the image", ret, ret_type, fault);
}

int oci_layout_find(int dir_fd, const char *name, OciBlob *ret_manifest, Fault *fault) {
        _cleanup_json_ json_object *index = NULL;
        const char *type;

        int r = load_json(dir_fd, "index.json", &index, NULL, fault);
        if (r >= 0)
                r = pick(index, name, ret_manifest, &type, fault);
        for (unsigned i = 0; r >= 0 && is_one_of(type, index_types); i++) {
                json_object *next;

                if (i == INDEXES_MAX)
                        return fault_set(fault, -ELOOP, "too many lists of images lead to each other");
                r = load_blob(dir_fd, ret_manifest, &next, fault);
                if (r < 0)
                        return r;
                json_object_put(index);
                index = next;
                r = pick(index, NULL, ret_manifest, &type, fault);
        }
        return r;
}

/* The configuration. */

static bool text_valid(json_object *o) {
        return json_object_is_type(o, json_type_string) &&
                (size_t) json_object_get_string_len(o) == strlen(json_object_get_string(o));
}

/* Appends; a key that is missing or null has none. */
static int add_strings(json_object *config, const char *key, bool assignments, char ***list, size_t *n, size_t *bytes) {
        json_object *array;

        if (!json_object_object_get_ex(config, key, &array) || !array)
                return 0;
        if (!json_object_is_type(array, json_type_array))
                return -EBADMSG;
        for (size_t i = 0; i < json_object_array_length(array); i++) {
                json_object *o = json_object_array_get_idx(array, i);

                if (!text_valid(o))
                        return -EBADMSG;
                const char *s = json_object_get_string(o);
                if (assignments && !env_assignment_valid(s)) {
                        fprintf(stderr, "leaving out an entry of the image's environment that is not NAME=VALUE\n");
                        continue;
                }
                *bytes += strlen(s) + 1;
                if (*n == CONFIG_STRINGS_MAX || *bytes > CONFIG_BYTES_MAX)
                        return -EFBIG;
                (*list)[*n] = strdup(s);
                if (!(*list)[(*n)++])
                        return -ENOMEM;
        }
        return 0;
}

static int parse_lists(json_object *config, OciImage *image) {
        size_t n_env = 0, n_command = 0, bytes = 0;

        image->defaults.env = new0(char *, CONFIG_STRINGS_MAX + 1);
        image->command = new0(char *, CONFIG_STRINGS_MAX + 1);
        if (!image->defaults.env || !image->command)
                return -ENOMEM;
        int r = add_strings(config, "Env", true, &image->defaults.env, &n_env, &bytes);
        if (r >= 0)
                r = add_strings(config, "Entrypoint", false, &image->command, &n_command, &bytes);
        return r < 0 ? r : add_strings(config, "Cmd", false, &image->command, &n_command, &bytes);
}

/* Who and where a program runs is not left to what a broken value is taken for. */
static int get_text(json_object *config, const char *key, size_t max, const char **ret) {
        json_object *o;

        *ret = "";
        if (!json_object_object_get_ex(config, key, &o) || !o)
                return 0;
        int r = json_get_string(config, key, max, ret);
        return r >= 0 && !text_fits_bus(*ret) ? -EILSEQ : r;
}

/* A config of nothing is one as well. */
static int parse_config(json_object *o, OciImage *image) {
        json_object *config = optional_object(o, "config"), *ports = optional_object(config, "ExposedPorts");
        const char *user, *cwd;

        int r = get_text(config, "User", 255, &user);
        if (r >= 0)
                r = get_text(config, "WorkingDir", TEXT_MAX - 2, &cwd);
        if (r >= 0)
                r = parse_lists(config, image);
        if (r < 0)
                return r;
        image->has_ports = ports && json_object_object_length(ports) > 0;
        if (*user && !(image->defaults.user = strdup(user)))
                return -ENOMEM;
        if (*cwd && asprintf(&image->defaults.cwd, "%s%s", *cwd == '/' ? "" : "/", cwd) < 0) {
                image->defaults.cwd = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int load_config(int dir_fd, json_object *descriptor, OciImage *image, json_object **ret, Fault *fault) {
        _cleanup_json_ json_object *o = NULL;
        const char *type;
        OciBlob b;

        int r = parse_descriptor(descriptor, "the configuration", &b, &type, fault);
        if (r < 0)
                return r;
        if (!is_one_of(type, config_types))
                return fault_set(fault, -EINVAL, "it is no image of a root file system, but of type %.80s", type);
        r = load_blob(dir_fd, &b, &o, fault);
        if (r < 0)
                return r;
        const char *system = optional_string(o, "os"), *architecture = optional_string(o, "architecture");
        if (!streq(system, SYSTEM) || !streq(architecture, ARCHITECTURE))
                return fault_set(fault, -ENOEXEC, "the image is not for %s/%s, but for %.40s/%.40s", SYSTEM, ARCHITECTURE,
                                 system, architecture);
        r = parse_config(o, image);
        if (r == -EFBIG)
                return fault_set(fault, r, "the environment and the command of the image are larger than %u KiB together",
                                 CONFIG_BYTES_MAX / 1024);
        if (r == -EILSEQ)
                return fault_set(fault, r, "the user or the working directory of the image has a character that stands for none");
        if (r < 0)
                return fault_set(fault, r, "the configuration of the image can't be read: %s", strerror(-r));
        *ret = TAKE_PTR(o);
        return 0;
}

static int parse_layers(json_object *layers, OciImage *image, Fault *fault) {
        size_t n = json_object_array_length(layers);
        char what[32];
        const char *type;

        if (n > LAYERS_MAX)
                return fault_set(fault, -E2BIG, "the image has more than %u layers", LAYERS_MAX);
        image->layers = new0(OciBlob, n + 1);
        if (!image->layers)
                return -ENOMEM;
        for (; image->n_layers < n; image->n_layers++) {
                OciBlob *b = &image->layers[image->n_layers];

                (void) snprintf(what, sizeof(what), "layer %zu of %zu", image->n_layers + 1, n);
                int r = parse_descriptor(json_object_array_get_idx(layers, image->n_layers), what, b, &type, fault);
                if (r < 0)
                        return r;
                if (!is_one_of(type, layer_types))
                        return fault_set(fault, -EOPNOTSUPP, "%s is of the type %.100s, which is not known", what, type);
                image->bytes += b->bytes;
        }
        return 0;
}

/* The image is named by its manifest, but what its layers are when they are unpacked is what it was made as. */
static int parse_diff_ids(json_object *config, OciImage *image, Fault *fault) {
        json_object *rootfs = optional_object(config, "rootfs"), *ids;

        if (!rootfs || json_get(rootfs, "diff_ids", json_type_array, &ids) < 0)
                return fault_set(fault, -EBADMSG, "the configuration of the image has no checksums of its layers (diff_ids)");
        size_t n = json_object_array_length(ids);
        if (n != image->n_layers)
                return fault_set(fault, -EBADMSG, "the configuration of the image has %zu checksums of layers (diff_ids), but there are %zu",
                                 n, image->n_layers);
        for (size_t i = 0; i < n; i++) {
                json_object *id = json_object_array_get_idx(ids, i);

                if (!text_valid(id) || !oci_digest_valid(json_object_get_string(id)))
                        return fault_set(fault, -EOPNOTSUPP, "layer %zu of %zu: its diff_id is no sha256", i + 1, n);
                strcpy(image->layers[i].unpacked, json_object_get_string(id));
        }
        return 0;
}

int oci_layout_load(int dir_fd, const OciBlob *manifest, OciImage *ret, Fault *fault) {
        _cleanup_(oci_image_done) OciImage image = {};
        _cleanup_json_ json_object *o = NULL, *config = NULL;
        json_object *descriptor, *layers;

        int r = load_blob(dir_fd, manifest, &o, fault);
        if (r < 0)
                return r;
        if (json_get(o, "config", json_type_object, &descriptor) < 0 || json_get(o, "layers", json_type_array, &layers) < 0)
                return fault_set(fault, -EBADMSG, "the manifest of the image can't be read");
        r = load_config(dir_fd, descriptor, &image, &config, fault);
        if (r >= 0)
                r = parse_layers(layers, &image, fault);
        if (r >= 0)
                r = parse_diff_ids(config, &image, fault);
        if (r < 0)
                return r;
        *ret = image;
        image = (OciImage) {};
        return 0;
}

void oci_image_done(OciImage *i) {
        for (size_t k = 0; i->fds && k < i->n_layers; k++)
                safe_close(i->fds[k]);
        free(i->fds);
        free(i->layers);
        exec_defaults_done(&i->defaults);
        for (char **s = i->command; s && *s; s++)
                free(*s);
        free(i->command);
        *i = (OciImage) {};
}
