/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "gateway/labels.h"

int labels_begin(sd_bus_message *m) {
        int r = sd_bus_message_open_container(m, 'e', "sv");

        if (r >= 0)
                r = sd_bus_message_append_basic(m, 's', "labels");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "a{ss}");
        return r < 0 ? r : sd_bus_message_open_container(m, 'a', "{ss}");
}

int labels_end(sd_bus_message *m) {
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < 3; i++)
                r = sd_bus_message_close_container(m);
        return r;
}
