# SPDX-License-Identifier: Apache-2.0
"""cube-gateway as a service: started by its socket, as a user of its own, with keys that cubectl makes. What it answers is
tested in tests/gateway."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import pwd
import re
import signal
import time

import pytest

from cubetest import cubed_pid, events, helper_pid, prop, run, sandbox_ids, wait_for
from gatewayhost import SOCKET, UNIT, Connection, call, output, show
from test_secrets import files_with, host_titles


@pytest.fixture
def listening():
    output("systemctl", "start", SOCKET)
    yield
    output("systemctl", "stop", SOCKET, UNIT)


@pytest.fixture
def key(listening):
    return output("cubectl", "--quiet", "apikey", "create", "box").strip()


def test_its_socket_starts_it(listening):
    assert show(UNIT, "ActiveState") == "inactive"
    assert call("GET", "/health", None) == (204, None)
    assert show(UNIT, "ActiveState") == "active"


def test_it_has_a_user_of_its_own_and_no_rights(key):
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{show(UNIT, 'MainPID')}/status").read_text().splitlines()
                  if ":\t" in line)
    user = pwd.getpwnam("cube-gateway")
    assert status["Uid"].split() == [str(user.pw_uid)] * 4
    assert {status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert output("stat", "-c", "%a %U %s", "/var/lib/cubed/gateway.key").split() == ["600", "root", "32"]
    assert output("stat", "-Lc", "%a %U", "/var/lib/cube-gateway").split() == ["700", "cube-gateway"]


def test_a_sandbox_is_created_and_killed_and_told_with_the_key_and_without_its_secret(key, template):
    status, made = call("POST", "/v2/sandboxes", key, {"templateID": template(), "metadata": {"a": "canary-in-metadata"},
                                                      "envVars": {"A": "canary-in-variables"}})
    assert status == 201, made
    path = f"/sandboxes/{made['sandboxID']}"
    status, seen = call("GET", path, key)
    assert (status, seen["state"]) == (200, "running")
    assert output("cubectl", "show", made["sandboxID"], "-p", "Owner", "--value").strip() == str(pwd.getpwnam("cube-gateway").pw_uid)
    wait_for("the guest to be told", lambda: "serves envd to user" in output("cubectl", "logs", "--console", made["sandboxID"]))
    output("systemctl", "restart", UNIT)
    assert call("GET", path, key) == (status, seen)
    assert call("DELETE", path, key) == (204, None)
    assert call("DELETE", path, key)[0] == 404

    run("journalctl", "--sync")
    entries = [json.loads(line) for line in output("journalctl", "-o", "json", f"CUBE_REQUEST=POST /v2/sandboxes").splitlines()]
    mine = [e for e in entries if e["CUBE_SANDBOX"] == made["sandboxID"]]
    assert len(mine) == 1 and mine[0]["CUBE_STATUS"] == "201" and mine[0]["CUBE_KEY"] in output("cubectl", "apikey", "list")
    journal = output("journalctl", "-o", "export")
    for secret in (key, key[4:], made["envdAccessToken"], "canary-in-metadata", "canary-in-variables"):
        assert secret not in journal


def test_a_canary_key_is_found_nowhere(key, template):
    """Wherever a client put it."""
    status, made = call("POST", "/v2/sandboxes", key, {"templateID": template(), "metadata": {"key": key}})
    assert status == 201, made
    call("DELETE", f"/sandboxes/{made['sandboxID']}", key)
    for path in (f"/{key}", f"/v2/sandboxes?key={key}", f"/sandboxes/{key}"):
        call("GET", path, key)
    call("POST", "/v2/sandboxes", key, {"templateID": key})
    listed = output("cubectl", "apikey", "list")
    secret = key[4:]
    run("journalctl", "--sync")
    assert key not in listed and secret not in output("journalctl", "-o", "export", "-b")
    assert files_with(secret, "/run", "/var/lib/cube-gateway", "/var/lib/cubed", "/var/log", "/etc") == []
    own = {f"/proc/{os.getpid()}/{name}" for name in ("cmdline", "environ")}
    assert not [path for path, text in host_titles() if secret.encode() in text and path not in own]
    # Nor would a core of the gateway, which has to know it for a moment.
    limits = pathlib.Path(f"/proc/{show(UNIT, 'MainPID')}/limits").read_text()
    assert re.search(r"Max core file size +0 +0 ", limits)


def test_no_entry_of_a_key_is_dropped_by_the_journal(key):
    """Whatever bound the host has set for its units."""
    drop_in = pathlib.Path("/run/systemd/journald.conf.d/50-test.conf")
    drop_in.parent.mkdir(exist_ok=True)
    drop_in.write_text("[Journal]\nRateLimitIntervalSec=10min\nRateLimitBurst=5\n")
    output("systemctl", "restart", "systemd-journald", UNIT)
    try:
        for n in range(100):
            assert call("GET", f"/v2/sandboxes?n=entry{n}", key)[0] in (200, 429)
        run("journalctl", "--sync")
        lines = output("journalctl", "-u", UNIT, "-o", "cat", "--no-pager")
        assert [n for n in range(100) if f"n=entry{n}:" not in lines] == []
    finally:
        drop_in.unlink()
        output("systemctl", "restart", "systemd-journald")


def broken(path, content):
    """In place of what is there, until the end of the test."""
    @contextlib.contextmanager
    def change():
        good = path.read_bytes()
        path.write_bytes(content)
        try:
            yield
        finally:
            path.write_bytes(good)
            run("systemctl", "reset-failed", SOCKET, UNIT)
    return change()


def entries_of_unit():
    run("journalctl", "--sync")
    return output("journalctl", "-u", UNIT, "--no-pager", "-o", "cat")


def test_damaged_keys_do_not_end_it(key):
    keys = pathlib.Path("/var/lib/cube-gateway/keys.json")
    with broken(keys, b"{"):
        output("systemctl", "restart", UNIT)
        why = f"{keys} is damaged: put it back from a copy, or remove it and make new keys; then 'systemctl restart cube-gateway'"
        assert call("GET", "/v2/sandboxes", key)[0] == 503
        assert (show(UNIT, "ActiveState"), show(UNIT, "NRestarts"), show(UNIT, "StatusText")) == ("active", "0", why)
        result = run("cubectl", "apikey", "list")
        assert result.returncode == 1 and why in result.stderr.decode()
        assert f"Nobody is let in: {why}" in entries_of_unit()
    output("systemctl", "restart", UNIT)
    assert call("GET", "/v2/sandboxes", key)[0] == 200


@contextlib.contextmanager
def unreadable_part():
    """A part of its configuration that is a directory."""
    part = pathlib.Path("/etc/cubed/gateway.conf.d/90-test.conf")
    part.mkdir(parents=True)
    try:
        yield part
    finally:
        part.rmdir()
        part.parent.rmdir()


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_cubectl_says_what_it_does_not_start_for(key, user):
    output("systemctl", "stop", UNIT)
    with unreadable_part() as part:
        for words in ["list"], ["create", "x"], ["revoke", "kx"]:
            result = run("runuser", "-u", user, "--", "cubectl", "--no-ask-password", "apikey", *words)
            assert result.returncode == 1 and result.stdout == b""
            assert f"cube-gateway did not start: The configuration {part} could not be read: Is a directory" in result.stderr.decode()
    # And once that is repaired it starts, whoever asks first.
    assert "box" in output("cubectl", "apikey", "list")
    assert call("GET", "/v2/sandboxes", key)[0] == 200


def test_its_socket_listens_again_after_a_repair(key):
    output("systemctl", "stop", UNIT)
    with unreadable_part():
        with pytest.raises(OSError):
            call("GET", "/health", None)
        wait_for("the socket to give up", lambda: show(SOCKET, "ActiveState") == "failed")
        time.sleep(5)
    output("systemctl", "start", SOCKET)
    assert call("GET", "/v2/sandboxes", key)[0] == 200
    output("systemctl", "stop", UNIT)
    assert call("GET", "/v2/sandboxes", key)[0] == 200


def test_a_damaged_key_of_the_host_ends_in_two_failed_units_and_a_reason(key):
    output("systemctl", "stop", UNIT)
    with broken(pathlib.Path("/var/lib/cubed/gateway.key"), b"short"):
        with pytest.raises(OSError):
            call("GET", "/health", None)
        wait_for("the socket to give up", lambda: show(SOCKET, "ActiveState") == "failed")
        assert (show(UNIT, "ActiveState"), show(UNIT, "NRestarts"), show(UNIT, "ExecMainStatus")) == ("failed", "0", "78")
        assert "remove it: another one is made then" in entries_of_unit()
    output("systemctl", "start", SOCKET)
    assert call("GET", "/v2/sandboxes", key)[0] == 200
@pytest.mark.parametrize("memory", [True, False])
def test_at_its_end_it_is_paused_and_connecting_brings_it_back(key, template, memory):
    status, made = call("POST", "/v2/sandboxes", key, {"templateID": template(), "autoPause": True, "autoPauseMemory": memory})
    assert status == 201, made
    path = f"/sandboxes/{made['sandboxID']}"
    assert call("POST", f"{path}/timeout", key, {"timeout": 1}) == (204, None)
    wait_for("it to be paused", lambda: call("GET", path, key)[1]["state"] == "paused")
    status, again = call("POST", f"/v2{path}/connect", key, {"timeout": 600})
    assert (status, again) == (201, made)
    assert call("GET", path, key)[1]["state"] == "running"
    assert output("cubectl", "show", made["sandboxID"], "-p", "Start", "--value").strip() == ("restored" if memory else "booted")
    wait_for("the guest to be told", lambda: "serves envd to user" in output("cubectl", "logs", "--console", made["sandboxID"]))
    assert call("POST", f"{path}/pause", key, {}) == (204, None)
    assert call("POST", f"/v2{path}/connect", key, {"memory": False})[0] == 201
    assert output("cubectl", "show", made["sandboxID"], "-p", "Start", "--value").strip() == "booted"
    assert call("DELETE", path, key) == (204, None)


@pytest.mark.parametrize("memory", [True, False])
def test_who_connects_while_it_is_paused_waits(key, template, memory):
    status, made = call("POST", "/v2/sandboxes", key, {"templateID": template()})
    assert status == 201, made
    path = f"/sandboxes/{made['sandboxID']}"
    stored = helper_pid("cube-stored")
    os.kill(stored, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            pause = pool.submit(call, "POST", f"{path}/pause", key, {"memory": memory})
            wait_for("it to be pausing", lambda: prop(made["sandboxID"], "State") == "pausing")
            connects = [pool.submit(call, "POST", f"/v2{path}/connect", key, {"timeout": 600}) for _ in range(4)]
            wait_for("them to ask", lambda: events(made["sandboxID"]).count("resume") == 4)
            os.kill(stored, signal.SIGCONT)
            assert pause.result() == (204, None)
            assert [c.result() for c in connects] == [(201, made)] * 4
    finally:
        os.kill(stored, signal.SIGCONT)
    assert output("cubectl", "show", made["sandboxID"], "-p", "Start", "--value").strip() == ("restored" if memory else "booted")
    assert call("DELETE", path, key) == (204, None)


@pytest.mark.parametrize("path", ["/v2/sandboxes", "/sandboxes/{}", "/snapshots", "/templates"])
def test_what_is_asked_while_cubed_is_killed_is_answered_by_the_next(key, template, path):
    status, made = call("POST", "/v2/sandboxes", key, {"templateID": template()})
    assert status == 201, made
    path = path.format(made["sandboxID"])
    seen = call("GET", path, key)
    pid = cubed_pid()
    os.kill(pid, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, "GET", path, key)
        # Those behind it are answered: it was read.
        for _ in range(3):
            assert call("GET", "/health", None) == (204, None)
        os.kill(pid, signal.SIGKILL)
        assert asked.result() == seen and seen[0] == 200
    assert call("DELETE", f"/sandboxes/{made['sandboxID']}", key) == (204, None)


def restart(unit):
    output("systemctl", "restart", unit)


def kill(unit):
    output("systemctl", "kill", "-s", "KILL", unit)


@pytest.mark.parametrize("unit, end, message", [("cubed.service", restart, "could not be made ready"), (UNIT, restart, "is being restarted"),
                                                (UNIT, kill, None)])
def test_one_that_no_client_was_told_of_ends(key, template, unit, end, message):
    """Its client gets an error, or no answer at all, since one of both ended before its guest could be made ready."""
    source, before = template("no-envd"), set(sandbox_ids())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        create = pool.submit(call, "POST", "/v2/sandboxes", key, {"templateID": source, "timeout": 86400})
        made, = wait_for("the sandbox", lambda: set(sandbox_ids()) - before)
        wait_for("its guest to be told", lambda: "no answer about envd" in output("cubectl", "logs", "--console", made))
        end(unit)
        if message:
            status, answer = create.result()
            assert status == 503 and message in answer["message"]
        else:
            with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
                create.result()
    wait_for("it to be gone", lambda: made not in sandbox_ids())


def test_users_may_make_keys_only_as_polkit_says(key):
    def create():
        return run("runuser", "-u", "nobody", "--", "cubectl", "--no-ask-password", "--quiet", "apikey", "create")
    denied = create()
    assert denied.returncode == 1 and b"manage-keys" in denied.stderr and denied.stdout == b""
    rule = pathlib.Path("/etc/polkit-1/rules.d/00-test.rules")
    rule.write_text("""polkit.addRule(function(action, subject) {
        if (action.id == "org.cubed.cube1.manage-keys" && subject.user == "nobody")
            return polkit.Result.YES;
    });""")
    try:
        wait_for("polkit to know the rule", lambda: create().returncode == 0)
    finally:
        rule.unlink()


def test_a_revoked_key_is_refused(key):
    assert call("GET", "/v2/sandboxes", key) == (200, [])
    for line in output("cubectl", "apikey", "list", "--no-legend").splitlines():
        output("cubectl", "apikey", "revoke", line.split()[0])
    assert call("GET", "/v2/sandboxes", key)[0] == 401
