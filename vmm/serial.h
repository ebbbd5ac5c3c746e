/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's serial port: the output half of an 8250, into a ConsoleRing that cubed gave us.
 *
 * For debugging only: no input and no interrupt. The ring keeps the last bytes and never grows
 * (P14). Embedded in the machine; any vCPU may call in. Without a ring output is dropped. */

#include <pthread.h>

#include "base/console-ring.h"
#include "vmm/snapshot-file.h"

#define SERIAL_PORTS 8U

typedef struct Serial {
        pthread_mutex_t lock; /* everything below; held for a byte at a time */
        ConsoleRing *ring;
        ConsoleMarks *marks;           /* behind it; NULL: there is no room for them */
        uint64_t marked_usec;          /* when the last one was made */
        uint8_t interrupt_enable;
        uint8_t fifo_control;
        uint8_t line_control;
        uint8_t modem_control;
        uint8_t scratch;
        uint16_t divisor;
} Serial;

void serial_init(Serial *s);
void serial_done(Serial *s);
/* Maps the memfd of a ConsoleRing; the fd stays the caller's. */
int serial_attach(Serial *s, int ring_fd, ErrorText *e);

/* offset < SERIAL_PORTS */
uint8_t serial_read(Serial *s, unsigned offset);
void serial_write(Serial *s, unsigned offset, uint8_t v);

/* Registers, as a snapshot has them; what was printed is not in it. */
typedef struct SerialState {
        uint8_t interrupt_enable;
        uint8_t fifo_control;
        uint8_t line_control;
        uint8_t modem_control;
        uint8_t scratch;
        uint8_t reserved;
        uint16_t divisor;
} SerialState;

void serial_save(Serial *s, SnapshotWriter *w);
int serial_parse(SnapshotReader *r, SerialState *ret, ErrorText *e);
void serial_apply(Serial *s, const SerialState *state);
