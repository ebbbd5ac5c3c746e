/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A frame: a 12-byte header and a body, on a byte stream between host and agent.
 *
 * A FrameParser collects whole frames from a stream that arrives in pieces. Its buffer grows with
 * what has really arrived, never with what a header announces, and has a ceiling. */

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

#define FRAME_HEADER_SIZE 12U

typedef struct FrameHeader {
        uint32_t len;   /* bytes of body */
        uint16_t type;
        uint16_t flags;
        uint32_t id;    /* of the request; answers carry the same */
} FrameHeader;

typedef struct FrameParser {
        uint8_t *buffer;
        size_t size;
        size_t allocated;
        size_t max_body;
} FrameParser;

void frame_header_put(const FrameHeader *h, uint8_t ret_bytes[static FRAME_HEADER_SIZE]);
void frame_header_get(const uint8_t bytes[static FRAME_HEADER_SIZE], FrameHeader *ret);

void frame_parser_init(FrameParser *p, size_t max_body);
void frame_parser_done(FrameParser *p);

/* How many bytes are missing to complete the header, or then the frame; 0 when one is complete. */
size_t frame_parser_missing(const FrameParser *p);
/* Takes at most frame_parser_missing() bytes; returns how many it took, -EMSGSIZE when the header
 * announces a body over the ceiling, -ENOMEM. */
ssize_t frame_parser_feed(FrameParser *p, const void *data, size_t size);
/* 1 with the complete frame (borrowed until frame_parser_next), 0 when none is complete. */
int frame_parser_peek(const FrameParser *p, FrameHeader *ret_header, const uint8_t **ret_body);
/* Drops the complete frame. */
void frame_parser_next(FrameParser *p);
