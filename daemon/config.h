/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an admin sets: /etc/cubed/cubed.conf and its drop-ins, with a default for every key.
 *
 * A Config is a plain value: config_init() fills in the defaults, config_load() reads files over
 * them, config_done() releases the strings. A mistake in a file never stops cubed: it is warned
 * about with file and line, and the value from before stays. cubed.conf(5) lists the same keys as
 * the table in config.c; test-config checks that. */

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/macros.h"
#include "base/tenant.h"
#include "net/net-client.h"

#define CONFIG_UNLIMITED UINT32_MAX
#define CONFIG_USERS_MAX 64U
#define CONFIG_TENANTS_MAX 64U
#define CONFIG_INGRESS_USERS_MAX NET_INGRESS_UIDS_MAX

typedef enum ConfigSwitch {
        CONFIG_NO,
        CONFIG_YES,
        CONFIG_AUTO,
} ConfigSwitch;

/* Users that a key lists: names are looked up when the file is read. */
typedef struct ConfigUsers {
        uid_t uid[CONFIG_USERS_MAX];
        size_t n;
} ConfigUsers;

static inline bool config_users_have(const ConfigUsers *u, uid_t uid) {
        for (size_t i = 0; i < u->n; i++)
                if (u->uid[i] == uid)
                        return true;
        return false;
}

/* USER/TENANT each. */
typedef struct ConfigTenants {
        struct {
                uid_t uid;
                char name[TENANT_NAME_MAX];
        } tenants[CONFIG_TENANTS_MAX];
        size_t n;
} ConfigTenants;

static inline bool config_tenants_have(const ConfigTenants *t, uid_t uid, const char *name) {
        for (size_t i = 0; i < t->n; i++)
                if (tenant_same(t->tenants[i].uid, t->tenants[i].name, uid, name))
                        return true;
        return false;
}

typedef struct Config {
        /* [Sandbox] */
        char *default_template;            /* DefaultTemplate=python */
        uint64_t default_mem_bytes;        /* DefaultMemory=512M */
        uint64_t grow_mem_bytes;           /* GrowMemory=4G; 0 = none */
        uint32_t default_cpus;             /* DefaultCPUs=1 */
        uint64_t default_disk_bytes;       /* DefaultDisk=4G */
        uint64_t default_timeout_usec;     /* DefaultTimeout=5min; UINT64_MAX = none */
        uint64_t default_idle_timeout_usec; /* DefaultIdleTimeout=infinity; UINT64_MAX = none */
        int default_on_timeout;            /* DefaultOnTimeout=kill; a SandboxEnd */
        uint64_t auto_resume_timeout_usec; /* AutoResumeTimeout=5min: so long it lives at least */
        uint64_t boot_timeout_usec;        /* BootTimeout=60s */
        uint64_t stop_timeout_usec;        /* StopTimeout=10s */
        uint64_t build_timeout_usec;       /* BuildTimeout=1h; UINT64_MAX = none */

        /* [Limits] */
        uint32_t max_sandboxes;            /* MaxSandboxes=1000; CONFIG_UNLIMITED */
        uint32_t max_sandboxes_per_user;   /* MaxSandboxesPerUser=100; those of his tenants don't count */
        uint32_t max_sandboxes_per_tenant; /* MaxSandboxesPerTenant=100; of each that has a name */
        uint32_t max_snapshots_per_user, max_snapshots_per_tenant; /* MaxSnapshotsPerUser=100 ..., as of sandboxes */
        uint64_t max_snapshot_bytes_per_user, max_snapshot_bytes_per_tenant; /* MaxSnapshotBytesPerUser=64G ...; UINT64_MAX = any */
        uint64_t max_mem_bytes;            /* MaxMemoryPerSandbox=; 0 = the host's RAM */
        uint32_t checkpoints_max;          /* CheckpointsMax=16; of one sandbox */
        uint64_t checkpoint_bytes_max;     /* CheckpointBytesMax=4G */
        uint32_t uid_base, uid_count;      /* UIDRange=0x70000000/65536 */

        /* [Guest] */
        char *kernel_path;                 /* KernelPath=; NULL = the newest installed on the host */
        char *kernel_command_line;         /* KernelCommandLine=; added behind ours; may be NULL */
        ConfigSwitch cpuid_hide_xsave;     /* CpuidHideXsave=auto */

        /* [Network] */
        char *network4;                    /* Network4=auto; or a CIDR */
        char *network6;                    /* Network6=; NULL: no IPv6 */
        uint32_t free_slots;               /* FreeSlots=16 */
        uint32_t network_mark;             /* Mark=0x1000; one bit */
        uint64_t network_audit_usec;       /* AuditIntervalSec=60 */
        ConfigUsers ingress_users;         /* IngressUsers= */
        bool default_internet;             /* DefaultPolicy=deny; of templates that have none */
        ConfigUsers special_users;         /* SpecialRangesUsers=; all tenants of theirs as well */
        ConfigTenants special_tenants;     /* SpecialRangesTenants= */
        NetLimits net_limits;              /* BandwidthOut= ...; UINT64_MAX, UINT32_MAX: none */

        /* [Manager] */
        bool audit_arguments;              /* AuditArguments=no */
        ConfigUsers delegates;             /* DelegateTo=cube-gateway; who may name tenants */
        char *state_directory;             /* StateDirectory=/var/lib/cubed */
        char *runtime_directory;           /* RuntimeDirectory=/run/cubed */
} Config;

/* -ENOMEM. */
int config_init(Config *c);
void config_done(Config *c);
int config_copy(const Config *c, Config *ret);

/* Says what is wrong in a file; line 0 concerns the whole file. */
typedef void (*ConfigWarn)(void *userdata, const char *path, unsigned line, const char *message);

/* root is "" or a prefix for tests. Reads usr/lib/cubed/cubed.conf, or etc/cubed/cubed.conf in
 * its place where that exists, then *.conf in cubed.conf.d of both, sorted by name; a drop-in in etc
 * hides the one of the same name in usr/lib. */
int config_load(Config *c, const char *root, ConfigWarn warn, void *userdata);
/* One file. -errno when it can't be read. */
int config_load_file(Config *c, const char *path, ConfigWarn warn, void *userdata);
/* All keys with their present values, as a file that can be read again. */
void config_dump(const Config *c, FILE *f);
