/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network namespaces without a name: they live as long as somebody holds their fd or is inside. */

/* A new one with loopback up. The thread is back in its own namespace afterwards, or the process
 * has been ended: nothing may go on in a foreign one. */
int netns_new(int *ret_fd);

int netns_own(int *ret_fd);
/* What f returns, run inside netns; the thread is back in its own afterwards. */
int netns_call(int netns, int (*f)(void *userdata), void *userdata);
