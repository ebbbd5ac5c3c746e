# SPDX-License-Identifier: Apache-2.0
"""Random sequences of snapshot, fork, rollback, checkpoint and exec: after each of them memory, disk and processes are
what they must be, and at the end nothing is left. What fails is run again by its seed."""

import copy
import os
import random

import dbus
import pytest

from cubetest import ctl, ctl_ok, manager, options, remove_snapshot, sandbox, snapshot, snapshot_dirs
from snapshots import count, put, sector, start_counter

SEQUENCES = 200 if os.environ.get("CUBE_LONG") == "1" else 10
STEPS = 12
SECTORS = range(200, 202)
SANDBOXES_MAX = 4


class Life:
    """What a sandbox must have, or had when a snapshot was taken."""

    def __init__(self):
        self.words = {number: "none" for number in SECTORS}
        self.least = 0     # that "counter" has counted
        self.process = 0   # its pid


class World:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lives, self.saved, self.counters, self.checkpoints = {}, {}, [], {}
        self.words = 0

    def pick(self, things):
        return self.random.choice(sorted(things))

    def check(self, sandbox_id):
        life = self.lives[sandbox_id]
        number = count(sandbox_id)  # fails when it found memory or disk otherwise than it had left them
        assert number >= life.least
        life.least = number
        assert {n: sector(sandbox_id, n) for n in SECTORS} == life.words
        assert process(sandbox_id) == life.process

    # The steps

    def create(self, *arguments):
        sandbox_id = ctl_ok("create", "--timeout", "1h", *arguments).strip()
        self.lives[sandbox_id] = Life()
        for number in SECTORS:
            put(sandbox_id, number, "none")
        self.counters.append(start_counter(sandbox_id))
        self.lives[sandbox_id].process = process(sandbox_id)
        if "--checkpoint" in arguments:
            self.checkpoints[sandbox_id] = {}
        return sandbox_id

    def write(self, sandbox_id):
        self.words += 1
        number, word = self.pick(SECTORS), f"word{self.words}"
        before = copy.deepcopy(self.lives[sandbox_id])
        put(sandbox_id, number, word)
        self.lives[sandbox_id].words[number] = word
        if sandbox_id in self.checkpoints:
            self.checkpoints[sandbox_id][newest_checkpoint(sandbox_id)] = before

    def snapshot(self, sandbox_id):
        self.check(sandbox_id)
        taken = snapshot(sandbox_id)
        self.saved[taken] = (sandbox_id, copy.deepcopy(self.lives[sandbox_id]))

    def fork(self, sandbox_id):
        n = min(self.pick((1, 2)), SANDBOXES_MAX - len(self.lives))
        if n < 1:
            return
        self.check(sandbox_id)
        results = sandbox(sandbox_id).Fork(dbus.UInt32(n), options({"checkpoint": dbus.UInt64(3600_000_000)}), timeout=120)
        for made, child, *why in results:
            assert made, why
            self.lives[str(child)] = copy.deepcopy(self.lives[sandbox_id])
            self.check(str(child))

    def rollback(self, sandbox_id):
        own = [s for s, (of, _) in self.saved.items() if of == sandbox_id]
        if own:
            target = self.pick(own)
            sandbox(sandbox_id).Rollback(target, options({}), timeout=120)
            self.lives[sandbox_id] = copy.deepcopy(self.saved[target][1])

    def rollback_to_checkpoint(self, sandbox_id):
        present = set(checkpoints(sandbox_id)) & set(self.checkpoints.get(sandbox_id, {}))
        if present:
            number = self.pick(present)
            ctl_ok("rollback", "--to", number, sandbox_id)
            self.lives[sandbox_id] = copy.deepcopy(self.checkpoints[sandbox_id][number])

    def create_from(self, _):
        if self.saved and len(self.lives) < SANDBOXES_MAX:
            source = self.pick(self.saved)
            child, _ = manager().CreateSandbox(f"snapshot:{source}", options({"timeout": dbus.UInt64(3600_000_000)}), timeout=120)
            self.lives[str(child)] = copy.deepcopy(self.saved[source][1])

    def kill(self, sandbox_id):
        if len(self.lives) > 1:
            ctl_ok("kill", sandbox_id)
            del self.lives[sandbox_id]
            self.checkpoints.pop(sandbox_id, None)

    def end(self):
        for p in self.counters:
            p.kill()
            p.wait()
        for sandbox_id in self.lives:
            ctl("kill", sandbox_id)
        for _ in range(len(self.saved)):
            for snapshot_id in sorted(set(self.saved) & snapshot_dirs()):
                try:
                    remove_snapshot(snapshot_id)
                except dbus.DBusException as e:
                    assert e.get_dbus_name().endswith((".SnapshotInUse", ".NoSuchSnapshot")), e


def process(sandbox_id):
    rows = sandbox(sandbox_id).ListProcesses()
    (pid,) = [int(row[0]) for row in rows if "counter" in [str(field) for field in row]]
    return pid


def checkpoints(sandbox_id):
    rows = manager().ListSnapshots(options({"sandbox": sandbox_id, "kind": "checkpoint"}))
    return sorted(int(row[3]) for row in rows)


def newest_checkpoint(sandbox_id):
    return checkpoints(sandbox_id)[-1]


STEPS_KNOWN = ("write", "write", "write", "snapshot", "snapshot", "fork", "rollback", "rollback", "rollback",
               "rollback_to_checkpoint", "rollback_to_checkpoint", "create_from", "kill")


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_sequence(clean, seed):
    world = World(seed)
    try:
        world.create(*(["--checkpoint", "exec"] if seed % 2 else []), *(["--cpus", "2"] if seed % 4 > 1 else []))
        for _ in range(STEPS):
            step = world.random.choice(STEPS_KNOWN)
            at = world.pick(world.lives)
            print(step, at)
            getattr(world, step)(at)
            world.check(world.pick(world.lives))
        for sandbox_id in world.lives:
            world.check(sandbox_id)
    finally:
        world.end()
