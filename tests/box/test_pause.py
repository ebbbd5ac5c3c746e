# SPDX-License-Identifier: Apache-2.0
"""A sandbox is paused to disk and resumed: it goes on as if it had stood still."""

import os

import dbus
import pytest

from cubetest import created, ctl_ok, events, leftovers, options, prop, run, sandbox, sandbox_ids, wait_for
from snapshots import count, counting, goes_on, put, sector


def pause(sandbox_id, **values):
    sandbox(sandbox_id).Pause(options(values), timeout=120)


def resume(sandbox_id, **values):
    sandbox(sandbox_id).Resume(options(values), timeout=120)


def test_memory_and_disk_go_on(clean):
    with counting("--label", "a=b", "--hostname", "name") as sandbox_id:
        put(sandbox_id, 30, "kept")
        uid = run("stat", "-c", "%u", f"/proc/{prop(sandbox_id, 'VMMPID')}").stdout
        before = count(sandbox_id)
        pause(sandbox_id)
        assert prop(sandbox_id, "State") == "paused"
        assert prop(sandbox_id, "VMMPID") == 0
        resume(sandbox_id)
        assert prop(sandbox_id, "State") == "running"
        assert prop(sandbox_id, "Start") == "restored"
        assert goes_on(sandbox_id) >= before
        assert sector(sandbox_id, 30) == "kept"
        assert prop(sandbox_id, "Hostname") == "name"
        assert prop(sandbox_id, "Labels") == {"a": "b"}
        assert run("stat", "-c", "%u", f"/proc/{prop(sandbox_id, 'VMMPID')}").stdout != uid


KEPT = "/var/lib/cubed/sandboxes"


def test_without_memory_it_boots_from_its_disk(clean):
    with created("--timeout", "1h") as sandbox_id:
        put(sandbox_id, 30, "kept")
        pause(sandbox_id, memory=False)
        assert prop(sandbox_id, "State") == "paused"
        resume(sandbox_id)
        assert prop(sandbox_id, "Start") == "booted"
        assert sector(sandbox_id, 30) == "kept"
        put(sandbox_id, 31, "more")
        pause(sandbox_id)
        resume(sandbox_id)
        assert prop(sandbox_id, "Start") == "restored"
        assert (sector(sandbox_id, 30), sector(sandbox_id, 31)) == ("kept", "more")


def test_its_memory_need_not_come_back(clean):
    with created("--timeout", "1h") as sandbox_id:
        put(sandbox_id, 30, "kept")
        for number in range(31, 33):
            pause(sandbox_id)
            resume(sandbox_id, memory=False)
            assert prop(sandbox_id, "Start") == "booted"
            put(sandbox_id, number, "more")
        pause(sandbox_id)
        resume(sandbox_id)
        assert prop(sandbox_id, "Start") == "restored"
        assert [sector(sandbox_id, n) for n in (30, 31, 32)] == ["kept", "more", "more"]
        resume(sandbox_id, memory=False)
        assert prop(sandbox_id, "Start") == "restored"


def test_a_paused_one_takes_nothing_but_its_snapshot(clean):
    with created("--timeout", "1h") as sandbox_id:
        before = leftovers()
        pause(sandbox_id)
        now = leftovers()
        scope = f"cube-{sandbox_id}.scope"
        wait_for("its scope to be gone", lambda: scope not in leftovers()["scopes"])
        assert len(now["vmms"]) == len(before["vmms"]) - 1
        assert sandbox_id not in now["run"]
        assert sandbox_id in now["disks"]
        wait_for("its disk to be gone", lambda: f"{sandbox_id}.disk" not in leftovers()["disks"])
        assert len(now["snapshots"]) == len(before["snapshots"]) + 1
        assert prop(sandbox_id, "Deadline") == 2**64 - 1
        resume(sandbox_id)
        assert prop(sandbox_id, "Deadline") < 2**63
        wait_for("its sandbox.json to be gone", lambda: not os.path.exists(f"{KEPT}/{sandbox_id}"))
    assert [e for e in events(sandbox_id) if e in ("paused", "resumed", "exit")] == ["paused", "resumed", "exit"]


def test_many_times(clean):
    with counting() as sandbox_id:
        value = 0
        for _ in range(50 if os.environ.get("CUBE_LONG") == "1" else 12):
            pause(sandbox_id)
            resume(sandbox_id)
            now = goes_on(sandbox_id)
            assert now >= value
            value = now


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_paused_one_is_removed(clean, how):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    pause(sandbox_id)
    ctl_ok(how, sandbox_id)
    assert sandbox_id not in sandbox_ids()
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "killed"


def test_a_snapshot_of_a_paused_one_that_is_removed_stays(clean):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    put(sandbox_id, 30, "kept")
    instant = str(sandbox(sandbox_id).Snapshot(options({}), timeout=120)[0])
    pause(sandbox_id)
    ctl_ok("kill", sandbox_id)
    with created("snapshot:" + instant) as child:
        assert sector(child, 30) == "kept"
    ctl_ok("snapshot", "rm", instant)


def test_twice_is_once(clean):
    with created("--timeout", "1h") as sandbox_id:
        resume(sandbox_id)
        pause(sandbox_id)
        pause(sandbox_id)
        pause(sandbox_id, memory=False)
        resume(sandbox_id)
        assert prop(sandbox_id, "Start") == "restored"
        assert events(sandbox_id).count("paused") == 1


def test_a_lifetime_begins_anew(clean):
    with created("--timeout", "1h") as sandbox_id:
        pause(sandbox_id)
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(7200_000_000))
        assert prop(sandbox_id, "Deadline") == 2**64 - 1
        resume(sandbox_id)
        assert prop(sandbox_id, "TimeoutUSec") == 7200_000_000
        left = int(prop(sandbox_id, "Deadline")) - int(prop(sandbox_id, "StateChangedTimestamp"))
        assert 7100_000_000 < left < 7300_000_000
