# SPDX-License-Identifier: Apache-2.0
"""A VMM that fails at each step of a snapshot, or says what can't be: the sandbox goes on, who asked knows why, and
nothing is left of it."""

import os

import dbus
import pytest

from cubetest import created_from, ctl_ok, prop, remove_snapshot, sandbox, snapshot
from test_hostile_vmm import gone, hostile, libexec  # noqa: F401
from test_pause import KEPT, pause
from test_snapshot_failures import SNAPSHOTS, nothing_of_it, refused


def counter(sandbox_id, name):
    return sandbox(sandbox_id).GetStatistics()[name]


@pytest.mark.parametrize("mode, words", [
    ("no-pause", "did not pause: it does not stop"),
    ("no-save", r"could not save its state: \x1b[31mno"),
    ("no-id", "makes no sense"),
    ("short-id", "could not|makes no sense"),
    ("bad-runs", "makes no sense"),
    ("odd-runs", "makes no sense"),
    ("huge-runs", "makes no sense"),
    ("many-runs", "makes no sense"),
    ("empty-run", "makes no sense"),
    ("wild-runs", "saving its memory"),
    ("bad-state", "writing its description"),
    ("no-resume", "did not go on"),
])
def test_the_vmm_fails_in_it(hostile, mode, words):  # noqa: F811
    sandbox_id = hostile(mode)
    before = set(os.listdir(SNAPSHOTS))
    for _ in range(3):
        text = refused("GuestTimeout" if mode == "no-pause" else "Internal", sandbox_id)
        assert any(w in text for w in words.split("|")), text
    assert prop(sandbox_id, "State") == "running"
    nothing_of_it(before)


@pytest.mark.parametrize("mode", ["torn", "stuck"])
def test_one_that_does_not_run_again_is_ended(hostile, mode):  # noqa: F811
    sandbox_id = hostile(mode)
    before = set(os.listdir(SNAPSHOTS))
    with pytest.raises(dbus.DBusException):
        snapshot(sandbox_id)
    gone(sandbox_id)
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "vmm-error"
    nothing_of_it(before)


def test_a_vmm_that_went_on_with_it_but_answered_otherwise_is_believed_what_it_does(hostile):  # noqa: F811
    """As when its answer comes too late: its memory and its disk stand on the snapshot already."""
    sandbox_id = hostile("late-resume")
    before = set(os.listdir(SNAPSHOTS))
    first, second = snapshot(sandbox_id), snapshot(sandbox_id)
    assert prop(sandbox_id, "State") == "running"
    assert set(os.listdir(SNAPSHOTS)) == before | {first, second}
    ctl_ok("kill", sandbox_id)
    remove_snapshot(second)
    remove_snapshot(first)
    nothing_of_it(before)


def test_nothing_is_left_of_a_pause_whose_vmm_dies_when_it_is_undone(hostile):  # noqa: F811
    sandbox_id = hostile("resume-dies")
    before = set(os.listdir(SNAPSHOTS))
    with open(f"{KEPT}/{sandbox_id}", "wb"):
        pass  # no place for its description
    with pytest.raises(dbus.DBusException):
        pause(sandbox_id)
    gone(sandbox_id)
    os.unlink(f"{KEPT}/{sandbox_id}")
    nothing_of_it(before)


def test_more_memory_is_plugged_before_the_create_is_answered(hostile):  # noqa: F811
    instant = snapshot(hostile("plugs"))
    with created_from(instant, memory=dbus.UInt64(256 << 20)) as child:
        assert prop(child, "Start") == "restored"
        assert prop(child, "Memory") == 256 << 20
        assert counter(child, "mem-plugged-bytes") == 192 << 20
    with created_from(instant) as child:
        assert prop(child, "Memory") == 64 << 20
        assert counter(child, "mem-plugged-bytes") == 0
    remove_snapshot(instant)
