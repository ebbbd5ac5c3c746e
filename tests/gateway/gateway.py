# SPDX-License-Identifier: Apache-2.0
"""cube-gateway as a process of a user of its own, on a private bus with cubed's bus front over a fake core."""

import contextlib
import http.client
import importlib.util
import json
import os
import pathlib
import pwd
import re
import socket
import subprocess

from description import Description

TOP = pathlib.Path(__file__).resolve().parents[2]

spec = importlib.util.spec_from_file_location('bus_host', TOP / 'tests/dbus/bushost.py')
bus_host = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bus_host)

wait_for = bus_host.wait_for
DESCRIPTION = Description()
GATEWAY = os.environ.get('CUBE_GATEWAY', str(bus_host.BUILD / 'gateway/cube-gateway'))
# Whom the bus knows, and nobody else is here.
UID = pwd.getpwnam('games').pw_uid
SECRET = re.compile(r'e2b_[0-9a-f]{40}')
NOBODY_KEY = 'e2b_' + '0123456789' * 4


def allow(host, *more):
    """polkit lets everybody do what the gateway needs, and more."""
    actions = ['create', 'manage-templates', *more]
    host.mock_polkit('SetAllowed', 'as', str(len(actions)), *(f'org.cubed.cube1.{a}' for a in actions))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__('gateway', timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # With a time-out it would not wait for room in the queue.
        self.sock.connect(self.path)
        self.sock.settimeout(self.timeout)


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        assert self.headers['Content-Type'] == 'application/json; charset=utf-8'
        return json.loads(self.body)


class Client:
    """With the key of one tenant."""

    def __init__(self, gateway, key):
        self.gateway = gateway
        self.key = key

    def raw(self, method, path, body=None, headers=(), connection=None):
        c = connection or UnixConnection(self.gateway.socket)
        headers = {'X-API-Key': self.key, **dict(headers)} if self.key else dict(headers)
        c.request(method, path, body, headers)
        reply = Reply(c.getresponse())
        if not connection:
            c.close()
        DESCRIPTION.check(method, path, reply)
        return reply

    def call(self, method, path, body=None, status=200):
        reply = self.raw(method, path, None if body is None else json.dumps(body), {'Content-Type': 'application/json'})
        assert reply.status == status, (reply.status, reply.body)
        if reply.status == 204:
            assert reply.body == b''
            return None
        value = reply.json
        if reply.status >= 400:
            assert value['code'] == status and isinstance(value['message'], str) and value['message'], value
        return value

    def fails(self, method, path, status, body=None):
        return self.call(method, path, body, status)['message']

    def create(self, **options):
        return self.call('POST', '/v2/sandboxes', {'templateID': 'python', **options}, 201)['sandboxID']


class Gateway:
    def __init__(self, host, directory):
        self.host = host
        self.dir = directory
        self.socket = directory / 'http'
        self.state = directory / 'state'
        self.host_key = directory / 'host-key'
        self.config = directory / 'gateway.conf'
        self.log_path = directory / 'gateway.log'
        self.ingress_dir = directory / 'ingress'
        self.ingress_dir.mkdir()
        os.chown(self.ingress_dir, UID, UID)
        self.process = None
        self.state.mkdir()
        os.chown(self.state, UID, UID)
        result = host.run(GATEWAY, f'--new-host-key={self.host_key}')
        assert result.returncode == 0, result.stderr
        os.chown(self.host_key, UID, UID)
        self.unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.unix.bind(str(self.socket))
        # As the unit has it.
        self.unix.listen(1024)
        self.listener = self.unix

    def start(self, config=''):
        self.config.write_text(f'[Gateway]\nRequestsPerSecond=100000\nRequestsBurst=1000000\n{config}')
        fd = self.listener.fileno()
        script = f'exec 3<&{fd}; [ {fd} = 3 ] || exec {fd}<&-; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@"'
        with open(self.log_path, 'a') as log:
            self.process = subprocess.Popen(
                ['bash', '-c', script, GATEWAY, f'--config={self.config}', f'--state={self.state}', f'--host-key={self.host_key}',
                 f'--ingress={self.ingress_dir}/control', f'--fetch={self.dir}/fetch', f'--fetch-relay={self.dir}/fetch-relay'],
                env=self.host.env, stderr=log, pass_fds=[fd], user=UID, group=UID, extra_groups=[])
        wait_for('cube-gateway', lambda: self.process.poll() is not None or self.on_bus())
        assert self.process.poll() is None, self.log()

    def run_to_the_end(self):
        """Of one that can't start: its status, and what it said."""
        result = self.host.run(GATEWAY, f'--config={self.config}', f'--state={self.state}', f'--host-key={self.host_key}')
        return result.returncode, result.stderr

    def on_bus(self):
        return 'org.cubed.Gateway1' in self.host.busctl('list', '--no-pager', '--acquired').stdout

    def stop(self):
        if not self.process:
            return
        self.process.terminate()
        status = self.process.wait(60)
        self.process = None
        assert status == 0, self.log()

    def restart(self, config=''):
        self.stop()
        self.start(config)

    @contextlib.contextmanager
    def on_loopback(self, config=''):
        """For clients that know no unix sockets: its URL."""
        self.stop()
        with socket.create_server(('127.0.0.1', 0), backlog=1024) as self.listener:
            self.start(config)
            try:
                yield f'http://127.0.0.1:{self.listener.getsockname()[1]}'
            finally:
                self.listener = self.unix
                self.restart()

    def log(self):
        return self.log_path.read_text()

    def key(self, *argv):
        result = self.host.ctl('apikey', 'create', *argv)
        assert result.returncode == 0, result.stderr
        assert SECRET.fullmatch(result.stdout.strip())
        return result.stdout.strip()

    def client(self, *argv):
        return Client(self, self.key(*argv))

    def anonymous(self):
        return Client(self, None)
