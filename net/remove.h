/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The end of the sandbox network, for when the service has ended. */

/* Takes the table, the link, the pinned maps and the changed sysctls away. Where a sandbox still runs nothing is touched,
 * and 1 is returned: its filter goes on, and so does all that it leans on. Nothing there is fine. What fails does not keep the
 * rest; error says what it was first. */
int network_remove(const char *pin_dir, char error[static POLICY_ERROR_MAX]);
