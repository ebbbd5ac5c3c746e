/* SPDX-License-Identifier: Apache-2.0 */

/* cube-image: what cubed does not do itself, because it means reading hostile files or waiting for
 * the disk. Started by cubed with everything it needs as a descriptor:
 *
 *      kernel                        stdin a kernel, stdout the vmlinux, 3 its KernelInfo
 *      initramfs [--no-modules]      stdin the agent, stdout the archive, 4 /lib/modules/RELEASE
 *      probe                         stdin a root file system, 3 what it is
 *      rootfs MAX                    stdin a tar or directory, stdout a clean tar
 *      image-info NAME               stdin an OCI image layout, 3 what its image NAME is
 *      image MAX MANIFEST            stdin an OCI image layout, stdout a clean tar, 4 how far it is (oci-merge.h)
 *      copy MAX                      stdin an image, stdout the same
 *      merge-disk N                  stdout a disk of what N disks show, 4 and on, the lowest first
 *      copy-in PATH                  stdin a file or directory, 3 a socket to cubed
 *      digest                        3 the hashes of what is behind stdin, and 4 and on; "" of what can't be read, or but once
 *      sum                           stdin a file, 3 its hash
 *      take-root BUILD SHA256        3 whether it was there, 4 the store
 *      take-layer BUILD BYTES KEY... 3 which one and what is known of it, 4 the store
 *      put-layer BUILD KEY ID PARENT PARENT-ID  stdin its state, 3 the store, 4 the overlay
 *      seal BUILD [INPUT DISK ID]    stdin the description, 3 the store; keys, "-" for none
 *      commit BUILD ID UID NAME:TAG...  3 the store
 *      reuse BUILD ID UID NAME:TAG...   3 the store
 *      name UID NAME:TAG [ID]        3 the store; without ID the name goes
 *      remove ENTRY...               3 the store
 *      clean [ENTRY...]              3 the store
 *      usage [ID...]                 3 what nothing refers to, these templates gone; 4 the store
 *      sweep                         3 the store
 *      pack                          stdin pack.json, stdout the pack, 3 progress, 4 and on its members
 *      unpack MAX                    stdin a pack, stdout its pack.json, 3 progress, 4 and on its members
 *
 * Exit status 0, or 1 and one line on stderr. */

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "base/tenant.h"
#include "base/vmm-proto.h"
#include "daemon/disk-merge.h"
#include "daemon/image/confine.h"
#include "daemon/image/copy-in.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/hash-tree.h"
#include "daemon/image/initramfs.h"
#include "daemon/image/kernel-image.h"
#include "daemon/image/layers.h"
#include "daemon/image/objects.h"
#include "daemon/image/oci-merge.h"
#include "daemon/image/pack.h"
#include "daemon/image/rootfs.h"
#include "daemon/image/slurp.h"
#include "daemon/image/store.h"
#include "daemon/image/usage.h"
#include "daemon/json-strict.h"
#include "daemon/template-files.h"

#define REPORT_FD 3
#define STORE_FD 3
#define COPY_FD 3
#define MODULES_FD 4
#define POSITION_FD 4
#define LAYERS_FD 4
#define OVERLAY_FD 4
#define REPORTING_STORE_FD 4
#define DIGEST_FDS 4
#define DIGEST_FDS_END 20
#define STATE_MAX TEMPLATE_LAYER_STATE_MAX
#define DESCRIPTION_MAX MIB(1)
/* What cubed takes of a report. */
#define REPORT_MAX (64U * 1024U)

typedef struct Verb {
        const char *name;
        int min_args, max_args;
        ConfineLevel level;
        bool keep_dac;            /* what root gives may be others' files */
        int (*run)(char **args, int n_args, Fault *fault);
} Verb;

static int report(json_object *o, Fault *fault) {
        const char *text;
        size_t size;
        int r;

        if (!o)
                return -ENOMEM;
        text = json_object_to_json_string_length(o, JSON_C_TO_STRING_PLAIN, &size);
        if (text && size > REPORT_MAX)
                return fault_set(fault, -EFBIG, "there is too much to tell about it");
        r = text ? write_full(REPORT_FD, text, size) : -ENOMEM;
        return r < 0 ? fault_set(fault, r, "writing the report to descriptor %d: %s", REPORT_FD, strerror(-r)) : 0;
}

static int verb_kernel(char **args, int n_args, Fault *fault) {
        _cleanup_(kernel_image_done) KernelImage k = {};
        _cleanup_free_ uint8_t *data = NULL;
        _cleanup_json_ json_object *o = NULL;
        size_t size;
        int r;

        r = slurp(STDIN_FILENO, KERNEL_FILE_MAX, &data, &size);
        if (r < 0)
                return fault_set(fault, r, "reading the kernel: %s", strerror(-r));
        r = kernel_image_load(data, size, &k, fault);
        if (r < 0)
                return r;
        r = write_full(STDOUT_FILENO, k.elf, k.elf_size);
        if (r < 0)
                return fault_set(fault, r, "writing the kernel: %s", strerror(-r));
        o = kernel_info_to_json(&k.info);
        return report(o, fault);
}

static int verb_initramfs(char **args, int n_args, Fault *fault) {
        int modules_fd = MODULES_FD;

        if (n_args > 0) {
                if (!streq(args[0], "--no-modules"))
                        return fault_set(fault, -EINVAL, "unknown option %s", args[0]);
                modules_fd = -EBADF;
        }
        return initramfs_write(STDIN_FILENO, modules_fd, STDOUT_FILENO, fault);
}

static int verb_probe(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *o = json_object_new_object();
        RootfsType type;
        uint64_t bytes;
        int r;

        if (!o)
                return -ENOMEM;
        r = rootfs_probe(STDIN_FILENO, &type, &bytes, fault);
        if (r >= 0)
                r = json_add_string(o, "type", rootfs_type_to_string(type));
        if (r >= 0)
                r = json_add_u64(o, "bytes", bytes);
        return r < 0 ? r : report(o, fault);
}

static int parse_max(const char *s, uint64_t *ret, Fault *fault) {
        int r = parse_u64(s, ret);
        return r < 0 ? fault_set(fault, r, "%s is no number of bytes", s) : 0;
}

static int verb_rootfs(char **args, int n_args, Fault *fault) {
        uid_t uid = getuid();
        struct stat st;
        uint64_t max;
        int r;

        r = parse_max(args[0], &max, fault);
        if (r < 0)
                return r;
        if (fstat(STDIN_FILENO, &st) < 0)
                return -errno;
        if (!S_ISDIR(st.st_mode))
                return rootfs_tar_to_tar(STDIN_FILENO, STDOUT_FILENO, max, fault);
        /* An ordinary user can't give files away, yet means them to be root's in the guest. */
        return rootfs_directory_to_tar(STDIN_FILENO, STDOUT_FILENO, max, uid != 0 ? &uid : NULL, fault);
}

static int add_strings(json_object *o, const char *key, char **strings) {
        json_object *array = json_object_new_array();

        if (!array)
                return -ENOMEM;
        int r = json_add(o, key, array);
        for (; r >= 0 && *strings; strings++)
                r = json_object_array_add(array, json_object_new_string(*strings)) < 0 ? -ENOMEM : 0;
        return r;
}

static int describe_image(const OciBlob *manifest, const OciImage *image, json_object **ret) {
        _cleanup_json_ json_object *o = json_object_new_object();
        json_object *defaults;

        if (!o)
                return -ENOMEM;
        int r = json_add_string(o, "manifest", manifest->digest);
        if (r >= 0)
                r = json_add_u64(o, "bytes", image->bytes);
        if (r >= 0)
                r = exec_defaults_to_json(&image->defaults, &defaults);
        if (r >= 0)
                r = json_add(o, "defaults", defaults);
        if (r >= 0)
                r = add_strings(o, "command", image->command);
        if (r >= 0)
                r = json_add(o, "has_ports", json_object_new_boolean(image->has_ports));
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

static int verb_image_info(char **args, int n_args, Fault *fault) {
        _cleanup_(oci_image_done) OciImage image = {};
        _cleanup_json_ json_object *o = NULL;
        OciBlob manifest;

        int r = oci_layout_find(STDIN_FILENO, args[0], &manifest, fault);
        if (r >= 0)
                r = oci_layout_load(STDIN_FILENO, &manifest, &image, fault);
        if (r >= 0)
                r = describe_image(&manifest, &image, &o);
        return r < 0 ? r : report(o, fault);
}

static int verb_image(char **args, int n_args, Fault *fault) {
        _cleanup_(oci_image_done) OciImage image = {};
        OciBlob manifest = { .bytes = UINT64_MAX };
        uint64_t max;

        int r = parse_max(args[0], &max, fault);
        if (r < 0)
                return r;
        if (!oci_digest_valid(args[1]))
                return fault_set(fault, -EINVAL, "malformed arguments");
        strcpy(manifest.digest, args[1]);
        r = oci_layout_load(STDIN_FILENO, &manifest, &image, fault);
        if (r >= 0)
                r = oci_layout_open_layers(STDIN_FILENO, &image, fault);
        /* What comes now is the archives: we may be root, to whom the directory belongs. */
        if (r >= 0)
                r = confine_to_streams(fault);
        return r < 0 ? r : oci_merge(&image, STDOUT_FILENO, POSITION_FD, max, fault);
}

static int verb_copy(char **args, int n_args, Fault *fault) {
        uint64_t max;
        int r = parse_max(args[0], &max, fault);

        return r < 0 ? r : rootfs_copy_image(STDIN_FILENO, STDOUT_FILENO, max, fault);
}

static int verb_merge_disk(char **args, int n_args, Fault *fault) {
        int layers[VMM_DISK_LAYERS_MAX];
        uint32_t n;

        if (parse_u32(args[0], &n) < 0 || n == 0 || n > ELEMENTSOF(layers))
                return fault_set(fault, -EINVAL, "malformed arguments");
        for (uint32_t i = 0; i < n; i++)
                layers[i] = LAYERS_FD + (int) i;
        int r = disk_merge(layers, n, STDOUT_FILENO);
        return r < 0 ? fault_set(fault, r, "putting a disk together: %s", strerror(-r)) : 0;
}

static int verb_copy_in(char **args, int n_args, Fault *fault) {
        /* A guest's stream that ends early is an error with words. */
        (void) signal(SIGPIPE, SIG_IGN);
        return copy_in(STDIN_FILENO, COPY_FD, args[0], fault);
}

static bool build_valid(const char *build) {
        return startswith(build, STORE_BUILD_PREFIX) && !strchr(build, '/');
}

static const char *key_argument(char **args, int n_args, int i) {
        return n_args > i && sha256_hex_valid(args[i]) ? args[i] : NULL;
}

static int verb_seal(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *description = NULL;
        _cleanup_free_ uint8_t *text = NULL;
        size_t size;
        int r;

        if (!build_valid(args[0]))
                return fault_set(fault, -EINVAL, "malformed arguments");
        r = slurp(STDIN_FILENO, DESCRIPTION_MAX, &text, &size);
        if (r >= 0)
                r = json_parse_strict((const char *) text, size, &description);
        if (r < 0)
                return fault_set(fault, r, "reading the description: %s", strerror(-r));
        StoreKeys keys = { .input = key_argument(args, n_args, 1), .disk = key_argument(args, n_args, 2) };
        if (n_args > 3 && sandbox_id_valid(args[3]))
                keys.disk_id = args[3];
        else
                keys.disk = NULL;
        return store_seal(STORE_FD, args[0], description, &keys, fault);
}

static int verb_take_root(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *o = json_object_new_object();
        _cleanup_close_ int dir_fd = -EBADF;

        if (!build_valid(args[0]) || !sha256_hex_valid(args[1]))
                return fault_set(fault, -EINVAL, "malformed arguments");
        dir_fd = openat(REPORTING_STORE_FD, args[0], O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        int r = dir_fd < 0 ? -errno : object_take(REPORTING_STORE_FD, dir_fd, TEMPLATE_FILE_ROOT, args[1]);
        if (r < 0 && r != -ENOENT)
                return fault_set(fault, r, "taking the root image: %s", strerror(-r));
        r = o ? json_add(o, "taken", json_object_new_boolean(r >= 0)) : -ENOMEM;
        return r < 0 ? r : report(o, fault);
}

static int verb_sum(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *o = json_object_new_object();
        char sum[SHA256_HEX_SIZE];

        int r = o ? hash_file(STDIN_FILENO, sum) : -ENOMEM;
        if (r < 0)
                return fault_set(fault, r, "reading the root image: %s", strerror(-r));
        r = json_add_string(o, "sha256", sum);
        return r < 0 ? r : report(o, fault);
}

static int verb_take_layer(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *o = NULL;
        uint64_t bytes;

        bool valid = build_valid(args[0]) && parse_u64(args[1], &bytes) >= 0;
        for (int i = 2; i < n_args; i++)
                valid = valid && sha256_hex_valid(args[i]);
        if (!valid)
                return fault_set(fault, -EINVAL, "malformed arguments");
        int r = layer_take(REPORTING_STORE_FD, args[0], bytes, args + 2, (size_t) n_args - 2, &o, fault);
        if (r >= 0 && !o)
                o = json_object_new_object();
        return r < 0 ? r : report(o, fault);
}

static int verb_put_layer(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *state = NULL;
        _cleanup_free_ uint8_t *text = NULL;
        size_t size;

        const LayerPlace place = { args[1], args[2], args[3], args[4] };
        if (!build_valid(args[0]) || !sha256_hex_valid(place.key) || !sandbox_id_valid(place.id) ||
            !sha256_hex_valid(place.parent) || !sandbox_id_valid(place.parent_id))
                return fault_set(fault, -EINVAL, "malformed arguments");
        int r = slurp(STDIN_FILENO, STATE_MAX, &text, &size);
        if (r >= 0)
                r = json_parse_strict((const char *) text, size, &state);
        if (r < 0)
                return fault_set(fault, r, "reading the state of a layer: %s", strerror(-r));
        return layer_put(STORE_FD, args[0], &place, OVERLAY_FD, TAKE_PTR(state), fault);
}

/* Of the descriptors that are there, in their order. */
static int verb_digest(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *o = json_object_new_object();
        json_object *sums = json_object_new_array();
        char sum[SHA256_HEX_SIZE];
        struct stat st;

        int r = o ? json_add(o, "sums", sums) : -ENOMEM;
        for (int fd = STDIN_FILENO; fd < DIGEST_FDS_END && r >= 0; fd = fd == STDIN_FILENO ? DIGEST_FDS : fd + 1) {
                if (fstat(fd, &st) < 0)
                        break;
                /* Whoever needs what can't be read says which file that is. */
                if (hash_tree(fd, fd == STDIN_FILENO ? HASH_ROOT : HASH_COPY, sum) < 0)
                        sum[0] = 0;
                if (json_object_array_add(sums, json_object_new_string(sum)) < 0)
                        r = -ENOMEM;
        }
        return r < 0 ? r : report(o, fault);
}

static bool store_name_valid(const char *name) {
        return *name && name[0] != '.' && !strchr(name, '/');
}

static bool owner_valid(const char *owner) {
        char tenant[TENANT_NAME_MAX];
        uid_t uid;

        return tenant_dir_parse(owner, &uid, tenant) >= 0;
}

static int name_template(char **args, int n_args, bool is_new, Fault *fault) {
        bool valid = build_valid(args[0]) && sandbox_id_valid(args[1]) && owner_valid(args[2]);

        for (int i = 3; i < n_args; i++)
                valid = valid && store_name_valid(args[i]);
        if (!valid)
                return fault_set(fault, -EINVAL, "malformed arguments");
        return (is_new ? store_commit : store_reuse)(STORE_FD, args[0], args[1], args[2], args + 3, (size_t) n_args - 3, fault);
}

static int verb_commit(char **args, int n_args, Fault *fault) {
        return name_template(args, n_args, true, fault);
}

static int verb_reuse(char **args, int n_args, Fault *fault) {
        return name_template(args, n_args, false, fault);
}

static int verb_name(char **args, int n_args, Fault *fault) {
        if (!owner_valid(args[0]) || !store_name_valid(args[1]) || (n_args > 2 && !sandbox_id_valid(args[2])))
                return fault_set(fault, -EINVAL, "malformed arguments");
        return n_args > 2 ? store_name(STORE_FD, args[0], args[1], args[2], fault) :
                            store_unname(STORE_FD, args[0], args[1], fault);
}

static int verb_remove(char **args, int n_args, Fault *fault) {
        int r = 0;

        for (int i = 0; i < n_args; i++) {
                int q = store_remove(STORE_FD, args[i], fault);
                if (q < 0)
                        r = q;
        }
        return r;
}

static int verb_clean(char **args, int n_args, Fault *fault) {
        return store_clean(STORE_FD, args, (size_t) n_args, fault);
}

static int verb_usage(char **args, int n_args, Fault *fault) {
        _cleanup_json_ json_object *o = NULL;

        for (int i = 0; i < n_args; i++)
                if (!sandbox_id_valid(args[i]))
                        return fault_set(fault, -EINVAL, "malformed arguments");
        int r = store_usage(REPORTING_STORE_FD, args, (size_t) n_args, &o, fault);
        return r < 0 ? r : report(o, fault);
}

static int verb_sweep(char **args, int n_args, Fault *fault) {
        return store_sweep(STORE_FD, fault);
}

static PackFds pack_fds(void) {
        PackFds fds = { .in = STDIN_FILENO, .out = STDOUT_FILENO, .progress = PACK_PROGRESS_FD };

        for (int i = 0; i < _PACK_MEMBER_MAX; i++)
                fds.members[i] = PACK_MEMBERS_FD + i;
        return fds;
}

static int verb_pack(char **args, int n_args, Fault *fault) {
        PackFds fds = pack_fds();

        return pack_write(&fds, fault);
}

static int verb_unpack(char **args, int n_args, Fault *fault) {
        uint64_t max;
        int r = parse_max(args[0], &max, fault);
        PackFds fds = pack_fds();

        return r < 0 ? r : pack_read(&fds, max, fault);
}

static const Verb verbs[] = {
        { "kernel", 0, 0, CONFINE_STREAMS, false, verb_kernel },
        { "initramfs", 0, 1, CONFINE_TREE, false, verb_initramfs },
        { "probe", 0, 0, CONFINE_STREAMS, false, verb_probe },
        { "rootfs", 1, 1, CONFINE_TREE, true, verb_rootfs },
        { "image-info", 1, 1, CONFINE_TREE, true, verb_image_info },
        { "image", 2, 2, CONFINE_OPENING, true, verb_image },
        { "copy", 1, 1, CONFINE_STREAMS, false, verb_copy },
        { "merge-disk", 1, 1, CONFINE_FILES, false, verb_merge_disk },
        { "copy-in", 1, 1, CONFINE_ASK, true, verb_copy_in },
        { "digest", 0, 0, CONFINE_TREE, true, verb_digest },
        { "sum", 0, 0, CONFINE_STREAMS, false, verb_sum },
        { "take-root", 2, 2, CONFINE_STORE, false, verb_take_root },
        { "take-layer", 3, 2 + LAYER_KEYS_MAX, CONFINE_STORE, false, verb_take_layer },
        { "put-layer", 5, 5, CONFINE_STORE, false, verb_put_layer },
        { "seal", 1, 4, CONFINE_STORE, false, verb_seal },
        { "commit", 4, 4 + TEMPLATE_ALIASES_MAX, CONFINE_STORE, false, verb_commit },
        { "reuse", 4, 4 + TEMPLATE_ALIASES_MAX, CONFINE_STORE, false, verb_reuse },
        { "name", 2, 3, CONFINE_STORE, false, verb_name },
        { "remove", 1, 64, CONFINE_STORE, false, verb_remove },
        { "clean", 0, 64, CONFINE_STORE, false, verb_clean },
        { "usage", 0, USAGE_TEMPLATES_MAX, CONFINE_TREE, false, verb_usage },
        { "pack", 0, 0, CONFINE_STREAMS, false, verb_pack },
        { "unpack", 1, 1, CONFINE_FILES, false, verb_unpack },
        { "sweep", 0, 0, CONFINE_STORE, false, verb_sweep },
};

static const Verb *find_verb(int argc, char **argv) {
        for (size_t i = 0; argc >= 2 && i < ELEMENTSOF(verbs); i++)
                if (streq(argv[1], verbs[i].name) && argc - 2 >= verbs[i].min_args && argc - 2 <= verbs[i].max_args)
                        return &verbs[i];
        return NULL;
}

int main(int argc, char **argv) {
        const Verb *verb = find_verb(argc, argv);
        Fault fault = {};
        int r;

        if (!verb) {
                fprintf(stderr, "cube-image is a part of cubed and not meant to be called by hand.\n");
                return EXIT_FAILURE;
        }

        /* Names in archives are UTF-8 for libarchive only if they are so for the locale. */
        (void) setlocale(LC_CTYPE, "C.UTF-8");

        r = confine(verb->level, verb->keep_dac, &fault);
        if (r >= 0)
                r = verb->run(argv + 2, argc - 2, &fault);
        if (r < 0) {
                fprintf(stderr, "cube-image: %s\n", fault.text[0] ? fault.text : strerror(-r));
                return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
}
