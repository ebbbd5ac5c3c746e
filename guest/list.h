/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Intrusive doubly linked lists: an object carries its links, the owner a head pointer. */

#define LIST_FIELDS(type) type *list_next, *list_previous

#define LIST_PREPEND(head, item)                                \
        do {                                                    \
                (item)->list_previous = NULL;                   \
                (item)->list_next = (head);                     \
                if (head)                                       \
                        (head)->list_previous = (item);         \
                (head) = (item);                                \
        } while (0)

#define LIST_REMOVE(head, item)                                                         \
        do {                                                                            \
                if ((item)->list_next)                                                  \
                        (item)->list_next->list_previous = (item)->list_previous;       \
                if ((item)->list_previous)                                              \
                        (item)->list_previous->list_next = (item)->list_next;           \
                else                                                                    \
                        (head) = (item)->list_next;                                     \
                (item)->list_next = (item)->list_previous = NULL;                       \
        } while (0)
