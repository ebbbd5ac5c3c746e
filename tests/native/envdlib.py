# SPDX-License-Identifier: Apache-2.0
"""The agent's envd on a port of this machine's loopback, and what speaks to it."""

import base64
import errno
import http.client
import json
import socket
import struct

from agentlib import ENVD, AgentError


def free_port():
    with socket.socket(socket.AF_INET6) as s:
        s.bind(("::", 0))
        return s.getsockname()[1]


class Envd:
    """One that the agent serves, with the token that it was given."""

    def __init__(self, agent, token=None, **fields):
        self.agent, self.token = agent, token
        # Others on this machine take ports too.
        for left in reversed(range(10)):
            self.port = free_port()
            try:
                self.configure(token, **fields)
                break
            except AgentError as e:
                if e.errno != errno.EADDRINUSE or left == 0:
                    raise

    def configure(self, token=None, **fields):
        self.token = token
        if token is not None:
            fields["TOKEN"] = token
        self.agent.call(ENVD, PORT=self.port, **fields)

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def headers(self, user=None, **more):
        out = dict(more)
        if self.token is not None:
            out["X-Access-Token"] = self.token
        if user is not None:
            out["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        return out

    def request(self, method, target, body=None, headers=None, user=None):
        """Status, fields and body of the answer."""
        c = self.connect()
        try:
            c.request(method, target, body, {**self.headers(user), **(headers or {})})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def json(self, method, target, body=None, **kwargs):
        status, headers, data = self.request(method, target, body, **kwargs)
        assert headers["Content-Type"] == "application/json", (status, headers, data)
        return status, json.loads(data)

    def call(self, method, message, **kwargs):
        """A call of one message to one."""
        return self.json("POST", f"/{method}", json.dumps(message), headers={"Content-Type": "application/json"}, **kwargs)

    def stream(self, method, message, user=None, **headers):
        return EventStream(self, method, message, user, headers)

    def start(self, *argv, user=None, headers=None, stdin=None, pty=None, tag=None, **process):
        message = {"process": {"cmd": argv[0], "args": list(argv[1:]), **process}}
        if stdin is not None:
            message["stdin"] = stdin
        if pty is not None:
            message["pty"] = {"size": {"cols": pty[0], "rows": pty[1]}}
        if tag is not None:
            message["tag"] = tag
        return self.stream("process.Process/Start", message, user, **(headers or {}))

    def run(self, *argv, **kwargs):
        """The end event of a program and what it wrote to each stream."""
        with self.start(*argv, **kwargs) as s:
            assert "start" in s.event()
            return s.to_end()


class StreamError(Exception):
    """A stream that ended with an error."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code, self.message = error["code"], error["message"]


class EventStream:
    """Envelopes of one streaming call, as they come."""

    def __init__(self, envd, method, message, user, headers):
        self.conn = envd.connect()
        data = json.dumps(message).encode()
        self.conn.request("POST", f"/{method}", struct.pack(">BI", 0, len(data)) + data, {
            **envd.headers(user), "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", **headers})
        self.response = self.conn.getresponse()
        assert self.response.status == 200, (self.response.status, self.response.read())
        assert self.response.headers["Content-Type"] == "application/connect+json"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.response.close()
        self.conn.close()

    def message(self):
        """The next one; None at the orderly end."""
        head = self.response.read(5)
        assert len(head) == 5, "cut off"
        flags, size = struct.unpack(">BI", head)
        data = self.response.read(size)
        assert len(data) == size
        message = json.loads(data)
        if flags == 0:
            return message
        assert flags == 2 and self.response.read() == b""
        if "error" in message:
            raise StreamError(message["error"])
        assert message == {}
        return None

    def event(self):
        message = self.message()
        return message and message["event"]

    def to_end(self):
        out = {"stdout": bytearray(), "stderr": bytearray(), "pty": bytearray()}
        while True:
            event = self.event()
            if "end" in event:
                assert self.message() is None
                return event["end"], {name: bytes(data) for name, data in out.items()}
            for name, data in event.get("data", {}).items():
                out[name] += base64.b64decode(data, validate=True)

    def until(self, name, text):
        """Reads on until the output has text."""
        out = b""
        while text not in out:
            for which, data in self.event().get("data", {}).items():
                assert which == name
                out += base64.b64decode(data, validate=True)
        return out
