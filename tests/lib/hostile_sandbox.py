# SPDX-License-Identifier: Apache-2.0
"""The hostile guest (tests/hostile) as a sandbox with two CPUs: what has to come of its attacks where all the rest is real,
cubed, the network and a neighbour. Which outcome each of them has to have, tests/native/test_hostile_guest.py knows."""

import os
import time

from cubetest import ctl, ctl_ok, cubed_pid, journal, leftovers, reason_of, sandbox_ids, wait_for

HOSTILE = os.path.join(os.environ.get("CUBE_TEST_BUILD", "/srv/cubed/build"), "tests", "hostile", "hostile.elf")
DEVICES = ["vda", "vdb", "rng", "net", "balloon", "mem", "vsock"]
# What ends it, and which reasons may be given for that.
ENDS = {
    "run-a-device": {"internal-error", "triple-fault"},
    "stack-in-a-device": {"internal-error", "triple-fault"},
    "tables-in-a-device": {"internal-error", "triple-fault"},
    "second-triple": {"triple-fault"},
    "second-panic": {"panic"},
    "second-off": {"poweroff"},
    "second-resets-first": {"reset", "internal-error", "triple-fault"},
    "ends-at-once": {"panic", "triple-fault"},
}
# They want a host that opens streams at the right moment, or watches it from without; or say the same for longer.
OTHERS = {"stream-early", "stream-long-answer", "stream-overrun", "stream-half", "stream-liar", "floods", "disk-feeds-itself",
          "console-long"}
# A second CPU writes what the VMM reads: nothing is said of it.
RACES = ["race-descriptors", "race-tables", "race-contents", "race-rings", "race-registers"]
# One of each kind, for those who have no time for all of them.
SOME = RACES + ["head", "config-space", "msix", "balloon-pages", "packets", "connections"]
# vmm/virtio-pci.c: a device says one thing in this time.
QUIET_SECONDS = 10


def build_template(root):
    ctl_ok("template", "build", "hostile", "--from", root, "--kernel", HOSTILE, "--memory", "64M", "--disk", "64M", "--no-warm")


class HostileSandbox:
    def __init__(self):
        self.began = time.monotonic()
        self.id = ctl_ok("create", "template:hostile", "--cpus", "2", "--memory", "64M", "--timeout", "1h").strip()
        self.before = leftovers()["fds"], cubed_pid()

    def all_attacks(self):
        """Their names, but for those that end it."""
        self.run("attacks")
        return [name for name in self.last() if name not in ENDS and name not in OTHERS]

    def run(self, *argv):
        """Whatever its own streams say, which it may take down."""
        return ctl("exec", self.id, "--", *argv)

    def last(self):
        """What the last one printed, once the guest's agent is there again."""
        answer = []

        def answered():
            answer[:] = [ctl("exec", self.id, "--", "last")]
            return answer[0].returncode == 0
        wait_for("the guest to be there again", answered)
        return answer[0].stdout.decode().splitlines()

    def attack(self, name):
        self.run("attack", name)
        return self.last()

    def is_whole(self):
        """All of its devices work, cubed has what it had, and the journal is not filled with it."""
        self.run("alive")
        assert self.last() == [f"{device} alive" for device in DEVICES]
        fds, pid = self.before
        assert cubed_pid() == pid
        wait_for("cubed to hold no more than before", lambda: leftovers()["fds"] <= fds)

        told = [entry["MESSAGE"] for entry in journal(self.id, "CUBE_EVENT=device-error")]
        assert len(told) <= len(DEVICES) * (1 + (time.monotonic() - self.began) / QUIET_SECONDS), told

    def ends_by(self, name):
        """Its end, and the reason that is given for it."""
        self.run("attack", name)
        wait_for("it to be gone", lambda: self.id not in sandbox_ids())
        return reason_of(self.id)

    def end(self):
        ctl("kill", self.id)
