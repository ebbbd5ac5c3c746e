/* SPDX-License-Identifier: Apache-2.0 */

/* Memory files made by a real cube-stored: pages copied out of a child of this program, and files merged. A guest's
 * memory in here is a Model: what each of its pages holds, or that no layer tells. */

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <zlib.h>

#include "base/clock.h"
#include "tests/unit/real-stored.h"
#include "tests/unit/test.h"

#define PAGE SNAPSHOT_PAGE_BYTES
#define PAGES 20000U
#define MEM_BYTES ((uint64_t) PAGES * PAGE)
#define RUNS_MAX SNAPSHOT_LAYER_RUNS_MAX

/* A page's number is in its first bytes, the rest are zeros. */
#define NOT_TOLD UINT32_MAX
typedef struct Model {
        uint32_t pages[PAGES];
} Model;

static const SnapshotRun no_runs[1];

static RealStored stored;
static int result;
static uint64_t got_data, got_zero;

static void start(void) {
        if (!stored.client && real_stored_start(&stored) < 0)
                test_skip("cube-stored is not built");
}

static void on_answer(int error, void *userdata) {
        result = error;
}

static void on_memory(int error, uint64_t data_bytes, uint64_t zero_bytes, void *userdata) {
        result = error;
        got_data = data_bytes;
        got_zero = zero_bytes;
}

static void make_id(uint8_t id[static SNAPSHOT_ID_BYTES], unsigned n) {
        memset(id, (int) n, SNAPSHOT_ID_BYTES);
}

/* Memory files */

static uint32_t checksum(const SnapshotLayerHeader *header, const SnapshotRun *runs) {
        SnapshotLayerHeader h = *header;

        h.crc = 0;
        return (uint32_t) crc32(crc32(0, (const Bytef *) &h, sizeof(h)), (const Bytef *) runs,
                                (uInt) (h.n_runs * sizeof(*runs)));
}

/* As strict as the VMM that will map it. */
static size_t read_layer(int fd, Model *ret, SnapshotLayerHeader *h) {
        static SnapshotRun runs[RUNS_MAX];
        struct stat st;
        uint64_t end = 0;

        assert_ok(fstat(fd, &st));
        assert_eq(pread(fd, h, sizeof(*h), 0), sizeof(*h));
        assert_true(memcmp(h->magic, SNAPSHOT_LAYER_MAGIC, 8) == 0 && h->version == SNAPSHOT_LAYER_VERSION);
        assert_true(h->n_runs <= RUNS_MAX);
        assert_eq(pread(fd, runs, h->n_runs * sizeof(*runs), sizeof(*h)), h->n_runs * sizeof(*runs));
        assert_eq(checksum(h, runs), h->crc);
        memset(ret, 0xff, sizeof(*ret));
        for (uint32_t i = 0; i < h->n_runs; i++) {
                assert_true(runs[i].gpa >= end && runs[i].bytes > 0);
                assert_eq((runs[i].gpa | runs[i].bytes) % PAGE, 0);
                end = runs[i].gpa + runs[i].bytes;
                for (uint64_t at = 0; at < runs[i].bytes; at += PAGE) {
                        uint32_t *page = &ret->pages[(runs[i].gpa + at) / PAGE];

                        *page = 0;
                        if (runs[i].file_offset == SNAPSHOT_RUN_ZERO)
                                continue;
                        assert_eq(runs[i].file_offset % PAGE, 0);
                        assert_true(runs[i].file_offset + at + PAGE <= (uint64_t) st.st_size);
                        assert_eq(pread(fd, page, sizeof(*page), (off_t) (runs[i].file_offset + at)), sizeof(*page));
                }
        }
        return h->n_runs;
}

static void seal(int fd, uint64_t mem_bytes, unsigned id, unsigned parent, const SnapshotRun *runs, size_t n) {
        SnapshotLayerHeader h = {
                .magic = SNAPSHOT_LAYER_MAGIC,
                .version = SNAPSHOT_LAYER_VERSION,
                .n_runs = (uint32_t) n,
                .mem_bytes = mem_bytes,
        };

        make_id(h.id, id);
        make_id(h.parent, parent);
        h.crc = checksum(&h, runs);
        assert_eq(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
        assert_eq(pwrite(fd, runs, n * sizeof(*runs), sizeof(h)), n * sizeof(*runs));
}

/* A layer with a run for each stretch of pages of one kind; those not told are in no run. */
static int layer_of(const Model *m, unsigned id, unsigned parent) {
        static SnapshotRun runs[RUNS_MAX];
        uint64_t offset = 32 * PAGE;
        int fd = real_stored_file();
        size_t n = 0;

        assert_ok(fd);
        for (uint32_t i = 0; i < PAGES; i++) {
                uint32_t page = m->pages[i];
                bool zero = page == 0;

                if (page == NOT_TOLD)
                        continue;
                if (n > 0 && runs[n - 1].gpa + runs[n - 1].bytes == (uint64_t) i * PAGE &&
                    (runs[n - 1].file_offset == SNAPSHOT_RUN_ZERO) == zero)
                        runs[n - 1].bytes += PAGE;
                else {
                        assert_true(n < RUNS_MAX);
                        runs[n++] = (SnapshotRun) { (uint64_t) i * PAGE, PAGE, zero ? SNAPSHOT_RUN_ZERO : offset };
                }
                if (!zero) {
                        assert_eq(pwrite(fd, &page, sizeof(page), (off_t) offset), sizeof(page));
                        offset += PAGE;
                }
        }
        assert_ok(ftruncate(fd, (off_t) offset));
        seal(fd, MEM_BYTES, id, parent, runs, n);
        return fd;
}

static Model *model_new(void) {
        Model *m = malloc(sizeof(*m));

        assert_true(m);
        memset(m, 0xff, sizeof(*m));
        return m;
}

static uint64_t space_used(int fd) {
        struct stat st;

        assert_ok(fstat(fd, &st));
        return (uint64_t) st.st_blocks * 512;
}

/* Saving */

typedef struct Guest {
        pid_t pid;
        int pid_fd;
        uint8_t *memory;          /* at the same address in both processes */
        VmmRun runs[RUNS_MAX];
        size_t n_runs;
} Guest;

static void guest_stop(Guest *g) {
        if (g->pid > 0) {
                (void) kill(g->pid, SIGKILL);
                (void) waitpid(g->pid, NULL, 0);
        }
        if (g->memory) {
                safe_close(g->pid_fd);
                (void) munmap(g->memory, MEM_BYTES);
        }
        g->pid = 0;
        g->memory = NULL;
}

/* A process whose memory holds m; what isn't told is in no run, and full of something else. */
static void guest_start(Guest *g, const Model *m) {
        *g = (Guest) { .pid_fd = -EBADF };
        g->memory = mmap(NULL, MEM_BYTES, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
        assert_true(g->memory != MAP_FAILED);
        for (uint32_t i = 0; i < PAGES; i++)
                if (m->pages[i] != 0)
                        memcpy(g->memory + (uint64_t) i * PAGE, &m->pages[i], sizeof(uint32_t));
        for (uint32_t i = 0; i < PAGES; i++) {
                VmmRun *last = g->n_runs > 0 ? &g->runs[g->n_runs - 1] : NULL;
                uint64_t gpa = (uint64_t) i * PAGE;

                if (m->pages[i] == NOT_TOLD)
                        continue;
                if (last && last->gpa + last->bytes == gpa)
                        last->bytes += PAGE;
                else {
                        assert_true(g->n_runs < RUNS_MAX);
                        g->runs[g->n_runs++] = (VmmRun) { gpa, PAGE, (uintptr_t) g->memory + gpa };
                }
        }
        g->pid = fork();
        if (g->pid == 0) {
                /* A test that fails leaves it behind. */
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                        pause();
        }
        assert_true(g->pid > 0);
        g->pid_fd = (int) syscall(SYS_pidfd_open, g->pid, 0);
        assert_ok(g->pid_fd);
}

static int save_runs(const Guest *g, const VmmRun *runs, size_t n_runs, unsigned parent, int fd) {
        StoreMemory m = { .pid_fd = g->pid_fd, .runs = runs, .n_runs = n_runs, .mem_bytes = MEM_BYTES };

        make_id(m.id, 9);
        make_id(m.parent, parent);
        result = 1;
        got_data = got_zero = 0;
        int r = real_stored_wait(&stored, store_client_save_memory(stored.client, &m, fd, on_memory, NULL), &result);
        if (r == -EPERM && geteuid() != 0)
                test_skip("no privileges to read a process");
        return r;
}

static int save(const Guest *g, unsigned parent, int fd) {
        return save_runs(g, g->runs, g->n_runs, parent, fd);
}

/* Saves m, and compares. Zeros that are left out read as not told. */
static size_t check_save(const Model *m, unsigned parent) {
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_close_ int fd = real_stored_file();
        _cleanup_free_ Model *got = model_new();
        SnapshotLayerHeader h;
        uint64_t n_data = 0, n_zero = 0;

        start();
        guest_start(&g, m);
        assert_ok(save(&g, parent, fd));
        size_t n_runs = read_layer(fd, got, &h);
        for (uint32_t i = 0; i < PAGES; i++) {
                bool told = got->pages[i] != NOT_TOLD;

                n_data += m->pages[i] != NOT_TOLD && m->pages[i] != 0;
                n_zero += m->pages[i] == 0;
                if (m->pages[i] != 0 || told || parent != 0)
                        assert_eq(got->pages[i], m->pages[i]);
        }
        assert_eq(got_data, n_data * PAGE);
        assert_eq(got_zero, n_zero * PAGE);
        /* Zeros take no place; the rest is for header, table and what the file system needs. */
        assert_true(space_used(fd) <= n_data * PAGE + KIB(256));
        assert_eq(h.mem_bytes, MEM_BYTES);
        assert_eq(h.id[0], 9);
        assert_eq(h.parent[0], parent);
        return n_runs;
}

TEST(pages_are_copied_out_of_a_process) {
        _cleanup_free_ Model *m = model_new();

        for (uint32_t i = 0; i < 3000; i++)
                m->pages[i + 5] = i + 1;
        m->pages[PAGES - 1] = 7;
        assert_eq(check_save(m, 1), 2);
}

TEST(zeros_over_a_layer_are_told) {
        _cleanup_free_ Model *m = model_new();

        for (uint32_t i = 0; i < 10; i++)
                m->pages[i] = i % 5 == 0 ? 0 : i;
        m->pages[100] = 0;
        assert_eq(check_save(m, 1), 5);
}

TEST(zeros_over_nothing_are_left_out) {
        _cleanup_free_ Model *m = model_new();

        for (uint32_t i = 0; i < 10; i++)
                m->pages[i] = i % 5 == 0 ? 0 : i;
        m->pages[100] = 0;
        assert_eq(check_save(m, 0), 2);
}

TEST(nothing_to_save_is_an_empty_layer) {
        _cleanup_free_ Model *m = model_new();

        assert_eq(check_save(m, 1), 0);
}

TEST(zeros_in_many_places_become_data) {
        _cleanup_free_ Model *m = model_new();

        for (uint32_t i = 0; i < PAGES; i++)
                m->pages[i] = i % 2 == 0 ? 0 : i;
        /* Long enough to be worth their runs. */
        memset(m->pages + 5000, 0, 1000 * sizeof(uint32_t));
        size_t n = check_save(m, 1);
        assert_true(n > 2 && n <= RUNS_MAX);
        assert_true(check_save(m, 0) <= RUNS_MAX);
}

TEST(as_many_runs_as_there_can_be_hold_zeros_too) {
        _cleanup_free_ Model *m = model_new();

        /* 4096 runs: data, zeros, both in either order, or many times */
        for (uint32_t run = 0; run < RUNS_MAX; run++)
                for (uint32_t k = 0; k < 3; k++)
                        m->pages[run * 4 + k] = ((run % 8) >> k) & 1 ? run + 1 : 0;
        assert_eq(check_save(m, 1), RUNS_MAX);
}

TEST(random_memory_is_saved) {
        for (unsigned seed = 0; seed < 8; seed++) {
                _cleanup_free_ Model *m = model_new();
                uint32_t longest = seed % 2 == 0 ? 8 : 300;

                srand(seed);
                for (uint32_t i = 0, n_runs = 0; i < PAGES && n_runs < RUNS_MAX; n_runs++) {
                        i += 1 + (uint32_t) rand() % longest;
                        for (uint32_t end = i + 1 + (uint32_t) rand() % longest; i < end && i < PAGES; i++)
                                m->pages[i] = rand() % 3 == 0 ? 0 : i + 1;
                }
                assert_true(check_save(m, seed % 3) <= RUNS_MAX);
        }
}

TEST(runs_that_meet_in_the_process_become_one) {
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_free_ Model *m = model_new(), *got = model_new();
        _cleanup_close_ int fd = real_stored_file();
        SnapshotLayerHeader h;
        VmmRun runs[2];

        start();
        m->pages[1] = m->pages[2] = 3;
        guest_start(&g, m);
        for (unsigned i = 0; i < 2; i++)
                runs[i] = (VmmRun) { (i + 1) * PAGE, PAGE, (uintptr_t) g.memory + (i + 1) * PAGE };
        assert_ok(save_runs(&g, runs, 2, 1, fd));
        assert_eq(read_layer(fd, got, &h), 1);
        assert_eq(got->pages[2], 3);
}

TEST(runs_that_cannot_be_are_refused) {
        static const VmmRun bad[][2] = {
                { { 0, 0, 0 }, { PAGE, PAGE, 0 } },
                { { 1, PAGE, 0 }, { 2 * PAGE, PAGE, 0 } },
                { { 0, PAGE + 1, 0 }, { 2 * PAGE, PAGE, 0 } },
                { { PAGE, PAGE, 0 }, { 0, PAGE, 0 } },
                { { 0, 2 * PAGE, 0 }, { PAGE, PAGE, 0 } },
                { { 0, MEM_BYTES, 0 }, { MEM_BYTES, PAGE, 0 } },
                { { 0, PAGE, 0 }, { UINT64_MAX - PAGE + 1, PAGE, 0 } },
                { { 0, PAGE, 0 }, { PAGE, UINT64_MAX - PAGE + 1, 0 } },
                { { 0, PAGE, 0 }, { PAGE, PAGE, UINT64_MAX - 5 } },
        };
        _cleanup_close_ int fd = real_stored_file();
        _cleanup_close_ int self = (int) syscall(SYS_pidfd_open, getpid(), 0);
        Guest g = { .pid_fd = self };

        start();
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_eq(save_runs(&g, bad[i], 2, 1, fd), -EBADMSG);
}

TEST(what_is_not_mapped_is_an_error) {
        static const VmmRun run = { 0, PAGE, 0x1000 };
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int fd = real_stored_file();

        start();
        m->pages[0] = 1;
        guest_start(&g, m);
        assert_eq(save_runs(&g, &run, 1, 1, fd), -EFAULT);
}

TEST(a_process_that_is_gone_is_told) {
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int fd = real_stored_file();

        start();
        m->pages[0] = 1;
        guest_start(&g, m);
        assert_ok(kill(g.pid, SIGKILL));
        assert_eq(waitpid(g.pid, NULL, 0), g.pid);
        int r = save(&g, 1, fd);
        g.pid = 0;
        assert_eq(r, -ESRCH);
}

TEST(a_process_that_got_the_pid_of_one_that_is_gone_is_not_read) {
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int fd = real_stored_file();
        SnapshotLayerHeader h;

        start();
        m->pages[0] = 1;
        guest_start(&g, m);
        assert_ok(kill(g.pid, SIGKILL));
        assert_eq(waitpid(g.pid, NULL, 0), g.pid);
        struct clone_args args = {
                .exit_signal = SIGCHLD, .set_tid = (uintptr_t) &g.pid, .set_tid_size = 1,
        };
        pid_t again = (pid_t) syscall(SYS_clone3, &args, sizeof(args));
        if (again == 0) {
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                        pause();
        }
        if (again < 0) {
                g.pid = 0;
                test_skip("no privileges to choose a pid");
        }
        assert_eq(again, g.pid);
        assert_eq(save(&g, 1, fd), -ESRCH);
        assert_eq(pread(fd, &h, sizeof(h), 0), 0);
}

TEST(what_is_no_process_is_refused) {
        _cleanup_close_ int fd = real_stored_file(), other = real_stored_file();
        static const VmmRun run = { 0, PAGE, 0x1000 };
        Guest g = { .pid_fd = other };

        start();
        assert_eq(save_runs(&g, &run, 1, 1, fd), -EBADF);
}

TEST(only_an_empty_file_is_written) {
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int fd = real_stored_file();

        start();
        m->pages[0] = 1;
        guest_start(&g, m);
        assert_eq(write(fd, "x", 1), 1);
        assert_eq(save(&g, 1, fd), -EINVAL);
}

TEST(a_full_disk_is_an_error_and_leaves_no_memory_file) {
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_free_ Model *m = model_new();
        uint8_t magic[8];

        start();
        _cleanup_close_ int fd = real_stored_small_file(KIB(512)), other = real_stored_small_file(KIB(512));
        if (fd == -EPERM)
                test_skip("no privileges to make a small file system");
        assert_ok(fd);
        for (uint32_t i = 0; i < 1000; i++)
                m->pages[i] = 1;
        guest_start(&g, m);
        assert_eq(save(&g, 1, fd), -ENOSPC);
        assert_eq(pread(fd, magic, sizeof(magic), 0), sizeof(magic));
        assert_true(memcmp(magic, SNAPSHOT_LAYER_MAGIC, sizeof(magic)) != 0);

        _cleanup_close_ int layer = layer_of(m, 1, 0);
        result = 1;
        assert_eq(real_stored_wait(&stored, store_client_merge_memory(stored.client, &layer, 1, 0, other, on_answer,
                                                                      NULL), &result), -ENOSPC);
}

/* Merging */

static int merge(const int *layers, size_t n, size_t n_beneath, int fd) {
        result = 1;
        return real_stored_wait(&stored, store_client_merge_memory(stored.client, layers, n, n_beneath, fd, on_answer,
                                                                   NULL), &result);
}

/* Layers with the ids 1, 2.., over parent. */
static void open_layers(Model *const *models, size_t n, unsigned parent, int *fds) {
        for (size_t i = 0; i < n; i++)
                fds[i] = layer_of(models[i], 10 + (unsigned) i, i == 0 ? parent : 9 + (unsigned) i);
}

static void close_layers(int *fds, size_t n) {
        for (size_t i = 0; i < n; i++)
                fds[i] = safe_close(fds[i]);
}

/* The runs of the result, which reads as the layers do one page after the other. Pages of no layer that is merged are
 * not told, or as they are beneath. */
static size_t check_merge(Model *const *models, size_t n, size_t n_beneath, unsigned parent) {
        _cleanup_free_ Model *got = model_new();
        _cleanup_close_ int fd = real_stored_file();
        int fds[SNAPSHOT_LAYERS_MAX];
        SnapshotLayerHeader h;

        start();
        open_layers(models, n, parent, fds);
        int r = merge(fds, n, n_beneath, fd);
        close_layers(fds, n);
        assert_ok(r);
        size_t n_runs = read_layer(fd, got, &h);
        assert_eq(h.id[0], 9 + n);
        assert_eq(h.parent[0], n_beneath == 0 ? parent : 9 + n_beneath);
        for (uint32_t i = 0; i < PAGES; i++) {
                uint32_t merged = NOT_TOLD, beneath = NOT_TOLD;

                for (size_t k = 0; k < n; k++)
                        if (models[k]->pages[i] != NOT_TOLD)
                                *(k < n_beneath ? &beneath : &merged) = models[k]->pages[i];
                if (beneath == NOT_TOLD && parent == 0)
                        beneath = 0;
                if (merged == NOT_TOLD && got->pages[i] != NOT_TOLD)
                        assert_eq(got->pages[i], beneath);
                else if (merged == 0 && got->pages[i] == NOT_TOLD)
                        assert_true(n_beneath == 0 && parent == 0);
                else
                        assert_eq(got->pages[i], merged);
        }
        return n_runs;
}

TEST(the_upper_layer_wins_and_what_meets_is_one_run) {
        Model *models[] = { model_new(), model_new() };

        for (uint32_t i = 0; i < 8; i++)
                models[0]->pages[i] = 1;
        models[1]->pages[3] = 2;
        models[1]->pages[8] = 2;
        models[1]->pages[5] = 0;
        assert_eq(check_merge(models, 2, 0, 1), 3);
        assert_eq(check_merge(models, 2, 0, 0), 2);
        free(models[0]);
        free(models[1]);
}

TEST(random_layers_are_merged_as_page_by_page) {
        for (unsigned seed = 0; seed < 20; seed++) {
                Model *models[SNAPSHOT_LAYERS_MAX];

                srand(seed);
                size_t n = 1 + (unsigned) rand() % SNAPSHOT_LAYERS_MAX, n_beneath = (size_t) rand() % n;
                uint32_t step = seed % 4 == 0 ? 6 : 400;
                for (size_t k = 0; k < n; k++) {
                        models[k] = model_new();
                        for (uint32_t i = 0, n_runs = 0; i < PAGES && n_runs < RUNS_MAX; n_runs++) {
                                uint32_t page = rand() % 4 == 0 ? 0 : (uint32_t) rand() % 100000 + 1;

                                i += 1 + (uint32_t) rand() % step;
                                for (uint32_t end = i + 1 + (uint32_t) rand() % step; i < end && i < PAGES; i++)
                                        models[k]->pages[i] = page;
                        }
                }
                assert_true(check_merge(models, n, n_beneath, seed % 2 == 0 ? 0 : 1) <= RUNS_MAX);
                for (size_t k = 0; k < n; k++)
                        free(models[k]);
        }
}

/* Two layers that together have 8192 runs, over one that is full. */
static void scatter(Model *models[static 3]) {
        for (unsigned k = 0; k < 3; k++)
                models[k] = model_new();
        for (uint32_t i = 0; i < PAGES; i++)
                models[0]->pages[i] = i + 1;
        for (uint32_t i = 0; i < RUNS_MAX; i++) {
                models[1]->pages[i * 4] = 70000;
                models[2]->pages[i * 4 + 2] = i % 3 == 0 ? 0 : 80000;
        }
}

TEST(too_many_runs_are_joined_by_what_lies_between_them) {
        Model *models[3];

        scatter(models);
        assert_true(check_merge(models, 3, 1, 0) <= RUNS_MAX);
        assert_true(check_merge(models + 1, 2, 0, 0) <= RUNS_MAX);
        for (unsigned k = 0; k < 3; k++)
                free(models[k]);
}

TEST(too_many_runs_over_an_unknown_layer_are_an_error) {
        _cleanup_close_ int fd = real_stored_file();
        Model *models[3];
        int fds[2];

        start();
        scatter(models);
        open_layers(models + 1, 2, 1, fds);
        int r = merge(fds, 2, 0, fd);
        close_layers(fds, 2);
        for (unsigned k = 0; k < 3; k++)
                free(models[k]);
        assert_eq(r, -E2BIG);
}

TEST(no_run_is_made_across_regions_of_memory) {
        const uint64_t edge = SNAPSHOT_REGION_ALIGN, offset = 32 * PAGE;
        const SnapshotRun low = { edge - PAGE, PAGE, offset }, high = { edge, PAGE, offset };
        _cleanup_close_ int a = real_stored_file(), b = real_stored_file(), fd = real_stored_file();
        int fds[] = { a, b };
        SnapshotLayerHeader h;

        start();
        assert_ok(ftruncate(a, (off_t) (offset + PAGE)));
        assert_ok(ftruncate(b, (off_t) (offset + PAGE)));
        seal(a, 2 * edge, 1, 0, &low, 1);
        seal(b, 2 * edge, 2, 1, &high, 1);
        assert_ok(merge(fds, 2, 0, fd));
        assert_eq(pread(fd, &h, sizeof(h), 0), sizeof(h));
        assert_eq(h.n_runs, 2);
}

/* Hostile files */

static int merge_one(int layer) {
        _cleanup_close_ int fd = real_stored_file();
        return merge(&layer, 1, 0, fd);
}

TEST(any_byte_of_header_and_table_that_changed_is_noticed) {
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int layer = -EBADF;
        size_t size = sizeof(SnapshotLayerHeader) + 2 * sizeof(SnapshotRun);

        start();
        m->pages[3] = 1;
        m->pages[5] = 0;
        layer = layer_of(m, 1, 0);
        assert_ok(merge_one(layer));
        for (size_t i = 0; i < size; i++) {
                uint8_t was, is;

                assert_eq(pread(layer, &was, 1, (off_t) i), 1);
                is = was ^ 0x11;
                assert_eq(pwrite(layer, &is, 1, (off_t) i), 1);
                int r = merge_one(layer);
                assert_true(r == -EBADMSG || r == -EPROTONOSUPPORT);
                assert_eq(pwrite(layer, &was, 1, (off_t) i), 1);
        }
        assert_ok(merge_one(layer));
}

TEST(runs_out_of_place_are_refused) {
        static const SnapshotRun bad[][2] = {
                { { 0, PAGE, 32 * PAGE }, { 0, PAGE, 32 * PAGE } },
                { { 2 * PAGE, PAGE, 32 * PAGE }, { PAGE, PAGE, 32 * PAGE } },
                { { 1, PAGE, 32 * PAGE }, { 2 * PAGE, PAGE, 32 * PAGE } },
                { { 0, 0, 32 * PAGE }, { PAGE, PAGE, 32 * PAGE } },
                { { 0, PAGE, 32 * PAGE }, { PAGE, 100, 32 * PAGE } },
                { { 0, PAGE, 32 * PAGE }, { PAGE, PAGE, 32 * PAGE + 8 } },
                { { 0, PAGE, 32 * PAGE }, { PAGE, PAGE, 64 * PAGE } },
                { { 0, PAGE, 32 * PAGE }, { PAGE, PAGE, UINT64_MAX - PAGE + 1 } },
                { { 0, PAGE, 32 * PAGE }, { PAGE, MEM_BYTES, SNAPSHOT_RUN_ZERO } },
                { { 0, PAGE, 32 * PAGE }, { UINT64_MAX - PAGE + 1, PAGE, SNAPSHOT_RUN_ZERO } },
                { { 0, PAGE, 32 * PAGE }, { PAGE, UINT64_MAX - PAGE + 1, SNAPSHOT_RUN_ZERO } },
        };
        _cleanup_close_ int layer = real_stored_file();

        start();
        assert_ok(ftruncate(layer, 64 * PAGE));
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                seal(layer, MEM_BYTES, 1, 0, bad[i], 2);
                assert_eq(merge_one(layer), -EBADMSG);
        }
}

TEST(layers_that_do_not_stand_on_each_other_are_refused) {
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int fd = real_stored_file();
        int fds[2];

        start();
        m->pages[0] = 1;
        fds[0] = layer_of(m, 1, 0);
        fds[1] = layer_of(m, 3, 2);
        assert_eq(merge(fds, 2, 0, fd), -EBADMSG);
        seal(fds[1], MEM_BYTES + PAGE, 2, 1, no_runs, 0);
        assert_eq(merge(fds, 2, 0, fd), -EBADMSG);
        seal(fds[1], MEM_BYTES, 2, 1, no_runs, 0);
        assert_ok(merge(fds, 2, 0, fd));
        close_layers(fds, 2);
}

TEST(what_is_no_memory_file_is_refused) {
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int empty = real_stored_file(), fd = real_stored_file();
        int layers[SNAPSHOT_LAYERS_MAX + 1], ends[2];

        start();
        assert_eq(merge_one(empty), -EBADMSG);
        assert_ok(pipe2(ends, O_CLOEXEC));
        assert_eq(merge_one(ends[0]), -EINVAL);
        m->pages[0] = 1;
        for (size_t i = 0; i < ELEMENTSOF(layers); i++)
                layers[i] = layer_of(m, 1 + (unsigned) i, (unsigned) i);
        assert_eq(merge(layers, ELEMENTSOF(layers), 0, fd), -EINVAL);
        assert_eq(merge(layers, 2, 2, fd), -EINVAL);
        /* cut off behind its header */
        assert_ok(ftruncate(layers[0], sizeof(SnapshotLayerHeader)));
        assert_eq(merge_one(layers[0]), -EBADMSG);
        close_layers(layers, ELEMENTSOF(layers));
        close(ends[0]);
        close(ends[1]);
}

/* Several at a time */

#define MERGES 6U

static unsigned n_merged, n_failed, merged_at_save;

static void on_merged(int error, void *userdata) {
        n_merged++;
        n_failed += error < 0;
        assert_true(error == 0 || error == -ECONNRESET);
}

static void on_saved_amid(int error, uint64_t data_bytes, uint64_t zero_bytes, void *userdata) {
        merged_at_save = n_merged;
        result = error;
}

/* Merges that together take long. */
static void start_merges(const Model *m, unsigned n) {
        int layer = layer_of(m, 1, 0);

        for (unsigned i = 0; i < n; i++) {
                _cleanup_close_ int fd = real_stored_file();
                assert_ok(store_client_merge_memory(stored.client, &layer, 1, 0, fd, on_merged, NULL));
        }
        close(layer);
}

TEST(a_save_does_not_wait_for_merges) {
        _cleanup_(guest_stop) Guest g = {};
        _cleanup_free_ Model *m = model_new();
        _cleanup_close_ int fd = real_stored_file();
        StoreMemory memory = { .n_runs = 1, .mem_bytes = MEM_BYTES, .id = { 1 } };

        start();
        for (uint32_t i = 0; i < PAGES; i++)
                m->pages[i] = 1;
        guest_start(&g, m);
        memory.pid_fd = g.pid_fd;
        memory.runs = &(VmmRun) { 0, PAGE, (uintptr_t) g.memory };
        /* One whose thread got no CPU for so long did not wait for them: not every time. */
        merged_at_save = MERGES;
        for (uint64_t end = now_usec() + 60 * USEC_PER_SEC; merged_at_save == MERGES && now_usec() < end;) {
                n_merged = n_failed = 0;
                start_merges(m, MERGES);
                result = 1;
                assert_ok(real_stored_wait(&stored, store_client_save_memory(stored.client, &memory, fd, on_saved_amid, NULL),
                                           &result));
                while (n_merged < MERGES)
                        assert_true(sd_event_run(stored.event, 60 * USEC_PER_SEC) > 0);
                assert_eq(n_failed, 0);
        }
        assert_true(merged_at_save < MERGES);
}

TEST(all_that_is_under_way_when_it_dies_is_answered_once) {
        _cleanup_free_ Model *m = model_new();

        start();
        for (uint32_t i = 0; i < PAGES; i++)
                m->pages[i] = 1;
        n_merged = n_failed = 0;
        start_merges(m, MERGES);
        while (n_merged == 0)
                assert_true(sd_event_run(stored.event, 60 * USEC_PER_SEC) > 0);
        /* It may be done with all of those by now, but not with one more. */
        assert_ok(kill(stored.pid, SIGSTOP));
        start_merges(m, 1);
        assert_ok(kill(stored.pid, SIGKILL));
        while (n_merged < MERGES + 1)
                assert_true(sd_event_run(stored.event, 60 * USEC_PER_SEC) > 0);
        assert_true(n_failed > 0);
        real_stored_stop(&stored);
}
