# SPDX-License-Identifier: Apache-2.0
"""A Linux guest's VMM as it looks from outside, and its control group, which has all controllers only here."""

import dbus

from cubetest import created, ctl_ok, options, run, sandbox, snapshot
from sandbox_audit import audit, vmm_pid
from vmm_audit import read

GUEST_BYTES, DISK_BYTES, PIDS_MAX = 256 << 20, 4 << 30, 64


def control_group(sandbox_id, name):
    path = read(vmm_pid(sandbox_id), "cgroup").strip().rsplit("::", 1)[1]
    with open(f"/sys/fs/cgroup{path}/{name}", encoding="ascii") as f:
        return f.read().strip()


def check(sandbox_id, **values):
    audit(sandbox_id, guest_bytes=GUEST_BYTES, disk_bytes=DISK_BYTES, **values)
    assert GUEST_BYTES < int(control_group(sandbox_id, "memory.max")) < GUEST_BYTES + (128 << 20)
    assert control_group(sandbox_id, "memory.oom.group") == "1"
    assert int(control_group(sandbox_id, "pids.max")) <= PIDS_MAX
    others = set(control_group(sandbox_id, "cgroup.procs").split()) - {str(vmm_pid(sandbox_id))}
    names = {read(int(pid), "comm").strip() for pid in others}
    assert all(name.startswith("kvm-nx-lpage-re") for name in names), names


def test_a_linux_guests_vmm():
    with created("--memory", "256M", "--timeout", "1h") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "true")
        base = 1  # the template's: of what its guest wrote before it was saved
        check(sandbox_id, layers=base)
        first = snapshot(sandbox_id)
        check(sandbox_id, layers=base + 1)
        sandbox(sandbox_id).Rollback(first, options({}))
        ctl_ok("exec", sandbox_id, "--", "true")
        check(sandbox_id, layers=base + 1)
        (_, fork, *_), = sandbox(sandbox_id).Fork(dbus.UInt32(1), options({}))
        try:
            check(str(fork), layers=base + 2)
            check(sandbox_id, layers=base + 2)
        finally:
            run("cubectl", "kill", str(fork))
        sandbox(sandbox_id).Pause(options({}))
        sandbox(sandbox_id).Resume(options({}))
        ctl_ok("exec", sandbox_id, "--", "true")
        check(sandbox_id, layers=base + 3)
