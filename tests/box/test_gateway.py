# SPDX-License-Identifier: Apache-2.0
"""cube-gateway as a service: started by its socket, as a user of its own, with keys that cubectl makes. What it answers is
tested in tests/gateway."""

import http.client
import json
import pathlib
import pwd
import socket

import pytest

from cubetest import run, wait_for

UNIT = "cube-gateway.service"
SOCKET = "cube-gateway.socket"


def output(*command):
    return run(*command, check=True).stdout.decode()


def show(unit, name):
    return output("systemctl", "show", "-P", name, unit).strip()


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(300)
        self.sock.connect("/run/cubed/gateway")


def call(method, path, key, body=None):
    c = Connection("gateway")
    c.request(method, path, body and json.dumps(body), {"X-API-Key": key} if key else {})
    response = c.getresponse()
    text = response.read()
    c.close()
    return response.status, json.loads(text) if text else None


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

    entries = [json.loads(line) for line in output("journalctl", "-o", "json", f"CUBE_REQUEST=POST /v2/sandboxes").splitlines()]
    mine = [e for e in entries if e["CUBE_SANDBOX"] == made["sandboxID"]]
    assert len(mine) == 1 and mine[0]["CUBE_STATUS"] == "201" and mine[0]["CUBE_KEY"] in output("cubectl", "apikey", "list")
    journal = output("journalctl", "-o", "export")
    for secret in (key, key[4:], made["envdAccessToken"], "canary-in-metadata", "canary-in-variables"):
        assert secret not in journal


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
