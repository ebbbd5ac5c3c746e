# SPDX-License-Identifier: Apache-2.0
"""Debian's registry of container images on loopback: by plain HTTP, or by TLS with a CA of its own and a password."""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import time

USER, PASSWORD = 'cube', 'only for tests'
HASH = '$2b$04$HYIdsxK6PlnMzajAyz18s.H3frbckI1Nu2Hkglyp1VIPdJFa3EF2q'


def run(*argv, **options):
    return subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options).stdout


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as s:
        return s.getsockname()[1]


def make_certificate(directory, names='IP:127.0.0.1'):
    """directory/certs/ca.crt and directory/key."""
    (directory / 'certs').mkdir()
    run('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
        '-subj', '/CN=registry', '-addext', f'subjectAltName={names}', '-keyout', directory / 'key',
        '-out', directory / 'certs/ca.crt')


def write_authfile(path, address, password):
    run('skopeo', 'login', '--authfile', path, '--tls-verify=false', '--username', USER, '--password-stdin', address,
        input=password.encode())


class Registry:
    """Its address is 127.0.0.1:PORT; directory/certs has its CA, and directory/auth.json the password."""

    def __init__(self, directory, tls, names='IP:127.0.0.1'):
        self.directory = directory
        self.tls = tls
        config = {'version': '0.1', 'log': {'level': 'error'}, 'storage': {'filesystem': {'rootdirectory': str(directory / 'data')}},
                  'http': {}}
        if tls:
            make_certificate(directory, names)
            (directory / 'users').write_text(f'{USER}:{HASH}\n')
            config['http']['tls'] = {'certificate': str(directory / 'certs/ca.crt'), 'key': str(directory / 'key')}
            config['auth'] = {'htpasswd': {'realm': 'cube', 'path': str(directory / 'users')}}
        # It can't be told to take any port, and one that was free may be somebody else's by then.
        assert any(self._start(config) for _ in range(5)), 'the registry has ended'
        if tls:
            write_authfile(directory / 'auth.json', self.address, PASSWORD)

    def _start(self, config):
        self.port = free_port()
        self.address = f'127.0.0.1:{self.port}'
        config['http']['addr'] = self.address
        (self.directory / 'config.yml').write_text(json.dumps(config))
        self.process = subprocess.Popen(['docker-registry', 'serve', str(self.directory / 'config.yml')], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self._answers():
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.1)
        self.stop()
        raise AssertionError('the registry does not answer')

    def _answers(self):
        c = http.client.HTTPSConnection(self.address, timeout=10, context=ssl._create_unverified_context()) if self.tls else \
            http.client.HTTPConnection(self.address, timeout=10)
        with contextlib.closing(c), contextlib.suppress(OSError, http.client.HTTPException):
            c.request('GET', '/v2/')
            return c.getresponse().getheader('Docker-Distribution-Api-Version') is not None
        return False

    def push(self, layout, name):
        options = ['--dest-authfile', self.directory / 'auth.json', '--dest-cert-dir', self.directory / 'certs'] if self.tls else \
            ['--dest-tls-verify=false']
        run('skopeo', 'copy', *options, f'oci:{layout.directory}', f'docker://{self.address}/{name}')

    def stop(self):
        self.process.terminate()
        self.process.wait()
