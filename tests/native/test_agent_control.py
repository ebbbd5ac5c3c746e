# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. The control stream, the claim, and the end."""

import errno
import os
import struct
import time

from agentlib import (ADD_ENTROPY, CLAIM, ERROR, EXEC, LIST_DIRECTORY, OK, PING, POWEROFF, SET_TIME, STAT, STDOUT, S_READ,
                      USAGE, body, frame, parse, refused)


def test_ready(agent):
    assert agent.ready["VERSION"] == 1
    assert agent.ready["KERNEL_RELEASE"] == os.uname().release
    assert agent.ready["CPUS"] >= 1 and agent.ready["MEM_BYTES"] > 1 << 20


def test_nothing_before_the_claim(fresh):
    a = fresh(claim=False)
    a.call(PING)
    with refused(errno.EAGAIN, "not claimed yet"):
        a.exec("true")
    with refused(errno.EAGAIN, "not claimed yet"):
        a.stream(S_READ, PATH="/etc/passwd")
    with refused(errno.EAGAIN):
        a.call(STAT, PATH="/")
    a.call(CLAIM, HOSTNAME="abc", REALTIME_NSEC=123, ENTROPY=b"x" * 64, CPUS=4, DISK_BYTES=1 << 32)
    assert a.machine_log() == ["entropy 64", "time 123", "hostname abc", "cpus 4", f"disk {1 << 32}"]
    assert a.code(a.exec("true")) == 0
    a.call(SET_TIME, REALTIME_NSEC=5)
    a.call(ADD_ENTROPY, ENTROPY=b"y" * 256)
    assert a.machine_log()[-2:] == ["time 5", "entropy 256"]


def usage(a):
    [record] = a.call(USAGE)["USAGE"]
    return struct.unpack("<7QII", record)


def cpu_usec():
    """Of all CPUs since the boot, idle or not."""
    with open("/proc/stat") as f:
        return sum(map(int, f.readline().split()[1:9])) * 10000


def test_what_the_guest_uses(fresh):
    """CPU time counts from the claim on, and only goes up until the next."""
    a = fresh()
    total, idle, mem_total, mem_used, _, disk_total, disk_used, cpus, reserved = usage(a)
    since_boot = cpu_usec()
    assert cpus == os.cpu_count() and reserved == 0
    assert idle <= total < since_boot / 2
    assert 0 < mem_used < mem_total == os.sysconf("SC_PHYS_PAGES") * 4096 and 0 < disk_used <= disk_total
    assert a.code(a.exec("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done")) == 0
    later = usage(a)
    assert later[0] - later[1] > total - idle and later[0] > total
    before = cpu_usec()
    a.call(CLAIM, HOSTNAME="copy", REALTIME_NSEC=1, ENTROPY=b"e" * 64, CPUS=1)
    # the kernel may take back some of what it had counted as waiting for a disk
    assert usage(a)[0] < cpu_usec() - before + 100_000


def test_failed_claim_is_no_claim(fresh):
    a = fresh(claim=False)
    with refused(errno.ENOENT, "CPU 16 of 20"):
        a.call(CLAIM, CPUS=20)
    with refused(errno.EAGAIN):
        a.exec("true")


def test_control_stream_comes_back(fresh):
    a = fresh()
    pid = a.exec("sleep", "0.3")
    a.control.close()
    a.accept()
    assert a.code(pid) == 0
    a.alive()


def test_late_answers_go_nowhere(fresh):
    a = fresh()
    a.control.send(LIST_DIRECTORY, body(PATH="/usr/bin"), 1)
    a.control.send(EXEC, body(ARGV=["true"]), 2)
    a.control.close()
    a.accept()
    for _ in range(20):
        a.alive()


def test_poweroff(fresh):
    a = fresh()
    for trap in "exit 0", "":
        pid = a.exec("sh", "-c", f"trap '{trap}' TERM; echo ready; while :; do sleep 0.1; done")
        assert a.attach(pid, STDOUT).read(6) == b"ready\n"
    start = time.monotonic()
    a.control.sock.sendall(frame(POWEROFF, b"", 1) + frame(EXEC, body(ARGV=["true"]), 2))
    assert a.control.recv()[:3] == (OK, 0, 1)
    kind, _, number, data = a.control.recv()
    assert (kind, number, parse(data)["ERRNO"]) == (ERROR, 2, errno.ESHUTDOWN)
    assert a.process.wait(60) == 0
    assert time.monotonic() - start > 1.5, "they have time to end"
    assert a.machine_log()[-1] == "poweroff"


def test_poweroff_at_once_without_processes(fresh):
    """On a busy machine it may take as long as with some, but not each time."""
    def seconds():
        a = fresh()
        start = time.monotonic()
        a.call(POWEROFF)
        assert a.process.wait(60) == 0
        return time.monotonic() - start
    assert any(seconds() < 1.5 for _ in range(20))
