/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/skopeo.h"
#include "ctl/work.h"

int skopeo_copy(const char *ref, const char *directory, const SkopeoOptions *options) {
        _cleanup_(skopeo_command_done) SkopeoCommand c;

        int r = skopeo_command_init(&c, ref, directory, options);
        return r < 0 ? r : work_run(c.argv, directory, "bring in", ref);
}
