/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `template build` knows about the template to be made. */

#include <stdint.h>

#include "base/macros.h"
#include "ctl/build-step.h"
#include "ctl/ctl.h"
#include "ctl/exec-options.h"
#include "ctl/policy-options.h"
#include "ctl/skopeo.h"

/* As many as cubed takes in one call. */
#define BUILD_COPIES_MAX 12U
/* One less: behind them is what removes the archives of COPY steps. */
#define BUILD_STEPS_MAX 255U
/* In the guest, up to the step behind the last one. */
#define BUILD_ARCHIVES "/.cube-build"

typedef struct BuildCopy {
        char *source, *path;    /* here, and in the guest */
        int fd;                 /* of the source, once it is open */
} BuildCopy;

typedef struct BuildOptions {
        const char *from, *kernel, *modules, *cmdline;
        char **aliases;
        SkopeoOptions skopeo;
        bool no_modules, no_warm, no_start, no_cache, public;
        uint64_t mem_bytes, disk_bytes;
        uint32_t cpus;
        BuildCopy copies[BUILD_COPIES_MAX];
        size_t n_copies;
        char **setup;
        BuildStep *steps;
        size_t n_steps;
        const char *start, *ready;
        uint64_t timeout_usec, ready_timeout_usec;
        ExecOptions exec;       /* env, user and cwd of the commands */
        PolicyOptions policy;   /* of its sandboxes */
        PolicyOptions build_policy;
} BuildOptions;

enum {
        BUILD_FROM = CTL_OPTION_VERB,
        BUILD_AUTHFILE,
        BUILD_CERT_DIR,
        BUILD_INSECURE,
        BUILD_KERNEL,
        BUILD_MODULES,
        BUILD_NO_MODULES,
        BUILD_CMDLINE,
        BUILD_MEMORY,
        BUILD_CPUS,
        BUILD_DISK,
        BUILD_NO_WARM,
        BUILD_COPY,
        BUILD_SETUP,
        BUILD_STEP,
        BUILD_START,
        BUILD_NO_START,
        BUILD_READY,
        BUILD_TIMEOUT,
        BUILD_READY_TIMEOUT,
        BUILD_ALIAS,
        BUILD_NO_CACHE,
        BUILD_PUBLIC,
};

#define BUILD_SHORT "e:u:C:"
#define BUILD_OPTIONS                                                   \
        { "from", required_argument, NULL, BUILD_FROM },                \
        { "authfile", required_argument, NULL, BUILD_AUTHFILE },        \
        { "cert-dir", required_argument, NULL, BUILD_CERT_DIR },        \
        { "insecure", no_argument, NULL, BUILD_INSECURE },              \
        { "kernel", required_argument, NULL, BUILD_KERNEL },            \
        { "modules", required_argument, NULL, BUILD_MODULES },          \
        { "no-modules", no_argument, NULL, BUILD_NO_MODULES },          \
        { "cmdline", required_argument, NULL, BUILD_CMDLINE },          \
        { "memory", required_argument, NULL, BUILD_MEMORY },            \
        { "cpus", required_argument, NULL, BUILD_CPUS },                \
        { "disk", required_argument, NULL, BUILD_DISK },                \
        { "alias", required_argument, NULL, BUILD_ALIAS },              \
        { "no-cache", no_argument, NULL, BUILD_NO_CACHE },              \
        { "public", no_argument, NULL, BUILD_PUBLIC },                  \
        { "no-warm", no_argument, NULL, BUILD_NO_WARM },                \
        { "copy", required_argument, NULL, BUILD_COPY },                \
        { "setup", required_argument, NULL, BUILD_SETUP },              \
        { "step", required_argument, NULL, BUILD_STEP },                \
        { "start", required_argument, NULL, BUILD_START },              \
        { "no-start", no_argument, NULL, BUILD_NO_START },              \
        { "ready", required_argument, NULL, BUILD_READY },              \
        { "timeout", required_argument, NULL, BUILD_TIMEOUT },          \
        { "ready-timeout", required_argument, NULL, BUILD_READY_TIMEOUT }, \
        POLICY_OPTIONS("network"),                                      \
        { "build-network", required_argument, NULL, CTL_OPTION_BUILD_POLICY + POLICY_DEFAULT }, \
        { "build-allow", required_argument, NULL, CTL_OPTION_BUILD_POLICY + POLICY_ALLOW }, \
        { "build-deny", required_argument, NULL, CTL_OPTION_BUILD_POLICY + POLICY_DENY }, \
        { "env", required_argument, NULL, 'e' },                        \
        { "user", required_argument, NULL, 'u' },                       \
        { "cwd", required_argument, NULL, 'C' }

#define BUILD_HELP                                                                      \
        "  list | show NAME... | rm NAME... | alias ALIAS[:TAG] NAME[:TAG] | alias --remove ALIAS[:TAG]\n" \
        "  export NAME FILE|- | import [--alias=NAME[:TAG]] FILE|- [NAME[:TAG]]\n"       \
        "  build NAME[:TAG] --from=...   | build [NAME[:TAG]] --file=cube.json\n"       \
        "     --file=FILE          Options as cube.json(5) has them; those given here win\n" \
        "     --from=IMAGE         docker://NAME, docker-archive:FILE, oci-archive:FILE, oci:DIR[:NAME]\n" \
        "     --from=template:NAME What the guest of another template was when it was saved\n" \
        "     --from=TAR|DIR       The guest's root file system; - for a tar on stdin\n" \
        "     --authfile=FILE      Passwords of registries, as podman and docker log in to\n" \
        "     --cert-dir=DIR       With *.crt of a registry's own certificate authority\n" \
        "     --insecure           Plain HTTP, or a certificate that can't be checked\n"  \
        "     --kernel=small|stock|FILE  The small one, the newest in /boot (the default),\n" \
        "                          or a vmlinux or bzImage\n"                         \
        "     --modules=DIR        Its modules; default: /lib/modules/RELEASE\n"        \
        "     --no-modules         All drivers are in the kernel\n"                     \
        "     --cmdline=TEXT       Behind our own\n"                                    \
        "     --alias=NAME[:TAG]   One more name for it; may be repeated\n"               \
        "     --public             All users may create sandboxes from it, by its id\n"   \
        "     --memory=SIZE --cpus=N --disk=SIZE   Defaults of its sandboxes\n"         \
        "     --copy=SRC:DEST      A file or directory, put into the guest before all commands\n" \
        "     --setup=COMMAND      Run in the guest before it is saved; may be repeated\n" \
        "     --step=STEP          RUN, COPY, ENV, WORKDIR or USER, in this order; in place of --setup\n" \
        "     --start=COMMAND      Started then, and running in each sandbox\n"         \
        "     --no-start           Nor what the image itself starts\n"                  \
        "     --ready=COMMAND      Tried until it succeeds, before the guest is saved\n" \
        "     --ready-timeout=TIME How long that may take; default: 60s\n"              \
        "  -e --env=NAME=VALUE -u --user=USER -C --cwd=DIR   Of these commands\n"       \
        "     --timeout=TIME       Of the whole build; default: BuildTimeout=\n"        \
        "     --no-cache           Take nothing from earlier builds\n"                  \
        "     --no-warm            Save no guest: each sandbox boots\n"                 \
        "     --build-network=deny|internet --build-allow=RULE --build-deny=RULE\n"    \
        "                          What may be reached while it is built\n"            \
        "     --network=deny|internet  What its sandboxes may reach, unless they say otherwise\n" \
        POLICY_RULE_OPTIONS_HELP

/* 1 when the option is one of these, 0 when not, negative once it was said what is wrong. */
int build_option(BuildOptions *o, int c);
/* What is missing or does not go together. */
int build_options_check(const BuildOptions *o);
void build_options_done(BuildOptions *o);
/* What is behind "template:" in --from; NULL: it is no template. */
const char *build_options_base(const BuildOptions *o);
/* cubed knows where the kernel is; a file of that name is given as ./NAME. */
bool build_kernel_is_name(const char *kernel);
/* What goes with the options; descriptors below 0 are left out, and image when it is NULL. */
typedef struct BuildFiles {
        const char *image;
        int kernel_fd, modules_fd;
        int archives_fd;        /* of COPY steps */
} BuildFiles;

/* The a{sv} of BuildTemplate and DeriveTemplate. */
int build_options_append(sd_bus_message *m, const BuildOptions *o, const BuildFiles *files);
