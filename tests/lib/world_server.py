# SPDX-License-Identifier: Apache-2.0
"""The world behind a host's uplink, run in a namespace of its own: servers on every address, and a note of every
packet and every name that arrives.

    world_server.py CONTROL ADDRESS..

TCP 22, 80 and 443 echo lines behind one that names both ends, UDP 7 says to whom it answers, UDP 53 answers DNS queries. Whoever
connects to the socket CONTROL is told as JSON what came since the last one who did.
"""

import collections
import contextlib
import json
import os
import selectors
import socket
import struct
import sys

TCP_PORTS = (22, 80, 443)
NAMES = {"www.example.test": "203.0.113.10", "a.wild.test": "203.0.113.20", "b.c.wild.test": "8.8.8.8",
         "inside.example.test": "10.66.0.5", "other.example.test": "203.0.113.20"}
ETH_P_ALL = 3
# Rounds, where it never falls silent.
PUT_OFF_MAX = 1000

selector = selectors.DefaultSelector()
packets = collections.deque(maxlen=5000)
names, ends = [], []


def note_packet(s):
    frame, where = s.recvfrom(2048)
    if where[2] == socket.PACKET_OUTGOING or len(frame) < 34:
        return
    kind, = struct.unpack_from("!H", frame, 12)
    if kind == 0x0800:
        start = 14 + (frame[14] & 15) * 4
        family, proto, src, dst = socket.AF_INET, frame[23], frame[26:30], frame[30:34]
    elif kind == 0x86dd and len(frame) >= 54:
        start = 54
        family, proto, src, dst = socket.AF_INET6, frame[20], frame[22:38], frame[38:54]
    else:
        return
    port = struct.unpack_from("!H", frame, start + 2)[0] if proto in (6, 17) and len(frame) >= start + 4 else 0
    packets.append((proto, socket.inet_ntop(family, src), socket.inet_ntop(family, dst), port))


def tell(s):
    peer, _ = s.accept()
    with peer:
        peer.sendall(json.dumps({"packets": list(packets), "names": names, "ends": ends}).encode())
    packets.clear()
    names.clear()
    ends.clear()


def accept(s):
    peer, name = s.accept()
    local = peer.getsockname()
    peer.sendall(f"{local[0]} {name[0]}\n".encode())
    selector.register(peer, selectors.EVENT_READ, lambda s: echo(s, local[0]))


def echo(s, local):
    try:
        data = s.recv(65536)
        if data:
            s.sendall(data)
            return
        how = "closed"
    except OSError as e:
        how = type(e).__name__
    ends.append((local, how))
    selector.unregister(s)
    s.close()


def answer(s):
    _, peer = s.recvfrom(2048)
    # a sender that was forged may be out of reach
    with contextlib.suppress(OSError):
        s.sendto(peer[0].encode(), peer)


def resolve(s):
    query, peer = s.recvfrom(2048)
    labels, i = [], 12
    while query[i]:
        labels.append(query[i + 1:i + 1 + query[i]].decode())
        i += 1 + query[i]
    name, kind = ".".join(labels), struct.unpack_from("!H", query, i + 1)[0]
    names.append(name)
    address = NAMES.get(name.lower())
    found = [socket.inet_aton(address)] if address and kind == 1 else []
    head = struct.pack("!2sHHHHH", query[:2], 0x8180 if address else 0x8183, 1, len(found), 0, 0)
    records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 300, 4) + a for a in found)
    s.sendto(head + query[12:i + 5] + records, peer)


def serve(family, kind, address, port, f):
    s = socket.socket(family, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    if kind == socket.SOCK_STREAM:
        s.listen(64)
    selector.register(s, selectors.EVENT_READ, f)


def main():
    control, addresses = sys.argv[1], sys.argv[2:]
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for port in TCP_PORTS:
            serve(family, socket.SOCK_STREAM, address, port, accept)
        serve(family, socket.SOCK_DGRAM, address, 7, answer)
        serve(family, socket.SOCK_DGRAM, address, 53, resolve)
    s = socket.socket(socket.AF_UNIX)
    s.bind(control)
    s.listen(8)
    selector.register(s, selectors.EVENT_READ, tell)
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    selector.register(s, selectors.EVENT_READ, note_packet)
    print("ready", flush=True)
    put_off = 0
    while os.getppid() != 1:
        ready = [key for key, _ in selector.select(1)]
        # what had arrived when somebody asked is told to him, and not to the next one
        others = [key for key in ready if key.data is not tell]
        put_off = put_off + 1 if len(others) < len(ready) and put_off < PUT_OFF_MAX else 0
        for key in others if others and put_off else ready:
            key.data(key.fileobj)


main()
