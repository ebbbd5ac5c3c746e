# SPDX-License-Identifier: Apache-2.0
"""Every way a guest can end has its own reason, seen at once, shown and in the journal."""

import os
import signal
import subprocess

import pytest

from cubetest import ctl, ctl_ok, events, journal, run, sandbox_ids, wait_for


@pytest.mark.parametrize("program, reason", [
    ("panic", "panic"),
    ("triple", "triple-fault"),
    ("reset", "reset"),
    ("poweroff", "poweroff"),
])
def test_an_end_while_running(clean, program, reason):
    sandbox_id = ctl_ok("create").strip()
    assert ctl("exec", sandbox_id, "--", program).returncode == 255
    wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == reason
    assert journal(sandbox_id)[-1]["CUBE_REASON"] == reason


@pytest.mark.parametrize("words, reason", [
    ("panic", b"panic"),
    ("reset", b"reset-early"),
    ("triple", b"triple-fault"),
])
def test_an_end_before_the_agent_fails_the_create(template, clean, words, reason):
    result = ctl("create", "--template", template(words))
    assert result.returncode == 1 and result.stdout == b""
    assert reason in result.stderr


def test_a_guest_that_never_answers_is_given_up_with_its_console(template, clean):
    result = ctl("create", "--template", template("silent"))
    assert result.returncode == 1
    assert b"did not answer" in result.stderr or b"BootTimeout" in result.stderr
    assert b"payload" in result.stderr, "the console's last lines are in the error"


def test_a_create_that_fails_is_in_the_journal(template, clean):
    before = set(sandbox_ids())
    ctl("create", "--template", template("reset"))
    assert set(sandbox_ids()) == before


def test_a_reason_that_the_journal_does_not_have_yet_is_waited_for(clean):
    sandbox_id = ctl_ok("create").strip()
    assert "create" in events(sandbox_id)
    journald = int(run("systemctl", "show", "-P", "MainPID", "systemd-journald.service", check=True).stdout)
    os.kill(journald, signal.SIGSTOP)
    try:
        ctl_ok("kill", sandbox_id)
        with subprocess.Popen(["cubectl", "show", "-p", "Reason", "--value", sandbox_id], stdout=subprocess.PIPE) as p:
            with pytest.raises(subprocess.TimeoutExpired):
                p.wait(4)
            os.kill(journald, signal.SIGCONT)
            assert p.stdout.read() == b"killed\n"
    finally:
        os.kill(journald, signal.SIGCONT)
