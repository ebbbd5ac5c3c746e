# SPDX-License-Identifier: Apache-2.0
"""A cube-vmm on its own, and a client of its control protocol (base/vmm-proto.h).

    with Vmm() as vmm:
        peer = vmm.connect()
        peer.request(Op.BUILD, vmm.build_records(elf, cmdline='p'), fds=...)

Needs root and /dev/kvm, no cubed and no systemd."""

import enum
import itertools
import mmap
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Each has one of its own, as cubed's have: descriptors that nobody has read count for the uid that sent them.
UIDS = itertools.count(0x70000000 + os.getpid() * 4096)

MAGIC = 0x45425543
VERSION = 1
MESSAGE_MAX = 320 * 1024
FDS_MAX = 32
FLAG_REPLY = 1
HEADER = struct.Struct('<IHHIIiI')
TLV = struct.Struct('<HHI')
FRAME = struct.Struct('<IHHI')
EXIT_RECORD = struct.Struct('<IIIIQ104s')
EXIT_RECORD_MAGIC = 0x54495845
CONSOLE_BYTES = 65536
CONSOLE_HEADER = 64

AGENT_READY = 16
AGENT_CLAIM = 32
AGENT_PING = 45
AGENT_STREAM_PROCESS = 64


class Op(enum.IntEnum):
    HELLO = 1
    BUILD = 2
    CLAIM = 3
    AGENT = 4
    STREAM = 5
    CONSOLE = 6
    STATISTICS = 7
    STOP = 8
    KILL = 9
    RESIZE = 10
    BALLOON = 11
    PAUSE = 16
    RESUME = 17
    SAVE = 18
    LOAD = 19
    ROLLBACK = 20
    EVENT_AGENT = 64
    EVENT_AGENT_LOST = 65
    EVENT_DEVICE = 66
    EVENT_EXIT = 67


class Tag(enum.IntEnum):
    FD = 1
    MESSAGE = 2
    STATE = 3
    MEM_BYTES = 4
    CPUS = 5
    MAX_CPUS = 6
    CMDLINE = 7
    ENTRY = 8
    SEGMENT = 9
    INITRD_BYTES = 10
    DISK = 11
    FRAME = 12
    TIMEOUT_USEC = 13
    REASON = 14
    STATUS = 15
    DEVICE = 16
    COUNTER = 17
    STOP_TIMEOUT_USEC = 18
    UID = 19
    CPUID_HIDE = 20
    PLUG_BYTES = 21
    PLUGGED_BYTES = 22
    BALLOON_BYTES = 23
    ID = 32
    RUNS = 33


class Role(enum.IntEnum):
    KVM = 0
    KERNEL = 1
    INITRD = 2
    EXIT = 3
    CONSOLE = 4
    DISK_BASE = 5
    DISK_OVERLAY = 6
    STREAM = 7
    TAP = 8
    STATE = 16
    LAYER = 17
    PAGEMAP = 18
    DISK_LAYER = 19
    DISK_FROZEN = 20


class State(enum.IntEnum):
    NEW = 0
    BUILT = 1
    RUNNING = 2
    STOPPING = 3
    PAUSED = 4
    TORN = 5


class Reason(enum.IntEnum):
    NONE = 0
    POWEROFF = 1
    RESET = 2
    RESET_EARLY = 3
    PANIC = 4
    TRIPLE_FAULT = 5
    INTERNAL_ERROR = 6
    KILLED = 7
    STOP_TIMEOUT = 8
    VMM_ERROR = 9
    FORBIDDEN_CALL = 10


class ProtocolError(Exception):
    pass


class Refused(Exception):
    """A reply with an error."""

    def __init__(self, error, message):
        super().__init__(f'{os.strerror(-error)}: {message}')
        self.errno = -error
        self.message = message


def tlv(tag, data):
    if isinstance(data, str):
        data = data.encode()
    return TLV.pack(tag, 0, len(data)) + data + bytes(-len(data) % 8)


def u32(tag, value):
    return tlv(tag, struct.pack('<I', value))


def u64(tag, value):
    return tlv(tag, struct.pack('<Q', value))


def frame(kind, body=b'', flags=0, id=0):
    return FRAME.pack(len(body), kind, flags, id) + body


def claim_record(number=1):
    return tlv(Tag.FRAME, frame(AGENT_CLAIM, id=number))


def parse_records(data):
    records = []
    while data:
        tag, _, length = TLV.unpack_from(data)
        records.append((tag, data[TLV.size:TLV.size + length]))
        data = data[TLV.size + length + -length % 8:]
    return records


class Message:
    def __init__(self, packet, fds):
        _, _, self.op, self.flags, self.seq, self.error, length = HEADER.unpack_from(packet)
        if length != len(packet) - HEADER.size:
            raise ProtocolError(f'length {length} in a packet of {len(packet)}')
        self.records = parse_records(packet[HEADER.size:])
        self.fds = fds

    def all(self, tag):
        return [data for t, data in self.records if t == tag]

    def get(self, tag):
        found = self.all(tag)
        return found[0] if found else None

    def number(self, tag):
        data = self.get(tag)
        return None if data is None else int.from_bytes(data, 'little')

    @property
    def message(self):
        return (self.get(Tag.MESSAGE) or b'').decode()


class Peer:
    """One connection to the control socket."""

    # On a host under load the kernel's grace periods, which vCPUs and memory slots wait for, take seconds.
    def __init__(self, path, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_MAX)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.seq = 0
        self.events = []

    def close(self):
        self.socket.close()

    def send_raw(self, packet, fds=()):
        if fds:
            socket.send_fds(self.socket, [packet], list(fds))
        else:
            self.socket.send(packet)

    def send(self, op, records=b'', fds=(), seq=None, version=VERSION, flags=0, error=0):
        if seq is None:
            self.seq += 1
            seq = self.seq
        self.send_raw(HEADER.pack(MAGIC, version, op, flags, seq, error, len(records)) + records, fds)
        return seq

    def receive(self):
        """The next message, or None when the VMM has closed the connection."""
        try:
            packet, fds, flags, _ = socket.recv_fds(self.socket, MESSAGE_MAX, FDS_MAX)
        except ConnectionResetError:
            return None
        if not packet:
            return None
        return Message(packet, fds)

    def reply(self, seq):
        while True:
            m = self.receive()
            if m is None:
                raise ProtocolError('the VMM closed the connection')
            if not m.flags & FLAG_REPLY:
                self.events.append(m)
            elif m.seq == seq:
                return m
            else:
                raise ProtocolError(f'reply to {m.seq}, expected {seq}')

    def request(self, op, records=b'', fds=(), **kwargs):
        m = self.reply(self.send(op, records, fds, **kwargs))
        if m.error:
            raise Refused(m.error, m.message)
        return m

    def event(self, op):
        """The next event of this kind."""
        while True:
            for m in self.events:
                if m.op == op:
                    self.events.remove(m)
                    return m
            m = self.receive()
            if m is None:
                raise ProtocolError('the VMM closed the connection')
            self.events.append(m)


class Kernel:
    """An ELF file with a PVH note, as cubed would describe it."""

    def __init__(self, path):
        self.path = path
        data = pathlib.Path(path).read_bytes()
        if data[:5] != b'\x7fELF\x02':
            raise ValueError(f'{path}: not a 64-bit ELF file')
        phoff, = struct.unpack_from('<Q', data, 32)
        phentsize, phnum = struct.unpack_from('<HH', data, 54)
        self.segments = []
        self.entry = None
        for i in range(phnum):
            at = phoff + i * phentsize
            kind, _, offset, _, paddr, filesz, memsz, _ = struct.unpack_from('<IIQQQQQQ', data, at)
            if kind == 1:
                self.segments.append((paddr, offset, filesz, memsz))
            elif kind == 4:
                self._note(data[offset:offset + filesz])

    def _note(self, notes):
        while len(notes) >= 12:
            namesz, descsz, kind = struct.unpack_from('<III', notes)
            at = 12 + (namesz + 3 & ~3)
            if kind == 18 and notes[12:15] == b'Xen':
                self.entry, = struct.unpack_from('<I', notes, at)
            notes = notes[at + (descsz + 3 & ~3):]

    def records(self):
        return u64(Tag.ENTRY, self.entry) + b''.join(
            tlv(Tag.SEGMENT, struct.pack('<QQQQ', *s)) for s in self.segments)


def payload(name):
    """Builds tests/payload/<name>.S once per run, away from the tree."""
    out = pathlib.Path(tempfile.gettempdir()) / f'cubed-payload-{os.getpid()}-{name}'
    if not out.exists():
        subprocess.run(['cc', '-nostdlib', '-static', '-no-pie', '-Wl,--build-id=none', '-Wl,-e,entry',
                        '-Wl,-Ttext-segment=0x200000', '-Wl,-z,noexecstack',
                        '-o', str(out), str(ROOT / 'tests/payload' / f'{name}.S')], check=True)
    return Kernel(out)


def find_program():
    build = os.environ.get('CUBE_BUILD', ROOT / 'build')
    return os.environ.get('CUBE_VMM', str(pathlib.Path(build) / 'vmm/cube-vmm'))


class Vmm:
    def __init__(self, namespaces=False, prefix=()):
        self.dir = tempfile.TemporaryDirectory(prefix='cubed-vmm-')
        self.path = pathlib.Path(self.dir.name) / 'ctl'
        self.exit_path = pathlib.Path(self.dir.name) / 'exit'
        self.console = os.memfd_create('console')
        os.ftruncate(self.console, CONSOLE_HEADER + CONSOLE_BYTES)
        self.log = open(pathlib.Path(self.dir.name) / 'log', 'w+')

        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.path))
        os.chmod(self.path, 0o777)
        listener.listen(8)
        os.set_inheritable(listener.fileno(), True)

        self.uid = next(UIDS)
        argv = [*prefix, find_program(), f'--uid={self.uid}', f'--gid={self.uid}']
        if namespaces:
            argv = ['unshare', '--pid', '--mount', '--ipc', '--uts', '--net', '--fork', '--kill-child', '--',
                    *argv]
        fd = listener.fileno()

        def set_descriptors():
            # 3 is the listener; 4 one more, which the jail has to close.
            os.dup2(fd, 100)
            os.dup2(100, 3)
            os.dup2(100, 4)

        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        close_fds=False, preexec_fn=set_descriptors)
        listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.console < 0:
            return
        os.close(self.console)
        self.console = -1
        self.log.close()
        self.dir.cleanup()

    def connect(self, **kwargs):
        return Peer(self.path, **kwargs)

    def build(self, peer, kernel, cmdline='', memory=64 << 20, cpus=1, extra=b'', with_console=True, tap=None):
        fds = [os.open('/dev/kvm', os.O_RDWR), os.open(kernel.path, os.O_RDONLY),
               os.open(self.exit_path, os.O_WRONLY | os.O_CREAT, 0o600)]
        roles = [Role.KVM, Role.KERNEL, Role.EXIT]
        if with_console:
            fds.append(os.dup(self.console))
            roles.append(Role.CONSOLE)
        if tap is not None:
            fds.append(os.dup(tap))
            roles.append(Role.TAP)
        records = (b''.join(u32(Tag.FD, r) for r in roles) + u64(Tag.MEM_BYTES, memory) +
                   u32(Tag.CPUS, cpus) + tlv(Tag.CMDLINE, cmdline) + kernel.records() + extra)
        try:
            return peer.request(Op.BUILD, records, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def claim(self, peer):
        return peer.request(Op.CLAIM, claim_record())

    def start(self, peer, kernel, cmdline='', **kwargs):
        self.build(peer, kernel, cmdline, **kwargs)
        self.claim(peer)

    def wait(self, timeout=60):
        """Exit status of the process and the exit record, None without one."""
        status = self.process.wait(timeout)
        if not self.exit_path.exists() or self.exit_path.stat().st_size == 0:
            return status, None
        data = self.exit_path.read_bytes()
        assert len(data) == EXIT_RECORD.size
        magic, version, reason, number, usec, message = EXIT_RECORD.unpack(data)
        assert (magic, version) == (EXIT_RECORD_MAGIC, 1)
        assert abs(usec / 1e6 - time.time()) < 60
        return status, (Reason(reason), number, message.split(b'\0')[0].decode())

    def console_text(self):
        with mmap.mmap(self.console, CONSOLE_HEADER + CONSOLE_BYTES, prot=mmap.PROT_READ) as m:
            head, = struct.unpack_from('<Q', m, 0)
            ring = m[CONSOLE_HEADER:]
        if head <= CONSOLE_BYTES:
            return ring[:head].decode()
        at = head % CONSOLE_BYTES
        return (ring[at:] + ring[:at]).decode()

    def wait_console(self, text, timeout=60):
        until = time.monotonic() + timeout
        while text not in self.console_text():
            assert time.monotonic() < until, f'console says {self.console_text()!r}'
            assert self.process.poll() is None
            time.sleep(0.01)

    def log_text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()
