# SPDX-License-Identifier: Apache-2.0
"""The host has booted anew since test_before.py: snapshots can be used, and what was paused goes on."""

import json

import pytest

import labhost
from cubetest import created_from, ctl, ctl_ok, events, leftovers, options, prop, remove_snapshot, sandbox, sandbox_ids, wait_for
from linuxguest import has_all, server_answers
from network import address, links, state

# It ran when the host went down, if at all, and is on its disk.
STOPPED = ("paused", "without memory", "parked")


@pytest.fixture(scope="module")
def notes():
    with open(f"{labhost.PLACE}/reboot.json", encoding="utf-8") as f:
        found = json.load(f)
    assert open("/proc/sys/kernel/random/boot_id", encoding="ascii").read() != found["boot"]
    yield found
    for key in STOPPED:
        ctl("kill", found[key])
    for key in "early", "snapshot":
        ctl("snapshot", "rm", found[key])


def test_what_ran_is_gone_and_what_was_paused_is_there(notes):
    assert set(sandbox_ids()) == {notes[key] for key in STOPPED}
    assert {prop(notes[key], "State") for key in STOPPED} == {"paused"}
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


def test_one_that_was_parked_is_parked_again_and_answers_at_its_address(notes):
    parked = notes["parked"]
    wait_for("its links", lambda: f"cube{state(parked)['slot']}" in links(), timeout=60)
    assert prop(parked, "Parked") and address(parked) == notes["address"]
    assert prop(parked, "State") == "paused"
    # Refused until cubed watches the links that were made.
    _, off = wait_for("it to answer", lambda: server_answers(parked), timeout=300)
    assert off < 1
    assert prop(parked, "State") == "running" and events(parked).count("resumed") == 1


def test_nothing_stays_when_all_are_removed(notes):
    for key in STOPPED:
        ctl_ok("kill", notes[key])
    for key in "early", "snapshot":
        remove_snapshot(notes[key])
    assert sandbox_ids() == []
    assert leftovers()["disks"] == []
