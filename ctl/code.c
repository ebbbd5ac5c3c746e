/* SPDX-License-Identifier: Apache-2.0 */

/* A cell for the code interpreter of a sandbox, as one command. A new sandbox is bound to our bus connection, so that it
 * goes whatever becomes of us; in one that is there, the server interrupts the cell of who goes away. */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/utf8.h"
#include "ctl/cell-output.h"
#include "ctl/create-options.h"
#include "ctl/ctl.h"
#include "ctl/exec-options.h"
#include "ctl/interpreter.h"
#include "ctl/text.h"

#define TEMPLATE "code-interpreter"
/* No server takes more. */
#define CODE_MAX MIB(32)

enum {
        CODE_SANDBOX = CTL_OPTION_VERB,
        CODE_KEEP,
        CODE_CONTEXT,
        CODE_LANGUAGE,
        CODE_OUTPUT,
};

typedef struct Code {
        CreateOptions create;
        ExecOptions exec;       /* env alone */
        const char *sandbox, *context, *language, *output;
        const char *create_option; /* one that was given */
        bool keep;
        char *text;
        char *new_context;
} Code;

static void code_done(Code *x) {
        create_options_done(&x->create);
        exec_options_done(&x->exec);
        free(x->text);
        free(x->new_context);
}

static int code_option(Code *x, int c, const char *name) {
        switch (c) {
        case CODE_SANDBOX:
                x->sandbox = optarg;
                return ctl_check_id(optarg);
        case CODE_KEEP:
                x->keep = true;
                return 0;
        case CODE_CONTEXT:
                x->context = optarg;
                return 0;
        case CODE_LANGUAGE:
                x->language = optarg;
                return 0;
        case CODE_OUTPUT:
                x->output = optarg;
                return 0;
        case 'e':
                return exec_option(&x->exec, c);
        }

        int r = create_option(&x->create, c);
        if (r > 0)
                x->create_option = name;
        return r == 0 ? ctl_global_option(c) : r;
}

static int check_options(const Code *x) {
        bool new_context = x->context && streq(x->context, "new");

        if (x->sandbox && x->create_option)
                return ctl_usage("--%s= is for a new sandbox, and --sandbox= names one that is there.", x->create_option);
        if (x->sandbox && x->keep)
                return ctl_usage("--keep is for a new sandbox; the one that --sandbox= names is kept in any case.");
        if (x->context && !new_context && !x->sandbox)
                return ctl_usage("--context= needs --sandbox=, for a new sandbox has no contexts yet.");
        if (x->context && !new_context && x->language)
                return ctl_usage("--context= and --language= exclude each other: a context has its language.");
        return 0;
}

static const char *language_of(const char *path) {
        static const struct {
                const char *suffix, *language;
        } languages[] = {
                { ".py", "python" }, { ".js", "javascript" }, { ".mjs", "javascript" }, { ".ts", "typescript" },
                { ".r", "r" },       { ".R", "r" },           { ".sh", "bash" },        { ".bash", "bash" },
        };

        const char *dot = strrchr(path, '.');
        for (size_t i = 0; dot && i < ELEMENTSOF(languages); i++)
                if (streq(dot, languages[i].suffix))
                        return languages[i].language;
        return NULL;
}

static int check_text(const char *path, const char *text, size_t size) {
        for (size_t at = 0; at < size;) {
                size_t n = utf8_sequence((const uint8_t *) text + at, size - at);
                if (n == 0)
                        return ctl_fail_text(-EBADMSG, "it is no text in UTF-8", "run %s", path);
                at += n;
        }
        return 0;
}

static int read_code(Code *x, const char *path) {
        bool from_stdin = streq(path, "-");
        size_t size;

        int r = from_stdin ? read_whole(STDIN_FILENO, CODE_MAX, &x->text, &size)
                           : read_file(AT_FDCWD, path, CODE_MAX, &x->text, &size);
        if (r < 0)
                return ctl_fail(r, NULL, "read %s", from_stdin ? "stdin" : path);
        if (!x->language && !(x->context && !streq(x->context, "new")))
                x->language = language_of(path);
        return check_text(from_stdin ? "stdin" : path, x->text, size);
}

static int add_string(json_object *o, const char *name, const char *value) {
        if (!value)
                return 0;
        json_object *s = json_object_new_string(value);
        if (!s || json_object_object_add(o, name, s) < 0) {
                json_object_put(s);
                return -ENOMEM;
        }
        return 0;
}

static int add_env(json_object *o, char **l) {
        json_object *variables = json_object_new_object();
        int r = variables ? 0 : -ENOMEM;

        for (; r >= 0 && l && *l; l++) {
                const char *value = strchr(*l, '=');
                _cleanup_free_ char *name = strndup(*l, (size_t) (value - *l));
                r = name ? add_string(variables, name, value + 1) : -ENOMEM;
        }
        if (r < 0 || json_object_object_add(o, "env_vars", variables) < 0) {
                json_object_put(variables);
                return -ENOMEM;
        }
        return 0;
}

static int make_request(const Code *x, json_object **ret) {
        const char *context = x->new_context ? x->new_context : x->context;
        json_object *o = json_object_new_object();

        int r = o ? add_string(o, "code", x->text) : -ENOMEM;
        if (r >= 0)
                r = add_string(o, "context_id", context);
        if (r >= 0)
                r = add_string(o, "language", context ? NULL : x->language);
        if (r >= 0)
                r = add_env(o, x->exec.env);
        if (r < 0) {
                json_object_put(o);
                return ctl_fail(r, NULL, "make a request");
        }
        *ret = o;
        return 0;
}

static int status_of(int r, const CellOutput *o, const char *id) {
        if (r == -EPIPE)
                return 128 + SIGPIPE;
        if (r < 0)
                return r;
        if (!o->ended)
                return ctl_fail_text(-EBADMSG, "the guest's answer ended before the code did", "run code in sandbox %s", id);
        return o->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int execute(const Code *x, Interpreter *i) {
        _cleanup_(cell_output_done) CellOutput output = {
                .out = stdout, .err = stderr,
                .out_terminal = text_stdout_is_terminal(), .err_terminal = isatty(STDERR_FILENO) > 0,
                .directory = x->output, .json = ctl_options.json != JSON_OFF,
                .inline_images = inline_images_of_terminal(),
        };
        json_object *request = NULL;

        int r = make_request(x, &request);
        if (r < 0)
                return r;
        r = interpreter_execute(i, request, cell_output_event, &output);
        json_object_put(request);
        return status_of(r, &output, i->id);
}

static int run_in_sandbox(Code *x, sd_bus *bus, const char *id) {
        _cleanup_(interpreter_done) Interpreter i;

        int r = interpreter_init(&i, bus, id);
        if (r >= 0 && x->context && streq(x->context, "new")) {
                r = interpreter_add_context(&i, x->language, &x->new_context);
                if (r >= 0 && !ctl_options.quiet)
                        ctl_note("Context %s", x->new_context);
        }
        return r < 0 ? r : execute(x, &i);
}

static int run_in_new_sandbox(Code *x, sd_bus *bus) {
        char id[SANDBOX_ID_MAX];

        if (!x->create.template)
                x->create.template = TEMPLATE;
        x->create.bind_client = !x->keep;
        int r = create_sandbox(bus, &x->create, id);
        if (r < 0)
                return r;
        r = run_in_sandbox(x, bus, id);
        if (!x->keep)
                end_sandbox(bus, id);
        else if (!ctl_options.quiet)
                ctl_note("Sandbox %s is kept; end it with: cubectl kill %s", id, id);
        return r;
}

int verb_code(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                CREATE_OPTIONS,
                { "sandbox", required_argument, NULL, CODE_SANDBOX },
                { "keep", no_argument, NULL, CODE_KEEP },
                { "context", required_argument, NULL, CODE_CONTEXT },
                { "language", required_argument, NULL, CODE_LANGUAGE },
                { "env", required_argument, NULL, 'e' },
                { "output", required_argument, NULL, CODE_OUTPUT },
                {},
        };
        _cleanup_(code_done) Code x = {};
        sd_bus *bus;
        int c, r, index;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT "e:", options, &index)) >= 0) {
                r = code_option(&x, c, c > UINT8_MAX ? options[index].name : "");
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = check_options(&x);
        if (r >= 0)
                r = read_code(&x, argv[optind]);
        if (r >= 0)
                r = ctl_connect_local(&bus);
        if (r < 0)
                return r;
        return x.sandbox ? run_in_sandbox(&x, bus, x.sandbox) : run_in_new_sandbox(&x, bus);
}
