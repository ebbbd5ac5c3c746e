/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The network card: sends back what comes in, as it came, or sends nonsense. */

#include "virtio.h"

/* False: there is none, or it does not take our driver. Once it is up that stays. */
bool net_open(void);
/* MAC address and status, as the device has them now. */
void net_read_config(uint8_t config[8]);
/* One frame back to where it came from, with its header and in all its buffers. True: there was one. */
bool net_echo(void);
/* Random headers, lengths, places: *ret_resets is how often the device gave up and was started again. */
void net_misbehave(uint32_t rounds, uint32_t seed, uint32_t *ret_resets);
