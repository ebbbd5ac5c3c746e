/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The whole test framework: TEST(name) { ... } registers a function, main() runs them in order and
 * prints TAP (https://testanything.org). Included once, by a test program's only source file.
 *
 * An assertion that fails ends its test, not the program. test_skip("why") ends it as skipped. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/macros.h"

typedef struct TestEntry TestEntry;
struct TestEntry {
        const char *name;
        void (*run)(void);
        TestEntry *next;
};

static TestEntry *test_first, **test_end = &test_first;
static jmp_buf test_jump;
static char test_reason[256];

enum { TEST_RUNNING, TEST_FAILED, TEST_SKIPPED };

#define TEST(id)                                                              \
        static void test_##id(void);                                          \
        __attribute__((constructor)) static void test_register_##id(void) {   \
                static TestEntry entry = { .name = #id, .run = test_##id };   \
                *test_end = &entry;                                           \
                test_end = &entry.next;                                       \
        }                                                                     \
        static void test_##id(void)

_unused_ _noreturn_ _printf_(3, 4)
static void test_stop(int how, int line, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        vsnprintf(test_reason, sizeof(test_reason), format, ap);
        va_end(ap);
        if (how == TEST_FAILED)
                printf("# failed at line %d: %s\n", line, test_reason);
        longjmp(test_jump, how);
}

#define test_skip(why) test_stop(TEST_SKIPPED, __LINE__, "%s", (why))

#define assert_true(expr)                                                     \
        ({                                                                    \
                if (!(expr))                                                  \
                        test_stop(TEST_FAILED, __LINE__, "%s", #expr);        \
        })
/* Numbers of any integer type. */
#define assert_eq(a, b)                                                       \
        ({                                                                    \
                long long _x = (long long) (a), _y = (long long) (b);         \
                if (_x != _y)                                                 \
                        test_stop(TEST_FAILED, __LINE__, "%s is %lld (0x%llx), not %s = %lld (0x%llx)", \
                                  #a, _x, (unsigned long long) _x, #b, _y, (unsigned long long) _y); \
        })
#define assert_ok(expr)                                                       \
        ({                                                                    \
                long long _r = (long long) (expr);                            \
                if (_r < 0)                                                   \
                        test_stop(TEST_FAILED, __LINE__, "%s: %s", #expr, strerror((int) -_r)); \
        })
#define assert_streq(a, b)                                                    \
        ({                                                                    \
                const char *_s = (a), *_t = (b);                              \
                if (!_s || !_t || strcmp(_s, _t) != 0)                        \
                        test_stop(TEST_FAILED, __LINE__, "%s is \"%s\", not \"%s\"", #a, _s ?: "(null)", _t ?: "(null)"); \
        })

int main(void) {
        volatile unsigned n = 0, failed = 0;
        TestEntry *volatile t;

        setvbuf(stdout, NULL, _IOLBF, 0);
        for (t = test_first; t; t = t->next)
                n++;
        printf("1..%u\n", n);

        n = 0;
        for (t = test_first; t; t = t->next) {
                n++;
                int how = setjmp(test_jump);
                if (how == TEST_RUNNING)
                        t->run();
                if (how == TEST_FAILED)
                        failed++;
                printf("%sok %u - %s%s%s\n", how == TEST_FAILED ? "not " : "", n, t->name,
                       how == TEST_SKIPPED ? " # SKIP " : "", how == TEST_SKIPPED ? test_reason : "");
        }
        return failed > 0;
}
