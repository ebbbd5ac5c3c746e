# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Its envd: who is served, and how HTTP is spoken."""

import errno
import http.client
import os
import select
import socket

import pytest

from agentlib import CLAIM, ENVD, FREEZE, THAW, refused, until
from envdlib import Envd, free_port

TOKEN = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"


@pytest.fixture(scope="module")
def envd(shared):
    return Envd(shared, TOKEN)


def listening(agent):
    """Ports on which a socket of the agent listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{agent.pid}/fd"):
        target = os.readlink(f"/proc/{agent.pid}/fd/{fd}")
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{agent.pid}/net/{name}") as f:
            for line in list(f)[1:]:
                field = line.split()
                if field[3] == "0A" and field[9] in inodes:
                    ports.add(int(field[1].rsplit(":", 1)[1], 16))
    return ports


def test_nothing_listens_before_the_host_says_so(fresh):
    agent = fresh()
    assert not listening(agent)
    envd = Envd(agent)
    assert envd.port in listening(agent)
    assert envd.request("GET", "/health")[0] == 204


def test_not_before_a_claim(fresh):
    agent = fresh(claim=False)
    with refused(errno.EAGAIN, "not claimed"):
        agent.call(ENVD, PORT=free_port())


def test_a_port_that_another_has(fresh):
    agent = fresh()
    with socket.socket(socket.AF_INET6) as s:
        s.bind(("::", 0))
        s.listen()
        with refused(errno.EADDRINUSE, "a program in the guest has it"):
            agent.call(ENVD, PORT=s.getsockname()[1])
    envd = Envd(agent)
    with refused(errno.EBUSY, "it has another one"):
        agent.call(ENVD, PORT=envd.port + 1)
    for port in (0, 65536):
        with refused(errno.EINVAL, "no port"):
            agent.call(ENVD, PORT=port)
    assert envd.request("GET", "/health")[0] == 204


def test_health_asks_for_no_token(envd):
    c = envd.connect()
    for _ in range(3):
        c.request("GET", "/health")
        r = c.getresponse()
        assert (r.status, r.read(), r.headers["Cache-Control"]) == (204, b"", "no-store")
        assert "Content-Length" not in r.headers and "Transfer-Encoding" not in r.headers
    c.close()


@pytest.mark.parametrize("token", [None, "", "x", TOKEN[:-1], TOKEN + "x", TOKEN.lower()])
def test_all_else_does(envd, token):
    c = envd.connect()
    c.request("GET", "/nothing", headers={} if token is None else {"X-Access-Token": token})
    r = c.getresponse()
    assert r.status == 401 and r.headers["Content-Type"] == "application/json"
    assert r.read() == (b'{"code":401,"message":"unauthorized access, please provide a valid access token or method '
                        b'signing if supported"}')
    c.close()


def test_paths_and_methods_that_there_are_not(envd):
    assert envd.json("GET", "/nothing") == (404, {"code": 404, "message": "not found"})
    assert envd.json("GET", "/health/") == (404, {"code": 404, "message": "not found"})
    message = "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL"
    for path in ("/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/upgrade"):
        for method in ("GET", "POST"):
            for headers in ({}, {"X-Access-Token": "other"}):
                assert envd.json(method, f"{path}?a=b", "{}", headers=headers) == (404, {"message": message, "path": path, "code": 404})
    assert envd.json("POST", "/health", b"{}") == (405, {"code": 405, "message": "method not allowed"})


def test_a_browser_may_ask_first(envd):
    status, headers, _ = envd.request("OPTIONS", "/files", headers={"Origin": "http://x", "X-Access-Token": "wrong"})
    assert status == 204 and headers["Access-Control-Allow-Origin"] == "*"
    assert "POST" in headers["Access-Control-Allow-Methods"] and headers["Access-Control-Max-Age"] == "7200"
    _, headers, _ = envd.request("GET", "/health", headers={"Origin": "http://x"})
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Origin" not in envd.request("GET", "/health")[1]


def test_what_is_no_http(envd):
    with socket.create_connection(("127.0.0.1", envd.port), 60) as s:
        s.sendall(b"POST /health HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = b""
        while piece := s.recv(65536):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.endswith(b'"this is not HTTP/1.1"}')


def test_a_new_token_holds_from_then_on(fresh):
    envd = Envd(fresh(), "one")
    assert envd.request("GET", "/nothing")[0] == 404
    envd.configure("two")
    assert envd.request("GET", "/nothing")[0] == 404
    assert envd.request("GET", "/nothing", headers={"X-Access-Token": "one"})[0] == 401
    envd.configure()
    assert envd.request("GET", "/nothing")[0] == 404


def test_a_claim_resets_all_connections(fresh):
    agent = fresh()
    envd = Envd(agent, "t")
    c = envd.connect()
    c.request("GET", "/health")
    c.getresponse().read()
    agent.call(CLAIM)
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        c.request("GET", "/health")
        c.getresponse()
    c.close()
    assert envd.request("GET", "/health")[0] == 204


def test_a_request_waits_while_the_disk_is_frozen(fresh):
    agent = fresh()
    envd = Envd(agent)
    agent.call(FREEZE, FREEZE_DISK=1)
    c = envd.connect()
    c.request("GET", "/health")
    assert not select.select([c.sock], [], [], 0.3)[0]
    agent.call(THAW)
    assert c.getresponse().status == 204
    c.close()


def test_a_request_waits_for_the_hooks_of_a_claim(fresh):
    agent = fresh()
    envd = Envd(agent)
    hooks = os.path.join(agent.directory, "fork.d")
    os.mkdir(hooks)
    os.mkfifo(os.path.join(agent.directory, "go"))
    with open(os.open(os.path.join(hooks, "hook"), os.O_CREAT | os.O_WRONLY, 0o755), "w") as f:
        f.write(f"#!/bin/sh\nread x < {agent.directory}/go\n")
    agent.control.send(CLAIM, b"", 7)
    with open(os.path.join(agent.directory, "go"), "w") as go:
        c = envd.connect()
        c.request("GET", "/health")
        assert not select.select([c.sock], [], [], 0.3)[0]
        go.write("\n")
    assert c.getresponse().status == 204
    assert agent.control.recv()[2] == 7
    c.close()


def test_many_clients_and_none_is_left(fresh):
    envd = Envd(fresh())
    before = envd.agent.fds()
    clients = [envd.connect() for _ in range(300)]
    for c in clients:
        c.request("GET", "/health")
    for c in clients:
        assert c.getresponse().status == 204
        c.close()
    until(lambda: envd.agent.fds() == before)
