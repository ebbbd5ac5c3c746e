# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. The control stream, the claim, and the end."""

import errno
import os
import time

from agentlib import (ADD_ENTROPY, CLAIM, EXEC, LIST_DIRECTORY, PING, POWEROFF, SET_TIME, STAT, STDOUT, S_READ, body,
                      refused)


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
    a.call(POWEROFF)
    with refused(errno.ESHUTDOWN):
        a.exec("true")
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
