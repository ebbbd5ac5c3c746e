# SPDX-License-Identifier: Apache-2.0
"""Bad luck that takes a host of its own: one without memory for its sandboxes, a clock that jumps.
What was acknowledged stays, what has nothing to do with it goes on, and the journal says what happened."""

import contextlib
import subprocess
import time

import dbus
import pytest

from cubetest import (created, created_from, ctl, ctl_ok, cubed_pid, leftovers, nothing_left_since, remove_snapshot, run, sandbox,
                      sandbox_ids, snapshot, wait_for)


def keep(sandbox_id, word):
    """In memory and on the disk."""
    ctl_ok("exec", sandbox_id, "--", "sh", "-c", f"echo {word} >/dev/shm/word; echo {word} >/root/word; sync")


def has(sandbox_id, word):
    return ctl_ok("exec", sandbox_id, "--", "cat", "/dev/shm/word", "/root/word").split() == [word, word]


@pytest.fixture
def nothing_left():
    before = leftovers()
    yield
    nothing_left_since(before, but=["fds", "mounts"])


# No memory

GLUTTON = "taken = []\nwhile True: taken.append(bytearray(b'x' * (1 << 20)))"


def test_no_memory_for_all_of_them(nothing_left):
    """cube.slice has less than its sandboxes want: one of them ends with a reason, the others and cubed go on."""
    mine = cubed_pid()
    with created("--memory", "256M") as neighbour, created("--memory", "512M") as greedy:
        keep(neighbour, "kept")
        current = int(run("systemctl", "show", "-P", "MemoryCurrent", "cube.slice", check=True).stdout)
        run("systemctl", "set-property", "--runtime", "cube.slice", f"MemoryMax={current + (64 << 20)}", "MemorySwapMax=0", check=True)
        try:
            subprocess.run(["cubectl", "exec", greedy, "--", "python3", "-c", GLUTTON], timeout=300, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for("it to be gone", lambda: greedy not in sandbox_ids())
            assert b"oom-kill" in ctl("show", greedy).stdout
            assert has(neighbour, "kept")
        finally:
            run("systemctl", "revert", "cube.slice", check=True)
        with created("--memory", "256M") as other:
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
    with created("--memory", "256M", "--timeout", "1h") as sandbox_id, created("--memory", "256M", "--timeout", "1h") as paused:
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
