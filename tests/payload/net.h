/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The network card: sends back what comes in, as it came or as a server would, asks one itself, or sends nonsense. */

#include "virtio.h"

/* False: there is none, or it does not take our driver. Once it is up that stays. */
bool net_open(void);
/* MAC address and status, as the device has them now. */
void net_read_config(uint8_t config[8]);
/* One frame back to where it came from, with its header and in all its buffers. True: there was one. */
bool net_echo(void);
/* The same with a UDP datagram, to who sent it: addresses and ports change places too. Other frames are dropped. */
bool net_serve(void);
/* A UDP datagram from the guest's address, by way of its gateway. */
void net_ask(uint32_t address, uint16_t port);
/* What came back of it: its first bytes in buf, which is of NET_ANSWER_BYTES; 0: nothing yet, -1 - code: an ICMP error. */
#define NET_ANSWER_BYTES 64U
int net_answer(char *buf);
/* Random headers, lengths, places: *ret_resets is how often the device gave up and was started again. */
void net_misbehave(uint32_t rounds, uint32_t seed, uint32_t *ret_resets);
