# SPDX-License-Identifier: Apache-2.0
"""cubed is restarted with sandboxes that run on snapshots, and while one is being taken."""

import contextlib
import glob
import json
import os
import shutil

import dbus
import pytest

from cubetest import ERROR, crash, created_from, ctl_ok, prop, remove_snapshot, run, snapshot, snapshot_dirs, wait_for
from snapshots import counting, goes_on, put, sector
from test_restart import restart
from test_snapshot_failures import SNAPSHOTS, in_the_middle, works


@pytest.mark.parametrize("again", [restart, crash])
def test_its_layers_are_known_again(clean_again, again):
    with counting() as sandbox_id:
        put(sandbox_id, 30, "one")
        one = snapshot(sandbox_id)
        again()
        put(sandbox_id, 30, "two")
        two = snapshot(sandbox_id)
        with created_from(two) as child:
            again()
            assert prop(child, "Start") == "restored"
            assert sector(child, 30) == "two"
            goes_on(child)
            put(child, 30, "three")
            three = snapshot(child)
        with created_from(one) as a, created_from(three) as b:
            assert (sector(a, 30), sector(b, 30)) == ("one", "three")
            goes_on(a)
            goes_on(b)
        works(sandbox_id)
    for snapshot_id in (three, two, one):
        remove_snapshot(snapshot_id)


@pytest.mark.parametrize("again", [restart, crash])
def test_in_the_middle(clean_again, again):
    with counting() as sandbox_id:
        before = snapshot_dirs()
        with in_the_middle(sandbox_id) as job:
            again()
            assert job.exception()
        goes_on(sandbox_id)
        assert snapshot_dirs() == before
        works(sandbox_id)
    wait_for("works in progress to be gone", lambda: not glob.glob(f"{SNAPSHOTS}/.*"))


def state_file(sandbox_id):
    return f"/run/cubed/sandbox/{sandbox_id}/state.json"


def state_of(sandbox_id):
    with open(state_file(sandbox_id), encoding="utf-8") as f:
        return json.load(f)


@contextlib.contextmanager
def without_cubed(sandbox_id):
    """state.json, to be changed while no cubed is there."""
    run("systemctl", "kill", "-s", "KILL", "cubed.service")
    run("systemctl", "stop", "cubed.service", check=True)
    try:
        state = state_of(sandbox_id)
        yield state
        with open(state_file(sandbox_id), "w", encoding="utf-8") as f:
            json.dump(state, f)
    finally:
        run("systemctl", "reset-failed", "cubed.service")
        run("systemctl", "start", "cubed.service", check=True)


def test_one_that_the_vmm_runs_on_had_been_taken(clean_again):
    """cubed died between the RESUME and its note that it happened."""
    with counting() as sandbox_id:
        put(sandbox_id, 31, "here")
        instant = snapshot(sandbox_id)
        with without_cubed(sandbox_id) as state:
            assert (state.pop("disk-top"), state.pop("memory-top")) == (instant, instant)
            state |= {"capture": instant, "disk-layers": 0, "memory-layers": 0}
        # its VMM is asked once cubed is up
        wait_for("the capture to be settled", lambda: "capture" not in state_of(sandbox_id))
        assert instant in snapshot_dirs()
        state = state_of(sandbox_id)
        assert (state["disk-top"], state["memory-layers"]) == (instant, 1)
        works(sandbox_id)
        with created_from(instant) as child:
            assert sector(child, 31) == "here"
            goes_on(child)
    remove_snapshot(instant)


def test_one_that_the_vmm_does_not_run_on_is_dropped(clean_again):
    """cubed died between the publishing of the snapshot and the RESUME."""
    with counting() as sandbox_id:
        put(sandbox_id, 31, "here")
        kept = snapshot(sandbox_id)
        with created_from(kept) as other:
            dropped = snapshot(other)
        with without_cubed(sandbox_id) as state:
            state["capture"] = dropped
        wait_for("it to be gone", lambda: snapshot_dirs() & {kept, dropped} == {kept})
        works(sandbox_id)
        assert sector(sandbox_id, 31) == "here"
    remove_snapshot(kept)


def test_a_layer_that_is_lost(clean_again):
    """The guest runs on; who asks for a snapshot is told."""
    with counting() as sandbox_id:
        instant = snapshot(sandbox_id)
        with without_cubed(sandbox_id):
            shutil.rmtree(f"{SNAPSHOTS}/{instant}")
        goes_on(sandbox_id)
        with pytest.raises(dbus.DBusException) as e:
            snapshot(sandbox_id)
        assert e.value.get_dbus_name() == ERROR + "Internal" and "could not find out" in str(e.value)
        goes_on(sandbox_id)
        assert ctl_ok("exec", sandbox_id, "--", "echo", "fine") == "fine\n"
    assert instant not in os.listdir(SNAPSHOTS)
