/* SPDX-License-Identifier: Apache-2.0 */

/* What cube-stored reads of cubed: packets, records, paths, memory files and overlays. All of the program but its main and
 * its threads: a job is done at once. Each request is answered once, and nothing outside of its directory is touched.
 *
 * Input: packets, { u8 op, u8 flags, u8 files, for each file u16 length and bytes, u16 length, bytes }... flags: 1 without
 * a header, 2 the length lies, 4 the last file is a pidfd, 8 a directory. The first file can be written. */

int cube_stored_main(int argc, char *argv[]);

#define main cube_stored_main
#include "daemon/stored.c"
#undef main

#include <fcntl.h>
#include <ftw.h>
#include <sys/syscall.h>

#include "fuzz.h"

#define PACKETS_MAX 16U
#define FILES_MAX 4U
#define BYTES_MAX KIB(16)
#define MEMORY_MAX MIB(4)

static char outside[64], root[80];
static Stored stored;
static unsigned n_answers;

/* Linked with --wrap of all. */
int __wrap_memory_save(const MemorySource *s, SnapshotLayerHeader *h, int fd, uint64_t *ret_data_bytes, uint64_t *ret_zero_bytes);
int __real_memory_save(const MemorySource *s, SnapshotLayerHeader *h, int fd, uint64_t *ret_data_bytes, uint64_t *ret_zero_bytes);
int __wrap_send_packet(int fd, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds);
int __wrap_work_queue_add(WorkQueue *q, Job *job, size_t max);

int __wrap_send_packet(int fd, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds) {
        PacketHeader h;

        FUZZ_CHECK(fd == STORED_FD && iov[0].iov_len == sizeof(h));
        memcpy(&h, iov[0].iov_base, sizeof(h));
        FUZZ_CHECK((h.flags & PACKET_FLAG_REPLY) && h.error <= 0 && h.len == (n_iov > 1 ? iov[1].iov_len : 0));
        n_answers++;
        return 0;
}

int __wrap_work_queue_add(WorkQueue *q, Job *job, size_t max) {
        on_job(job, &stored);
        return 0;
}

/* How large a guest is cubed knows. This process has terabytes that could be read. */
int __wrap_memory_save(const MemorySource *s, SnapshotLayerHeader *h, int fd, uint64_t *ret_data_bytes, uint64_t *ret_zero_bytes) {
        return h->mem_bytes > MEMORY_MAX ? -EINVAL : __real_memory_save(s, h, fd, ret_data_bytes, ret_zero_bytes);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static void make(const char *name, bool directory) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/%s", root, name);
        int r = directory ? mkdir(path, 0755) : close(open(path, O_WRONLY|O_CREAT|O_CLOEXEC, 0644));
        FUZZ_CHECK(r == 0);
}

/* outside/kept, outside/root/{a/b,a/out -> outside,f} */
static void make_tree(void) {
        char path[128];

        (void) nftw(root, remove_entry, 8, FTW_DEPTH|FTW_PHYS);
        FUZZ_CHECK(mkdir(root, 0755) == 0);
        make("a", true);
        make("a/b", false);
        make("f", false);
        (void) snprintf(path, sizeof(path), "%s/a/out", root);
        FUZZ_CHECK(symlink(outside, path) == 0);
}

static void check_tree(void) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/kept", outside);
        FUZZ_CHECK(access(path, F_OK) == 0 && access(root, F_OK) == 0);
}

static size_t open_files(FuzzInput *in, uint8_t flags, int fds[static FILES_MAX]) {
        static uint8_t data[BYTES_MAX];
        size_t n = fuzz_u8(in) % (FILES_MAX + 1);

        for (size_t i = 0; i < n; i++) {
                size_t size = fuzz_bytes(in, data, MIN((size_t) fuzz_u16(in), BYTES_MAX));

                fds[i] = memfd_create("file", MFD_CLOEXEC);
                FUZZ_CHECK(fds[i] >= 0 && (size == 0 || pwrite(fds[i], data, size, 0) == (ssize_t) size));
        }
        if (n > 0 && (flags & (4 | 8))) {
                safe_close(fds[n - 1]);
                fds[n - 1] = flags & 4 ? (int) syscall(SYS_pidfd_open, getpid(), 0) : open(root, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
                FUZZ_CHECK(fds[n - 1] >= 0);
        }
        return n;
}

static void say(FuzzInput *in) {
        static struct {
                PacketHeader head;
                uint8_t body[BYTES_MAX];
        } packet;
        int fds[FILES_MAX];

        uint8_t op = fuzz_u8(in), flags = fuzz_u8(in);
        size_t n_fds = open_files(in, flags, fds);
        size_t size = fuzz_bytes(in, packet.body, MIN((size_t) fuzz_u16(in), BYTES_MAX));
        packet.head = (PacketHeader) {
                .magic = STORE_PROTO_MAGIC, .version = STORE_PROTO_VERSION, .op = op, .seq = op,
                .len = (uint32_t) size + !!(flags & 2),
        };
        n_answers = 0;
        int r = flags & 1 ? handle(&stored, packet.body, size, fds, n_fds)
                          : handle(&stored, (const uint8_t *) &packet, sizeof(packet.head) + size, fds, n_fds);
        FUZZ_CHECK(r < 0 || n_answers == 1);
        close_many(fds, n_fds);
}

static void clean_up(void) {
        (void) nftw(outside, remove_entry, 8, FTW_DEPTH|FTW_PHYS);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
        char path[128];

        (void) snprintf(outside, sizeof(outside), "/tmp/fuzz-stored.%d", (int) getpid());
        (void) snprintf(root, sizeof(root), "%s/root", outside);
        (void) snprintf(path, sizeof(path), "%s/kept", outside);
        clean_up();
        FUZZ_CHECK(atexit(clean_up) == 0 && mkdir(outside, 0700) == 0 && close(open(path, O_WRONLY|O_CREAT|O_CLOEXEC, 0644)) == 0);
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };

        make_tree();
        stored = (Stored) { .root_fd = -EBADF };
        for (unsigned i = 0; i < PACKETS_MAX && in.left > 0; i++)
                say(&in);
        check_tree();
        safe_close(stored.root_fd);
        return 0;
}
