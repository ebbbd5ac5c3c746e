# SPDX-License-Identifier: Apache-2.0
"""Whom a guest reaches, and who reaches it, in front of the world of world.py: checks for whatever stands for a guest.

Fixtures: `w`, the world; `guest`, with `id` of its sandbox, `probe(*probes, patience)` as guest_probe.py answers them, `start(*argv)` of a
program that goes on, and `read(path)` of what that wrote.
"""

import contextlib
import json
import os
import signal
import subprocess
import time

import dbus

from cubetest import as_user, crash, helper_pid, prop, run, sandbox, wait_for
from world import DNS, HOST, METADATA, OTHER, PRIVATE, PRIVATE6, WWW, WWW6, world

CONFIG = "/etc/cubed/cubed.conf.d/60-network.conf"
GATEWAY = "169.254.77.1"
HOST_PORT = 8000
# So many seconds an answer may take that has to come, and so many one is waited for that must not.
PATIENCE, SILENT = 100, 4
# What a denied TCP connection and a denied datagram are told, at once.
DENIED = ("refused", "Connection refused", "Network is unreachable", "No route to host", "Permission denied")


@contextlib.contextmanager
def world_for_guests():
    """IPv6, too; few places in stock, since each takes its time in the lab."""
    with open(CONFIG, "w", encoding="ascii") as f:
        f.write("[Network]\nNetwork6=fd3c:cbed::/64\nFreeSlots=2\n")
    run("systemctl", "restart", "cubed.service", check=True)
    try:
        with world() as w:
            yield w
    finally:
        os.unlink(CONFIG)
        run("systemctl", "restart", "cubed.service", check=True)


def policy(guest, *rules, default="deny"):
    """Each rule "allow TEXT", "deny TEXT" or "inbound TEXT"."""
    lists = {}
    for rule in rules:
        name, text = rule.split(" ", 1)
        lists.setdefault(name, []).append(text)
    values = {"default": default} | {name: dbus.Array(texts, signature="s") for name, texts in lists.items()}
    sandbox(guest.id).SetNetworkPolicy(dbus.Dictionary(values, signature="sv"), timeout=120)


def is_open(result):
    return isinstance(result, list) or result.startswith(("open ", "answered"))


def reached(guest, *probes):
    """The probes that got through; what did not was told so, and did not run into a time-out."""
    results = guest.probe(*probes)
    for p, result in zip(probes, results):
        assert is_open(result) or result in DENIED or result.startswith("unresolved"), (p, result)
    return [p for p, result in zip(probes, results) if is_open(result)]


def denied(guest):
    return int(sandbox(guest.id).GetStatistics(timeout=60)["NetworkDeniedPacketsOut"])


@contextlib.contextmanager
def host_server():
    """A service of the host's, on all its addresses."""
    argv = ("python3", "-c", f"""
import socket
with socket.create_server(('', {HOST_PORT})) as s:
    print('ready', flush=True)
    while True:
        with s.accept()[0] as peer:
            peer.sendall(b'host\\n')
""")
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            p.kill()


EVERYWHERE = [["tcp", a, 80] for a in (WWW, OTHER, DNS, PRIVATE, METADATA, WWW6, PRIVATE6)]


def test_nothing_is_reached_when_all_is_denied(w, guest):
    policy(guest)
    w.forget()
    with host_server():
        assert reached(guest, *EVERYWHERE, ["tcp", HOST, HOST_PORT], ["udp", WWW, 7], ["ping", WWW], ["ping", WWW6]) == []
        assert not is_open(guest.probe(["tcp", GATEWAY, HOST_PORT], patience=SILENT)[0])
    resolved, queried = guest.probe(["resolve", "www.example.test"], ["query", DNS, "www.example.test"])
    assert resolved.startswith("unresolved") and queried in DENIED
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
    assert guest.probe(["tcp", WWW, 80], ["tcp", WWW6, 80]) == [f"open {WWW} {HOST}", f"open {WWW6} 2001:db8::1"]


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
    resolved, *others = guest.probe(["resolve", "c2VjcmV0.attacker.test"], ["query", WWW, "www.example.test"],
                                    ["query", GATEWAY, "c2VjcmV0.attacker.test"], ["tcp", WWW, 53])
    assert resolved.startswith("unresolved") and others[1:] == ["rcode 3", "refused"] and others[0] in DENIED
    assert set(w.look().names) == {"www.example.test", "a.wild.test", "b.c.wild.test"}
    assert {p[1] for p in w.packets if p[3] == 53} == {HOST}


def test_a_name_that_leads_inside_opens_nothing(guest, w):
    policy(guest, "allow inside.example.test")
    assert reached(guest, ["name", "inside.example.test", 80], ["tcp", PRIVATE, 80]) == []
    policy(guest, "allow inside.example.test in 10.66.0.0/16")
    assert reached(guest, ["name", "inside.example.test", 80]) == [["name", "inside.example.test", 80]]


def test_other_name_servers_are_reached_where_the_internet_is(guest, w):
    policy(guest, default="internet")
    assert guest.probe(["query", OTHER, "www.example.test"]) == ["rcode 0"]


def test_what_is_forged_does_not_get_out(guest, w):
    policy(guest, default="internet")
    before = denied(guest)
    w.forget()
    own = "169.254.77.2"
    assert guest.probe(["raw", "203.0.113.99", WWW], ["raw", prop(guest.id, "NetworkAddress"), WWW], ["frame", "02:00:00:00:00:99", own, WWW],
                 ["frame", "02:cb:ff:00:00:02", HOST, WWW], ["raw", own, WWW], ["udp", WWW, 7])[-1] == f"answered {HOST}"
    wait_for("all that was forged to be denied", lambda: denied(guest) >= before + 4)
    wait_for("the one datagram that was not forged", lambda: len([p for p in w.got(WWW) if p[0] == 17]) >= 2)
    assert {p[1] for p in w.packets if p[2] == WWW} == {HOST}


@contextlib.contextmanager
def held(guest, address, port=80):
    """A connection that is never silent; its state."""
    path = f"/tmp/held-{time.monotonic_ns()}"

    def state():
        text = guest.read(path)
        return json.loads(text) if text else {"n": 0, "error": None}
    with guest.start("python3", guest.program, address, port, path):
        wait_for("the connection to work", lambda: state()["n"] > 2)
        yield state


def goes_on(state):
    n = state()["n"]
    now = wait_for("lines to come back", lambda: (s := state()) and (s["error"] or s["n"] > n + 2) and s)
    assert not now["error"], now


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
        crash()
        goes_on(kept)
        assert reached(guest, *TRIED) == THROUGH
    run("systemctl", "stop", "cubed.service", check=True)
    try:
        assert f"cube{slot(guest.id)}" in os.listdir("/sys/class/net")
        assert "cubed" in run("nft", "list", "tables").stdout.decode()
    finally:
        run("systemctl", "start", "cubed.service", check=True)


def slot(sandbox_id):
    with open(f"/run/cubed/sandbox/{sandbox_id}/state.json", encoding="utf-8") as f:
        return json.load(f)["slot"]


SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080, bind='0.0.0.0')"
TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 8080), float(sys.argv[2])).close()
except OSError as e:
    print(type(e).__name__)
else:
    print('in')
"""
REFUSED, SILENCE = "ConnectionRefusedError", "TimeoutError"


def test_who_may_connect_to_it(guest, w):
    policy(guest)
    address = prop(guest.id, "NetworkAddress")

    def tried(*who, patience=PATIENCE):
        return run(*who, "python3", "-c", TRY, address, patience, check=True).stdout.decode().strip()
    with guest.start("python3", "-c", SERVE):
        wait_for("root to reach it", lambda: tried() == "in")
        assert tried("runuser", "-u", "bob", "--") == REFUSED
        run(*w.inside, "ip", "route", "replace", f"{address}/32", "via", HOST, check=True)
        # to the world there is nobody
        assert tried(*w.inside, patience=SILENT) == SILENCE
        policy(guest, "inbound 198.51.100.0/24 tcp:8080")
        assert tried(*w.inside) == "in"
        policy(guest, "inbound 198.51.100.0/24 tcp:8081")
        assert tried(*w.inside, patience=SILENT) == SILENCE
        policy(guest)
        assert tried() == "in"


def nothing_passes(guest, w):
    w.forget()
    results = guest.probe(["tcp", WWW, 80], ["tcp", WWW6, 80], ["udp", WWW, 7], patience=SILENT)
    assert not [r for r in results if is_open(r)], results
    return not w.got(WWW) and not w.got(WWW6)


def passes(guest, patience=PATIENCE):
    return is_open(guest.probe(["tcp", WWW, 80], patience=patience)[0])


def entry_of(guest):
    """bpftool's words for the sandbox's element, and its value."""
    [pins] = [name for name in os.listdir("/sys/fs/bpf/cubed") if name.isdigit()]
    element = ("pinned", f"/sys/fs/bpf/cubed/{pins}/sandboxes", "key", *slot(guest.id).to_bytes(4, "little"))
    value = json.loads(run("bpftool", "--json", "map", "lookup", *element, check=True).stdout)["value"]
    return element, value


def test_without_a_part_of_it_nothing_passes(guest, w):
    """Whoever takes a part away, while nobody puts it back: the table, the sandbox's entry, the filter. Comes last."""
    policy(guest, default="internet")
    assert passes(guest)
    netd = helper_pid("cube-netd")
    os.kill(netd, signal.SIGSTOP)
    try:
        run("nft", "flush", "ruleset", check=True)
        assert nothing_passes(guest, w)
    finally:
        os.kill(netd, signal.SIGCONT)
    wait_for("the table to be back", lambda: passes(guest, SILENT))
    element, value = entry_of(guest)
    run("bpftool", "map", "delete", *element, check=True)
    assert nothing_passes(guest, w)
    run("bpftool", "map", "update", *element, "value", *value, check=True)
    assert passes(guest)
    run("tc", "qdisc", "del", "dev", f"cube{slot(guest.id)}", "clsact", check=True)
    assert nothing_passes(guest, w)
