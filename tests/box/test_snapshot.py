# SPDX-License-Identifier: Apache-2.0
"""Snapshots of running sandboxes, and sandboxes that start from them: memory and disk of one instant."""

import concurrent.futures
import subprocess

import dbus
import pytest

from cubetest import (ERROR, bus, created, created_from, ctl, ctl_ok, events, journal, manager, options, prop,
                      remove_snapshot, remove_snapshots, sandbox, sandbox_ids, snapshot, snapshot_dirs, wait_for)
from snapshots import count, counting, goes_on, put, sector


@pytest.fixture
def taken(clean):
    """taken(ID, ...): the id of a snapshot that is gone afterwards."""
    made = []

    def take(sandbox_id, **values):
        made.append(snapshot(sandbox_id, **values))
        return made[-1]

    yield take
    for snapshot_id in reversed(made):
        if snapshot_id in snapshot_dirs():
            remove_snapshot(snapshot_id)


def refused(name, call, *args, **kwargs):
    with pytest.raises(dbus.DBusException) as e:
        call(*args, **kwargs)
    assert e.value.get_dbus_name() == ERROR + name, e.value
    return str(e.value)


def test_the_sandbox_goes_on(taken):
    with counting() as sandbox_id:
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "cat"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
            cat.stdin.write(b"before\n")
            cat.stdin.flush()
            assert cat.stdout.readline() == b"before\n"
            first = count(sandbox_id)
            taken(sandbox_id, name="first")
            assert goes_on(sandbox_id) >= first
            cat.stdin.write(b"after\n")
            cat.stdin.close()
            assert cat.stdout.readline() == b"after\n"
        assert prop(sandbox_id, "Start") == "booted"
        entry = journal(sandbox_id, "CUBE_EVENT=snapshot")[-1]
        assert entry["CUBE_SNAPSHOT_NAME"] == "first" and int(entry["CUBE_PAUSE_USEC"]) > 0


def test_one_from_it_is_a_copy_of_that_instant(taken):
    with counting() as parent:
        put(parent, 100, "early")
        before = count(parent)
        instant = taken(parent)
        after = count(parent)
        put(parent, 100, "late")
        with created_from(instant) as child:
            assert prop(child, "Start") == "restored"
            assert prop(child, "KernelRelease") == prop(parent, "KernelRelease") != ""
            assert count(child) >= before
            goes_on(child)
            assert sector(child, 100) == "early"
            put(child, 100, "own")
            assert sector(parent, 100) == "late"
            assert sector(child, 100) == "own"
            with created_from(instant) as other:
                assert before <= count(other)
                assert sector(other, 100) == "early"
        assert goes_on(parent) >= after
        assert "start" in events(child)


def test_it_outlives_its_sandbox(taken):
    with counting() as sandbox_id:
        put(sandbox_id, 7, "kept")
        least = count(sandbox_id)
        instant = taken(sandbox_id)
    wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
    for _ in range(2):
        with created_from(instant) as child:
            assert goes_on(child) >= least
            assert sector(child, 7) == "kept"


def test_many_in_a_row_stay_apart(taken):
    """More than a VMM has layers for: they are merged behind the scenes, and each is still what it was."""
    with counting() as sandbox_id:
        made = []
        for i in range(14):
            put(sandbox_id, 50 + i % 3, f"number{i}")
            made.append((taken(sandbox_id), count(sandbox_id)))
        goes_on(sandbox_id)
    # what the counter left in memory is checked by each as it goes on
    least = 0
    for i, (instant, after) in enumerate(made):
        with created_from(instant) as child:
            assert sector(child, 50 + i % 3) == f"number{i}"
            assert goes_on(child) >= least
            least = after


def test_generations(taken):
    """A snapshot of one that came from a snapshot, and so on."""
    with counting() as first:
        put(first, 9, "root")
        instant = taken(first)
    for i in range(5):
        with created_from(instant) as child:
            assert sector(child, 9) == ("root" if i == 0 else f"child{i - 1}")
            put(child, 9, f"child{i}")
            goes_on(child)
            instant = taken(child)


def test_several_at_once_come_one_after_the_other(taken):
    with counting() as sandbox_id:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(snapshot, sandbox_id, bus()) for _ in range(5)]
            outs = [pool.submit(ctl_ok, "exec", sandbox_id, "--", "echo", f"word{i}") for i in range(10)]
            made = [job.result() for job in jobs]
            assert [out.result() for out in outs] == [f"word{i}\n" for i in range(10)]
        assert len(set(made)) == 5
        goes_on(sandbox_id)
    for snapshot_id in made:
        with created_from(snapshot_id) as child:
            goes_on(child)
    remove_snapshots(made)


def test_too_many_at_once_are_refused(clean):
    with created("--timeout", "1h") as sandbox_id:
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            jobs = [pool.submit(snapshot, sandbox_id, bus()) for _ in range(40)]
        failed = [job.exception().get_dbus_name() for job in jobs if job.exception()]
        assert set(failed) <= {ERROR + "Busy"} and len(failed) < 40
        made = [job.result() for job in jobs if not job.exception()]
    remove_snapshots(made)


def test_another_shape(taken):
    with counting() as sandbox_id:
        put(sandbox_id, 3, "here")
        instant = taken(sandbox_id)
    with created_from(instant, cpus=dbus.UInt32(2)) as child:
        assert prop(child, "Start") == "restored"
        assert prop(child, "CPUs") == 2
        goes_on(child)
    with created_from(instant, disk=dbus.UInt64(128 << 20)) as child:
        assert prop(child, "Start") == "restored"
        assert sector(child, 3) == "here"
        goes_on(child)
    assert "smaller" in refused("InvalidArgument", created_from(instant, disk=dbus.UInt64(4 << 20)).__enter__)


def test_what_can_not_be_restored_boots_from_its_disks(taken):
    with counting("--cpus", "2") as sandbox_id:
        put(sandbox_id, 3, "here")
        instant = taken(sandbox_id)
        with created_from(instant, cpus=dbus.UInt32(1)) as child:
            assert prop(child, "Start") == "booted"
            assert prop(child, "CPUs") == 1
            assert sector(child, 3) == "here"
            assert count(child) == 0
            put(child, 3, "mine")
            below = taken(child)
        with created_from(below) as grandchild:
            assert prop(grandchild, "Start") == "restored"
            assert sector(grandchild, 3) == "mine"
        assert sector(sandbox_id, 3) == "here"


def test_stop_and_kill_in_the_middle(clean):
    for verb in ("stop", "kill"):
        for _ in range(3):
            sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
            before = snapshot_dirs()
            with concurrent.futures.ThreadPoolExecutor() as pool:
                job = pool.submit(snapshot, sandbox_id, bus())
                assert ctl(verb, sandbox_id).returncode == 0
            wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
            if job.exception():
                wait_for("nothing to be left", lambda: snapshot_dirs() == before)
            else:
                with created_from(job.result()) as child:
                    assert prop(child, "Start") == "restored"
                remove_snapshot(job.result())


def test_who_may_not(clean):
    with created("--timeout", "1h") as sandbox_id:
        ctl("stop", sandbox_id)
        with pytest.raises(dbus.DBusException):
            snapshot(sandbox_id)
    refused("NoSuchSnapshot", manager().CreateSandbox, "snapshot:abcdefghijklmnop", options({}))
