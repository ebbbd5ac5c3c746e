/* SPDX-License-Identifier: Apache-2.0 */

/* Files of a guest. Contents never pass here: CopyTo and CopyFrom give the caller a connection to
 * the agent that carries frames (base/agent-proto.h). */

#include <limits.h>

#include "dbus/bus-agent.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"

static int check_path(const char *path, sd_bus_error *error) {
        if (*path != '/')
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Path '%s' is not absolute", path);
        if (strlen(path) >= PATH_MAX)
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT, "This path is too long");
        return 0;
}

/* Authorizes, and reads the path that all of these calls begin with. As bus_authorize(). */
static int begin(sd_bus_message *m, const Sandbox *s, const char **ret_path, sd_bus_error *error) {
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_EXEC, &actor, error);
        if (r <= 0)
                return r;
        r = sd_bus_message_read(m, "s", ret_path);
        if (r >= 0)
                r = check_path(*ret_path, error);
        return r < 0 ? r : 1;
}

static void on_copy_to(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size,
                       void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (sd_bus_error_is_set(error))
                bus_reply_error(call, error, 0);
        else
                (void) sd_bus_reply_method_return(call, "h", *fd);
}

static int open_stream(sd_bus_message *m, Sandbox *s, AgentFrameType type, const TlvWriter *body, StreamDone done,
                       sd_bus_error *error) {
        int r = tlv_writer_finish(body);
        if (r < 0)
                return r;
        return bus_keep_call(m, sandbox_open_stream(s, type, body, done, sd_bus_message_ref(m), error));
}

int bus_method_copy_to(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        const char *path, *user = NULL;
        uint64_t size = UINT64_MAX;
        uint32_t mode = 0644;
        const BusOption options[] = {
                { "mode", BUS_OPTION_U32, &mode, 0 },
                { "user", BUS_OPTION_STRING, &user, 0 },
                { "size", BUS_OPTION_U64, &size, 0 },
        };

        int r = begin(m, userdata, &path, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        if (mode & ~07777U)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Mode 0%o is no mode of a file", mode);

        tlv_put_str(&body, AGENT_TAG_PATH, path);
        tlv_put_u32(&body, AGENT_TAG_MODE, mode);
        if (user)
                tlv_put_str(&body, AGENT_TAG_USER, user);
        if (size != UINT64_MAX)
                tlv_put_u64(&body, AGENT_TAG_SIZE, size);
        return open_stream(m, userdata, AGENT_STREAM_WRITE, &body, on_copy_to, error);
}

static int reply_copy_from(sd_bus_message *call, int fd, const uint8_t *body, size_t size) {
        _cleanup_bus_message_ sd_bus_message *reply = NULL;
        TlvReader reader = TLV_READER_INIT(body, size);
        Tlv t;

        int r = tlv_next(&reader, &t);
        if (r < 0)
                return r;
        if (r == 0 || t.tag != AGENT_TAG_FILE)
                return -EBADMSG;

        r = sd_bus_message_new_method_return(call, &reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "h", fd);
        if (r >= 0)
                r = bus_append_file(reply, &t);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static void on_copy_from(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size,
                         void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        int r = sd_bus_error_is_set(error) ? -EIO : reply_copy_from(call, *fd, body, size);
        if (r < 0)
                bus_reply_error(call, error, r);
}

int bus_method_copy_from(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        const char *path, *user = NULL;
        const BusOption options[] = { { "user", BUS_OPTION_STRING, &user, 0 } };

        int r = begin(m, userdata, &path, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;

        tlv_put_str(&body, AGENT_TAG_PATH, path);
        if (user)
                tlv_put_str(&body, AGENT_TAG_USER, user);
        return open_stream(m, userdata, AGENT_STREAM_READ, &body, on_copy_from, error);
}

int bus_method_stat_file(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const BusAgentListing listing = {
                .tag = AGENT_TAG_FILE, .signature = CUBE_BUS_FILE, .array = false, .append = bus_append_file,
        };
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        const char *path;
        int follow;

        int r = begin(m, userdata, &path, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "b", &follow);
        if (r < 0)
                return r;

        tlv_put_str(&body, AGENT_TAG_PATH, path);
        tlv_put_u32(&body, AGENT_TAG_FOLLOW, (uint32_t) follow);
        return bus_agent_call(m, userdata, AGENT_STAT, &body, &listing, error);
}

int bus_method_list_directory(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const BusAgentListing listing = {
                .tag = AGENT_TAG_FILE, .signature = CUBE_BUS_FILE, .array = true, .append = bus_append_file,
        };
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        const char *path;

        int r = begin(m, userdata, &path, error);
        if (r <= 0)
                return r < 0 ? r : 1;

        tlv_put_str(&body, AGENT_TAG_PATH, path);
        return bus_agent_call(m, userdata, AGENT_LIST_DIRECTORY, &body, &listing, error);
}

int bus_method_remove_file(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        const char *path;
        int recursive;

        int r = begin(m, userdata, &path, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "b", &recursive);
        if (r < 0)
                return r;

        tlv_put_str(&body, AGENT_TAG_PATH, path);
        tlv_put_u32(&body, AGENT_TAG_RECURSIVE, (uint32_t) recursive);
        return bus_agent_call(m, userdata, AGENT_REMOVE, &body, NULL, error);
}

int bus_method_rename_file(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        const char *path, *target;

        int r = begin(m, userdata, &path, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "s", &target);
        if (r >= 0)
                r = check_path(target, error);
        if (r < 0)
                return r;

        tlv_put_str(&body, AGENT_TAG_PATH, path);
        tlv_put_str(&body, AGENT_TAG_TARGET, target);
        return bus_agent_call(m, userdata, AGENT_RENAME, &body, NULL, error);
}

int bus_method_make_directory(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter body = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        const char *path, *user = NULL;
        bool parents = false;
        uint32_t mode = 0755;
        const BusOption options[] = {
                { "mode", BUS_OPTION_U32, &mode, 0 },
                { "parents", BUS_OPTION_BOOL, &parents, 0 },
                { "user", BUS_OPTION_STRING, &user, 0 },
        };

        int r = begin(m, userdata, &path, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        if (mode & ~07777U)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Mode 0%o is no mode of a directory", mode);

        tlv_put_str(&body, AGENT_TAG_PATH, path);
        tlv_put_u32(&body, AGENT_TAG_MODE, mode);
        tlv_put_u32(&body, AGENT_TAG_PARENTS, parents);
        if (user)
                tlv_put_str(&body, AGENT_TAG_USER, user);
        return bus_agent_call(m, userdata, AGENT_MKDIR, &body, NULL, error);
}
