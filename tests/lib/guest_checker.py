# SPDX-License-Identifier: Apache-2.0
"""Runs in a guest: keeps a word in each kind of place that a snapshot has to hold, and tells what it finds there.

Listens on loopback. One connection is one line with a request, {"put": {PLACE: WORD}, "busy": WHETHER}, and one with the
answer. A child of it works now and then, or while it is to be busy, most of the time: it counts in memory that both share,
changes memory and a file past the page cache, and looks whether either is as it had left it.
"""

import json
import mmap
import os
import signal
import socket
import struct
import time

PORT = 7000
BLOCK = 4096
DIRECTORY = "/root/checker"
TORN = "torn"


class Variable:
    def __init__(self):
        self.word = ""

    def put(self, word):
        self.word = word

    def get(self):
        return self.word


class Memory:
    """So much of it that it is no page that was touched for other reasons."""
    size, field = 1 << 20, 64

    def __init__(self):
        self.area = mmap.mmap(-1, self.size)

    def put(self, word):
        self.area[:] = word.encode().ljust(self.field, b"\0") * (self.size // self.field)

    def get(self):
        first = self.area[:self.field]
        return first.rstrip(b"\0").decode() if self.area[:] == first * (self.size // self.field) else TORN


class File:
    """Open all the time, maybe without a name; written to the page cache only."""

    def __init__(self, path, unlinked=False):
        self.path = None if unlinked else path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if unlinked:
            os.unlink(path)

    def put(self, word):
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, word.encode(), 0)

    def get(self):
        found = os.pread(self.fd, BLOCK, 0)
        if self.path:
            with open(self.path, "rb") as f:
                found = found if f.read() == found else TORN.encode()
        return found.decode()


class Disk:
    """On the disk, and read from there: the page cache belongs to the memory."""

    def __init__(self, path):
        self.path, self.block = path, mmap.mmap(-1, BLOCK)
        self.put("")

    def put(self, word):
        with open(self.path, "wb") as f:
            f.write(word.encode().ljust(BLOCK, b"\0"))
            f.flush()
            os.fsync(f.fileno())

    def get(self):
        with open(self.path, "rb") as f:
            cached = f.read()
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        try:
            os.preadv(fd, [self.block], 0)
        finally:
            os.close(fd)
        return cached.rstrip(b"\0").decode() if cached == self.block[:] else TORN


class Queue:
    """Sent, and not received."""

    def __init__(self):
        self.sender, self.receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sender.send(b"")

    def put(self, word):
        self.receiver.recv(BLOCK)
        self.sender.send(word.encode())

    def get(self):
        return self.receiver.recv(BLOCK, socket.MSG_PEEK).decode()


class Process:
    """The name of a process, of which there is one at a time."""

    def __init__(self):
        self.pid = None
        self.put("sleeper")

    def put(self, word):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.pid = os.posix_spawn("/bin/sleep", [word, "infinity"], {})

    def get(self):
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
            children = f.read().split()
        found = []
        for pid in children:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                words = f.read().split("\0")
            if words[1:] == ["infinity", ""]:
                found.append((int(pid), words[0]))
        return found[0][1] if [pid for pid, _ in found] == [self.pid] else f"{TORN}: {found}"


class Shared:
    """What both processes see: (count, how often something was not as it was left, whether to be busy)."""

    def __init__(self):
        self.memory, self.fields = mmap.mmap(-1, BLOCK), struct.Struct("=QQ")

    def counted(self, count, bad):
        self.fields.pack_into(self.memory, 0, count, bad)

    def so_far(self):
        return self.fields.unpack_from(self.memory)

    @property
    def busy(self):
        return self.memory[self.fields.size] == 1

    @busy.setter
    def busy(self, busy):
        self.memory[self.fields.size] = busy


def work(shared):
    slots, size = 64, 1 << 16
    memory, block = mmap.mmap(-1, slots * size), mmap.mmap(-1, BLOCK)
    fd = os.open(f"{DIRECTORY}/work", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    for slot in range(slots):
        os.pwritev(fd, [block], slot * BLOCK)
    count, bad = 0, 0
    while True:
        count += 1
        slot, was = count % slots, max(0, count - slots)
        at = slot * size
        bad += memory[at:at + size] != struct.pack("=Q", was) * (size // 8)
        memory[at:at + size] = struct.pack("=Q", count) * (size // 8)
        os.preadv(fd, [block], slot * BLOCK)
        bad += block[:] != struct.pack("=Q", was) * (BLOCK // 8)
        block[:] = struct.pack("=Q", count) * (BLOCK // 8)
        os.pwritev(fd, [block], slot * BLOCK)
        shared.counted(count, bad)
        time.sleep(0.01 if shared.busy else 0.2)


def started(pid):
    """When, in ticks since the boot: with it a pid means one process."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return int(f.read().rsplit(")", 1)[1].split()[19])


def answer(places, shared, worker):
    first, bad = shared.so_far()
    end = time.monotonic() + 300
    while shared.so_far()[0] == first and time.monotonic() < end:
        time.sleep(0.002)
    return {
        "words": {name: place.get() for name, place in places.items()},
        "count": first, "bad": bad, "goes_on": time.monotonic() < end,
        "processes": [(pid, started(pid)) for pid in (os.getpid(), worker)],
        "hostname": socket.gethostname(), "random": os.getrandom(16).hex(), "time": time.time(), "monotonic": time.monotonic(),
        "boottime": time.clock_gettime(time.CLOCK_BOOTTIME), "cpus": len(os.sched_getaffinity(0)),
    }


def main():
    os.makedirs(DIRECTORY, exist_ok=True)
    places = {"variable": Variable(), "memory": Memory(), "tmpfs": File("/dev/shm/checker"), "disk": Disk(f"{DIRECTORY}/disk"),
              "unlinked": File(f"{DIRECTORY}/unlinked", unlinked=True), "queue": Queue(), "process": Process()}
    shared = Shared()
    worker = os.fork()
    if worker == 0:
        work(shared)
    server = socket.create_server(("127.0.0.1", PORT))
    while True:
        connection, _ = server.accept()
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            try:
                request = json.loads(stream.readline())
                for name, word in request.get("put", {}).items():
                    places[name].put(word)
                shared.busy = request.get("busy", shared.busy)
                stream.write(json.dumps(answer(places, shared, worker)) + "\n")
                stream.flush()
            except (OSError, ValueError):
                pass  # who asked has gone, or is another copy's


main()
