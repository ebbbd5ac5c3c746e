# SPDX-License-Identifier: Apache-2.0
"""A sandbox's place in the network: where it comes from, who reaches it, and where it goes."""

import concurrent.futures
import errno
import os
import random
import select
import signal
import socket
import subprocess

import dbus
import pytest

from cubetest import (crash, created, ctl, ctl_ok, cubed_pid, descriptors, helper_pid, journal, options, prop, run, sandbox, sandbox_ids, wait_for)
from network import (WORLD, Talker, address, answers, ask, echoes, is_as, kill_netd, link, links, netd_stopped, network_config,
                     of_network, pool_is_full, serving, state, udp, world)
from test_pause import pause, resume
from test_restart import restart


@pytest.fixture
def internet(template):
    """The default policy lets sandboxes reach the world."""
    with network_config("DefaultPolicy=internet\n"):
        run("systemctl", "reload", "cubed.service", check=True)
        yield


# A place.

def test_each_has_an_address_and_the_host_reaches_it(template):
    with created("--timeout", "1h") as one, created("--timeout", "1h") as two:
        assert address(one) != address(two)
        assert prop(one, "NetworkAddress") == address(one) and prop(one, "NetworkAddress6") == ""
        for sandbox_id in one, two:
            with serving(sandbox_id):
                echoes(udp(address(sandbox_id)))


def test_nobody_but_the_owner_reaches_it(template):
    script = f"""
import os, socket, sys
os.setuid(12345)
for kind in socket.SOCK_DGRAM, socket.SOCK_STREAM:
    with socket.socket(socket.AF_INET, kind) as s:
        s.settimeout(3)
        try:
            s.connect((sys.argv[1], 7))
            s.send(b'x')
            print('answered', s.recv(10))
        except OSError as e:
            print(type(e).__name__)
"""
    with created("--timeout", "1h") as sandbox_id, serving(sandbox_id):
        echoes(udp(address(sandbox_id)))
        assert sandbox(sandbox_id).GetStatistics()["NetworkDeniedOwner"] == 0
        out = run("python3", "-c", script, address(sandbox_id), check=True).stdout.decode().split()
        # the datagram went nowhere, the connection was refused
        assert out == ["TimeoutError", "ConnectionRefusedError"]
        assert sandbox(sandbox_id).GetStatistics()["NetworkDeniedOwner"] == 2
        echoes(udp(address(sandbox_id)))


def test_another_sandbox_does_not_reach_it(internet):
    with created("--timeout", "1h") as one, created("--timeout", "1h") as two, serving(one):
        echoes(udp(address(one)))
        assert ask(two, address(one)).startswith("unreachable")


def test_nothing_is_reached_without_a_policy_and_the_journal_tells(template):
    with world(), created("--timeout", "1h") as sandbox_id:
        assert ask(sandbox_id).startswith("unreachable")
        entry = wait_for("the journal to tell", lambda: journal(sandbox_id, "CUBE_EVENT=network-denied"))[0]
        assert entry["CUBE_DESTINATION"] == WORLD
        assert (entry["CUBE_PROTOCOL"], entry["CUBE_PORT"], entry["CUBE_DIRECTION"]) == ("udp", "7", "out")
        assert (entry["CUBE_VERDICT"], entry["CUBE_REASON"]) == ("deny", "policy")


def test_the_world_is_reached_under_the_host_s_address(internet):
    with world(), created("--timeout", "1h") as sandbox_id:
        wait_for("the world to answer", lambda: ask(sandbox_id) == "198.51.100.1")
        assert journal(sandbox_id, "CUBE_EVENT=network-policy")[0]["CUBE_POLICY"] == "internet"


def test_statistics_have_the_network_s(template):
    with world(), created("--timeout", "1h") as sandbox_id:
        before = sandbox(sandbox_id).GetStatistics()
        assert "net-rx-packets" in before
        assert ask(sandbox_id).startswith("unreachable")
        after = sandbox(sandbox_id).GetStatistics()
        for name in "NetworkDeniedPacketsOut", "NetworkDeniedPolicy", "NetworkDeniedBytesOut":
            assert after[name] > before[name]


# The pool.

def netlink_sockets(pid):
    """Inodes of those that the process has."""
    with open(f"/proc/{pid}/net/netlink", encoding="ascii") as f:
        there = {line.split()[-1] for line in f}
    return there & {link[len("socket:["):-1] for link in descriptors(pid).values() if link.startswith("socket:[")}


def test_a_create_needs_nothing_of_cube_netd(template):
    """All that is made by netlink, and each table of a policy, is there before."""
    pool_is_full()
    with netd_stopped():
        sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
        assert prop(sandbox_id, "State") == "running"
        assert ctl_ok("exec", sandbox_id, "--", "echo", "here") == "here\n"
        with serving(sandbox_id):
            echoes(udp(address(sandbox_id)))
    ctl_ok("kill", sandbox_id)
    # cubed itself has no such socket
    assert netlink_sockets(helper_pid("cube-netd")) and not netlink_sockets(cubed_pid())


def test_when_the_pool_is_empty_creates_wait_in_line(template):
    with network_config("FreeSlots=1\n"):
        restart()
        pool_is_full(1)
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            made = list(pool.map(lambda _: ctl_ok("create", "--timeout", "1h").strip(), range(5)))
        try:
            assert len({address(s) for s in made}) == 5
            pool_is_full(1, but=5)
        finally:
            for s in made:
                ctl_ok("kill", s)
        pool_is_full(1)


def test_a_pool_of_none(template):
    with network_config("FreeSlots=0\n"):
        restart()
        with created() as sandbox_id:
            wait_for("no links but its own", lambda: links() == {link(sandbox_id)})
        wait_for("its links to go", lambda: not links())


def test_a_network_that_overlaps_is_named_and_nothing_is_started(template):
    with network_config("Network4=198.51.100.0/24\n"), world():
        restart()
        wait_for("the reason", lambda: b"overlaps" in run("journalctl", "-u", "cubed", "-n", "50").stdout or
                 b"198.51.100.0/24" in ctl("create").stderr)
        failed = ctl("create")
        assert failed.returncode != 0
        assert b"198.51.100.0/24" in failed.stderr and b"Network4=" in failed.stderr
        assert not sandbox_ids()


# Nothing is left.

def test_creates_and_kills_leave_nothing(template):
    pool_is_full()
    before = of_network()
    for i in range(25):
        made = [ctl_ok("create").strip() for _ in range(4)]
        for s in made:
            ctl_ok("kill", s)
    wait_for("the network to be as before", lambda: is_as(before))


def test_vmms_and_cubed_that_are_killed_leave_nothing(template):
    pool_is_full()
    before = of_network()
    chance = random.Random(20)
    for _ in range(6):
        made = [ctl_ok("create", "--timeout", "1h").strip() for _ in range(3)]
        os.kill(int(prop(made[0], "VMMPID")), signal.SIGKILL)
        underway = [subprocess.Popen(["cubectl", "create"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
        chance.choice([crash, kill_netd, restart])()
        for p in underway:
            p.wait(120)
        for s in sandbox_ids():
            ctl("kill", s)
    wait_for("no sandbox", lambda: not sandbox_ids())
    wait_for("the network to be as before", lambda: is_as(before))


def test_a_killed_vmm_takes_its_links_along(template):
    with created("--timeout", "1h") as sandbox_id:
        its = link(sandbox_id)
        assert its in links()
        os.kill(int(prop(sandbox_id, "VMMPID")), signal.SIGKILL)
        wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
        wait_for("its link to be gone", lambda: its not in links())


# Ends.

def connecting(peer):
    """A connection of the host that the guest does not answer."""
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex((peer, 80)) == errno.EINPROGRESS
    return s


def cut(s):
    """It has ended by now."""
    return select.select([], [s], [], 0)[1] and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNABORTED


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_connections_of_the_host_end_with_it(template, how):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    with connecting(address(sandbox_id)) as s:
        ctl_ok(how, sandbox_id)
        assert cut(s)


def test_connections_of_the_host_end_with_a_vmm_that_is_killed(template):
    with created("--timeout", "1h") as sandbox_id, connecting(address(sandbox_id)) as s:
        os.kill(int(prop(sandbox_id, "VMMPID")), signal.SIGKILL)
        wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
        assert cut(s)


def test_a_kill_while_cube_netd_is_away_ends(template):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    with connecting(address(sandbox_id)) as s:
        kill_netd()
        ctl_ok("kill", sandbox_id)
        assert cut(s)


# Pause, resume, rollback.

def test_a_pause_keeps_the_address_and_cuts_connections(template):
    with created("--timeout", "1h") as sandbox_id:
        its, own = address(sandbox_id), link(sandbox_id)
        with connecting(its) as s:
            pause(sandbox_id)
            assert cut(s)
        wait_for("its link to be gone", lambda: own not in links())
        assert address(sandbox_id) == its
        with created() as other:
            assert address(other) != its
        resume(sandbox_id)
        assert address(sandbox_id) == its
        with serving(sandbox_id):
            echoes(udp(its))


@pytest.mark.parametrize("again", [restart, crash, kill_netd])
def test_a_paused_one_s_address_is_given_to_nobody(template, again):
    """In a network with room for one more, and with cube-netd's memory gone."""
    with network_config("Network4=10.230.1.0/28\nFreeSlots=0\n"):
        restart()
        with created("--timeout", "1h") as sandbox_id:
            its = address(sandbox_id)
            pause(sandbox_id)
            again()
            others = []
            try:
                for _ in range(4):
                    others.append(ctl_ok("create", "--timeout", "1h").strip())
                assert its not in [address(s) for s in others]
            finally:
                for s in others:
                    ctl("kill", s)
            resume(sandbox_id)
            assert address(sandbox_id) == its


def test_a_sandbox_without_its_old_network_gets_another_address(template):
    with created("--timeout", "1h") as sandbox_id:
        pause(sandbox_id)
        with network_config("Network4=10.230.2.0/28\nFreeSlots=2\n"):
            restart()
            resume(sandbox_id)
            assert address(sandbox_id).startswith("10.230.2.")
            with serving(sandbox_id):
                echoes(udp(address(sandbox_id)))
            # the network stays as it is for as long as somebody is in it
            ctl_ok("kill", sandbox_id)


def test_a_rollback_keeps_the_address_and_cuts_connections(template):
    with created("--timeout", "1h") as sandbox_id:
        its = address(sandbox_id)
        point = str(sandbox(sandbox_id).Snapshot(options({}), timeout=120)[0])
        with connecting(its) as s:
            sandbox(sandbox_id).Rollback(point, options({}), timeout=120)
            assert cut(s)
        assert address(sandbox_id) == its
        with serving(sandbox_id):
            echoes(udp(its))


def test_a_fork_has_an_address_of_its_own(template):
    with created("--timeout", "1h") as sandbox_id:
        copy = str(sandbox(sandbox_id).Fork(dbus.UInt32(1), options({}), timeout=120)[0][1])
        try:
            assert address(copy) != address(sandbox_id)
            assert state(copy)["policy"] == state(sandbox_id)["policy"]
            with serving(copy):
                echoes(udp(address(copy)))
        finally:
            ctl_ok("kill", copy)


# Restarts.

@pytest.mark.parametrize("again", [restart, crash, kill_netd])
def test_flows_go_on(template, again):
    with created("--timeout", "1h") as sandbox_id, serving(sandbox_id):
        echoes(udp(address(sandbox_id)))
        with Talker(address(sandbox_id)) as t:
            wait_for("it to talk", lambda: t.asked > 10)
            again()
            asked = t.asked
            wait_for("it to talk on", lambda: t.asked > asked + 50)
        assert t.lost == 0
        assert answers(udp(address(sandbox_id)))
        assert prop(sandbox_id, "State") == "running"


def test_a_policy_goes_on(internet):
    with world(), created("--timeout", "1h") as sandbox_id:
        wait_for("the world to answer", lambda: ask(sandbox_id) == "198.51.100.1")
        for again in restart, kill_netd, crash:
            again()
            assert ask(sandbox_id) == "198.51.100.1"
            assert state(sandbox_id)["policy"] == {"default": "internet"}
