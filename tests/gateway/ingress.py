# SPDX-License-Identifier: Apache-2.0
"""haproxy with our configuration, in a network of its own, into which the fake core's guests have links as they have on a
host; and what clients speak to it."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys

import gateway as gw
from guest import socket_in

CONFIG = gw.TOP / 'gateway/ingress.cfg'
WEB = pathlib.Path(__file__).with_name('web.py')
DOMAIN = 'cube.test'
HTTP, HTTPS = 3000, 8443
# Where the host's end of each link is.
HOST = '10.99.255.254'
ENVD = 49983


def set_up(host, root, *options):
    """What cubectl writes below a directory, and prints."""
    result = host.ctl('ingress', 'setup', f'--root={root}', *options)
    assert result.returncode == 0, result.stderr
    return result


def variables_of(root):
    """As systemd reads them."""
    lines = (root / 'etc/cubed/ingress.conf').read_text().splitlines()
    return dict(line.split('=', 1) for line in lines if not line.startswith('#'))


class Ingress:
    def __init__(self, gateway):
        self.gateway = gateway
        self.dir = gateway.ingress_dir
        set_up(gateway.host, self.dir, f'--domain={DOMAIN}')
        files = self.dir / 'etc/cubed/ingress'
        self.ca = files / 'ca.pem'
        os.chown(files / 'tls.pem', gw.UID, gw.UID)
        # As its unit has it.
        gateway.socket.chmod(0o666)
        self.variables = {'RUN': str(self.dir), 'GATEWAY': str(gateway.socket), 'CREDENTIALS_DIRECTORY': str(files),
                          'CONNECTIONS': '2000', **variables_of(self.dir)}
        self.log_path = self.dir / 'haproxy.log'
        self.process = None
        self.n_links = 0
        self.network = subprocess.Popen(['unshare', '--net', 'sh', '-c', 'ip link set lo up && echo ready && exec sleep infinity'],
                                        stdout=subprocess.PIPE)
        assert self.network.stdout.readline() == b'ready\n'

    def run(self, *argv, pid=None, **kwargs):
        return subprocess.run(self.inside(*argv, pid=pid), check=True, capture_output=True, text=True, **kwargs)

    def inside(self, *argv, pid=None):
        return ['nsenter', f'--net=/proc/{pid or self.network.pid}/ns/net', '--', *map(str, argv)]

    def check(self, **variables):
        return subprocess.run(['haproxy', '-c', '-f', CONFIG], env={**os.environ, **self.variables, **variables},
                              capture_output=True, text=True)

    def start(self, told=True):
        """told: once it knows all routes."""
        with open(self.log_path, 'a') as log:
            self.process = subprocess.Popen(
                self.inside('setpriv', f'--reuid={gw.UID}', f'--regid={gw.UID}', '--clear-groups', 'haproxy', '-db', '-f', CONFIG),
                env={**os.environ, **self.variables}, stdout=log, stderr=log)
        gw.wait_for('haproxy', lambda: self.process.poll() is not None or (self.routes() is not None if told else self.listens()))
        assert self.process.poll() is None, self.log_path.read_text()
        return self

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(60)
        self.process = None

    def end(self):
        self.stop()
        self.network.kill()
        self.network.wait()
        self.network.stdout.close()
        shutil.rmtree(self.dir / 'etc')

    def listens(self):
        with socket_in(self.network.pid) as s:
            return s.connect_ex(('127.0.0.1', HTTP)) == 0

    def routes(self):
        """What haproxy knows: None until it knows all of it."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.dir / 'control'))
            s.sendall(b'show map /dev/null\n')
            text = b''.join(iter(lambda: s.recv(65536), b'')).decode()
            routes = dict(line.split(' ')[1:3] for line in text.splitlines() if line)
            return {k: v for k, v in routes.items() if k != '-ready'} if '-ready' in routes else None
        return None

    def connect(self, port=HTTP, timeout=60, to='127.0.0.1'):
        s = socket_in(self.network.pid)
        s.settimeout(timeout)
        s.connect((to, port))
        return s

    def tls(self, host, alpn=('http/1.1',), **kwargs):
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(list(alpn))
        return context.wrap_socket(self.connect(HTTPS, **kwargs), server_hostname=host)

    def cut(self, address):
        """What cube-netd does to a sandbox that is killed or paused."""
        self.run('ss', '-K', 'dst', address)

    def link(self, sandbox):
        """A guest's link, to where cubed says that it is."""
        show = self.gateway.host.ctl('show', sandbox, '-p', 'VMMPID,NetworkAddress', '--value')
        pid, address = sorted(show.stdout.split(), key=lambda v: '.' in v)
        self.n_links += 1
        name = f'v{self.n_links}'
        self.run('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', f'/proc/{pid}/ns/net')
        self.run('sh', '-c', f'ip addr add {HOST}/32 dev {name}; ip link set {name} up; ip route add {address}/32 dev {name}')
        self.run('sh', '-c', f'ip addr add {address}/32 dev eth0; ip link set eth0 up; ip route add {HOST}/32 dev eth0', pid=pid)
        return pid, address


class Guest:
    """A sandbox with a link, and web servers in it."""

    def __init__(self, ingress, client, made):
        self.ingress, self.client = ingress, client
        self.made, self.id = made, made['sandboxID']
        self.pid, self.address = ingress.link(self.id)
        self.servers = []

    def serve(self, port, kind='http'):
        key = [f'{self.ingress.variables["CREDENTIALS_DIRECTORY"]}/tls.pem'] if kind == 'tls' else []
        server = subprocess.Popen(self.ingress.inside(sys.executable, WEB, kind, port, *key, pid=self.pid), stdout=subprocess.PIPE)
        self.servers.append(server)
        assert server.stdout.readline() == b'ready\n'
        return self

    def end(self):
        for server in self.servers:
            server.kill()
            server.wait()
            server.stdout.close()

    def host(self, port):
        return f'{port}-{self.id}.{DOMAIN}'

    def kill(self):
        self.client.call('DELETE', f'/sandboxes/{self.id}', status=204)


class Connection(http.client.HTTPConnection):
    """HTTP/1.1 over a socket that is there."""

    def __init__(self, sock, host):
        super().__init__(host)
        self.sock = sock

    def get(self, path, headers=(), method='GET', body=None):
        self.request(method, path, body, dict(headers))
        response = self.getresponse()
        return response.status, response.headers, response.read()


def by_headers(ingress, sandbox, port, path='/', headers=(), **kwargs):
    return one(ingress, 'gw:3000', path, {'E2b-Sandbox-Id': sandbox, 'E2b-Sandbox-Port': str(port), **dict(headers)}, **kwargs)


def one(ingress, host, path='/', headers=(), **kwargs):
    c = Connection(ingress.connect(), host)
    with contextlib.closing(c):
        return c.get(path, headers, **kwargs)


def error(reply):
    """Status and body of an answer of haproxy's own."""
    status, headers, body = reply
    assert headers['Content-Type'] == 'application/json; charset=utf-8', (status, headers, body)
    return status, json.loads(body)


def raw(ingress, data, timeout=60):
    """All that comes back until the connection is closed."""
    with ingress.connect(timeout=timeout) as s:
        s.sendall(data)
        return b''.join(iter(lambda: s.recv(65536), b''))


class Http2:
    """One connection, header blocks of literals only."""

    DATA, HEADERS, RST, SETTINGS = 0, 1, 3, 4
    END_STREAM, END_HEADERS = 1, 4

    def __init__(self, sock):
        self.sock, self.buffer = sock, b''
        sock.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + self.frame(self.SETTINGS, 0, 0, b''))

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload

    @staticmethod
    def literal(name, value):
        assert len(name) < 127 and len(value) < 127
        return b'\0' + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    def request(self, stream, host, path, headers=(), body=None):
        fields = [(':method', 'GET' if body is None else 'POST'), (':scheme', 'https'), (':authority', host), (':path', path), *headers]
        flags = self.END_HEADERS | (self.END_STREAM if body is None else 0)
        out = self.frame(self.HEADERS, flags, stream, b''.join(self.literal(*f) for f in fields))
        if body is not None:
            out += self.frame(self.DATA, self.END_STREAM, stream, body)
        self.sock.sendall(out)

    def next(self):
        """Kind, flags, stream and payload of the next frame that says something."""
        while True:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], 'big'):
                data = self.sock.recv(65536)
                if not data:
                    return None
                self.buffer += data
            size = int.from_bytes(self.buffer[:3], 'big')
            kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], 'big')
            payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            if kind == self.SETTINGS and not flags & 1:
                self.sock.sendall(self.frame(self.SETTINGS, 1, 0, b''))
            if kind in (self.DATA, self.HEADERS, self.RST):
                return kind, flags, stream, payload

    def answers(self, n):
        """Of n streams: all header blocks and all data."""
        blocks, data, ended = {}, {}, set()
        while len(ended) < n:
            kind, flags, stream, payload = self.next()
            assert kind != self.RST, payload
            into = blocks if kind == self.HEADERS else data
            into[stream] = into.get(stream, b'') + payload
            if flags & self.END_STREAM:
                ended.add(stream)
        return blocks, data


def at_once(*calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(c) for c in calls]]
