# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong while a snapshot is taken: the sandbox goes on, who asked knows why, and nothing is left of it."""

import concurrent.futures
import contextlib
import glob
import os
import signal

import dbus
import pytest

from conftest import PAYLOAD
from cubetest import (ERROR, bus, created, created_from, ctl, ctl_ok, cubed_pid, helper_pid, journal, make_root, prop, remove_snapshot, run, sandbox_ids,
                      snapshot, wait_for)
from snapshots import count, counting, goes_on, put, sector

SNAPSHOTS = "/var/lib/cubed/snapshots"


def refused(name, sandbox_id):
    with pytest.raises(dbus.DBusException) as e:
        snapshot(sandbox_id)
    assert e.value.get_dbus_name() == ERROR + name, e.value
    assert journal(sandbox_id, "CUBE_EVENT=snapshot-failed")
    return str(e.value)


def nothing_of_it(before):
    wait_for("nothing to be left of it", lambda: set(os.listdir(SNAPSHOTS)) == before)


# cube-stored and the VMM end in it

def stored_pid():
    return helper_pid("cube-stored")


@contextlib.contextmanager
def in_the_middle(sandbox_id):
    """A snapshot that has come as far as the copying of memory, where cube-stored stands still; the future answer."""
    pid = stored_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(snapshot, sandbox_id, bus())
            wait_for("its state to be saved", lambda: any(os.path.getsize(f) > 0 for f in glob.glob(f"{SNAPSHOTS}/.new-*/state")))
            yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def works(sandbox_id):
    """It goes on, and a snapshot of it is whole."""
    goes_on(sandbox_id)
    put(sandbox_id, 121, "whole")
    instant = snapshot(sandbox_id)
    with created_from(instant) as child:
        goes_on(child)
        assert sector(child, 121) == "whole"
    goes_on(sandbox_id)
    remove_snapshot(instant)


def test_the_store_dies_in_it(clean):
    with counting() as sandbox_id:
        before = set(os.listdir(SNAPSHOTS))
        with in_the_middle(sandbox_id) as job:
            os.kill(stored_pid(), signal.SIGKILL)
            assert job.exception().get_dbus_name() == ERROR + "Internal"
            assert "cube-stored" in str(job.exception())
        # as soon as there is another cube-stored
        nothing_of_it(before)
        works(sandbox_id)


def test_the_sandbox_is_killed_in_it(clean):
    with counting() as sandbox_id:
        before = set(os.listdir(SNAPSHOTS))
        with in_the_middle(sandbox_id) as job:
            assert ctl("kill", sandbox_id).returncode == 0
            wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
            assert job.exception().get_dbus_name() == ERROR + "GuestFailed"
        nothing_of_it(before)


def test_it_is_asked_to_stop_in_it(clean):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    before = set(os.listdir(SNAPSHOTS))
    with in_the_middle(sandbox_id) as job:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            stop = pool.submit(ctl, "stop", sandbox_id)
            wait_for("it to be stopping", lambda: prop(sandbox_id, "State") == "stopping")
            os.kill(stored_pid(), signal.SIGCONT)
            assert job.exception().get_dbus_name() in (ERROR + "NotRunning", ERROR + "GuestFailed")
            assert stop.result().returncode == 0
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "poweroff"
    nothing_of_it(before)


def test_what_is_asked_of_the_guest_in_it_waits(clean):
    with counting() as sandbox_id:
        with in_the_middle(sandbox_id) as job:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                word = pool.submit(ctl_ok, "exec", sandbox_id, "--", "echo", "patience")
                assert ctl_ok("show", "-p", "State", "--value", sandbox_id).strip() == "running"
                assert not word.done()
                os.kill(stored_pid(), signal.SIGCONT)
                assert word.result(60) == "patience\n"
            instant = job.result()
        remove_snapshot(instant)


# The disk is full

@pytest.fixture
def small_disk(template, tmp_path):
    """Everything that cubed keeps lies on a file system with little room."""
    run("systemctl", "stop", "cubed.service", check=True)
    run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/var/lib/cubed", check=True)
    run("systemctl", "start", "cubed.service", check=True)
    ctl_ok("template", "build", "payload", "--from", make_root(tmp_path), "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M",
           "--no-warm")
    yield
    run("systemctl", "stop", "cubed.service", check=True)
    run("umount", "/var/lib/cubed", check=True)
    run("systemctl", "start", "cubed.service", check=True)


@pytest.mark.parametrize("left", [0, 16 << 10, 256 << 10])
def test_a_full_disk(small_disk, left):
    with created("--timeout", "1h") as sandbox_id:
        put(sandbox_id, 5, "kept")
        st = os.statvfs("/var/lib/cubed")
        with open("/var/lib/cubed/filler", "wb") as f:
            f.write(bytes(st.f_bavail * st.f_bsize - left))
        before = set(os.listdir(SNAPSHOTS))
        assert "no space left" in refused("NoResources", sandbox_id)
        assert sector(sandbox_id, 5) == "kept"
        nothing_of_it(before)
        os.unlink("/var/lib/cubed/filler")
        instant = snapshot(sandbox_id)
        with created_from(instant) as child:
            assert sector(child, 5) == "kept"
        assert count(sandbox_id) == 0
