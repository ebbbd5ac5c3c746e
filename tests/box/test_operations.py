# SPDX-License-Identifier: Apache-2.0
"""Walks the table "Operations by state" of docs/ARCHITECTURE.md: every cell is called and must do
what the table says."""

import concurrent.futures
import contextlib
import glob
import os
import signal
import subprocess

import dbus
import pytest

from cubetest import (ERROR, MANAGER, NAME, ROOT, SANDBOX, bus, created, ctl, ctl_ok, helper_pid, options, prop, remove_snapshots,
                      sandbox_ids, wait_for)

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = {
    "Exec": (["true"], options({})),
    "ExecPty": (["true"], options({})),
    "SignalProcess": (dbus.UInt32(1), dbus.Int32(15), False),
    "ResizeProcess": (dbus.UInt32(1), dbus.UInt32(24), dbus.UInt32(80)),
    "WaitProcess": (dbus.UInt32(1),),
    "ListProcesses": (),
    "CopyTo": ("/file", options({})),
    "CopyFrom": ("/file", options({})),
    "StatFile": ("/file", True),
    "ListDirectory": ("/",),
    "RemoveFile": ("/file", False),
    "RenameFile": ("/file", "/other"),
    "MakeDirectory": ("/directory", options({})),
    "ServeEnvd": (options({}),),
    "Connect": (dbus.UInt16(1),),
    "OpenConsole": (),
    "SetTimeout": (dbus.UInt64(3600_000_000),),
    "SetLimits": (options({"cpu-quota": dbus.UInt64(500000)}),),
    "SetNetworkPolicy": (options({}),),
    "ChangeNetworkPolicy": (options({}), options({})),
    "GetStatistics": (),
    "GetGuestUsage": (),
    "SetIdleTimeout": (dbus.UInt64(3600_000_000),),
    "SetAutoResume": (True,),
    "Snapshot": (options({}),),
    "Fork": (dbus.UInt32(1), options({})),
    "Rollback": ("", options({})),  # of the sandbox's own: see outcome_of()
    "Pause": (options({}),),
    "Resume": (options({}),),
    "Stop": (),
    "Kill": (),
}


# The guest has no say in these: any error is ours.
NOT_FOR_THE_GUEST = ("SetIdleTimeout", "SetAutoResume", "SetNetworkPolicy", "ChangeNetworkPolicy", "Snapshot", "Fork", "Rollback", "Pause", "Resume")


def table():
    with open(os.path.join(HERE, "..", "..", "docs", "ARCHITECTURE.md"), encoding="utf-8") as f:
        text = f.read()
    lines = text.split("## Operations by state")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    states = rows[0][1:]
    return [(row[0], state, outcome) for row in rows[2:] for state, outcome in zip(states, row[1:])]


def prop_or_none(sandbox_id, name):
    try:
        return prop(sandbox_id, name)
    except dbus.DBusException:
        return None


def outcome_of(operation, sandbox_id):
    """"do", or the last part of the error's name. An error from inside the guest counts as done."""
    connection = bus()
    if operation == "GetSandbox":
        path, interface, arguments = ROOT, MANAGER, (sandbox_id,)
    else:
        path, interface, arguments = f"{ROOT}/sandbox/{sandbox_id}", SANDBOX, CALLS[operation]
    if operation == "Rollback" and prop_or_none(sandbox_id, "State") == "running":
        arguments = (ctl_ok("snapshot", sandbox_id).strip(), options({}))
    obj = connection.get_object(NAME, path, introspect=False)
    try:
        obj.get_dbus_method(operation, interface)(*arguments, timeout=60)
    except dbus.DBusException as e:
        name = e.get_dbus_name()
        if name == "org.freedesktop.DBus.Error.UnknownObject":
            return "NoSuchSandbox"
        known = ("NotRunning", "NoSuchSandbox", "NoSuchSnapshot", "Busy")
        known = name.startswith(ERROR) and (name[len(ERROR):] in known or operation in NOT_FOR_THE_GUEST)
        return name[len(ERROR):] if known else "do"
    return "do"


def creating(template):
    """The id of a sandbox that stays in creating: its guest never answers."""
    before = set(sandbox_ids())
    with subprocess.Popen(["cubectl", "create", "--template", template("silent")], stderr=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as p:
        sandbox_id = wait_for("the sandbox", lambda: set(sandbox_ids()) - before).pop()
        assert prop(sandbox_id, "State") == "creating"
        yield sandbox_id
        ctl("kill", sandbox_id)
        p.wait(120)


def stopping(template):
    """The id of a sandbox that stays in stopping: its guest does not power off."""
    with created("--template", template("ignore-poweroff")) as sandbox_id:
        with subprocess.Popen(["cubectl", "stop", sandbox_id]) as p:
            wait_for("it to be stopping", lambda: prop(sandbox_id, "State") == "stopping")
            yield sandbox_id
            ctl("kill", sandbox_id)
            p.wait(120)


def running(template):
    with created() as sandbox_id:
        yield sandbox_id


def paused(template):
    with created() as sandbox_id:
        assert outcome_of("Pause", sandbox_id) == "do"
        yield sandbox_id


@contextlib.contextmanager
def stopped_in(helper, operation, sandbox_id, state):
    """It is in the middle of that operation, and stays there for as long as the helper stands still."""
    pid = helper_pid(helper)
    os.kill(pid, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(outcome_of, operation, sandbox_id)
        try:
            wait_for(f"it to be {state}", lambda: prop_or_none(sandbox_id, "State") == state)
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
            job.result(120)


def pausing(template):
    with created() as sandbox_id:
        with stopped_in("cube-stored", "Pause", sandbox_id, "pausing"):
            yield sandbox_id


def resuming(template):
    with created() as sandbox_id:
        assert outcome_of("Pause", sandbox_id) == "do"
        with stopped_in("cube-netd", "Resume", sandbox_id, "resuming"):
            yield sandbox_id


def failed(template):
    """A resume of it found no state file, which is there again now."""
    before = set(glob.glob("/var/lib/cubed/snapshots/*/state"))
    with created() as sandbox_id:
        assert outcome_of("Pause", sandbox_id) == "do"
        (path,) = set(glob.glob("/var/lib/cubed/snapshots/*/state")) - before
        os.rename(path, path + ".away")
        assert outcome_of("Resume", sandbox_id) == "SnapshotInvalid"
        os.rename(path + ".away", path)
        assert prop(sandbox_id, "State") == "failed"
        yield sandbox_id


def gone(template):
    sandbox_id = ctl_ok("create").strip()
    ctl_ok("kill", sandbox_id)
    yield sandbox_id


def outcome_at_the_end(operation, sandbox_id, state):
    """That of a call which is answered when what holds the sandbox in its state lets go."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(outcome_of, operation, sandbox_id)
        if state in ("pausing", "resuming"):
            concurrent.futures.wait([job], timeout=0.2)
            assert not job.done() and prop(sandbox_id, "State") == state
            os.kill(helper_pid("cube-stored" if state == "pausing" else "cube-netd"), signal.SIGCONT)
        return job.result(120)


@pytest.mark.parametrize("operation, state, outcome", table())
def test_operation_in_state(template, operation, state, outcome):
    maker = {"creating": creating, "running": running, "pausing": pausing, "paused": paused, "resuming": resuming,
             "stopping": stopping, "failed": failed, "gone": gone}[state](template)
    sandbox_id = next(maker)
    before = set(sandbox_ids())
    try:
        if outcome == "wait":
            assert outcome_at_the_end(operation, sandbox_id, state) == "do"
        else:
            assert outcome_of(operation, sandbox_id) == outcome
    finally:
        next(maker, None)
        for copy in set(sandbox_ids()) - before:
            ctl_ok("kill", copy)
        listed = ctl_ok("snapshot", "list", "--no-legend", "--kind", "snapshot", "--sandbox", sandbox_id).splitlines()
        remove_snapshots(line.split()[0] for line in listed)
