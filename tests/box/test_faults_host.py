# SPDX-License-Identifier: Apache-2.0
"""What a host does to cubed: PID 1 begins anew, the bus, the journal and polkit are restarted, stand still or are gone.
Sandboxes go on, cubed comes back by itself, and nothing is lost or left behind."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import dbus
import pytest

from cubetest import (NAME, as_user, bus, created, cubed_pid, ctl, ctl_ok, events, loop_is_free, manager, options, prop, run, sandbox_ids,
                      wait_for)
from faults import Journal, service_is_whole
from snapshots import counting, goes_on, put, sector

BUS, JOURNAL, POLKIT = "dbus.service", "systemd-journald.service", "polkit.service"


def main_pid(unit):
    return int(run("systemctl", "show", "-P", "MainPID", unit, check=True).stdout)


@contextlib.contextmanager
def stopped(unit):
    """Its main process stands still."""
    pid = main_pid(unit)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def creates(n):
    """Threads that create, run a command in and kill one sandbox after the other; all of it succeeds."""
    done = [False]

    def work():
        count = 0
        while count == 0 or not done[0]:
            with created("--timeout", "1h") as sandbox_id:
                assert ctl_ok("exec", sandbox_id, "--", "echo", "here") == "here\n"
            assert sandbox_id not in sandbox_ids()
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        jobs = [pool.submit(work) for _ in range(n)]
        try:
            yield
        finally:
            done[0] = True
        for job in jobs:
            job.result(60)


# PID 1

@pytest.mark.parametrize("verb", ["daemon-reload", "daemon-reexec"])
def test_pid_1_begins_anew(clean_again, verb):
    """In the middle of creates and kills, which all succeed; what ran keeps its scope with its limits."""
    mine = cubed_pid()
    with counting() as sandbox_id:
        scope = f"cube-{sandbox_id}.scope"

        def limits():
            return run("systemctl", "show", "-p", "MemoryMax,TasksMax,CPUQuotaPerSecUSec,DevicePolicy,Slice,ControlGroup", scope, check=True).stdout

        before = limits()
        with creates(2):
            for _ in range(4):
                run("systemctl", verb, check=True)
                goes_on(sandbox_id)
        assert limits() == before
        assert cubed_pid() == mine
        assert ctl("kill", sandbox_id).returncode == 0
    assert events(sandbox_id)[-1] == "exit"


# The bus

def restart_bus():
    run("systemctl", "restart", BUS, check=True)


def kill_bus():
    os.kill(main_pid(BUS), signal.SIGKILL)


@pytest.mark.parametrize("again", [restart_bus, kill_bus])
def test_the_bus_is_restarted(clean_again, again):
    told = Journal()
    mine, the_bus = cubed_pid(), main_pid(BUS)
    with counting() as sandbox_id:
        vmm = prop(sandbox_id, "VMMPID")
        put(sandbox_id, 30, "kept")
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            p.stdin.write(b"before\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"before\n"
            again()
            p.stdin.write(b"after\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"after\n"
            wait_for("another bus", lambda: main_pid(BUS) not in (0, the_bus))
            wait_for("another cubed", lambda: cubed_pid() not in (0, mine) and service_is_whole())
        assert prop(sandbox_id, "VMMPID") == vmm
        assert sector(sandbox_id, 30) == "kept"
        goes_on(sandbox_id)
        with created("--timeout", "1h") as other:
            assert ctl_ok("exec", other, "--", "echo", "here") == "here\n"
    told.says("The system bus went away. Sandboxes go on; the next cubed takes them over")
    told.says(f"Sandbox {sandbox_id} went on while cubed was away")


def test_the_bus_stands_still(clean_again):
    """A stream goes on meanwhile, and what was asked is answered afterwards."""
    mine = cubed_pid()
    with counting() as sandbox_id:
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            p.stdin.write(b"before\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"before\n"
            there = manager()
            with concurrent.futures.ThreadPoolExecutor(1) as pool, stopped(BUS):
                job = pool.submit(there.ListSandboxes, timeout=60)
                for _ in range(50):
                    p.stdin.write(b"word\n")
                    p.stdin.flush()
                    assert p.stdout.readline() == b"word\n"
                assert not job.done()
                os.kill(main_pid(BUS), signal.SIGCONT)
                assert sandbox_id in [str(row[0]) for row in job.result()]
            p.stdin.close()
            assert p.wait(60) == 0
        goes_on(sandbox_id)
    assert cubed_pid() == mine


# The journal

def resume_many(sandbox_id, calls):
    """Each is one entry, and nothing else: it runs."""
    connection = bus()
    there = dbus.Interface(connection.get_object(NAME, f"/org/cubed/Cube1/sandbox/{sandbox_id}", introspect=False), NAME + ".Sandbox")
    for _ in range(calls):
        there.Resume(options({}), timeout=60)


def told_of(told, sandbox_id):
    """(entries of that, and how many the journal was told that it has not got)"""
    found = [json.loads(line) for line in told.since("-o", "json", "_COMM=cubed").splitlines()]
    asked = [e for e in found if e.get("CUBE_EVENT") == "resume" and e.get("CUBE_SANDBOX") == sandbox_id]
    return len(asked), sum(int(e["CUBE_COUNT"]) for e in found if e.get("CUBE_EVENT") == "lost")


def test_the_journal_stands_still(clean):
    """Nobody waits for it. What it did not take in time is counted, and told as soon as it takes anything again."""
    with created("--timeout", "1h") as sandbox_id:
        told = Journal()
        manager().ResetLoopMax()
        calls = 1500  # the journal's socket and cubed's queue take 512 each
        with stopped(JOURNAL):
            resume_many(sandbox_id, calls)
            assert ctl_ok("exec", sandbox_id, "--", "echo", "here") == "here\n"
        loop_is_free()
        wait_for("as many entries as there were calls", lambda: sum(told_of(told, sandbox_id)) >= calls)
        entries, lost = told_of(told, sandbox_id)
        # beyond the calls: the exec
        assert 0 < entries < calls and calls <= entries + lost <= calls + 1


@contextlib.contextmanager
def journal_with(setting):
    """Restarted with it, and afterwards without."""
    path = pathlib.Path("/run/systemd/journald.conf.d/test.conf")
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"[Journal]\n{setting}\n")
    try:
        run("systemctl", "restart", JOURNAL, check=True)
        yield
    finally:
        path.unlink()
        run("systemctl", "restart", JOURNAL, check=True)


def test_the_journal_has_a_bound_for_others_only(clean):
    """What it has of a unit beyond RateLimitBurst= it drops without a word."""
    calls, told = 600, Journal()
    with created("--timeout", "1h") as sandbox_id, journal_with("RateLimitBurst=20"):
        run("systemd-run", "--quiet", "--wait", "--unit=chatty", "seq", f"{calls}", check=True)
        resume_many(sandbox_id, calls)
        wait_for("all of it to be told", lambda: told_of(told, sandbox_id)[0] == calls)
    assert 0 < len(told.since("-o", "cat", "-t", "seq").split()) < calls


def test_the_journal_is_killed(clean):
    """PID 1 has its sockets meanwhile: nothing is lost but the entry that it was just writing."""
    mine, calls = cubed_pid(), 500
    with created("--timeout", "1h") as sandbox_id:
        told, before = Journal(), main_pid(JOURNAL)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(resume_many, sandbox_id, calls)
            os.kill(before, signal.SIGKILL)
            wait_for("another journal", lambda: main_pid(JOURNAL) not in (0, before))
            job.result()
        # the last one, by the same socket
        ctl_ok("pause", sandbox_id)
        wait_for("the last of it to be told", lambda: events(sandbox_id)[-1] == "paused")
        assert calls - 1 <= told_of(told, sandbox_id)[0] <= calls
    assert cubed_pid() == mine


# polkit

@pytest.fixture
def alice(template):
    """In group cube, and cubed waits for eight seconds for whom it asks."""
    run("usermod", "-aG", "cube", "alice", check=True)
    directory = "/run/systemd/system/cubed.service.d"
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/50-test.conf", "w", encoding="ascii") as f:
        f.write("[Service]\nEnvironment=SYSTEMD_BUS_TIMEOUT=8s\n")
    run("systemctl", "daemon-reload", check=True)
    run("systemctl", "restart", "cubed.service", check=True)
    yield "alice"
    os.unlink(f"{directory}/50-test.conf")
    run("systemctl", "daemon-reload", check=True)
    run("systemctl", "restart", "cubed.service", check=True)
    run("gpasswd", "-d", "alice", "cube", check=True)


def test_polkit_stands_still(alice, clean_again):
    """Who needs it is refused in time, whoever does not notices nothing, and when it goes on so does the rest."""
    run("systemctl", "start", POLKIT, check=True)
    created_by_alice = as_user(alice, "cubectl", "create", "--timeout", "1h", check=True).stdout.decode().strip()
    try:
        with stopped(POLKIT), concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(as_user, alice, "cubectl", "--no-ask-password", "create") for _ in range(8)]
            with created("--timeout", "1h") as sandbox_id:
                assert ctl_ok("exec", sandbox_id, "--", "echo", "here") == "here\n"
            assert as_user(alice, "cubectl", "exec", created_by_alice, "--", "echo", "mine").stdout == b"mine\n"
            for job in jobs:
                result = job.result(60)
                assert result.returncode == 1 and b"could not be asked of polkit" in result.stderr, result.stderr
        again = as_user(alice, "cubectl", "create", "--timeout", "1h", check=True).stdout.decode().strip()
        ctl_ok("kill", again)
    finally:
        ctl("kill", created_by_alice)
