# SPDX-License-Identifier: Apache-2.0
"""A guest may touch all the memory that it has, fresh and whatever was done to it: what it meets then is its own OOM killer,
never the limit of its scope."""

import contextlib
import os

import dbus
import pytest

from cubetest import created, ctl, ctl_ok, options, prop, remove_snapshot, run, sandbox, snapshot

MIB = 1 << 20
LONG = os.environ.get("CUBE_LONG") == "1"
SMALL, LARGE = 256 * MIB, (2048 if LONG else 1024) * MIB
SIZES = (SMALL, LARGE) if LONG else (SMALL,)

# Has a third of the memory in each snapshot, and writes to all of it again when told.
KEEPER = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
kept = bytearray(SIZE)
with open("/proc/self/oom_score_adj", "w") as f:
    f.write("-1000")
n = 0
while True:
    n = n % 255 + 1
    kept[::4096] = bytes([n]) * len(kept[::4096])
    with open("/dev/shm/touched.new", "w") as f:
        f.write(str(os.getpid()))
    os.rename("/dev/shm/touched.new", "/dev/shm/touched")
    signal.sigwait([signal.SIGUSR1])
    if kept.count(n, 0, 4096) != 1 or set(kept[::4096]) != {n}:
        os.abort()
"""
# Takes the rest, and dies of it.
TAKER = "import os\ntaken = []\nwhile True:\n taken.append(b'x' * (4 << 20))\n os.write(1, b'.')"
TOUCHED = "while ! test -e /dev/shm/touched; do sleep 0.1; done"


def scope_file(sandbox_id, name):
    with open(f"/sys/fs/cgroup/cube.slice/cube-{sandbox_id}.scope/{name}", encoding="ascii") as f:
        return f.read()


def memory_events(sandbox_id):
    lines = scope_file(sandbox_id, "memory.events").splitlines()
    return {name: int(number) for name, number in map(str.split, lines)}


def sh(sandbox_id, script):
    return ctl_ok("exec", sandbox_id, "--", "sh", "-c", script)


def takes_the_rest(sandbox_id):
    """How much a program could take of the guest's memory until it died of it; nobody came to the scope's limit."""
    result = ctl("exec", sandbox_id, "--", "python3", "-c", TAKER)
    assert result.returncode == 128 + 9, result.stderr
    assert ctl_ok("exec", sandbox_id, "--", "echo", "alive") == "alive\n"
    kinds = memory_events(sandbox_id)
    print(prop(sandbox_id, "Start"), len(result.stdout) * 4, "MiB", kinds)
    assert (kinds["max"], kinds["oom"], kinds["oom_kill"]) == (0, 0, 0)
    return len(result.stdout) * 4 * MIB


def touches_all(sandbox_id):
    """How much a program could take beside the keeper."""
    sh(sandbox_id, f"pid=$(cat /dev/shm/touched) && rm /dev/shm/touched && kill -USR1 $pid && {TOUCHED}")
    return takes_the_rest(sandbox_id)


def has_touched(sandbox_id, size):
    return int(scope_file(sandbox_id, "memory.peak")) > size * 0.9


@contextlib.contextmanager
def fork(sandbox_id):
    made, child, *why = sandbox(sandbox_id).Fork(dbus.UInt32(1), options({}))[0]
    assert made, why
    try:
        yield str(child)
    finally:
        ctl("kill", child)


def test_a_large_one_that_is_fresh(clean):
    """What the VMM needs besides grows with the memory."""
    with created("--memory", LARGE, "--timeout", "1h") as sandbox_id:
        takes_the_rest(sandbox_id)
        assert has_touched(sandbox_id, LARGE)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size // MIB}M")
def test_it_lives_behind_each_operation(clean, size):
    with created("--memory", size, "--timeout", "1h") as sandbox_id:
        run("cubectl", "exec", sandbox_id, "--", "sh", "-c", "cat >/root/keeper.py", check=True,
            input=KEEPER.replace("SIZE", str(size // 3)).encode())
        sh(sandbox_id, f"(setsid python3 /root/keeper.py </dev/null >/dev/null 2>&1 &); {TOUCHED}")
        fresh = touches_all(sandbox_id)
        assert has_touched(sandbox_id, size)
        least = fresh - 16 * MIB
        taken = snapshot(sandbox_id)
        assert touches_all(sandbox_id) > least
        with fork(sandbox_id) as child:
            assert touches_all(child) > least
        sandbox(sandbox_id).Rollback(taken, options({}))
        assert touches_all(sandbox_id) > least
        sandbox(sandbox_id).Pause(options({}))
        sandbox(sandbox_id).Resume(options({}))
        assert touches_all(sandbox_id) > least
    remove_snapshot(taken)
