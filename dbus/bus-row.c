/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "dbus/bus-row.h"

static const sd_bus_vtable *find_property(const sd_bus_vtable *v, const char *name) {
        for (; v->type != _SD_BUS_VTABLE_END; v++)
                if (v->type == _SD_BUS_VTABLE_PROPERTY && streq(v->x.property.member, name))
                        return v;
        return NULL;
}

/* Without a getter it is a plain field. */
static int append_value(sd_bus_message *m, const BusRow *row, const sd_bus_vtable *v, void *object) {
        const char *type = v->x.property.signature;
        void *field = (uint8_t *) object + v->x.property.offset;

        if (v->x.property.get)
                return v->x.property.get(NULL, "", row->interface, v->x.property.member, m, field, NULL);
        if (streq(type, "s"))
                return sd_bus_message_append_basic(m, 's', strempty(*(char **) field));
        return sd_bus_message_append_basic(m, *type, field);
}

static int append_property(sd_bus_message *m, const BusRow *row, const char *name, void *object) {
        const sd_bus_vtable *v = find_property(row->vtable, name);

        assert(v);
        int r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append_basic(m, 's', name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', v->x.property.signature);
        if (r >= 0)
                r = append_value(m, row, v, object);
        for (unsigned i = 0; r >= 0 && i < 2; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

int bus_row_append(sd_bus_message *m, const BusRow *row, const char *path, void *object) {
        int r = sd_bus_message_open_container(m, 'r', "oa{sv}");

        if (r >= 0)
                r = sd_bus_message_append_basic(m, 'o', path);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        for (size_t i = 0; r >= 0 && i < row->n_names; i++)
                r = append_property(m, row, row->names[i], object);
        for (unsigned i = 0; r >= 0 && i < 2; i++)
                r = sd_bus_message_close_container(m);
        return r;
}
