# SPDX-License-Identifier: Apache-2.0
"""The guest of tests/hostile in a VMM with all devices that there are, and what can be seen of that VMM from outside."""

import contextlib
import os
import pathlib
import re
import socket
import struct
import threading
import time

import snapshot as s
import vmm as v
import wire as w
from test_devices import OK, STDOUT, STREAM_PROCESS, T_PID, T_STREAM, Guest, disk_files, parse_frame, read_all

ARP = 0x0806
READY = 16
T_KERNEL_RELEASE = 4
MEMORY = 64 << 20
PLUG = 256 << 20
DEVICES = ['vda', 'vdb', 'rng', 'net', 'balloon', 'mem', 'vsock']
# What a guest can make the VMM keep for it: buffers that are bounded, and small. A sanitizer needs more.
GROWTH_BYTES = int(os.environ.get('CUBE_VMM_GROWTH', '8')) << 20
# At most one message of a device in this time (vmm/virtio-pci.c).
QUIET_SECONDS = 10
ENOTCONN = 107
# Emulated instructions on a host under load.
TIMEOUT = 120


def find_hostile():
    return str(pathlib.Path(os.environ.get('CUBE_BUILD', v.ROOT / 'build')) / 'tests/hostile/hostile.elf')


def build(vmm, peer, base, overlay, tap):
    kernel = v.Kernel(find_hostile())
    fds = [os.open('/dev/kvm', os.O_RDWR), os.open(kernel.path, os.O_RDONLY),
           os.open(vmm.exit_path, os.O_WRONLY | os.O_CREAT, 0o600), os.dup(vmm.console), os.dup(tap),
           os.open(base, os.O_RDONLY), os.open(base, os.O_RDONLY), os.open(overlay, os.O_RDWR)]
    roles = [v.Role.KVM, v.Role.KERNEL, v.Role.EXIT, v.Role.CONSOLE, v.Role.TAP,
             v.Role.DISK_BASE, v.Role.DISK_BASE, v.Role.DISK_OVERLAY]
    size, base_bytes = overlay.stat().st_size, base.stat().st_size
    records = (b''.join(v.u32(v.Tag.FD, r) for r in roles) + v.u64(v.Tag.MEM_BYTES, MEMORY) +
               v.u64(v.Tag.PLUG_BYTES, PLUG) + v.u32(v.Tag.CPUS, 2) + v.tlv(v.Tag.CMDLINE, '') + kernel.records() +
               v.tlv(v.Tag.DISK, struct.pack('<IIQQ', 0, 1, base_bytes, base_bytes)) +
               v.tlv(v.Tag.DISK, struct.pack('<IIQQ', 1, 0, base_bytes, size)))
    try:
        peer.request(v.Op.BUILD, records, fds)
    finally:
        for fd in fds:
            os.close(fd)


class Echo(threading.Thread):
    """A wire, and its other end: what comes goes back, as an answer that nobody reads."""

    def __init__(self):
        super().__init__(daemon=True)
        self.wire = w.Wire().listen(ARP)
        self.over = False
        self.wire.packet.settimeout(0.1)
        self.start()

    def run(self):
        while not self.over:
            try:
                self.wire.packet.send(self.wire.packet.recv(70000))
            except OSError:
                pass

    def close(self):
        self.over = True
        self.join()
        self.wire.close()


class HostileGuest(Guest):
    def __init__(self, path):
        self.number = 100
        self.began = time.monotonic()
        self.messages = []
        self.echo = Echo()
        self.vmm = v.Vmm()
        self.peer = self.vmm.connect(timeout=TIMEOUT)
        self.base, self.overlay = disk_files(path, disk_sectors=1024)
        self.base_content = self.base.read_bytes()
        build(self.vmm, self.peer, self.base, self.overlay, self.echo.wire.tap)
        self.vmm.claim(self.peer)
        self.wait_ready()
        self.before = self.figures()

    @classmethod
    @contextlib.contextmanager
    def copy(cls, of, snapshot):
        """A second one out of a snapshot of the first, which is paused."""
        with v.Vmm() as vmm, contextlib.closing(Echo()) as echo:
            g = cls.__new__(cls)
            g.vmm, g.peer, g.number = vmm, vmm.connect(timeout=TIMEOUT), 1000
            s.load(vmm, g.peer, snapshot, base=of.base, overlay=snapshot.overlay, tap=echo.wire.tap)
            vmm.claim(g.peer)
            # At once, or when an attack that was under way is over.
            while parse_frame(g.peer.event(v.Op.EVENT_AGENT).get(v.Tag.FRAME))[:2] != (OK, 1):
                pass
            yield g

    def close(self):
        self.peer.close()
        self.vmm.__exit__()
        self.echo.close()

    def running(self):
        return self.vmm.process.poll() is None

    # What it is told to do

    def wait_again(self):
        """The agent connects anew behind each attack. Others that said they were ready were the attack itself."""
        came, self.peer.events = self.peer.events, []
        while True:
            m = came.pop(0) if came else self.peer.receive()
            assert m is not None, self.vmm.wait()
            if m.op == v.Op.EVENT_DEVICE:
                self.peer.events.append(m)
            elif m.op == v.Op.EVENT_AGENT:
                kind, _, records = parse_frame(m.get(v.Tag.FRAME))
                if kind == READY and dict(records).get(T_KERNEL_RELEASE) == b'cube-payload':
                    self.peer.events += came
                    return

    def result(self, pid):
        self.wait_again()
        out = read_all(self.process_stream(pid, STDOUT)).decode()
        assert self.wait(pid) == 0, out
        return out.splitlines()

    def attack(self, name):
        return self.result(self.start('attack', name))

    def stream_under_attack(self, pid):
        """A stream that the attack answers in the agent's place: our end, and the answer to the request."""
        self.peer.event(v.Op.EVENT_AGENT_LOST)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        frame = v.frame(STREAM_PROCESS, v.u32(T_PID, pid) + v.u32(T_STREAM, STDOUT), id=self.number)
        records = v.u32(v.Tag.FD, v.Role.STREAM) + v.tlv(v.Tag.FRAME, frame)
        with theirs:
            while (m := self.peer.reply(self.peer.send(v.Op.STREAM, records, [theirs.fileno()]))).error == -ENOTCONN:
                pass
        ours.settimeout(TIMEOUT)
        return ours, m

    # What is seen of the VMM

    def printed(self):
        """How many bytes, ever."""
        return int.from_bytes(os.pread(self.vmm.console, 8, 0), 'little')

    def over(self, since):
        """Whether the attack has said so, on the console, behind what was printed by then."""
        new = self.printed() - since
        return new > 0 and 'hostile: done' in self.vmm.console_text()[-new:]

    def reports(self):
        """What devices had to say since this was asked last."""
        self.peer.request(v.Op.STATISTICS)
        new = [(m.get(v.Tag.DEVICE).decode(), m.message) for m in self.peer.events if m.op == v.Op.EVENT_DEVICE]
        self.peer.events = [m for m in self.peer.events if m.op not in (v.Op.EVENT_DEVICE, v.Op.EVENT_AGENT_LOST)]
        self.messages += new
        return new

    def figures(self):
        proc = pathlib.Path('/proc') / str(self.vmm.process.pid)
        return {
            'descriptors': len(os.listdir(proc / 'fd')),
            'threads': len(os.listdir(proc / 'task')),
            'own-bytes': own_bytes((proc / 'smaps').read_text()),
        }

    def unharmed(self):
        """All devices do their work, and the VMM is as it was, but for a bounded number of bytes."""
        assert self.running(), self.vmm.wait()
        assert self.result(self.start('alive')) == [f'{d} alive' for d in DEVICES]
        self.reports()
        now = self.figures()
        assert now['descriptors'] == self.before['descriptors']
        assert now['threads'] == self.before['threads']
        assert now['own-bytes'] < self.before['own-bytes'] + GROWTH_BYTES
        assert self.base.read_bytes() == self.base_content
        # Whatever it was, the journal is not filled with it.
        seconds = time.monotonic() - self.began
        for d in DEVICES:
            assert len([1 for name, _ in self.messages if name == d]) <= 1 + seconds / QUIET_SECONDS, self.messages

    def main_thread_seconds(self):
        pid = self.vmm.process.pid
        return int(pathlib.Path(f'/proc/{pid}/task/{pid}/schedstat').read_text().split()[0]) / 1e9


def own_bytes(smaps):
    """Resident memory that is not the guest's."""
    total = size = 0
    for line in smaps.splitlines():
        if m := re.match(r'([0-9a-f]+)-([0-9a-f]+) ', line):
            size = int(m[2], 16) - int(m[1], 16)
        elif line.startswith('Rss:') and size < MEMORY:
            total += int(line.split()[1]) * 1024
    return total
