# SPDX-License-Identifier: Apache-2.0
"""Whom a Linux guest reaches, and who reaches it: real programs in it, real servers in the world behind the host. First what
changes the sandbox itself, then network_checks.py."""

import contextlib
import json
import os

import pytest

pytest.register_assert_rewrite("network_checks")

from cubetest import created, ctl_ok, manager_prop, prop, run, sandbox_ids, wait_for
from network import is_as, links, of_network
from network_checks import EVERYWHERE, PATIENCE, RULES, THROUGH, TRIED, WWW, policy, reached, slot, world_for_guests

LONG = os.environ.get("CUBE_LONG") == "1"
HERE = os.path.dirname(os.path.abspath(__file__))
PROBE = os.path.join(HERE, "..", "lib", "guest_probe.py")


class LinuxGuest:
    program = "/root/probe.py"

    def __init__(self, sandbox_id):
        self.id = sandbox_id

    def push(self):
        with open(PROBE, "rb") as f:
            run("cubectl", "exec", self.id, "--", "sh", "-c", f"cat >{self.program}", input=f.read(), check=True)
        return self

    def probe(self, *probes, patience=PATIENCE):
        out = run("cubectl", "exec", self.id, "--", "python3", self.program, patience, input=json.dumps(probes).encode(), check=True).stdout
        return json.loads(out)

    @contextlib.contextmanager
    def start(self, *argv):
        pid = ctl_ok("exec", self.id, "--", "sh", "-c", 'setsid "$@" </dev/null >/root/log 2>&1 & echo $!', "sh", *argv).strip()
        try:
            yield
        finally:
            ctl_ok("exec", self.id, "--", "sh", "-c", f"kill {pid} || :")

    def read(self, path):
        return ctl_ok("exec", self.id, "--", "sh", "-c", f"cat {path} 2>/dev/null || :")


@pytest.fixture(scope="module")
def w():
    with world_for_guests() as made:
        yield made


@pytest.fixture(scope="module")
def guest(w):
    with created("--timeout", "1h") as sandbox_id:
        yield LinuxGuest(sandbox_id).push()


def test_creates_and_kills_leave_nothing():
    wait_for("the pool to be full", lambda: manager_prop("NetworkFreeSlots") == 16 and len(links()) == 16 + len(sandbox_ids()))
    before = of_network()
    for _ in range(30 if LONG else 3):
        ctl_ok("kill", ctl_ok("create").strip())
    wait_for("the network to be as before", lambda: is_as(before))


def test_nobody_else_manages_its_links(guest):
    """systemd-networkd leaves them alone, udev their names and addresses, and PID 1 has no unit for them."""
    def listed():
        lines = run("networkctl", "--no-pager", "--no-legend", "list", check=True).stdout.decode().splitlines()
        ours = {words[1]: words[-1] for words in map(str.split, lines) if words[1].startswith("cube")}
        # of one that has just been made it waits for udev
        return "pending" not in ours.values() and ours
    ours = wait_for("networkd to have seen them", listed)
    assert "cube-host" in ours and f"cube{slot(guest.id)}" in ours and set(ours.values()) == {"unmanaged"}, ours
    with open(f"/sys/class/net/cube{slot(guest.id)}/address", encoding="ascii") as f:
        assert f.read().startswith("02:cb:00:")
    assert run("systemctl", "list-units", "--all", "--no-legend", "sys-subsystem-net-devices-cube*").stdout == b""


def test_one_that_was_told_nothing_reaches_nobody(guest):
    assert reached(guest, *EVERYWHERE, ["ping", WWW]) == []


def test_it_holds_after_pause_and_resume(guest, w):
    policy(guest, *RULES)
    address = prop(guest.id, "NetworkAddress")
    ctl_ok("pause", guest.id)
    ctl_ok("resume", guest.id)
    assert prop(guest.id, "NetworkAddress") == address
    assert reached(guest, *TRIED) == THROUGH


def test_it_holds_in_a_fork_and_after_a_rollback(guest, w):
    policy(guest, *RULES)
    address = prop(guest.id, "NetworkAddress")
    snapshot = ctl_ok("snapshot", guest.id).split()[-1]
    fork = LinuxGuest(ctl_ok("fork", guest.id).strip())
    try:
        assert prop(fork.id, "NetworkAddress") != address
        # neither its parent nor anybody else's sandbox
        assert reached(fork, *TRIED, ["tcp", address, 22], ["ping", address]) == THROUGH
    finally:
        ctl_ok("kill", fork.id)
    ctl_ok("rollback", guest.id, snapshot)
    assert prop(guest.id, "NetworkAddress") == address
    assert reached(guest, *TRIED) == THROUGH


# Behind the tests above, since the last of these leaves a sandbox without a filter.
from network_checks import *  # noqa: E402,F401,F403
