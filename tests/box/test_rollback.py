# SPDX-License-Identifier: Apache-2.0
"""Rollback of a running sandbox to a snapshot of its own: same id, same VMM, memory, disk and processes of that
instant; and on any failure the state of before."""

import os
import subprocess
import time

import dbus
import pytest

from cubetest import (ERROR, created, created_from, ctl_ok, journal, options, prop, remove_snapshot, sandbox, sandbox_ids, snapshot,
                      snapshot_dirs, wait_for)
from snapshots import count, counting, goes_on, hanging, put, sector

SNAPSHOTS = "/var/lib/cubed/snapshots"


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


def rollback(sandbox_id, snapshot_id):
    sandbox(sandbox_id).Rollback(snapshot_id, options({}), timeout=120)


def refused(name, sandbox_id, snapshot_id):
    with pytest.raises(dbus.DBusException) as e:
        rollback(sandbox_id, snapshot_id)
    assert e.value.get_dbus_name() == ERROR + name, e.value
    return str(e.value)


def vmm(sandbox_id):
    return int(prop(sandbox_id, "VMMPID"))


def realtime(sandbox_id):
    """In seconds, as the guest has it."""
    return int(ctl_ok("exec", sandbox_id, "--", "clock").split()[2]) / 1e9


def test_the_time_is_right_however_long_the_guest_takes_with_the_claim(template, taken):
    with created("--template", template("slow-claim"), "--timeout", "1h") as sandbox_id:
        instant = taken(sandbox_id)
        rollback(sandbox_id, instant)
        before = time.time()
        found = realtime(sandbox_id)
        assert before - 1 <= found <= time.time() + 1


def test_memory_disk_and_processes_are_those_of_then(taken):
    with counting() as sandbox_id:
        put(sandbox_id, 100, "then")
        before, pid = count(sandbox_id), vmm(sandbox_id)
        instant = taken(sandbox_id)
        goes_on(sandbox_id)
        put(sandbox_id, 100, "later")
        put(sandbox_id, 101, "later")
        sandbox(sandbox_id).Exec(["hang"], options({}))
        assert len(hanging(sandbox_id)) == 1
        rollback(sandbox_id, instant)
        # How far it has counted by now says nothing: it goes on while we look.
        assert count(sandbox_id) >= before
        assert hanging(sandbox_id) == []
        assert (sector(sandbox_id, 100), sector(sandbox_id, 101)) == ("then", "")
        goes_on(sandbox_id)
        assert vmm(sandbox_id) == pid
        assert prop(sandbox_id, "BaseSnapshot") == instant
        assert prop(sandbox_id, "Start") == "restored"


def test_to_the_second_last(taken):
    with created("--timeout", "1h") as sandbox_id:
        made = []
        for i in range(4):
            put(sandbox_id, 9, f"state{i}")
            made.append(taken(sandbox_id))
        put(sandbox_id, 9, "none")
        for i in (2, 0, 3, 1, 1):
            rollback(sandbox_id, made[i])
            assert sector(sandbox_id, 9) == f"state{i}"
            put(sandbox_id, 9, "other")
        late = taken(sandbox_id)
        rollback(sandbox_id, made[3])
        assert sector(sandbox_id, 9) == "state3"
        rollback(sandbox_id, late)
        assert sector(sandbox_id, 9) == "other"


def test_streams_of_before_end(taken):
    with created("--timeout", "1h") as sandbox_id:
        instant = taken(sandbox_id)
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as cat:
            cat.stdin.write(b"before\n")
            cat.stdin.flush()
            assert cat.stdout.readline() == b"before\n"
            rollback(sandbox_id, instant)
            assert cat.stdout.read() == b""
            assert cat.wait(60) != 0
        assert ctl_ok("exec", sandbox_id, "--", "echo", "after") == "after\n"


def test_many_in_a_row(taken):
    with counting() as sandbox_id:
        put(sandbox_id, 5, "kept")
        instant = taken(sandbox_id)
        least, before = count(sandbox_id), snapshot_dirs()
        for i in range(20):
            put(sandbox_id, 5, f"lost{i}")
            rollback(sandbox_id, instant)
            assert sector(sandbox_id, 5) == "kept"
            goes_on(sandbox_id)
        assert least > 0
        wait_for("safety copies to be gone", lambda: snapshot_dirs() == before)


# Failures

def test_a_damaged_target_is_refused_and_nobody_notices(taken):
    """Before anything was replaced: streams go on as well."""
    with counting() as sandbox_id:
        put(sandbox_id, 5, "old")
        instant = taken(sandbox_id)
        put(sandbox_id, 5, "new")
        with open(f"{SNAPSHOTS}/{instant}/state", "r+b") as f:
            f.seek(100)
            f.write(b"\xff" * 64)
        before = snapshot_dirs()
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
            cat.stdin.write(b"before\n")
            cat.stdin.flush()
            assert cat.stdout.readline() == b"before\n"
            assert "It goes on as it was before" in refused("SnapshotInvalid", sandbox_id, instant)
            cat.stdin.write(b"after\n")
            cat.stdin.close()
            assert cat.stdout.readline() == b"after\n"
        assert sector(sandbox_id, 5) == "new"
        goes_on(sandbox_id)
        wait_for("the safety copy to be gone", lambda: snapshot_dirs() == before)


def test_a_silent_agent_is_put_back(taken):
    with counting() as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "ignore-claims")
        put(sandbox_id, 5, "old")
        mute = taken(sandbox_id)
        ctl_ok("exec", sandbox_id, "--", "heed-claims")
        put(sandbox_id, 5, "new")
        before = count(sandbox_id)
        assert "did not answer" in refused("GuestTimeout", sandbox_id, mute)
        assert sector(sandbox_id, 5) == "new"
        assert goes_on(sandbox_id) >= before
        instant = taken(sandbox_id)
        put(sandbox_id, 5, "newer")
        rollback(sandbox_id, instant)
        assert sector(sandbox_id, 5) == "new"


def test_what_can_not_be_put_back_is_kept(taken):
    """The agent of the safety copy is silent as well: the sandbox ends, and that state is a snapshot."""
    with created("--timeout", "1h") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "ignore-claims")
        mute = taken(sandbox_id)
        put(sandbox_id, 5, "unsaved")
        before = snapshot_dirs()
        text = refused("GuestFailed", sandbox_id, mute)
        wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
        (kept,) = snapshot_dirs() - before
        assert f"snapshot:{kept}" in text
        assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "rollback-failed"
        wait_for("it to be seen", lambda: kept in ctl_ok("snapshot", "list", "--no-legend"))
    remove_snapshot(kept)
