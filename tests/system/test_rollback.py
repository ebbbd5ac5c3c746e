# SPDX-License-Identifier: Apache-2.0
"""Rollback and forks of Linux guests: memory, disk, tmpfs, open files and processes are those of then, clocks are right,
and no two copies draw the same random numbers."""

import os
import time

import dbus
import pytest

from cubetest import created, created_from, ctl, ctl_ok, options, prop, remove_snapshot, run, sandbox, snapshot, wait_for
from linuxguest import ask_with_time, has_all, put_all

COPIES = 100 if os.environ.get("CUBE_LONG") == "1" else 10
AT_ONCE = 10


@pytest.fixture
def checked(checkers):
    """checked(CPUS): a sandbox with a checker in it."""
    return lambda cpus=1: created_from(checkers(cpus).base)


@pytest.mark.parametrize("cpus", [1, 2])
def test_all_is_as_it_was_then(checked, cpus):
    with checked(cpus) as sandbox_id:
        first = put_all(sandbox_id, "one")
        one = snapshot(sandbox_id)
        between = ask_with_time(sandbox_id)
        put_all(sandbox_id, "two")
        two = snapshot(sandbox_id)
        put_all(sandbox_id, "three")
        ctl_ok("exec", sandbox_id, "--", "rm", "/root/checker/disk")
        randoms = {first["random"], between["random"]}
        for target, word in (one, "one"), (two, "two"), (one, "one"):
            began = time.monotonic()
            sandbox(sandbox_id).Rollback(target, options({}))
            answer = has_all(sandbox_id, word)
            assert (answer["processes"], answer["cpus"]) == (first["processes"], cpus)
            assert answer["random"] not in randoms
            randoms.add(answer["random"])
            if target == one:
                for clock in "monotonic", "boottime":
                    assert first[clock] <= answer[clock] <= between[clock] + time.monotonic() - began
                assert first["count"] <= answer["count"]
            put_all(sandbox_id, "spoilt")
    for snapshot_id in (two, one):
        remove_snapshot(snapshot_id)


def test_copies_differ_in_what_must_differ(checked):
    """Their random numbers, names and from then on their lives; all else is the same."""
    with checked() as sandbox_id:
        parent = put_all(sandbox_id, "common")
        randoms, names = [parent["random"]], []
        for _ in range(0, COPIES, AT_ONCE):
            results = sandbox(sandbox_id).Fork(dbus.UInt32(AT_ONCE), options({}))
            copies = [str(r[1]) for r in results if r[0]]
            try:
                assert len(copies) == AT_ONCE, results
                answers = [has_all(copy, "common") for copy in copies]
                assert all(answer["processes"] == parent["processes"] for answer in answers)
                assert [answer["hostname"] for answer in answers] == copies
                randoms += [answer["random"] for answer in answers]
                names += copies
                if len(names) == AT_ONCE:
                    go_their_own_ways(sandbox_id, copies[:3])
            finally:
                for copy in copies:
                    ctl("kill", copy)
        assert len(set(randoms)) == 1 + COPIES
        assert len(set(names)) == COPIES


def go_their_own_ways(parent, copies):
    for copy in copies:
        put_all(copy, copy)
    for copy in copies:
        has_all(copy, copy)
    has_all(parent, "common")


def test_hooks_run_in_a_copy_and_the_journal_tells_of_one_that_fails():
    hooks = """mkdir -p /etc/cube/fork.d; cd /etc/cube/fork.d
        printf '#!/bin/sh\necho $CUBE_EPOCH >>/root/epochs\n' >10-good
        printf '#!/bin/sh\necho no luck\nexit 3\n' >20-bad
        chmod 755 *"""
    with created("--timeout", "1h") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "sh", "-c", hooks)
        made, copy, *why = sandbox(sandbox_id).Fork(dbus.UInt32(1), options({}))[0]
        assert made, why
        try:
            epochs = ctl_ok("exec", copy, "--", "cat", "/root/epochs").split()
            assert len(epochs) == 1 and int(epochs[0]) > 1

            def told():
                return run("journalctl", "-u", "cubed.service", "-o", "cat", "--no-pager", "-g", copy).stdout.decode()
            wait_for("the journal to tell of it", lambda: "20-bad" in told() and "no luck" in told())
            assert ctl("exec", sandbox_id, "--", "test", "-e", "/root/epochs").returncode == 1
        finally:
            ctl("kill", copy)


def mem_total(sandbox_id):
    for line in ctl_ok("exec", sandbox_id, "--", "cat", "/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no MemTotal")


def set_memory(sandbox_id, size):
    sandbox(sandbox_id).SetLimits(options({"memory": dbus.UInt64(size)}))


def memory_max(sandbox_id):
    return int(run("systemctl", "show", "-P", "MemoryMax", f"cube-{sandbox_id}.scope", check=True).stdout)


def test_memory_is_as_much_as_then(checked):
    """More that was plugged since goes, what was plugged then is there again, and the scope's limit fits."""
    with checked() as sandbox_id:
        put_all(sandbox_id, "small")
        small, small_total, small_max = snapshot(sandbox_id), mem_total(sandbox_id), memory_max(sandbox_id)
        set_memory(sandbox_id, 768 << 20)
        put_all(sandbox_id, "large")
        large, large_total, large_max = snapshot(sandbox_id), mem_total(sandbox_id), memory_max(sandbox_id)
        assert large_total > small_total + (200 << 20)
        for target, word, size, total, limit in ((small, "small", 512, small_total, small_max),
                                                 (large, "large", 768, large_total, large_max)):
            sandbox(sandbox_id).Rollback(target, options({}))
            has_all(sandbox_id, word)
            assert prop(sandbox_id, "Memory") == size << 20
            assert abs(mem_total(sandbox_id) - total) < 8 << 20
            assert memory_max(sandbox_id) == limit
        # all of it is there
        ctl_ok("exec", sandbox_id, "--", "python3", "-c", "x = bytearray(600 << 20); x[::4096] = b'x' * len(x[::4096])")
    for snapshot_id in (large, small):
        remove_snapshot(snapshot_id)
