# SPDX-License-Identifier: Apache-2.0
"""A pause that fails harms nothing; a resume that fails can be tried again."""

import concurrent.futures
import contextlib
import glob
import json
import os
import signal

import dbus
import pytest

from cubetest import (ERROR, another_helper, at_rest, bus, created, ctl, ctl_ok, cubed_pid, events, helper_pid, journal, nothing_left_since, options, prop,
                      sandbox, sandbox_ids, snapshot_dirs, wait_for)
from snapshots import count, counting, goes_on, put, sector
from test_operations import prop_or_none
from test_pause import KEPT, pause, resume
from test_restart import restart
from test_snapshot_failures import SNAPSHOTS


@contextlib.contextmanager
def asked(method, helper, sandbox_id, state, **values):
    """The future answer of a call that has come to that state, in which the helper stands still."""
    pid = helper_pid(helper)
    os.kill(pid, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(lambda: getattr(sandbox(sandbox_id, bus()), method)(options(values), timeout=60))
            wait_for(f"it to be {state}", lambda: prop(sandbox_id, "State") == state)
            yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_the_store_dies_in_it(template):
    with counting() as sandbox_id:
        put(sandbox_id, 30, "kept")
        before = snapshot_dirs()
        with asked("Pause", "cube-stored", sandbox_id, "pausing") as job:
            pid = helper_pid("cube-stored")
            os.kill(pid, signal.SIGKILL)
            assert job.exception().get_dbus_name() == ERROR + "Internal"
        assert prop(sandbox_id, "State") == "running"
        assert "pause-failed" in events(sandbox_id)
        goes_on(sandbox_id)
        assert snapshot_dirs() == before
        another_helper("cube-stored", pid)
        pause(sandbox_id)
        resume(sandbox_id)
        goes_on(sandbox_id)
        assert sector(sandbox_id, 30) == "kept"


def test_who_comes_too_late_for_its_memory_is_told(clean):
    with counting() as sandbox_id:
        put(sandbox_id, 30, "kept")
        with asked("Pause", "cube-stored", sandbox_id, "pausing", memory=False) as job:
            with pytest.raises(dbus.DBusException) as e:
                pause(sandbox_id, memory=True)
            assert e.value.get_dbus_name() == ERROR + "Busy" and "without its memory" in str(e.value)
            os.kill(helper_pid("cube-stored"), signal.SIGCONT)
            job.result()
        assert prop(sandbox_id, "State") == "paused"
        resume(sandbox_id)
        assert sector(sandbox_id, 30) == "kept"


def test_there_is_no_place_for_its_description(clean):
    with counting() as sandbox_id:
        with open(f"{KEPT}/{sandbox_id}", "wb"):
            pass
        before = snapshot_dirs()
        for memory in (True, False):
            with pytest.raises(dbus.DBusException) as e:
                pause(sandbox_id, memory=memory)
            assert "it runs on" in str(e.value)
            assert prop(sandbox_id, "State") == "running"
            goes_on(sandbox_id)
        wait_for("its snapshot to be gone", lambda: snapshot_dirs() == before)
        os.unlink(f"{KEPT}/{sandbox_id}")
        pause(sandbox_id)
        resume(sandbox_id)
        goes_on(sandbox_id)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_it_is_ended_in_it(clean, how):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    with asked("Pause", "cube-stored", sandbox_id, "pausing") as job:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            end = pool.submit(ctl, how, sandbox_id)
            wait_for("it to end", lambda: end.done() or prop_or_none(sandbox_id, "State") == "stopping")
            os.kill(helper_pid("cube-stored"), signal.SIGCONT)
            assert end.result().returncode == 0
        assert job.exception().get_dbus_name() in (ERROR + "NotRunning", ERROR + "GuestFailed")
    reason = {"kill": "killed", "stop": "poweroff"}[how]
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == reason


def test_its_vmm_dies_in_it(clean):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    with asked("Pause", "cube-stored", sandbox_id, "pausing") as job:
        os.kill(int(prop(sandbox_id, "VMMPID")), signal.SIGKILL)
        assert job.exception().get_dbus_name() == ERROR + "GuestFailed"
    assert sandbox_id not in sandbox_ids()


def state_files():
    return set(glob.glob(f"{SNAPSHOTS}/*/state"))


@contextlib.contextmanager
def damaged(sandbox_id):
    """A paused one, and the file of its snapshot, which is as it was at the end."""
    before = state_files()
    pause(sandbox_id)
    (path,) = state_files() - before
    with open(path, "rb") as f:
        content = f.read()
    yield path, content
    with open(path, "wb") as f:
        f.write(content)


@pytest.mark.parametrize("damage", ["short", "other"])
def test_a_damaged_one_is_failed_and_can_be_tried_again(template, damage):
    before = at_rest()
    with counting() as sandbox_id:
        with damaged(sandbox_id) as (path, content):
            with open(path, "r+b") as f:
                if damage == "short":
                    f.truncate(len(content) // 2)
                else:
                    f.seek(len(content) // 2)
                    f.write(bytes(b ^ 255 for b in content[len(content) // 2:]))
            for again in (lambda: None, restart):
                with pytest.raises(dbus.DBusException):
                    resume(sandbox_id)
                assert prop(sandbox_id, "State") == "failed"
                assert prop(sandbox_id, "VMMPID") == 0
                again()
                assert prop(sandbox_id, "State") == "failed"
            assert journal(sandbox_id, "CUBE_EVENT=resume-failed")
        restart()
        resume(sandbox_id)
        goes_on(sandbox_id)
    nothing_left_since(before, but=["fds"])


def test_a_boot_that_comes_to_nothing_leaves_the_memory(template):
    before = at_rest()
    with counting() as sandbox_id:
        (kernel,) = glob.glob(f"/var/lib/cubed/templates/{prop(sandbox_id, 'Template')}/vmlinux*")
        put(sandbox_id, 30, "kept")
        for again in (lambda: None, restart):
            value = count(sandbox_id)
            pause(sandbox_id)
            os.rename(kernel, kernel + ".away")
            try:
                with pytest.raises(dbus.DBusException):
                    resume(sandbox_id, memory=False)
                assert prop(sandbox_id, "State") == "failed"
            finally:
                os.rename(kernel + ".away", kernel)
            again()
            resume(sandbox_id)
            assert prop(sandbox_id, "Start") == "restored"
            assert goes_on(sandbox_id) >= value
        assert sector(sandbox_id, 30) == "kept"
    nothing_left_since(before, but=["fds"])


def test_a_failed_one_is_removed(clean):
    with created("--timeout", "1h") as sandbox_id:
        with damaged(sandbox_id) as (path, content):
            os.truncate(path, 10)
            with pytest.raises(dbus.DBusException):
                resume(sandbox_id)
        ctl_ok("stop", sandbox_id)
        assert sandbox_id not in sandbox_ids()


def test_it_is_killed_while_it_is_resumed(clean):
    with created("--timeout", "1h") as sandbox_id:
        pause(sandbox_id)
        with asked("Resume", "cube-netd", sandbox_id, "resuming") as job:
            ctl_ok("kill", sandbox_id)
            assert job.exception().get_dbus_name() == ERROR + "GuestFailed"
        assert sandbox_id not in sandbox_ids()


def saved_state(path):
    with contextlib.suppress(FileNotFoundError, ValueError), open(path) as f:
        return json.load(f).get("state")
    return None


@contextlib.contextmanager
def stopped_in_a_resume(sandbox_id):
    """Its resume, with cubed standing still once that was written down, while the guest lets its claim wait; the future answer."""
    path = f"/run/cubed/sandbox/{sandbox_id}/state.json"
    pid = cubed_pid()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: sandbox(sandbox_id, bus()).Resume(options({}), timeout=60))
        wait_for("it to be written down", lambda: saved_state(path), interval=0.005)
        os.kill(pid, signal.SIGSTOP)
        try:
            assert saved_state(path) == "resuming"
            yield job
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_resume_that_can_not_be_written_down_has_come_to_nothing(template, clean):
    with counting("--template", template("slow-claim")) as sandbox_id:
        put(sandbox_id, 30, "kept")
        pause(sandbox_id)
        obstacle = f"/run/cubed/sandbox/{sandbox_id}/state.json.new"
        with stopped_in_a_resume(sandbox_id) as job:
            os.mkdir(obstacle)
        message = str(job.exception())
        assert "could not be resumed: saving its state: Is a directory" in message
        # Nobody removes what is not ours.
        os.rmdir(obstacle)
        os.rmdir(os.path.dirname(obstacle))
        assert prop(sandbox_id, "State") == "failed"
        assert "resumed" not in events(sandbox_id)
        resume(sandbox_id)
        goes_on(sandbox_id)
        assert sector(sandbox_id, 30) == "kept"


def test_a_pause_waits_for_a_snapshot(clean):
    with counting() as sandbox_id:
        pid = helper_pid("cube-stored")
        os.kill(pid, signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                instant = pool.submit(lambda: sandbox(sandbox_id, bus()).Snapshot(options({}), timeout=60))
                wait_for("its state to be saved", lambda: any(os.path.getsize(f) > 0 for f in glob.glob(f"{SNAPSHOTS}/.new-*/state")))
                paused = pool.submit(lambda: sandbox(sandbox_id, bus()).Pause(options({}), timeout=60))
                assert prop(sandbox_id, "State") == "running"
                os.kill(pid, signal.SIGCONT)
                instant = str(instant.result()[0])
                paused.result()
        finally:
            os.kill(pid, signal.SIGCONT)
        resume(sandbox_id)
        goes_on(sandbox_id)
        ctl_ok("snapshot", "rm", instant)
