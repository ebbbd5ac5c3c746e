# SPDX-License-Identifier: Apache-2.0
"""Whom a sandbox may talk to: where it comes from, how it is shared, and that it is kept through all that happens."""

import pytest

from conftest import PAYLOAD
from cubetest import crash, created, created_from, ctl_ok, make_root, options, prop, sandbox, wait_for
from network import OTHER, WORLD, ask, elements, kill_netd, netd_stopped, pool_is_full, state, world
from test_pause import pause, resume
from test_restart import restart


@pytest.fixture(scope="module", autouse=True)
def outside(template):
    """A world with two servers, which the host is known to reach."""
    with world():
        with created("--network", "internet", "--timeout", "1h") as sandbox_id:
            wait_for("the world to answer", lambda: reaches(sandbox_id, WORLD))
        yield


def reaches(sandbox_id, peer):
    return ask(sandbox_id, peer) == "198.51.100.1"


def reached(sandbox_id):
    said = {peer: ask(sandbox_id, peer) for peer in (WORLD, OTHER)}
    print(said)
    return [peer for peer in said if said[peer] == "198.51.100.1"]


# Said at the creation.

@pytest.mark.parametrize("words, peers", [
    ([], []),
    (["--network", "deny"], []),
    (["--network", "internet"], [WORLD, OTHER]),
    (["--allow", WORLD], [WORLD]),
    (["--allow", f"{WORLD} udp:7"], [WORLD]),
    (["--allow", f"{WORLD} udp:8"], []),
    (["--allow", f"{WORLD} tcp"], []),
    (["--network", "internet", "--deny", WORLD], [OTHER]),
    (["--network", "internet", "--deny", "198.51.100.0/24", "--allow", WORLD], [WORLD]),
])
def test_at_the_creation(words, peers):
    with created(*words, "--timeout", "1h") as sandbox_id:
        assert reached(sandbox_id) == peers


def test_a_template_s_policy_is_that_of_its_sandboxes(template, tmp_path):
    ctl_ok("template", "build", "talkative", "--from", make_root(tmp_path), "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M", "--no-warm",
           "--allow", WORLD)
    try:
        restart()  # it is on disk
        with created("--template", "talkative", "--timeout", "1h") as sandbox_id:
            assert reached(sandbox_id) == [WORLD]
        with created("--template", "talkative", "--network", "deny", "--timeout", "1h") as sandbox_id:
            assert reached(sandbox_id) == []
        # and its tables are there ahead of them
        pool_is_full()
        with netd_stopped():
            sandbox_id = ctl_ok("create", "--template", "talkative").strip()
        ctl_ok("kill", sandbox_id)
    finally:
        ctl_ok("template", "rm", "talkative")


def test_a_builder_s_policy_is_not_that_of_its_template(template, tmp_path):
    ctl_ok("template", "build", "fetched", "--from", make_root(tmp_path), "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M",
           "--build-network", "internet", "--setup", "true")
    try:
        with created("--template", "fetched", "--timeout", "1h") as sandbox_id:
            assert reached(sandbox_id) == []
    finally:
        ctl_ok("template", "rm", "fetched")


# Changed.

def test_the_same_rules_are_one_table():
    before = set(elements("policies"))
    with created("--allow", "192.0.2.7", "--allow", "192.0.2.8", "--timeout", "1h"):
        (its,) = set(elements("policies")) - before
        with created("--allow", "192.0.2.8", "--allow", "192.0.2.7", "--timeout", "1h"):
            assert set(elements("policies")) - before == {its}


def test_a_change_waits_for_cube_netd():
    with created("--timeout", "1h") as sandbox_id:
        kill_netd()
        ctl_ok("policy", "allow", sandbox_id, WORLD)
        assert reached(sandbox_id) == [WORLD]


# Kept.

def test_through_everything(template):
    with created("--allow", WORLD, "--timeout", "1h") as sandbox_id:
        point = str(sandbox(sandbox_id).Snapshot(options({}), timeout=120)[0])
        for again in restart, crash, kill_netd:
            again()
            assert reached(sandbox_id) == [WORLD]
        sandbox(sandbox_id).Rollback(point, options({}), timeout=120)
        assert reached(sandbox_id) == [WORLD]
        pause(sandbox_id)
        crash()
        resume(sandbox_id)
        assert reached(sandbox_id) == [WORLD]
        copy = ctl_ok("fork", sandbox_id).strip()
        try:
            assert reached(copy) == [WORLD]
            other = ctl_ok("fork", sandbox_id, "--allow", OTHER).strip()
            assert reached(other) == [OTHER]
            ctl_ok("kill", other)
        finally:
            ctl_ok("kill", copy)
        # a new sandbox, that says nothing
        with created_from(point) as sandbox_from:
            assert reached(sandbox_from) == []


# Limits.

def test_limits_of_its_own():
    """Those that are as configured cost nothing."""
    before = len(elements("limits"))
    with created("--timeout", "1h") as plain, created("--packets-out", "1000", "--open-connections", "infinity", "--timeout", "1h") as own:
        assert len(elements("limits")) == before + 1
        assert prop(own, "NetworkPacketsOutMax") == 1000
        ctl_ok("limit", plain, "--bandwidth-in", "10M")
        assert len(elements("limits")) == before + 2
        assert prop(plain, "NetworkBandwidthInMax") == 10 << 20
        assert state(own)["network-limits"] == {"packets-out": 1000, "connections-open": 2**32 - 1}
        restart()
        assert prop(plain, "NetworkBandwidthInMax") == 10 << 20
        pause(own)
        wait_for("its links to go", lambda: len(elements("limits")) == before + 1)
        resume(own)
        assert len(elements("limits")) == before + 2
    wait_for("all to be gone", lambda: len(elements("limits")) == before)


def test_a_limit_holds():
    with created("--network", "internet", "--new-connections", "1", "--timeout", "1h") as sandbox_id:
        assert ask(sandbox_id, WORLD) == "198.51.100.1"

        def another_is_too_many(port=iter(range(8, 1 << 16))):
            ask(sandbox_id, WORLD, next(port))
            return sandbox(sandbox_id).GetStatistics()["NetworkDeniedConnections"] > 0
        wait_for("the limit to be counted", another_is_too_many)
