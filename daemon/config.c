/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/config.h"
#include "daemon/sandbox.h"
#include "daemon/user-names.h"

#define CONFIG_FILE_MAX (256U * 1024U)
/* Each is three links of the host. */
#define FREE_SLOTS_MAX 4096U
/* A reload stands still for as long. */
#define NAMES_TIMEOUT_USEC USEC_PER_SEC

typedef enum ConfigType {
        TYPE_NAME,       /* template, NAME[:TAG] */
        TYPE_PATH,       /* absolute; empty resets */
        TYPE_TEXT,       /* empty resets */
        TYPE_SIZE,
        TYPE_USEC,
        TYPE_CPUS,
        TYPE_COUNT,      /* or "infinity" */
        TYPE_BOOL,
        TYPE_END,        /* kill, pause, pause-disk */
        TYPE_SWITCH,     /* yes, no, auto */
        TYPE_UID_RANGE,
        TYPE_SLOTS,      /* as many as are made ahead at most */
        TYPE_NETWORK4,   /* auto, or a network */
        TYPE_NETWORK6,   /* no, or a network */
        TYPE_MARK,       /* one bit of 32 */
        TYPE_POLICY,     /* deny, internet */
        TYPE_RATE,       /* a size, or "infinity" */
        TYPE_USERS,      /* names and uids with blanks between; empty resets */
        TYPE_TENANTS,    /* the same, each with /TENANT behind */
} ConfigType;

/* The keys, as cubed.conf(5) lists them. A bound is the least that is allowed; of users, how many at most. */
typedef struct ConfigKey {
        const char *section;
        const char *name;
        ConfigType type;
        size_t offset;
        const char *value;     /* default, as text */
        uint64_t bound;
} ConfigKey;

#define KEY(s, n, t, field, v, m) { (s), (n), (t), offsetof(Config, field), (v), (m) }

static const ConfigKey keys[] = {
        KEY("Sandbox", "DefaultTemplate", TYPE_NAME, default_template, "python", 0),
        KEY("Sandbox", "DefaultMemory", TYPE_SIZE, default_mem_bytes, "512M", MIB(64)),
        KEY("Sandbox", "GrowMemory", TYPE_SIZE, grow_mem_bytes, "4G", 0),
        KEY("Sandbox", "DefaultCPUs", TYPE_CPUS, default_cpus, "1", 1),
        KEY("Sandbox", "DefaultDisk", TYPE_SIZE, default_disk_bytes, "4G", MIB(16)),
        KEY("Sandbox", "DefaultTimeout", TYPE_USEC, default_timeout_usec, "5min", USEC_PER_SEC),
        KEY("Sandbox", "DefaultIdleTimeout", TYPE_USEC, default_idle_timeout_usec, "infinity", USEC_PER_SEC),
        KEY("Sandbox", "DefaultOnTimeout", TYPE_END, default_on_timeout, "kill", 0),
        KEY("Sandbox", "AutoResumeTimeout", TYPE_USEC, auto_resume_timeout_usec, "5min", USEC_PER_SEC),
        KEY("Sandbox", "BootTimeout", TYPE_USEC, boot_timeout_usec, "60s", USEC_PER_SEC),
        KEY("Sandbox", "StopTimeout", TYPE_USEC, stop_timeout_usec, "10s", USEC_PER_SEC),
        KEY("Sandbox", "BuildTimeout", TYPE_USEC, build_timeout_usec, "1h", USEC_PER_SEC),
        KEY("Limits", "MaxSandboxes", TYPE_COUNT, max_sandboxes, "1000", 0),
        KEY("Limits", "MaxSandboxesPerUser", TYPE_COUNT, max_sandboxes_per_user, "100", 0),
        KEY("Limits", "MaxSandboxesPerTenant", TYPE_COUNT, max_sandboxes_per_tenant, "100", 0),
        KEY("Limits", "MaxSnapshotsPerUser", TYPE_COUNT, max_snapshots_per_user, "100", 0),
        KEY("Limits", "MaxSnapshotsPerTenant", TYPE_COUNT, max_snapshots_per_tenant, "100", 0),
        KEY("Limits", "MaxSnapshotBytesPerUser", TYPE_RATE, max_snapshot_bytes_per_user, "64G", 0),
        KEY("Limits", "MaxSnapshotBytesPerTenant", TYPE_RATE, max_snapshot_bytes_per_tenant, "64G", 0),
        KEY("Limits", "MaxMemoryPerSandbox", TYPE_SIZE, max_mem_bytes, "0", 0),
        KEY("Limits", "CheckpointsMax", TYPE_COUNT, checkpoints_max, "16", 1),
        KEY("Limits", "CheckpointBytesMax", TYPE_SIZE, checkpoint_bytes_max, "4G", 0),
        KEY("Limits", "UIDRange", TYPE_UID_RANGE, uid_base, "0x70000000/65536", 0),
        KEY("Guest", "KernelPath", TYPE_PATH, kernel_path, "", 0),
        KEY("Guest", "KernelCommandLine", TYPE_TEXT, kernel_command_line, "", 0),
        KEY("Guest", "CpuidHideXsave", TYPE_SWITCH, cpuid_hide_xsave, "auto", 0),
        KEY("Network", "Network4", TYPE_NETWORK4, network4, "auto", 0),
        KEY("Network", "Network6", TYPE_NETWORK6, network6, "no", 0),
        KEY("Network", "FreeSlots", TYPE_SLOTS, free_slots, "16", 0),
        KEY("Network", "Mark", TYPE_MARK, network_mark, "0x1000", 0),
        KEY("Network", "AuditIntervalSec", TYPE_USEC, network_audit_usec, "60", USEC_PER_SEC),
        KEY("Network", "IngressUsers", TYPE_USERS, ingress_users, "cube-ingress", CONFIG_INGRESS_USERS_MAX),
        KEY("Network", "DefaultPolicy", TYPE_POLICY, default_internet, "deny", 0),
        KEY("Network", "SpecialRangesUsers", TYPE_USERS, special_users, "", CONFIG_USERS_MAX),
        KEY("Network", "SpecialRangesTenants", TYPE_TENANTS, special_tenants, "", CONFIG_TENANTS_MAX),
        KEY("Network", "BandwidthOut", TYPE_RATE, net_limits.bytes_out, "infinity", KIB(1)),
        KEY("Network", "BandwidthIn", TYPE_RATE, net_limits.bytes_in, "infinity", KIB(1)),
        KEY("Network", "PacketsOut", TYPE_COUNT, net_limits.packets_out, "infinity", 1),
        KEY("Network", "PacketsIn", TYPE_COUNT, net_limits.packets_in, "infinity", 1),
        KEY("Network", "NewConnections", TYPE_COUNT, net_limits.flows_new, "infinity", 1),
        KEY("Network", "OpenConnections", TYPE_COUNT, net_limits.flows_open, "1024", 1),
        KEY("Manager", "AuditArguments", TYPE_BOOL, audit_arguments, "no", 0),
        KEY("Manager", "DelegateTo", TYPE_USERS, delegates, "cube-gateway", CONFIG_USERS_MAX),
        KEY("Manager", "StateDirectory", TYPE_PATH, state_directory, "/var/lib/cubed", 0),
        KEY("Manager", "RuntimeDirectory", TYPE_PATH, runtime_directory, "/run/cubed", 0),
};

static void *key_field(Config *c, const ConfigKey *k) {
        return (uint8_t *) c + k->offset;
}

static int set_string(char **field, const char *value) {
        char *s = NULL;

        if (*value) {
                s = strdup(value);
                if (!s)
                        return -ENOMEM;
        }
        free(*field);
        *field = s;
        return 0;
}

static int set_template(char **field, const char *value) {
        char name[129];
        const char *colon = strchr(value, ':');
        size_t n = colon ? (size_t) (colon - value) : strlen(value);

        if (n >= sizeof(name))
                return -EINVAL;
        memcpy(name, value, n);
        name[n] = 0;
        if (!template_name_valid(name) || (colon && !template_name_valid(colon + 1)))
                return -EINVAL;
        return set_string(field, value);
}

static int set_path(char **field, const char *value) {
        if (*value && (value[0] != '/' || strlen(value) >= PATH_MAX))
                return -EINVAL;
        return set_string(field, value);
}

static int set_uid_range(uint32_t *base, uint32_t *count, const char *value) {
        char *end;

        if (*value < '0' || *value > '9')
                return -EINVAL;
        errno = 0;
        unsigned long long b = strtoull(value, &end, 0);
        if (errno || *end != '/' || end[1] < '0' || end[1] > '9')
                return -EINVAL;
        unsigned long long n = strtoull(end + 1, &end, 0);
        /* Never a system's or a person's uid, and never (uid_t) -1. */
        if (errno || *end || b < 65536 || n < 1 || n > MIB(16) || b + n > INT32_MAX + 1ULL)
                return -ERANGE;

        *base = (uint32_t) b;
        *count = (uint32_t) n;
        return 0;
}

/* What is wrong with a value, where a word or two of assign() would not do. */
typedef struct Why {
        char text[160];
} Why;

static int too_many_users(size_t max, Why *why) {
        (void) snprintf(why->text, sizeof(why->text), "more than %zu users", max);
        return -E2BIG;
}

/* names: with blanks between them. */
static int find_users(ConfigUsers *u, const char *names, size_t max, Why *why) {
        _cleanup_free_ char *unknown = NULL;
        size_t n = 0;

        if (!*names)
                return 0;
        int r = user_names_find(names, NAMES_TIMEOUT_USEC, u->uid + u->n, max - u->n, &n, &unknown);
        if (r < 0)
                return r == -E2BIG ? too_many_users(max, why) : r;
        u->n += n;
        if (!unknown)
                return 0;
        (void) snprintf(why->text, sizeof(why->text), "there is no user %s", unknown);
        return -EINVAL;
}

static int set_users(ConfigUsers *field, const char *value, size_t max, Why *why) {
        _cleanup_free_ char *copy = strdup(value), *names = strdup(value);
        char *at = copy, *word, *end = names;
        ConfigUsers u = {};
        uint32_t uid;

        if (!copy || !names)
                return -ENOMEM;
        while ((word = strsep(&at, " \t"))) {
                if (!*word)
                        continue;
                if (parse_u32(word, &uid) < 0) {
                        end = stpcpy(end == names ? end : stpcpy(end, " "), word);
                        continue;
                }
                if (uid == (uid_t) -1)
                        return -ERANGE;
                if (u.n == max)
                        return too_many_users(max, why);
                u.uid[u.n++] = uid;
        }
        *end = 0;
        int r = find_users(&u, names, max, why);
        if (r >= 0)
                *field = u;
        return r;
}

/* word: USER/TENANT. before: the one that was read last, whose user need not be looked up again. */
static int add_tenant(ConfigTenants *t, char *word, const char *before, Why *why) {
        char *slash = strchr(word, '/');
        ConfigUsers user = {};

        if (!slash || !tenant_name_valid(slash + 1)) {
                (void) snprintf(why->text, sizeof(why->text), "%.80s is not USER/TENANT", word);
                return -EINVAL;
        }
        *slash = 0;
        if (before && streq(before, word))
                user = (ConfigUsers) { .uid = { t->tenants[t->n - 1].uid }, .n = 1 };
        int r = user.n > 0 ? 0 : set_users(&user, word, 1, why);
        if (r < 0)
                return r;
        if (user.n == 0)
                return -EINVAL;
        t->tenants[t->n].uid = user.uid[0];
        tenant_name_copy(t->tenants[t->n].name, slash + 1);
        t->n++;
        return 0;
}

static int set_tenants(ConfigTenants *field, const char *value, Why *why) {
        _cleanup_free_ char *copy = strdup(value);
        _cleanup_free_ ConfigTenants *t = new0(ConfigTenants, 1);
        char *at = copy, *word, *before = NULL;

        if (!copy || !t)
                return -ENOMEM;
        while ((word = strsep(&at, " \t"))) {
                if (!*word)
                        continue;
                if (t->n == CONFIG_TENANTS_MAX) {
                        (void) snprintf(why->text, sizeof(why->text), "more than %u tenants", CONFIG_TENANTS_MAX);
                        return -E2BIG;
                }
                int r = add_tenant(t, word, before, why);
                if (r < 0)
                        return r;
                before = word;
        }
        *field = *t;
        return 0;
}

static int set_u64(uint64_t *field, uint64_t value, uint64_t min) {
        if (value < min)
                return -ERANGE;
        *field = value;
        return 0;
}

/* As cube-netd takes them. */
static int set_network(char **field, const char *value, int family, unsigned least, unsigned most) {
        const char *slash = strchr(value, '/');
        char address[INET6_ADDRSTRLEN];
        struct in6_addr a;
        uint32_t len;

        if (!slash || (size_t) (slash - value) >= sizeof(address))
                return -EINVAL;
        memcpy(address, value, (size_t) (slash - value));
        address[slash - value] = 0;
        int r = inet_pton(family, address, &a) > 0 ? parse_u32(slash + 1, &len) : -EINVAL;
        if (r >= 0 && (len < least || len > most))
                r = -ERANGE;
        return r < 0 ? r : set_string(field, value);
}

static int set_network4(char **field, const char *value) {
        return streq(value, "auto") ? set_string(field, value) : set_network(field, value, AF_INET, 8, 28);
}

static int set_network6(char **field, const char *value) {
        return parse_bool(value) == 0 ? set_string(field, "") : set_network(field, value, AF_INET6, 16, 124);
}

static int set_mark(uint32_t *field, const char *value) {
        char *end;

        if (*value < '0' || *value > '9')
                return -EINVAL;
        errno = 0;
        unsigned long long v = strtoull(value, &end, 0);
        if (errno || *end)
                return -EINVAL;
        if (v == 0 || v > UINT32_MAX || (v & (v - 1)) != 0)
                return -ERANGE;
        *field = (uint32_t) v;
        return 0;
}

static int set_policy(bool *field, const char *value) {
        if (!streq(value, "deny") && !streq(value, "internet"))
                return -EINVAL;
        *field = streq(value, "internet");
        return 0;
}

static int set_number(Config *c, const ConfigKey *k, const char *value) {
        uint64_t v;
        uint32_t n;
        int r;

        switch (k->type) {
        case TYPE_SIZE:
                r = parse_size(value, &v);
                return r < 0 ? r : set_u64(key_field(c, k), v, k->bound);
        case TYPE_USEC:
                r = parse_usec(value, &v);
                return r < 0 ? r : set_u64(key_field(c, k), v, k->bound);
        case TYPE_RATE:
                v = UINT64_MAX;
                r = streq(value, "infinity") ? 0 : parse_size(value, &v);
                return r < 0 ? r : set_u64(key_field(c, k), v, k->bound);
        case TYPE_CPUS:
                r = parse_u32(value, &n);
                if (r >= 0 && (n < 1 || n > 16))
                        r = -ERANGE;
                break;
        case TYPE_SLOTS:
                r = parse_u32(value, &n);
                if (r >= 0 && n > FREE_SLOTS_MAX)
                        r = -ERANGE;
                break;
        default:
                n = CONFIG_UNLIMITED;
                r = streq(value, "infinity") ? 0 : parse_u32(value, &n);
                if (r >= 0 && n < k->bound)
                        r = -ERANGE;
                break;
        }
        if (r < 0)
                return r;
        *(uint32_t *) key_field(c, k) = n;
        return 0;
}

static int key_set(Config *c, const ConfigKey *k, const char *value, Why *why) {
        int r;

        switch (k->type) {
        case TYPE_NAME:
                return set_template(key_field(c, k), value);
        case TYPE_PATH:
                return set_path(key_field(c, k), value);
        case TYPE_TEXT:
                return set_string(key_field(c, k), value);
        case TYPE_UID_RANGE:
                return set_uid_range(&c->uid_base, &c->uid_count, value);
        case TYPE_NETWORK4:
                return set_network4(key_field(c, k), value);
        case TYPE_NETWORK6:
                return set_network6(key_field(c, k), value);
        case TYPE_MARK:
                return set_mark(key_field(c, k), value);
        case TYPE_POLICY:
                return set_policy(key_field(c, k), value);
        case TYPE_USERS:
                return set_users(key_field(c, k), value, k->bound, why);
        case TYPE_TENANTS:
                return set_tenants(key_field(c, k), value, why);
        case TYPE_BOOL:
                r = parse_bool(value);
                if (r >= 0)
                        *(bool *) key_field(c, k) = r;
                return r;
        case TYPE_END:
                r = sandbox_end_from_string(value);
                if (r >= 0)
                        *(int *) key_field(c, k) = r;
                return r;
        case TYPE_SWITCH:
                r = streq(value, "auto") ? (int) CONFIG_AUTO : parse_bool(value);
                if (r >= 0)
                        *(ConfigSwitch *) key_field(c, k) = (ConfigSwitch) r;
                return r;
        default:
                return set_number(c, k, value);
        }
}

/* A user that the default names need not be there: it comes with a part of cubed that was not installed. */
static int key_set_default(Config *c, const ConfigKey *k) {
        int r = key_set(c, k, k->value, &(Why) {});

        if (r >= 0 || r == -ENOMEM || k->type != TYPE_USERS)
                return r;
        *(ConfigUsers *) key_field(c, k) = (ConfigUsers) {};
        return 0;
}

int config_init(Config *c) {
        assert(c);

        *c = (Config) {};
        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                int r = key_set_default(c, keys + i);
                if (r < 0) {
                        config_done(c);
                        return r;
                }
        }
        return 0;
}

static bool key_is_string(const ConfigKey *k) {
        return k->type == TYPE_NAME || k->type == TYPE_PATH || k->type == TYPE_TEXT || k->type == TYPE_NETWORK4 ||
                k->type == TYPE_NETWORK6;
}

void config_done(Config *c) {
        assert(c);

        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (key_is_string(keys + i))
                        free(*(char **) key_field(c, keys + i));
        *c = (Config) {};
}

int config_copy(const Config *c, Config *ret) {
        Config copy = *c;
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                if (!key_is_string(keys + i))
                        continue;

                char **field = key_field(&copy, keys + i);
                *field = *field ? strdup(*field) : NULL;
                if (!*field && *(char **) key_field((Config *) c, keys + i))
                        r = -ENOMEM;
        }
        if (r < 0) {
                config_done(&copy);
                return r;
        }
        *ret = copy;
        return 0;
}

/* Where in which file: what a warning needs. */
typedef struct Place {
        const char *path;
        unsigned line;
        ConfigWarn warn;
        void *userdata;
} Place;

static void _printf_(2, 3) place_warn(const Place *p, const char *format, ...) {
        char message[512];
        va_list ap;

        if (!p->warn)
                return;
        va_start(ap, format);
        (void) vsnprintf(message, sizeof(message), format, ap);
        va_end(ap);
        p->warn(p->userdata, p->path, p->line, message);
}

static bool section_known(const char *section) {
        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (streq(keys[i].section, section))
                        return true;
        return false;
}

static int assign(Config *c, const Place *p, const char *section, const char *name, const char *value) {
        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                const ConfigKey *k = keys + i;
                if (!streq(k->name, name))
                        continue;

                if (!streq(k->section, section)) {
                        place_warn(p, "%s= belongs into section [%s], ignored here", name, k->section);
                        return 0;
                }

                /* Nothing behind the sign means: as if the key were not there. */
                Why why = {};
                int r = *value ? key_set(c, k, value, &why) : key_set_default(c, k);
                if (r == -ENOMEM)
                        return r;
                if (r < 0)
                        place_warn(p, "Bad value %s=%.100s (%s), keeping what was set before", name, value,
                                   *why.text ? why.text : r == -ERANGE ? "out of range" : r == -ETIMEDOUT ? "not looked up in time" : "not understood");
                return 0;
        }

        place_warn(p, "Unknown key %.100s= in section [%s], ignored", name, section);
        return 0;
}

static char *strip(char *s) {
        while (*s == ' ' || *s == '\t' || *s == '\r')
                s++;
        size_t n = strlen(s);
        while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
                s[--n] = 0;
        return s;
}

/* section: the caller's 64 bytes, "" while there was no header, "?" under an unknown one. */
static int parse_line(Config *c, const Place *p, char *section, char *line) {
        line = strip(line);
        if (!*line || *line == '#' || *line == ';')
                return 0;

        if (*line == '[') {
                char *end = strchr(line, ']');
                if (!end || end[1]) {
                        place_warn(p, "Not a section header: %.100s", line);
                        memcpy(section, "?", 2);
                        return 0;
                }
                *end = 0;
                if (strlen(line + 1) < 64 && section_known(line + 1))
                        memcpy(section, line + 1, strlen(line + 1) + 1);
                else {
                        place_warn(p, "Unknown section [%.100s], ignored", line + 1);
                        memcpy(section, "?", 2);
                }
                return 0;
        }

        char *sign = strchr(line, '=');
        if (!sign || sign == line) {
                place_warn(p, "Neither Key=Value nor a section header: %.100s", line);
                return 0;
        }
        if (streq(section, "?"))
                return 0;
        *sign = 0;
        if (!*section) {
                place_warn(p, "%.100s= stands before any section header, ignored", strip(line));
                return 0;
        }
        return assign(c, p, section, strip(line), strip(sign + 1));
}

int config_load_file(Config *c, const char *path, ConfigWarn warn, void *userdata) {
        _cleanup_free_ char *text = NULL;
        Place place = { .path = path, .warn = warn, .userdata = userdata };
        char section[64] = "";
        size_t size;

        int r = read_file(AT_FDCWD, path, CONFIG_FILE_MAX, &text, &size);
        if (r < 0)
                return r;
        if (memchr(text, 0, size)) {
                place_warn(&place, "The file holds NUL bytes, ignored");
                return 0;
        }

        for (char *line = text, *next; line; line = next) {
                next = strchr(line, '\n');
                if (next)
                        *next++ = 0;
                place.line++;
                r = parse_line(c, &place, section, line);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int load_reported(Config *c, const char *path, ConfigWarn warn, void *userdata) {
        int r = config_load_file(c, path, warn, userdata);

        if (r < 0 && r != -ENOENT && r != -ENOMEM) {
                Place p = { .path = path, .warn = warn, .userdata = userdata };
                place_warn(&p, "Can't read it: %s", strerror(-r));
                r = 0;
        }
        return r;
}

/* Drop-ins of both places: by name, one of etc in front of its namesake. */
#define DROPINS_MAX 256U
typedef struct DropIns {
        char *name[DROPINS_MAX];
        const char *dir[DROPINS_MAX];
        size_t n;
} DropIns;

static void dropins_done(DropIns *d) {
        for (size_t i = 0; i < d->n; i++)
                free(d->name[i]);
}

static bool dropins_have(const DropIns *d, const char *name) {
        for (size_t i = 0; i < d->n; i++)
                if (streq(d->name[i], name))
                        return true;
        return false;
}

static int dropins_insert(DropIns *d, const char *dir, const char *name) {
        char *copy = strdup(name);
        if (!copy)
                return -ENOMEM;

        size_t i = d->n++;
        for (; i > 0 && strcmp(d->name[i - 1], name) > 0; i--) {
                d->name[i] = d->name[i - 1];
                d->dir[i] = d->dir[i - 1];
        }
        d->name[i] = copy;
        d->dir[i] = dir;
        return 0;
}

static int dropins_add(DropIns *d, const char *dir) {
        DIR *stream = opendir(dir);
        struct dirent *e;
        int r = 0;

        if (!stream)
                return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
        while (r >= 0 && d->n < DROPINS_MAX && (e = readdir(stream))) {
                size_t n = strlen(e->d_name);
                if (e->d_name[0] == '.' || n < 6 || !streq(e->d_name + n - 5, ".conf"))
                        continue;
                if (!dropins_have(d, e->d_name))
                        r = dropins_insert(d, dir, e->d_name);
        }
        closedir(stream);
        return r;
}

int config_load(Config *c, const char *root, ConfigWarn warn, void *userdata) {
        static const char *const places[] = { "/etc/cubed", "/usr/lib/cubed" };
        _cleanup_(dropins_done) DropIns d = {};
        char dirs[ELEMENTSOF(places)][PATH_MAX], path[PATH_MAX + 256];
        bool main_file = false;
        int r;

        for (size_t i = 0; i < ELEMENTSOF(places); i++) {
                (void) snprintf(path, sizeof(path), "%s%s/cubed.conf", root, places[i]);
                r = main_file ? 0 : load_reported(c, path, warn, userdata);
                if (r < 0 && r != -ENOENT)
                        return r;
                main_file = r == 0;

                int n = snprintf(dirs[i], sizeof(dirs[i]), "%s%s/cubed.conf.d", root, places[i]);
                if (n < 0 || (size_t) n >= sizeof(dirs[i]))
                        return -ENAMETOOLONG;
                r = dropins_add(&d, dirs[i]);
                if (r < 0)
                        return r;
        }

        for (size_t i = 0; i < d.n; i++) {
                (void) snprintf(path, sizeof(path), "%s/%s", d.dir[i], d.name[i]);
                r = load_reported(c, path, warn, userdata);
                if (r < 0 && r != -ENOENT)
                        return r;
        }
        return 0;
}

static void dump_usec(FILE *f, uint64_t usec) {
        if (usec == UINT64_MAX)
                fputs("infinity", f);
        else if (usec % USEC_PER_SEC == 0)
                fprintf(f, "%llu", (unsigned long long) (usec / USEC_PER_SEC));
        else
                fprintf(f, "%lluus", (unsigned long long) usec);
}

static void dump_users(FILE *f, const ConfigUsers *u) {
        for (size_t i = 0; i < u->n; i++)
                fprintf(f, "%s%u", i > 0 ? " " : "", (unsigned) u->uid[i]);
}

static void dump_tenants(FILE *f, const ConfigTenants *t) {
        for (size_t i = 0; i < t->n; i++)
                fprintf(f, "%s%u/%s", i > 0 ? " " : "", (unsigned) t->tenants[i].uid, t->tenants[i].name);
}

static void dump_value(Config *c, const ConfigKey *k, FILE *f) {
        static const char *const switches[] = { "no", "yes", "auto" };
        void *field = key_field(c, k);

        switch (k->type) {
        case TYPE_NAME:
        case TYPE_PATH:
        case TYPE_TEXT:
        case TYPE_NETWORK4:
                fputs(strempty(*(char **) field), f);
                break;
        case TYPE_NETWORK6:
                fputs(*(char **) field ?: "no", f);
                break;
        case TYPE_MARK:
                fprintf(f, "0x%x", *(uint32_t *) field);
                break;
        case TYPE_POLICY:
                fputs(*(bool *) field ? "internet" : "deny", f);
                break;
        case TYPE_RATE:
                if (*(uint64_t *) field == UINT64_MAX)
                        fputs("infinity", f);
                else
                        fprintf(f, "%llu", (unsigned long long) *(uint64_t *) field);
                break;
        case TYPE_SIZE:
                fprintf(f, "%llu", (unsigned long long) *(uint64_t *) field);
                break;
        case TYPE_USEC:
                dump_usec(f, *(uint64_t *) field);
                break;
        case TYPE_UID_RANGE:
                fprintf(f, "0x%x/%u", c->uid_base, c->uid_count);
                break;
        case TYPE_USERS:
                dump_users(f, field);
                break;
        case TYPE_TENANTS:
                dump_tenants(f, field);
                break;
        case TYPE_BOOL:
                fputs(switches[*(bool *) field], f);
                break;
        case TYPE_END:
                fputs(sandbox_end_to_string((SandboxEnd) *(int *) key_field(c, k)), f);
                break;
        case TYPE_SWITCH:
                fputs(switches[*(ConfigSwitch *) field], f);
                break;
        default:
                if (*(uint32_t *) field == CONFIG_UNLIMITED)
                        fputs("infinity", f);
                else
                        fprintf(f, "%u", *(uint32_t *) field);
        }
}

void config_dump(const Config *c, FILE *f) {
        const char *section = NULL;

        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                if (!section || !streq(section, keys[i].section)) {
                        fprintf(f, "%s[%s]\n", section ? "\n" : "", keys[i].section);
                        section = keys[i].section;
                }
                fprintf(f, "%s=", keys[i].name);
                dump_value((Config *) c, keys + i, f);
                fputc('\n', f);
        }
}
