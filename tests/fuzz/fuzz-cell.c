/* SPDX-License-Identifier: Apache-2.0 */

/* What a guest sends to `cubectl code`, in pieces. What is told of it on stderr commands no terminal. */

#include <stdio.h>

#include "ctl/cell-output.h"
#include "ctl/ctl.h"
#include "fuzz.h"

/* Files go to a directory that goes with the process. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
        char path[] = "/tmp/fuzz-cell-XXXXXX";

        FUZZ_CHECK(mkdtemp(path) && chdir(path) == 0 && rmdir(path) == 0);
        ctl_options.quiet = true;
        return 0;
}

static int without_streams(void *userdata, const CellEvent *e) {
        return e->type == CELL_STDOUT || e->type == CELL_STDERR ? 0 : cell_output_event(userdata, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(cell_lines_done) CellLines lines = {};
        _cleanup_free_ char *out = NULL, *err = NULL;
        size_t n_out, n_err;
        int r = 0;

        if (size < 2)
                return 0;
        CellOutput o = {
                .inline_images = data[0] % 3, .json = data[0] & 64,
                .out = open_memstream(&out, &n_out), .err = open_memstream(&err, &n_err),
        };
        FUZZ_CHECK(o.out && o.err);
        size_t piece = data[1] + 1;
        for (size_t at = 2; r >= 0 && at < size; at += piece)
                r = cell_lines_feed(&lines, (const char *) data + at, MIN(piece, size - at), without_streams, &o);
        fclose(o.out);
        fclose(o.err);
        cell_output_done(&o);
        for (size_t i = 0; i < n_err; i++)
                FUZZ_CHECK(err[i] == '\n' || err[i] == '\t' || (uint8_t) err[i] >= 0x20);
        return 0;
}
