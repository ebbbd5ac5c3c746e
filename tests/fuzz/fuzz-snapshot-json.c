/* SPDX-License-Identifier: Apache-2.0 */

/* snapshot.json. What was taken is written as something that is taken again. */

#include "daemon/snapshot-private.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(snapshot_free_memoryp) Snapshot *s = snapshot_alloc();
        const char *reason = NULL;

        FUZZ_CHECK(s);
        if (size > SNAPSHOT_JSON_MAX)
                return 0;
        if (snapshot_parse((const char *) data, size, s, &reason) < 0)
                FUZZ_CHECK(reason);
        else
                FUZZ_CHECK(snapshot_check_json(s) == 0);
        return 0;
}
