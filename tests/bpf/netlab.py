# SPDX-License-Identifier: Apache-2.0
"""A host with a sandbox network, in namespaces: cube-netd, a world to talk to, and guests.

The process that imports this moves from namespace to namespace: a socket belongs to the one in which it was
made, wherever it is used. Nothing in here reaches a link of the machine that it runs on.
"""

import array
import contextlib
import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get('CUBE_BUILD', TOP / 'build'))

CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
MS_PRIVATE, MS_REC, MS_BIND = 0x40000, 0x4000, 0x1000
libc = ctypes.CDLL(None, use_errno=True)

GUEST_MAC, GATEWAY_MAC = '02:cb:ff:00:00:02', '02:cb:ff:00:00:01'
INNER4, GATEWAY4 = '169.254.77.2', '169.254.77.1'
INNER6, GATEWAY6 = 'fdcb:ed00::2', 'fdcb:ed00::1'
MARK = 0x100
RTF_LOCAL = 0x80000000

# what cube-netd is asked; net/net-proto.h
MAGIC, VERSION, REPLY = 0x4454454e, 4, 1
(PING, SETUP, SLOT_NEW, SLOT_KEEP, SLOT_FREE, POLICY_LOAD, POLICY_DROP, POLICY_SET, LIMITS_SET,
 STATISTICS, QUIESCE, CHECK, PARK) = range(1, 14)
EVENT_DENIED, EVENT_UPLINK, EVENT_TABLE, EVENT_NAME_DENIED, EVENT_LINKS_GONE = range(100, 105)
TAGS = ('message net4 net6 mark ingress_uid resolver4 resolver6 audit_sec limits mtu uplink slot address4 address6'
        ' policy flags special default allow deny inbound statistics reason protocol address port count direction name chains resolving').split()
NUMBERS = set('mark ingress_uid audit_sec mtu slot policy flags special protocol port count direction resolving'.split())
REASONS = ('allowed policy special host inbound owner spoofed malformed rate flows fragment unrelated').split()


def check(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def unshare(flags):
    check(libc.unshare(flags))


def mount(source, target, kind, flags=0):
    check(libc.mount(source.encode(), str(target).encode(), kind.encode() if kind else None, flags, None))


# For what has to come: on a machine that is busy it may take its time.
PATIENT = 60


class Netns:
    """One that lives as long as this object."""

    def __init__(self, fd=None):
        if fd is None:
            own = os.open('/proc/thread-self/ns/net', os.O_RDONLY | os.O_CLOEXEC)
            unshare(CLONE_NEWNET)
            fd = os.open('/proc/thread-self/ns/net', os.O_RDONLY | os.O_CLOEXEC)
            check(libc.setns(own, CLONE_NEWNET))
            os.close(own)
        self.fd = fd

    def path(self):
        return f'/proc/{os.getpid()}/fd/{self.fd}'

    def enter(self):
        check(libc.setns(self.fd, CLONE_NEWNET))

    @contextlib.contextmanager
    def inside(self):
        own = os.open('/proc/thread-self/ns/net', os.O_RDONLY | os.O_CLOEXEC)
        self.enter()
        try:
            yield self
        finally:
            check(libc.setns(own, CLONE_NEWNET))
            os.close(own)

    def run(self, *command, check=True, **more):
        with self.inside():
            return subprocess.run(command, check=check, text=True, capture_output=True, **more)

    def ip(self, *lines):
        for line in lines:
            r = self.run('ip', *line.split(), check=False)
            assert r.returncode == 0, f'ip {line}: {r.stderr}'

    def start(self, *command, **more):
        with self.inside():
            return subprocess.Popen(command, text=True, **more)

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM, proto=0, timeout=PATIENT):
        with self.inside():
            s = socket.socket(family, kind, proto)
        s.settimeout(timeout)
        return s

    def connect(self, address, port, timeout=PATIENT):
        s = self.socket(family_of(address), timeout=timeout)
        try:
            s.connect((address, port))
        except OSError:
            s.close()
            raise
        return s

    def listen(self, address, port):
        s = self.socket(family_of(address))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, port))
        s.listen(64)
        return s

    def udp(self, address=None, port=0, family=None):
        s = self.socket(family or family_of(address), socket.SOCK_DGRAM)
        if address:
            s.bind((address, port))
        return s

    def ping(self, address, size=8, timeout=PATIENT):
        """Whether it answers."""
        self.sysctl('ipv4/ping_group_range', '0 0')
        six = ':' in address
        with self.socket(family_of(address), socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP, timeout) as s:
            s.connect((address, 0))
            try:
                s.send(struct.pack('!BBHHH', 128 if six else 8, 0, 0, 0, 1) + bytes(size))
                return len(s.recv(65536)) == size + 8
            except OSError:
                return False

    def sysctl(self, key, value=None):
        path = '/proc/sys/net/' + key
        with self.inside():
            if value is None:
                return pathlib.Path(path).read_text(encoding='ascii').strip()
            pathlib.Path(path).write_text(str(value), encoding='ascii')
        return None

    def stat(self, name):
        text = self.run('nstat', '-asz', name).stdout
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(name))

    def close(self):
        os.close(self.fd)


def family_of(address):
    return socket.AF_INET6 if ':' in address else socket.AF_INET


# What the kernel may leave to who reads a tap (TUN_F_*): checksums; and segments, which takes the first.
CHECKSUM, SEGMENTS = 1, 7


def open_tap(name, offload=SEGMENTS):
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x0002 | 0x1000 | 0x4000))
    fcntl.ioctl(fd, 0x400454d8, struct.pack('i', 12))
    set_offload(fd, offload)
    return fd


def set_offload(fd, offload):
    """0, CHECKSUM or SEGMENTS, of both families"""
    fcntl.ioctl(fd, 0x400454d0, offload)


def spawn(command, fds, **more):
    """A program that inherits these as 3 and up, and nothing else."""
    def place():
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 500) for fd in fds]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
        os.closerange(3 + len(fds), 1024)
    return subprocess.Popen(command, preexec_fn=place, close_fds=False, **more)


def encode(values):
    out = b''
    for name, value in values:
        if name in NUMBERS:
            value = struct.pack('<I', value)
        elif isinstance(value, str):
            value = value.encode()
        out += struct.pack('<HHI', TAGS.index(name) + 1, 0, len(value)) + value + bytes(-len(value) % 8)
    return out


def decode(body):
    out = {}
    while body:
        tag, _, size = struct.unpack_from('<HHI', body)
        value = body[8:8 + size]
        name = TAGS[tag - 1]
        if name in NUMBERS:
            value = struct.unpack('<I', value)[0]
        elif name not in ('statistics', 'limits'):
            value = value.decode()
        out[name] = value
        body = body[8 + size + -size % 8:]
    return out


class NetdError(Exception):
    def __init__(self, error, message):
        super().__init__(message)
        self.errno = -error


class Netd:
    def __init__(self, pin_dir, runtime, room=None):
        """room: bytes that it may have told and that nobody has read."""
        self.peer, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if room is not None:
            child.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        # as large as what may be asked
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.peer.settimeout(PATIENT)
        self.sequence = 0
        self.events = []
        self.process = spawn([str(BUILD / 'net/cube-netd')], [child.fileno()],
                             env=dict(os.environ, CUBE_BPF_DIR=str(pin_dir), CUBE_NETD_DEBUG='1',
                                      CUBE_RESOLVER_SOCKET=str(runtime / 'resolver')))
        child.close()

    def receive(self, timeout=PATIENT):
        self.peer.settimeout(timeout)
        data, fds, _, _ = socket.recv_fds(self.peer, 400000, 16)
        assert data, 'cube-netd has ended'
        magic, _, op, flags, seq, error, _ = struct.unpack_from('<IHHIIiI', data)
        assert magic == MAGIC
        return op, flags, seq, error, decode(data[24:]), fds

    def call(self, op, *values, **more):
        """Answer and fds. Values are pairs where a tag occurs more than once."""
        body = encode(list(values) + list(more.items()))
        self.sequence += 1
        self.peer.send(struct.pack('<IHHIIiI', MAGIC, VERSION, op, 0, self.sequence, 0, len(body)) + body)
        while True:
            op_, flags, seq, error, answer, fds = self.receive()
            if not flags & REPLY:
                self.events.append((op_, answer))
                continue
            assert (op_, seq) == (op, self.sequence)
            if error < 0:
                raise NetdError(error, answer.get('message'))
            return answer, fds

    def wait_event(self, op, timeout=PATIENT):
        while True:
            for i, (event, answer) in enumerate(self.events):
                if event == op:
                    del self.events[i]
                    return answer
            op_, flags, _, _, answer, _ = self.receive(timeout)
            assert not flags & REPLY
            self.events.append((op_, answer))

    def no_event(self, op):
        """Nothing of the kind so far: cube-netd tells before it answers what was asked later."""
        self.call(PING)
        return not any(event == op for event, _ in self.events)

    def stop(self):
        self.peer.close()
        return self.process.wait(PATIENT)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.peer.close()


class Guest:
    """The stack of another namespace behind a sandbox's tap."""

    def __init__(self, tap, mtu=1500, sends=SEGMENTS, receives=SEGMENTS, ready=None):
        """sends: leaves checksums or segments to the device. receives: takes such from it. ready is called with its
        namespace before the first frame moves."""
        self.netns = Netns()
        with self.netns.inside():
            self.own = open_tap('eth0', sends)
        set_offload(tap, receives)
        self.netns.ip('link set lo up', f'link set eth0 address {GUEST_MAC} mtu {mtu}',
                      f'address add {INNER4}/30 dev eth0', f'address add {INNER6}/64 dev eth0 nodad', 'link set eth0 up',
                      f'route add default via {GATEWAY4}', f'-6 route add default via {GATEWAY6}',
                      f'neighbour add {GATEWAY4} lladdr {GATEWAY_MAC} dev eth0',
                      f'neighbour add {GATEWAY6} lladdr {GATEWAY_MAC} dev eth0')
        self.wait_for_address()
        if ready:
            ready(self.netns)
        self.pump = spawn([str(BUILD / 'tests/bpf/tap-pump')], [self.own, tap])

    def wait_for_address(self):
        """One of IPv6 is there to send from at once, and a moment later to receive at."""
        address = socket.inet_pton(socket.AF_INET6, INNER6).hex()
        with self.netns.inside():
            while not any(line.startswith(address) and int(line.split()[8], 16) & RTF_LOCAL
                          for line in pathlib.Path('/proc/thread-self/net/ipv6_route').read_text().splitlines()):
                time.sleep(0.001)

    def close(self):
        self.pump.kill()
        self.pump.wait()
        os.close(self.own)
        self.netns.close()


class Sandbox:
    def __init__(self, host, slot, address4, address6, netns, tap, mtu):
        self.host, self.slot, self.address4, self.address6, self.mtu = host, slot, address4, address6, mtu
        self.netns, self.tap = Netns(netns), tap
        self.guest_ = None

    def guest(self, offload=SEGMENTS, **more):
        self.guest_ = Guest(self.tap, self.mtu, **(more or {'sends': offload, 'receives': offload}))
        return self.guest_.netns

    def policy(self, *rules, default='deny'):
        """Each rule "allow TEXT", "deny TEXT" or "inbound TEXT"."""
        values = [tuple(rule.split(' ', 1)) for rule in rules]
        return self.host.netd.call(POLICY_SET, *values, slot=self.slot, default=default)[0]

    def claim(self, policy, flags=0, owner=0xffffffff, generation=1):
        """What cubed does: one write to a plain map."""
        update(self.host.entries, struct.pack('=I', self.slot), struct.pack('=IIII', policy, generation, flags, owner))

    def limits(self, bytes_out=0, bytes_in=0, packets_out=0, packets_in=0, flows_new=0, flows_open=0):
        self.host.netd.call(LIMITS_SET, slot=self.slot,
                            limits=struct.pack('=QQIIII', bytes_out, bytes_in, packets_out, packets_in, flows_new, flows_open))

    def statistics(self):
        raw = self.host.netd.call(STATISTICS, slot=self.slot)[0]['statistics']
        numbers = struct.unpack(f'={len(raw) // 8}Q', raw)
        out = dict(zip('out out_bytes in in_bytes out_denied out_denied_bytes in_denied in_denied_bytes'.split(), numbers))
        out['denied'] = {name: n for name, n in zip(REASONS, numbers[8:]) if n}
        out['audit_lost'], out['flows_open'], out['used'] = numbers[8 + len(REASONS):11 + len(REASONS)]
        return out

    def close(self):
        if self.guest_:
            self.guest_.close()
            self.guest_ = None
        os.close(self.tap)
        self.netns.close()


def update(fd, key, value):
    """bpf(BPF_MAP_UPDATE_ELEM)"""
    k, v = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value, len(value))
    attr = struct.pack('=IxxxxQQQ', fd, ctypes.addressof(k), ctypes.addressof(v), 0)
    a = ctypes.create_string_buffer(attr, len(attr))
    check(libc.syscall(321, 2, a, len(attr)))


WORLD = '203.0.113.10 203.0.113.20 8.8.8.8 10.66.0.5 169.254.169.254'.split()
WORLD6 = '2001:db8:1::10 2001:db8:1::20 fd00:66::5'.split()


class Host:
    """A host with an uplink to a world of a few servers. This process lives in its namespace."""

    def __init__(self, uplink=True, mtu=1500, **setup):
        self.setup = dict(mark=MARK, **setup)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix='cube-bpf-'))
        mount('bpf', self.directory, 'bpf')
        self.runtime = pathlib.Path(tempfile.mkdtemp(prefix='cube-run-'))
        self.runtime.chmod(0o711)
        self.netns, self.world = Netns(), Netns()
        self.netns.enter()
        self.netns.ip('link set lo up')
        self.world.ip('link set lo up')
        self.sandboxes = []
        self.processes = []
        if uplink:
            self.add_uplink(mtu)
        self.netd = None
        self.entries = -1

    def add_uplink(self, mtu=1500):
        self.netns.ip(f'link add up0 mtu {mtu} type veth peer name w0 mtu {mtu} netns {self.world.path()}')
        self.world.ip('address add 198.51.100.1/24 dev w0', 'address add 2001:db8::1/64 dev w0 nodad', 'link set w0 up',
                      *(f'address add {a}/32 dev lo' for a in WORLD), *(f'address add {a}/128 dev lo nodad' for a in WORLD6))
        self.netns.ip('address add 198.51.100.2/24 dev up0', 'address add 2001:db8::2/64 dev up0 nodad', 'link set up0 up',
                      'route add default via 198.51.100.1', '-6 route add default via 2001:db8::1')

    def start(self, **more):
        self.netd = Netd(self.directory, self.runtime, **more)
        self.answer, fds = self.netd.call(SETUP, **self.setup)
        self.entries = fds[0]
        return self

    def pins(self):
        """Where the maps of this release are."""
        version, = (path for path in self.directory.iterdir() if path.name.isdigit())
        return version

    def start_removal(self, directory=None):
        """What the unit runs when the service has ended."""
        return self.netns.start(str(BUILD / 'net/cube-netd'), '--remove', stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=dict(os.environ, CUBE_BPF_DIR=str(directory or self.directory)))

    def remove(self, directory=None):
        """The same, waited for: its status, and what it says."""
        with self.start_removal(directory) as p:
            _, said = p.communicate(timeout=PATIENT)
        return p.returncode, said

    def sandbox(self, *rules, default='deny', **more):
        answer, (netns, tap) = self.netd.call(SLOT_NEW, **more)
        s = Sandbox(self, answer['slot'], answer.get('address4'), answer.get('address6'), netns, tap, answer['mtu'])
        self.sandboxes.append(s)
        if rules or default != 'deny':
            s.policy(*rules, default=default)
        return s

    def close(self):
        for s in self.sandboxes:
            with contextlib.suppress(OSError):
                s.close()
        # of a test that did not get far enough to end them
        for p in self.processes:
            p.kill()
            p.wait()
        if self.netd and self.netd.process.poll() is None:
            self.netd.stop()
        if self.entries >= 0:
            os.close(self.entries)
        check(libc.umount2(str(self.directory).encode(), 2))
        self.directory.rmdir()
        shutil.rmtree(self.runtime)
        self.netns.close()
        self.world.close()


RESOLVER_UID = 64321


def private_mounts():
    """And the user that cube-resolver has where it is installed."""
    unshare(CLONE_NEWNS)
    mount('none', '/', None, MS_REC | MS_PRIVATE)
    with tempfile.NamedTemporaryFile('w', encoding='utf-8') as f:
        lines = pathlib.Path('/etc/passwd').read_text(encoding='utf-8').splitlines(True)
        f.writelines(line for line in lines if not line.startswith('cube-resolver:'))
        f.write(f'cube-resolver:x:{RESOLVER_UID}:{RESOLVER_UID}::/nonexistent:/usr/sbin/nologin\n')
        f.flush()
        os.chmod(f.name, 0o644)
        mount(f.name, '/etc/passwd', None, MS_BIND)
