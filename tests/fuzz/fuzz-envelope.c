/* SPDX-License-Identifier: Apache-2.0 */

/* Envelopes of a client's stream, in pieces. Where the pieces end does not change what the messages are: they are read a second
 * time byte by byte. */

#include "guest/envelope.h"
#include "fuzz.h"

#define MESSAGE_MAX 64U

typedef struct Told {
        unsigned messages;
        size_t bytes;
        uint32_t sum;
        int error;
} Told;

static void read_all(const uint8_t *data, size_t size, size_t piece, Told *told) {
        Envelopes e = { .message_max = MESSAGE_MAX };

        while (size > 0 && told->error == 0) {
                size_t n = MIN(size, piece), length;
                const uint8_t *message;

                FUZZ_CHECK(envelopes_put(&e, data, n) == 0);
                data += n;
                size -= n;
                while ((told->error = envelopes_next(&e, &message, &length)) > 0) {
                        FUZZ_CHECK(length <= MESSAGE_MAX);
                        told->messages++;
                        told->bytes += ENVELOPE_SIZE + length;
                        for (size_t i = 0; i < length; i++)
                                told->sum = told->sum * 31 + message[i];
                }
                /* A message that is not whole yet, and no more. */
                if (told->error == 0)
                        FUZZ_CHECK(envelopes_left(&e) < ENVELOPE_SIZE + MESSAGE_MAX);
        }
        envelopes_done(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        size_t piece = fuzz_u8(&in) + 1U;
        Told pieces = {}, bytes = {};

        read_all(in.data, in.left, piece, &pieces);
        read_all(in.data, in.left, 1, &bytes);
        FUZZ_CHECK(pieces.messages == bytes.messages && pieces.bytes == bytes.bytes && pieces.sum == bytes.sum);
        FUZZ_CHECK(pieces.error == bytes.error && pieces.bytes <= in.left);
        return 0;
}
