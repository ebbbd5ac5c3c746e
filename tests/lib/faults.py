# SPDX-License-Identifier: Apache-2.0
"""A world in which something is killed while something else is done: at a random moment, over and over.

Each strike is one operation on one sandbox, and one SIGKILL some milliseconds into it. What was acknowledged before must be
there afterwards, whole; what was under way has happened or has not, and whichever it is, it is whole, too. The guest
offers what World asks of it (see sequences.py), and doom(id, msec): it dies so much later, however it does that.
"""

import concurrent.futures
import contextlib
import copy
import os
import signal

import dbus

from cubetest import (ERROR, bus, cubed_pid, ctl, find_helper, helper_pid, journal, leftovers, manager, manager_prop, options, prop, remove_snapshot,
                      run, sandbox, snapshot, wait_for)
from sequences import HOUR, TIMEOUT, World

RESOLVER = "cube-resolver.service"
# What a client hears of a service that died.
NO_ANSWER = ("org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.ServiceUnknown")


class Journal:
    """What is written from here on."""

    def __init__(self):
        run("journalctl", "--sync", check=True)
        text = run("journalctl", "-n0", "--show-cursor", check=True).stdout.decode()
        self.cursor = text.splitlines()[-1].removeprefix("-- cursor: ")

    def since(self, *options):
        run("journalctl", "--sync", check=True)
        return run("journalctl", "--after-cursor", self.cursor, *options, check=True).stdout.decode()

    def says(self, text):
        try:
            wait_for("the journal to say it", lambda: text in self.since("-o", "cat"))
        except AssertionError as e:
            raise AssertionError(f"the journal does not say '{text}', but:\n{self.since('-o', 'cat')}") from e


def vmms():
    return {int(pid) for pid in run("pgrep", "-x", "cube-vmm").stdout.split()}


def resolver_pid():
    return int(run("systemctl", "show", "-P", "MainPID", RESOLVER, check=True).stdout)


def service_is_whole():
    """cubed answers, has both helpers and its network."""
    if ctl("list").returncode != 0 or resolver_pid() == 0:
        return False
    with contextlib.suppress(dbus.DBusException):
        return find_helper("cube-stored") and find_helper("cube-netd") and manager_prop("Network4")
    return False


def states():
    """{id: state} of all sandboxes."""
    return {str(row[0]): str(row[1]) for row in manager().ListSandboxes()}


def snapshots():
    """{id: name} of those that people see."""
    return {str(row[0]): str(row[1]) for row in manager().ListSnapshots(options({"kind": "snapshot"}))}


def at_rest(killed):
    """No sandbox is on its way, and none is taken to be one of these processes."""
    found = states()
    with contextlib.suppress(dbus.DBusException):  # one that goes
        return set(found.values()) <= {"running", "paused", "failed"} and not any(prop(i, "VMMPID") in killed for i in found)
    return False


def processes():
    """Of the service; what is not struck goes on."""
    return {"cubed": cubed_pid(), "cube-stored": helper_pid("cube-stored"), "cube-netd": helper_pid("cube-netd"),
            "cube-resolver": resolver_pid()}


class Strike:
    """What was done, to what, and what came of it."""

    def __init__(self, operation, victim, at, target=None):
        self.operation, self.victim, self.at, self.target = operation, victim, at, target
        self.answer = self.error = None
        self.killed, self.taken_away = [], set()

    @property
    def acknowledged(self):
        return self.error is None

    @property
    def ends_a_guest(self):
        return self.victim in ("vmm", "agent")


class UnluckyWorld(World):
    OPERATIONS = ("create", "write", "snapshot", "pause", "resume", "fork", "rollback", "remove", "remove_snapshot")
    VICTIMS = ("cubed", "vmm", "cube-stored", "agent", "cube-netd", "cube-resolver")
    # A longer operation is struck in its first part only; all of them are done in the times of shells.
    LONGEST = 0.25
    # between two strikes: all of them want the CPU
    KEPT = 2

    def __init__(self, seed, guest, sandboxes_max=4):
        super().__init__(seed, guest, sandboxes_max)
        self.seed, self.strikes = seed, 0
        self.others = set(snapshots())

    def strike(self, victim):
        at = self.pick(self.lives)
        s = Strike(self.random.choice([o for o in self.OPERATIONS if self.can_be_struck(o, victim, at)]), victim, at)
        self.prepare(s)
        delay = self.LONGEST * self.random.random() ** 2
        self.strikes += 1
        print(f"{s.operation} of {s.at} ({s.target}), {delay * 1000:.1f} ms later SIGKILL to {victim}", flush=True)
        told, before = Journal(), processes()
        self.kill_in(s, delay)
        print(f"  {s.answer if s.acknowledged else s.error}", flush=True)
        wait_for("the service to be whole again", service_is_whole)
        wait_for("all to come to rest", lambda: at_rest(s.killed))
        self.settle(s)
        self.expect_told(s, told)
        # What was killed may have been taken for alive until its end was told.
        wait_for("the service to be whole again", service_is_whole)
        helpers = ("cube-stored", "cube-netd") if victim == "cubed" else ()
        assert {name for name, pid in processes().items() if pid != before[name]} == {victim, *helpers} - {"vmm", "agent"}
        self.expect_nothing_else()
        for sandbox_id in list(self.lives):
            self.check(sandbox_id)
        while len(self.lives) > self.KEPT:
            self.kill(next(iter(self.lives)))
        if not self.lives:
            self.create()

    def can_be_struck(self, operation, victim, at):
        room = len(self.lives) + 2 <= self.sandboxes_max
        return {"create": room and victim != "agent", "fork": room, "rollback": self.own_snapshots(at),
                "remove": len(self.lives) > 1, "remove_snapshot": self.saved and victim not in ("vmm", "agent"),
                # its end would be part of what is saved
                "resume": victim != "agent"}.get(operation, True)

    def prepare(self, s):
        if s.operation == "remove_snapshot":
            s.target = self.pick(self.saved)
        elif s.operation == "rollback":
            s.target = self.pick(self.own_snapshots(s.at))
        elif s.operation == "create":
            s.target = f"{self.seed}-{self.strikes}"
        elif s.operation == "write":
            self.words += 1
            s.target = (self.pick(self.guest.places), f"word{self.words}")
        if s.operation == "resume" and s.at not in self.paused:
            self.pause(s.at)
        elif s.operation not in ("resume", "create", "remove_snapshot"):
            self.resume(s.at)

    def kill_in(self, s, delay):
        """The operation in a thread, and the kill in this one."""
        strangers = vmms() - {int(prop(s.at, "VMMPID"))}
        if s.victim == "agent":
            self.guest.doom(s.at, int(delay * 1000))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(getattr(self, "do_" + s.operation), bus(), s)
            concurrent.futures.wait([job], timeout=delay)
            s.killed = self.pids_of(s, strangers)
            for pid in s.killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                s.answer = job.result()
            except dbus.DBusException as e:
                s.error = e
                assert e.get_dbus_name().startswith(ERROR) or s.victim == "cubed" and e.get_dbus_name() in NO_ANSWER, e
            except AssertionError as e:
                assert s.operation == "write", e  # cubectl's
                s.error = e

    def pids_of(self, s, strangers):
        if s.victim == "cubed":
            return [cubed_pid()]
        if s.victim == "vmm":
            mine = sorted(vmms() - strangers)
            return [self.random.choice(mine)] if mine else []
        return {"agent": list, "cube-resolver": lambda: [resolver_pid()]}.get(s.victim, lambda: [helper_pid(s.victim)])()

    # The operations, as a client does them that is told what came of it.

    def do_create(self, connection, s):
        values = {"timeout": dbus.UInt64(HOUR), "request-id": s.target}
        return str(manager(connection).CreateSandbox(self.guest.source, options(values), timeout=TIMEOUT)[0])

    def do_write(self, _, s):
        self.guest.put(s.at, *s.target)

    def do_snapshot(self, connection, s):
        return snapshot(s.at, connection)

    def do_pause(self, connection, s):
        sandbox(s.at, connection).Pause(options({}), timeout=TIMEOUT)

    def do_resume(self, connection, s):
        sandbox(s.at, connection).Resume(options({}), timeout=TIMEOUT)

    def do_fork(self, connection, s):
        return [str(child) for made, child, *_ in sandbox(s.at, connection).Fork(dbus.UInt32(2), options({}), timeout=TIMEOUT) if made]

    def do_rollback(self, connection, s):
        sandbox(s.at, connection).Rollback(s.target, options({}), timeout=TIMEOUT)

    def do_remove(self, connection, s):
        sandbox(s.at, connection).Kill(timeout=TIMEOUT)

    def do_remove_snapshot(self, connection, s):
        manager(connection).RemoveSnapshot(s.target, timeout=TIMEOUT)

    # What came of it: the model takes over what is there, if that is one of the things that may be.

    def settle(self, s):
        s.life = copy.deepcopy(self.lives[s.at])
        s.made = self.made_by(s)
        if s.victim == "agent":
            self.wait_for_doom(s)
        now = states()
        self.settle_losses(s, now)
        for child in set(now) - set(self.lives):
            assert child in s.made, f"{child} was made by nobody"
            self.lives[child] = self.guest.begin(child) if s.operation == "create" else copy.deepcopy(s.life)
        self.settle_snapshots(s)
        if s.at in self.lives:
            self.settle_state(s, now[s.at])

    def made_by(self, s):
        """Sandboxes that may be there now and were not before."""
        if s.operation == "create":
            # Asked for again it is the one that there is, if there is one.
            again = self.do_create(bus(), s)
            assert s.answer in (None, again) or s.ends_a_guest and s.answer not in states()
            return {again}
        if s.operation != "fork":
            return set()
        made = set(states()) - set(self.lives)
        assert s.ends_a_guest or set(s.answer or made) == made
        assert len(made) <= 2
        return made

    def wait_for_doom(self, s):
        """Whatever goes on from a moment behind the doom ends. What does not go on by itself is taken away."""
        survives = s.operation == "rollback" and s.acknowledged
        for sandbox_id in {s.at} - {s.at for _ in [0] if survives} | s.made:
            wait_for(f"{sandbox_id} to be gone or not to go on", lambda i=sandbox_id: states().get(i) != "running")
            if sandbox_id in states():
                s.taken_away.add(sandbox_id)
                ctl("kill", sandbox_id)

    def settle_losses(self, s, now):
        for sandbox_id in set(self.lives) - set(now):
            assert sandbox_id == s.at and (s.operation == "remove" or s.ends_a_guest), f"{sandbox_id} is lost"
            self.lives.pop(sandbox_id)
            self.paused.discard(sandbox_id)
        if s.operation == "remove" and s.at in now:
            assert not s.acknowledged
            self.resume(s.at)

    def settle_snapshots(self, s):
        now = snapshots()
        for snapshot_id in set(self.saved) - set(now):
            assert s.operation == "remove_snapshot" and snapshot_id == s.target, f"snapshot {snapshot_id} is lost"
            del self.saved[snapshot_id]
        assert not (s.operation == "remove_snapshot" and s.acknowledged and s.target in now)
        assert self.others <= set(now)
        more = set(now) - set(self.saved) - self.others
        if s.operation == "snapshot" and s.acknowledged:
            assert more == {s.answer}
        for snapshot_id in more:
            safety = s.operation == "rollback" and s.at not in self.lives and now[snapshot_id].endswith("-before-rollback")
            assert safety or s.operation == "snapshot" and len(more) == 1, f"snapshot {snapshot_id} was made by nobody"
            if s.victim == "agent":
                remove_snapshot(snapshot_id)
            else:
                self.saved[snapshot_id] = (s.at, copy.deepcopy(s.life))

    def settle_state(self, s, state):
        """Of the one that it was done to."""
        if s.operation in ("create", "remove_snapshot"):
            assert state == ("paused" if s.at in self.paused else "running")
        elif s.operation == "pause":
            assert state in ("paused",) if s.acknowledged else ("paused", "running")
        elif s.operation == "resume":
            assert state in ("running",) if s.acknowledged else ("paused", "running", "failed")
        else:
            assert state == "running"
        self.paused.discard(s.at)
        if state == "paused":
            self.paused.add(s.at)
        elif state == "failed":
            sandbox(s.at).Resume(options({}), timeout=TIMEOUT)
        if s.operation == "write":
            self.settle_words(s, {s.target[0]: s.target[1]})
        elif s.operation == "rollback":
            self.settle_words(s, self.saved[s.target][1].words)

    def settle_words(self, s, words):
        """All of it is there, or none of it."""
        _, found, processes = self.guest.look(s.at)
        life = self.lives[s.at]
        done = life.words | words
        assert found == done or not s.acknowledged and found == life.words, (found, life.words, words)
        if s.operation == "rollback" and found == done:
            life = self.lives[s.at] = copy.deepcopy(self.saved[s.target][1])
            life.least = min(life.least, s.life.least)
        life.words = found
        assert processes == life.processes

    def expect_told(self, s, told):
        if s.victim == "cubed":
            told.says("cubed.service: Main process exited, code=killed, status=9/KILL")
            told.says("is ready, ")
        elif s.victim == "cube-resolver":
            told.says(f"{RESOLVER}: Main process exited, code=killed, status=9/KILL")
        elif s.victim not in ("vmm", "agent"):
            told.says(f"{s.victim} ended (signal 9), starting it again")
        elif s.at not in self.lives:
            (reason,) = wait_for("its end to be told", lambda: [entry["CUBE_REASON"] for entry in journal(s.at, "CUBE_EVENT=exit")])
            # of the child of another cubed nobody learns how it ended
            expected = {"vmm": ("signal", "lost"), "agent": ("panic",)}[s.victim]
            assert reason in expected or s.at in s.taken_away or s.operation in ("remove", "rollback"), reason

    def expect_nothing_else(self):
        """No scope, VMM, file or snapshot but those of what is there."""
        running = {i for i, state in states().items() if state == "running"}

        def more():
            left = leftovers()
            return {"scopes": set(left["scopes"]) ^ {f"cube-{i}.scope" for i in running},
                    "vmms": len(left["vmms"]) - len(running), "run": set(left["run"]) ^ running,
                    "disks": {name.split(".")[0] for name in left["disks"]} - set(self.lives),
                    "snapshots": [name for name in left["snapshots"] if name[0] == "."]}
        try:
            wait_for("nothing else to be there", lambda: not any(more().values()))
        except AssertionError as e:
            raise AssertionError(f"there is more, or less: {more()}") from e

    def check_snapshots(self):
        """Whoever starts from one is whole."""
        for snapshot_id in list(self.saved):
            child = self.create_from(snapshot_id)
            self.kill(child)
