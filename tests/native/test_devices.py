# SPDX-License-Identifier: Apache-2.0
"""virtio end to end, without a Linux guest: cube-vmm runs tests/payload, whose programs are driven
over the control socket as cubed would."""

import hashlib
import os
import pathlib
import socket
import struct
import threading
import time

import pytest

import vmm as v

OK, ERROR, EXITED = 1, 2, 98
EXEC, SIGNAL, LIST, STAT, POWEROFF, PING = 33, 34, 36, 37, 44, 45
STREAM_PROCESS, STREAM_WAIT, STREAM_READ, STREAM_WRITE = 64, 65, 66, 67
DATA, END = 96, 97
T_ERRNO, T_ARGV, T_ENV, T_PID, T_SIGNAL, T_PATH, T_STREAM, T_CODE, T_EXIT_SIGNAL = 1, 10, 11, 18, 19, 22, 29, 32, 33
STDIN, STDOUT, STDERR = 0, 1, 2
BULK = 200 * 1000 * 1000


def find_payload():
    build = os.environ.get('CUBE_BUILD', v.ROOT / 'build')
    return os.environ.get('CUBE_PAYLOAD', str(pathlib.Path(build) / 'tests/payload/payload.elf'))


def parse_frame(data):
    length, kind, flags, number = v.FRAME.unpack_from(data)
    return kind, number, v.parse_records(data[v.FRAME.size:v.FRAME.size + length])


class Guest:
    """A VMM with the payload in it, up to its READY."""

    def __init__(self, vmm, cmdline='', **kwargs):
        self.vmm = vmm
        self.peer = vmm.connect()
        self.number = 100
        vmm.start(self.peer, v.Kernel(find_payload()), cmdline, **kwargs)

    def wait_ready(self):
        kind, _, self.ready = parse_frame(self.peer.event(v.Op.EVENT_AGENT).get(v.Tag.FRAME))
        assert kind == 16
        kind, number, _ = parse_frame(self.peer.event(v.Op.EVENT_AGENT).get(v.Tag.FRAME))
        assert (kind, number) == (OK, 1)
        return self

    def call(self, kind, body=b''):
        self.number += 1
        self.peer.request(v.Op.AGENT, v.tlv(v.Tag.FRAME, v.frame(kind, body, id=self.number)))
        kind, number, records = parse_frame(self.peer.event(v.Op.EVENT_AGENT).get(v.Tag.FRAME))
        assert number == self.number
        return kind, dict(records)

    def start(self, *argv, env=()):
        body = b''.join(v.tlv(T_ARGV, a) for a in argv) + b''.join(v.tlv(T_ENV, e) for e in env)
        kind, records = self.call(EXEC, body)
        assert kind == OK, records
        return int.from_bytes(records[T_PID], 'little')

    def stream(self, kind, body):
        """Our end of a stream, and the agent's first answer."""
        self.number += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            m = self.peer.request(v.Op.STREAM, v.u32(v.Tag.FD, v.Role.STREAM) +
                                  v.tlv(v.Tag.FRAME, v.frame(kind, body, id=self.number)), [theirs.fileno()])
        finally:
            theirs.close()
        ours.settimeout(60)
        return ours, parse_frame(m.get(v.Tag.FRAME))

    def process_stream(self, pid, which):
        s, (kind, _, _) = self.stream(STREAM_PROCESS, v.u32(T_PID, pid) + v.u32(T_STREAM, which))
        assert kind == OK
        return s

    def wait(self, pid):
        s, (kind, _, _) = self.stream(STREAM_WAIT, v.u32(T_PID, pid))
        assert kind == OK
        data = read_all(s)
        kind, _, records = parse_frame(data)
        assert kind == EXITED
        records = dict(records)
        if T_EXIT_SIGNAL in records:
            return -int.from_bytes(records[T_EXIT_SIGNAL], 'little')
        return int.from_bytes(records[T_CODE], 'little')

    def run(self, *argv, **kwargs):
        pid = self.start(*argv, **kwargs)
        out = read_all(self.process_stream(pid, STDOUT))
        err = read_all(self.process_stream(pid, STDERR))
        return self.wait(pid), out, err

    def counters(self):
        records = self.peer.request(v.Op.STATISTICS).all(v.Tag.COUNTER)
        return {r[:24].rstrip(b'\0').decode(): struct.unpack('<Q', r[24:])[0] for r in records}


def read_all(s):
    with s:
        data = bytearray()
        while piece := s.recv(1 << 20):
            data += piece
        return bytes(data)


def disk_files(tmp_path, base_sectors=64, disk_sectors=256):
    base = tmp_path / 'base'
    base.write_bytes(b''.join(struct.pack('<Q', i) + bytes(504) for i in range(base_sectors)))
    overlay = tmp_path / 'overlay'
    with open(overlay, 'wb') as f:
        f.truncate(disk_sectors * 512)
    return base, overlay


def with_disks(vmm, peer, base, overlay, cmdline, layers=(), extra=b'', cpus=1):
    """BUILD with vda read-only over base, vdb writable over the same base and layers."""
    size = overlay.stat().st_size
    kernel = v.Kernel(find_payload())
    fds = [os.open('/dev/kvm', os.O_RDWR), os.open(kernel.path, os.O_RDONLY),
           os.open(vmm.exit_path, os.O_WRONLY | os.O_CREAT, 0o600), os.dup(vmm.console),
           os.open(base, os.O_RDONLY), os.open(base, os.O_RDONLY), os.open(overlay, os.O_RDWR),
           *(os.open(layer, os.O_RDONLY) for layer in layers)]
    roles = [v.Role.KVM, v.Role.KERNEL, v.Role.EXIT, v.Role.CONSOLE,
             v.Role.DISK_BASE, v.Role.DISK_BASE, v.Role.DISK_OVERLAY, *[v.Role.DISK_LAYER] * len(layers)]
    base_bytes = base.stat().st_size
    records = (b''.join(v.u32(v.Tag.FD, r) for r in roles) + v.u64(v.Tag.MEM_BYTES, 64 << 20) +
               v.u32(v.Tag.CPUS, cpus) + v.tlv(v.Tag.CMDLINE, cmdline) + kernel.records() +
               v.tlv(v.Tag.DISK, struct.pack('<IIQQ', 0, 1, base_bytes, base_bytes)) +
               v.tlv(v.Tag.DISK, struct.pack('<IIQQ', 1, 0, base_bytes, size)) + extra)
    peer.request(v.Op.BUILD, records, fds)
    for fd in fds:
        os.close(fd)


@pytest.fixture
def guest(vmm):
    return Guest(vmm).wait_ready()


def test_ready_and_ping(guest):
    assert dict(guest.ready)[4] == b'cube-payload'
    for _ in range(20):
        assert guest.call(PING)[0] == OK
    counters = guest.counters()
    assert counters['vsock-connections'] == 1
    # Kicks don't leave the kernel, and an idle guest sleeps: a few exits for each ping at most.
    before = counters['vcpu-exits']
    for _ in range(20):
        guest.call(PING)
    assert guest.counters()['vcpu-exits'] - before < 200


def test_exit_status(guest):
    assert guest.run('true') == (0, b'', b'')
    assert guest.run('false')[0] == 1
    assert guest.run('exit', '7')[0] == 7
    assert guest.call(EXEC, v.tlv(T_ARGV, 'no-such-program'))[0] == ERROR


def test_streams_stay_apart(guest):
    assert guest.run('echo', 'hello', 'world') == (0, b'hello world\n', b'')
    assert guest.run('err', 'oops') == (0, b'', b'oops\n')
    assert guest.run('env', env=['A=1', 'B=2'])[1] == b'A=1\nB=2\n'


def test_cat(guest):
    pid = guest.start('cat')
    stdin, stdout = guest.process_stream(pid, STDIN), guest.process_stream(pid, STDOUT)
    stdin.sendall(b'round trip')
    assert stdout.recv(100) == b'round trip'
    stdin.shutdown(socket.SHUT_WR)
    assert read_all(stdout) == b''
    assert guest.wait(pid) == 0


def test_signal_ends_a_program(guest):
    pid = guest.start('hang')
    kind, _ = guest.call(SIGNAL, v.u32(T_PID, pid) + v.u32(T_SIGNAL, 9))
    assert kind == OK
    assert guest.wait(pid) == -9


def test_sleep(guest):
    before = time.monotonic()
    assert guest.run('sleep', '1')[0] == 0
    assert time.monotonic() - before > 0.9


def test_file(guest):
    assert guest.call(STAT, v.tlv(T_PATH, '/nope'))[0] == ERROR
    assert guest.call(STAT, v.tlv(T_PATH, '/payload'))[0] == OK
    s, (kind, _, _) = guest.stream(STREAM_READ, v.tlv(T_PATH, '/payload'))
    assert kind == OK
    data = read_all(s)
    assert b'This file is all there is.' in data

    s, (kind, _, _) = guest.stream(STREAM_WRITE, v.tlv(T_PATH, '/tmp/x'))
    assert kind == OK
    for _ in range(10):
        s.sendall(v.FRAME.pack(60000, DATA, 0, 0) + bytes(60000))
    s.sendall(v.FRAME.pack(0, END, 0, 0))
    kind, _, records = parse_frame(read_all(s))
    assert kind == END and dict(records)[T_ERRNO] == bytes(4)


def test_refused_stream(guest):
    s, (kind, _, _) = guest.stream(STREAM_PROCESS, v.u32(T_PID, 1) + v.u32(T_STREAM, STDOUT))
    assert kind == ERROR
    assert read_all(s) == b''


def test_bulk_output(guest):
    pid = guest.start('bulk', str(BULK))
    s = guest.process_stream(pid, STDOUT)
    seen = hashlib.sha256()
    total = 0
    before = time.monotonic()
    while piece := s.recv(1 << 20):
        seen.update(piece)
        total += len(piece)
    print(f'{total / 1e6 / (time.monotonic() - before):.0f} MB/s out of the guest')
    assert total == BULK
    assert seen.digest() == hashlib.sha256(b'y\n' * (BULK // 2)).digest()
    assert guest.wait(pid) == 0


def test_bulk_input(guest):
    pid = guest.start('wc')
    stdin, stdout = guest.process_stream(pid, STDIN), guest.process_stream(pid, STDOUT)
    piece = os.urandom(1 << 20)
    left = BULK
    before = time.monotonic()
    while left > 0:
        left -= stdin.send(piece[:left])
    stdin.shutdown(socket.SHUT_WR)
    assert read_all(stdout) == f'{BULK}\n'.encode()
    print(f'{BULK / 1e6 / (time.monotonic() - before):.0f} MB/s into the guest')


def test_bulk_there_and_back(guest):
    """Through both directions at once, byte for byte, with a reader that pauses."""
    pid = guest.start('cat')
    stdin, stdout = guest.process_stream(pid, STDIN), guest.process_stream(pid, STDOUT)
    piece = os.urandom(999983)
    rounds = 20
    seen = hashlib.sha256()

    def feed():
        for _ in range(rounds):
            stdin.sendall(piece)
        stdin.shutdown(socket.SHUT_WR)

    feeder = threading.Thread(target=feed)
    feeder.start()
    total = 0
    while data := stdout.recv(70001):
        seen.update(data)
        total += len(data)
        if total % 11 == 0:
            time.sleep(0.002)
    feeder.join()
    assert total == rounds * len(piece)
    assert seen.digest() == hashlib.sha256(piece * rounds).digest()
    assert guest.wait(pid) == 0


def test_endless_output_waits_for_the_reader(guest):
    pid = guest.start('yes')
    s = guest.process_stream(pid, STDOUT)
    before = -1
    until = time.monotonic() + 60
    while (sent := guest.counters()['vsock-from-guest-bytes']) != before:
        assert sent < 1 << 20 and time.monotonic() < until
        before = sent
        time.sleep(0.3)
    assert guest.call(PING)[0] == OK
    s.close()
    assert guest.wait(pid) == -13


def test_client_that_goes_away(guest):
    for _ in range(50):
        pid = guest.start('yes')
        s = guest.process_stream(pid, STDOUT)
        s.recv(10)
        s.close()
        assert guest.wait(pid) == -13
    until = time.monotonic() + 60
    while guest.counters()['vsock-connections'] > 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert guest.counters()['vsock-connections'] == 1


def test_many_streams_at_once(guest):
    pids = [guest.start('cat') for _ in range(20)]
    pairs = [(guest.process_stream(p, STDIN), guest.process_stream(p, STDOUT)) for p in pids]
    for i, (stdin, _) in enumerate(pairs):
        stdin.sendall(b'%d' % i * 1000)
    for stdin, _ in pairs:
        stdin.shutdown(socket.SHUT_WR)
    for i, (_, stdout) in enumerate(pairs):
        assert read_all(stdout) == b'%d' % i * 1000
    assert [guest.wait(p) for p in pids] == [0] * 20


def test_power_off(guest):
    assert guest.call(POWEROFF)[0] == OK
    _, record = guest.vmm.wait()
    assert record[0] == v.Reason.POWEROFF


@pytest.mark.parametrize('word, reason', [('panic', v.Reason.PANIC), ('reset', v.Reason.RESET_EARLY),
                                          ('poweroff', v.Reason.POWEROFF),
                                          ('triple', v.Reason.TRIPLE_FAULT)])
def test_ends(vmm, word, reason):
    Guest(vmm, word)
    _, record = vmm.wait()
    assert record[0] == reason


def test_panic_of_a_running_guest(guest):
    guest.peer.send(v.Op.AGENT, v.tlv(v.Tag.FRAME, v.frame(EXEC, v.tlv(T_ARGV, 'panic'), id=5)))
    _, record = guest.vmm.wait()
    assert record[0] == v.Reason.PANIC


def test_disks(vmm, peer, tmp_path):
    base, overlay = disk_files(tmp_path)
    before = base.read_bytes()
    with_disks(vmm, peer, base, overlay, 'disk-check')
    vmm.claim(peer)
    _, record = vmm.wait()
    assert record[0] == v.Reason.POWEROFF
    assert 'disks are good' in vmm.console_text()
    assert 'vdb sectors 256' in vmm.console_text()
    assert base.read_bytes() == before
    data = overlay.read_bytes()
    for i in range(16):
        assert struct.unpack_from('<Q', data, i * 512)[0] == i ^ 0xffffffffffffffff


def test_sector_programs(vmm, peer, tmp_path):
    base, overlay = disk_files(tmp_path)
    with_disks(vmm, peer, base, overlay, '')
    vmm.claim(peer)
    g = Guest.__new__(Guest)
    g.vmm, g.peer, g.number = vmm, peer, 100
    g.wait_ready()
    assert g.run('sector', 'vda', '5')[1][:8] == struct.pack('<Q', 5)
    assert g.run('put-sector', 'vdb', '9', 'written')[0] == 0
    assert g.run('sector', 'vdb', '9')[1].rstrip(b'\0') == b'written'
    assert g.run('sector', 'vdb', '10')[1][:8] == struct.pack('<Q', 10)
    assert g.run('sector', 'vdb', '200')[1] == bytes(512)
    assert g.run('put-sector', 'vda', '9', 'written')[0] == 5
    assert g.counters()['vdb-flushes'] == 1
