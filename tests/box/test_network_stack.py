# SPDX-License-Identifier: Apache-2.0
"""network_checks.py at native speed: the stack of another namespace stands for the guest, behind the tap that cubed gave to the
VMM. The payload guest drives no network card before it is told to, so that the VMM leaves the tap alone."""

import contextlib
import ctypes
import json
import os
import subprocess
import sys

import pytest

pytest.register_assert_rewrite("network_checks")

from cubetest import created, descriptors, prop, run
from network_checks import PATIENCE, world_for_guests
from network_checks import *  # noqa: F401,F403

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bpf"))
os.environ.setdefault("CUBE_BUILD", os.environ["CUBE_TEST_BUILD"])

import netlab  # noqa: E402

SYS_PIDFD_GETFD = 438
RESOLV_CONF = "/run/guest-resolv.conf"


def tap_of(pid):
    """The VMM's own descriptor of it."""
    [number] = [n for n, target in descriptors(pid).items() if target == "/dev/net/tun"]
    pidfd = os.pidfd_open(pid)
    try:
        return netlab.check(ctypes.CDLL(None, use_errno=True).syscall(SYS_PIDFD_GETFD, pidfd, number, 0))
    finally:
        os.close(pidfd)


class StackGuest:
    program = os.path.join(HERE, "..", "lib", "guest_probe.py")

    def __init__(self, sandbox_id):
        self.id = sandbox_id
        self.tap = tap_of(int(prop(sandbox_id, "VMMPID")))
        self.stack = netlab.Guest(self.tap)
        with open(RESOLV_CONF, "w", encoding="ascii") as f:
            # A question may be lost while one cube-netd follows another, and is asked again as by any guest.
            f.write("nameserver 169.254.77.1\noptions timeout:5 attempts:4\n")

    def command(self, *argv):
        return ("nsenter", f"--net={self.stack.netns.path()}", "unshare", "--mount", "sh", "-c",
                f'mount --bind {RESOLV_CONF} /etc/resolv.conf; exec "$@"', "sh", *(str(a) for a in argv))

    def probe(self, *probes, patience=PATIENCE):
        return json.loads(run(*self.command("python3", self.program, patience), input=json.dumps(probes).encode(), check=True).stdout)

    @contextlib.contextmanager
    def start(self, *argv):
        with subprocess.Popen(self.command(*argv), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
            try:
                yield
            finally:
                p.kill()

    def read(self, path):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as f:
            return f.read()
        return ""

    def close(self):
        self.stack.close()
        os.close(self.tap)


@pytest.fixture(scope="module")
def w(template):
    with world_for_guests() as made:
        yield made


@pytest.fixture(scope="module")
def guest(w):
    with created("--timeout", "1h") as sandbox_id:
        g = StackGuest(sandbox_id)
        yield g
        g.close()
