# SPDX-License-Identifier: Apache-2.0
"""cube-fetch and its relay behind their sockets, as systemd starts them: the one in a network of its own, the other with a file
of hosts in which *.test are addresses of loopback."""

import contextlib
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys

import gateway as gw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'lib'))

import ociimage  # noqa: E402
from registry import PASSWORD, USER as REGISTRY_USER, Registry  # noqa: E402

USER = pwd.getpwnam('news').pw_uid
RELAY_USER = pwd.getpwnam('uucp').pw_uid
FETCH = gw.bus_host.BUILD / 'fetch/cube-fetch'
RELAY = gw.bus_host.BUILD / 'fetch/cube-fetch-relay'
HOSTS = '127.0.0.1 registry.test\n127.0.0.2 inside.test\n'
# What it was called with, and what is in its environment.
SKOPEO = '#!/bin/sh\nfor a in "$0" "$@"; do echo "$a"; done >>{}\nenv >>{}\nexec /usr/bin/skopeo "$@"\n'


def missing():
    for program in ('skopeo', 'docker-registry', 'systemd-socket-activate', 'setpriv', 'ip'):
        if not shutil.which(program):
            return f'{program} is not there'
    return None


class Fetching:
    def __init__(self, gateway, directory, certificates):
        self.dir = directory
        self.place = directory / 'place'
        self.sockets = [gateway.dir / 'fetch', gateway.dir / 'fetch-relay']
        self.certificates = certificates
        self.calls = directory / 'calls'
        self.log_path = directory / 'log'
        self.hosts = directory / 'hosts'
        self.hosts.write_text(HOSTS)
        (directory / 'bin').mkdir()
        (directory / 'bin/skopeo').write_text(SKOPEO.format(self.calls, self.calls))
        self.processes = []
        self.place.mkdir()
        self.calls.touch()
        for path in (self.place, self.calls):
            os.chown(path, USER, USER)
        for d in (directory, directory / 'bin', directory / 'bin/skopeo', *list(directory.parents)[:2]):
            d.chmod(d.stat().st_mode | 0o055)

    def start(self):
        run = '{} && exec setpriv --reuid {} --regid {} --clear-groups --no-new-privs {}'
        self._listen(self.sockets[0], ['--net'], run.format('ip link set lo up', USER, USER, FETCH))
        self._listen(self.sockets[1], ['--mount'], run.format(f'mount --bind {self.hosts} /etc/hosts', RELAY_USER, RELAY_USER, RELAY))

    def _listen(self, path, namespaces, script):
        env = {'PATH': f'{self.dir}/bin:{os.environ["PATH"]}', 'TMPDIR': str(self.place), 'SSL_CERT_FILE': str(self.certificates)}
        with open(self.log_path, 'a') as log:
            self.processes.append(subprocess.Popen(
                ['systemd-socket-activate', '--accept', '--seqpacket', f'--listen={path}', *(f'--setenv={n}={v}' for n, v in env.items()),
                 'unshare', *namespaces, 'sh', '-c', script], stdout=log, stderr=log))
        gw.wait_for('the socket', path.exists)
        os.chown(path, gw.UID, gw.UID)
        path.chmod(0o600)

    def stop(self):
        for process in self.processes:
            process.terminate()
            process.wait()
        self.processes = []
        for path in self.sockets:
            pathlib.Path(path).unlink(missing_ok=True)

    def at_rest(self):
        return list(self.place.iterdir()) == [] and not self.running()

    def running(self):
        found = []
        for p in pathlib.Path('/proc').iterdir():
            try:
                if p.name.isdigit() and p.stat().st_uid in (USER, RELAY_USER):
                    found.append((p / 'cmdline').read_text())
            except OSError:
                pass
        return found

    def log(self):
        return self.log_path.read_text()


class Silent:
    """A registry, or what else listens at an address, that takes connections and says nothing."""

    def __init__(self, address='127.0.0.1'):
        self.socket = socket.create_server((address, 0))
        self.port = self.socket.getsockname()[1]

    def was_asked(self):
        self.socket.settimeout(0)
        try:
            self.socket.accept()[0].close()
            return True
        except BlockingIOError:
            return False


def make_registry(directory, layout):
    """With TLS, a password, and the image as team/app:1; for clients that read its CA, and know its name."""
    made = Registry(directory, True, 'IP:127.0.0.1,DNS:registry.test,DNS:inside.test')
    made.push(layout, 'team/app:1')
    for d in (made.directory, *list(made.directory.parents)[:2]):
        d.chmod(d.stat().st_mode | 0o055)
    made.name = f'registry.test:{made.port}'
    return made


@contextlib.contextmanager
def imaged(gateway, mktemp):
    """A registry that the gateway has images fetched from: the gateway's settings for it, and what clients are to know."""
    layout = ociimage.Layout(mktemp('image') / 'layout')
    layout.add_image([ociimage.layer(('f', 'etc/hostname', 'x', 0o644, 0, {}))], {})
    registry = make_registry(mktemp('registry'), layout)
    fetching = Fetching(gateway, mktemp('fetch'), registry.directory / 'certs/ca.crt')
    fetching.start()
    try:
        yield (f'ImageRegistries={registry.name}\nImageNetworks=127.0.0.1\n',
               {'CUBE_IMAGE': f'{registry.name}/team/app:1', 'CUBE_IMAGE_USER': REGISTRY_USER, 'CUBE_IMAGE_PASSWORD': PASSWORD})
    finally:
        fetching.stop()
        registry.stop()
