/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Puts a pager behind stdout where that is a terminal and nobody said --no-pager; it is waited for
 * when cubectl exits. */
void pager_open(void);
void pager_close(void);
