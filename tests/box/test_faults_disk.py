# SPDX-License-Identifier: Apache-2.0
"""Nothing reaches the disk any more: fsync() of cubed and its helpers gives EIO. What would have to be there for good is refused by
that name, and comes to nothing also for a cubed that is started then; what ran goes on, and what was there is there."""

import contextlib
import os

import dbus
import pytest

from conftest import PAYLOAD
from cubetest import (ERROR, crash, created_from, ctl, ctl_ok, journal, make_root, options, prop, remove_snapshot, run, sandbox, snapshot,
                      wait_for)
from faults import snapshots, states
from snapshots import counting, goes_on, put, sector
from test_pause import pause, resume

DROP_IN = "/run/systemd/system/cubed.service.d/failing.conf"


def restart():
    run("systemctl", "daemon-reload", check=True)
    run("systemctl", "restart", "cubed.service", check=True)


@contextlib.contextmanager
def failing_disk():
    os.makedirs(os.path.dirname(DROP_IN), exist_ok=True)
    with open(DROP_IN, "w", encoding="ascii") as f:
        f.write("[Service]\nSystemCallFilter=~fsync\nSystemCallErrorNumber=EIO\n")
    restart()
    try:
        yield
    finally:
        os.unlink(DROP_IN)
        restart()


def refused(sandbox_id, method, event):
    """Who asked and the journal are told why."""
    before = len(journal(sandbox_id, f"CUBE_EVENT={event}"))
    with pytest.raises(dbus.DBusException) as e:
        getattr(sandbox(sandbox_id), method)(options({}), timeout=60)
    assert e.value.get_dbus_name().startswith(ERROR) and "Input/output error" in str(e.value), e.value
    told = [entry["MESSAGE"] for entry in journal(sandbox_id, f"CUBE_EVENT={event}")[before:]]
    assert len(told) == 1 and "Input/output error" in told[0], told


def test_what_can_not_be_kept_is_refused_and_what_is_kept_stays(clean_again, tmp_path):
    with counting() as running:
        put(running, 5, "running")
        saved = snapshot(running)
        paused = ctl_ok("create", "--timeout", "1h").strip()
        put(paused, 5, "paused")
        pause(paused)
        before = snapshots()
        with failing_disk():
            for again in range(2):
                refused(running, "Pause", "pause-failed")
                refused(running, "Snapshot", "snapshot-failed")
                assert snapshots() == before
                assert states() == {running: "running", paused: "paused"}
                goes_on(running)
                assert sector(running, 5) == "running"
                if not again:
                    crash()
            told = ctl("template", "build", "other", "--from", make_root(tmp_path), "--kernel", PAYLOAD, "--memory", "64M", "--no-warm")
            assert told.returncode != 0 and b"nput/output error" in told.stderr, told
            resume(paused)
            assert sector(paused, 5) == "paused"
        assert snapshots() == before
        assert states() == {running: "running", paused: "running"}
        assert prop(running, "State") == "running"
        pause(paused)
        resume(paused)
        assert sector(paused, 5) == "paused"
        later = snapshot(running)
        for snapshot_id in saved, later:
            with created_from(snapshot_id) as child:
                assert sector(child, 5) == "running"
                goes_on(child)
        ctl_ok("kill", paused)
    for snapshot_id in later, saved:
        remove_snapshot(snapshot_id)
    wait_for("what was refused to be gone", lambda: snapshots().keys() == before.keys() - {saved})
