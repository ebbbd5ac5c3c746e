# SPDX-License-Identifier: Apache-2.0
"""The sandbox network as the host sees it, and a world behind it."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import threading

from cubetest import another_helper, ctl_ok, helper_pid, manager_prop, run, wait_for

WORLD, OTHER, HOST = "198.51.100.2", "198.51.100.3", "198.51.100.1"
BPF_DIR = "/sys/fs/bpf/cubed"

libc = ctypes.CDLL(None, use_errno=True)
SYS_BPF, MAP_LOOKUP, MAP_GET_NEXT_KEY, OBJ_GET = 321, 1, 4, 7


def state(sandbox_id):
    """What a restarted cubed would know of it."""
    for path in (f"/run/cubed/sandbox/{sandbox_id}/state.json", f"/var/lib/cubed/sandboxes/{sandbox_id}/sandbox.json"):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                return json.load(f)
    raise AssertionError(f"nothing is written of {sandbox_id}")


def address(sandbox_id):
    return state(sandbox_id)["address"]


def links():
    """Those of sandboxes, and of the pool."""
    return {line.split("@")[0] for line in run("ip", "-br", "link").stdout.decode().splitlines()
            if line.startswith("cube") and line[4].isdigit()}


def link(sandbox_id):
    return f"cube{state(sandbox_id)['slot']}"


def bpf(command, attr):
    buffer = ctypes.create_string_buffer(attr, 128)
    return libc.syscall(SYS_BPF, command, buffer, len(buffer))


def pointer(buffer):
    return ctypes.addressof(buffer).to_bytes(8, "little")


def elements(name, key_bytes=4):
    """Keys of a pinned map."""
    version, = os.listdir(BPF_DIR)
    path = ctypes.create_string_buffer(f"{BPF_DIR}/{version}/{name}".encode())
    fd = bpf(OBJ_GET, pointer(path))
    assert fd >= 0, f"no map {name}"
    keys, key, following = [], None, ctypes.create_string_buffer(key_bytes)
    try:
        while bpf(MAP_GET_NEXT_KEY, fd.to_bytes(8, "little") + (pointer(key) if key else bytes(8)) + pointer(following)) == 0:
            keys.append(following.raw)
            key = ctypes.create_string_buffer(following.raw, key_bytes)
    finally:
        os.close(fd)
    # Where a key goes meanwhile the kernel begins anew.
    return list(dict.fromkeys(keys))


def element(name, key, value_bytes=16):
    """Of a pinned map, None where there is none."""
    version, = os.listdir(BPF_DIR)
    path = ctypes.create_string_buffer(f"{BPF_DIR}/{version}/{name}".encode())
    fd = bpf(OBJ_GET, pointer(path))
    assert fd >= 0, f"no map {name}"
    k, value = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value_bytes)
    try:
        found = bpf(MAP_LOOKUP, fd.to_bytes(8, "little") + pointer(k) + pointer(value)) == 0
    finally:
        os.close(fd)
    return value.raw if found else None


def of_network():
    """All that sandboxes have in the network, as a comparable count."""
    return {"links": len(links()), "entries": len(elements("sandboxes")), "slots": len(elements("slots")),
            "limits": len(elements("limits")), "usage": len(elements("usage")), "policies": len(elements("policies")),
            "tables": run("nft", "list", "tables").stdout}


def is_as(before):
    """What of_network() told before is so again. A policy that nobody uses is kept for a minute: it may have gone since."""
    now = of_network()
    return now["policies"] <= before["policies"] and {**now, "policies": 0} == {**before, "policies": 0}


def pool_is_full(slots=16, but=0):
    """cubed has as many places as the pool is to have, and there are no links but theirs and those of running sandboxes."""
    wait_for("the pool to be full", lambda: manager_prop("NetworkFreeSlots") == slots and len(links()) == slots + but)


@contextlib.contextmanager
def serving(sandbox_id):
    """The guest answers datagrams."""
    with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "net-serve"], stdin=subprocess.DEVNULL) as p:
        try:
            yield p
        finally:
            p.kill()


def udp(peer):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(0.2)
    s.connect((peer, 7))
    return s


def echoes(s, text=b"hello"):
    """One that is on its way to a guest may be lost: it is said again."""
    def once():
        try:
            s.send(text)
            return s.recv(100) == text
        except (TimeoutError, ConnectionRefusedError):
            return False
    wait_for(f"{s.getpeername()[0]} to answer", once)


def answers(s, text=b"hello"):
    """The very first one."""
    s.settimeout(60)
    s.send(text)
    return s.recv(100) == text


def ask(sandbox_id, peer=WORLD, port=7):
    return ctl_ok("exec", sandbox_id, "--", "net-ask", peer, port).strip("\n")


@contextlib.contextmanager
def world():
    """A network that this host has a default route to, with a server in it that answers datagrams."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    ns = f"/proc/{holder.pid}/ns/net"
    own = os.readlink("/proc/self/ns/net")
    wait_for("the world's namespace", lambda: os.readlink(ns) != own)
    inside = ["nsenter", f"--net={ns}"]
    try:
        run("ip", "link", "add", "world0", "type", "veth", "peer", "name", "eth0", "netns", holder.pid, check=True)
        run("ip", "address", "add", f"{HOST}/24", "dev", "world0", check=True)
        run("ip", "link", "set", "world0", "up", check=True)
        for its in WORLD, OTHER:
            run(*inside, "ip", "address", "add", f"{its}/24", "dev", "eth0", check=True)
        run(*inside, "ip", "link", "set", "eth0", "up", check=True)
        run("ip", "route", "add", "default", "via", WORLD, check=True)
        with server(inside):
            yield
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        run("ip", "link", "del", "world0")


SERVER = """
import select, socket, sys
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in sys.argv[1:]]
for s, address in zip(sockets, sys.argv[1:]):
    s.bind((address, 7))
print('ready', flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        text, peer = s.recvfrom(1000)
        s.sendto(peer[0].encode(), peer)
"""


@contextlib.contextmanager
def server(inside):
    """Says to whom it answers."""
    p = subprocess.Popen([*inside, "python3", "-c", SERVER, WORLD, OTHER], stdout=subprocess.PIPE)
    try:
        assert p.stdout.readline() == b"ready\n"
        yield
    finally:
        p.kill()
        p.wait()


@contextlib.contextmanager
def network_config(text):
    path = "/etc/cubed/cubed.conf.d/60-network.conf"
    with open(path, "w", encoding="ascii") as f:
        f.write("[Network]\n" + text)
    try:
        yield
    finally:
        os.unlink(path)
        run("systemctl", "reset-failed", "cubed.service")
        run("systemctl", "restart", "cubed.service", check=True)


@contextlib.contextmanager
def netd_stopped():
    """cube-netd does nothing meanwhile, and answers nobody."""
    pid = helper_pid("cube-netd")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


def kill_netd():
    pid = helper_pid("cube-netd")
    os.kill(pid, signal.SIGKILL)
    another_helper("cube-netd", pid)


class Talker(threading.Thread):
    """One flow that is never silent; counts what got no answer."""

    def __init__(self, peer):
        super().__init__(daemon=True)
        self.socket, self.lost, self.asked, self.over = udp(peer), 0, 0, threading.Event()
        # a guest waits for a CPU like everybody
        self.socket.settimeout(60)

    def run(self):
        while not self.over.wait(0.01):
            self.asked += 1
            try:
                self.socket.send(b"still there?")
                self.socket.recv(100)
            except (TimeoutError, ConnectionRefusedError):
                self.lost += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
