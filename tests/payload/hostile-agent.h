/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An agent that means harm. Who asks names what it does: by the path /hostile/MODE of a request or a stream about a file, by
 * the program hostile-MODE of EXEC, or by hostile-exit-MODE, whose process does it to those who wait for its end. All else is
 * served as ever, so that a test sees what else it was felt by. What nobody asks for begins with the program "misbehave MODE". */

#include "agent.h"

/* Each: false when that is nothing of its kind, and nothing was answered. */
bool hostile_request(Conn *c, uint16_t type, uint32_t id, const char *path);
/* Or one whose process will be. */
bool hostile_program(const char *program);
bool hostile_exec(Conn *c, uint32_t id, const char *program);
/* A stream's first frame, and what follows behind it. */
bool hostile_stream(Conn *c, uint16_t type, uint32_t id, const char *path);
bool hostile_wait(Conn *c, uint32_t id, const char *program);

/* What "misbehave" is told; "nothing" ends it. False: there is no such mode. */
bool hostile_begin(const char *mode);
/* The first frame of a control stream. */
bool hostile_introduce(Conn *c);
/* Of CLAIM, FREEZE and THAW, if that is what was begun. */
bool hostile_epoch(Conn *c, uint16_t type, uint32_t id);
/* What goes on by itself. True when there was room for something. */
bool hostile_run(void);
void hostile_closed(const Conn *c);
