/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes that aren't: state machines with a pid, three streams and an exit status.
 *
 *   sh -c WORDS                what they say, as a process of its own
 *   : | true | false | exit N  echo WORDS... | err WORDS... (to stderr) | env | who-and-where
 *   tries N                    fails until it has run N times
 *   cat                        stdin to stdout, up to the end
 *   wc                         counts stdin's bytes, prints the number
 *   yes | bulk N               output without end, N bytes of it
 *   sleep N                    seconds
 *   once MSEC | deadline MSEC  until the local APIC's timer fires, in its mode of that name; then prints how many
 *                              nanoseconds that was. Not together with "sleep"
 *   clock                      prints TSC, kvm-clock and real time in nanoseconds, and whether the guest was away
 *   registers                  writes registers of the serial port for ever, and reads them again
 *   print WORDS...             says them on the serial port
 *   hang                       never ends by itself
 *   sector DISK N              512 bytes of vda or vdb
 *   put-sector DISK N WORD     writes them, WORD and zeros, and flushes
 *   fill DISK                  writes all over it and behind its end; prints how many writes failed, and how many did not
 *                              behind the end
 *   counter                    counts up for ever, in memory and on vdb, and checks what it counted before
 *   count                      prints how far these two are, and how often something was not as it was left
 *   dirty N                    writes to each page of N MiB, up to 16
 *   gap                        looks at the clock for ever
 *   gaps                       prints it, and the largest gap that "gap" saw since this was asked last
 *   net-echo                   sends back all frames for ever
 *   net-serve                  answers UDP datagrams with what they say for ever
 *   net-ask A.B.C.D PORT       asks there by UDP, prints what comes back ("unreachable 13", "nothing")
 *   net-config                 MAC address and status of the network card, in hexadecimal
 *   net-misbehave N SEED       sends N frames of nonsense, prints how often the card had to be reset
 *   misbehave MODE             the agent does, see hostile-agent.h
 *   hostile-exit-MODE          never ends by itself, but for who waits for that
 *   panic-in MSEC              as "panic", after a while
 *   panic | reset | triple | poweroff | spin    what they say, to the whole machine
 *
 * and what extra_run() knows, in a guest that has it. */

#include "vsock.h"

typedef struct Process Process;

#define PROCESS_NAME_BYTES 32U

/* There is no "sh". */
extern bool no_shell;

typedef struct Args {
        const char *argv[16];
        unsigned argc;
        const char *env[32];
        unsigned n_env;
        const char *user, *cwd;    /* NULL: not said */
} Args;

/* NULL: no such program, or too many processes. The strings are copied where needed. */
Process *process_start(const Args *args);
Process *process_find(uint32_t pid);
uint32_t process_pid(const Process *p);
void process_signal(Process *p, unsigned signal);
/* Each process by number, until NULL. */
Process *process_nth(unsigned n);
bool process_exited(const Process *p, uint32_t *ret_code, uint32_t *ret_signal);
const char *process_name(const Process *p);

/* The three streams (AgentStream), and who waits for the end. False: taken already. */
bool process_attach(Process *p, unsigned stream, Conn *c);
bool process_attach_wait(Process *p, Conn *c);
void process_detach(Process *p, Conn *c);
/* An epoch: all connections are those of another copy, and none of these sees them break. */
void processes_abandon(void);
void process_input(Process *p, Conn *c, const uint8_t *data, uint32_t len);
void process_input_end(Process *p);
/* Moves what can be moved. True when something was. */
bool processes_run(void);

/* Another guest that is made of these parts (tests/hostile) has programs of its own: one at a time, from beginning to
 * end, on the loop and not inside of a request, so that it may take any device down. It returns the status; its text is
 * the output. NULL: there are none. */
bool extra_known(const char *name) __attribute__((weak));
uint32_t extra_run(const Args *args, char *ret_text, uint32_t size, uint32_t *ret_len) __attribute__((weak));

/* Implemented by agent.c: tells one who waits. */
void report_exit(Conn *c, uint32_t code, uint32_t signal);
/* Implemented by payload.c. */
void machine_panic(void);
