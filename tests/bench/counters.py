# SPDX-License-Identifier: Apache-2.0
"""What the kernel counts while an operation runs.

Events are counted by cgroup: whoever runs in cubed's unit, whoever runs in a sandbox's scope. cubed itself is counted
by its pid too, so that what its helpers did is the rest. A VMM belongs to cubed's unit until its scope is there.
"""

import contextlib
import ctypes
import dataclasses
import os
import struct
import subprocess
import tempfile

from cubetest import cubed_pid

PERF_EVENT_OPEN = 298  # x86-64
TYPE_TRACEPOINT = 2
FLAG_PID_CGROUP, FLAG_CLOEXEC = 4, 8
IOC_SET_FILTER = 0x40082406
KVM_RUN = 0xae80

libc = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass
class Counts:
    cubed_syscalls: int = 0
    helper_syscalls: int = 0
    vmm_syscalls: int = 0
    cubed_ioctls: int = 0
    helper_ioctls: int = 0
    vmm_ioctls: int = 0  # without KVM_RUN
    vmm_runs: int = 0    # KVM_RUN: exits to the VMM, and kicks

    def __sub__(self, other):
        return Counts(*(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))


def open_event(config, pid, cpu, flags, event_filter=None):
    attr = struct.pack("IIQQQQQIIQ", TYPE_TRACEPOINT, 64, config, 0, 0, 0, 0, 0, 0, 0)
    fd = libc.syscall(PERF_EVENT_OPEN, attr, pid, cpu, -1, flags | FLAG_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"perf_event_open: {os.strerror(ctypes.get_errno())}")
    if event_filter and libc.ioctl(fd, ctypes.c_ulong(IOC_SET_FILTER), event_filter.encode()) < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the filter of an event")
    return fd


def tracepoints(*names):
    """Their numbers. tracefs need not be mounted."""
    with tempfile.TemporaryDirectory() as where:
        subprocess.run(["mount", "-t", "tracefs", "tracefs", where], check=True)
        try:
            return [int(open(f"{where}/events/{name}/id", encoding="ascii").read()) for name in names]
        finally:
            subprocess.run(["umount", where], check=True)


def cgroup_root():
    """Where the second version's tree is, alone or beside the first's."""
    for line in open("/proc/self/mounts", encoding="ascii"):
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return where
    raise AssertionError("no cgroup2 file system is mounted")


class Counter:
    """Counts from when it is made until it is closed."""

    def __init__(self):
        self.fds = {}
        self.cgroups = []
        enter, ioctl = tracepoints("raw_syscalls/sys_enter", "syscalls/sys_enter_ioctl")
        runs, rest = f"cmd == {KVM_RUN}", f"cmd != {KVM_RUN}"
        service = self.cgroup("system.slice/cubed.service")
        scopes = self.cgroup("cube.slice")
        pid = cubed_pid()
        for name, config, event_filter in (("syscalls", enter, None), ("ioctls", ioctl, rest), ("runs", ioctl, runs)):
            self.add("service_" + name, config, service, event_filter)
            self.add("vmm_" + name, config, scopes, event_filter)
            self.fds["cubed_" + name] = [open_event(config, pid, -1, 0, event_filter)]

    def cgroup(self, name):
        fd = os.open(os.path.join(cgroup_root(), name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.cgroups.append(fd)
        return fd

    def add(self, name, config, cgroup, event_filter):
        self.fds[name] = [open_event(config, cgroup, cpu, FLAG_PID_CGROUP, event_filter)
                          for cpu in sorted(os.sched_getaffinity(0))]

    def read(self):
        n = {name: sum(struct.unpack("Q", os.read(fd, 8))[0] for fd in fds) for name, fds in self.fds.items()}
        return Counts(n["cubed_syscalls"], n["service_syscalls"] - n["cubed_syscalls"], n["vmm_syscalls"],
                      n["cubed_ioctls"], n["service_ioctls"] - n["cubed_ioctls"], n["vmm_ioctls"], n["vmm_runs"])

    def close(self):
        for fd in self.cgroups + [fd for fds in self.fds.values() for fd in fds]:
            os.close(fd)


def minor_faults(pid):
    """Of all threads, those that KVM took for a guest among them."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rpartition(")")[2].split()[7])


def written(pid):
    """Bytes of files that a process made dirty."""
    with open(f"/proc/{pid}/io", encoding="ascii") as f:
        value = dict(line.split(": ") for line in f.read().splitlines())
    return int(value["write_bytes"]) - int(value["cancelled_write_bytes"])


def service_pids():
    with open(os.path.join(cgroup_root(), "system.slice/cubed.service/cgroup.procs"), encoding="ascii") as f:
        return [int(line) for line in f]


def sum_of(measure, pids):
    total = 0
    for pid in pids:
        # a process that is gone has nothing more to tell
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += measure(pid)
    return total
