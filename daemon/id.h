/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Random ids of sandboxes and jobs: one letter and 15 letters or digits, 82 bits. */

#define ID_SIZE 21U

void id_random(char ret[static ID_SIZE]);
