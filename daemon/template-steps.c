/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>

#include "base/parse.h"
#include "daemon/template-steps.h"

#define USER_NAME_MAX 32U

/* The arguments of a script are its positional parameters: nothing of a caller's is ever part of a script's text but values of
 * ENV, which are for the shell to look at. */

/* $1 command, $2: not empty, when it begins in the user's home. An image without bash is no reason to fail before the command
 * does. */
static const char run_script[] =
        "if [ -n \"$2\" ]; then cd 2>/dev/null || cd /; fi\n"
        "if command -v bash >/dev/null 2>&1; then exec bash -l -c \"$1\"; fi\n"
        "exec sh -c \"$1\"\n";

static const char workdir_script[] =
        "[ -d \"$1\" ] && exit 0\n"
        "new=$1 above=${1%/*}\n"
        "while [ ! -d \"${above:-/}\" ]; do new=$above above=${above%/*}; done\n"
        "mkdir -p -- \"$1\" && chown -R \"$2:\" \"$new\"\n";

static const char user_script[] =
        "id -u \"$1\" >/dev/null 2>&1 ||\n"
        "useradd --create-home --shell /bin/bash \"$1\" 2>/dev/null ||\n"
        "adduser -D -s /bin/sh \"$1\" || exit 1\n"
        "[ \"$2\" = true ] || exit 0\n"
        "for group in sudo wheel; do\n"
        "    if grep -q \"^$group:\" /etc/group; then usermod -aG $group \"$1\" 2>/dev/null || addgroup \"$1\" $group; break; fi\n"
        "done\n"
        "passwd -d \"$1\" >/dev/null || exit 1\n"
        "mkdir -p /etc/sudoers.d && echo \"$1 ALL=(ALL:ALL) NOPASSWD: ALL\" >\"/etc/sudoers.d/$1\" && chmod 0440 \"/etc/sudoers.d/$1\"\n";

/* $1 archive, $2 path in it, $3 target, $4 owner, $5 mode, $6 the directory that a relative target begins in, $7 whose home
 * that is otherwise. A directory goes into the target by tar, as what is there already may be a link to a directory. */
static const char copy_script[] =
        "base=$6\n"
        "[ -n \"$base\" ] || base=$(sed -n \"s/^$7:[^:]*:[^:]*:[^:]*:[^:]*:\\([^:]*\\):.*/\\1/p\" /etc/passwd)\n"
        "case $3 in /*) target=$3 ;; *) target=${base%/}/$3 ;; esac\n"
        "unpack=$1.d\n"
        "rm -rf -- \"$unpack\" && mkdir -p -- \"$unpack\" || exit 1\n"
        /* Also one that is compressed: not every tar finds that out by itself. */
        "if gzip -t <\"$1\" 2>/dev/null; then gzip -dc <\"$1\" | tar -xof - -C \"$unpack\" || exit 1\n"
        "else tar -xof \"$1\" -C \"$unpack\" || exit 1; fi\n"
        "rm -f -- \"$1\"\n"
        "entry=$unpack/$2\n"
        "if [ ! -e \"$entry\" ] && [ ! -L \"$entry\" ]; then echo \"$2 is not in the archive\" >&2; exit 1; fi\n"
        "if [ -d \"$entry\" ] && [ ! -L \"$entry\" ]; then\n"
        "    chown -R -- \"$4\" \"$entry\" || exit 1\n"
        "    if [ -n \"$5\" ]; then chmod -R -- \"$5\" \"$entry\" || exit 1; fi\n"
        "    options=\n"
        "    if tar --version 2>/dev/null | grep -q GNU; then options='--keep-directory-symlink --no-overwrite-dir'; fi\n"
        "    mkdir -p -- \"$target\" || exit 1\n"
        "    (cd \"$entry\" && tar -cf - .) | tar -xpf - -C \"$target\" $options || exit 1\n"
        "else\n"
        "    chown -h -- \"$4\" \"$entry\" || exit 1\n"
        "    if [ -n \"$5\" ] && [ ! -L \"$entry\" ]; then chmod -- \"$5\" \"$entry\" || exit 1; fi\n"
        "    case $target in */) mkdir -p -- \"$target\" ;; *) mkdir -p -- \"$(dirname -- \"$target\")\" ;; esac || exit 1\n"
        "    mv -f -- \"$entry\" \"$target\" || exit 1\n"
        "fi\n"
        "rm -rf -- \"$unpack\"\n";

static const char *const kinds[_STEP_KIND_MAX] = {
        [STEP_KIND_RUN] = "RUN",
        [STEP_KIND_COPY] = "COPY",
        [STEP_KIND_ENV] = "ENV",
        [STEP_KIND_WORKDIR] = "WORKDIR",
        [STEP_KIND_USER] = "USER",
};

static const struct {
        size_t least, most;
} args_of[_STEP_KIND_MAX] = {
        [STEP_KIND_RUN] = { 1, 2 },
        [STEP_KIND_COPY] = { 3, 5 },
        [STEP_KIND_ENV] = { 2, TEMPLATE_STEP_ARGS_MAX },
        [STEP_KIND_WORKDIR] = { 1, 1 },
        [STEP_KIND_USER] = { 1, 2 },
};

const char *step_kind_to_string(StepKind k) {
        return (unsigned) k < _STEP_KIND_MAX ? kinds[k] : NULL;
}

StepKind step_kind_from_string(const char *s) {
        for (int i = 0; s && i < _STEP_KIND_MAX; i++)
                if (streq(kinds[i], s))
                        return (StepKind) i;
        return _STEP_KIND_INVALID;
}

static size_t count(char **l) {
        size_t n = 0;

        while (l && l[n])
                n++;
        return n;
}

static const char *argument(const TemplateStep *s, size_t i) {
        return i < count(s->args) ? s->args[i] : "";
}

/* Checks. */

static bool name_valid(const char *s, size_t n) {
        if (n == 0 || n > USER_NAME_MAX || *s == '-' || *s == '.')
                return false;
        for (size_t i = 0; i < n; i++)
                if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", s[i]))
                        return false;
        return true;
}

static bool owner_valid(const char *s) {
        const char *colon = strchrnul(s, ':');

        return name_valid(s, (size_t) (colon - s)) && (!*colon || name_valid(colon + 1, strlen(colon + 1)));
}

static bool mode_valid(const char *s) {
        size_t n = strspn(s, "01234567");

        return n > 0 && n <= 5 && !s[n];
}

/* Below where it is unpacked. */
static bool inner_path_valid(const char *s) {
        if (!*s || *s == '/' || strlen(s) >= PATH_MAX)
                return false;
        for (const char *p = s; *p; p += *p == '/') {
                size_t n = strcspn(p, "/");
                if (n == 2 && p[0] == '.' && p[1] == '.')
                        return false;
                p += n;
        }
        return true;
}

static const char *copy_fault(const TemplateStep *s) {
        const char *archive = s->args[0], *owner = argument(s, 3), *mode = argument(s, 4);

        if (*archive != '/' || strlen(archive) >= PATH_MAX - 2)
                return "the archive of a COPY has to be an absolute path";
        if (!inner_path_valid(s->args[1]))
                return "what a COPY takes out of its archive has to be a path in it";
        if (!*s->args[2] || strlen(s->args[2]) >= PATH_MAX)
                return "a COPY has no target";
        if (*owner && !owner_valid(owner))
                return "the owner of a COPY is no USER or USER:GROUP";
        return *mode && !mode_valid(mode) ? "the mode of a COPY is no octal number" : NULL;
}

static const char *env_fault(const TemplateStep *s) {
        size_t n = count(s->args);

        if (n % 2 != 0)
                return "an ENV has a name without a value";
        for (size_t i = 0; i < n; i += 2) {
                _cleanup_free_ char *assignment = NULL;
                if (asprintf(&assignment, "%s=", s->args[i]) < 0 || strchr(s->args[i], '=') || !env_assignment_valid(assignment))
                        return "a name of an ENV is not one of a variable";
        }
        return NULL;
}

const char *template_step_fault(const TemplateStep *s) {
        StepKind k = step_kind_from_string(s->type);
        size_t n = count(s->args), bytes = 0;

        if (k < 0)
                return "a step is none of RUN, COPY, ENV, WORKDIR and USER";
        if (n < args_of[k].least || n > args_of[k].most)
                return "a step has too few or too many arguments";
        for (size_t i = 0; i < n; i++)
                bytes += strlen(s->args[i]) + 1;
        if (bytes > TEMPLATE_STEP_TEXT_MAX)
                return "the arguments of a step are too long, 128 KiB at most";

        switch (k) {
        case STEP_KIND_RUN:
                if (!*s->args[0])
                        return "the command of a RUN is empty";
                return *argument(s, 1) && !name_valid(s->args[1], strlen(s->args[1])) ? "the user of a RUN is not the name of one" : NULL;
        case STEP_KIND_COPY:
                return copy_fault(s);
        case STEP_KIND_ENV:
                return env_fault(s);
        case STEP_KIND_WORKDIR:
                return !*s->args[0] || strlen(s->args[0]) >= PATH_MAX / 2 ? "a WORKDIR has no path, or one that is too long" : NULL;
        default:
                return !name_valid(s->args[0], strlen(s->args[0])) ? "a USER is not the name of one" : NULL;
        }
}

TemplateStep *template_steps_free(TemplateStep *l, size_t n) {
        for (size_t i = 0; l && i < n; i++) {
                for (char **a = l[i].args; a && *a; a++) {
                        explicit_bzero(*a, strlen(*a));
                        free(*a);
                }
                free(l[i].args);
                free(l[i].type);
        }
        free(l);
        return NULL;
}

static int copy_step(const TemplateStep *s, TemplateStep *ret) {
        size_t n = count(s->args);

        ret->type = strdup(s->type);
        ret->args = new0(char *, n + 1);
        if (!ret->type || !ret->args)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                ret->args[i] = strdup(s->args[i]);
                if (!ret->args[i])
                        return -ENOMEM;
        }
        return 0;
}

int template_steps_copy(const TemplateStep *l, size_t n, TemplateStep **ret) {
        TemplateStep *c = new0(TemplateStep, n + 1);
        int r = c ? 0 : -ENOMEM;

        for (size_t i = 0; i < n && r >= 0; i++)
                r = copy_step(&l[i], &c[i]);
        if (r < 0) {
                template_steps_free(c, n);
                return r;
        }
        *ret = c;
        return 0;
}

/* Commands. */

/* PATH seen from base, without "." and "..", as the guest's kernel would not see it where links are in between: a build has it
 * the same before and behind each step. */
static int join_path(const char *base, const char *path, char **ret) {
        _cleanup_free_ char *all = NULL, *out = NULL;
        size_t n = 0;

        if (asprintf(&all, "%s/%s", *path == '/' ? "" : base, path) < 0) {
                all = NULL;
                return -ENOMEM;
        }
        out = new0(char, strlen(all) + 2);
        if (!out)
                return -ENOMEM;
        for (const char *p = all; *p;) {
                p += strspn(p, "/");
                size_t k = strcspn(p, "/");
                if (k == 2 && memcmp(p, "..", 2) == 0)
                        while (n > 0 && out[--n] != '/')
                                ;
                else if (k > 0 && !(k == 1 && *p == '.')) {
                        out[n++] = '/';
                        memcpy(out + n, p, k);
                        n += k;
                }
                p += k;
        }
        if (n == 0)
                out[n++] = '/';
        out[n] = 0;
        if (n >= PATH_MAX)
                return -ENAMETOOLONG;
        *ret = TAKE_PTR(out);
        return 0;
}

static void set_script(StepCommand *c, const char *script) {
        c->argv[0] = (char *) "sh";
        c->argv[1] = (char *) "-c";
        c->argv[2] = (char *) script;
        c->argv[3] = (char *) "sh";
}

void step_command_shell(const char *text, const StepState *state, StepCommand *ret) {
        *ret = (StepCommand) {};
        set_script(ret, run_script);
        ret->argv[4] = (char *) text;
        ret->argv[5] = (char *) (state->cwd ? "" : "home");
        ret->user = state->user ?: "root";
        ret->cwd = state->cwd ?: "/";
        ret->with_env = true;
}

/* "u" is u and its group. */
static const char *owner_of(const char *owner, const char *user, char *buf, size_t size) {
        const char *name = *owner ? owner : user;

        (void) snprintf(buf, size, strchr(name, ':') ? "%s" : "%s:", name);
        return buf;
}

static int copy_command(const TemplateStep *s, const StepState *state, StepCommand *ret) {
        const char *user = state->user ?: "root";
        char owner[2 * USER_NAME_MAX + 2];

        ret->script = strdup(owner_of(argument(s, 3), user, owner, sizeof(owner)));
        if (!ret->script)
                return -ENOMEM;
        set_script(ret, copy_script);
        for (size_t i = 0; i < 3; i++)
                ret->argv[4 + i] = s->args[i];
        ret->argv[7] = ret->script;
        ret->argv[8] = (char *) argument(s, 4);
        ret->argv[9] = (char *) strempty(state->cwd);
        ret->argv[10] = (char *) user;
        return 0;
}

/* In double quotes, where a "$" stays what it is, unless it begins a command. */
static size_t quote_value(const char *value, char *out) {
        size_t n = 0;

        out[n++] = ' ';
        out[n++] = '"';
        for (const char *p = value; *p; p++) {
                if (*p == '\\' || *p == '"' || *p == '`' || (*p == '$' && p[1] == '('))
                        out[n++] = '\\';
                out[n++] = *p;
        }
        out[n++] = '"';
        return n;
}

static int env_command(const TemplateStep *s, StepCommand *ret) {
        static const char begin[] = "printf '%s\\0'";
        size_t room = sizeof(begin), n = strlen(begin);

        for (size_t i = 1; s->args[i - 1]; i += 2)
                room += 2 * strlen(s->args[i]) + 3;
        ret->script = new0(char, room + 1);
        if (!ret->script)
                return -ENOMEM;
        memcpy(ret->script, begin, n);
        for (size_t i = 1; s->args[i - 1]; i += 2)
                n += quote_value(s->args[i], ret->script + n);
        set_script(ret, ret->script);
        ret->captured = ret->with_env = true;
        return 0;
}

int step_command_make(const TemplateStep *s, const StepState *state, StepCommand *ret) {
        int r = 0;

        *ret = (StepCommand) {};
        switch (step_kind_from_string(s->type)) {
        case STEP_KIND_RUN:
                step_command_shell(s->args[0], state, ret);
                if (*argument(s, 1))
                        ret->user = argument(s, 1);
                return 0;
        case STEP_KIND_COPY:
                r = copy_command(s, state, ret);
                break;
        case STEP_KIND_ENV:
                r = env_command(s, ret);
                break;
        case STEP_KIND_WORKDIR:
                r = join_path(strempty(state->cwd), s->args[0], &ret->script);
                set_script(ret, workdir_script);
                ret->argv[4] = ret->script;
                ret->argv[5] = (char *) (state->user ?: "root");
                break;
        case STEP_KIND_USER:
                set_script(ret, user_script);
                ret->argv[4] = s->args[0];
                ret->argv[5] = (char *) argument(s, 1);
                break;
        default:
                r = -EINVAL;
        }
        if (r < 0)
                step_command_done(ret);
        ret->user = "root";
        ret->cwd = "/";
        return r;
}

void step_command_done(StepCommand *c) {
        if (c->script)
                explicit_bzero(c->script, strlen(c->script));
        free(c->script);
        *c = (StepCommand) {};
}

/* State. */

static void free_secrets(char **l) {
        for (char **i = l; i && *i; i++) {
                explicit_bzero(*i, strlen(*i));
                free(*i);
        }
        free(l);
}

void step_state_done(StepState *state) {
        free(state->user);
        free(state->cwd);
        free_secrets(state->env);
        *state = (StepState) {};
}

/* Takes assignment. */
static int set_env(StepState *state, char *assignment) {
        size_t n = count(state->env), name = strcspn(assignment, "=") + 1;

        for (size_t i = 0; i < n; i++)
                if (strncmp(state->env[i], assignment, name) == 0) {
                        explicit_bzero(state->env[i], strlen(state->env[i]));
                        free(state->env[i]);
                        state->env[i] = assignment;
                        return 0;
                }
        char **grown = realloc(state->env, (n + 2) * sizeof(char *));
        if (!grown) {
                free(assignment);
                return -ENOMEM;
        }
        grown[n] = assignment;
        grown[n + 1] = NULL;
        state->env = grown;
        return 0;
}

static int apply_env(StepState *state, const TemplateStep *s, const char *output, size_t size) {
        for (size_t i = 0; s->args[i]; i += 2) {
                size_t n = strnlen(output, size);
                char *assignment = NULL;
                if (n == size)
                        return -EBADMSG;
                if (asprintf(&assignment, "%s=%s", s->args[i], output) < 0)
                        return -ENOMEM;
                int r = set_env(state, assignment);
                if (r < 0)
                        return r;
                output += n + 1;
                size -= n + 1;
        }
        return size == 0 ? 0 : -EBADMSG;
}

int step_state_apply(StepState *state, const TemplateStep *s, const char *output, size_t size) {
        char *text = NULL;
        int r;

        switch (step_kind_from_string(s->type)) {
        case STEP_KIND_ENV:
                return apply_env(state, s, output, size);
        case STEP_KIND_WORKDIR:
                r = join_path(strempty(state->cwd), s->args[0], &text);
                if (r < 0)
                        return r;
                free(state->cwd);
                state->cwd = text;
                return 0;
        case STEP_KIND_USER:
                text = strdup(s->args[0]);
                if (!text)
                        return -ENOMEM;
                free(state->user);
                state->user = text;
                return 0;
        default:
                return 0;
        }
}

int template_steps_check_cwd(const TemplateStep *l, size_t n, const char *cwd) {
        StepState state = {};

        int r = strlen(strempty(cwd)) >= PATH_MAX ? -ENAMETOOLONG : step_state_set(&state, NULL, cwd, NULL);
        for (size_t i = 0; i < n && r >= 0; i++)
                if (step_kind_from_string(l[i].type) == STEP_KIND_WORKDIR)
                        r = step_state_apply(&state, &l[i], NULL, 0);
        step_state_done(&state);
        return r;
}

int step_state_set(StepState *state, const char *user, const char *cwd, char **env) {
        int r = 0;

        *state = (StepState) { .user = user ? strdup(user) : NULL, .cwd = cwd ? strdup(cwd) : NULL };
        if ((user && !state->user) || (cwd && !state->cwd))
                r = -ENOMEM;
        for (char **e = env; e && *e && r >= 0; e++) {
                char *copy = strdup(*e);
                r = copy ? set_env(state, copy) : -ENOMEM;
        }
        if (r < 0)
                step_state_done(state);
        return r;
}
