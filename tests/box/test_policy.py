# SPDX-License-Identifier: Apache-2.0
"""Policies as users give them: in force at once, kept over restarts, and special ranges for those who may."""

import json

import pytest

from cubetest import as_user, crash, created, ctl, ctl_ok, journal, prop, run, wait_for
from network import HOST, WORLD, ask, kill_netd, world
from test_access import alice_in_cube  # noqa: F401
from test_pause import pause, resume

REACHED = HOST
SPECIAL = "org.cubed.cube1.open-special-ranges"


def policy(sandbox_id):
    return json.loads(ctl_ok("policy", "show", sandbox_id, "-j"))


@pytest.fixture
def outside(template):
    # the one of the test before has the same name
    wait_for("cubed to see that there is no way out", lambda: "Uplink: world0" not in ctl_ok("status"))
    with world():
        wait_for("cubed to see the way out", lambda: "Uplink: world0" in ctl_ok("status"))
        yield


def test_it_comes_with_the_sandbox_and_changes_while_it_runs(outside):
    with created("--timeout", "1h", "--allow", f"{WORLD} udp:7") as sandbox_id:
        assert ask(sandbox_id) == REACHED
        assert ask(sandbox_id, port=8).startswith("unreachable")
        ctl_ok("policy", "clear", sandbox_id)
        assert ask(sandbox_id).startswith("unreachable")
        ctl_ok("policy", "allow", sandbox_id, WORLD)
        assert ask(sandbox_id) == REACHED
        ctl_ok("policy", "set", sandbox_id, "--default", "internet", "--deny", WORLD)
        assert ask(sandbox_id).startswith("unreachable")
        ctl_ok("policy", "remove", sandbox_id, WORLD)
        assert ask(sandbox_id) == REACHED
        entries = journal(sandbox_id, "CUBE_EVENT=network-policy")
        assert len(entries) == 5 and all(e["CUBE_ACTOR_UID"] == "0" for e in entries[1:])


def test_one_that_is_wrong_changes_nothing(outside):
    with created("--timeout", "1h", "--allow", WORLD) as sandbox_id:
        for rule in f"{WORLD} tcp:70000", "10.0.0.0/33", "a..b":
            result = ctl("policy", "set", sandbox_id, "--default", "internet", "--allow", rule)
            assert result.returncode == 1 and b"Rule" in result.stderr
        assert policy(sandbox_id)["allow"] == [WORLD] and ask(sandbox_id) == REACHED
        assert ctl("create", "--allow", "a..b").returncode == 1


@pytest.mark.parametrize("again", [crash, kill_netd])
def test_a_custom_policy_goes_on(outside, again):
    with created("--timeout", "1h", "--allow", WORLD) as sandbox_id:
        assert ask(sandbox_id) == REACHED
        again()
        assert ask(sandbox_id) == REACHED
        assert policy(sandbox_id)["allow"] == [WORLD]


def test_of_a_paused_one(outside):
    with created("--timeout", "1h", "--allow", WORLD) as sandbox_id:
        pause(sandbox_id)
        ctl_ok("policy", "clear", sandbox_id)
        resume(sandbox_id)
        assert ask(sandbox_id).startswith("unreachable")
        address = prop(sandbox_id, "NetworkAddress")
        pause(sandbox_id)
        ctl_ok("policy", "allow", sandbox_id, WORLD)
        resume(sandbox_id)
        assert ask(sandbox_id) == REACHED and prop(sandbox_id, "NetworkAddress") == address


def test_limits_are_as_asked_for_and_change(outside):
    with created("--timeout", "1h", "--allow", WORLD, "--new-connections", "1") as sandbox_id:
        assert prop(sandbox_id, "NetworkNewConnectionsMax") == 1
        ctl_ok("limit", sandbox_id, "--new-connections", "1000", "--bandwidth-out", "10M")
        assert prop(sandbox_id, "NetworkNewConnectionsMax") == 1000
        assert prop(sandbox_id, "NetworkBandwidthOutMax") == 10 << 20


@pytest.fixture
def trusted():
    path = "/etc/cubed/cubed.conf.d/61-special.conf"
    with open(path, "w", encoding="ascii") as f:
        f.write("[Network]\nSpecialRangesUsers=alice\n")
    run("systemctl", "reload", "cubed.service", check=True)
    yield
    run("rm", path, check=True)
    run("systemctl", "reload", "cubed.service", check=True)


def test_private_networks_are_not_the_owner_s_to_open(template, alice_in_cube):  # noqa: F811
    result = as_user("alice", "cubectl", "--no-ask-password", "create", "--allow", "10.1.0.0/16")
    assert result.returncode == 1 and SPECIAL.encode() in result.stderr
    sandbox_id = as_user("alice", "cubectl", "create", "--allow", "9.9.9.9").stdout.decode().strip()
    try:
        for rule in "10.1.0.0/16", "127.0.0.1", "fd00::1", "9.9.9.9 host":
            result = as_user("alice", "cubectl", "--no-ask-password", "policy", "allow", sandbox_id, rule)
            assert result.returncode == 1 and SPECIAL.encode() in result.stderr
        assert policy(sandbox_id)["allow"] == ["9.9.9.9"]
        assert any(e.get("CUBE_EVENT") == "denied" for e in journal(sandbox_id))
        ctl_ok("policy", "allow", sandbox_id, "10.1.0.0/16")
    finally:
        ctl_ok("kill", sandbox_id)


def test_but_those_of_users_whom_the_configuration_lists(template, alice_in_cube, trusted):  # noqa: F811
    result = as_user("alice", "cubectl", "create", "--allow", "10.1.0.0/16")
    assert result.returncode == 0, result.stderr
    sandbox_id = result.stdout.decode().strip()
    assert as_user("alice", "cubectl", "policy", "allow", sandbox_id, "10.2.0.0/16").returncode == 0
    ctl_ok("kill", sandbox_id)
