/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs of the host that a verb runs and waits for. */

/* Output goes to stderr, or nowhere with --quiet. 0, or negative once it was said what is wrong. */
int program_run(const char *const *argv);
