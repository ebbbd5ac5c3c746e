# SPDX-License-Identifier: Apache-2.0
"""The network card over a real tap: the payload guest sends back what it gets."""

import errno
import fcntl
import os
import socket
import struct
import time

import pytest

import snapshot as s
import vmm as v
import wire as w
from snapguest import refused, restore, resume_claimed, second, started
from test_devices import Guest

ROUNDS = 5000 if os.environ.get('CUBE_LONG') == '1' else 300


@pytest.fixture
def wire():
    x = w.Wire().listen()
    yield x
    x.close()


@pytest.fixture
def guest(vmm, wire):
    g = Guest(vmm, tap=wire.tap).wait_ready()
    g.start('net-echo')
    return g


def round_trip(wire, frame, header=bytes(w.HEADER.size)):
    wire.send(frame, header)
    got = wire.receive()
    assert got[1] == w.echoed(frame)
    return got[0]


def config(guest):
    status, out, _ = guest.run('net-config')
    assert status == 0
    return out.decode()


def test_frames_both_ways(guest, wire):
    for size in (46, 47, 1000, 1500):
        round_trip(wire, w.frame(os.urandom(size)))
    c = guest.counters()
    assert c['net-rx-packets'] == c['net-tx-packets'] == 4
    assert c['net-rx-bytes'] == c['net-tx-bytes'] == 4 * 14 + 46 + 47 + 1000 + 1500
    assert c['net-rx-dropped'] == c['net-tx-dropped'] == 0


def test_many_frames_in_order(guest, wire):
    for i in range(200):
        wire.send(w.frame(struct.pack('>I', i) + bytes(1000)))
    for i in range(200):
        assert wire.receive()[1][14:18] == struct.pack('>I', i)


def test_a_segment_of_64_kib_in_one_piece(guest, wire):
    wire.listen(0x0800)
    # The kernel itself cuts what is longer.
    header, frame = w.tcp4(os.urandom(65535 - 54), 1448)
    assert len(frame) == 65535
    back = round_trip(wire, frame, header)
    flags, kind, _, size, start, offset = w.HEADER.unpack(back)
    assert (flags & w.NEEDS_CSUM, kind, size, start, offset) == (w.NEEDS_CSUM, w.TCPV4, 1448, 34, 16)


def test_a_checksum_that_is_still_to_be_made(guest, wire):
    wire.listen(0x0800)
    header, frame = w.tcp4(b'x' * 100, 1448)
    flags, kind, _, _, start, offset = w.HEADER.unpack(round_trip(wire, frame, header))
    assert (flags & w.NEEDS_CSUM, kind, start, offset) == (w.NEEDS_CSUM, 0, 34, 16)


def test_the_address_and_the_link(guest, vmm):
    assert config(guest) == '02cbff000002' + '0100'


def test_without_a_tap(vmm):
    g = Guest(vmm).wait_ready()
    assert config(g) == '02cbff000002' + '0000'
    assert not [m for m in g.peer.request(v.Op.HELLO).all(v.Tag.FD) if m == struct.pack('<I', v.Role.TAP)]


def test_the_tap_is_handed_back(guest, wire):
    m = guest.peer.request(v.Op.HELLO)
    roles = [v.Role(int.from_bytes(r, 'little')) for r in m.all(v.Tag.FD)]
    assert roles == [v.Role.CONSOLE, v.Role.TAP]
    assert os.fstat(m.fds[1]).st_rdev == os.fstat(wire.tap).st_rdev
    # A second one who serves it would get some of the guest's frames.
    name = fcntl.ioctl(m.fds[1], 0x800454d2, bytes(40))
    assert name.startswith(b'tap0\0')
    for fd in m.fds:
        os.close(fd)


def test_header_and_offloads_are_set_whatever_they_were(vmm, wire):
    fcntl.ioctl(wire.tap, w.TUNSETOFFLOAD, 0)
    assert wire.header_bytes() == 10
    g = Guest(vmm, tap=wire.tap).wait_ready()
    assert wire.header_bytes() == 12
    g.start('net-echo')
    wire.listen(0x0800)
    header, frame = w.tcp4(os.urandom(20000), 1448)
    round_trip(wire, frame, header)


@pytest.mark.parametrize('flags', [w.IFF_TAP | w.IFF_NO_PI, w.IFF_TUN | w.IFF_NO_PI | w.IFF_VNET_HDR])
def test_a_tap_of_another_kind_is_refused(vmm, peer, kernel, flags):
    wire = w.Wire(flags)
    try:
        refused(errno.EINVAL, f'tap: made with flags {flags:#x}', vmm.build, peer, kernel, 'l', tap=wire.tap)
    finally:
        wire.close()


def test_a_file_is_no_tap(vmm, peer, kernel):
    with open('/dev/null') as f:
        refused(errno.ENOTTY, 'tap', vmm.build, peer, kernel, 'l', tap=f.fileno())
    vmm.build(peer, kernel, 'l')


def test_a_tap_that_is_deleted(guest, wire):
    round_trip(wire, w.frame(b'a' * 60))
    wire.ip('link', 'del', 'tap0')
    m = guest.peer.event(v.Op.EVENT_DEVICE)
    assert m.get(v.Tag.DEVICE) == b'net'
    assert 'the tap is gone' in m.message
    assert config(guest).endswith('0000')
    # It is not looked at again and again.
    before = cpu_ticks(guest.vmm.process.pid)
    time.sleep(0.5)
    assert cpu_ticks(guest.vmm.process.pid) - before < 20
    assert guest.run('true')[0] == 0


def cpu_ticks(pid):
    with open(f'/proc/{pid}/stat') as f:
        fields = f.read().rsplit(')', 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_a_link_that_is_down_on_the_host(guest, wire):
    wire.ip('link', 'set', 'tap0', 'down')
    time.sleep(0.1)
    wire.ip('link', 'set', 'tap0', 'up')
    assert wire.packet.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ENETDOWN
    round_trip(wire, w.frame(b'b' * 60))


def test_a_guest_that_does_not_look(vmm, wire):
    g = Guest(vmm, tap=wire.tap).wait_ready()
    pid = g.start('net-echo')
    round_trip(wire, w.frame(b'c' * 60))
    g.call(34, v.u32(18, pid) + v.u32(19, 9))
    g.wait(pid)
    # More than its buffers and the tap hold.
    for i in range(2000):
        try:
            wire.send(w.frame(struct.pack('>I', i) + bytes(100)))
        except OSError as e:
            assert e.errno == errno.ENOBUFS
    time.sleep(0.2)
    before = cpu_ticks(vmm.process.pid)
    time.sleep(0.5)
    assert cpu_ticks(vmm.process.pid) - before < 20
    assert g.counters()['net-rx-packets'] <= 1 + 64
    g.start('net-echo')
    seen = [struct.unpack('>I', wire.receive()[1][14:18])[0] for _ in range(200)]
    assert seen == list(range(200))


# Snapshots

def test_pause_and_resume(guest, wire):
    for i in range(20):
        wire.send(w.frame(struct.pack('>I', i) + bytes(60)))
        s.pause(guest.peer)
        wire.send(w.frame(struct.pack('>I', 1000 + i) + bytes(60)))
        s.resume(guest.peer)
        assert wire.receive()[1][14:18] == struct.pack('>I', i)
        assert wire.receive()[1][14:18] == struct.pack('>I', 1000 + i)


def test_a_copy_goes_on_with_the_same_tap(vmm, guest, wire, second, tmp_path):
    wire.listen(0x0800)
    header, frame = w.tcp4(os.urandom(30000), 1448)
    round_trip(wire, frame, header)
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    vmm.process.kill()
    vmm.process.wait()
    # What comes meanwhile waits in the tap; whoever had it between did not care for offloads.
    fcntl.ioctl(wire.tap, w.TUNSETOFFLOAD, 0)
    wire.listen()
    wire.send(w.frame(b'waiting' * 10))
    g = restore(second, snapshot, tap=wire.tap)
    assert wire.receive()[1] == w.echoed(w.frame(b'waiting' * 10))
    wire.listen(0x0800)
    round_trip(wire, frame, header)
    assert g.counters()['net-tx-dropped'] == 0


def test_a_copy_without_a_network_and_one_with_it(vmm, second, wire, tmp_path):
    g = Guest(vmm).wait_ready()
    g.start('net-echo')
    assert config(g).endswith('0000')
    s.pause(g.peer)
    snapshot = s.save(vmm, g.peer, tmp_path / 'one')
    copy = restore(second, snapshot, tap=wire.tap)
    assert config(copy).endswith('0100')
    round_trip(wire, w.frame(b'd' * 100))
    with v.Vmm() as third:
        assert config(restore(third, snapshot)).endswith('0000')


def test_rollback_keeps_the_tap(vmm, guest, wire, tmp_path):
    round_trip(wire, w.frame(b'e' * 100))
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    s.resume(guest.peer)
    for i in range(30):
        round_trip(wire, w.frame(bytes([i]) * 100))
    s.pause(guest.peer)
    s.rollback(guest.peer, snapshot)
    resume_claimed(guest)
    wire.listen(0x0800)
    header, frame = w.tcp4(os.urandom(65000), 1448)
    round_trip(wire, frame, header)


def test_save_load_save_is_the_same(vmm, guest, wire, second, tmp_path):
    for i in range(5):
        round_trip(wire, w.frame(bytes([i]) * 100))
    s.pause(guest.peer)
    one = s.save(vmm, guest.peer, tmp_path / 'one')
    g = started(second)
    s.load(second, g.peer, one, tap=wire.tap)
    two = s.save(second, g.peer, tmp_path / 'two')
    for kind in (s.PCI, s.VIRTIO):
        assert one.parsed().sections[kind, 6] == two.parsed().sections[kind, 6]


# Hostile guests

def test_nonsense(vmm, wire):
    g = Guest(vmm, tap=wire.tap).wait_ready()
    resets = 0
    for seed in range(1, 5):
        status, out, _ = g.run('net-misbehave', str(ROUNDS), str(seed))
        assert status == 0
        resets += int(out)
    c = g.counters()
    assert c['net-tx-dropped'] > 0 and c['net-tx-packets'] > 0 and resets > 0
    g.start('net-echo')
    # What got through was nonsense to the host, too: nothing of it is ours.
    round_trip(wire, w.frame(b'f' * 100))
