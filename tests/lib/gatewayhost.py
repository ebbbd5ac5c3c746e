# SPDX-License-Identifier: Apache-2.0
"""cube-gateway as a service of this host, and a client at its socket."""

import http.client
import json
import socket

from cubetest import run

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
