/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "base/agent-proto.h"
#include "vmm/memmap.h"
#include "vmm/snapshot-state.h"

/* By how much the TSC of a host may differ for a guest that was told it is invariant. */
#define TSC_TOLERANCE_PPM 250U

static int read_whole(int fd, uint8_t **ret, size_t *ret_size, ErrorText *e) {
        struct stat st;
        size_t done = 0;

        if (fstat(fd, &st) < 0)
                return error_set_errno(e, -errno, "state file");
        if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > (off_t) SNAPSHOT_STATE_BYTES_MAX)
                return error_set(e, -EBADMSG, "this is no state file of a snapshot");

        size_t size = (size_t) st.st_size;
        _cleanup_free_ uint8_t *data = malloc(size);
        if (!data)
                return error_set(e, -ENOMEM, "out of memory");
        while (done < size) {
                ssize_t n = pread(fd, data + done, size - done, (off_t) done);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return error_set_errno(e, n < 0 ? -errno : -EIO, "reading the state file");
                done += (size_t) n;
        }
        *ret = TAKE_PTR(data);
        *ret_size = size;
        return 0;
}

static int check_config(const ConfigState *c, ErrorText *e) {
        if (c->mem_bytes < CONFIG_MEM_MIN || c->mem_bytes > CONFIG_MEM_MAX || c->mem_bytes % CONFIG_MEM_ALIGN != 0)
                return error_set(e, -EBADMSG, "state file: %llu bytes of memory", (unsigned long long) c->mem_bytes);
        if (c->plug_bytes > CONFIG_MEM_MAX - c->mem_bytes || c->plug_bytes % MEMMAP_PLUG_ALIGN != 0)
                return error_set(e, -EBADMSG, "state file: %llu bytes of memory to plug",
                                 (unsigned long long) c->plug_bytes);
        if (c->n_cpus < 1 || c->n_cpus > c->max_cpus || c->max_cpus > CONFIG_CPUS_MAX)
                return error_set(e, -EBADMSG, "state file: %u CPUs of %u possible ones", c->n_cpus, c->max_cpus);
        if (c->cpuid_hide & ~(uint32_t) VMM_CPUID_HIDE_XSAVE)
                return error_set(e, -EBADMSG, "state file: unknown CPUID bits to hide");
        return 0;
}

static int read_serial(SnapshotState *s, ErrorText *e) {
        SnapshotReader reader;

        int r = snapshot_file_section(&s->file, SNAPSHOT_SECTION_SERIAL, 0, &reader, e);
        return r < 0 ? r : serial_parse(&reader, &s->serial, e);
}

static int read_agent(SnapshotState *s, ErrorText *e) {
        SnapshotReader reader;
        FrameHeader h;

        int r = snapshot_file_section(&s->file, SNAPSHOT_SECTION_AGENT, 0, &reader, e);
        if (r < 0 || reader.left == 0)
                return r;

        s->agent_bytes = reader.left;
        r = snapshot_read_view(&reader, reader.left, &s->agent, e);
        if (r < 0)
                return r;
        if (s->agent_bytes < FRAME_HEADER_SIZE || s->agent_bytes > FRAME_HEADER_SIZE + AGENT_FRAME_MAX)
                return snapshot_bad(&reader, e, "a frame of %zu bytes", s->agent_bytes);
        frame_header_get(s->agent, &h);
        if (h.type != AGENT_READY || h.len != s->agent_bytes - FRAME_HEADER_SIZE)
                return snapshot_bad(&reader, e, "a frame that does not introduce an agent");
        return 0;
}

static int parse_state(SnapshotState *s, size_t size, ErrorText *e) {
        int r = snapshot_file_parse(s->data, size, &s->file, e);
        if (r >= 0)
                r = snapshot_file_read(&s->file, SNAPSHOT_SECTION_CONFIG, &s->config, sizeof(s->config), e);
        if (r >= 0)
                r = check_config(&s->config, e);
        if (r >= 0)
                r = snapshot_file_read(&s->file, SNAPSHOT_SECTION_MEMMAP, &s->memmap, sizeof(s->memmap), e);
        if (r >= 0)
                r = snapshot_file_read(&s->file, SNAPSHOT_SECTION_CLOCK, &s->clock_nsec, sizeof(s->clock_nsec), e);
        if (r >= 0)
                r = read_serial(s, e);
        if (r >= 0)
                r = read_agent(s, e);
        if (r >= 0 && snapshot_file_count(&s->file, SNAPSHOT_SECTION_VCPU) != s->config.n_cpus)
                r = error_set(e, -EBADMSG, "state file: %u CPUs, but not that many states of one", s->config.n_cpus);
        return r;
}

int snapshot_state_read(int fd, SnapshotState *ret, ErrorText *e) {
        size_t size = 0;

        assert(ret);

        *ret = (SnapshotState) {};
        int r = read_whole(fd, &ret->data, &size, e);
        if (r >= 0)
                r = parse_state(ret, size, e);
        if (r < 0)
                snapshot_state_done(ret);
        return r;
}

void snapshot_state_done(SnapshotState *s) {
        assert(s);

        free(s->data);
        *s = (SnapshotState) {};
}

int snapshot_state_check_tsc(const SnapshotState *s, const CpuidTable *cpuid, uint32_t tsc_khz, ErrorText *e) {
        uint64_t here = tsc_khz, there = s->config.tsc_khz;
        uint64_t difference = here > there ? here - there : there - here;

        /* kvm-clock carries other guests over. */
        if (cpuid_has_invariant_tsc(cpuid) && difference * 1000000 > here * TSC_TOLERANCE_PPM)
                return error_set(e, -EXDEV, "the snapshot's guest counts on an invariant TSC of %llu kHz, this "
                                 "host's has %llu", (unsigned long long) there, (unsigned long long) here);
        return 0;
}

int snapshot_state_check_host(const SnapshotState *s, const CpuidTable *host, uint32_t tsc_khz, ErrorText *e) {
        SnapshotReader reader;
        CpuidTable cpuid;

        int r = snapshot_file_section(&s->file, SNAPSHOT_SECTION_CPUID, 0, &reader, e);
        if (r >= 0)
                r = cpuid_parse(&reader, host, s->config.max_cpus, s->config.cpuid_hide, &cpuid, e);
        return r < 0 ? r : snapshot_state_check_tsc(s, &cpuid, tsc_khz, e);
}

int snapshot_state_check_memmap(const SnapshotState *s, const GuestMem *mem, ErrorText *e) {
        const MemmapState *there = &s->memmap;

        assert(mem);

        bool same = there->n_regions == mem->n_regions;
        for (unsigned i = 0; i < mem->n_regions && same; i++)
                same = there->regions[i].gpa == mem->regions[i].gpa && there->regions[i].bytes == mem->regions[i].size;
        return same ? 0 : error_set(e, -EBADMSG, "state file: memory in other places than here");
}
