# SPDX-License-Identifier: Apache-2.0
"""The operations that are measured, in the order of a round, which begins with nothing and leaves nothing.

Each is a generator: it makes ready, yields the call that is measured, is sent what that returned, and cleans up behind
it. What failed is counted as such, and the round goes on.
"""

import dataclasses
import os
import typing

import dbus

from cubetest import manager, prop, sandbox_ids, wait_for
from guest import CALL_LIMIT, Guest, create

SNAPSHOTS = "/var/lib/cubed/snapshots"


class OperationFailed(Exception):
    """With the reasons."""


@dataclasses.dataclass
class Step:
    call: typing.Callable              # returns the sandboxes that are to answer an exec, which may be none
    vmm: "Guest | None" = None         # whose VMM does the work and existed before
    stores: bool = False               # leaves a snapshot
    renews: bool = False               # what the VMM had of its own in the guest's memory is gone


class Round:
    """One sandbox after another, and what they leave behind."""

    def __init__(self, cold, warm):
        self.cold, self.warm = cold, warm
        self.main = None
        self.snapshots = []

    def steps(self):
        yield "create booted", self.create_booted
        yield "create restored", self.create_restored
        yield "exec", self.exec
        yield "snapshot", self.snapshot
        yield "snapshot, 10 MiB dirty", self.snapshot_dirty
        yield "rollback", self.rollback
        yield "fork 1", lambda: self.fork(1)
        yield "fork 5", lambda: self.fork(5)
        yield "pause", self.pause
        yield "resume", self.resume
        yield "kill", self.kill

    def create_booted(self):
        guests = yield Step(lambda: [create(self.cold)])
        kill_all(guests)

    def create_restored(self):
        [self.main] = yield Step(lambda: [create(self.warm)])
        start = prop(self.main.id, "Start")
        if start != "restored":
            raise AssertionError(f"a sandbox of {self.warm} was {start}")

    def exec(self):
        def call():
            self.main.exec("true")
            return []
        yield Step(call, vmm=self.main)

    def take(self):
        self.snapshots.append(str(self.main.call("Snapshot")[0]))
        return [self.main]

    def snapshot(self):
        yield Step(self.take, vmm=self.main, stores=True, renews=True)

    def snapshot_dirty(self):
        make_dirty(self.main, 10)
        yield Step(self.take, vmm=self.main, stores=True, renews=True)

    def rollback(self):
        def call():
            self.main.call("Rollback", self.snapshots[0])
            return [self.main]
        yield Step(call, vmm=self.main, renews=True)

    def fork(self, n):
        def call():
            answers = self.main.call("Fork", dbus.UInt32(n))
            made = [Guest(sandbox_id) for ok, sandbox_id, *_ in answers if ok]
            if len(made) < n:
                kill_all(made)
                raise OperationFailed([str(text) for ok, *_, text in answers if not ok])
            return made
        kill_all((yield Step(call, vmm=self.main, stores=True)))

    def pause(self):
        def call():
            self.main.call("Pause")
            return []
        yield Step(call, stores=True)

    def resume(self):
        def call():
            self.main.call("Resume")
            return [self.main]
        yield Step(call)

    def kill(self):
        def call():
            self.main.kill()
            return []
        yield Step(call)

    def clean(self):
        if self.main and self.main.id in sandbox_ids():
            kill_all([self.main])
        for snapshot in reversed(self.snapshots):
            manager().RemoveSnapshot(snapshot, timeout=CALL_LIMIT)


def make_dirty(guest, mib):
    """In the payload guest, or one with a shell."""
    try:
        guest.exec("dirty", str(mib))
    except dbus.DBusException:
        guest.exec("dd", "if=/dev/urandom", "of=/dev/shm/dirty", "bs=1M", f"count={mib}")


def kill_all(guests):
    for guest in guests:
        guest.kill()
    wait_for("them to be gone", lambda: not {guest.id for guest in guests} & set(sandbox_ids()), timeout=120)


def stored_bytes(name):
    """{file: bytes it takes on disk} of a snapshot."""
    where = os.path.join(SNAPSHOTS, name)
    return {file: os.stat(os.path.join(where, file)).st_blocks * 512 for file in sorted(os.listdir(where))}


def stored_names():
    return {name for name in os.listdir(SNAPSHOTS) if name[0] != "."}
