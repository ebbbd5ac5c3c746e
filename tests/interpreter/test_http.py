# SPDX-License-Identifier: Apache-2.0
"""Requests, right and wrong, as they are on the wire."""

import http.server
import json
import socket
import threading

import pytest

import interpreter


def test_health(server):
    assert server.call("GET", "/health") == (200, "OK")


def test_the_stream_on_the_wire(server):
    """A line is a chunk of ASCII: a client that decodes chunk by chunk never sees half a character."""
    body = json.dumps({"code": "print('é')", "context_id": None, "language": None, "env_vars": None}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as s:
        s.sendall(b"POST /execute?source=x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and b"Transfer-Encoding: chunked" in head
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunk, rest = rest[:int(size, 16)], rest[int(size, 16) + 2:]
        chunks.append(chunk)
    assert chunks.pop() == b""
    assert all(chunk.isascii() and chunk.endswith(b"\n") and chunk.count(b"\n") == 1 for chunk in chunks)
    lines = [json.loads(chunk) for chunk in chunks]
    assert lines[0]["type"] == "number_of_executions"
    assert set(lines[1]) == {"type", "text", "timestamp"} and lines[1]["text"] == "é\n" and "T" in lines[1]["timestamp"]
    assert lines[2:] == [{"type": "end_of_execution"}]


@pytest.mark.parametrize("sent", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_web_page_in_the_guest_can_not_run_code(server, sent):
    """Without asking first, a page may send these to any address."""
    response = server.request("POST", "/execute", {"code": "1"}, {"Content-Type": sent})
    assert response.status == 422 and b"Content-Type" in response.read()


def test_the_type_may_have_parameters(server):
    response = server.request("POST", "/execute", {"code": "6 * 7"}, {"Content-Type": "Application/JSON; charset=utf-8"})
    assert interpreter.Execution(response.read()).main["text"] == "42"


def test_a_chunked_request(server):
    response = server.request("POST", "/execute", iter([b'{"code": ', b'"6 * 7"}']))
    assert interpreter.Execution(response.read()).main["text"] == "42"


@pytest.mark.parametrize("body, status, message", [
    ({"code": "1", "context_id": "x", "language": "python"}, 400, "Only one of context_id or language can be provided"),
    ({"code": "1", "context_id": "no-such"}, 404, "Context no-such not found"),
    ({"code": "1", "language": "java"}, 500, 'Language "java" is not supported; there are: python, '),
    ({"code": 1}, 422, '"code" must be a string'),
    ({}, 422, '"code" is missing'),
    ("[1]", 422, "The body is not a JSON object"),
    ("{", 422, "The body is not JSON"),
    (b"\xff", 422, "The body is not JSON"),
    ("", 422, "The body is not JSON"),
    ("[" * 100_000, 422, "The body is not JSON"),
    ({"code": "1", "env_vars": {"A": 1}}, 400, 'The value of the environment variable "A" must be a string'),
    ({"code": "1", "env_vars": {"A": "\0"}}, 400, 'The value of the environment variable "A" must be a string without'),
    ({"code": "1", "env_vars": {"A=B": "1"}}, 400, "'A=B' is no name of an environment variable"),
    ({"code": "1", "env_vars": []}, 422, '"env_vars" must be an object'),
])
def test_what_is_refused(server, body, status, message):
    found, text = server.call("POST", "/execute", body)
    assert found == status and text.startswith(message)


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/", 404), ("GET", "/execute", 405), ("PUT", "/contexts", 405), ("GET", "/contexts/x", 405),
    ("DELETE", "/contexts/no-such", 404), ("POST", "/contexts/no-such/restart", 404),
])
def test_what_is_not_there(server, method, path, status):
    assert server.call(method, path)[0] == status


def test_a_request_has_a_limit():
    with interpreter.Server("--max-request", "1") as small:
        assert small.run("x = '" + "x" * 900_000 + "'; len(x)").main["text"] == "900000"
        try:
            status, _ = small.call("POST", "/execute", {"code": "x = '" + "x" * 1_100_000 + "'"})
        except ConnectionError:
            pass  # it hung up while the rest was still being sent
        else:
            assert status == 400
        assert small.run("len(x)").main["text"] == "900000"


class Envd(http.server.BaseHTTPRequestHandler):
    """Who knows the variables of the sandbox: the parts of envd that the server asks."""

    def do_GET(self):
        allowed = self.headers.get("X-Access-Token") == "secret" and self.path == "/envs"
        body = json.dumps({"OF_SANDBOX": "yes", "BOTH": "sandbox"} if allowed else {}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_variables_of_the_sandbox_are_in_every_cell():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Envd) as envd:
        threading.Thread(target=envd.serve_forever, daemon=True).start()
        with interpreter.Server("--envd", f"http://127.0.0.1:{envd.server_port}") as asking:
            def ask(headers):
                body = {"code": "import os; [os.environ.get(n) for n in ('OF_SANDBOX', 'BOTH')]",
                        "env_vars": {"BOTH": "cell"}}
                return interpreter.Execution(asking.request("POST", "/execute", body, headers).read()).main["text"]
            assert ask({"X-Access-Token": "secret"}) == "['yes', 'cell']"
            assert ask({}) == "[None, 'cell']"
        envd.shutdown()
