/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The last 64 KiB of a guest's serial console, in a memfd that cubed makes and the VMM fills.
 *
 * The VMM only ever adds; head counts all bytes ever written, so byte i stands at i % size. cubed
 * and its clients map the memfd read-only and trust nothing in it: a reader takes head once and
 * clamps. It outlives the VMM as long as somebody holds the fd. */

#include <stdatomic.h>
#include <stdint.h>

#define CONSOLE_RING_BYTES 65536U

typedef struct ConsoleRing {
        _Atomic uint64_t head;
        uint8_t reserved[56];
        uint8_t data[CONSOLE_RING_BYTES];
} ConsoleRing;

/* Behind it, when the memfd is large enough: when the VMM got what. The last marks, each at its number % CONSOLE_MARKS; one is
 * made when some time has passed since the last. */
#define CONSOLE_MARKS 512U

typedef struct ConsoleMark {
        uint64_t position;             /* of a byte, counted as head is */
        uint64_t usec;                 /* since 1970 */
} ConsoleMark;

typedef struct ConsoleMarks {
        _Atomic uint64_t n;            /* ever made */
        uint8_t reserved[56];
        ConsoleMark marks[CONSOLE_MARKS];
} ConsoleMarks;

#define CONSOLE_BYTES (sizeof(ConsoleRing) + sizeof(ConsoleMarks))
