# SPDX-License-Identifier: Apache-2.0
"""cube-ingress as a service: set up by cubectl, as a user of its own, told the routes by the gateway. What it does with requests
is tested in tests/gateway."""

import errno
import http.client
import json
import os
import pathlib
import pwd
import socket
import ssl
import stat

import pytest

from cubetest import run, wait_for

UNIT = "cube-ingress.service"
DOMAIN = "box.test"


def output(*command):
    return run(*command, check=True).stdout.decode()


def show(name, unit=UNIT):
    return output("systemctl", "show", "-P", name, unit).strip()


@pytest.fixture(scope="module")
def environment():
    text = output("cubectl", "--quiet", "ingress", "setup", f"--domain={DOMAIN}")
    yield dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines())
    output("cubectl", "ingress", "remove")
    assert not pathlib.Path("/etc/cubed/ingress").exists()
    output("systemctl", "disable", "--quiet", "--now", "cube-gateway.socket", "cube-gateway.service")


@pytest.fixture(scope="module")
def key(environment):
    return output("cubectl", "--quiet", "apikey", "create", "ingress").strip()


def call(method, path, key=None, body=None, **headers):
    """By TLS, as an SDK in domain mode; the name leads nowhere here."""
    context = ssl.create_default_context(cafile="/etc/cubed/ingress/ca.pem")
    host = headers.pop("host", f"api.{DOMAIN}")
    c = http.client.HTTPConnection(host, timeout=300)
    c.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", 8443)), server_hostname=host)
    c.request(method, path, body and json.dumps(body), {**headers, **({"X-API-Key": key} if key else {})})
    response = c.getresponse()
    text = response.read()
    c.close()
    return response.status, json.loads(text) if text else None


def test_clients_are_told_where_it_is_and_whom_to_trust(environment):
    assert environment == {"E2B_DOMAIN": f"{DOMAIN}:8443", "SSL_CERT_FILE": "/etc/cubed/ingress/ca.pem",
                           "NODE_EXTRA_CA_CERTS": "/etc/cubed/ingress/ca.pem"}
    assert call("GET", "/health") == (204, None)
    headers = output("cubectl", "ingress", "env", "--headers").splitlines()
    assert headers == ["export E2B_API_URL=http://127.0.0.1:3000", "export E2B_SANDBOX_URL=http://127.0.0.1:3000"]


def test_it_comes_back_with_the_host(environment):
    assert output("systemctl", "is-enabled", UNIT, "cube-gateway.socket").split() == ["enabled"] * 2


def test_it_has_a_user_of_its_own_and_one_right(environment):
    user = pwd.getpwnam("cube-ingress")
    for pid in output("systemctl", "show", "-P", "ControlGroup", UNIT).split():
        for process in pathlib.Path(f"/sys/fs/cgroup{pid}/cgroup.procs").read_text().split():
            text = pathlib.Path(f"/proc/{process}/status").read_text()
            status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
            assert status["Uid"].split() == [str(user.pw_uid)] * 4
            # CAP_NET_BIND_SERVICE
            assert {int(status[k], 16) for k in ("CapPrm", "CapEff", "CapBnd")} == {1 << 10}
            assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    for name in ("ca.key", "tls.pem"):
        s = os.stat(f"/etc/cubed/ingress/{name}")
        assert (stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid) == (0o600, 0, 0)
    assert output("ss", "-Hltn", "sport = :3000 or sport = :8443").count("127.0.0.1:") == 2
    s = os.stat("/run/cube-ingress/control")
    assert (stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid) == (0o660, user.pw_uid, user.pw_gid)


def routes():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("/run/cube-ingress/control")
        s.sendall(b"show map /dev/null\n")
        text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    return dict(line.split(" ")[1:3] for line in text.splitlines() if line)


def test_a_sandbox_has_a_route_from_its_creation_to_its_end(key, template):
    status, made = call("POST", "/v2/sandboxes", key, {"templateID": template()})
    assert status == 201 and made["domain"] == f"{DOMAIN}:8443", made
    sandbox = made["sandboxID"]
    address = output("cubectl", "show", sandbox, "-p", "NetworkAddress", "--value").strip()
    assert routes()[sandbox] == f"{address}|||||"
    output("systemctl", "restart", UNIT)
    wait_for("all routes", lambda: "-ready" in routes())
    assert sandbox in routes()
    assert "Routes: 1" in output("cubectl", "ingress", "status")
    output("systemctl", "restart", "cubed")
    assert sandbox in routes()
    assert call("DELETE", f"/sandboxes/{sandbox}", key) == (204, None)
    assert sandbox not in routes()
    status, answer = call("GET", "/health", host=f"49983-{sandbox}.{DOMAIN}")
    assert (status, answer) == (502, {"sandboxId": sandbox, "message": "The sandbox was not found", "code": 502})


def test_one_that_can_not_listen_says_where_to_look(environment):
    with socket.create_server(("127.0.0.1", 1999)):
        setup = run("cubectl", "ingress", "setup", f"--domain={DOMAIN}", "--listen-plain=127.0.0.1:1999")
        status = run("cubectl", "ingress", "status")
        assert setup.returncode == 1 and "'journalctl -u cube-ingress' says why" in status.stdout.decode()
        for said in setup, status:
            assert "Another program listens on 127.0.0.1:1999: 'ss -ltnp sport = :1999' shows which" in said.stderr.decode()
            assert "8443" not in said.stderr.decode()
        # It is not tried for ever, and gives up with a reason that names the address.
        wait_for("it to be given up", lambda: show("ActiveState") == "failed" and show("SubState") == "failed", 120)
        assert int(show("NRestarts")) <= 10
        run("journalctl", "--sync")
        journal = output("journalctl", "-u", UNIT, "-o", "cat", "--no-pager")
        assert "cannot bind socket (Address already in use) for [127.0.0.1:1999]" in journal
    output("cubectl", "ingress", "setup", f"--domain={DOMAIN}")
    assert show("ActiveState") == "active"
    assert "Another program" not in run("cubectl", "ingress", "status").stderr.decode()


def test_its_user_may_reach_sandboxes_and_others_may_not(environment, template):
    sandbox = output("cubectl", "create", f"template:{template()}").strip()
    address = output("cubectl", "show", sandbox, "-p", "NetworkAddress", "--value").strip()
    code = f"import socket; s = socket.socket(); s.settimeout(0.5); print(s.connect_ex(('{address}', 80)))"

    def connect(user):
        return int(output("runuser", "-u", user, "--", "python3", "-c", code))
    # this guest answers nobody; what the filter denies is refused
    assert connect("nobody") == errno.ECONNREFUSED
    assert connect("cube-ingress") == errno.EAGAIN
    output("cubectl", "kill", sandbox)
