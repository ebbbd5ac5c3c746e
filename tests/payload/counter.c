/* SPDX-License-Identifier: Apache-2.0 */
#include "blk.h"
#include "counter.h"

#define COUNTER_PAGES 64U
#define COUNTER_SECTORS 8U
#define COUNTER_FIRST_SECTOR 16U
#define PORT_SERIAL_SCRATCH 0x3ff

static uint64_t counter, inverse = UINT64_MAX, bad;
static uint64_t pages[COUNTER_PAGES][512] __attribute__((aligned(4096)));

static void count_in_memory(void) {
        uint64_t *page = pages[counter % COUNTER_PAGES];
        uint64_t before = counter >= COUNTER_PAGES ? counter - COUNTER_PAGES : 0;

        if (counter != ~inverse || page[0] != before || page[511] != before)
                bad++;
        page[0] = page[511] = counter;
}

static void count_on_disk(void) {
        static uint64_t data[SECTOR_BYTES / 8] __attribute__((aligned(512)));
        uint64_t sector = COUNTER_FIRST_SECTOR + counter % COUNTER_SECTORS;

        if (blk_capacity(1) <= sector)
                return;
        if (blk_request(1, BLK_READ, sector, data) != 0 ||
            (counter >= COUNTER_SECTORS && data[0] != counter - COUNTER_SECTORS))
                bad++;
        data[0] = counter;
        if (blk_request(1, BLK_WRITE, sector, data) != 0)
                bad++;
}

bool counter_move(void) {
        count_in_memory();
        count_on_disk();
        counter++;
        inverse = ~counter;
        return true;
}

bool counter_move_registers(void) {
        uint8_t v = (uint8_t) counter;

        outb(PORT_SERIAL_SCRATCH, v);
        if (counter != ~inverse || inb(PORT_SERIAL_SCRATCH) != v)
                bad++;
        counter++;
        inverse = ~counter;
        return true;
}

uint64_t counter_value(void) {
        return counter;
}

uint64_t counter_errors(void) {
        return bad;
}
