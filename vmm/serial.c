/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "vmm/serial.h"

enum {
        REG_DATA = 0,
        REG_INTERRUPT_ENABLE = 1,
        REG_INTERRUPT_ID = 2,     /* read; a write goes to FIFO control */
        REG_LINE_CONTROL = 3,
        REG_MODEM_CONTROL = 4,
        REG_LINE_STATUS = 5,
        REG_MODEM_STATUS = 6,
        REG_SCRATCH = 7,
};

#define INTERRUPT_ENABLE_MASK 0x0fU
#define INTERRUPT_NONE 0x01U
#define INTERRUPT_FIFO 0xc0U
#define FIFO_ENABLE 0x01U
#define LINE_DIVISOR_LATCH 0x80U
#define LINE_SENDER_EMPTY 0x60U
#define MODEM_CONTROL_MASK 0x1fU
#define MODEM_DTR 0x01U
#define MODEM_RTS 0x02U
#define MODEM_OUT1 0x04U
#define MODEM_OUT2 0x08U
#define MODEM_LOOPBACK 0x10U
#define STATUS_CTS 0x10U
#define STATUS_DSR 0x20U
#define STATUS_RING 0x40U
#define STATUS_CARRIER 0x80U
/* Between two marks. */
#define MARK_USEC (10 * USEC_PER_MSEC)

void serial_init(Serial *s) {
        assert(s);

        *s = (Serial) { .divisor = 1 };
        (void) pthread_mutex_init(&s->lock, NULL);
}

void serial_done(Serial *s) {
        assert(s);

        if (s->ring)
                (void) munmap(s->ring, s->marks ? CONSOLE_BYTES : sizeof(ConsoleRing));
        (void) pthread_mutex_destroy(&s->lock);
        *s = (Serial) {};
}

int serial_attach(Serial *s, int ring_fd, ErrorText *e) {
        struct stat st;

        assert(s);
        assert(!s->ring);

        if (fstat(ring_fd, &st) < 0)
                return error_set_errno(e, -errno, "console ring");
        /* A store behind the end of the file would be a SIGBUS. */
        if (!S_ISREG(st.st_mode) || st.st_size < (off_t) sizeof(ConsoleRing))
                return error_set(e, -EINVAL, "the console ring is not a file of at least %zu bytes",
                                 sizeof(ConsoleRing));

        /* A cubed of an earlier release has no room for marks. */
        bool marks = st.st_size >= (off_t) CONSOLE_BYTES;
        ConsoleRing *ring = mmap(NULL, marks ? CONSOLE_BYTES : sizeof(ConsoleRing), PROT_READ|PROT_WRITE, MAP_SHARED, ring_fd, 0);
        if (ring == MAP_FAILED)
                return error_set_errno(e, -errno, "mapping the console ring");

        s->ring = ring;
        s->marks = marks ? (ConsoleMarks *) (ring + 1) : NULL;
        return 0;
}

/* The byte at position came now. */
static void put_mark(Serial *s, uint64_t position) {
        struct timespec ts;

        if (!s->marks)
                return;
        (void) clock_gettime(CLOCK_REALTIME, &ts);
        uint64_t usec = (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
        if (position > 0 && usec >= s->marked_usec && usec - s->marked_usec < MARK_USEC)
                return;
        uint64_t n = atomic_load_explicit(&s->marks->n, memory_order_relaxed);
        s->marks->marks[n % CONSOLE_MARKS] = (ConsoleMark) { .position = position, .usec = usec };
        atomic_store_explicit(&s->marks->n, n + 1, memory_order_release);
        s->marked_usec = usec;
}

static void ring_put(Serial *s, uint8_t v) {
        ConsoleRing *ring = s->ring;

        if (!ring)
                return;

        uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        put_mark(s, head);
        ring->data[head % CONSOLE_RING_BYTES] = v;
        atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* In loopback the outputs come back as inputs: that is how Linux tells that a port is there. */
static uint8_t modem_status(const Serial *s) {
        uint8_t c = s->modem_control;

        if (!(c & MODEM_LOOPBACK))
                return STATUS_CTS | STATUS_DSR | STATUS_CARRIER;

        return (uint8_t) ((c & MODEM_RTS ? STATUS_CTS : 0) | (c & MODEM_DTR ? STATUS_DSR : 0) |
                          (c & MODEM_OUT1 ? STATUS_RING : 0) | (c & MODEM_OUT2 ? STATUS_CARRIER : 0));
}

static uint8_t register_read(const Serial *s, unsigned offset) {
        bool latch = s->line_control & LINE_DIVISOR_LATCH;

        switch (offset) {

        case REG_DATA:
                return latch ? (uint8_t) s->divisor : 0;

        case REG_INTERRUPT_ENABLE:
                return latch ? (uint8_t) (s->divisor >> 8) : s->interrupt_enable;

        case REG_INTERRUPT_ID:
                return INTERRUPT_NONE | (s->fifo_control & FIFO_ENABLE ? INTERRUPT_FIFO : 0);

        case REG_LINE_CONTROL:
                return s->line_control;

        case REG_MODEM_CONTROL:
                return s->modem_control;

        case REG_LINE_STATUS:
                return LINE_SENDER_EMPTY;

        case REG_MODEM_STATUS:
                return modem_status(s);

        case REG_SCRATCH:
                return s->scratch;

        default:
                return UINT8_MAX;
        }
}

static void register_write(Serial *s, unsigned offset, uint8_t v) {
        bool latch = s->line_control & LINE_DIVISOR_LATCH;

        switch (offset) {

        case REG_DATA:
                if (latch)
                        s->divisor = (uint16_t) ((s->divisor & 0xff00) | v);
                else if (!(s->modem_control & MODEM_LOOPBACK))
                        ring_put(s, v);
                break;

        case REG_INTERRUPT_ENABLE:
                if (latch)
                        s->divisor = (uint16_t) ((s->divisor & 0x00ff) | v << 8);
                else
                        s->interrupt_enable = v & INTERRUPT_ENABLE_MASK;
                break;

        case REG_INTERRUPT_ID:
                s->fifo_control = v;
                break;

        case REG_LINE_CONTROL:
                s->line_control = v;
                break;

        case REG_MODEM_CONTROL:
                s->modem_control = v & MODEM_CONTROL_MASK;
                break;

        case REG_SCRATCH:
                s->scratch = v;
                break;
        }
}

uint8_t serial_read(Serial *s, unsigned offset) {
        assert(s);

        pthread_mutex_lock(&s->lock);
        uint8_t v = register_read(s, offset);
        pthread_mutex_unlock(&s->lock);
        return v;
}

void serial_write(Serial *s, unsigned offset, uint8_t v) {
        assert(s);

        pthread_mutex_lock(&s->lock);
        register_write(s, offset, v);
        pthread_mutex_unlock(&s->lock);
}

void serial_save(Serial *s, SnapshotWriter *w) {
        assert(s);

        pthread_mutex_lock(&s->lock);
        SerialState state = {
                .interrupt_enable = s->interrupt_enable,
                .fifo_control = s->fifo_control,
                .line_control = s->line_control,
                .modem_control = s->modem_control,
                .scratch = s->scratch,
                .divisor = s->divisor,
        };
        pthread_mutex_unlock(&s->lock);

        snapshot_writer_begin(w, SNAPSHOT_SECTION_SERIAL, 0);
        snapshot_writer_put(w, &state, sizeof(state));
}

int serial_parse(SnapshotReader *r, SerialState *ret, ErrorText *e) {
        assert(ret);

        int k = snapshot_read(r, ret, sizeof(*ret), e);
        return k < 0 ? k : snapshot_read_end(r, e);
}

void serial_apply(Serial *s, const SerialState *state) {
        assert(s);
        assert(state);

        pthread_mutex_lock(&s->lock);
        s->interrupt_enable = state->interrupt_enable & INTERRUPT_ENABLE_MASK;
        s->fifo_control = state->fifo_control;
        s->line_control = state->line_control;
        s->modem_control = state->modem_control & MODEM_CONTROL_MASK;
        s->scratch = state->scratch;
        s->divisor = state->divisor;
        pthread_mutex_unlock(&s->lock);
}
