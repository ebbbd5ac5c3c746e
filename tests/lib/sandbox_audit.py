# SPDX-License-Identifier: Apache-2.0
"""What cubed's VMMs may be and hold: the tables for vmm_audit.py, of a sandbox."""

import contextlib
import os

import vmm_audit
from cubetest import cubed_pid, prop, wait_for
from vmm_audit import Expected, Fd

RDONLY, WRONLY, RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
UIDS = range(0x70000000, 0x70000000 + 65536)
PLUG_BYTES = 4 << 30  # GrowMemory=


def table(sandbox_id, cpus, layers):
    """What a VMM holds that has so many layers of its disk."""
    return [
        Fd("/dev/null", RDONLY, 1, 1),
        Fd("/dev/kvm", RDWR, 1, 1),
        Fd("/dev/net/tun", RDWR, 1, 1),
        Fd("anon_inode:kvm-vm", RDWR, 1, 1),
        Fd(r"anon_inode:kvm-vcpu:\d+", RDWR, cpus, cpus),
        Fd(r"anon_inode:\[eventpoll\]", RDWR, 2, 2),
        Fd(r"anon_inode:\[eventfd\]", RDWR, 32, 1),
        Fd(r"anon_inode:\[signalfd\]", RDWR, 1, 1),
        Fd(r"anon_inode:\[timerfd\]", RDWR, 8),
        # Where it may write: its exit record, its console, its disk.
        Fd(f"/run/cubed/sandbox/{sandbox_id}/exit", WRONLY, 1, 1),
        Fd(r"[/]memfd:\S*console\S* \(deleted\)", RDWR, 1, 1),
        Fd(f"/var/lib/cubed/sandboxes/{sandbox_id}.disk", RDWR, 1, 1),
        Fd("/var/lib/cubed/templates/*/root.img", RDONLY, 1, 1),
        Fd("/var/lib/cubed/templates/*/disk.img", RDONLY, 1, 1),
        Fd("/var/lib/cubed/snapshots/*/disk*", RDONLY, layers, layers),
    ]


def vmm_pid(sandbox_id):
    return int(prop(sandbox_id, "VMMPID"))


def audit(sandbox_id, cpus=1, layers=0, streams=0, guest_bytes=64 << 20, disk_bytes=64 << 20):
    """Its uid."""
    pid = vmm_pid(sandbox_id)
    uid = int(vmm_audit.status(pid)["Uid"].split()[0])
    assert uid in UIDS
    expected = Expected(
        uid=uid, disk_bytes=disk_bytes, guest_bytes=guest_bytes, plug_bytes=PLUG_BYTES, cpus=cpus, fds=table(sandbox_id, cpus, layers),
        filters=int(vmm_audit.status(cubed_pid())["Seccomp_filters"]), parent=cubed_pid(),
        cgroup=vmm_audit.read(cubed_pid(), "cgroup").strip().splitlines()[-1].split(":", 2)[2]
        .replace("system.slice/cubed.service", f"cube.slice/cube-{sandbox_id}.scope"), streams=streams)
    # it closes a stream some time after its client has
    with contextlib.suppress(AssertionError):
        wait_for("its streams to be closed", lambda: not vmm_audit.differences(pid, expected, [vmm_audit.sockets]), timeout=60)
    found = vmm_audit.differences(pid, expected)
    assert not found, "\n".join(found)
    return uid
