# SPDX-License-Identifier: Apache-2.0
"""Random sequences of what can be done to the state of a sandbox, and the model of what each must have after each step.

A world has some sandboxes, and knows of each, and of each snapshot and checkpoint, which words it has in which places
(memory, disk, processes, whatever the guest offers), how far it had counted and which processes it has. What a guest
offers and how it is asked is the guest's matter, see PayloadGuest in tests/box and LinuxGuest here in tests/lib:

    places                         where a word can be
    source                         what a sandbox of it starts from
    begin(id)                      its Life, of a new sandbox
    put(id, place, word)           leaves a word there
    look(id)                       (count, {place: word}, processes); fails when the guest found itself otherwise than it
                                   had left itself, or does not go on counting
    executes                       put() is an exec and nothing but that: a checkpoint of what was before it is taken by it
"""

import copy
import random

import dbus

from cubetest import PATIENCE, ctl, ctl_ok, manager, options, prop, remove_snapshots, sandbox, service_memory, snapshot

HOUR = 3600_000_000
TIMEOUT = PATIENCE


class Life:
    """What a sandbox must have, or had when a snapshot was taken."""

    def __init__(self, words, count, processes):
        self.words, self.processes = words, processes
        self.least = count  # that it has counted


class World:
    STEPS = ("write", "snapshot", "snapshot", "checkpoint", "checkpoint", "fork", "rollback", "rollback", "rollback",
             "rollback_to_checkpoint", "rollback_to_checkpoint", "create_from_any", "create_from_any", "pause", "pause", "resume",
             "resume", "resume", "kill")

    def __init__(self, seed, guest, sandboxes_max=4):
        self.random = random.Random(seed)
        self.guest, self.sandboxes_max = guest, sandboxes_max
        self.lives, self.saved, self.checkpoints, self.paused = {}, {}, {}, set()
        self.words, self.done = 0, set()

    def run(self, steps):
        """So many steps; behind each of them the one that it was done to is looked at, and another."""
        for _ in range(steps):
            at = self.pick(self.lives)
            step = self.random.choice([s for s in self.STEPS if self.possible(s, at)])
            print(step, at, flush=True)
            getattr(self, step)(at)
            self.done.add(step)
            for sandbox_id in {at: None, self.pick(self.lives): None}:
                if sandbox_id in self.lives:
                    self.check(sandbox_id)
        for sandbox_id in self.lives:
            self.resume(sandbox_id)
            self.check(sandbox_id)

    def possible(self, step, at):
        room = len(self.lives) < self.sandboxes_max
        return {"fork": room, "create_from_any": room and self.saved, "rollback": self.own_snapshots(at),
                "checkpoint": at in self.checkpoints, "rollback_to_checkpoint": self.own_checkpoints(at),
                "pause": at not in self.paused, "resume": at in self.paused, "kill": len(self.lives) > 1}.get(step, True)

    def own_snapshots(self, sandbox_id):
        return [s for s, (of, _) in self.saved.items() if of == sandbox_id]

    def own_checkpoints(self, sandbox_id):
        """Those that are known and still there: the oldest go in time."""
        known = self.checkpoints.get(sandbox_id)
        return [number for number in checkpoints(sandbox_id) if number in known] if known else []

    def pick(self, things):
        return self.random.choice(list(things))  # in the order in which they were made: ids are another each time

    def check(self, sandbox_id):
        if sandbox_id in self.paused:
            assert (prop(sandbox_id, "State"), prop(sandbox_id, "VMMPID")) == ("paused", 0)
            return
        life = self.lives[sandbox_id]
        count, words, processes = self.guest.look(sandbox_id)
        assert count >= life.least, (count, life.least)
        life.least = count
        assert words == life.words, (words, life.words)
        assert processes == life.processes, (processes, life.processes)

    # The steps. What is paused is resumed for all but to be killed. Behind what saves a state something is written, so that
    # it makes a difference to go back to it.

    def create(self, **values):
        sandbox_id, _ = manager().CreateSandbox(self.guest.source, options({"timeout": dbus.UInt64(HOUR)} | values), timeout=TIMEOUT)
        sandbox_id = str(sandbox_id)
        self.lives[sandbox_id] = self.guest.begin(sandbox_id)
        if values.get("checkpoint") == "exec":
            self.checkpoints[sandbox_id] = {}
        return sandbox_id

    def write(self, sandbox_id):
        self.resume(sandbox_id)
        self.words += 1
        place, word = self.pick(self.guest.places), f"word{self.words}"
        before = copy.deepcopy(self.lives[sandbox_id])
        self.guest.put(sandbox_id, place, word)
        self.lives[sandbox_id].words[place] = word
        if self.guest.executes:
            self.checkpointed(sandbox_id, before)

    def checkpoint(self, sandbox_id):
        self.resume(sandbox_id)
        before = copy.deepcopy(self.lives[sandbox_id])
        ctl_ok("exec", sandbox_id, "--", "true")
        self.checkpointed(sandbox_id, before)
        self.write(sandbox_id)

    def checkpointed(self, sandbox_id, life):
        if sandbox_id in self.checkpoints:
            self.checkpoints[sandbox_id][checkpoints(sandbox_id)[-1]] = life

    def snapshot(self, sandbox_id):
        self.resume(sandbox_id)
        self.check(sandbox_id)
        taken = snapshot(sandbox_id)
        self.saved[taken] = (sandbox_id, copy.deepcopy(self.lives[sandbox_id]))
        self.write(sandbox_id)

    def fork(self, sandbox_id):
        n = min(self.pick((1, 2)), self.sandboxes_max - len(self.lives))
        self.resume(sandbox_id)
        self.check(sandbox_id)
        results = sandbox(sandbox_id).Fork(dbus.UInt32(n), options({"checkpoint": dbus.UInt64(HOUR)}), timeout=TIMEOUT)
        for made, child, *why in results:
            assert made, why
            self.lives[str(child)] = copy.deepcopy(self.lives[sandbox_id])
        for _, child, *_ in results:
            self.check(str(child))
            self.write(str(child))

    def rollback(self, sandbox_id):
        self.resume(sandbox_id)
        target = self.pick(self.own_snapshots(sandbox_id))
        sandbox(sandbox_id).Rollback(target, options({}), timeout=TIMEOUT)
        self.lives[sandbox_id] = copy.deepcopy(self.saved[target][1])

    def rollback_to_checkpoint(self, sandbox_id):
        self.resume(sandbox_id)
        number = self.pick(self.own_checkpoints(sandbox_id))
        ctl_ok("rollback", "--to", number, sandbox_id)
        self.lives[sandbox_id] = copy.deepcopy(self.checkpoints[sandbox_id][number])

    def create_from_any(self, _):
        self.create_from(self.pick(self.saved))

    def create_from(self, source):
        child, _ = manager().CreateSandbox(f"snapshot:{source}", options({"timeout": dbus.UInt64(HOUR)}), timeout=TIMEOUT)
        child = str(child)
        self.lives[child] = copy.deepcopy(self.saved[source][1])
        self.check(child)
        return child

    def pause(self, sandbox_id):
        self.check(sandbox_id)
        sandbox(sandbox_id).Pause(options({}), timeout=TIMEOUT)
        self.paused.add(sandbox_id)

    def resume(self, sandbox_id):
        if sandbox_id in self.paused:
            sandbox(sandbox_id).Resume(options({}), timeout=TIMEOUT)
            self.paused.remove(sandbox_id)

    def kill(self, sandbox_id):
        ctl_ok("kill", sandbox_id)
        self.paused.discard(sandbox_id)
        self.checkpoints.pop(sandbox_id, None)
        del self.lives[sandbox_id]

    def end(self):
        """Takes all away that was made."""
        for sandbox_id in self.lives:
            ctl("kill", sandbox_id)
        remove_snapshots(self.saved)


class Record:
    """What the sequences of a run did, and what the service had for itself behind each of them."""

    def __init__(self):
        self.done, self.memory = set(), []

    def add(self, world):
        self.done |= world.done
        self.memory.append(service_memory())

    def check(self):
        assert self.done == set(World.STEPS)
        # what it needs once it has by the third; sequences by the hundred must not make it more
        assert self.memory[-1] - self.memory[2] < 4 << 20, self.memory


def checkpoints(sandbox_id):
    """The numbers of those that are there, in order."""
    rows = manager().ListSnapshots(options({"sandbox": sandbox_id, "kind": "checkpoint"}))
    return sorted(int(row[3]) for row in rows)
