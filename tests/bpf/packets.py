# SPDX-License-Identifier: Apache-2.0
"""Frames made by hand, for a tap without a guest."""

import os
import select
import socket
import struct
import time

import netlab

TCP, UDP, ICMP, ICMP6, FRAGMENT = 6, 17, 1, 58, 44
SYN, RST, ACK = 2, 4, 16


def mac(text):
    return bytes.fromhex(text.replace(':', ''))


def checksum(data):
    data += bytes(len(data) % 2)
    s = sum(struct.unpack(f'!{len(data) // 2}H', data))
    s = (s >> 16) + (s & 0xffff)
    return ~(s + (s >> 16)) & 0xffff


def pack(address):
    return socket.inet_pton(netlab.family_of(address), address)


def pseudo(src, dst, proto, size):
    if ':' in src:
        return pack(src) + pack(dst) + struct.pack('!II', size, proto)
    return pack(src) + pack(dst) + struct.pack('!BBH', 0, proto, size)


def tcp(src, dst, sport, dport, flags=SYN, seq=1000, ack=0, payload=b''):
    h = struct.pack('!HHIIBBHHH', sport, dport, seq, ack, 0x50, flags, 1000, 0, 0) + payload
    return h[:16] + struct.pack('!H', checksum(pseudo(src, dst, TCP, len(h)) + h)) + h[18:]


def udp(src, dst, sport, dport, payload=b'data'):
    h = struct.pack('!HHHH', sport, dport, 8 + len(payload), 0) + payload
    return h[:6] + struct.pack('!H', checksum(pseudo(src, dst, UDP, len(h)) + h) or 0xffff) + h[8:]


def icmp(kind, code, rest=bytes(4), payload=b'', src=None, dst=None):
    """ICMPv6 when addresses are given."""
    h = struct.pack('!BBH', kind, code, 0) + rest + payload
    start = pseudo(src, dst, ICMP6, len(h)) if src else b''
    return h[:2] + struct.pack('!H', checksum(start + h)) + h[4:]


def ip(src, dst, proto, payload, ident=1, offset=0, more=False, options=b'', ttl=64):
    if ':' in src:
        return struct.pack('!IHBB', 6 << 28, len(payload), proto, ttl) + pack(src) + pack(dst) + payload
    h = struct.pack('!BBHHHBBH', 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), ident,
                    offset // 8 | (0x2000 if more else 0), ttl, proto, 0) + pack(src) + pack(dst) + options
    return h[:10] + struct.pack('!H', checksum(h)) + h[12:] + payload


def fragment6(next_header, offset, more, ident=1):
    return struct.pack('!BBHI', next_header, 0, offset | (1 if more else 0), ident)


def ethernet(payload, src=netlab.GUEST_MAC, dst=netlab.GATEWAY_MAC, kind=None):
    if kind is None:
        kind = 0x86dd if payload[0] >> 4 == 6 else 0x0800
    return mac(dst) + mac(src) + struct.pack('!H', kind) + payload


class Wire:
    """A tap's fd, as a VMM has it."""

    def __init__(self, tap):
        self.tap = tap

    def send(self, frame, csum_start=None, csum_offset=0, gso=0, gso_size=0, header=0):
        flags = 0 if csum_start is None else 1
        os.write(self.tap, struct.pack('<BBHHHHH', flags, gso, header, gso_size, csum_start or 0, csum_offset, 0) + frame)

    def receive(self, timeout=netlab.PATIENT, want=lambda frame: True):
        """The next frame that is wanted, without its virtio header; None."""
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.tap], [], [], left)[0]:
                return None
            frame = os.read(self.tap, 70000)[12:]
            if want(frame):
                return frame


def is_ip(frame, proto=None):
    """Not what the namespace's stack says for itself."""
    kind = struct.unpack_from('!H', frame, 12)[0]
    if kind == 0x0800:
        return proto is None or frame[23] == proto
    return kind == 0x86dd and frame[6:12] == mac(netlab.GATEWAY_MAC) and frame[38] != 0xff and (proto is None or frame[20] == proto)
