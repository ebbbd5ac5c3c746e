# SPDX-License-Identifier: Apache-2.0
"""A private system bus with the bus front over a fake core (fake-core.c), whose guests are the agent's own code in
processes of this machine; and polkit as dbusmock has it."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get('CUBE_BUILD', TOP / 'build'))
CUBED = os.environ.get('CUBED', str(BUILD / 'daemon/cubed'))
FAKE_CUBED = os.environ.get('FAKE_CUBED', str(BUILD / 'tests/dbus/fake-cubed'))
AGENT_HARNESS = os.environ.get('AGENT_HARNESS', str(BUILD / 'tests/native/agent-harness'))
CUBECTL = os.environ.get('CUBECTL', str(BUILD / 'ctl/cubectl'))

NAME = 'org.cubed.Cube1'
ROOT = '/org/cubed/Cube1'
NOBODY = 65534


def wait_for(what, condition, timeout=60):
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f'gave up waiting for {what}'
        time.sleep(0.02)


class Host:
    """The bus, what runs on it, and ways to call it."""

    def __init__(self, directory, policies=(TOP / 'dbus/org.cubed.Cube1.conf',), own_network=False, guest_network=False,
                 patience='60s'):
        """own_network: guests have a loopback of their own, on which any port is free. guest_network: each has one.
        patience: for how long cubed waits for an answer on the bus."""
        self.dir = directory
        self.patience = patience
        self.own_network = own_network
        self.processes = []
        self.hold = directory / 'hold'
        self.envd_taken = directory / 'envd-taken'
        self.envd_hold = directory / 'envd-hold'
        self.stop_hold = directory / 'stop-hold'
        self.env = dict(os.environ, DBUS_SYSTEM_BUS_ADDRESS=f'unix:path={directory}/bus', LC_ALL='C.UTF-8',
                        SYSTEMD_BUS_TIMEOUT='60s', TERM='dumb', FAKE_NETWORK_HOLD=str(self.hold),
                        FAKE_ENVD_TAKEN=str(self.envd_taken), FAKE_ENVD_HOLD=str(self.envd_hold),
                        FAKE_STOP_HOLD=str(self.stop_hold))
        if guest_network:
            self.env['FAKE_GUEST_NETWORK'] = '1'
        text = (TOP / 'tests/dbus/bus.conf.in').read_text()
        text = text.replace('@SOCKET@', f'{directory}/bus')
        text = text.replace('@POLICIES@', '\n'.join(f'  <include>{p}</include>' for p in policies))
        (directory / 'bus.conf').write_text(text)

    def start(self, argv, **kwargs):
        process = subprocess.Popen([str(a) for a in argv], env=self.env, **kwargs)
        self.processes.append(process)
        return process

    def start_bus(self):
        self.start(['dbus-daemon', f'--config-file={self.dir}/bus.conf', '--nofork'], stderr=subprocess.DEVNULL)
        wait_for('the bus', self.bus_listens)

    def bus_listens(self):
        """Its socket is there before that."""
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(str(self.dir / 'bus')) == 0

    def start_cubed(self):
        self.log_path = self.dir / 'cubed.log'
        argv = [FAKE_CUBED, AGENT_HARNESS]
        if self.own_network:
            argv = ['unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh', *argv]
        argv = ['env', f'SYSTEMD_BUS_TIMEOUT={self.patience}', *argv]
        with open(self.log_path, 'w') as log:
            self.cubed = self.start(argv, stdout=subprocess.PIPE, stderr=log)
        assert self.cubed.stdout.readline() == b'ready\n', self.log_path.read_text()

    def log(self):
        return self.log_path.read_text()

    def start_polkit(self):
        process = self.start(['/usr/bin/python3', '-m', 'dbusmock', '--system', '--template', 'polkitd'],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for('polkit', lambda: 'org.freedesktop.PolicyKit1' in self.busctl('list', '--no-pager').stdout)
        return process

    def mock_polkit(self, method, signature, *arguments):
        result = self.busctl('call', 'org.freedesktop.PolicyKit1', '/org/freedesktop/PolicyKit1/Authority',
                             'org.freedesktop.DBus.Mock', method, signature, *arguments)
        assert result.returncode == 0, result.stderr

    def run(self, *argv, uid=0, gid=None, **kwargs):
        gid = uid if gid is None else gid
        kwargs.setdefault('text', True)
        kwargs.setdefault('timeout', 60)
        if uid:
            kwargs['user'], kwargs['group'], kwargs['extra_groups'] = uid, gid, []
        if 'input' not in kwargs and 'stdin' not in kwargs:
            kwargs['stdin'] = subprocess.DEVNULL
        return subprocess.run([str(a) for a in argv], env={**self.env, **kwargs.pop('env', {})},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)

    def busctl(self, *argv, **kwargs):
        return self.run('busctl', '--system', *argv, **kwargs)

    def call(self, path, interface, method, signature='', *arguments, **kwargs):
        return self.busctl('call', NAME, path, f'{NAME}.{interface}', method, signature, *arguments, **kwargs)

    def ctl(self, *argv, **kwargs):
        return self.run(CUBECTL, *argv, **kwargs)

    def create(self, *argv, **kwargs):
        result = self.ctl('create', *argv, **kwargs)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def ids(self):
        result = self.ctl('list', '--no-legend')
        assert result.returncode == 0, result.stderr
        return [line.split()[0] for line in result.stdout.splitlines()]

    def end(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def missing():
    if os.geteuid() != 0:
        return 'needs root'
    for program in (FAKE_CUBED, AGENT_HARNESS, CUBECTL):
        if not os.access(program, os.X_OK):
            return f'not built: {program}'
    for program in ('dbus-daemon', 'busctl'):
        if not shutil.which(program):
            return f'no {program} here'
    return None


@contextlib.contextmanager
def started_host(directory, **kwargs):
    """A host that runs, and ends well."""
    for d in (directory, directory.parent, directory.parent.parent):
        d.chmod(d.stat().st_mode | 0o055)
    host = Host(directory, **kwargs)
    try:
        host.start_bus()
        host.start_cubed()
        yield host
    finally:
        host.end()
    assert host.cubed.returncode == 0, host.log()
