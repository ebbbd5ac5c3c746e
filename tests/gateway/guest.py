# SPDX-License-Identifier: Apache-2.0
"""Ports of the fake core's guests, each of which has a loopback of its own."""

import concurrent.futures
import ctypes
import http.client
import json
import os
import socket

ENVD_PORT = 49983
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def socket_in(pid):
    """A socket in the network of a process: it stays there, while the thread that went there ends."""
    def make():
        with open(f'/proc/{pid}/ns/net') as ns:
            if libc.setns(ns.fileno(), CLONE_NEWNET) < 0:
                raise OSError(ctypes.get_errno(), 'setns')
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()


class GuestConnection(http.client.HTTPConnection):
    """To a port of the guest of a sandbox."""

    def __init__(self, host, sandbox, port=ENVD_PORT, timeout=60):
        super().__init__('127.0.0.1', port, timeout=timeout)
        self.pid = int(host.ctl('show', sandbox, '-p', 'VMMPID', '--value').stdout)

    def connect(self):
        self.sock = socket_in(self.pid)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))


class Envd:
    """As its SDK would speak to it, with the token that a client was given."""

    def __init__(self, host, made):
        self.host = host
        self.id = made['sandboxID']
        self.token = made.get('envdAccessToken')

    def call(self, method, path, body=None, **headers):
        if self.token:
            headers['X-Access-Token'] = self.token
        c = GuestConnection(self.host, self.id)
        try:
            c.request(method, path, body, headers)
            r = c.getresponse()
            data = r.read()
            return r.status, json.loads(data) if data else None
        finally:
            c.close()

    def variables(self):
        status, value = self.call('GET', '/envs')
        assert status == 200, (status, value)
        return value

    def owner_of_a_new_file(self, path):
        """Whom its clients are without a word of theirs."""
        status, value = self.call('POST', f'/files?path={path}', b'x', **{'Content-Type': 'application/octet-stream'})
        assert status == 200, value
        return os.stat(value[0]['path']).st_uid
