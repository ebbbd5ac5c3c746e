# SPDX-License-Identifier: Apache-2.0
"""The agent's envd on a port of this machine's loopback, and what speaks to it."""

import base64
import http.client
import json
import socket
import struct

from agentlib import ENVD


def free_port():
    with socket.socket(socket.AF_INET6) as s:
        s.bind(("::", 0))
        return s.getsockname()[1]


class Envd:
    """One that the agent serves, with the token that it was given."""

    def __init__(self, agent, token=None, **fields):
        self.agent, self.token = agent, token
        self.port = free_port()
        self.configure(token, **fields)

    def configure(self, token=None, **fields):
        self.token = token
        if token is not None:
            fields["TOKEN"] = token
        self.agent.call(ENVD, PORT=self.port, **fields)

    def connect(self, timeout=30):
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
