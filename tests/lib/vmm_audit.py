# SPDX-License-Identifier: Apache-2.0
"""A running VMM as it looks from outside, against tables of all that it may be and have.

    differences(pid, Expected(uid=..., ...)) == []

Whatever a VMM has that is not in a table is a difference. Needs root. What can't be seen from outside (landlock,
MDWE, securebits) is told by what the VMM does when it starts: tests/native/test_jail.py.
"""

import contextlib
import ctypes
import dataclasses
import errno
import glob
import os
import re
import socket
import stat

NO_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
OWN_NAMESPACES = ("mnt", "pid", "ipc", "uts", "net")
# A user namespace would give it capabilities in there, which it has no use for. The others hide nothing from it.
SHARED_NAMESPACES = ("user", "time", "cgroup")
VCPUS_MAX = 16
GUARD_BYTES = 64 << 10
# As /proc/PID/limits names them. None: see Expected.
LIMITS = {
    "Max core file size": 0,
    "Max locked memory": 0,
    "Max msgqueue size": 0,
    "Max open files": 512,
    "Max processes": VCPUS_MAX + 3,
    "Max realtime priority": 0,
    "Max nice priority": 0,
    "Max file size": None,
    "Max address space": None,
}
UNLIMITED = {"Max cpu time", "Max data size", "Max resident set", "Max file locks", "Max realtime timeout"}
# Of the host's: nothing that a VMM could use up.
HOSTS = {"Max stack size", "Max pending signals"}
# A helper of KVM's; a thread of the VMM's since Linux 6.14.
KERNEL_THREAD = "kvm-nx-lpage-re"
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
libc = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass
class Fd:
    """what: a path or a glob of paths, or a pattern for what has none. mode: as open() would have it."""
    what: str
    mode: int
    most: int
    least: int = 0


@dataclasses.dataclass
class Expected:
    uid: int
    disk_bytes: int
    guest_bytes: int
    plug_bytes: int        # that the guest may get beside
    cpus: int
    fds: list              # Fd
    filters: int           # on cubed, which it inherits
    parent: int            # whose namespaces it must not share
    cgroup: str
    streams: int = 0       # sockets of clients
    environment: tuple = ("PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8")


def read(pid, name, task=None):
    path = f"/proc/{pid}/task/{task}/{name}" if task else f"/proc/{pid}/{name}"
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def status(pid, task=None):
    return dict(line.split(":\t", 1) for line in read(pid, "status", task).splitlines() if ":\t" in line)


def namespace(pid, name):
    return os.readlink(f"/proc/{pid}/ns/{name}")


def threads(pid):
    return {int(task): read(pid, "comm", task).strip() for task in os.listdir(f"/proc/{pid}/task")}


def borrowed_socket(pid, fd):
    """A copy of a socket of its, to ask it what it is; None if it is closed meanwhile."""
    pidfd = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    copy = libc.syscall(SYS_PIDFD_GETFD, pidfd, fd, 0)
    error = ctypes.get_errno()
    os.close(pidfd)
    if copy < 0 and error == errno.EBADF:
        return None
    if copy < 0:
        raise OSError(error, f"pidfd_getfd {fd}")
    return socket.socket(fileno=copy)


def fd_table(pid):
    """{number: (what it points at, access mode)}, without those that are closed meanwhile."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            flags = next(int(line.split()[1], 8) for line in read(pid, f"fdinfo/{name}").splitlines() if line.startswith("flags:"))
            found[int(name)] = (os.readlink(f"/proc/{pid}/fd/{name}"), flags & os.O_ACCMODE)
    return found


# Each of these yields differences, as text.

def ids(pid, expected):
    for task, name in threads(pid).items():
        fields = status(pid, task)
        for key in "Uid", "Gid":
            if fields[key].split() != [str(expected.uid)] * 4:
                yield f"{name}: {key} {fields[key]}"
        if fields["Groups"].split():
            yield f"{name}: groups {fields['Groups']}"
        for key in NO_CAPABILITIES:
            if int(fields[key], 16):
                yield f"{name}: {key} {fields[key]}"
        if fields["NoNewPrivs"] != "1":
            yield f"{name}: may gain privileges"
        if fields["TracerPid"] != "0":
            yield f"{name}: traced by {fields['TracerPid']}"
    # What is not dumpable belongs to root.
    for name in "fd", "mem", "environ", "maps":
        if os.stat(f"/proc/{pid}/{name}").st_uid != 0:
            yield f"dumpable: {name} is its own"


def filters(pid, expected):
    """Each thread has what cubed has, the one for construction, and its own."""
    known = {"cube-vmm": 1, **{f"vcpu{i}": 1 for i in range(expected.cpus)}, "disk": 1}
    found = threads(pid)
    for task, name in found.items():
        if name == KERNEL_THREAD:
            continue
        fields = status(pid, task)
        if name not in known:
            yield f"a thread {name}"
        if (fields["Seccomp"], int(fields["Seccomp_filters"])) != ("2", expected.filters + 2):
            yield f"{name}: seccomp mode {fields['Seccomp']}, {fields['Seccomp_filters']} filters, {expected.filters} of cubed's"
    names = sorted(name for name in found.values() if name != KERNEL_THREAD)
    if len(names) != len(set(names)) or not {"cube-vmm", *(f"vcpu{i}" for i in range(expected.cpus))} <= set(names):
        yield f"threads {names}"


def namespaces(pid, expected):
    for name in OWN_NAMESPACES:
        if namespace(pid, name) == namespace(expected.parent, name):
            yield f"shares {name} namespace"
    for name in SHARED_NAMESPACES:
        if namespace(pid, name) != namespace(expected.parent, name):
            yield f"another {name} namespace"
    if status(pid)["NSpid"].split()[-1] != "1":
        yield "is not PID 1 of its namespace"
    if read(pid, f"task/{pid}/children").split():
        yield "has children"


def root(pid, _):
    mounts = [line.split() for line in read(pid, "mountinfo").splitlines()]
    if len(mounts) != 1 or mounts[0][4] != "/" or mounts[0][mounts[0].index("-") + 1] != "tmpfs":
        yield f"mounts {mounts}"
    elif not {"ro", "nosuid", "nodev", "noexec"} <= set(mounts[0][5].split(",")):
        yield f"root mounted {mounts[0][5]}"
    if os.listdir(f"/proc/{pid}/root"):
        yield f"in its root: {os.listdir(f'/proc/{pid}/root')}"
    for name in "cwd", "root":
        here, there = os.stat(f"/proc/{pid}/{name}"), os.stat(f"/proc/{pid}/root/")
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            yield f"{name} is {os.readlink(f'/proc/{pid}/{name}')}"


def words(pid, expected):
    """Nothing secret in what everybody may see of it."""
    argv = read(pid, "cmdline").split("\0")[:-1]
    if argv[1:] != [f"--uid={expected.uid}", f"--gid={expected.uid}"] or not argv[0].endswith("/cube-vmm"):
        yield f"arguments {argv}"
    environment = tuple(read(pid, "environ").split("\0")[:-1])
    if sorted(environment) != sorted(expected.environment):
        yield f"environment {environment}"


def limits(pid, expected):
    guest_bytes = expected.guest_bytes + expected.plug_bytes
    sizes = {"Max file size": range(expected.disk_bytes, expected.disk_bytes + (8 << 20)),
             "Max address space": range(guest_bytes, guest_bytes + expected.disk_bytes // 4096 + (130 << 20))}
    for line in read(pid, "limits").splitlines()[1:]:
        name, soft, hard = line[:25].strip(), *line[25:].split()[:2]
        if name in UNLIMITED | HOSTS:
            good = name in HOSTS or (soft, hard) == ("unlimited", "unlimited")
        elif name not in LIMITS or soft != hard or soft == "unlimited":
            good = False
        else:
            good = int(soft) in sizes[name] if name in sizes else int(soft) == LIMITS[name]
        if not good:
            yield f"{name}: {soft}, {hard}"


def identity(path):
    st = os.stat(path)
    return ("device", st.st_rdev) if stat.S_ISCHR(st.st_mode) else (st.st_dev, st.st_ino)


def is_what(fd, pid, number, target):
    # Paths are those of the mount namespace in which it was opened, which may be gone: the file itself tells.
    if fd.what.startswith("/"):
        return identity(f"/proc/{pid}/fd/{number}") in map(identity, glob.glob(fd.what))
    return re.fullmatch(fd.what, target)


def files(pid, expected):
    """Each descriptor is one of the table, and no more of any."""
    counts = [0] * len(expected.fds)
    for number, (target, mode) in sorted(fd_table(pid).items()):
        if target.startswith("socket:"):
            continue
        for i, fd in enumerate(expected.fds):
            if mode == fd.mode and is_what(fd, pid, number, target):
                counts[i] += 1
                break
        else:
            yield f"descriptor {number}: {target}, mode {mode}"
    for fd, n in zip(expected.fds, counts):
        if not fd.least <= n <= fd.most:
            yield f"{n} of {fd.what}, not {fd.least} to {fd.most}"


def sockets(pid, expected):
    """Its control socket and a peer on it; its lines to the journal; clients' streams. All of them unix sockets."""
    listening = connected = streams = journal = 0
    for number, (target, _) in sorted(fd_table(pid).items()):
        s = borrowed_socket(pid, number) if target.startswith("socket:") else None
        if not s:
            continue
        with s:
            kind = s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
            if s.family != socket.AF_UNIX:
                yield f"descriptor {number}: a socket of family {s.family}"
            elif s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                listening += 1
                if number != 3:
                    yield f"descriptor {number} listens"
            elif kind == socket.SOCK_SEQPACKET:
                connected += 1
            elif number in (1, 2):
                journal += 1
            elif kind == socket.SOCK_STREAM:
                streams += 1
            else:
                yield f"descriptor {number}: a socket of type {kind}"
    if (listening, journal) != (1, 2) or connected > 1 or streams > expected.streams:
        yield f"{listening} listening, {connected} connected, {journal} to the journal, {streams} streams"


def mappings(pid):
    """(start, end, permissions, name, flags) of each."""
    found = []
    for line in read(pid, "smaps").splitlines():
        m = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)", line)
        if m:
            found.append([int(m[1], 16), int(m[2], 16), m[3], m[4], set()])
        elif line.startswith("VmFlags:"):
            found[-1][4].update(line.split()[1:])
    return found


def memory(pid, expected):
    """Nothing executable but itself and the kernel's, nothing of that writable; the guest's left out of dumps, between guards."""
    found = mappings(pid)
    program = os.readlink(f"/proc/{pid}/exe")
    for start, _, permissions, name, _ in found:
        if "x" in permissions and ("w" in permissions or name not in (program, "[vdso]", "[vsyscall]")):
            yield f"{start:x}: {permissions} {name}"

    undumped = 0
    for i, (start, end, permissions, _, flags) in enumerate(found):
        if "dd" not in flags or permissions != "rw-p":
            continue
        undumped += end - start
        for other, here in ((found[i - 1], start), (found[i + 1], end)):
            touches = here in other[:2]
            inside = touches and "dd" in other[4] and other[2] == "rw-p"
            guarded = touches and other[2] == "---p" and other[1] - other[0] >= GUARD_BYTES
            if not inside and not guarded:
                yield f"{start:x}-{end:x} has no guard at {here:x}"
    if undumped < expected.guest_bytes:
        yield f"{undumped} bytes are left out of dumps, the guest has {expected.guest_bytes}"


def group(pid, expected):
    """The only one in its control group, and first to go when the host is out of memory."""
    found = read(pid, "cgroup").strip().splitlines()
    if found[-1].split(":", 2)[2] != expected.cgroup:
        yield f"cgroup {found}"
    score = int(read(pid, "oom_score_adj"))
    if score != 200:
        yield f"oom_score_adj {score}"


CHECKS = (ids, filters, namespaces, root, words, limits, files, sockets, memory, group)


def differences(pid, expected, checks=CHECKS):
    return [f"{check.__name__}: {text}" for check in checks for text in check(pid, expected)]

