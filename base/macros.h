/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The few macros that everything else is written with: cleanup attributes, hand-over of
 * ownership, array sizes. No allocation and no system call in here but close(). */

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _packed_ __attribute__((packed))
#define _unused_ __attribute__((unused))
#define _noreturn_ __attribute__((noreturn))

#define ELEMENTSOF(x) (sizeof(x) / sizeof((x)[0]))
#define MIN(a, b)                                       \
        ({                                              \
                __typeof__(a) _a = (a);                 \
                __typeof__(b) _b = (b);                 \
                _a < _b ? _a : _b;                      \
        })
#define MAX(a, b)                                       \
        ({                                              \
                __typeof__(a) _a = (a);                 \
                __typeof__(b) _b = (b);                 \
                _a > _b ? _a : _b;                      \
        })
#define ALIGN_UP(x, a) (((x) + ((__typeof__(x)) (a) - 1)) & ~((__typeof__(x)) (a) - 1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x)) (a) - 1))

#define KIB(x) ((uint64_t) (x) << 10)
#define MIB(x) ((uint64_t) (x) << 20)
#define GIB(x) ((uint64_t) (x) << 30)

#define USEC_PER_SEC 1000000ULL
#define USEC_PER_MSEC 1000ULL
#define NSEC_PER_SEC 1000000000ULL
#define NSEC_PER_USEC 1000ULL

/* Spelled at the line where ownership moves away from a cleanup variable. */
#define TAKE_PTR(p)                                     \
        ({                                              \
                __typeof__(p) _p = (p);                 \
                (p) = NULL;                             \
                _p;                                     \
        })
#define TAKE_FD(fd)                                     \
        ({                                              \
                int _fd = (fd);                         \
                (fd) = -EBADF;                          \
                _fd;                                    \
        })

#define DEFINE_CLEANUP(type, func)                      \
        static inline void func##p(type *p) {           \
                if (*p)                                 \
                        func(*p);                       \
        }

static inline void freep(void *p) {
        free(*(void **) p);
}

/* Closes fd when it is one, keeps errno, and gives back the value an empty fd variable has. */
static inline int safe_close(int fd) {
        if (fd >= 0) {
                int saved = errno;
                (void) close(fd);
                errno = saved;
        }
        return -EBADF;
}

static inline void closep(int *fd) {
        safe_close(*fd);
}

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(closep)

#define new0(type, n) ((type *) calloc((n), sizeof(type)))

static inline bool streq(const char *a, const char *b) {
        return strcmp(a, b) == 0;
}

static inline const char *strempty(const char *s) {
        return s ? s : "";
}

static inline bool isempty(const char *s) {
        return !s || !*s;
}

/* The part of s behind prefix, or NULL when s does not start with it. */
static inline const char *startswith(const char *s, const char *prefix) {
        size_t n = strlen(prefix);
        return strncmp(s, prefix, n) == 0 ? s + n : NULL;
}
