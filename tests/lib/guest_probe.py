# SPDX-License-Identifier: Apache-2.0
"""Run in a Linux guest: tries what it is told on stdin, a JSON list of probes, and says what came of each.

    ["tcp", ADDRESS, PORT]      ["udp", ADDRESS, PORT]      ["ping", ADDRESS]
    ["resolve", NAME]           ["query", SERVER, NAME]     ["name", NAME, PORT]
    ["raw", SOURCE, ADDRESS]    ["frame", MAC, SOURCE, ADDRESS]

Its argument is how many seconds each of them may wait for an answer. With arguments ADDRESS PORT FILE it holds one connection
instead, which is never silent for long, and writes down how it goes: how many lines came back, the longest time between two of
them, and the error that ended it.
"""

import concurrent.futures
import json
import os
import socket
import struct
import sys
import time

LINK = "eth0"


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def told(f):
    """The error as a word."""
    def g(*arguments):
        try:
            return f(*arguments)
        except socket.gaierror as e:
            return f"unresolved {e.args[0]}"
        except ConnectionRefusedError:
            return "refused"
        except TimeoutError:
            return "silence"
        except OSError as e:
            return os.strerror(e.errno)
    return g


def tcp(address, port):
    with socket.create_connection((address, port), patience) as s:
        return "open " + s.makefile().readline().strip()


def udp(address, port):
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as s:
        s.settimeout(patience)
        s.connect((address, port))
        s.send(b"who am I?")
        return "answered " + s.recv(1000).decode()


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ping(address):
    """By a raw socket, as root may have one in here."""
    six = ":" in address
    with socket.socket(family_of(address), socket.SOCK_RAW, 58 if six else 1) as s:
        s.settimeout(patience)
        echo = struct.pack("!BBHHH", 128 if six else 8, 0, 0, 77, 1)
        s.sendto(echo if six else echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:], (address, 0))
        while True:
            # a raw socket hears what others are told, too
            packet, peer = s.recvfrom(2000)
            reply = packet if six else packet[20:]
            if reply[0] == (129 if six else 0) and peer[0] == address:
                return "answered"
            if reply[0] == (1 if six else 3) and reply[14 if six else 17] == (58 if six else 1):
                return "refused"


def resolve(name):
    return sorted({a[4][0] for a in socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)})


def query(server, name):
    """The response code of a question to this very server."""
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0" + struct.pack("!HH", 1, 1)
    with socket.socket(family_of(server), socket.SOCK_DGRAM) as s:
        s.settimeout(patience)
        s.connect((server, 53))
        s.send(struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question)
        return f"rcode {s.recv(2000)[3] & 15}"


def datagram(source, address):
    """UDP to port 7, as if from somebody else."""
    body = struct.pack("!HHHH", 7000, 7, 13, 0) + b"hello"
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(address))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def raw(source, address):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        s.sendto(datagram(source, address), (address, 0))
    return "sent"


def frame(mac, source, address):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind((LINK, 0))
        with open("/proc/net/arp", encoding="ascii") as f:
            gateway = f.read().splitlines()[1].split()[3]
        macs = bytes.fromhex(gateway.replace(":", "")) + bytes.fromhex(mac.replace(":", ""))
        s.send(macs + b"\x08\x00" + datagram(source, address))
    return "sent"


PROBES = {"tcp": tcp, "name": tcp, "udp": udp, "ping": ping, "resolve": resolve, "query": query, "raw": raw, "frame": frame}


def hold(address, port, path):
    n, gap, error = 0, 0, None

    def note():
        with open(path + ".new", "w", encoding="ascii") as f:
            json.dump({"n": n, "gap": gap, "error": error}, f)
        os.rename(path + ".new", path)

    with socket.create_connection((address, int(port)), 300) as s:
        stream = s.makefile("rw")
        stream.readline()
        last = time.monotonic()
        while not error:
            try:
                stream.write("line\n")
                stream.flush()
                error = None if stream.readline() else "closed"
            except OSError as e:
                error = type(e).__name__
            now = time.monotonic()
            n, gap, last = n + (not error), max(gap, now - last), now
            note()
            time.sleep(0.02)


if len(sys.argv) == 4:
    hold(*sys.argv[1:])
else:
    patience = float(sys.argv[1])
    probes = json.load(sys.stdin)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        print(json.dumps(list(pool.map(lambda p: told(PROBES[p[0]])(*p[1:]), probes))))
