# SPDX-License-Identifier: Apache-2.0
"""Several guests, several vCPUs, both kernels, and every way a Linux guest can end."""

import pytest

from cubetest import active, at_rest, crash, created, ctl, ctl_ok, nothing_left_since, reason_of, run, sandbox_ids, wait_for


# Less memory than its template was saved with is booted.
BOOTED = ("--memory", "256M")


def forwards_to_loopback(sandbox_id):
    """The agent's programs for servers on 127.0.0.1 are in: it keeps its listener, 127.0.0.1:1, only then."""
    return " 0100007F:0001 00000000:0000 0A " in ctl_ok("exec", sandbox_id, "--", "cat", "/proc/net/tcp")


@pytest.mark.parametrize("start, options", [("booted", BOOTED), ("restored", ())])
def test_vcpus_are_online(start, options):
    with created(*options, "--cpus", "3") as sandbox_id:
        assert ctl_ok("show", "-p", "Start", "--value", sandbox_id).strip() == start
        assert ctl_ok("exec", sandbox_id, "--", "nproc").strip() == "3"


def test_five_in_sequence_leave_nothing():
    before = at_rest()
    for number in range(5):
        assert ctl_ok("run", "--", "echo", str(number)) == f"{number}\n"
    nothing_left_since(before)


def test_three_at_once():
    with created() as a, created() as b, created(*BOOTED) as c:
        for sandbox_id in (a, b, c):
            assert ctl_ok("exec", sandbox_id, "--", "cat", "/proc/sys/kernel/hostname")
            assert forwards_to_loopback(sandbox_id)
        assert {a, b, c} <= set(sandbox_ids())


@pytest.mark.parametrize("how, reason", [
    ("echo c > /proc/sysrq-trigger", "panic"),
    ("echo o > /proc/sysrq-trigger; sleep 6000", "poweroff"),
    ("echo b > /proc/sysrq-trigger; sleep 6000", "reset"),
])
def test_an_end_from_inside_has_its_reason(how, reason):
    sandbox_id = ctl_ok("create").strip()
    result = ctl("exec", sandbox_id, "--", "sh", "-c", how)
    assert result.returncode == 255
    wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
    assert reason_of(sandbox_id) == reason
    wait_for("PID 1 to see it", lambda: not active(f"cube-{sandbox_id}.scope"))


def test_a_running_guest_survives_cubed():
    with created(*BOOTED) as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "sh", "-c", "echo kept > /tmp/mark")
        run("systemctl", "restart", "cubed.service", check=True)
        assert ctl_ok("exec", sandbox_id, "--", "cat", "/tmp/mark") == "kept\n"
        crash()
        assert ctl_ok("exec", sandbox_id, "--", "cat", "/tmp/mark") == "kept\n"


def test_stopping_the_scope_powers_the_guest_off():
    with created() as sandbox_id:
        run("systemctl", "stop", f"cube-{sandbox_id}.scope", check=True)
        wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
        assert reason_of(sandbox_id) == "poweroff"


def test_kernel_6_12_boots():
    with created("--template", "python612", *BOOTED, "--cpus", "2") as sandbox_id:
        assert ctl_ok("exec", sandbox_id, "--", "uname", "-r").startswith("6.12")
        assert ctl_ok("exec", sandbox_id, "--", "nproc").strip() == "2"
        assert forwards_to_loopback(sandbox_id)


def test_memory_below_the_kernels_floor_names_the_floor():
    result = ctl("create", "--memory", "32M")
    assert result.returncode == 1
    assert b"32M" in result.stderr and b"at least" in result.stderr
