# SPDX-License-Identifier: Apache-2.0
"""cubed may be restarted, killed and upgraded; running sandboxes go on and are taken over."""

import os
import signal
import subprocess
import time

import pytest

from cubetest import crash, created, ctl, ctl_ok, events, prop, run, sandbox_ids, wait_for


def restart():
    run("systemctl", "restart", "cubed.service", check=True)


@pytest.mark.parametrize("again", [restart, crash])
def test_a_running_sandbox_is_taken_over(clean_again, again):
    with created("--label", "a=b", "--timeout", "1h") as sandbox_id:
        pid = prop(sandbox_id, "VMMPID")
        deadline = prop(sandbox_id, "Deadline")
        again()
        assert prop(sandbox_id, "State") == "running"
        assert prop(sandbox_id, "VMMPID") == pid
        assert prop(sandbox_id, "Labels") == {"a": "b"}
        assert abs(int(prop(sandbox_id, "Deadline")) - int(deadline)) < 2_000_000
        assert ctl_ok("exec", sandbox_id, "--", "echo", "still", "here") == "still here\n"
        assert "adopted" in events(sandbox_id)
        assert ctl("stop", sandbox_id).returncode == 0
        assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "poweroff"


def test_one_whose_vmm_has_no_cpu_meanwhile_is_taken_over_later(clean_again):
    with created("--timeout", "1h") as sandbox_id:
        pid = int(prop(sandbox_id, "VMMPID"))
        os.kill(pid, signal.SIGSTOP)
        try:
            restart()
            with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "echo", "still", "here"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE) as p:
                with pytest.raises(subprocess.TimeoutExpired):
                    p.wait(25)  # longer than BootTimeout= is here
                os.kill(pid, signal.SIGCONT)
                assert p.stdout.read() == b"still here\n"
        finally:
            os.kill(pid, signal.SIGCONT)
        assert prop(sandbox_id, "VMMPID") == pid


@pytest.mark.parametrize("again", [restart, crash])
def test_streams_are_not_cut(clean_again, again):
    with created("--timeout", "1h") as sandbox_id:
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "cat"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            p.stdin.write(b"before\n")
            p.stdin.flush()
            assert p.stdout.readline() == b"before\n"
            again()
            p.stdin.write(b"after\n")
            p.stdin.close()
            assert p.stdout.readline() == b"after\n"
            assert p.wait(60) == 0


def test_an_end_while_cubed_was_away_keeps_its_reason(clean_again):
    with created("--timeout", "1h") as sandbox_id:
        run("systemctl", "stop", "cubed.service", check=True)
        run("systemctl", "stop", f"cube-{sandbox_id}.scope", check=True)
        run("systemctl", "start", "cubed.service", check=True)
        wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
        assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "poweroff"


def test_a_lifetime_that_ended_while_cubed_was_away_is_kept(clean_again):
    sandbox_id = ctl_ok("create", "--timeout", "4s").strip()
    over = time.time() + 4
    run("systemctl", "stop", "cubed.service", check=True)
    wait_for("the lifetime to end", lambda: time.time() > over)
    run("systemctl", "start", "cubed.service", check=True)
    wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())


def test_a_state_that_can_not_be_read_leaves_no_vmm(clean_again):
    """Not on its own, with a uid that the next sandbox may get."""
    bad = {ctl_ok("create", "--timeout", "1h").strip(): state for state in ("", "{}", "\0" * 200, "x" * 1_000_000)}
    run("systemctl", "stop", "cubed.service", check=True)
    for sandbox_id, state in bad.items():
        with open(f"/run/cubed/sandbox/{sandbox_id}/state.json", "w", encoding="ascii") as f:
            f.write(state)
    run("systemctl", "start", "cubed.service", check=True)
    assert not set(bad) & set(sandbox_ids())


def test_a_second_cubed_says_so_and_harms_nothing():
    result = run("/usr/lib/cubed/cubed", timeout=60)
    assert result.returncode == 1
    assert b"org.cubed.Cube1" in result.stderr or b"another" in result.stderr
    assert ctl("list").returncode == 0
