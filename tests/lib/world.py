# SPDX-License-Identifier: Apache-2.0
"""What stands for the internet, a private network, a metadata service and DNS servers, behind a link of this host.

More precise routes than the default one lead there, so that a host that is reached over its own uplink stays in reach.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess

from cubetest import run, wait_for

HOST, HOST6 = "198.51.100.1", "2001:db8::1"
NEAR, NEAR6 = "198.51.100.2", "2001:db8::2"
WWW, OTHER, DNS = "203.0.113.10", "203.0.113.20", "8.8.8.8"
PRIVATE, METADATA = "10.66.0.5", "169.254.169.254"
WWW6, PRIVATE6 = "2001:db8:1::10", "fd00:66::5"
LINK = "world0"
CONTROL = "/run/world"
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "world_server.py")


class World:
    def __init__(self, pid):
        self.inside = ("nsenter", f"--net=/proc/{pid}/ns/net")
        self.packets, self.names, self.ends = [], [], []

    def look(self):
        """Takes over what has come since."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(300)
            s.connect(CONTROL)
            with s.makefile() as f:
                seen = json.load(f)
        self.packets += [tuple(p) for p in seen["packets"]]
        self.names += seen["names"]
        self.ends += [tuple(e) for e in seen["ends"]]
        return self

    def forget(self):
        self.look()
        self.packets, self.names, self.ends = [], [], []

    def got(self, address):
        """Packets to it that came since forget()."""
        return [p for p in self.look().packets if p[2] == address]


def ip(*lines, inside=()):
    for line in lines:
        run(*inside, "ip", *line.split(), check=True)


def make_links(w, pid):
    ip(f"link add {LINK} type veth peer name w0 netns {pid}",
       f"address add {HOST}/24 dev {LINK}", f"address add {HOST6}/64 dev {LINK} nodad", f"link set {LINK} up")
    ip("link set lo up", f"address add {NEAR}/24 dev w0", f"address add {NEAR6}/64 dev w0 nodad", "link set w0 up",
       *(f"address add {a}/32 dev lo" for a in (WWW, OTHER, DNS, PRIVATE, METADATA)),
       *(f"address add {a}/128 dev lo nodad" for a in (WWW6, PRIVATE6)), inside=w.inside)
    ip(*(f"route add {net} via {NEAR}" for net in ("0.0.0.0/1", "128.0.0.0/1")),
       *(f"-6 route add {net} via {NEAR6}" for net in ("2000::/3", "fd00:66::/32")))


@contextlib.contextmanager
def resolv_conf(server):
    with open("/etc/resolv.conf", encoding="ascii") as f:
        before = f.read()
    with open("/etc/resolv.conf", "w", encoding="ascii") as f:
        f.write(f"nameserver {server}\n")
    try:
        yield
    finally:
        with open("/etc/resolv.conf", "w", encoding="ascii") as f:
            f.write(before)


@contextlib.contextmanager
def world():
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    own = os.readlink("/proc/self/ns/net")
    wait_for("the world's namespace", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
    w = World(holder.pid)
    server = None
    try:
        make_links(w, holder.pid)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(CONTROL)
        server = subprocess.Popen([*w.inside, "python3", PROGRAM, CONTROL, NEAR, WWW, OTHER, DNS, PRIVATE, METADATA, WWW6, PRIVATE6],
                                  stdout=subprocess.PIPE)
        assert server.stdout.readline() == b"ready\n"
        with resolv_conf(NEAR):
            yield w
    finally:
        if server:
            server.kill()
            server.wait()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        run("ip", "link", "del", LINK)
