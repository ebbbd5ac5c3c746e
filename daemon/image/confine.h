/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cube-image takes away from itself before it reads a byte: capabilities, privileges to come,
 * resources, and all system calls but those of its verb. */

#include "daemon/image/fault.h"

typedef enum ConfineLevel {
        CONFINE_STREAMS, /* the descriptors it has */
        CONFINE_FILES,   /* and what is where in the files behind them, and their sizes */
        CONFINE_TREE,    /* and reading below directories */
        CONFINE_OPENING, /* the same, until confine_to_streams() */
        CONFINE_ASK,     /* CONFINE_TREE, and packets on a socket */
        CONFINE_STORE,   /* reading below directories, and changing the store */
} ConfineLevel;

/* keep_dac: root may go on reading what belongs to others (CAP_DAC_READ_SEARCH). */
int confine(ConfineLevel level, bool keep_dac, Fault *fault);
/* All is open that will be read: CONFINE_STREAMS from here on, whoever we are. */
int confine_to_streams(Fault *fault);
