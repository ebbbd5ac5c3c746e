/* SPDX-License-Identifier: Apache-2.0 */
#include <nettle/sha2.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/parse.h"
#include "gateway/bus-json.h"
#include "gateway/template-names.h"

#define SEPARATOR ".."
#define CUBED_DEFAULT_TAG "latest"

static bool made_of(const char *s, const char *set, size_t max) {
        size_t n = strspn(s, set);

        return n > 0 && n <= max && !s[n];
}

bool template_client_name_valid(const char *s, const char *tenant) {
        return made_of(s, "abcdefghijklmnopqrstuvwxyz0123456789_-", TEMPLATE_REF_MAX - 1 - strlen(SEPARATOR) - strlen(tenant));
}

bool build_id_valid(const char *s) {
        for (size_t i = 0; i < BUILD_ID_SIZE - 1; i++) {
                bool dash = i == 8 || i == 13 || i == 18 || i == 23;
                if (dash ? s[i] != '-' : !s[i] || !strchr("0123456789abcdef", s[i]))
                        return false;
        }
        return !s[BUILD_ID_SIZE - 1];
}

/* cubed's rules are beside E2B's, that it begins with a letter or digit. */
bool template_client_tag_valid(const char *s) {
        return made_of(s, "abcdefghijklmnopqrstuvwxyz0123456789_.-", TEMPLATE_REF_MAX - 1) && template_name_valid(s) &&
               !build_id_valid(s);
}

void build_id_new(char ret[static BUILD_ID_SIZE]) {
        uint8_t b[16] = {};

        /* So few come whole, once there has been entropy. */
        assert(getrandom(b, sizeof(b), 0) == sizeof(b));
        b[6] = (uint8_t) ((b[6] & 0x0f) | 0x40);
        b[8] = (uint8_t) ((b[8] & 0x3f) | 0x80);
        (void) snprintf(ret, BUILD_ID_SIZE, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                        b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

void template_public_id(const char *tenant, const char *name, char ret[static TEMPLATE_ID_SIZE]) {
        static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        uint8_t hash[SHA256_DIGEST_SIZE];
        struct sha256_ctx c;

        sha256_init(&c);
        sha256_update(&c, strlen(tenant) + 1, (const uint8_t *) tenant);
        sha256_update(&c, strlen(name), (const uint8_t *) name);
        sha256_digest(&c, sizeof(hash), hash);
        for (size_t i = 0; i < TEMPLATE_ID_SIZE - 1; i++)
                ret[i] = digits[hash[i] % (i == 0 ? 26 : 36)];
        ret[TEMPLATE_ID_SIZE - 1] = 0;
}

/* Either side's default tag is any other one to the other side: they change places. */
static const char *exchange(const char *tag) {
        if (streq(tag, DEFAULT_TAG))
                return CUBED_DEFAULT_TAG;
        return streq(tag, CUBED_DEFAULT_TAG) ? DEFAULT_TAG : tag;
}

void template_cubed_name(const char *tenant, const char *name, const char *tag, char ret[static CUBED_NAME_MAX]) {
        (void) snprintf(ret, CUBED_NAME_MAX, "%s" SEPARATOR "%s:%s", tenant, name, exchange(*tag ? tag : DEFAULT_TAG));
}

static bool take(char ret[static TEMPLATE_REF_MAX], const char *s, size_t n) {
        if (n == 0 || n >= TEMPLATE_REF_MAX)
                return false;
        memcpy(ret, s, n);
        ret[n] = 0;
        return true;
}

bool template_name_parse(json_object *entry, const char *tenant, uint32_t uid, TemplateName *ret) {
        const char *text = json_object_get_string(json_object_array_get_idx(entry, 0)), *name = strempty(text);
        uint64_t owner = json_object_get_uint64(json_object_array_get_idx(entry, 1));
        const char *colon = strchr(name, ':'), *separator = strstr(name, SEPARATOR);

        *ret = (TemplateName) { .cubed_id = strempty(json_object_get_string(json_object_array_get_idx(entry, 2))) };
        if (!colon)
                return false;
        if (owner == uid) {
                if (!separator || separator > colon || (size_t) (separator - name) != strlen(tenant) ||
                    memcmp(name, tenant, strlen(tenant)) != 0)
                        return false;
                name = separator + strlen(SEPARATOR);
                ret->own = true;
        } else if (owner == 0)
                ret->host = true;
        else
                return false;
        const char *tag = exchange(colon + 1);
        if (!take(ret->name, name, (size_t) (colon - name)) || !take(ret->tag, tag, strlen(tag)))
                return false;
        ret->is_build = ret->own && build_id_valid(ret->tag);
        return true;
}

const char *template_nameless_id(json_object *entry, const char *tenant, uint32_t uid) {
        const char *owner = json_object_get_string(json_object_array_get_idx(entry, 3));

        if (json_object_get_uint64(json_object_array_get_idx(entry, 1)) != uid || !owner || !streq(owner, tenant))
                return NULL;
        return json_object_get_string(json_object_array_get_idx(entry, 2));
}

void template_names_count(json_object *names, const char *tenant, uint32_t uid, size_t *ret_named, size_t *ret_nameless) {
        const char *last = "";
        TemplateName n;

        *ret_named = *ret_nameless = 0;
        for (size_t i = 0; i < json_object_array_length(names); i++) {
                json_object *entry = json_object_array_get_idx(names, i);

                *ret_nameless += !!template_nameless_id(entry, tenant, uid);
                if (!template_name_parse(entry, tenant, uid, &n) || !n.own || streq(n.cubed_id, last))
                        continue;
                last = n.cubed_id;
                (*ret_named)++;
        }
}

static bool is_meant(const TemplateName *n, const char *tenant, const TemplateRef *ref) {
        char id[TEMPLATE_ID_SIZE];

        if (streq(n->name, ref->name))
                return true;
        if (n->host)
                return streq(n->cubed_id, ref->name);
        template_public_id(tenant, n->name, id);
        return streq(id, ref->name);
}

/* own: among the tenant's, else among the host's. */
static bool find_among(json_object *names, const char *tenant, uint32_t uid, const TemplateRef *ref, bool own, TemplateFound *ret) {
        /* The host's are named by an admin, whose default is cubed's. */
        const char *tag = ref->tag[0] && (own || !streq(ref->tag, CUBED_DEFAULT_TAG)) ? ref->tag : DEFAULT_TAG;
        TemplateName n;

        for (size_t i = 0; i < json_object_array_length(names); i++) {
                if (!template_name_parse(json_object_array_get_idx(names, i), tenant, uid, &n) || n.own != own || !is_meant(&n, tenant, ref))
                        continue;
                ret->name_is_known = true;
                ret->own = own;
                strcpy(ret->name, n.name);
                if (!streq(n.tag, tag) && !(n.host && !ref->tag[0] && streq(n.cubed_id, ref->name)))
                        continue;
                (void) snprintf(ret->cubed_id, sizeof(ret->cubed_id), "%s", n.cubed_id);
                return true;
        }
        return false;
}

int template_names_find(json_object *names, const char *tenant, uint32_t uid, const TemplateRef *ref, TemplateFound *ret) {
        *ret = (TemplateFound) {};
        if (!ref->host && find_among(names, tenant, uid, ref, true, ret))
                return 0;
        /* A name of the tenant's own hides the host's. */
        if (ret->name_is_known || ref->own)
                return -ENOENT;
        return find_among(names, tenant, uid, ref, false, ret) ? 0 : -ENOENT;
}

void template_names_build(json_object *names, const char *tenant, uint32_t uid, const char *cubed_id, char ret[static BUILD_ID_SIZE]) {
        TemplateName n;

        ret[0] = 0;
        for (size_t i = 0; i < json_object_array_length(names); i++)
                if (template_name_parse(json_object_array_get_idx(names, i), tenant, uid, &n) && n.is_build && streq(n.cubed_id, cubed_id))
                        memcpy(ret, n.tag, BUILD_ID_SIZE);
}
