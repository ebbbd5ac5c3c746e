/* SPDX-License-Identifier: Apache-2.0 */
/* A guest of a few kilobytes for tests of the VMM and of cubed's control path: it boots by PVH like a
 * kernel, drives virtio-pci, and answers over vsock like cube-agent. Ring 0 only, so that it also runs on a
 * PVM host. The command line makes it misbehave; each word does one thing:
 *
 *   panic  triple  reset  poweroff     at once, before anything else
 *   spin   silent                      busy, or asleep, for ever; no agent
 *   stall                              the agent connects, and answers nothing
 *   ignore-poweroff                    the agent says yes to it and goes on
 *   disk-check                         compares and writes disks, says so on the serial port, powers off
 *   flood                              the agent works, and says again and again that it is ready
 *   no-shell                           the agent knows no "sh"
 *   slow-claim                         the agent lets three seconds pass before it looks at a claim
 *   poll                               looks instead of sleeping */

#include "agent.h"
#include "blk.h"
#include "hostile-agent.h"
#include "start-info.h"

#define RAM 1U
#define CHECKED_SECTORS 16U
#define PACKETS_PER_ROUND 16U

void payload_main(const StartInfo *info);

void machine_panic(void) {
        uint64_t bar;

        if (pci_find(0x1b36, 0x0011, 0, &bar))
                write8(bar, 1);
        for (;;)
                __asm__ volatile("cli; hlt");
}

static uint64_t ram_bytes(const StartInfo *info) {
        const Range *range = (const Range *) info->memmap;
        uint64_t total = 0;

        for (uint32_t i = 0; i < info->n_memmap && i < 16; i++)
                if (range[i].type == RAM)
                        total += range[i].size;
        return total;
}

/* vda's sectors start with their number; vdb's get it, and must give it back. */
static bool check_disks(void) {
        static uint64_t data[SECTOR_BYTES / 8] __attribute__((aligned(512)));

        put_number("payload: vda sectors ", blk_capacity(0));
        put_number("payload: vdb sectors ", blk_capacity(1));
        for (uint64_t i = 0; i < CHECKED_SECTORS; i++) {
                if (blk_request(0, BLK_READ, i, data) != 0 || data[0] != i)
                        return false;
                data[0] = ~i;
                data[SECTOR_BYTES / 8 - 1] = i;
                if (blk_request(1, BLK_WRITE, i, data) != 0)
                        return false;
        }
        for (uint64_t i = 0; i < CHECKED_SECTORS; i++)
                if (blk_request(1, BLK_READ, i, data) != 0 || data[0] != ~i || data[SECTOR_BYTES / 8 - 1] != i)
                        return false;
        /* Behind the end, and on a disk that is read-only: refused, no more. */
        return blk_request(1, BLK_READ, blk_capacity(1), data) == 1 && blk_request(0, BLK_WRITE, 0, data) == 1 &&
               blk_request(1, BLK_FLUSH, 0, NULL) == 0;
}

static void misbehave(const char *cmdline) {
        if (has_word(cmdline, "panic"))
                machine_panic();
        if (has_word(cmdline, "triple"))
                triple_fault();
        if (has_word(cmdline, "reset"))
                reset();
        if (has_word(cmdline, "poweroff"))
                power_off();
        if (has_word(cmdline, "spin"))
                spin_for_ever();
        if (has_word(cmdline, "silent"))
                for (;;)
                        wait_for_interrupt();
        if (has_word(cmdline, "disk-check")) {
                put_string(check_disks() ? "payload: disks are good\n" : "payload: disks are bad\n");
                power_off();
        }
}

void payload_main(const StartInfo *info) {
        const char *cmdline = (const char *) info->cmdline;
        bool poll = has_word(cmdline, "poll"), flood = has_word(cmdline, "flood");

        put_string("payload: up\n");
        interrupts_init();
        misbehave(cmdline);
        if (!vsock_init()) {
                put_string("payload: no vsock\n");
                power_off();
        }
        no_shell = has_word(cmdline, "no-shell");
        if (has_word(cmdline, "no-envd"))
                agent_ignore_envd();
        if (has_word(cmdline, "slow-claim"))
                agent_claim_slowly();
        agent_start(ram_bytes(info), has_word(cmdline, "stall"), has_word(cmdline, "ignore-poweroff"));

        for (;;) {
                bool moved = false;

                for (unsigned i = 0; i < PACKETS_PER_ROUND && vsock_poll(); i++)
                        moved = true;
                moved |= processes_run();
                moved |= hostile_run();
                moved |= agent_try_again();
                if (flood)
                        moved |= agent_flood();
                if (moved)
                        continue;
                if (poll)
                        pause_cpu();
                else
                        wait_for_interrupt();
        }
}
