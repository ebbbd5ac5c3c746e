# SPDX-License-Identifier: Apache-2.0
"""The host has booted anew since test_before.py: snapshots can be used, and what was paused goes on."""

import json

import pytest

import labhost
from cubetest import created_from, ctl, ctl_ok, leftovers, options, prop, remove_snapshot, sandbox, sandbox_ids
from linuxguest import has_all


@pytest.fixture(scope="module")
def notes():
    with open(f"{labhost.PLACE}/reboot.json", encoding="utf-8") as f:
        found = json.load(f)
    assert open("/proc/sys/kernel/random/boot_id", encoding="ascii").read() != found["boot"]
    yield found
    for key in "paused", "without memory":
        ctl("kill", found[key])
    for key in "early", "snapshot":
        ctl("snapshot", "rm", found[key])


def test_what_ran_is_gone_and_what_was_paused_is_there(notes):
    assert set(sandbox_ids()) == {notes["paused"], notes["without memory"]}
    assert prop(notes["paused"], "State") == prop(notes["without memory"], "State") == "paused"
    left = leftovers()
    assert (left["scopes"], left["vmms"], left["run"]) == ([], [], [])
    assert {name.split(".")[0] for name in left["disks"]} == set(sandbox_ids())


def test_a_sandbox_starts_from_a_snapshot(notes):
    with created_from(notes["snapshot"]) as sandbox_id:
        assert prop(sandbox_id, "Start") == "restored"
        has_all(sandbox_id, "gone")


def test_a_paused_one_goes_on_and_can_be_rolled_back(notes):
    paused = notes["paused"]
    ctl_ok("resume", paused)
    assert prop(paused, "Start") == "restored"
    assert has_all(paused, "late")["processes"] == notes["processes"]
    sandbox(paused).Rollback(notes["early"], options({}), timeout=300)
    assert has_all(paused, "early")["processes"] == notes["processes"]
    assert ctl_ok("exec", paused, "--", "hostname").strip() == paused


def test_one_that_was_paused_without_memory_boots_from_its_disk(notes):
    without = notes["without memory"]
    ctl_ok("resume", without)
    assert prop(without, "Start") == "booted"
    assert ctl_ok("exec", without, "--", "cat", "/root/kept") == "kept\n"


def test_nothing_stays_when_all_are_removed(notes):
    for key in "paused", "without memory":
        ctl_ok("kill", notes[key])
    for key in "early", "snapshot":
        remove_snapshot(notes[key])
    assert sandbox_ids() == []
    assert leftovers()["disks"] == []
