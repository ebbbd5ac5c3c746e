# SPDX-License-Identifier: Apache-2.0
"""The host's power was cut while things were done to sandboxes (writer.py): what had been acknowledged is there, and whole."""

import json
import re

import pytest

from cubetest import created_from, ctl, ctl_ok, leftovers, manager, options, prop, remove_snapshot, run, sandbox_ids
from test_before_cut import NOTES


@pytest.fixture(scope="module")
def notes():
    """{id: word} of snapshots and of paused sandboxes that were acknowledged, and of which nothing else was asked since."""
    found = {"snapshot": {}, "paused": {}}
    with open(NOTES, encoding="utf-8") as f:
        for line in f:
            note = json.loads(line)
            for kind, words in found.items():
                if kind in note:
                    words[note[kind]] = note["word"]
                words.pop(note.get("going"), None)
    yield found
    for sandbox_id in sandbox_ids():
        ctl("kill", sandbox_id)


def snapshots():
    """Youngest first: what stands on others comes before them."""
    rows = manager().ListSnapshots(options({"kind": "snapshot"}))
    return [str(row[0]) for row in sorted(rows, key=lambda row: row[6], reverse=True)]


def has(sandbox_id, word):
    return ctl_ok("exec", sandbox_id, "--", "cat", "/dev/shm/word", "/root/word").split() == [word, word]


def test_all_that_was_acknowledged_is_there(notes):
    """And at most what was being made, or being removed, besides."""
    assert notes["snapshot"] and notes["paused"]
    assert set(notes["paused"]) <= set(sandbox_ids()) and set(notes["snapshot"]) <= set(snapshots())
    assert len(sandbox_ids()) <= len(notes["paused"]) + 2 and len(snapshots()) <= len(notes["snapshot"]) + 2


def test_what_ran_is_gone_and_nothing_is_wrong_with_the_rest():
    left = leftovers()
    assert (left["scopes"], left["vmms"], left["run"]) == ([], [], [])
    assert {name.split(".")[0] for name in left["disks"]} == set(sandbox_ids())
    assert {prop(sandbox_id, "State") for sandbox_id in sandbox_ids()} == {"paused"}
    told = run("journalctl", "-b", "-u", "cubed.service", "-p", "err", "-o", "cat").stdout.decode().splitlines()
    # that there is no network yet is told, too
    assert not [line for line in told if re.search("(sandbox|snapshot) [a-z0-9]{12}", line, re.IGNORECASE)], told


def test_paused_ones_go_on(notes):
    for sandbox_id, word in notes["paused"].items():
        ctl_ok("resume", sandbox_id)
        assert has(sandbox_id, word)


def test_snapshots_are_whole(notes):
    for snapshot_id, word in notes["snapshot"].items():
        with created_from(snapshot_id) as child:
            assert has(child, word)


def test_nothing_is_left_when_all_are_removed():
    for sandbox_id in sandbox_ids():
        ctl_ok("kill", sandbox_id)
    for snapshot_id in snapshots():
        remove_snapshot(snapshot_id)
    left = leftovers()
    assert (left["scopes"], left["vmms"], left["run"], left["disks"]) == ([], [], [], [])
    assert not [name for name in left["snapshots"] if name[0] == "."]
