#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the gateway adds to the creation of a sandbox.

Runs as root next to a running cubed and cube-gateway.socket. In each round, one after the other: a create over D-Bus with
the options that the gateway gives, and by its user, since polkit is asked about him; another one, whose guest is told to
serve E2B's SDKs, which makes of it what clients of the gateway get; a create over REST; an empty call over D-Bus; and ten
replies of a server that does nothing but libmicrohttpd's least (bare-http). The same process asks for all, on connections
that it keeps.
"""

import argparse
import json
import os
import pathlib
import pwd
import socket
import subprocess
import tempfile
import time

import dbus

import bench
import figures
from cubetest import MANAGER, NAME, ROOT, SANDBOX, ctl, ctl_ok, options, run
from guest import CALL_LIMIT, Guest
from operations import kill_all

CONFIG = pathlib.Path("/etc/cubed/gateway.conf")
GATEWAY = "/run/cubed/gateway"
BARE_REPLIES = 10
BUS, SERVED, REST = "D-Bus create", "D-Bus create, served", "REST create"


class Http:
    """One connection, and no more of HTTP than a bench needs, so that little of what is measured is the client's."""

    def __init__(self, path, key=None):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.key = f"X-API-Key: {key}\r\n" if key else ""

    def call(self, method, path, body=b""):
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{self.key}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.receive()
        head, body = answer.split(b"\r\n\r\n", 1)
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while len(body) < length:
            body += self.receive()
        return int(head.split()[1]), body

    def receive(self):
        data = self.socket.recv(65536)
        assert data, "the server closed the connection"
        return data


def bus_of(user):
    """Whose connection it is is told when it is made."""
    os.seteuid(pwd.getpwnam(user).pw_uid)
    try:
        return dbus.SystemBus(private=True)
    finally:
        os.seteuid(0)


def timed(call):
    begin = time.monotonic()
    value = call()
    return (time.monotonic() - begin) * 1e3, value


class Creates:
    def __init__(self, template, key, bare):
        self.template = template
        self.gateway = Http(GATEWAY, key)
        self.bare = Http(bare)
        self.bus = bus_of("cube-gateway")
        self.manager = dbus.Interface(self.bus.get_object(NAME, ROOT, introspect=False), MANAGER)
        self.peer = dbus.Interface(self.bus.get_object(NAME, ROOT, introspect=False), "org.freedesktop.DBus.Peer")

    def over_bus(self):
        values = options({"timeout": dbus.UInt64(300_000_000), "on-timeout": "kill", "tenant": "bench",
                          "labels": dbus.Dictionary({"e2b/secure": "yes"}, signature="ss"),
                          "network-policy": options({"default": "internet"})})
        return str(self.manager.CreateSandbox(f"template:{self.template}", values, timeout=CALL_LIMIT)[0])

    def served_over_bus(self):
        sandbox_id = self.over_bus()
        proxy = dbus.Interface(self.bus.get_object(NAME, f"{ROOT}/sandbox/{sandbox_id}", introspect=False), SANDBOX)
        proxy.ServeEnvd(options({"token": "x" * 64, "user": "user", "user-optional": True,
                                 "env": [f"E2B_SANDBOX_ID={sandbox_id}", "E2B_TEMPLATE_ID=x"]}), timeout=CALL_LIMIT)
        return sandbox_id

    def over_rest(self):
        status, body = self.gateway.call("POST", "/v2/sandboxes", json.dumps({"templateID": self.template}).encode())
        assert status == 201, body
        return json.loads(body)["sandboxID"]

    def round(self, result):
        for name, create in ((BUS, self.over_bus), (SERVED, self.served_over_bus), (REST, self.over_rest)):
            msec, sandbox_id = timed(create)
            result[name].append(msec)
            kill_all([Guest(sandbox_id)])
        result["empty D-Bus call"].append(timed(self.peer.Ping)[0])
        for _ in range(BARE_REPLIES):
            msec, (status, _) = timed(lambda: self.bare.call("GET", "/"))
            assert status == 204
            result["bare reply"].append(msec)


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--payload", metavar="ELF", required=True)
    p.add_argument("--bare", metavar="PROGRAM", required=True)
    p.add_argument("--rounds", type=int, default=100)
    p.add_argument("--json", metavar="FILE")
    arguments = p.parse_args()
    return argparse.Namespace(**vars(arguments), rootfs=None, place="box", count_rounds=0)


def measure(arguments, result):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "bare")
        with subprocess.Popen([arguments.bare, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
            assert bare.stdout.readline() == b"ready\n"
            key = ctl_ok("--quiet", "apikey", "create", "bench").strip()
            creates = Creates("bench-warm", key, path)
            creates.round({name: [] for name in result})
            for _ in range(arguments.rounds):
                creates.round(result)
            bare.stdin.close()


def summary(result):
    """What REST adds, and to what: between medians, and the median of the differences of a round, which a busy machine shifts less."""
    p50 = {name: figures.median(values) for name, values in result.items()}

    def added(name):
        return {"of medians": p50[REST] - p50[name],
                "of rounds": figures.median([rest - bus for rest, bus in zip(result[REST], result[name])])}
    return {"added": {BUS: added(BUS), SERVED: added(SERVED)}, "ten_bare_replies": BARE_REPLIES * p50["bare reply"]}


def main():
    arguments = parse_arguments()
    result = {name: [] for name in (BUS, SERVED, REST, "empty D-Bus call", "bare reply")}
    Guest.connection = dbus.SystemBus(private=True)
    conditions = bench.conditions(arguments)
    CONFIG.write_text("[Gateway]\nRequestsPerSecond=100000\nRequestsBurst=1000000\n")
    try:
        run("systemctl", "restart", "cube-gateway.socket", check=True)
        bench.templates(arguments)
        measure(arguments, result)
    finally:
        CONFIG.unlink()
        run("systemctl", "stop", "cube-gateway.socket", "cube-gateway.service")
        for name in bench.TEMPLATES:
            ctl("template", "rm", name)
    print(figures.table(["milliseconds", "number", "p50", "p99"],
                        [[name, len(values), *(f"{figures.percentile(values, share):.3f}" for share in (50, 99))]
                         for name, values in result.items()]))
    added = summary(result)
    print()
    for name, msec in added["added"].items():
        print(f"REST adds to a {name}: {msec['of medians']:.3f} ms at p50, {msec['of rounds']:.3f} ms in the median round")
    print(f"Ten bare replies take {added['ten_bare_replies']:.3f} ms")
    print(json.dumps(conditions))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"msec": result, **added, "conditions": conditions}, indent=1))


if __name__ == "__main__":
    main()
