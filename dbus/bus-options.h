/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The a{sv} at the end of extensible calls: a table says which keys a call knows and where their
 * values go. A key that is not in the table, that comes twice, or whose value has another type is
 * refused by name, so that a newer client never believes that an older cubed did what it asked. An
 * option that takes one of several types stands in the table once for each. */

#include <stdint.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "daemon/template-steps.h"

typedef enum BusOptionType {
        BUS_OPTION_U32,
        BUS_OPTION_U64,
        BUS_OPTION_BOOL,
        BUS_OPTION_STRING, /* borrowed from the message */
        BUS_OPTION_STRV,   /* char ***, fresh */
        BUS_OPTION_DICT,   /* char ***, fresh, KEY=VALUE each */
        BUS_OPTION_FD,     /* borrowed from the message */
        BUS_OPTION_FILES,  /* BusFiles *, borrowed from the message */
        BUS_OPTION_STEPS,  /* BusSteps *, fresh */
        BUS_OPTION_POLICY, /* BusPolicy *, see bus-policy.h */
} BusOptionType;

/* Descriptors with a name each. */
#define BUS_FILES_MAX 16U
typedef struct BusFiles {
        size_t n;
        struct {
                int fd;
                const char *name;
        } files[BUS_FILES_MAX];
} BusFiles;

/* Of a build: a type with its arguments each; what is wrong in them their user knows. */
typedef struct BusSteps {
        TemplateStep *steps;
        size_t n;
} BusSteps;
void bus_steps_done(BusSteps *s);
#define _cleanup_bus_steps_ _cleanup_(bus_steps_done)

#define BUS_OPTION_NONZERO 1U /* a number that is given must not be 0 */

typedef struct BusOption {
        const char *name;
        BusOptionType type;
        void *value;
        unsigned flags;
} BusOption;

/* Reads the array at the message's present place. What a table's fresh values held on an error is
 * the caller's to free as well. */
int bus_options_read(sd_bus_message *m, const BusOption *table, size_t n, sd_bus_error *error);

/* Most strings of one list: more don't fit into a request to the agent anyway, nor into a network policy. */
#define BUS_STRINGS_MAX 16384U
/* An "as" at the message's place. */
int bus_read_strings(sd_bus_message *m, char ***ret, sd_bus_error *error);
