/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <endian.h>
#include <limits.h>
#include <stdio.h>

#include "base/parse.h"
#include "base/tlv.h"
#include "guest/request.h"

typedef enum FieldKind {
        FIELD_NONE,
        FIELD_U32,
        FIELD_BOOL,
        FIELD_U64,
        FIELD_STRING,
        FIELD_PATH,
        FIELD_STRINGS,
        FIELD_ENV,
        FIELD_ENTROPY,
        FIELD_NETWORK,
        FIELD_NAMESERVER,
} FieldKind;

typedef struct Field {
        const char *name;
        FieldKind kind;
        size_t offset;
} Field;

#define FIELD(tag, kind, member) [AGENT_TAG_##tag] = { #tag, kind, offsetof(Request, member) }

static const Field fields[] = {
        FIELD(HOSTNAME, FIELD_STRING, hostname),
        FIELD(REALTIME_NSEC, FIELD_U64, realtime_nsec),
        FIELD(ENTROPY, FIELD_ENTROPY, entropy),
        FIELD(CPUS, FIELD_U32, cpus),
        FIELD(ARGV, FIELD_STRINGS, argv),
        FIELD(ENV, FIELD_ENV, env),
        FIELD(CWD, FIELD_PATH, cwd),
        FIELD(USER, FIELD_STRING, user),
        FIELD(PTY, FIELD_BOOL, pty),
        FIELD(ROWS, FIELD_U32, rows),
        FIELD(COLS, FIELD_U32, cols),
        FIELD(TIMEOUT_USEC, FIELD_U64, timeout_usec),
        FIELD(PID, FIELD_U32, pid),
        FIELD(SIGNAL, FIELD_U32, signal),
        FIELD(GROUP, FIELD_BOOL, group),
        FIELD(PATH, FIELD_PATH, path),
        FIELD(TARGET, FIELD_PATH, target),
        FIELD(FOLLOW, FIELD_BOOL, follow),
        FIELD(RECURSIVE, FIELD_BOOL, recursive),
        FIELD(MODE, FIELD_U32, mode),
        FIELD(PARENTS, FIELD_BOOL, parents),
        FIELD(STREAM, FIELD_U32, stream),
        FIELD(PORT, FIELD_U32, port),
        FIELD(SIZE, FIELD_U64, size),
        FIELD(DISK_BYTES, FIELD_U64, disk_bytes),
        FIELD(NETWORK, FIELD_NETWORK, network),
        FIELD(MTU, FIELD_U32, network.mtu),
        FIELD(NAMESERVER, FIELD_NAMESERVER, nameservers),
        FIELD(FREEZE_DISK, FIELD_BOOL, freeze_disk),
        FIELD(LINK, FIELD_STRING, link),
        FIELD(TOKEN, FIELD_STRING, token),
        FIELD(USER_OPTIONAL, FIELD_BOOL, user_optional),
        FIELD(KEEP_ENV, FIELD_BOOL, keep_env),
};

#define T(tag) (UINT64_C(1) << AGENT_TAG_##tag)

static const struct {
        uint16_t type;
        uint64_t required;
        uint64_t optional;
} rules[] = {
        { AGENT_CLAIM, 0, T(HOSTNAME)|T(REALTIME_NSEC)|T(ENTROPY)|T(CPUS)|T(DISK_BYTES)|T(NETWORK)|T(MTU)|T(NAMESERVER) },
        { AGENT_EXEC, T(ARGV), T(ENV)|T(CWD)|T(USER)|T(PTY)|T(ROWS)|T(COLS)|T(TIMEOUT_USEC) },
        { AGENT_SIGNAL, T(PID)|T(SIGNAL), T(GROUP) },
        { AGENT_RESIZE, T(PID)|T(ROWS)|T(COLS), 0 },
        { AGENT_LIST_PROCESSES, 0, 0 },
        { AGENT_STAT, T(PATH), T(FOLLOW) },
        { AGENT_LIST_DIRECTORY, T(PATH), 0 },
        { AGENT_REMOVE, T(PATH), T(RECURSIVE) },
        { AGENT_RENAME, T(PATH)|T(TARGET), 0 },
        { AGENT_MKDIR, T(PATH), T(MODE)|T(PARENTS)|T(USER) },
        { AGENT_SET_TIME, T(REALTIME_NSEC), 0 },
        { AGENT_ADD_ENTROPY, T(ENTROPY), 0 },
        { AGENT_POWEROFF, 0, 0 },
        { AGENT_PING, 0, 0 },
        { AGENT_FREEZE, 0, T(FREEZE_DISK) },
        { AGENT_THAW, 0, 0 },
        { AGENT_SYMLINK, T(PATH)|T(LINK), 0 },
        { AGENT_ENVD, 0, T(TOKEN)|T(USER)|T(USER_OPTIONAL)|T(CWD)|T(ENV)|T(KEEP_ENV)|T(PORT) },
        { AGENT_USAGE, 0, 0 },
        { AGENT_STREAM_PROCESS, T(PID)|T(STREAM), 0 },
        { AGENT_STREAM_WAIT, T(PID), 0 },
        { AGENT_STREAM_READ, T(PATH), T(USER) },
        { AGENT_STREAM_WRITE, T(PATH), T(MODE)|T(USER)|T(SIZE) },
        { AGENT_STREAM_TCP, T(PORT), 0 },
};

int strings_add(StringList *l, char *s) {
        /* Grows by powers of two, so that many small arguments don't cost a copy each. */
        if ((l->n & (l->n + 1)) == 0) {
                char **items = realloc(l->items, (l->n + 1) * 2 * sizeof(char *));
                if (!items)
                        return -ENOMEM;
                l->items = items;
        }
        l->items[l->n++] = s;
        l->items[l->n] = NULL;
        return 0;
}

void strings_done(StringList *l) {
        for (size_t i = 0; i < l->n; i++)
                free(l->items[i]);
        free(l->items);
        *l = (StringList) {};
}

void request_done(Request *r) {
        for (size_t i = 0; i < ELEMENTSOF(fields); i++)
                if (fields[i].kind == FIELD_STRING || fields[i].kind == FIELD_PATH)
                        free(*(char **) ((uint8_t *) r + fields[i].offset));
        strings_done(&r->argv);
        strings_done(&r->env);
        strings_done(&r->nameservers);
        *r = (Request) {};
}

static bool is_many(const Field *f) {
        return f->kind == FIELD_STRINGS || f->kind == FIELD_ENV || f->kind == FIELD_NETWORK ||
               f->kind == FIELD_NAMESERVER;
}

static bool is_ip_address(const char *s) {
        uint8_t address[16];

        return inet_pton(AF_INET, s, address) == 1 || inet_pton(AF_INET6, s, address) == 1;
}

static int parse_network(const Tlv *t, NetConfig *ret) {
        AgentNetwork n;

        int r = tlv_get_struct(t, &n, sizeof(n));
        if (r < 0)
                return r;
        n.family = le32toh(n.family);
        n.prefix = le32toh(n.prefix);
        if ((n.family != 4 && n.family != 6) || n.prefix > (n.family == 6 ? 128U : 32U) || n.reserved[0] != 0 ||
            n.reserved[1] != 0)
                return -EINVAL;
        for (unsigned i = 0; i < ret->n_networks; i++)
                if (ret->networks[i].family == n.family)
                        return -EINVAL;

        ret->networks[ret->n_networks++] = n;
        return 0;
}

static int parse_string(const Tlv *t, const Field *f, void *at) {
        _cleanup_free_ char *s = NULL;
        int r = tlv_get_str(t, &s);
        if (r < 0)
                return r;

        if (f->kind == FIELD_PATH && (*s != '/' || strlen(s) >= PATH_MAX))
                return -EINVAL;
        if (f->kind == FIELD_ENV && !env_assignment_valid(s))
                return -EINVAL;

        if (f->kind == FIELD_NAMESERVER && (!is_ip_address(s) || ((StringList *) at)->n >= AGENT_NAMESERVERS_MAX))
                return -EINVAL;

        if (is_many(f)) {
                r = strings_add(at, s);
                if (r < 0)
                        return r;
                TAKE_PTR(s);
        } else
                *(char **) at = TAKE_PTR(s);
        return 0;
}

static int parse_field(Request *ret, const Tlv *t, const Field *f) {
        void *at = (uint8_t *) ret + f->offset;
        int r;

        switch (f->kind) {
        case FIELD_U32:
                return tlv_get_u32(t, at);
        case FIELD_BOOL:
                r = tlv_get_u32(t, at);
                return r < 0 ? r : *(uint32_t *) at > 1 ? -EINVAL : 0;
        case FIELD_U64:
                return tlv_get_u64(t, at);
        case FIELD_NETWORK:
                return parse_network(t, at);
        case FIELD_ENTROPY:
                if (t->len > AGENT_ENTROPY_MAX)
                        return -EINVAL;
                memcpy(ret->entropy, t->data, t->len);
                ret->entropy_size = t->len;
                return 0;
        default:
                return parse_string(t, f, at);
        }
}

static int parse_record(Request *ret, const Tlv *t, uint64_t allowed, char *message) {
        if (t->tag >= ELEMENTSOF(fields) || !(allowed & (UINT64_C(1) << t->tag))) {
                snprintf(message, REQUEST_MESSAGE_MAX, "tag %u does not belong into this request", t->tag);
                return -EINVAL;
        }

        const Field *f = &fields[t->tag];
        if (!is_many(f) && request_has(ret, t->tag)) {
                snprintf(message, REQUEST_MESSAGE_MAX, "%s is there twice", f->name);
                return -EINVAL;
        }
        ret->present |= UINT64_C(1) << t->tag;

        int r = parse_field(ret, t, f);
        if (r == -ENOMEM)
                snprintf(message, REQUEST_MESSAGE_MAX, "out of memory");
        else if (r < 0)
                snprintf(message, REQUEST_MESSAGE_MAX, "%s is not valid%s", f->name,
                         f->kind == FIELD_PATH ? ": an absolute path is needed" :
                         f->kind == FIELD_ENV  ? ": NAME=VALUE is needed" : "");
        return r;
}

static int check_required(const Request *r, uint64_t required, char *message) {
        for (size_t i = 0; i < ELEMENTSOF(fields); i++)
                if ((required & (UINT64_C(1) << i)) && !request_has(r, i)) {
                        snprintf(message, REQUEST_MESSAGE_MAX, "%s is missing", fields[i].name);
                        return -EINVAL;
                }
        return 0;
}

int request_parse(
        Request *ret, const FrameHeader *h, const uint8_t *body, char ret_message[static REQUEST_MESSAGE_MAX]) {

        TlvReader reader = TLV_READER_INIT(body, h->len);
        size_t i = 0;
        Tlv t;
        int r;

        assert(ret);
        assert(h);

        request_done(ret);
        *ret_message = 0;

        while (i < ELEMENTSOF(rules) && rules[i].type != h->type)
                i++;
        if (i == ELEMENTSOF(rules)) {
                snprintf(ret_message, REQUEST_MESSAGE_MAX, "unknown request %u", h->type);
                return -EOPNOTSUPP;
        }
        if (h->flags != 0) {
                snprintf(ret_message, REQUEST_MESSAGE_MAX, "unknown frame flags %#x", h->flags);
                return -EINVAL;
        }

        while ((r = tlv_next(&reader, &t)) > 0) {
                r = parse_record(ret, &t, rules[i].required|rules[i].optional, ret_message);
                if (r < 0)
                        return r;
        }
        if (r < 0) {
                snprintf(ret_message, REQUEST_MESSAGE_MAX, "malformed request");
                return r;
        }
        return check_required(ret, rules[i].required, ret_message);
}
