/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "test.h"
#include "vmm/acpi.h"
#include "vmm/memmap.h"
#include "vmm/pio.h"

static Serial serial;

static int new_ring(size_t size) {
        int fd = memfd_create("ring", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_eq(ftruncate(fd, (off_t) size), 0);
        return fd;
}

static const ConsoleRing *map(int fd) {
        const ConsoleRing *ring = mmap(NULL, sizeof(ConsoleRing), PROT_READ, MAP_SHARED, fd, 0);

        assert_true(ring != MAP_FAILED);
        return ring;
}

TEST(output_goes_to_the_ring) {
        _cleanup_close_ int fd = new_ring(sizeof(ConsoleRing));
        const ConsoleRing *ring = map(fd);

        serial_init(&serial);
        assert_ok(serial_attach(&serial, fd, NULL));
        for (const char *p = "hello"; *p; p++)
                serial_write(&serial, 0, (uint8_t) *p);
        assert_eq(ring->head, 5);
        assert_true(memcmp(ring->data, "hello", 5) == 0);
        serial_done(&serial);
        (void) munmap((void *) ring, sizeof(*ring));
}

TEST(the_ring_keeps_the_last_bytes) {
        _cleanup_close_ int fd = new_ring(sizeof(ConsoleRing));
        const ConsoleRing *ring = map(fd);

        serial_init(&serial);
        assert_ok(serial_attach(&serial, fd, NULL));
        for (unsigned i = 0; i < CONSOLE_RING_BYTES + 3; i++)
                serial_write(&serial, 0, (uint8_t) i);
        assert_eq(ring->head, CONSOLE_RING_BYTES + 3);
        assert_eq(ring->data[2], (CONSOLE_RING_BYTES + 2) & 0xff);
        assert_eq(ring->data[3], 3);
        serial_done(&serial);
        (void) munmap((void *) ring, sizeof(*ring));
}

TEST(marks_tell_when_what_came) {
        _cleanup_close_ int fd = new_ring(CONSOLE_BYTES);
        uint8_t *file = mmap(NULL, CONSOLE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        struct timespec before, between, after;

        assert_true(file != MAP_FAILED);
        const ConsoleMarks *marks = (const ConsoleMarks *) (file + sizeof(ConsoleRing));
        serial_init(&serial);
        assert_ok(serial_attach(&serial, fd, NULL));
        assert_eq(marks->n, 0u);
        assert_eq(clock_gettime(CLOCK_REALTIME, &before), 0);
        for (unsigned i = 0; i < 1000; i++)
                serial_write(&serial, 0, 'x');
        /* The first, and few others. */
        assert_true(marks->n > 0 && marks->n < 1000);
        assert_eq(marks->marks[0].position, 0u);
        uint64_t n = marks->n;
        /* As if the last one had been long ago. */
        serial.marked_usec = marks->marks[0].usec - USEC_PER_SEC;
        assert_eq(clock_gettime(CLOCK_REALTIME, &between), 0);
        serial_write(&serial, 0, 'y');
        assert_eq(clock_gettime(CLOCK_REALTIME, &after), 0);
        assert_eq(marks->n, n + 1);
        assert_eq(marks->marks[n].position, 1000u);
        assert_true(marks->marks[0].usec >= (uint64_t) before.tv_sec * USEC_PER_SEC + (uint64_t) before.tv_nsec / NSEC_PER_USEC);
        assert_true(marks->marks[n].usec >= (uint64_t) between.tv_sec * USEC_PER_SEC + (uint64_t) between.tv_nsec / NSEC_PER_USEC);
        assert_true(marks->marks[n].usec <= (uint64_t) after.tv_sec * USEC_PER_SEC + (uint64_t) after.tv_nsec / NSEC_PER_USEC);
        serial_done(&serial);
        (void) munmap(file, CONSOLE_BYTES);
}

TEST(the_last_marks_are_kept) {
        _cleanup_close_ int fd = new_ring(CONSOLE_BYTES);
        uint8_t *file = mmap(NULL, CONSOLE_BYTES, PROT_READ, MAP_SHARED, fd, 0);

        assert_true(file != MAP_FAILED);
        const ConsoleMarks *marks = (const ConsoleMarks *) (file + sizeof(ConsoleRing));
        serial_init(&serial);
        assert_ok(serial_attach(&serial, fd, NULL));
        for (unsigned i = 0; i < CONSOLE_MARKS + 2; i++) {
                serial.marked_usec = 0;
                serial_write(&serial, 0, 'x');
        }
        assert_eq(marks->n, CONSOLE_MARKS + 2);
        assert_eq(marks->marks[1].position, CONSOLE_MARKS + 1);
        assert_eq(marks->marks[2].position, 2u);
        serial_done(&serial);
        (void) munmap(file, CONSOLE_BYTES);
}

TEST(a_short_ring_is_refused) {
        _cleanup_close_ int fd = new_ring(sizeof(ConsoleRing) - 1);
        int pipe_fds[2];
        ErrorText e = {};

        serial_init(&serial);
        assert_eq(serial_attach(&serial, fd, &e), -EINVAL);
        assert_true(strstr(e.text, "console ring"));
        assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
        assert_eq(serial_attach(&serial, pipe_fds[1], NULL), -EINVAL);
        close(pipe_fds[0]);
        close(pipe_fds[1]);

        /* Without a ring output is dropped. */
        serial_write(&serial, 0, 'x');
        serial_done(&serial);
}

/* What Linux's 8250 driver does to find out whether a port is there. */
TEST(linux_finds_the_port) {
        serial_init(&serial);

        serial_write(&serial, 1, 0);
        assert_eq(serial_read(&serial, 1) & 0x0f, 0);
        serial_write(&serial, 1, 0xff);
        assert_eq(serial_read(&serial, 1), 0x0f);

        serial_write(&serial, 4, 0x10 | 0x0a);
        assert_eq(serial_read(&serial, 6) & 0xf0, 0x90);
        serial_write(&serial, 4, 0);

        serial_write(&serial, 7, 0x5a);
        assert_eq(serial_read(&serial, 7), 0x5a);

        serial_write(&serial, 2, 0x01);
        assert_eq(serial_read(&serial, 2), 0xc1);
        assert_eq(serial_read(&serial, 5), 0x60);
        serial_done(&serial);
}

TEST(divisor_and_loopback_print_nothing) {
        _cleanup_close_ int fd = new_ring(sizeof(ConsoleRing));
        const ConsoleRing *ring = map(fd);

        serial_init(&serial);
        assert_ok(serial_attach(&serial, fd, NULL));
        serial_write(&serial, 3, 0x83);
        serial_write(&serial, 0, 0x34);
        serial_write(&serial, 1, 0x12);
        assert_eq(serial_read(&serial, 0), 0x34);
        assert_eq(serial_read(&serial, 1), 0x12);
        serial_write(&serial, 3, 0x03);
        serial_write(&serial, 4, 0x10);
        serial_write(&serial, 0, 'x');
        assert_eq(ring->head, 0);
        assert_eq(serial_read(&serial, 1), 0);
        serial_done(&serial);
        (void) munmap((void *) ring, sizeof(*ring));
}

TEST(ports_that_are_not_there) {
        uint32_t v = 0;

        serial_init(&serial);
        assert_eq(pio_access(&serial, 0x80, &v, 4, false), PIO_DONE);
        assert_eq(v, UINT32_MAX);
        v = 0;
        assert_eq(pio_access(&serial, PIO_SERIAL, &v, 2, false), PIO_DONE);
        assert_eq(v, 0xffff);
        for (unsigned port = 0; port <= UINT16_MAX; port++) {
                uint8_t zero = 0;
                assert_eq(pio_access(&serial, (uint16_t) port, &zero, 1, true), PIO_DONE);
        }
        serial_done(&serial);
}

TEST(acpi_registers) {
        uint8_t v = 0;

        serial_init(&serial);
        assert_eq(pio_access(&serial, PIO_ACPI_SLEEP_CONTROL, &v, 1, true), PIO_DONE);
        assert_eq(pio_access(&serial, PIO_ACPI_RESET, &v, 1, true), PIO_DONE);
        v = ACPI_SLEEP_TYPE_S5 << 2 | ACPI_SLEEP_ENABLE;
        assert_eq(pio_access(&serial, PIO_ACPI_SLEEP_CONTROL, &v, 1, true), PIO_POWEROFF);
        v = ACPI_RESET_VALUE;
        assert_eq(pio_access(&serial, PIO_ACPI_RESET, &v, 1, true), PIO_RESET);
        assert_eq(pio_access(&serial, PIO_ACPI_SLEEP_STATUS, &v, 1, false), PIO_DONE);
        assert_eq(v, 0);
        serial_done(&serial);
}
