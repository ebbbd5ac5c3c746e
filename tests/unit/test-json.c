/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/json.h"
#include "tests/unit/test.h"

static int parse(const char *text, json_object **ret) {
        return json_parse(text, strlen(text), ret);
}

TEST(only_one_whole_object_is_taken) {
        static const char *const bad[] = {
                "", "{", "[]", "1", "null", "\"a\"", "{} {}", "{}x", "{\"a\":1,}", "{\"a\":\"\xff\"}",
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                json_object *o = NULL;

                if (parse(bad[i], &o) != -EBADMSG)
                        test_stop(TEST_FAILED, __LINE__, "%s", bad[i]);
                assert_true(!o);
        }

        _cleanup_json_ json_object *o = NULL;
        assert_ok(parse(" {\"a\" : 1}\r\n\t ", &o));
        json_object *with_nul = NULL;
        assert_eq(json_parse("{}\0", 3, &with_nul), -EBADMSG);
}

TEST(nothing_is_nested_without_end) {
        char text[400];
        json_object *o = NULL;

        memset(text, '[', sizeof(text));
        memcpy(text, "{\"a\":", 5);
        assert_eq(json_parse(text, sizeof(text), &o), -EBADMSG);
}

TEST(members_are_found_by_either_name_and_have_their_type) {
        _cleanup_json_ json_object *o = NULL;
        json_object *object;
        const char *text;
        uint32_t u32;
        bool yes = false;

        assert_ok(parse("{\"watcher_id\":\"w\",\"includeEntry\":true,\"n\":7,\"big\":4294967296,\"text\":\"9\",\"minus\":-1,"
                        "\"null\":null,\"nul\":\"a\\u0000b\",\"o\":{}}", &o));
        assert_eq(json_get_text(o, "watcherId", &text), 1);
        assert_streq(text, "w");
        assert_eq(json_get_bool(o, "includeEntry", &yes), 1);
        assert_true(yes);
        assert_eq(json_get_u32(o, "n", &u32), 1);
        assert_eq(u32, 7);
        assert_eq(json_get_u32(o, "text", &u32), 1);
        assert_eq(u32, 9);
        assert_eq(json_get_u32(o, "big", &u32), -EBADMSG);
        assert_eq(json_get_u32(o, "minus", &u32), -EBADMSG);
        assert_eq(json_get_u32(o, "null", &u32), 0);
        assert_eq(json_get_u32(o, "none", &u32), 0);
        assert_eq(json_get_text(o, "nul", &text), -EBADMSG);
        assert_eq(json_get_text(o, "n", &text), -EBADMSG);
        assert_eq(json_get_object(o, "o", &object), 1);
        assert_eq(json_get_array(o, "o", &object), -EBADMSG);
}

TEST(what_is_no_text_is_said_as_text) {
        _cleanup_json_ json_object *o = json_object_new_object();

        json_put_text(o, "a", "\xc3\xa4/\xff\xc3\"\n");
        json_put_int(o, "n", -1);
        assert_streq(json_text(o), "{\"a\":\"\xc3\xa4/\xef\xbf\xbd\xef\xbf\xbd\\\"\\n\",\"n\":-1}");
}
