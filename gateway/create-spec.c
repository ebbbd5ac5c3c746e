/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "gateway/create-spec.h"

#define METADATA_MAX 8192U
/* A frame to the agent has room for twice as much. */
#define VARIABLES_BYTES_MAX (128U * 1024U)
#define VARIABLES_MAX 1024

int timeout_parse(json_object *body, const char *name, const GatewayConfig *config, int64_t least, int64_t default_seconds,
                  bool cut, uint64_t *ret_usec, ErrorText *error) {
        int64_t most = (int64_t) (config->timeout_max_usec / USEC_PER_SEC), seconds = default_seconds;

        int r = field_int(body, name, &seconds, error);
        if (r < 0)
                return r;
        if (r == 0 && default_seconds < 0)
                return error_text(error, "validation error: field '%s' is missing", name);
        if (seconds < least)
                return error_text(error, least > 0 ? "Timeout must be greater than 0" : "Timeout must not be negative");
        if (seconds > most && !cut)
                return error_text(error, "Timeout cannot be greater than %lld seconds", (long long) most);
        *ret_usec = (uint64_t) MIN(seconds, most) * USEC_PER_SEC;
        return 0;
}

/* What cubed has no way to do yet is refused, rather than believed to be done. */
static int refuse_others(json_object *body, ErrorText *error) {
        static const char *const others[] = { "volumeMounts", "iam", "mcp" };

        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                if (field_given(body, others[i]))
                        return error_text(error, "%s is not supported by this host", others[i]);
        return 0;
}

/* As cubed takes them for programs. */
static bool variable_name_valid(const char *name) {
        _cleanup_free_ char *assignment = NULL;

        if (asprintf(&assignment, "%s=", name) < 0)
                assignment = NULL;
        return !strchr(name, '=') && env_assignment_valid(assignment);
}

int variables_parse(json_object *body, json_object **ret, ErrorText *error) {
        size_t size = 0;

        *ret = NULL;
        int r = field_string_map(body, "envVars", ret, error);
        if (r <= 0)
                return r;
        json_object_object_foreach(*ret, name, value) {
                if (!variable_name_valid(name))
                        return error_text(error, "'%.100s' is no name of a variable, which has letters, digits and _", name);
                size += strlen(name) + (size_t) json_object_get_string_len(value) + 2;
        }
        if (json_object_object_length(*ret) > VARIABLES_MAX || size > VARIABLES_BYTES_MAX)
                return error_text(error, "envVars can have %d variables and %u bytes at most", VARIABLES_MAX, VARIABLES_BYTES_MAX);
        return 1;
}

static int parse_pause(json_object *body, CreateSpec *ret, ErrorText *error) {
        bool pause = false, memory = true;
        json_object *resume = NULL;

        int r = field_bool(body, "autoPause", &pause, error);
        if (r >= 0)
                r = field_bool(body, "autoPauseMemory", &memory, error);
        if (r >= 0)
                r = field_object(body, "autoResume", &resume, error);
        if (r >= 0)
                r = field_bool(resume, "enabled", &ret->auto_resume, error);
        if (r < 0)
                return r;
        if (!memory && !pause)
                return error_text(error, "autoPauseMemory=false only applies when autoPause is true.");
        if (!memory && ret->auto_resume)
                return error_text(error, "autoPauseMemory=false cannot be combined with autoResume: without its memory a sandbox is "
                                         "resumed by connect alone.");
        ret->on_timeout = !pause ? "kill" : memory ? "pause" : "pause-disk";
        return 0;
}

static int parse_network(json_object *body, const GatewayConfig *config, CreateSpec *ret, ErrorText *error) {
        json_object *network = NULL;
        bool internet = true;

        int r = field_bool(body, "allow_internet_access", &internet, error);
        if (r >= 0)
                r = field_object(body, "network", &network, error);
        if (r < 0)
                return r;
        r = network_parse(network, internet && config->default_internet, &ret->network, error);
        if (r >= 0 && ret->network.secured && !ret->secure)
                return error_text(error, "You cannot create a sandbox without public access unless you enable secure envd access "
                                         "via 'secure' flag.");
        return r;
}

int create_spec_parse(json_object *body, const GatewayConfig *config, bool v2, CreateSpec *ret, ErrorText *error) {
        *ret = (CreateSpec) { .secure = v2 };

        int r = field_string(body, "templateID", &ret->template_ref, error);
        if (r == 0 || (r > 0 && !*ret->template_ref))
                return error_text(error, "validation error: field 'templateID' is missing");
        if (r >= 0)
                r = timeout_parse(body, "timeout", config, 1, v2 ? TIMEOUT_V2 : TIMEOUT_V1, false, &ret->timeout_usec, error);
        if (r >= 0 && !v2)
                r = field_bool(body, "secure", &ret->secure, error);
        if (r >= 0)
                r = field_string_map(body, "metadata", &ret->metadata, error);
        if (r >= 0 && ret->metadata && strlen(json_object_to_json_string_ext(ret->metadata, JSON_C_TO_STRING_PLAIN)) > METADATA_MAX)
                return error_text(error, "metadata can have %u bytes at most", METADATA_MAX);
        if (r >= 0)
                r = variables_parse(body, &ret->variables, error);
        if (r >= 0)
                r = parse_pause(body, ret, error);
        if (r >= 0)
                r = refuse_others(body, error);
        return r < 0 ? r : parse_network(body, config, ret, error);
}
