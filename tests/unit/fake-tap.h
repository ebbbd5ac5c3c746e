/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Takes the place of vmm/tap.c in a test program, so that any socket that keeps messages apart can be a tap. */

extern unsigned fake_tap_offload; /* what was set last */
extern int fake_tap_result;       /* what tap_set_offload() returns */
