# SPDX-License-Identifier: Apache-2.0
"""A VMM that fails at each step of a rollback: the sandbox goes on as it was, or it ends, and what it was is a
snapshot."""

import concurrent.futures
import os
import signal

import dbus
import pytest

from cubetest import bus, ctl_ok, journal, options, prop, remove_snapshot, run, sandbox, snapshot, snapshot_dirs, wait_for
from test_hostile_vmm import gone, hostile, libexec  # noqa: F401
from test_restart import restart
from test_rollback import refused, rollback


@pytest.mark.parametrize("mode, name, words", [
    ("no-second-pause", "GuestTimeout", "did not pause"),
    ("no-second-save", "Internal", "could not save its state"),
])
def test_the_safety_copy_fails(hostile, mode, name, words):  # noqa: F811
    sandbox_id = hostile(mode)
    instant = snapshot(sandbox_id)
    before = snapshot_dirs()
    assert words in refused(name, sandbox_id, instant)
    assert prop(sandbox_id, "State") == "running"
    assert snapshot_dirs() == before
    ctl_ok("kill", sandbox_id)
    remove_snapshot(instant)


@pytest.mark.parametrize("mode, words", [
    ("rollback-refused", "it does not want to"),
    ("rollback-torn", "it is torn"),
    ("rollback-no-resume", "it does not run"),
    ("agent-refuses", "not me"),
])
def test_it_is_put_back(hostile, mode, words):  # noqa: F811
    sandbox_id = hostile(mode)
    instant = snapshot(sandbox_id)
    before = snapshot_dirs()
    with pytest.raises(dbus.DBusException) as e:
        rollback(sandbox_id, instant)
    assert words in str(e.value) and "goes on as it was before" in str(e.value)
    assert prop(sandbox_id, "State") == "running"
    # this VMM does it right the second time
    rollback(sandbox_id, instant)
    assert prop(sandbox_id, "BaseSnapshot") == instant
    wait_for("safety copies to be gone", lambda: snapshot_dirs() == before)
    ctl_ok("kill", sandbox_id)
    remove_snapshot(instant)


@pytest.mark.parametrize("mode", ["rollback-torn-twice", "rollback-no-resume-twice", "agent-refuses-twice", "rollback-dies"])
def test_it_ends_and_is_kept(hostile, mode):  # noqa: F811
    sandbox_id = hostile(mode)
    instant = snapshot(sandbox_id)
    before = snapshot_dirs()
    text = refused("GuestFailed", sandbox_id, instant)
    gone(sandbox_id)
    (kept,) = snapshot_dirs() - before
    assert f"snapshot:{kept}" in text
    reason = ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip()
    assert reason == ("vmm-error" if mode == "rollback-dies" else "rollback-failed")
    wait_for("it to be seen", lambda: f"{sandbox_id}-before-rollback" in ctl_ok("snapshot", "list", "--no-legend"))
    for snapshot_id in (kept, instant):
        remove_snapshot(snapshot_id)


def test_one_that_is_torn_when_cubed_is_back_is_put_back(libexec, hostile):  # noqa: F811
    sandbox_id = hostile("rollback-hangs")
    instant = snapshot(sandbox_id)
    before = snapshot_dirs()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(sandbox(sandbox_id, bus()).Rollback, instant, options({}), timeout=120)
        pid = prop(sandbox_id, "VMMPID")
        wait_for("it to be torn", lambda: b"the rollback hangs" in run("journalctl", "--no-pager", f"_PID={pid}").stdout)
        restart()
        assert job.exception()
    (failed,) = wait_for("it to be put back", lambda: journal(sandbox_id, "CUBE_EVENT=rollback-failed"))
    assert "cubed was restarted" in failed["MESSAGE"] and "goes on as it was before" in failed["MESSAGE"]
    assert prop(sandbox_id, "State") == "running"
    ctl_ok("kill", sandbox_id)
    wait_for("the safety copy to be gone", lambda: snapshot_dirs() == before)
    remove_snapshot(instant)


def test_one_that_died_while_cubed_was_away_is_kept(libexec, hostile):  # noqa: F811
    sandbox_id = hostile("rollback-hangs")
    instant = snapshot(sandbox_id)
    before = snapshot_dirs()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(sandbox(sandbox_id, bus()).Rollback, instant, options({}), timeout=120)
        pid = int(prop(sandbox_id, "VMMPID"))
        wait_for("it to be torn", lambda: b"the rollback hangs" in run("journalctl", "--no-pager", f"_PID={pid}").stdout)
        run("systemctl", "stop", "cubed.service", check=True)
        os.kill(pid, signal.SIGKILL)
        run("systemctl", "start", "cubed.service", check=True)
        assert job.exception()
    (kept,) = snapshot_dirs() - before
    wait_for("it to be seen", lambda: f"{sandbox_id}-before-rollback" in ctl_ok("snapshot", "list", "--no-legend"))
    for snapshot_id in (kept, instant):
        remove_snapshot(snapshot_id)
