# SPDX-License-Identifier: Apache-2.0
"""Random sequences of snapshot, fork, rollback, checkpoint, pause, resume and exec: after each of them memory, disk and
processes are what they must be, and at the end nothing is left. What fails is run again by its seed."""

import os

import dbus
import pytest

from cubetest import sandbox, wait_for
from sequences import Life, Record, World
from snapshots import count, put, sector, start_counter

SEQUENCES = 200 if os.environ.get("CUBE_LONG") == "1" else 10
STEPS = 12


class PayloadGuest:
    """Words are in sectors of vdb; "counter" counts in memory and on vdb."""

    source = "template:payload"
    places = tuple(range(200, 202))
    executes = True

    def __init__(self, busy):
        self.busy, self.counters = busy, []

    def begin(self, sandbox_id):
        for number in self.places:
            put(sandbox_id, number, "none")
        self.counters.append(start_counter(sandbox_id, self.busy))
        return Life({number: "none" for number in self.places}, 0, self.processes(sandbox_id))

    def put(self, sandbox_id, place, word):
        put(sandbox_id, place, word)

    def look(self, sandbox_id):
        first, words = count(sandbox_id), {n: sector(sandbox_id, n) for n in self.places}
        wait_for("the guest to count on", lambda: count(sandbox_id) > first)
        return first, words, self.processes(sandbox_id)

    @staticmethod
    def processes(sandbox_id):
        rows = sandbox(sandbox_id).ListProcesses()
        (pid,) = [int(row[0]) for row in rows if "counter" in [str(field) for field in row]]
        return pid

    def end(self):
        for p in self.counters:
            p.kill()
            p.wait()


@pytest.fixture(scope="module")
def record():
    return Record()


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_sequence(clean, record, seed):
    guest = PayloadGuest(busy=seed % 5 == 0)
    world = World(seed, guest)
    try:
        values = {"checkpoint": "exec"} if seed % 2 else {}
        world.create(**values, **({"cpus": dbus.UInt32(2)} if seed % 4 > 1 else {}))
        world.run(STEPS)
    finally:
        guest.end()
        world.end()
    record.add(world)


def test_all_was_done_and_the_service_did_not_grow(record):
    record.check()
