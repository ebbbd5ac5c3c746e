/* SPDX-License-Identifier: Apache-2.0 */

/* FindSandboxes and FindTemplates: those that fit, a page at a time, with what a listing shows of each. What is answered is
 * bounded, however many there are and whatever labels or names they have. */

#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-page.h"
#include "dbus/bus-row.h"

#define LIMIT_DEFAULT 100U
#define LIMIT_MAX 1000U
/* Of the labels or names of a page: its last one may go beyond. */
#define PAGE_BYTES_MAX (1024U * 1024U)
#define STATES_MAX 16U

static const char *const listed[] = {
        "Id", "State", "StateChangedTimestamp", "Owner", "Tenant", "Template", "TemplateName", "Memory", "CPUs", "Disk",
        "CreatedTimestamp", "TimeoutUSec", "Deadline", "OnTimeout", "NetworkAddress", "Labels",
};

typedef struct Filter {
        uint32_t owner;           /* BUS_OWNER_NONE: any */
        const char *tenant, *template;
        char **labels, **states;
        uint64_t since_usec;
        BusPage page;
} Filter;

static void filter_done(Filter *f) {
        for (char **l = f->labels; l && *l; l++)
                free(*l);
        free(f->labels);
        for (char **s = f->states; s && *s; s++)
                free(*s);
        free(f->states);
}

static int check_states(char *const *states, sd_bus_error *error) {
        size_t n = 0;

        for (; states && states[n]; n++)
                if (n == STATES_MAX || sandbox_state_from_string(states[n]) < 0)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Option 'states': there is no state '%s'", states[n]);
        return 0;
}

/* What f holds on an error is the caller's to release as well. */
static int filter_read(sd_bus_message *m, Filter *f, sd_bus_error *error) {
        const BusOption options[] = {
                { "owner", BUS_OPTION_U32, &f->owner, 0 },
                { "tenant", BUS_OPTION_STRING, &f->tenant, 0 },
                { "template", BUS_OPTION_STRING, &f->template, 0 },
                { "labels", BUS_OPTION_DICT, &f->labels, 0 },
                { "states", BUS_OPTION_STRV, &f->states, 0 },
                { "since", BUS_OPTION_U64, &f->since_usec, 0 },
                BUS_PAGE_OPTIONS(&f->page),
        };

        int r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r >= 0)
                r = check_states(f->states, error);
        return r < 0 ? r : bus_page_check(&f->page, LIMIT_DEFAULT, LIMIT_MAX, error);
}

static int compare(const void *a, const void *b, void *page) {
        const Sandbox *x = *(const Sandbox *const *) a, *y = *(const Sandbox *const *) b;

        return bus_page_compare(page, x->created_usec, x->id, y->created_usec, y->id);
}

static bool strv_has(char *const *l, const char *s) {
        for (; l && *l; l++)
                if (streq(*l, s))
                        return true;
        return false;
}

/* By id, NAME or NAME:TAG. */
static bool is_of_template(const Sandbox *s, const char *ref) {
        const char *rest = startswith(strempty(s->template_name), ref);

        return streq(strempty(s->template_id), ref) || (*ref && rest && (!*rest || *rest == ':'));
}

static bool fits(const Sandbox *s, const Filter *f) {
        if ((f->owner != BUS_OWNER_NONE && s->owner_uid != f->owner) || (f->tenant && !streq(s->tenant, f->tenant)) || s->created_usec < f->since_usec ||
            (f->states && !strv_has(f->states, sandbox_state_to_string(s->state))) ||
            (f->template && !is_of_template(s, f->template)))
                return false;
        for (char **l = f->labels; l && *l; l++)
                if (!strv_has(s->labels, *l))
                        return false;
        return bus_page_has(&f->page, s->created_usec, s->id);
}

static size_t label_bytes(const Sandbox *s) {
        size_t n = 0;

        for (char **l = s->labels; l && *l; l++)
                n += strlen(*l);
        return n;
}

static int append_page(sd_bus_message *m, const Filter *f, Sandbox *const *found, size_t n) {
        const BusRow row = { bus_sandbox_vtable, CUBE_BUS_SANDBOX, listed, ELEMENTSOF(listed) };
        char next[BUS_PLACE_MAX] = "", path[CUBE_BUS_PATH_MAX];
        size_t i = 0, bytes = 0;

        int r = sd_bus_message_open_container(m, 'a', "(oa{sv})");
        for (; r >= 0 && i < MIN(n, (size_t) f->page.limit) && bytes < PAGE_BYTES_MAX; i++) {
                bytes += label_bytes(found[i]);
                r = bus_row_append(m, &row, bus_path_put(path, CUBE_BUS_PATH_SANDBOX, found[i]->id), found[i]);
        }
        if (i > 0 && i < n)
                (void) bus_place_put(next, found[i - 1]->created_usec, found[i - 1]->id);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_append_basic(m, 's', next);
}

int bus_method_find_sandboxes(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_message_ sd_bus_message *reply = NULL;
        const Manager *manager = bus_front->manager;
        _cleanup_free_ Sandbox **found = NULL;
        _cleanup_(filter_done) Filter filter = { .owner = BUS_OWNER_NONE };
        bool all = false;
        size_t n = 0;
        uid_t actor;

        int r = bus_may_list_all(m, &actor, &all);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = filter_read(m, &filter, error);
        if (r < 0)
                return r;
        found = new0(Sandbox *, manager->n_sandboxes + 1);
        if (!found)
                return -ENOMEM;
        for (size_t i = 0; i < manager->n_sandboxes; i++) {
                Sandbox *s = manager->sandboxes[i];
                if ((all || s->owner_uid == actor) && fits(s, &filter))
                        found[n++] = s;
        }
        qsort_r(found, n, sizeof(*found), compare, &filter.page);
        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = append_page(reply, &filter, found, n);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

/* Templates. */

/* The first of them are what names and whose it is. */
#define LISTED_NAMES 5U
static const char *const listed_of_template[] = {
        "Id", "Name", "Aliases", "Owner", "Tenant", "CreatedTimestamp", "Memory", "CPUs", "Disk", "Size", "Start",
};

static int compare_templates(const void *a, const void *b, void *page) {
        const Template *x = *(const Template *const *) a, *y = *(const Template *const *) b;

        return bus_page_compare(page, x->created_usec, x->id, y->created_usec, y->id);
}

static size_t name_bytes(const Template *t) {
        size_t n = 0;

        for (char **a = t->aliases; a && *a; a++)
                n += strlen(*a);
        return n;
}

static int append_template_page(sd_bus_message *m, const BusPage *page, bool names_only, Template *const *found, size_t n) {
        const BusRow row = {
                bus_template_vtable, CUBE_BUS_TEMPLATE, listed_of_template, names_only ? LISTED_NAMES : ELEMENTSOF(listed_of_template),
        };
        char next[BUS_PLACE_MAX] = "", path[CUBE_BUS_PATH_MAX];
        size_t i = 0, bytes = 0;

        int r = sd_bus_message_open_container(m, 'a', "(oa{sv})");
        for (; r >= 0 && i < MIN(n, (size_t) page->limit) && bytes < PAGE_BYTES_MAX; i++) {
                bytes += name_bytes(found[i]);
                r = bus_row_append(m, &row, bus_path_put(path, CUBE_BUS_PATH_TEMPLATE, found[i]->id), found[i]);
        }
        if (i > 0 && i < n)
                (void) bus_place_put(next, found[i - 1]->created_usec, found[i - 1]->id);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_append_basic(m, 's', next);
}

/* Those that a create for this tenant may use: its own, and root's. */
static bool is_for(const Template *t, const char *tenant) {
        return !tenant || t->public || streq(t->tenant, tenant) || (t->owner_uid == 0 && !*t->tenant);
}

int bus_method_find_templates(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_message_ sd_bus_message *reply = NULL;
        const TemplateStore *store = bus_front->manager->templates;
        _cleanup_free_ Template **found = NULL;
        const char *tenant = NULL;
        bool names_only = false;
        BusPage page = {};
        size_t n = 0;
        uid_t actor;
        const BusOption filters[] = {
                { "tenant", BUS_OPTION_STRING, &tenant, 0 },
                { "names-only", BUS_OPTION_BOOL, &names_only, 0 },
                BUS_PAGE_OPTIONS(&page),
        };

        int r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, filters, ELEMENTSOF(filters), error);
        if (r >= 0)
                r = bus_page_check(&page, LIMIT_DEFAULT, LIMIT_MAX, error);
        if (r < 0)
                return r;
        found = new0(Template *, store->n_templates + 1);
        if (!found)
                return -ENOMEM;
        for (size_t i = 0; i < store->n_templates; i++) {
                Template *t = store->templates[i];
                if (bus_template_visible(t, actor, NULL) && is_for(t, tenant) && bus_page_has(&page, t->created_usec, t->id))
                        found[n++] = t;
        }
        qsort_r(found, n, sizeof(*found), compare_templates, &page);
        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = append_template_page(reply, &page, names_only, found, n);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}
