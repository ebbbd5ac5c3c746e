/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A snapshot store in a directory of its own, with a real cube-stored behind it (CUBE_STORED names the program),
 * and snapshots with files whose headers are as they should be. */

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <zlib.h>

#include "base/clock.h"
#include "daemon/snapshot.h"
#include "tests/unit/failing-fsync.h"
#include "temp-dir.h"
#include "test.h"

#define PAGE SNAPSHOT_PAGE_BYTES
#define MADE_MEMORY MIB(1)
#define MADE_DISK MIB(1)
#define MADE_TEMPLATE "tttttttttttttttt"
#define MADE_SANDBOX "ssssssssssssssss"

typedef struct Fixture {
        TempDir dir;
        char root[96];
        sd_event *event;
        StoreClient *client;
        pid_t stored;
        FailingFsync *disk;      /* of cube-stored; NULL: one that does not fail */
        SnapshotStore *store;
        unsigned n_done;         /* answers */
        int error;               /* of the last */
        unsigned n_added, n_changed, n_removed;
        uint8_t next_uuid;
} Fixture;

static void on_fixture_added(Snapshot *s, void *userdata) {
        ((Fixture *) userdata)->n_added++;
}

static void on_fixture_changed(Snapshot *s, void *userdata) {
        ((Fixture *) userdata)->n_changed++;
}

static void on_fixture_removed(Snapshot *s, void *userdata) {
        ((Fixture *) userdata)->n_removed++;
}

/* As after a new start of cubed. */
_unused_ static void fixture_load(Fixture *f) {
        f->store = snapshot_store_free(f->store);
        assert_ok(snapshot_store_load(&f->store, f->root, f->client));
        f->store->added = on_fixture_added;
        f->store->changed = on_fixture_changed;
        f->store->removed = on_fixture_removed;
        f->store->userdata = f;
}

static void fixture_start_stored(Fixture *f) {
        const char *program = getenv("CUBE_STORED");
        int ends[2];

        assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends));
        f->stored = fork();
        if (f->stored == 0) {
                if (f->disk && failing_fsync_confine(ends[1]) < 0)
                        _exit(126);
                dup2(ends[1], 3);
                execl(program, program, NULL);
                _exit(127);
        }
        close(ends[1]);
        if (f->disk)
                assert_ok(failing_fsync_start(f->disk, ends[0]));
        assert_ok(store_client_attach(f->client, ends[0]));
}

_unused_ static Fixture fixture_make(void) {
        const char *program = getenv("CUBE_STORED");
        Fixture f = {};

        if (!program || access(program, X_OK) < 0)
                test_skip("cube-stored is not built");
        f.dir = temp_dir_make();
        (void) snprintf(f.root, sizeof(f.root), "%s/snapshots", f.dir.path);
        assert_ok(sd_event_new(&f.event));
        assert_ok(store_client_new(f.event, f.dir.fd, &f.client));
        fixture_start_stored(&f);
        return f;
}

static void fixture_kill_stored(Fixture *f) {
        if (f->stored > 0) {
                (void) kill(f->stored, SIGKILL);
                (void) waitpid(f->stored, NULL, 0);
                if (f->disk)
                        failing_fsync_stop(f->disk);
        }
        f->stored = 0;
}

/* Its cube-stored anew, on that disk. */
_unused_ static void fixture_use_disk(Fixture *f, FailingFsync *disk) {
        store_client_detach(f->client);
        fixture_kill_stored(f);
        f->disk = disk;
        fixture_start_stored(f);
}

_unused_ static void fixture_done(Fixture *f) {
        store_client_detach(f->client);
        fixture_kill_stored(f);
        snapshot_store_free(f->store);
        store_client_free(f->client);
        sd_event_unref(f->event);
        temp_dir_done(&f->dir);
}
#define _cleanup_fixture_ _cleanup_(fixture_done)

_unused_ static void on_fixture_done(Snapshot *s, int error, void *userdata) {
        Fixture *f = userdata;

        f->error = error;
        f->n_done++;
}

/* The answer to one more call, whose return value is r. */
_unused_ static int fixture_wait(Fixture *f, int r) {
        unsigned n = f->n_done;

        while (r >= 0 && f->n_done == n)
                if (sd_event_run(f->event, 60 * USEC_PER_SEC) <= 0)
                        return -ETIMEDOUT;
        return r < 0 ? r : f->error;
}

_unused_ static bool fixture_there(Fixture *f, const char *id, const char *name) {
        char path[160];

        (void) snprintf(path, sizeof(path), "%s/%s/%s", f->root, id, name);
        return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Until there are n answers in all, of which none may be an error. */
_unused_ static void fixture_wait_all(Fixture *f, unsigned n) {
        while (f->n_done < n)
                assert_ok(fixture_wait(f, 0));
}

static void on_flushed(int error, void *userdata) {
        *(bool *) userdata = true;
}

/* Until what was asked of cube-stored to remove is gone; false: it does not go. */
_unused_ static bool fixture_goes(Fixture *f, const char *id, const char *name) {
        for (uint64_t end = now_usec() + 60 * USEC_PER_SEC; now_usec() < end;) {
                bool done = false;

                if (!fixture_there(f, id, name))
                        return true;
                assert_ok(store_client_sync(f->client, f->dir.fd, on_flushed, &done));
                while (!done)
                        assert_true(sd_event_run(f->event, 60 * USEC_PER_SEC) > 0);
        }
        return false;
}

static uint32_t crc_of(const void *header, size_t header_bytes, const void *table, size_t table_bytes) {
        return (uint32_t) crc32(crc32(0, header, (unsigned) header_bytes), table, (unsigned) table_bytes);
}

/* One page, number gpa_page, full of value. */
static void write_memory(int fd, const uint8_t *id, const uint8_t *parent, unsigned gpa_page, uint8_t value) {
        SnapshotRun run = { .gpa = gpa_page * PAGE, .bytes = PAGE, .file_offset = PAGE };
        SnapshotLayerHeader h = {
                .magic = SNAPSHOT_LAYER_MAGIC, .version = SNAPSHOT_LAYER_VERSION, .n_runs = 1, .mem_bytes = MADE_MEMORY,
        };
        uint8_t page[PAGE];

        memcpy(h.id, id, sizeof(h.id));
        memcpy(h.parent, parent, sizeof(h.parent));
        h.crc = crc_of(&h, sizeof(h), &run, sizeof(run));
        memset(page, value, sizeof(page));
        assert_eq(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
        assert_eq(pwrite(fd, &run, sizeof(run), sizeof(h)), sizeof(run));
        assert_eq(pwrite(fd, page, sizeof(page), PAGE), sizeof(page));
}

static void write_state(int fd, const uint8_t *id) {
        SnapshotSection section = { .type = SNAPSHOT_SECTION_CONFIG, .offset = 128, .bytes = 8 };
        SnapshotHeader h = {
                .magic = SNAPSHOT_STATE_MAGIC, .version = SNAPSHOT_STATE_VERSION, .arch = SNAPSHOT_ARCH_X86_64,
                .total_bytes = 136, .n_sections = 1,
        };

        memcpy(h.id, id, sizeof(h.id));
        h.crc = crc_of(&h, sizeof(h), &section, sizeof(section));
        assert_eq(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
        assert_eq(pwrite(fd, &section, sizeof(section), sizeof(h)), sizeof(section));
        assert_ok(ftruncate(fd, 136));
}

/* Memory and disk differ from those of the parent in page number page, which is full of value. Not published. */
_unused_ static Snapshot *fixture_new(Fixture *f, SnapshotKind kind, Snapshot *parent, unsigned page, uint8_t value) {
        static const uint8_t none[SNAPSHOT_ID_BYTES];
        uint8_t data[PAGE];
        Snapshot *s;
        int fd;

        assert_ok(snapshot_new(f->store, kind, &s));
        assert_ok(snapshot_set_parents(s, parent, parent && parent->has_memory ? parent : NULL));
        s->template_id = strdup(MADE_TEMPLATE);
        s->sandbox_id = kind == SNAPSHOT_TEMPLATE ? NULL : strdup(MADE_SANDBOX);
        s->has_memory = true;
        s->uuid[0] = ++f->next_uuid;
        s->mem_bytes = s->boot_mem_bytes = MADE_MEMORY;
        s->disk_bytes = MADE_DISK;
        s->cpus = 1;
        s->cpu_quota_usec = USEC_PER_SEC;

        assert_ok(snapshot_create_file(s, SNAPSHOT_FILE_STATE, &fd));
        write_state(fd, s->uuid);
        close(fd);
        assert_ok(snapshot_create_file(s, SNAPSHOT_FILE_MEMORY, &fd));
        write_memory(fd, s->uuid, s->memory_parent ? s->memory_parent->uuid : none, page, value);
        close(fd);
        assert_ok(snapshot_create_file(s, SNAPSHOT_FILE_DISK, &fd));
        assert_ok(ftruncate(fd, MADE_DISK));
        memset(data, value, sizeof(data));
        assert_eq(pwrite(fd, data, sizeof(data), page * PAGE), sizeof(data));
        close(fd);
        return s;
}

/* Published, with one use. */
_unused_ static Snapshot *fixture_publish(Fixture *f, SnapshotKind kind, Snapshot *parent, unsigned page, uint8_t value) {
        Snapshot *s = fixture_new(f, kind, parent, page, value);

        assert_ok(snapshot_publish(s));
        return s;
}
