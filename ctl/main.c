/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>

#include "ctl/build-options.h"
#include "ctl/code.h"
#include "ctl/create-options.h"
#include "ctl/ctl.h"
#include "ctl/exec-options.h"
#include "ctl/limit-options.h"
#include "ctl/pager.h"
#include "ctl/policy-options.h"
#include "ctl/polkit-agent.h"
#include "ctl/snapshot.h"
#include "ctl/text.h"

#define FAILURE_OF_OURS 255

static const Verb verbs[] = {
        { "run", "[SOURCE] [OPTION...] [--] COMMAND...", "Run a command in a fresh sandbox", RUN_HELP CREATE_HELP EXEC_HELP,
          verb_run, FAILURE_OF_OURS },
        { "create", "[SOURCE] [OPTION...]", "Create a sandbox, print its id", CREATE_HELP, verb_create, 1 },
        { "exec", "ID [OPTION...] [--] COMMAND...", "Run a command in a sandbox", EXEC_HELP, verb_exec,
          FAILURE_OF_OURS },
        { "shell", "ID", "Log in to a sandbox", EXEC_HELP, verb_shell, FAILURE_OF_OURS },
        { "code", "[OPTION...] FILE|-", "Run code in a code interpreter, show what comes of it", CODE_HELP CREATE_HELP,
          verb_code, FAILURE_OF_OURS },
        { "cp", "[-r] SOURCE... DESTINATION", "Copy files from (ID:PATH) or to a sandbox",
          "  -r --recursive          Directories too\n"
          "  -u --user=USER          Whom copies in the sandbox belong to, or who reads there\n", verb_cp, 1 },
        { "forward", "ID [LOCAL:]PORT", "Offer a sandbox's port on 127.0.0.1", NULL, verb_forward, 1 },
        { "list", "", "List sandboxes",
          "     --tenant=TENANT      Only those of that tenant\n"
          "     --label=KEY=VALUE    Only those that have it; may be repeated\n"
          "     --state=STATE,...    Only those in one of these states\n", verb_list, 1 },
        { "show", "[ID...]", "Show properties of sandboxes, also of ones that are gone", NULL, verb_show, 1 },
        { "status", "[ID]", "Show a sandbox and its last log lines, or the service",
          "  -n --lines=N            Log lines\n", verb_status, 1 },
        { "stop", "ID...", "Ask the guest to power off", NULL, verb_stop, 1 },
        { "kill", "ID...", "End a sandbox at once", NULL, verb_kill, 1 },
        { "pause", "ID...", "Put a sandbox to disk",
          "     --no-memory          Its disk only; it boots when it is resumed\n", verb_pause, 1 },
        { "resume", "ID...", "Go on with one that is paused",
          "     --no-memory          Boot from its disk\n", verb_resume, 1 },
        { "snapshot", "ID|list|show|rm", "Save the state of a sandbox, print its id", SNAPSHOT_HELP, verb_snapshot, 1 },
        { "snapshots", "", "List snapshots", SNAPSHOT_LIST_HELP, verb_snapshots, 1 },
        { "checkpoints", "ID", "List the checkpoints of a sandbox", NULL, verb_checkpoints, 1 },
        { "rollback", "ID SNAPSHOT", "Put a sandbox back to a snapshot of it",
          "     --to=N               To its checkpoint N instead\n", verb_rollback, 1 },
        { "fork", "ID", "Create sandboxes from the state of one, print their ids",
          "  -n --number=N           How many; default: 1\n" FORK_HELP, verb_fork, 1 },
        { "policy", "WORD ID [RULE...]", "Show or change what a sandbox may reach",
          "  show ID | set ID OPTION... | allow|deny|inbound ID RULE... | remove ID RULE... | clear ID\n"
          "     --default=deny|internet  Nothing, or all but private networks\n" POLICY_RULE_OPTIONS_HELP, verb_policy, 1 },
        { "limit", "ID OPTION...", "Change limits of a sandbox",
          LIMIT_HELP, verb_limit, 1 },
        { "logs", "ID", "Show what the journal has about a sandbox",
          "  -f --follow             Go on with what comes\n"
          "  -n --lines=N            The last N only\n"
          "     --console            The guest's serial console instead\n", verb_logs, 1 },
        { "template", "list|show|build|alias|export|import|rm", "Manage templates", BUILD_HELP, verb_template, 1 },
        { "apikey", "create|list|revoke", "Manage the API keys of cube-gateway",
          "  create [NAME]  | list | revoke ID...\n"
          "     --tenant=TENANT      Whose the new key is; default: its own\n", verb_apikey, 1 },
        { "ingress", "setup|env|status|remove", "Manage haproxy in front of cube-gateway",
          "  setup | env | status | remove\n"
          "     --domain=DOMAIN      Below it sandboxes have names; default: by headers only\n"
          "     --listen=ADDRESS[:PORT]  Of TLS; default: 127.0.0.1:8443\n"
          "     --listen-plain=ADDRESS[:PORT]  Without; default: 127.0.0.1:3000\n"
          "     --headers            env: For clients that are not to use the domain\n"
          "     --root=DIRECTORY     Only the files, below it\n", verb_ingress, 1 },
        { "gc", "", "Free what nothing refers to",
          "     --dry-run            Only say what that is\n", verb_gc, 1 },
        { "check", "", "Say what this host can do, and what to do about what it can't", NULL, verb_check, 1 },
};

static const Verb *current_verb = NULL;

static const char global_help[] =
        "  -h --help               This text, or that of a verb\n"
        "     --version\n"
        "  -H --host=[USER@]HOST   Work on another host, by ssh\n"
        "  -p --property=NAME,...  Only these properties\n"
        "     --value              Their values only\n"
        "     --json=short|pretty|off, -j\n"
        "     --no-legend          No header and no count\n"
        "     --no-pager\n"
        "     --no-ask-password    Never ask for a password\n"
        "  -q --quiet              No progress, no notes\n"
        "  -l --full               Nothing cut off\n";

static void print_help(void) {
        if (current_verb) {
                printf("cubectl %s %s\n\n%s.\n", current_verb->name, current_verb->arguments, current_verb->summary);
                if (current_verb->help)
                        printf("\nOptions:\n%s", current_verb->help);
                printf("\nGlobal options:\n%s", global_help);
                return;
        }

        printf("cubectl [OPTION...] VERB ...\n\nRun untrusted code in sandboxes of its own.\n\nVerbs:\n");
        for (size_t i = 0; i < ELEMENTSOF(verbs); i++) {
                char left[64];
                snprintf(left, sizeof(left), "%s %s", verbs[i].name, verbs[i].arguments);
                printf("  %-38s %s\n", left, verbs[i].summary);
        }
        printf("\nOptions:\n%s\nSee cubectl(1).\n", global_help);
}

static int parse_json_mode(const char *s) {
        static const char *const modes[] = { [JSON_OFF] = "off", [JSON_SHORT] = "short", [JSON_PRETTY] = "pretty" };

        for (size_t i = 0; i < ELEMENTSOF(modes); i++)
                if (streq(s, modes[i])) {
                        ctl_options.json = (JsonMode) i;
                        return 0;
                }
        return ctl_usage("--json= takes short, pretty or off, not '%s'.", s);
}

static int parse_properties(const char *s) {
        _cleanup_free_ char *copy = strdup(s);
        char *at = copy, *name;
        int r = copy ? 0 : -ENOMEM;

        while (r >= 0 && (name = strsep(&at, ",")))
                if (*name)
                        r = text_strv_add(&ctl_options.properties, name);
        return r;
}

int ctl_global_option(int c) {
        switch (c) {
        case 'h':
                print_help();
                exit(EXIT_SUCCESS);
        case CTL_OPTION_VERSION:
                puts("cubectl " CUBED_VERSION);
                exit(EXIT_SUCCESS);
        case 'H':
                ctl_options.host = optarg;
                return 0;
        case 'q':
                ctl_options.quiet = true;
                return 0;
        case 'l':
                ctl_options.full = true;
                return 0;
        case 'j':
                ctl_options.json = text_stdout_is_terminal() ? JSON_PRETTY : JSON_SHORT;
                return 0;
        case 'p':
                return parse_properties(optarg);
        case CTL_OPTION_VALUE:
                ctl_options.value = true;
                return 0;
        case CTL_OPTION_JSON:
                return parse_json_mode(optarg);
        case CTL_OPTION_NO_LEGEND:
                ctl_options.legend = false;
                return 0;
        case CTL_OPTION_NO_PAGER:
                ctl_options.pager = false;
                return 0;
        case CTL_OPTION_NO_ASK_PASSWORD:
                ctl_options.ask_password = false;
                return 0;
        default: /* getopt has said what is wrong */
                fprintf(stderr, "See: cubectl %s%s--help\n", current_verb ? current_verb->name : "",
                        current_verb ? " " : "");
                return -EINVAL;
        }
}

static const Verb *find_verb(const char *name) {
        for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
                if (streq(verbs[i].name, name))
                        return &verbs[i];
        return NULL;
}

static int run_verb(int argc, char **argv) {
        current_verb = find_verb(argc > 0 ? argv[0] : "list");
        if (!current_verb) {
                ctl_note("There is no verb '%s'. See: cubectl --help", argv[0]);
                return EXIT_FAILURE;
        }

        char *none[] = { (char *) "list", NULL };
        int r = argc > 0 ? current_verb->run(argc, argv) : current_verb->run(1, none);
        return r < 0 ? current_verb->failure : r;
}

int main(int argc, char **argv) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        int c;

        (void) setlocale(LC_ALL, "");
        (void) signal(SIGPIPE, SIG_IGN);

        while ((c = getopt_long(argc, argv, "+" CTL_GLOBAL_SHORT, options, NULL)) >= 0)
                if (ctl_global_option(c) < 0)
                        return EXIT_FAILURE;

        int status = run_verb(argc - optind, argv + optind);
        pager_close();
        polkit_agent_close();
        text_strv_free(ctl_options.properties);
        return status;
}
