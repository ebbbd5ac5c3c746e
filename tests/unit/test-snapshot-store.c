/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot-fixture.h"

static void edit(Fixture *f, const char *id, const char *name, const char *from, const char *to) {
        _cleanup_free_ char *text = NULL, *out = NULL;
        char path[128];

        (void) snprintf(path, sizeof(path), "snapshots/%s/%s", id, name);
        assert_ok(read_file(f->dir.fd, path, KIB(64), &text, NULL));
        char *at = strstr(text, from);
        assert_true(at);
        assert_true(asprintf(&out, "%.*s%s%s", (int) (at - text), text, to, at + strlen(from)) >= 0);
        temp_dir_write(&f->dir, path, out, strlen(out));
}

static void edit_json(Fixture *f, const char *id, const char *from, const char *to) {
        edit(f, id, "snapshot.json", from, to);
}

static void poke(Fixture *f, const char *id, const char *name, size_t offset, uint8_t byte) {
        char path[160];

        (void) snprintf(path, sizeof(path), "snapshots/%s/%s", id, name);
        _cleanup_close_ int fd = temp_dir_open(&f->dir, path, O_WRONLY);
        assert_eq(pwrite(fd, &byte, 1, (off_t) offset), 1);
}

static void make_file(Fixture *f, const char *path, const char *text) {
        temp_dir_write(&f->dir, path, text, strlen(text));
}

static const char *path_of(Fixture *f, char buf[static 160], const char *id, const char *name) {
        (void) snprintf(buf, 160, "%s/%s/%s", f->root, id, name);
        return buf;
}

static bool warned(const Fixture *f, const char *what) {
        for (size_t i = 0; i < f->store->n_warnings; i++)
                if (strstr(f->store->warnings[i], what))
                        return true;
        return false;
}

/* Loads anew: id is refused for that reason. */
static bool refused(Fixture *f, const char *id, const char *reason) {
        fixture_load(f);
        return !snapshot_store_find(f->store, id) && warned(f, id) && warned(f, reason);
}

TEST(what_was_published_is_found_again) {
        _cleanup_fixture_ Fixture f = fixture_make();

        fixture_load(&f);
        Snapshot *t = fixture_publish(&f, SNAPSHOT_TEMPLATE, NULL, 0, 1);
        Snapshot *s = fixture_new(&f, SNAPSHOT_CHECKPOINT, t, 1, 2);
        s->name = strdup("before \"it\"");
        s->template_name = strdup("python:latest");
        s->owner_uid = 1000;
        tenant_name_copy(s->tenant, "acme");
        s->number = 7;
        s->plug_bytes = MIB(3);
        s->cpu_quota_usec = UINT64_MAX;
        assert_ok(snapshot_publish(s));
        assert_eq(f.n_added, 2);
        Snapshot before = *s;
        char id[21], below[21];
        strcpy(id, s->id);
        strcpy(below, t->id);

        fixture_load(&f);
        assert_eq(f.store->n_warnings, 0);
        assert_eq(f.store->n_snapshots, 2);
        s = snapshot_store_find(f.store, id);
        assert_true(s);
        assert_eq(s->kind, SNAPSHOT_CHECKPOINT);
        assert_streq(s->name, "before \"it\"");
        assert_streq(s->sandbox_id, MADE_SANDBOX);
        assert_streq(s->template_id, MADE_TEMPLATE);
        assert_streq(s->template_name, "python:latest");
        assert_eq(s->owner_uid, 1000);
        assert_streq(s->tenant, "acme");
        assert_streq(s->parent->tenant, "");
        assert_eq(s->number, 7);
        assert_eq(s->created_usec, before.created_usec);
        assert_true(s->created_usec > 1500000000 * USEC_PER_SEC);
        assert_true(s->has_memory && memcmp(s->uuid, before.uuid, sizeof(s->uuid)) == 0);
        assert_true(s->mem_bytes == MADE_MEMORY && s->plug_bytes == MIB(3) && s->disk_bytes == MADE_DISK);
        assert_true(s->cpus == 1 && s->cpu_quota_usec == UINT64_MAX);
        assert_true(s->parent && s->parent == s->memory_parent && streq(s->parent->id, below));
        assert_eq(s->parent->n_users, 2);
        assert_eq(s->n_users, 0);
        assert_true(s->parent == snapshot_store_find_template(f.store, MADE_TEMPLATE));
        assert_true(!snapshot_store_find_template(f.store, MADE_SANDBOX));
        /* What it takes, not how long the files are: both are sparse. */
        assert_true(s->file_bytes[SNAPSHOT_FILE_DISK] >= PAGE && s->file_bytes[SNAPSHOT_FILE_DISK] < MADE_DISK);
        assert_true(s->file_bytes[SNAPSHOT_FILE_MEMORY] >= PAGE && s->file_bytes[SNAPSHOT_FILE_STATE] > 0);
}

TEST(without_memory_there_is_a_disk_alone) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *list[8];
        int fd;

        fixture_load(&f);
        Snapshot *t = fixture_publish(&f, SNAPSHOT_TEMPLATE, NULL, 0, 1);
        Snapshot *s = fixture_new(&f, SNAPSHOT_PAUSE, NULL, 1, 2);
        s->has_memory = false;
        assert_ok(snapshot_set_parents(s, t, NULL));
        assert_ok(snapshot_publish(s));
        char id[21];
        strcpy(id, s->id);
        fixture_load(&f);
        s = snapshot_store_find(f.store, id);
        assert_true(s && !s->has_memory && s->parent && !s->memory_parent);
        assert_eq(snapshot_memory_chain(s, list, 8), 0);
        assert_eq(snapshot_disk_chain(s, list, 8), 2);
        assert_true(list[1] == s && list[0]->kind == SNAPSHOT_TEMPLATE);
        assert_eq(snapshot_open_file(s, SNAPSHOT_FILE_STATE, &fd), -ENOENT);
        assert_eq(snapshot_open_file(s, SNAPSHOT_FILE_MEMORY, &fd), -ENOENT);
        /* And nobody's memory can stand on it. */
        Snapshot *u = fixture_new(&f, SNAPSHOT_USER, NULL, 1, 2);
        assert_eq(snapshot_set_parents(u, s, s), -EINVAL);
        snapshot_free(u);
}

TEST(one_of_another_boot_that_had_not_reached_the_disk_is_lost) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char id[21], above[21];

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        strcpy(id, s->id);
        fixture_load(&f);
        s = snapshot_store_find(f.store, id);
        assert_true(s && !s->durable);

        /* cubed went down, the host did not: all is there */
        strcpy(above, fixture_publish(&f, SNAPSHOT_USER, s, 1, 2)->id);
        edit_json(&f, id, "\"boot\":\"", "\"boot\":\"0123456789abcdef0123456789abcdef\",\"x\":\"");
        edit_json(&f, id, "\"x\"", "\"name\"");
        assert_true(refused(&f, id, "before it had reached the disk"));
        assert_true(!snapshot_store_find(f.store, above));
        assert_eq(f.store->n_lost, 1);
        snapshot_store_clean(f.store);
        assert_true(fixture_goes(&f, id, "snapshot.json"));
        assert_true(fixture_there(&f, above, "snapshot.json"));
}

TEST(a_sync_makes_all_durable_that_it_stands_on) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char id[21];

        fixture_load(&f);
        Snapshot *t = fixture_publish(&f, SNAPSHOT_TEMPLATE, NULL, 0, 1);
        Snapshot *c = fixture_publish(&f, SNAPSHOT_CHECKPOINT, t, 1, 2);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, c, 2, 3);
        strcpy(id, s->id);
        assert_true(!s->durable);
        assert_ok(fixture_wait(&f, snapshot_sync(s, on_fixture_done, &f)));
        assert_true(s->durable && c->durable && t->durable);
        assert_eq(f.n_changed, 3);
        assert_eq(s->n_users, 1);
        assert_eq(c->n_users, 3);
        /* again, where nothing is to be done */
        assert_ok(fixture_wait(&f, snapshot_sync(s, on_fixture_done, &f)));
        assert_eq(f.n_done, 2);

        fixture_load(&f);
        s = snapshot_store_find(f.store, id);
        assert_true(s->durable && s->parent->durable && s->parent->parent->durable);
        assert_true(!fixture_there(&f, id, "snapshot.json.new"));
}

TEST(without_cube_stored_nothing_becomes_durable) {
        _cleanup_fixture_ Fixture f = fixture_make();

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        assert_ok(kill(f.stored, SIGSTOP));
        assert_ok(snapshot_sync(s, on_fixture_done, &f));
        fixture_kill_stored(&f);
        assert_eq(fixture_wait(&f, 0), -ECONNRESET);
        assert_true(!s->durable);
        assert_eq(s->n_users, 1);
        assert_eq(snapshot_sync(s, on_fixture_done, &f), -ENOTCONN);
        assert_eq(s->n_users, 1);
        fixture_start_stored(&f);
        assert_ok(fixture_wait(&f, snapshot_sync(s, on_fixture_done, &f)));
        assert_true(s->durable);
}

TEST(a_snapshot_json_that_is_not_as_it_should_be_is_refused) {
        static const char *const edits[][2] = {
                { "{", "[" },
                { "}", "" },
                { "\"version\":1", "\"version\":2" },
                { "\"version\":1,", "" },
                { "\"version\":1", "\"version\":1,\"surprise\":1" },
                { "\"kind\":\"user\"", "\"kind\":\"person\"" },
                { "\"kind\":\"user\"", "\"kind\":\"user\",\"tenant\":\"a/b\"" },
                { "\"kind\":\"user\"", "\"kind\":\"user\",\"tenant\":\"\"" },
                { "\"kind\":\"user\"", "\"kind\":5" },
                { "\"kind\":\"user\"", "\"kind\":\"layer\"" }, /* has no state file */
                { "\"template\":\"" MADE_TEMPLATE "\"", "\"template\":\"../../etc\"" },
                { "\"template\":\"" MADE_TEMPLATE "\",", "" },
                { "\"sandbox\":\"" MADE_SANDBOX "\"", "\"sandbox\":\"..\"" },
                { "\"sandbox\":\"" MADE_SANDBOX "\"", "\"sandbox\":null" },
                { "\"memory\":1048576", "\"memory\":-1" },
                { "\"memory\":1048576", "\"memory\":0" },
                { "\"memory\":1048576", "\"memory\":1e3" },
                { "\"memory\":1048576", "\"memory\":\"1048576\"" },
                { "\"memory\":1048576", "\"memory\":18446744073709551615" },
                { "\"cpus\":1", "\"cpus\":0" },
                { "\"cpus\":1", "\"cpus\":256" },
                { "\"owner-uid\":0", "\"owner-uid\":4294967295" },
                { "\"disk\":{\"number\":0", "\"disk\":{\"number\":1" },
                { "\"disk\":{\"number\":0", "\"disk\":{\"number\":4294967296" },
                { "\"disk\":{\"number\":0", "\"disk\":{\"path\":0" },
                { "\"disk\":{", "\"extra\":{},\"disk\":{" },
                { "\"state\":{\"number\":0,\"bytes\":136},", "" },
                { "\"bytes\":136", "\"bytes\":135" },
                { "\"uuid\":\"01", "\"uuid\":\"02" },
                { "\"uuid\":\"01", "\"uuid\":\"00" },
                { "\"uuid\":\"01", "\"uuid\":\"" },
                { "\"uuid\":\"01", "\"uuid\":\"xx" },
                { "\"boot\":\"", "\"boot\":\"\",\"name\":\"" },
        };
        _cleanup_fixture_ Fixture f = fixture_make();
        _cleanup_free_ char *good = NULL;
        char id[21], path[64];
        size_t size;

        fixture_load(&f);
        strcpy(id, fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1)->id);
        (void) snprintf(path, sizeof(path), "snapshots/%s/snapshot.json", id);
        assert_ok(read_file(f.dir.fd, path, KIB(64), &good, &size));
        for (size_t i = 0; i < ELEMENTSOF(edits); i++) {
                edit_json(&f, id, edits[i][0], edits[i][1]);
                if (!refused(&f, id, id))
                        test_stop(TEST_FAILED, __LINE__, "%s -> %s was loaded", edits[i][0], edits[i][1]);
                temp_dir_write(&f.dir, path, good, size);
        }
        /* cut off anywhere */
        for (size_t n = 0; n < size; n++) {
                temp_dir_write(&f.dir, path, good, n);
                assert_true(refused(&f, id, id));
        }
        /* anything in any place: loaded or refused, that is all */
        for (size_t i = 0; i < 4 * size; i++) {
                temp_dir_write(&f.dir, path, good, size);
                poke(&f, id, "snapshot.json", i % size, (uint8_t) (i * 167 + 13));
                fixture_load(&f);
                assert_eq(f.store->n_snapshots + f.store->n_warnings, 1);
        }
        temp_dir_write(&f.dir, path, good, size);
        fixture_load(&f);
        assert_true(snapshot_store_find(f.store, id));
}

TEST(things_that_are_no_snapshots_are_warned_of) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char path[160];

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        char id[21];
        strcpy(id, s->id);
        make_file(&f, "snapshots/aaaaaaaaaaaaaaa1", "a file");
        assert_ok(mkdirat(f.dir.fd, "snapshots/aaaaaaaaaaaaaaa2", 0700));
        assert_ok(symlinkat(id, f.store->root_fd, "aaaaaaaaaaaaaaa3"));
        assert_ok(mkdirat(f.dir.fd, "snapshots/aaaaaaaaaaaaaaa4", 0700));
        assert_ok(mkfifo(path_of(&f, path, "aaaaaaaaaaaaaaa4", "snapshot.json"), 0600));
        assert_ok(mkdirat(f.dir.fd, "snapshots/Some Thing", 0700));
        assert_ok(mkdirat(f.dir.fd, "snapshots/aaaaaaaaaaaaaaa5", 0700));
        char command[400];
        (void) snprintf(command, sizeof(command), "cp %s/%s/* %s/aaaaaaaaaaaaaaa5/", f.root, id, f.root);
        assert_eq(system(command), 0);
        fixture_load(&f);
        assert_eq(f.store->n_snapshots, 1);
        assert_eq(f.store->n_warnings, 6);
        assert_true(warned(&f, "aaaaaaaaaaaaaaa5: its snapshot.json is another's"));
        snapshot_store_clean(f.store);
        assert_true(fixture_there(&f, "aaaaaaaaaaaaaaa5", "snapshot.json"));
}

TEST(files_that_are_not_those_of_the_snapshot_are_refused) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char id[21], path[160], other[160];
        int fd;

        fixture_load(&f);
        Snapshot *t = fixture_publish(&f, SNAPSHOT_TEMPLATE, NULL, 0, 1);
        strcpy(id, fixture_publish(&f, SNAPSHOT_USER, t, 1, 2)->id);
        static const struct {
                const char *name;
                size_t offset;
        } places[] = {
                { "state", offsetof(SnapshotHeader, magic) },
                { "state", offsetof(SnapshotHeader, total_bytes) },
                { "state", offsetof(SnapshotHeader, id) },
                { "state", offsetof(SnapshotHeader, n_sections) },
                { "state", offsetof(SnapshotHeader, crc) },
                { "state", sizeof(SnapshotHeader) },
                { "memory", offsetof(SnapshotLayerHeader, magic) },
                { "memory", offsetof(SnapshotLayerHeader, n_runs) },
                { "memory", offsetof(SnapshotLayerHeader, n_runs) + 3 },
                { "memory", offsetof(SnapshotLayerHeader, id) },
                { "memory", offsetof(SnapshotLayerHeader, parent) },
                { "memory", offsetof(SnapshotLayerHeader, crc) },
                { "memory", sizeof(SnapshotLayerHeader) },
        };
        for (size_t i = 0; i < ELEMENTSOF(places); i++) {
                uint8_t old;

                fd = open(path_of(&f, path, id, places[i].name), O_RDONLY|O_CLOEXEC);
                assert_eq(pread(fd, &old, 1, (off_t) places[i].offset), 1);
                close(fd);
                poke(&f, id, places[i].name, places[i].offset, old ^ 0x40);
                assert_true(refused(&f, id, "a file is missing"));
                poke(&f, id, places[i].name, places[i].offset, old);
        }
        static const char *const names[] = { "state", "memory", "disk" };
        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                (void) path_of(&f, path, id, names[i]);
                (void) path_of(&f, other, id, "aside");
                assert_ok(rename(path, other));
                assert_true(refused(&f, id, "a file is missing"));
                assert_ok(symlink("aside", path));
                assert_true(refused(&f, id, "a file is missing"));
                assert_ok(unlink(path));
                assert_ok(mkfifo(path, 0600));
                assert_true(refused(&f, id, "a file is missing"));
                assert_ok(rename(other, path));
        }
        fixture_load(&f);
        assert_eq(f.store->n_warnings, 0);
        Snapshot *s = snapshot_store_find(f.store, id);
        assert_ok(snapshot_open_file(s, SNAPSHOT_FILE_DISK, &fd));
        assert_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        close(fd);
        assert_true(snapshot_is_whole(s));

        /* shorter, as after a crash */
        assert_ok(truncate(path_of(&f, path, id, "disk"), 4096));
        assert_eq(snapshot_open_file(s, SNAPSHOT_FILE_DISK, &fd), -ESTALE);
        assert_true(!snapshot_is_whole(s));
        assert_true(refused(&f, id, "not as large"));
}

TEST(what_stands_on_what_is_not_there_is_refused) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char a[21], b[21], c[21], path[160];

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        strcpy(a, s->id);
        s = fixture_publish(&f, SNAPSHOT_USER, s, 1, 2);
        strcpy(b, s->id);
        s = fixture_publish(&f, SNAPSHOT_USER, s, 2, 3);
        strcpy(c, s->id);
        assert_ok(unlink(path_of(&f, path, a, "snapshot.json")));
        assert_true(refused(&f, b, "what it stands on is not there"));
        assert_true(warned(&f, c));
        assert_eq(f.store->n_snapshots, 0);
}

TEST(circles_are_refused) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char a[21], b[21], parent[64], itself[64];

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        strcpy(a, s->id);
        strcpy(b, fixture_publish(&f, SNAPSHOT_USER, s, 1, 2)->id);
        (void) snprintf(parent, sizeof(parent), "\"parent\":\"%s\",\"kind\"", b);
        edit_json(&f, a, "\"kind\"", parent);
        assert_true(refused(&f, a, "stands on it"));
        assert_true(warned(&f, b));
        assert_eq(f.store->n_snapshots, 0);

        (void) snprintf(itself, sizeof(itself), "\"parent\":\"%s\",\"kind\"", a);
        edit_json(&f, a, parent, itself);
        assert_true(refused(&f, a, "stands on it"));
        edit_json(&f, a, itself, "\"kind\"");
        fixture_load(&f);
        assert_eq(f.store->n_snapshots, 2);
}

TEST(parents_are_those_that_the_files_were_made_for) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char a[21], b[21], c[21], from[64], to[64];

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        strcpy(a, s->id);
        strcpy(b, fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1)->id);
        strcpy(c, fixture_publish(&f, SNAPSHOT_USER, s, 1, 2)->id);
        (void) snprintf(from, sizeof(from), "\"memory-parent\":\"%s\"", a);
        (void) snprintf(to, sizeof(to), "\"memory-parent\":\"%s\"", b);
        edit_json(&f, c, from, to);
        assert_true(refused(&f, c, "does not stand on that of the snapshot below"));
        edit_json(&f, c, to, from);
        edit_json(&f, a, "\"template\":\"" MADE_TEMPLATE "\"", "\"template\":\"" MADE_SANDBOX "\"");
        assert_true(refused(&f, c, "another template"));
}

TEST(chains_are_as_long_as_a_machine_has_layers) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *s = NULL, *list[SNAPSHOT_LAYERS_MAX];
        char id[21], top[21], from[64], to[64];

        fixture_load(&f);
        for (unsigned i = 0; i < SNAPSHOT_LAYERS_MAX; i++) {
                s = fixture_publish(&f, SNAPSHOT_USER, s, i, 1);
                assert_eq(snapshot_depth(s), i + 1);
        }
        strcpy(top, s->id);
        assert_eq(snapshot_memory_chain(s, list, ELEMENTSOF(list)), SNAPSHOT_LAYERS_MAX);
        assert_true(list[SNAPSHOT_LAYERS_MAX - 1] == s && list[SNAPSHOT_LAYERS_MAX - 2] == s->parent && !list[0]->parent);
        assert_eq(snapshot_memory_chain(s, list, ELEMENTSOF(list) - 1), -E2BIG);
        assert_true(snapshot_stands_on(s, list[0]) && !snapshot_stands_on(list[0], s) && !snapshot_stands_on(s, s));

        Snapshot *above = fixture_new(&f, SNAPSHOT_USER, s->parent, 7, 1);
        assert_eq(snapshot_set_parents(above, s, s), -E2BIG);
        assert_true(above->parent == s->parent);
        assert_ok(snapshot_publish(above));
        strcpy(id, above->id);
        (void) snprintf(from, sizeof(from), "\"memory-parent\":\"%s\"", s->parent->id);
        (void) snprintf(to, sizeof(to), "\"memory-parent\":\"%s\"", s->id);
        edit_json(&f, id, from, to);
        /* the memory file says so too */
        int fd = openat(f.store->root_fd, id, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        int memory = openat(fd, "memory", O_RDWR|O_CLOEXEC);
        write_memory(memory, above->uuid, s->uuid, 7, 1);
        close(memory);
        close(fd);
        assert_true(refused(&f, id, "more layers than a machine can have"));
        assert_true(snapshot_store_find(f.store, top));
}

TEST(works_in_progress_are_not_loaded_and_are_removed) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char begun[32], written[32], id[21], path[160];

        fixture_load(&f);
        /* cubed goes down before snapshot.json, */
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        (void) snprintf(begun, sizeof(begun), ".new-%s", s->id);
        assert_ok(unlink(path_of(&f, path, s->id, "snapshot.json")));
        assert_ok(renameat(f.store->root_fd, s->id, f.store->root_fd, begun));
        /* behind it, */
        s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        (void) snprintf(written, sizeof(written), ".new-%s", s->id);
        assert_ok(renameat(f.store->root_fd, s->id, f.store->root_fd, written));
        /* in a removal, or in a change. */
        assert_ok(mkdirat(f.store->root_fd, ".gone-aaaaaaaaaaaaaaaa", 0700));
        make_file(&f, "snapshots/.gone-aaaaaaaaaaaaaaaa/disk", "x");
        strcpy(id, fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1)->id);
        close(open(path_of(&f, path, id, "snapshot.json.new"), O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
        close(open(path_of(&f, path, id, "memory-1"), O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
        close(open(path_of(&f, path, id, "disk-12"), O_WRONLY|O_CREAT|O_CLOEXEC, 0600));

        fixture_load(&f);
        assert_eq(f.store->n_snapshots, 1);
        assert_eq(f.store->n_warnings, 0);
        snapshot_store_clean(f.store);
        assert_true(fixture_goes(&f, begun, "") && fixture_goes(&f, written, ""));
        assert_true(fixture_goes(&f, ".gone-aaaaaaaaaaaaaaaa", ""));
        assert_true(fixture_goes(&f, id, "snapshot.json.new") && fixture_goes(&f, id, "memory-1") && fixture_goes(&f, id, "disk-12"));
        assert_true(fixture_there(&f, id, "snapshot.json") && fixture_there(&f, id, "state") &&
                    fixture_there(&f, id, "memory") && fixture_there(&f, id, "disk"));
}

TEST(one_that_is_not_published_goes_with_its_directory) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char dir[32];

        fixture_load(&f);
        Snapshot *t = fixture_publish(&f, SNAPSHOT_TEMPLATE, NULL, 0, 1);
        Snapshot *s = fixture_new(&f, SNAPSHOT_USER, t, 0, 1);
        (void) snprintf(dir, sizeof(dir), ".new-%s", s->id);
        assert_true(fixture_there(&f, dir, "disk"));
        assert_eq(t->n_users, 3);
        snapshot_free(s);
        assert_eq(t->n_users, 1);
        assert_true(fixture_goes(&f, dir, ""));
        assert_eq(f.n_added, 1);
        assert_eq(f.n_removed, 0);
}

TEST(only_what_can_be_loaded_is_published) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char path[64];
        int fd;

        fixture_load(&f);
        Snapshot *below = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        Snapshot *s = fixture_new(&f, SNAPSHOT_USER, NULL, 0, 1);
        (void) snprintf(path, sizeof(path), ".new-%s", s->id);
        s->uuid[0]++;
        assert_eq(snapshot_publish(s), -EBADMSG);
        s->uuid[0]--;
        s->name = strdup("a\nb");
        assert_eq(snapshot_publish(s), -EINVAL);
        free(s->name);
        s->name = NULL;
        s->cpu_quota_usec = 0;
        assert_eq(snapshot_publish(s), -EINVAL);
        s->cpu_quota_usec = 1;
        s->kind = SNAPSHOT_TEMPLATE;
        assert_ok(snapshot_set_parents(s, below, NULL));
        assert_eq(snapshot_publish(s), -EINVAL);
        assert_ok(snapshot_set_parents(s, NULL, NULL));
        s->kind = SNAPSHOT_USER;
        (void) strcat(path, "/disk");
        assert_ok(unlinkat(f.store->root_fd, path, 0));
        assert_eq(snapshot_publish(s), -ENOENT);
        assert_eq(f.store->n_snapshots, 1);

        /* the frozen overlay, which has no name yet */
        _cleanup_close_ int overlay = open(f.root, O_TMPFILE|O_RDWR|O_CLOEXEC, 0600);
        if (overlay < 0)
                test_skip("no O_TMPFILE in /tmp");
        assert_eq(pwrite(overlay, "x", 1, 5000), 1);
        assert_ok(snapshot_link_file(s, SNAPSHOT_FILE_DISK, overlay));
        assert_eq(snapshot_link_file(s, SNAPSHOT_FILE_DISK, overlay), -EEXIST);
        assert_ok(snapshot_publish(s));
        assert_eq(snapshot_publish(s), -EALREADY);
        assert_eq(snapshot_create_file(s, SNAPSHOT_FILE_DISK, &fd), -EROFS);
        assert_eq(snapshot_set_parents(s, NULL, NULL), -EROFS);
        assert_ok(snapshot_open_file(s, SNAPSHOT_FILE_DISK, &fd));
        assert_eq(lseek(fd, 0, SEEK_END), 5001);
        close(fd);
}

TEST(what_nobody_asked_for_goes_with_its_last_use) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char a[21], b[21];

        fixture_load(&f);
        Snapshot *t = fixture_publish(&f, SNAPSHOT_TEMPLATE, NULL, 0, 1);
        Snapshot *fork = fixture_publish(&f, SNAPSHOT_FORK, t, 0, 1);
        Snapshot *pause = fixture_publish(&f, SNAPSHOT_PAUSE, fork, 0, 1);
        strcpy(a, fork->id);
        strcpy(b, pause->id);
        snapshot_release(fork);
        assert_eq(f.n_removed, 0);
        snapshot_use(pause);
        snapshot_release(pause);
        assert_eq(f.n_removed, 0);

        /* cubed ends, the sandbox does not */
        f.store->stopping = true;
        snapshot_release(pause);
        assert_eq(f.n_removed, 0);
        snapshot_use(pause);
        f.store->stopping = false;

        /* first it, then what only it stood on; the template's stays */
        snapshot_release(pause);
        assert_eq(f.n_removed, 2);
        assert_true(!snapshot_store_find(f.store, a) && !snapshot_store_find(f.store, b));
        assert_eq(t->n_users, 1);
        assert_true(fixture_goes(&f, a, "") && fixture_goes(&f, b, ""));
        fixture_load(&f);
        assert_eq(f.store->n_snapshots, 1);
}

static bool nothing_is_owned(const Snapshot *s, void *userdata) {
        return false;
}

TEST(what_nobody_has_taken_up_again_is_cleaned) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char fork[21], user[21], used[21], number[21], below[21];

        fixture_load(&f);
        strcpy(fork, fixture_publish(&f, SNAPSHOT_FORK, NULL, 0, 1)->id);
        strcpy(user, fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1)->id);
        strcpy(used, fixture_publish(&f, SNAPSHOT_PAUSE, NULL, 0, 1)->id);
        strcpy(number, fixture_publish(&f, SNAPSHOT_CHECKPOINT, NULL, 0, 1)->id);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_CHECKPOINT, NULL, 0, 1);
        strcpy(below, s->id);
        (void) fixture_publish(&f, SNAPSHOT_USER, s, 0, 1);

        fixture_load(&f);
        snapshot_use(snapshot_store_find(f.store, used));
        snapshot_store_clean(f.store);
        assert_true(!snapshot_store_find(f.store, fork));
        assert_true(snapshot_store_find(f.store, number));
        f.store->owned = nothing_is_owned;
        unsigned before = f.n_changed;
        snapshot_store_clean(f.store);
        assert_true(snapshot_store_find(f.store, user) && snapshot_store_find(f.store, used));
        assert_true(!snapshot_store_find(f.store, number));
        while (f.n_changed == before)
                assert_true(sd_event_run(f.event, 60 * USEC_PER_SEC) > 0);
        assert_eq(snapshot_store_find(f.store, below)->kind, SNAPSHOT_LAYER);
        assert_true(fixture_goes(&f, fork, "") && fixture_goes(&f, number, "") && fixture_goes(&f, below, "state"));
}

static bool all_are_owned(const Snapshot *s, void *userdata) {
        return true;
}

TEST(that_of_a_paused_sandbox_that_could_not_be_loaded_stays) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char pause[21];

        fixture_load(&f);
        strcpy(pause, fixture_publish(&f, SNAPSHOT_PAUSE, NULL, 0, 1)->id);
        fixture_load(&f);
        f.store->owned = all_are_owned;
        snapshot_store_clean(f.store);
        assert_true(snapshot_store_find(f.store, pause));
        f.store->owned = nothing_is_owned;
        snapshot_store_clean(f.store);
        assert_true(fixture_goes(&f, pause, ""));
}

TEST(a_removal_takes_the_files_with_it) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char id[21];

        fixture_load(&f);
        Snapshot *t = fixture_publish(&f, SNAPSHOT_TEMPLATE, NULL, 0, 1);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, t, 0, 1);
        strcpy(id, s->id);
        snapshot_release(s);
        assert_eq(snapshot_remove(t, on_fixture_done, &f), -EBUSY);
        assert_ok(snapshot_remove(s, on_fixture_done, &f));
        assert_true(!snapshot_store_find(f.store, id));
        assert_ok(fixture_wait(&f, 0));
        assert_true(!fixture_there(&f, id, ""));
        assert_eq(f.n_removed, 1);
        assert_eq(t->n_users, 1);
        snapshot_release(t);
        assert_ok(fixture_wait(&f, snapshot_remove(t, on_fixture_done, &f)));
        fixture_load(&f);
        assert_eq(f.store->n_snapshots + f.store->n_warnings, 0);
}

TEST(a_removal_that_cube_stored_does_not_take_is_none) {
        _cleanup_fixture_ Fixture f = fixture_make();

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        store_client_detach(f.client);
        assert_eq(snapshot_remove(s, on_fixture_done, &f), -ENOTCONN);
        snapshot_release(s);
        assert_eq(snapshot_remove(s, on_fixture_done, &f), -ENOTCONN);
        assert_true(f.store->n_snapshots == 1 && f.n_removed == 0 && s->kind == SNAPSHOT_USER && s->n_users == 0);
        assert_true(fixture_there(&f, s->id, "state"));
        fixture_kill_stored(&f);
        fixture_start_stored(&f);
        assert_ok(fixture_wait(&f, snapshot_remove(s, on_fixture_done, &f)));
}

TEST(what_others_stand_on_is_not_removed) {
        _cleanup_fixture_ Fixture f = fixture_make();

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        Snapshot *layer = fixture_publish(&f, SNAPSHOT_FORK, s, 1, 1);
        Snapshot *user = fixture_publish(&f, SNAPSHOT_USER, layer, 2, 1);
        Snapshot *own = fixture_publish(&f, SNAPSHOT_CHECKPOINT, layer, 3, 1);
        Snapshot *own_pause = fixture_publish(&f, SNAPSHOT_PAUSE, layer, 4, 1);
        Snapshot *other_pause = fixture_publish(&f, SNAPSHOT_PAUSE, layer, 5, 1);
        free(other_pause->sandbox_id);
        other_pause->sandbox_id = strdup("oooooooooooooooo");

        assert_eq(snapshot_remove(s, on_fixture_done, &f), -EBUSY);
        bool found_user = false, found_pause = false;
        unsigned n = 0;
        for (Snapshot *t = NULL; (t = snapshot_next_above(s, t));) {
                found_user |= t == user;
                found_pause |= t == other_pause;
                n++;
        }
        assert_true(n == 2 && found_user && found_pause);
        assert_true(!snapshot_next_above(user, NULL));

        /* a checkpoint is nobody's concern */
        assert_ok(fixture_wait(&f, snapshot_remove(own, on_fixture_done, &f)));
        assert_eq(own->kind, SNAPSHOT_LAYER);
        snapshot_release(user);
        assert_ok(fixture_wait(&f, snapshot_remove(user, on_fixture_done, &f)));
        assert_eq(snapshot_remove(s, on_fixture_done, &f), -EBUSY);
        snapshot_release(other_pause);
        assert_true(own_pause->parent == layer);
        assert_ok(fixture_wait(&f, snapshot_remove(s, on_fixture_done, &f)));
        assert_eq(s->kind, SNAPSHOT_LAYER);
}

TEST(one_that_its_own_sandbox_runs_on_becomes_a_layer) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char id[21];
        int fd;

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        strcpy(id, s->id);
        assert_ok(fixture_wait(&f, snapshot_sync(s, on_fixture_done, &f)));
        /* in the middle of another change */
        assert_ok(snapshot_sync(s, NULL, NULL));
        assert_ok(fixture_wait(&f, snapshot_remove(s, on_fixture_done, &f)));
        /* The other change has a use of it, and may take longer. */
        while (s->n_users > 1)
                assert_ok(sd_event_run(f.event, UINT64_MAX));
        assert_true(s->kind == SNAPSHOT_LAYER && s->durable && s->n_users == 1);
        assert_true(!fixture_there(&f, id, "state"));
        assert_eq(s->file_bytes[SNAPSHOT_FILE_STATE], 0);
        assert_eq(snapshot_open_file(s, SNAPSHOT_FILE_STATE, &fd), -ENOENT);
        assert_ok(snapshot_open_file(s, SNAPSHOT_FILE_MEMORY, &fd));
        close(fd);
        assert_true(!snapshot_next_above(s, NULL));

        fixture_load(&f);
        s = snapshot_store_find(f.store, id);
        assert_true(s && s->kind == SNAPSHOT_LAYER && s->has_memory);
        snapshot_use(s);

        /* cubed went down between snapshot.json and the state file */
        char path[160];
        close(open(path_of(&f, path, id, "state"), O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
        snapshot_store_clean(f.store);
        assert_true(fixture_goes(&f, id, "state"));
        snapshot_release(s);
        assert_true(fixture_goes(&f, id, ""));
}

TEST(changes_wait_for_each_other) {
        _cleanup_fixture_ Fixture f = fixture_make();
        char id[21];

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        strcpy(id, s->id);
        assert_ok(snapshot_sync(s, on_fixture_done, &f));
        assert_ok(snapshot_remove(s, on_fixture_done, &f));
        assert_ok(snapshot_sync(s, on_fixture_done, &f));
        assert_ok(snapshot_remove(s, on_fixture_done, &f));
        fixture_wait_all(&f, 4);
        fixture_load(&f);
        s = snapshot_store_find(f.store, id);
        assert_true(s && s->durable && s->kind == SNAPSHOT_LAYER);
}

static void remove_when_done(Snapshot *s, int error, void *userdata) {
        Fixture *f = userdata;

        assert_ok(error);
        assert_ok(snapshot_remove(s, on_fixture_done, f));
}

TEST(who_hears_of_a_change_may_ask_for_the_next_one) {
        _cleanup_fixture_ Fixture f = fixture_make();

        fixture_load(&f);
        Snapshot *s = fixture_publish(&f, SNAPSHOT_USER, NULL, 0, 1);
        snapshot_use(s);
        assert_ok(snapshot_sync(s, remove_when_done, &f));
        fixture_wait_all(&f, 1);
        assert_true(s->durable && s->kind == SNAPSHOT_LAYER);
        snapshot_release(s);
}

TEST(kinds_have_names) {
        for (int i = 0; i < _SNAPSHOT_KIND_MAX; i++)
                assert_eq(snapshot_kind_from_string(snapshot_kind_to_string((SnapshotKind) i)), i);
        assert_eq(snapshot_kind_from_string("x"), _SNAPSHOT_KIND_INVALID);
        assert_eq(snapshot_kind_from_string(NULL), _SNAPSHOT_KIND_INVALID);
        assert_true(!snapshot_kind_to_string(_SNAPSHOT_KIND_INVALID));
}
