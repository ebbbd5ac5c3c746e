/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shows what comes of a cell as it comes: its streams on ours, and the text of a result on stdout, as they are, but with nothing
 * in them that could command a terminal where there is one; pictures in the terminal or as files; an error, without such things
 * in any case, on stderr. */

#include <stdio.h>

#include "ctl/inline-image.h"
#include "ctl/result-files.h"

typedef struct CellOutput {
        FILE *out, *err;
        bool out_terminal, err_terminal;
        InlineImages inline_images;
        const char *directory;  /* for all forms of each result; NULL: pictures alone, in the current one */
        bool json;              /* the events themselves, a line each */

        ResultFiles files;      /* open once there is one */
        bool files_open;
        bool line_begun;        /* the last byte on out was no newline */
        bool failed;            /* there was an error of the cell's */
        bool ended;             /* all has come */
} CellOutput;

/* A CellEventHandler. Errors were told, but for -EPIPE: nobody reads out any more, and -ENOMEM. */
int cell_output_event(void *userdata, const CellEvent *e);
void cell_output_done(CellOutput *o);
