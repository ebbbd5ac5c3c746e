# SPDX-License-Identifier: Apache-2.0
"""cubed is restarted and killed while sandboxes are paused, or about to be."""

import concurrent.futures
import glob
import os
import signal

import dbus.lowlevel
import pytest

from cubetest import NAME, ROOT, SANDBOX, bus, crash, ctl_ok, manager, options, prop, remove_snapshot, sandbox, sandbox_ids, wait_for
from snapshots import counting, goes_on, put, sector
from test_pause import KEPT, pause, resume
from test_restart import restart
from test_snapshot_failures import SNAPSHOTS, stored_pid


@pytest.mark.parametrize("again", [restart, crash])
@pytest.mark.parametrize("memory", [True, False])
def test_a_paused_one_is_there_again(clean_again, again, memory):
    with counting("--label", "a=b", "--on-timeout", "pause", "--idle-timeout", "2h") as sandbox_id:
        put(sandbox_id, 30, "kept")
        created_at = prop(sandbox_id, "CreatedTimestamp")
        pause(sandbox_id, memory=memory)
        # so that what the next cubed finds is what is there behind a reboot of the host as well
        assert sandbox_id not in os.listdir("/run/cubed/sandbox")
        again()
        assert prop(sandbox_id, "State") == "paused"
        assert prop(sandbox_id, "Labels") == {"a": "b"}
        assert prop(sandbox_id, "CreatedTimestamp") == created_at
        assert prop(sandbox_id, "Deadline") == 2**64 - 1
        assert prop(sandbox_id, "OnTimeout") == "pause"
        assert prop(sandbox_id, "IdleTimeoutUSec") == 7200_000_000
        resume(sandbox_id)
        assert sector(sandbox_id, 30) == "kept"
        if memory:
            goes_on(sandbox_id)
        again_running = prop(sandbox_id, "VMMPID")
        restart()
        assert prop(sandbox_id, "VMMPID") == again_running


def test_a_paused_one_that_is_killed_does_not_come_back(clean_again):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    pause(sandbox_id)
    crash()
    ctl_ok("kill", sandbox_id)
    restart()
    assert sandbox_id not in sandbox_ids()


def paused_or_running(sandbox_id):
    """Whichever it is, it is whole."""
    state = wait_for("it to come to rest", lambda: (s := prop(sandbox_id, "State")) in ("paused", "running") and s)
    if state == "paused":
        assert prop(sandbox_id, "VMMPID") == 0
        wait_for("all of its life to be gone", lambda: not os.path.exists(f"/run/cubed/sandbox/{sandbox_id}"))
        resume(sandbox_id)
    goes_on(sandbox_id)
    assert sector(sandbox_id, 30) == "kept"
    pause(sandbox_id)
    resume(sandbox_id)
    goes_on(sandbox_id)


def test_what_a_pause_had_half_written_goes(clean_again):
    """Put there as a kill in the right millisecond leaves it."""
    with counting() as sandbox_id:
        os.mkdir(f"{KEPT}/{sandbox_id}")
        with open(f"{KEPT}/{sandbox_id}/sandbox.json.new", "x", encoding="utf-8") as f:
            f.write("{")
        crash()
        assert prop(sandbox_id, "State") == "running"
        assert not os.path.exists(f"{KEPT}/{sandbox_id}")
        goes_on(sandbox_id)


@pytest.mark.parametrize("again", [restart, crash])
def test_while_memory_is_saved(clean_again, again):
    with counting() as sandbox_id:
        put(sandbox_id, 30, "kept")
        pid = stored_pid()
        os.kill(pid, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(lambda: sandbox(sandbox_id, bus()).Pause(options({}), timeout=60))
            wait_for("its state to be saved", lambda: any(os.path.getsize(f) > 0 for f in glob.glob(f"{SNAPSHOTS}/.new-*/state")))
            assert prop(sandbox_id, "State") == "pausing"
            again()
            assert job.exception()
        assert prop(sandbox_id, "State") == "running"
        paused_or_running(sandbox_id)


def ask(connection, sandbox_id, member, signature, *args):
    """A call that has come to cubed when this returns. To be waited for, with its reply in the list behind it."""
    m = dbus.lowlevel.MethodCallMessage(NAME, f"{ROOT}/sandbox/{sandbox_id}", SANDBOX, member)
    m.append(*args, signature=signature)
    replies = []
    pending = connection.send_message_with_reply(m, replies.append, 300)
    manager(connection).ListTemplates()
    return pending, replies


def test_what_is_asked_while_it_is_taken_over_waits_until_it_runs(clean_again):
    """Of one that was paused to be saved when cubed died, and whose VMM takes its time to say so."""
    with counting() as sandbox_id:
        put(sandbox_id, 30, "kept")
        vmm, stored, connection = prop(sandbox_id, "VMMPID"), stored_pid(), bus()
        os.kill(stored, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(lambda: sandbox(sandbox_id, bus()).Pause(options({}), timeout=60))
            wait_for("its state to be saved", lambda: any(os.path.getsize(f) > 0 for f in glob.glob(f"{SNAPSHOTS}/.new-*/state")))
            os.kill(vmm, signal.SIGSTOP)
            try:
                crash()
                asked = [ask(connection, sandbox_id, "Exec", "asa{sv}", ["count"], options({})),
                         ask(connection, sandbox_id, "Snapshot", "a{sv}", options({})),
                         ask(connection, sandbox_id, "Exec", "asa{sv}", ["count"], options({}))]
            finally:
                os.kill(vmm, signal.SIGCONT)
            assert job.exception()
        for pending, replies in asked:
            pending.block()
            assert not isinstance(replies[0], dbus.lowlevel.ErrorMessage), replies[0].get_args_list()
        paused_or_running(sandbox_id)
        taken = str(asked[1][1][0].get_args_list()[0])
    remove_snapshot(taken)


@pytest.mark.parametrize("delay", [0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1])
@pytest.mark.parametrize("call", ["Pause", "Resume"])
def test_at_any_moment(clean_again, call, delay):
    """cubed dies some milliseconds into it."""
    with counting() as sandbox_id:
        put(sandbox_id, 30, "kept")
        if call == "Resume":
            pause(sandbox_id)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(lambda: getattr(sandbox(sandbox_id, bus()), call)(options({}), timeout=60))
            concurrent.futures.wait([job], timeout=delay)
            crash()
            job.exception()
        paused_or_running(sandbox_id)
