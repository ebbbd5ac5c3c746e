# SPDX-License-Identifier: Apache-2.0
"""VMMs and services as they look from outside, after each way in which a VMM comes to be what it is: tests/lib/vmm_audit.py
and sandbox_audit.py have the tables."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import subprocess

import dbus
import pytest

import vmm_audit
from cubetest import created, ctl, ctl_ok, cubed_pid, journal, options, run, sandbox, sandbox_ids, snapshot, wait_for
from inject import Injector
from sandbox_audit import audit, table, vmm_pid
from snapshots import count, counting, goes_on
from vmm_audit import Expected

GUEST_BYTES = 64 << 20
SYS_EXECVE, SYS_LANDLOCK_CREATE_RULESET, PR_SCHED_CORE = 59, 444, 62
# As systemd-analyze rates them, less is better.
MOST_EXPOSURE = {"cubed.service": 4.4, "cube-resolver.service": 2.0, "cube-gateway.service": 2.0, "cube-ingress.service": 2.0,
                 "cube-fetch@x.service": 2.0, "cube-fetch-relay@x.service": 2.0}


def test_after_create(template):
    with created() as sandbox_id:
        audit(sandbox_id)


def test_each_is_another_user_in_namespaces_of_its_own(template):
    with contextlib.ExitStack() as stack:
        ids = [stack.enter_context(created()) for _ in range(3)]
        assert len({audit(sandbox_id) for sandbox_id in ids}) == 3
        for name in vmm_audit.OWN_NAMESPACES:
            assert len({vmm_audit.namespace(vmm_pid(sandbox_id), name) for sandbox_id in ids}) == 3


def test_more_vcpus(template):
    with created("--cpus", "3") as sandbox_id:
        audit(sandbox_id, cpus=3)


def test_after_snapshot_fork_and_rollback(template):
    with counting() as sandbox_id:
        first = snapshot(sandbox_id)
        audit(sandbox_id, layers=1, streams=4)
        snapshot(sandbox_id)
        audit(sandbox_id, layers=2, streams=4)
        forks = [str(row[1]) for row in sandbox(sandbox_id).Fork(dbus.UInt32(2), options({}), timeout=120)]
        try:
            for fork in forks:
                goes_on(fork)
                audit(fork, layers=3)
            audit(sandbox_id, layers=3, streams=4)
            sandbox(sandbox_id).Rollback(first, options({}), timeout=120)
            goes_on(sandbox_id)
            audit(sandbox_id, layers=1, streams=4)
        finally:
            for fork in forks:
                run("cubectl", "kill", fork)


def test_after_pause_and_resume(template):
    with counting() as sandbox_id:
        before = audit(sandbox_id, streams=4)
        sandbox(sandbox_id).Pause(options({}), timeout=120)
        sandbox(sandbox_id).Resume(options({}), timeout=120)
        count(sandbox_id)
        assert audit(sandbox_id, layers=1) != before


def test_after_a_restart_of_cubed(template):
    with created() as sandbox_id:
        run("systemctl", "restart", "cubed.service", check=True)
        ctl_ok("exec", sandbox_id, "--", "true")
        audit(sandbox_id)


def test_the_audit_sees_what_is_too_much(template):
    """A VMM with one thing more than its table has: each check can fail."""
    with created() as sandbox_id:
        pid = vmm_pid(sandbox_id)
        good = Expected(uid=1, disk_bytes=1 << 40, guest_bytes=1 << 40, plug_bytes=0, cpus=2, fds=table(sandbox_id, 1, 1)[1:], filters=0,
                        parent=pid, cgroup="/", environment=())
        found = vmm_audit.differences(pid, good)
        assert {text.split(":")[0] for text in found} == {check.__name__ for check in vmm_audit.CHECKS} - {"root", "sockets"}


def test_the_audit_knows_an_ordinary_process():
    """Of which nothing is as it is of a VMM."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        try:
            # it is at work, and done with what its libraries are read from
            p.stdin.write(b"\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"\n"
            found = vmm_audit.differences(p.pid, Expected(uid=0, disk_bytes=0, guest_bytes=0, plug_bytes=0, cpus=1, fds=[], filters=0,
                                                          parent=os.getpid(), cgroup="/nowhere"))
        finally:
            p.kill()
    assert {text.split(":")[0] for text in found} == {check.__name__ for check in vmm_audit.CHECKS}
    assert any("may gain privileges" in text for text in found)
    assert any("CapEff" in text for text in found)


@pytest.mark.parametrize("thread", ["cube-vmm", "vcpu0", "disk"])
def test_a_forbidden_call_is_in_the_journal(template, thread):
    """As a guest that took over one of its VMM's threads would make it."""
    sandbox_id = ctl_ok("create").strip()
    pid = vmm_pid(sandbox_id)
    task = next(task for task, name in vmm_audit.threads(pid).items() if name == thread)
    Injector(pid, task).end(SYS_EXECVE)
    wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
    # The entry is on its way to the journal by then.
    entry = wait_for("its end to be told", lambda: next((e for e in journal(sandbox_id) if e.get("CUBE_EVENT") == "exit"), None))
    assert (entry["CUBE_REASON"], entry["CUBE_STATUS"], entry["CUBE_SYSTEM_CALL"]) == ("forbidden-call", str(SYS_EXECVE), "execve")
    assert entry["PRIORITY"] == "4" and "(execve)" in entry["MESSAGE"]
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "forbidden-call"


def limits_of_scope(sandbox_id, *names):
    shown = run("systemctl", "show", f"cube-{sandbox_id}.scope", *(f"-p{name}" for name in names), check=True).stdout.decode()
    return dict(line.split("=", 1) for line in shown.splitlines())


def test_limits_of_its_scope(template):
    with created() as sandbox_id:
        limits = limits_of_scope(sandbox_id, "MemoryMax", "TasksMax", "DevicePolicy", "DeviceAllow", "OOMPolicy", "Slice")
        assert limits["DevicePolicy"] == "closed" and "DeviceAllow" not in limits
        assert limits["OOMPolicy"] == "kill" and limits["Slice"] == "cube.slice"
        assert GUEST_BYTES < int(limits["MemoryMax"]) < GUEST_BYTES + (128 << 20)
        assert 0 < int(limits["TasksMax"]) <= 64


@pytest.mark.parametrize("unit", MOST_EXPOSURE)
def test_how_exposed_the_services_are(host, unit):
    text = run("systemd-analyze", "security", "--no-pager", unit, check=True).stdout.decode()
    assert float(re.search(r"Overall exposure level for \S+: (\d+\.\d)", text)[1]) <= MOST_EXPOSURE[unit], text


def test_cubed_comes_before_its_tools(host):
    """What it starts has no part in its priority."""
    pids = {"cubed": cubed_pid()} | {name: int(run("pgrep", "-x", "-P", cubed_pid(), name, check=True).stdout)
                                     for name in ("cube-netd", "cube-stored")}
    assert {name: os.getpriority(os.PRIO_PROCESS, pid) for name, pid in pids.items()} == {
        "cubed": -5, "cube-netd": 0, "cube-stored": 0}


def test_the_check_tells_what_the_kernel_lacks(host):
    found = {row["check"]: row["result"] for row in json.loads(ctl("check", "--json=short").stdout)}
    landlock = ctypes.CDLL(None).syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, 1)
    assert found["landlock"] == ("ok" if landlock > 0 else "warning")
    smt = pathlib.Path("/sys/devices/system/cpu/smt/active")
    has_cookies = ctypes.CDLL(None).prctl(PR_SCHED_CORE, 0, 0, 0, ctypes.byref(ctypes.c_ulong())) >= 0
    needless = not smt.exists() or smt.read_text().strip() != "1"
    assert found["core-scheduling"] == ("ok" if has_cookies or needless else "warning")

