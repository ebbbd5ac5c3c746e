/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gives up what cube-resolver does not need: for good, before the first query is read. */
int resolver_confine(void);
