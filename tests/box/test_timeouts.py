# SPDX-License-Identifier: Apache-2.0
"""Time limits: set to never, and what happens at their end."""

import contextlib
import os
import signal
import socket
import subprocess
import time

import dbus
import pytest

from cubetest import created, ctl, ctl_ok, journal, prop, run, sandbox, sandbox_ids, wait_for
from network import address
from snapshots import hanging
from test_network_stack import StackGuest

DROP_IN = "/etc/cubed/cubed.conf.d/60-timeouts.conf"


@pytest.fixture
def never():
    with open(DROP_IN, "w", encoding="ascii") as f:
        f.write("[Sandbox]\nBootTimeout=infinity\nStopTimeout=infinity\nDefaultTimeout=infinity\n")
    run("systemctl", "reload", "cubed.service", check=True)
    yield
    os.unlink(DROP_IN)
    run("systemctl", "reload", "cubed.service", check=True)


def test_with_no_limits_at_all_a_guest_boots_and_is_asked_to_power_off(template, never):
    sandbox_id = ctl_ok("create").strip()
    try:
        scope = f"cube-{sandbox_id}.scope"
        assert run("systemctl", "show", "-P", "TimeoutStopUSec", scope).stdout.strip() == b"infinity"
        assert ctl("stop", sandbox_id, timeout=60).returncode == 0
    finally:
        ctl("kill", sandbox_id)
    assert journal(sandbox_id, "CUBE_EVENT=exit")[0]["CUBE_REASON"] == "poweroff"


@pytest.fixture
def defaults():
    with open(DROP_IN, "w", encoding="ascii") as f:
        f.write("[Sandbox]\nDefaultTimeout=1h\nDefaultIdleTimeout=2h\nDefaultOnTimeout=pause-disk\n")
    run("systemctl", "reload", "cubed.service", check=True)
    yield
    os.unlink(DROP_IN)
    run("systemctl", "reload", "cubed.service", check=True)


def test_defaults_are_those_of_the_configuration(template, defaults):
    with created() as sandbox_id:
        assert prop(sandbox_id, "IdleTimeoutUSec") == 7200_000_000
        assert prop(sandbox_id, "OnTimeout") == "pause-disk"
    with created("--idle-timeout", "infinity", "--on-timeout", "kill") as sandbox_id:
        assert prop(sandbox_id, "IdleTimeoutUSec") == 2**64 - 1
        assert prop(sandbox_id, "OnTimeout") == "kill"


@pytest.mark.parametrize("end, start", [("pause", "restored"), ("pause-disk", "booted")])
@pytest.mark.parametrize("which", ["--timeout", "--idle-timeout"])
def test_it_is_paused_at_the_end(clean, which, end, start):
    with created("--timeout", "1h", which, "1s", "--on-timeout", end) as sandbox_id:
        wait_for("it to be paused", lambda: prop(sandbox_id, "State") == "paused")
        method = "SetTimeout" if which == "--timeout" else "SetIdleTimeout"
        getattr(sandbox(sandbox_id), method)(dbus.UInt64(3600_000_000))
        ctl_ok("resume", sandbox_id)
        assert prop(sandbox_id, "Start") == start
        assert ctl_ok("exec", sandbox_id, "--", "echo", "again") == "again\n"
        assert prop(sandbox_id, "State") == "running"


def test_idle_and_killed(clean):
    with created("--timeout", "1h", "--idle-timeout", "1s") as sandbox_id:
        wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "timeout"


def test_who_is_only_asked_what_it_uses_is_idle(clean):
    """Else who watches sandboxes would keep them."""
    with created("--timeout", "1h") as sandbox_id:
        usage = sandbox(sandbox_id).GetGuestUsage()
        assert (usage["CPUs"], usage["MemoryTotal"] > usage["MemoryUsed"] > 0) == (1, True)
        sandbox(sandbox_id).SetIdleTimeout(dbus.UInt64(1_000_000))

        def gone():
            if sandbox_id not in sandbox_ids():
                return True
            with contextlib.suppress(dbus.DBusException):
                sandbox(sandbox_id).GetGuestUsage()
            return False
        wait_for("it to be gone", gone)


def looked_at(sandbox_id, times):
    """A busy guest was looked at that often: each look asks it for its processes."""
    def bytes_to_guest():
        statistics = sandbox(sandbox_id).GetStatistics()
        return int(statistics["vsock-to-guest-bytes"])
    last = bytes_to_guest()
    for _ in range(times):
        last = wait_for("another look", lambda: (now := bytes_to_guest()) > last and now)


def test_who_is_busy_is_not_idle(clean):
    """By a process, though nobody is connected to it any more."""
    with created("--timeout", "1h", "--on-timeout", "pause") as sandbox_id:
        p = subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "hang"], stdin=subprocess.DEVNULL)
        try:
            (pid,) = wait_for("it to run", lambda: hanging(sandbox_id))
        finally:
            p.kill()
            p.wait()
        sandbox(sandbox_id).SetIdleTimeout(dbus.UInt64(1_000_000))
        looked_at(sandbox_id, 4)
        assert prop(sandbox_id, "State") == "running"
        sandbox(sandbox_id).SignalProcess(dbus.UInt32(pid), dbus.Int32(9), False)
        wait_for("it to be paused", lambda: prop(sandbox_id, "State") == "paused")


def test_who_serves_somebody_is_not_idle(clean):
    """While something comes over the network and is answered. Known to a second, so a test that is held up may find it paused."""
    with created("--timeout", "1h", "--on-timeout", "pause") as sandbox_id:
        guest = StackGuest(sandbox_id)
        with guest.stack.netns.listen("0.0.0.0", 80) as server, \
                socket.create_connection((address(sandbox_id), 80), timeout=30) as client, server.accept()[0] as inside:
            inside.settimeout(30)
            sandbox(sandbox_id).SetIdleTimeout(dbus.UInt64(2_000_000))
            began = last = time.monotonic()
            held_up = 0
            try:
                while last - began < 5:
                    held_up, last = max(held_up, time.monotonic() - last), time.monotonic()
                    client.sendall(b"?")
                    inside.sendall(inside.recv(1))
                    assert client.recv(1) == b"?"
                    time.sleep(0.05)
            except ConnectionError:
                held_up = max(held_up, time.monotonic() - last)
            except TimeoutError:
                pass
            assert last - began >= 5 or held_up > 0.9
        guest.close()
        wait_for("it to be paused", lambda: prop(sandbox_id, "State") == "paused")


def test_an_idle_time_out_outlives_cubed(clean_again):
    with created("--timeout", "1h", "--idle-timeout", "2s", "--on-timeout", "pause") as sandbox_id:
        run("systemctl", "restart", "cubed.service", check=True)
        wait_for("it to be paused", lambda: prop(sandbox_id, "State") == "paused")


def test_one_that_was_over_while_cubed_was_away_is_paused_at_once(clean_again):
    with created("--timeout", "1h", "--on-timeout", "pause") as sandbox_id:
        vmm = int(prop(sandbox_id, "VMMPID"))
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(8_000_000))
        over = prop(sandbox_id, "Deadline") / 1e6
        run("systemctl", "stop", "cubed.service", check=True)
        wait_for("its time to be over", lambda: time.time() > over)
        os.kill(vmm, signal.SIGSTOP)  # it does not tell cubed how it is before that has seen that its time is over
        run("systemctl", "start", "cubed.service", check=True)
        said = ("journalctl", "-u", "cubed.service", "--no-pager", "-g", f"{sandbox_id}: its lifetime is over")
        wait_for("cubed to see that", lambda: run(*said).returncode == 0)
        os.kill(vmm, signal.SIGCONT)
        wait_for("it to be paused", lambda: prop(sandbox_id, "State") == "paused")
        assert not journal(sandbox_id, "CUBE_EVENT=pause-failed")


def test_a_pause_that_fails_at_the_end_harms_nothing(clean):
    """There is no place for its description."""
    with created("--timeout", "1h", "--on-timeout", "pause") as sandbox_id:
        in_its_way = f"/var/lib/cubed/sandboxes/{sandbox_id}"
        with open(in_its_way, "wb"):
            pass
        try:
            sandbox(sandbox_id).SetTimeout(dbus.UInt64(1_000_000))
            wait_for("the pause to fail", lambda: journal(sandbox_id, "CUBE_EVENT=pause-failed"))
            assert prop(sandbox_id, "State") == "running"
            assert ctl_ok("exec", sandbox_id, "--", "echo", "fine") == "fine\n"
        finally:
            os.unlink(in_its_way)
        said = ("journalctl", "-u", "cubed.service", "--no-pager", "-g", f"{sandbox_id}.*trying again")
        wait_for("cubed to say that it tries again", lambda: run(*said).stdout)
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(1_000_000))
        wait_for("it to be paused", lambda: prop(sandbox_id, "State") == "paused")
