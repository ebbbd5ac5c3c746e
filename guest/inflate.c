/* SPDX-License-Identifier: Apache-2.0 */
#include <zlib.h>

#include "guest/inflate.h"

#define PIECE_SIZE (64U * 1024U)
#define GZIP_WINDOW_BITS (16 + MAX_WBITS)

struct Inflate {
        z_stream z;
        bool ended;
};

Inflate *inflate_new(void) {
        Inflate *i = new0(Inflate, 1);

        if (i && inflateInit2(&i->z, GZIP_WINDOW_BITS) != Z_OK)
                free(TAKE_PTR(i));
        return i;
}

Inflate *inflate_free(Inflate *i) {
        if (i) {
                (void) inflateEnd(&i->z);
                free(i);
        }
        return NULL;
}

int inflate_feed(
        Inflate *i, const uint8_t *data, size_t size, int (*put)(void *userdata, const uint8_t *data, size_t size),
        void *userdata) {
        static uint8_t piece[PIECE_SIZE];

        i->z.next_in = (uint8_t *) data;
        i->z.avail_in = (uInt) size;
        do {
                /* Several streams may follow each other. */
                if (i->ended && i->z.avail_in > 0) {
                        if (inflateReset(&i->z) != Z_OK)
                                return -EBADMSG;
                        i->ended = false;
                }
                i->z.next_out = piece;
                i->z.avail_out = sizeof(piece);
                int z = inflate(&i->z, Z_NO_FLUSH);
                if (z == Z_MEM_ERROR)
                        return -ENOMEM;
                if (z != Z_OK && z != Z_STREAM_END && z != Z_BUF_ERROR)
                        return -EBADMSG;
                i->ended = z == Z_STREAM_END;
                int r = put(userdata, piece, sizeof(piece) - i->z.avail_out);
                if (r < 0)
                        return r;
        } while (i->z.avail_in > 0 || (i->z.avail_out == 0 && !i->ended));
        return 0;
}

bool inflate_ended(const Inflate *i) {
        return i->ended;
}
