# SPDX-License-Identifier: Apache-2.0
"""The sandboxes that are measured, over one connection to the bus, and the two kinds of guests in them."""

import os
import time

import dbus
import dbus.lowlevel

from cubetest import bus, manager, options, prop, sandbox, wait_for

CALL_LIMIT = 600  # seconds; a guest in an emulated machine takes its time
GAP_PROGRAM = """
import mmap, time
m = mmap.mmap(-1, ({mib} << 20) or 4096)
for at in range(0, len(m), 4096):
    m[at] = 1
print("dirty", flush=True)
last = begin = time.monotonic_ns()
largest = 0
while last - begin < {seconds} * 10**9:
    now = time.monotonic_ns()
    largest = max(largest, now - last)
    last = now
print(largest // 1000, flush=True)
"""


def read_all(fd):
    parts = []
    while part := os.read(fd, 65536):
        parts.append(part)
    return b"".join(parts)


class Guest:
    """A running sandbox."""

    connection = None

    def __init__(self, sandbox_id):
        if not Guest.connection:
            Guest.connection = bus()
        self.id = str(sandbox_id)
        self.proxy = sandbox(self.id, Guest.connection)

    @property
    def pid(self):
        return int(prop(self.id, "VMMPID"))

    def call(self, method, *arguments, **values):
        return getattr(self.proxy, method)(*arguments, options(values), timeout=CALL_LIMIT)

    def start(self, *argv):
        pid, _stdin, stdout, _stderr = self.proxy.Exec(list(argv), options({}), timeout=CALL_LIMIT)
        return pid, stdout.take()

    def exec(self, *argv):
        """Until its exit status is here. Its output is not read meanwhile, and has to be short."""
        pid, stdout = self.start(*argv)
        wait = self.proxy.WaitProcess(pid, timeout=CALL_LIMIT).take()
        try:
            if not read_all(wait):
                raise AssertionError(f"no exit status of {argv}")
            return read_all(stdout)
        finally:
            os.close(wait)
            os.close(stdout)

    def kill(self):
        self.proxy.Kill(timeout=CALL_LIMIT)


def create(source, **values):
    sandbox_id, _ = manager(Guest.connection or bus()).CreateSandbox(
        source, options({"timeout": dbus.UInt64(3600_000_000)} | values), timeout=CALL_LIMIT)
    return Guest(sandbox_id)


class Payload:
    """tests/payload. Its clock counts ticks of an unknown length."""

    def __init__(self, guest):
        self.guest = guest
        self.busy = None
        self.ticks_per_usec = None

    def dirty(self, mib):
        self.guest.exec("dirty", str(mib))

    def look(self):
        return [int(n) for n in self.guest.exec("gaps").split()]

    def gap_usec(self, mib, operation):
        if not self.busy:
            self.busy = self.guest.start("gap")
            first, begin = self.look()[0], time.monotonic()
            time.sleep(1)
            self.ticks_per_usec = (self.look()[0] - first) / (time.monotonic() - begin) / 1e6
        self.dirty(mib)
        self.look()
        time.sleep(1)
        operation()
        return self.look()[1] / self.ticks_per_usec


class Linux:
    """A guest with python3."""

    def __init__(self, guest):
        self.guest = guest

    def gap_usec(self, mib, operation, seconds=15):
        _, stdout = self.guest.start("python3", "-c", GAP_PROGRAM.format(mib=mib, seconds=seconds))
        try:
            if os.read(stdout, 100) != b"dirty\n":
                raise AssertionError("the guest's program does not start")
            operation()
            return int(read_all(stdout))
        finally:
            os.close(stdout)


def wait_at_rest(read, timeout=60):
    """Until nothing is counted any more for a while."""
    last = [read(), time.monotonic()]

    def at_rest():
        now = read()
        if now != last[0]:
            last[:] = now, time.monotonic()
        return time.monotonic() - last[1] > 0.15
    wait_for("cubed and its VMMs to be at rest", at_rest, timeout)
