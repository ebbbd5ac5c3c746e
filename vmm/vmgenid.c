/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/random.h>

#include "vmm/memmap.h"
#include "vmm/vmgenid.h"

int vmgenid_renew(const GuestMem *m, ErrorText *e) {
        uint8_t id[VMGENID_BYTES];

        ssize_t n = getrandom(id, sizeof(id), 0);
        if (n != sizeof(id))
                return error_set_errno(e, n < 0 ? -errno : -EIO, "random bytes for the generation id");

        int r = guest_mem_write(m, MEMMAP_VMGENID, id, sizeof(id));
        return r < 0 ? error_set_errno(e, r, "generation id") : 0;
}
