# SPDX-License-Identifier: Apache-2.0
"""Every way a guest can end has its own reason, seen at once, shown and in the journal."""

import os
import secrets
import signal
import socket
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
    (entry,) = wait_for("its end to be told", lambda: journal(sandbox_id, "CUBE_EVENT=exit"))
    assert entry["CUBE_REASON"] == reason


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


def tell(sandbox_id, **fields):
    """An entry about it, as cubed would write it, which is in the journal then."""
    text = "".join(f"{name}={value}\n" for name, value in {"CUBE_SANDBOX": sandbox_id, **fields}.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(text.encode(), "/run/systemd/journal/socket")
    run("journalctl", "--sync", check=True)


def test_an_end_that_comes_late_into_the_journal_is_waited_for():
    """However much else comes before it, also of what has a reason and is no end."""
    sandbox_id, other = (f"x{secrets.token_hex(7)}" for _ in range(2))
    tell(sandbox_id, CUBE_EVENT="create")
    tell(sandbox_id, CUBE_EVENT="network-denied", CUBE_REASON="policy")
    with subprocess.Popen(["cubectl", "show", "-p", "Reason", "--value", sandbox_id], stdout=subprocess.PIPE) as p:
        for _ in range(25):
            tell(other, CUBE_EVENT="create")
        tell(sandbox_id, CUBE_EVENT="exit", CUBE_REASON="late")
        assert p.stdout.read() == b"late\n"
