# SPDX-License-Identifier: Apache-2.0
"""Pictures as the pixels that they have, for places that have no library for it."""

import struct
import zlib


def pixels(data):
    """Width, height and the rows of a PNG with 8 bits a channel: tuples of 3 or 4 numbers."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    assert depth == 8 and colours in (2, 6) and not interlaced
    size = 3 if colours == 2 else 4
    plain, stride, rows = zlib.decompress(packed), width * size, []
    above = bytes(stride)
    for y in range(height):
        start = y * (stride + 1)
        above = _unfilter(plain[start], plain[start + 1:start + 1 + stride], above, size)
        rows.append([tuple(above[x:x + size]) for x in range(0, stride, size)])
    return width, height, rows


def _unfilter(kind, line, above, size):
    out = bytearray(line)
    for i, byte in enumerate(line):
        left, up = out[i - size] if i >= size else 0, above[i]
        corner = above[i - size] if i >= size else 0
        out[i] = byte + (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind] & 0xff
    return bytes(out)


def _paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))
