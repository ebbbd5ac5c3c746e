/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pkttyagent, which asks for a password on our terminal when polkit wants one. Started by the first
 * connection of somebody who is not root, ended at exit. */
void polkit_agent_open(void);
void polkit_agent_close(void);
