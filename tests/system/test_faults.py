# SPDX-License-Identifier: Apache-2.0
"""Bad luck that takes a host of its own: a disk that fails, a host without memory for its sandboxes, a clock that jumps.
What was acknowledged stays, what has nothing to do with it goes on, and the journal says what happened."""

import contextlib
import os
import subprocess
import time

import dbus
import pytest

from cubetest import (ERROR, at_rest, created, created_from, ctl, ctl_ok, cubed_pid, end_of, leftovers, manager_prop,
                      nothing_left_since, options, prop, remove_snapshot, run, sandbox, sandbox_ids, snapshot, wait_for)
from faults import Journal, snapshots

STORE = "/var/lib/cubed"


def keep(sandbox_id, word):
    """In memory and on the disk."""
    ctl_ok("exec", sandbox_id, "--", "sh", "-c", f"echo {word} >/dev/shm/word; echo {word} >/root/word; sync")


def has(sandbox_id, word):
    return ctl_ok("exec", sandbox_id, "--", "cat", "/dev/shm/word", "/root/word").split() == [word, word]


@pytest.fixture
def nothing_left():
    before = at_rest()
    yield
    nothing_left_since(before, but=["fds", "mounts"])


# A disk that fails

class Disk:
    """A disk with a file system, which can be told to fail."""

    name, image = "cubed-flakey", "/var/tmp/cubed-flakey.img"

    def __init__(self, size):
        with open(self.image, "wb") as f:
            f.truncate(size)
        self.loop = run("losetup", "--find", "--show", self.image, check=True).stdout.decode().strip()
        self.sectors = size >> 9
        run("modprobe", "dm-flakey", check=True)
        run("dmsetup", "create", self.name, "--table", self.table(up=3600, down=0), check=True)
        self.path = f"/dev/mapper/{self.name}"
        run("mkfs.ext4", "-q", self.path, check=True)

    def table(self, up, down):
        return f"0 {self.sectors} flakey {self.loop} 0 {up} {down} 1 error_writes"

    def set(self, up, down):
        run("dmsetup", "suspend", "--nolockfs", "--noflush", self.name, check=True)
        run("dmsetup", "load", self.name, "--table", self.table(up, down), check=True)
        run("dmsetup", "resume", self.name, check=True)

    @contextlib.contextmanager
    def failing_writes(self):
        self.set(up=0, down=3600)
        try:
            yield
        finally:
            self.set(up=3600, down=0)

    def remove(self):
        run("dmsetup", "remove", self.name, check=True)
        run("losetup", "--detach", self.loop, check=True)
        os.unlink(self.image)


def start():
    run("systemctl", "start", "cubed.service", check=True)
    wait_for("its network", lambda: manager_prop("Network4"))


@pytest.fixture
def store_on_a_disk(nothing_left):
    """cubed's store is on one of its own, with the templates that were there."""
    disk = Disk(3 << 30)
    run("systemctl", "stop", "cubed.service", check=True)
    run("mount", disk.path, "/mnt", check=True)
    run("cp", "-a", "--sparse=always", f"{STORE}/.", "/mnt", check=True)
    run("umount", "/mnt", check=True)
    run("mount", disk.path, STORE, check=True)
    start()
    yield disk
    for sandbox_id in sandbox_ids():
        ctl("kill", sandbox_id)
    run("systemctl", "stop", "cubed.service", check=True)
    run("umount", STORE, check=True)
    disk.remove()
    start()


def repair(disk):
    """What an admin does: the file system gave up at the first error."""
    run("systemctl", "stop", "cubed.service", check=True)
    run("umount", STORE, check=True)
    assert run("e2fsck", "-f", "-y", disk.path).returncode in (0, 1)
    run("mount", disk.path, STORE, check=True)
    start()


@pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="takes minutes; tests/box/test_faults_disk.py is the short form")
def test_a_disk_that_fails(store_on_a_disk):
    running = ctl_ok("create", "--memory", "256M", "--timeout", "1h").strip()
    keep(running, "one")
    saved = snapshot(running)
    paused = ctl_ok("create", f"snapshot:{saved}", "--timeout", "1h").strip()
    keep(paused, "two")
    ctl_ok("pause", paused)
    with store_on_a_disk.failing_writes():
        for method in "Snapshot", "Pause":
            told = Journal()
            with pytest.raises(dbus.DBusException) as e:
                getattr(sandbox(running), method)(options({}))
            assert e.value.get_dbus_name().startswith(ERROR), e
            told.says(e.value.get_dbus_message())
            assert prop(running, "State") == "running"
            assert ctl_ok("exec", running, "--", "cat", "/dev/shm/word") == "one\n"
        assert set(snapshots()) == {saved}
        ctl_ok("kill", running)
    repair(store_on_a_disk)
    assert sandbox_ids() == [paused] and set(snapshots()) == {saved}
    wait_for("nothing of the others to be there", lambda: {name.split(".")[0] for name in leftovers()["disks"]} == {paused})
    ctl_ok("resume", paused)
    assert has(paused, "two")
    with created_from(saved) as child:
        assert has(child, "one")
    ctl_ok("kill", paused)
    remove_snapshot(saved)


# No memory

# Has more than any other before it is told to go on.
GLUTTON = """
taken = [bytearray(b'x' * (1 << 20)) for _ in range(200)]
print('on', flush=True)
input()
while True:
    taken.append(bytearray(b'x' * (1 << 20)))
"""


def test_no_memory_for_all_of_them(nothing_left):
    """cube.slice has less than its sandboxes want: one of them ends with a reason, the others and cubed go on."""
    mine = cubed_pid()
    with created() as neighbour, created() as greedy:
        keep(neighbour, "kept")
        with subprocess.Popen(["cubectl", "exec", greedy, "--", "python3", "-c", GLUTTON], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as glutton:
            assert glutton.stdout.readline() == b"on\n"
            current = int(run("systemctl", "show", "-P", "MemoryCurrent", "cube.slice", check=True).stdout)
            run("systemctl", "set-property", "--runtime", "cube.slice", f"MemoryMax={current + (64 << 20)}", "MemorySwapMax=0", check=True)
            try:
                glutton.communicate(b"\n")
                wait_for("it to be gone", lambda: greedy not in sandbox_ids())
                assert "oom-kill" in end_of(greedy)
                assert has(neighbour, "kept")
            finally:
                glutton.kill()
                run("systemctl", "revert", "cube.slice", check=True)
        with created() as other:
            assert ctl_ok("exec", other, "--", "echo", "here") == "here\n"
    assert cubed_pid() == mine


# A clock that jumps

@contextlib.contextmanager
def clock_moved(seconds):
    """And moved back, by what a clock says that does not jump."""
    before, then = time.time(), time.monotonic()
    time.clock_settime(time.CLOCK_REALTIME, before + seconds)
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, before + time.monotonic() - then)


@pytest.mark.parametrize("seconds", [3 * 3600, -3 * 3600])
def test_a_clock_that_jumps(nothing_left, seconds):
    """Lifetimes go on as they were, also for a cubed that is started then; a copy has the host's time."""
    with created("--timeout", "2h") as sandbox_id, created("--timeout", "2h") as paused:
        keep(sandbox_id, "kept")
        keep(paused, "paused")
        ctl_ok("pause", paused)
        with clock_moved(seconds):
            assert has(sandbox_id, "kept")
            run("systemctl", "restart", "cubed.service", check=True)
            assert has(sandbox_id, "kept")
            ctl_ok("resume", paused)
            assert has(paused, "paused")
            began = time.time()
            theirs = float(ctl_ok("exec", paused, "--", "date", "+%s.%N"))
            assert began - 1 <= theirs <= time.time() + 1
            saved = snapshot(sandbox_id)
            with created_from(saved) as child:
                assert has(child, "kept")
            remove_snapshot(saved)
        assert {sandbox_id, paused} <= set(sandbox_ids())
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(1_000_000))
        wait_for("its lifetime to end", lambda: sandbox_id not in sandbox_ids())
