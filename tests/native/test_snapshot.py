# SPDX-License-Identifier: Apache-2.0
"""Pause, save, load and rollback of one cube-vmm, with tests/payload as the guest: its program "counter" checks
all the time that memory and disk are what it left there."""

import errno
import os
import random
import signal
import struct
import time

import pytest

import snapshot as s
import vmm as v
from test_devices import ERROR, OK, PING, STDIN, STDOUT, Guest, disk_files, parse_frame, read_all, with_disks

RANDOM_POINTS = 200 if os.environ.get('CUBE_LONG') else 40
HOSTILE_FILES = 2000 if os.environ.get('CUBE_LONG') else 300


def state(peer):
    return v.State(peer.request(v.Op.HELLO).number(v.Tag.STATE))


def refused(error, text, call, *args, **kwargs):
    with pytest.raises(v.Refused) as info:
        call(*args, **kwargs)
    assert info.value.errno == error, info.value
    assert text in info.value.message, info.value.message


def started(vmm, peer=None):
    g = Guest.__new__(Guest)
    g.vmm, g.peer, g.number = vmm, peer or vmm.connect(), 1000
    return g


def answer_to_claim(peer, number=1):
    kind, ident, _ = parse_frame(peer.event(v.Op.EVENT_AGENT).get(v.Tag.FRAME))
    assert (kind, ident) == (OK, number)


def restore(vmm, snapshot, **kwargs):
    """A second guest out of a snapshot, running."""
    g = started(vmm)
    s.load(vmm, g.peer, snapshot, **kwargs)
    vmm.claim(g.peer)
    answer_to_claim(g.peer)
    return g


def count(guest):
    """How far "counter" is; fails when it found anything that was not as it had left it."""
    status, out, _ = guest.run('count')
    value, bad = out.split()
    assert (status, bad) == (0, b'0')
    return int(value)


def resume_claimed(guest, number=7):
    s.resume(guest.peer, claim=number)
    answer_to_claim(guest.peer, number)


@pytest.fixture
def guest(vmm):
    g = Guest(vmm).wait_ready()
    g.start('counter')
    return g


@pytest.fixture
def second():
    with v.Vmm() as vmm:
        yield vmm


class Disks:
    """A guest with vda and vdb, and the files behind them."""

    def __init__(self, vmm, tmp_path):
        self.base, self.overlay = disk_files(tmp_path)
        self.others = []
        self.guest = started(vmm)
        with_disks(vmm, self.guest.peer, self.base, self.overlay, '')
        vmm.claim(self.guest.peer)
        self.guest.wait_ready()
        self.guest.start('counter')

    def other(self):
        self.others.append(v.Vmm())
        return self.others[-1]


@pytest.fixture
def disks(vmm, tmp_path):
    d = Disks(vmm, tmp_path)
    yield d
    for other in d.others:
        if other.process.poll() is None:
            other.__exit__()


# Pause

def test_pause_and_resume(vmm, guest):
    assert count(guest) >= 0
    s.pause(guest.peer)
    assert state(guest.peer) == v.State.PAUSED
    before = guest.counters()
    time.sleep(0.1)
    assert guest.counters() == before
    s.resume(guest.peer)
    assert state(guest.peer) == v.State.RUNNING
    first = count(guest)
    time.sleep(0.05)
    assert count(guest) > first


def test_states(vmm, guest, tmp_path):
    peer = guest.peer
    refused(errno.EPROTO, 'RESUME', s.resume, peer)
    refused(errno.EPROTO, 'SAVE', s.save_state, vmm, peer, tmp_path / 'x')
    s.pause(peer)
    refused(errno.EPROTO, 'PAUSE', s.pause, peer)
    refused(errno.EPROTO, 'AGENT', guest.call, PING)
    refused(errno.EPROTO, 'STOP', peer.request, v.Op.STOP, v.u64(v.Tag.TIMEOUT_USEC, 1))
    refused(errno.EPROTO, 'CLAIM', vmm.claim, peer)
    refused(errno.EINVAL, 'not rolled back', s.resume, peer, claim=3)
    snapshot = s.save(vmm, peer, tmp_path / 'one')
    refused(errno.EPROTO, 'LOAD', s.load, vmm, peer, snapshot)
    assert state(peer) == v.State.PAUSED
    s.resume(peer)
    refused(errno.EPROTO, 'ROLLBACK', s.rollback, peer, snapshot)
    assert guest.call(PING)[0] == OK


def test_states_before_a_guest(vmm, peer, kernel, tmp_path):
    refused(errno.EPROTO, 'PAUSE', s.pause, peer)
    refused(errno.EPROTO, 'SAVE', s.save_state, vmm, peer, tmp_path / 'x')
    vmm.build(peer, kernel, 'l')
    refused(errno.EPROTO, 'PAUSE', s.pause, peer)
    refused(errno.EPROTO, 'SAVE', s.save_state, vmm, peer, tmp_path / 'x')


def test_what_save_takes(vmm, guest, tmp_path):
    s.pause(guest.peer)
    full = s.small_file(tmp_path, 'full', b'x')
    refused(errno.EINVAL, 'empty', s.save_state, vmm, guest.peer, full)
    with open('/dev/null') as f:
        refused(errno.EINVAL, 'takes', guest.peer.request, v.Op.SAVE, v.u32(v.Tag.FD, v.Role.STATE), [f.fileno()])
        refused(errno.EINVAL, 'no use', guest.peer.request, v.Op.SAVE, v.u32(v.Tag.FD, v.Role.KVM), [f.fileno()])
    s.resume(guest.peer)
    assert guest.call(PING)[0] == OK


@pytest.mark.parametrize('cpus', [1, 4])
def test_pause_many_times(vmm, cpus):
    g = Guest(vmm, cpus=cpus).wait_ready()
    g.start('counter')
    last = -1
    for i in range(100):
        s.pause(g.peer)
        s.resume(g.peer)
        if i % 10 == 0:
            now = count(g)
            assert now > last
            last = now


def test_streams_outlive_a_pause(vmm, guest):
    pid = guest.start('cat')
    stdin, stdout = guest.process_stream(pid, STDIN), guest.process_stream(pid, STDOUT)
    stdin.sendall(b'before ')
    s.pause(guest.peer)
    stdin.sendall(b'during')
    stdout.settimeout(0.2)
    time.sleep(0.05)
    s.resume(guest.peer)
    stdout.settimeout(10)
    data = b''
    while len(data) < len(b'before during'):
        data += stdout.recv(100)
    assert data == b'before during'


def test_kill_and_signal_while_paused(vmm, guest):
    s.pause(guest.peer)
    vmm.process.send_signal(signal.SIGTERM)
    assert vmm.wait()[1][0] == v.Reason.POWEROFF


def test_kill_while_paused(vmm, guest):
    s.pause(guest.peer)
    guest.peer.request(v.Op.KILL)
    assert vmm.wait()[1][0] == v.Reason.KILLED


# Save and load

def differing(a, b):
    assert a.sections.keys() == b.sections.keys()
    return {k for k in a.sections if a.sections[k] != b.sections[k]}


def vcpu_parts(data):
    """(fixed part, MSRs as {index: value}, XSAVE area) of a VCPU section."""
    _, n, xsave, _ = struct.unpack_from('<IIII', data)
    fixed = len(data) - n * 16 - xsave
    msrs = {}
    for i in range(n):
        index, _, value = struct.unpack_from('<IIQ', data, fixed + i * 16)
        msrs[index] = value
    return data[:fixed], msrs, data[fixed + n * 16:]


LAPIC_BYTES = 1024
TIMER_CURRENT = 0x390


def vcpu_without_time(data):
    fixed, msrs, xsave = vcpu_parts(data)
    fixed = bytearray(fixed)
    lapic = len(fixed) - LAPIC_BYTES
    fixed[lapic - 16:lapic] = bytes(16)
    fixed[lapic + TIMER_CURRENT:lapic + TIMER_CURRENT + 4] = bytes(4)
    return bytes(fixed), msrs, bytes(xsave)


def vcpu_tsc(data):
    fixed, _, _ = vcpu_parts(data)
    return struct.unpack_from('<Q', fixed, len(fixed) - LAPIC_BYTES - 16)[0]


def test_saved_twice_only_time_differs(vmm, guest, tmp_path):
    s.pause(guest.peer)
    a = s.save(vmm, guest.peer, tmp_path / 'a').parsed()
    time.sleep(0.01)
    b = s.save(vmm, guest.peer, tmp_path / 'b').parsed()
    assert a.id != b.id and a.parent == b.parent == s.NO_ID
    assert differing(a, b) <= {(s.VCPU, 0), (s.CLOCK, 0)}
    assert vcpu_without_time(a.sections[s.VCPU, 0]) == vcpu_without_time(b.sections[s.VCPU, 0])
    assert vcpu_tsc(b.sections[s.VCPU, 0]) - vcpu_tsc(a.sections[s.VCPU, 0]) > 1_000_000
    clocks = [struct.unpack('<Q', x.sections[s.CLOCK, 0])[0] for x in (a, b)]
    assert 10_000_000 <= clocks[1] - clocks[0] < 5_000_000_000


@pytest.mark.parametrize('cpus', [1, 3])
def test_save_load_save(vmm, second, tmp_path, cpus):
    """A guest that did not run in between is the same to the byte: its time stands still."""
    g = Guest(vmm, cpus=cpus).wait_ready()
    g.start('counter')
    g.start('sleep', '100')
    time.sleep(0.05)
    s.pause(g.peer)
    first = s.save(vmm, g.peer, tmp_path / 'a')
    peer = second.connect()
    s.load(second, peer, first)
    assert state(peer) == v.State.BUILT
    time.sleep(0.02)
    again = s.save(second, peer, tmp_path / 'b', first.layers)
    assert again.parsed().parent == first.parsed().id
    assert differing(first.parsed(), again.parsed()) == set()

    with v.Vmm() as third:
        other = third.connect()
        s.load(third, other, again)
        s.save(third, other, tmp_path / 'c', again.layers)
        assert differing(again.parsed(), s.Snapshot(tmp_path / 'c/state', []).parsed()) == set()
        third.claim(other)
        answer_to_claim(other)
        assert count(started(third, other)) > 0


def test_goes_on_in_a_second_vmm(vmm, guest, second, tmp_path):
    time.sleep(0.05)
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    assert snapshot.layers[0].stat().st_size < 4 << 20
    s.resume(guest.peer)
    at_least = count(guest)

    copy = restore(second, snapshot)
    first = count(copy)
    assert first > 0
    time.sleep(0.1)
    assert count(copy) > first
    assert count(guest) > at_least
    kind, _, records = parse_frame(copy.peer.request(v.Op.HELLO).get(v.Tag.FRAME))
    assert kind == 16 and records == guest.ready


def test_clones_are_independent(disks, vmm, tmp_path):
    g = disks.guest
    time.sleep(0.05)
    assert g.run('put-sector', 'vdb', '100', 'parent')[0] == 0
    s.pause(g.peer)
    snapshot = s.save(vmm, g.peer, tmp_path / 'one', overlay=disks.overlay)
    s.resume(g.peer)
    assert g.run('put-sector', 'vdb', '100', 'later')[0] == 0

    with v.Vmm() as a, v.Vmm() as b:
        clones = []
        for name, vmm_ in (('a', a), ('b', b)):
            overlay = tmp_path / name
            s.copy_overlay(snapshot.overlay, overlay)
            clones.append(restore(vmm_, snapshot, base=disks.base, overlay=overlay))
        for name, clone in zip('ab', clones):
            assert clone.run('sector', 'vdb', '100')[1].rstrip(b'\0') == b'parent'
            assert clone.run('put-sector', 'vdb', '100', name)[0] == 0
        for name, clone in zip('ab', clones):
            before = count(clone)
            time.sleep(0.05)
            assert count(clone) > before
            assert clone.run('sector', 'vdb', '100')[1].rstrip(b'\0') == name.encode()
    assert g.run('sector', 'vdb', '100')[1].rstrip(b'\0') == b'later'
    assert count(g) > 0


def test_streams_of_the_copy_are_reset(vmm, guest, second, tmp_path):
    pid = guest.start('cat')
    stdin, stdout = guest.process_stream(pid, STDIN), guest.process_stream(pid, STDOUT)
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    s.resume(guest.peer)
    stdin.sendall(b'mine')
    assert stdout.recv(100) == b'mine'

    copy = restore(second, snapshot)
    # A stream is free again: the guest has let go of the old one, which nobody holds.
    out = copy.process_stream(copy.start('cat'), STDOUT)
    out.close()
    s.wait_until(lambda: copy.counters()['vsock-connections'] == 1)
    stdin.sendall(b'still')
    assert stdout.recv(100) == b'still'


def test_a_timer_goes_on(vmm, second, tmp_path):
    """What was left of a second of sleep is left in the copy, however late that comes."""
    g = Guest(vmm).wait_ready()
    pid = g.start('sleep', '1')
    time.sleep(0.3)
    s.pause(g.peer)
    snapshot = s.save(vmm, g.peer, tmp_path / 'one')
    time.sleep(1.2)
    peer = second.connect()
    s.load(second, peer, snapshot)
    time.sleep(0.3)
    second.claim(peer)
    begin = time.monotonic()
    answer_to_claim(peer)
    assert started(second, peer).wait(pid) == 0
    assert 0.4 < time.monotonic() - begin < 3


def test_load_does_not_run(vmm, guest, second, tmp_path):
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, snapshot)
    time.sleep(0.1)
    _, runs = s.save_state(second, peer, tmp_path / 'again')
    # kvm-clock may write its page; the guest has done nothing.
    assert sum(size for _, size, _ in runs) <= 4 * s.PAGE
    assert not peer.events


def test_more_cpus_than_saved(vmm, second, tmp_path):
    g = Guest(vmm, extra=v.u32(v.Tag.MAX_CPUS, 16)).wait_ready()
    g.start('counter')
    s.pause(g.peer)
    snapshot = s.save(vmm, g.peer, tmp_path / 'one')
    peer = second.connect()
    refused(errno.EINVAL, '17 CPUs', s.load, second, peer, snapshot, cpus=17)
    s.load(second, peer, snapshot, cpus=4)
    second.claim(peer)
    answer_to_claim(peer)
    copy = started(second, peer)
    assert count(copy) >= 0
    # And those are saved as well.
    s.pause(peer)
    again = s.save(second, peer, tmp_path / 'two', snapshot.layers)
    assert {k for k in again.parsed().sections if k[0] == s.VCPU} == {(s.VCPU, i) for i in range(4)}
    with v.Vmm() as third:
        refused(errno.EXDEV, 'CPUs', s.load, third, third.connect(), again, cpus=3)
    with v.Vmm() as third:
        assert count(restore(third, again)) >= 0


def test_layers(vmm, guest, tmp_path):
    """A chain of deltas, each over the one before, loaded at every height."""
    layers, snapshots, counts = [], [], []
    for i in range(4):
        time.sleep(0.03)
        counts.append(count(guest))
        s.pause(guest.peer)
        snapshot = s.save(vmm, guest.peer, tmp_path / str(i), layers)
        layers = snapshot.layers
        snapshots.append(snapshot)
        s.resume(guest.peer, layers[-1])
    sizes = [x.stat().st_size for x in layers]
    assert all(size < sizes[0] for size in sizes[1:])
    for snapshot, at in reversed(list(zip(snapshots, counts))):
        with v.Vmm() as copy:
            assert at <= count(restore(copy, snapshot)) < at + 500
    assert count(guest) > counts[-1]


def test_a_layer_that_is_not_the_last_saved(vmm, guest, tmp_path):
    s.pause(guest.peer)
    one = s.save(vmm, guest.peer, tmp_path / 'one')
    two = s.save(vmm, guest.peer, tmp_path / 'two')
    refused(errno.EBADMSG, 'saved last', s.resume, guest.peer, one.layers[0])
    assert state(guest.peer) == v.State.PAUSED
    s.resume(guest.peer, two.layers[0])
    s.pause(guest.peer)
    refused(errno.EBADMSG, 'saved last', s.resume, guest.peer, two.layers[0])
    three = s.save(vmm, guest.peer, tmp_path / 'three', [two.layers[0]])
    s.resume(guest.peer, three.layers[1])
    assert count(guest) >= 0


def test_a_snapshot_without_an_agent(vmm, second, tmp_path):
    g = Guest(vmm, 'silent')
    vmm.wait_console('payload: up')
    s.pause(g.peer)
    snapshot = s.save(vmm, g.peer, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, snapshot)
    assert peer.request(v.Op.HELLO).get(v.Tag.FRAME) is None
    second.claim(peer)
    assert state(peer) == v.State.RUNNING


# Rollback

def test_rollback_to_the_second_last(disks, vmm, tmp_path):
    g = disks.guest
    layers, snapshots, counts = [], [], []
    for i in range(3):
        time.sleep(0.03)
        assert g.run('put-sector', 'vdb', '100', str(i))[0] == 0
        counts.append(count(g))
        s.pause(g.peer)
        snapshot = s.save(vmm, g.peer, tmp_path / str(i), layers, disks.overlay)
        layers = snapshot.layers
        snapshots.append(snapshot)
        s.resume(g.peer, layers[-1])
    time.sleep(0.05)
    assert count(g) > counts[2]

    # Twice to the second-last, to one further down, then to what lies above: each is all of it.
    for number, at in enumerate((1, 1, 0, 2, 2)):
        s.pause(g.peer)
        overlay = tmp_path / f'overlay-{number}'
        s.copy_overlay(snapshots[at].overlay, overlay)
        s.rollback(g.peer, snapshots[at], overlay)
        assert state(g.peer) == v.State.PAUSED
        refused(errno.EINVAL, 'needs a claim', s.resume, g.peer)
        resume_claimed(g, 100 + number)
        assert counts[at] <= count(g) < counts[at] + 500
        assert g.run('sector', 'vdb', '100')[1].rstrip(b'\0') == str(at).encode()
        assert g.run('put-sector', 'vdb', '100', 'spoilt')[0] == 0
        time.sleep(0.03)
        assert count(g) > counts[at]


def test_rollback_drops_streams(vmm, guest, tmp_path):
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    s.resume(guest.peer, snapshot.layers[0])
    pid = guest.start('yes')
    out = guest.process_stream(pid, STDOUT)
    assert out.recv(100)
    s.pause(guest.peer)
    s.rollback(guest.peer, snapshot)
    resume_claimed(guest)
    read_all(out)
    kind, records = guest.call(34, v.u32(18, pid) + v.u32(19, 9))
    assert kind == ERROR
    assert count(guest) >= 0
    s.wait_until(lambda: guest.counters()['vsock-connections'] == 1)


def change_msr(snapshot, path, index, value):
    parsed = snapshot.parsed()
    data = parsed.sections[s.VCPU, 0]
    _, n, xsave, _ = struct.unpack_from('<IIII', data)
    first = len(data) - n * 16 - xsave
    for i in range(n):
        if struct.unpack_from('<I', data, first + i * 16)[0] == index:
            struct.pack_into('<Q', data, first + i * 16 + 8, value)
            return snapshot.with_state(path, parsed.pack())
    raise AssertionError('no such MSR')


def test_an_msr_that_fails_is_named(vmm, guest, second, tmp_path):
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    bad = change_msr(snapshot, tmp_path / 'bad', 0x2ff, 0xffffffff)
    peer = second.connect()
    refused(errno.EIO, '0x2ff', s.load, second, peer, bad)
    assert state(peer) == v.State.NEW
    s.load(second, peer, snapshot)
    second.claim(peer)
    answer_to_claim(peer)


def test_a_refused_rollback_changes_nothing(disks, vmm, tmp_path):
    g = disks.guest
    s.pause(g.peer)
    snapshot = s.save(vmm, g.peer, tmp_path / 'one', overlay=disks.overlay)
    s.resume(g.peer, snapshot.layers[0])
    pid = g.start('cat')
    stdin, stdout = g.process_stream(pid, STDIN), g.process_stream(pid, STDOUT)
    time.sleep(0.03)
    before = count(g)
    s.pause(g.peer)

    bad_msr = change_msr(snapshot, tmp_path / 'msr', 0x2ff, 0xffffffff)
    refused(errno.EIO, '0x2ff', s.rollback, g.peer, bad_msr)
    damaged = snapshot.state.read_bytes()[:-1]
    refused(errno.EBADMSG, '', s.rollback, g.peer, snapshot.with_state(tmp_path / 'damaged', damaged))
    refused(errno.EBADMSG, 'with memory of', s.rollback, g.peer, s.Snapshot(snapshot.state, []))
    small = s.small_file(tmp_path, 'small', b'')
    os.truncate(small, 1 << 30)
    refused(errno.EINVAL, 'overlay', s.rollback, g.peer, snapshot, small)

    assert state(g.peer) == v.State.PAUSED
    s.resume(g.peer)
    assert before <= count(g) < before + 500
    stdin.sendall(b'here')
    assert stdout.recv(100) == b'here'


# Memory that comes and goes

PLUG = 128 << 20
PLUG_GPA = 4 << 30
BLOCK = 2 << 20
MEMORY_AND_PLUG = s.MEMORY + PLUG
SLOT_BALLOON, SLOT_MEM = 7, 8
CONFIG_PLUG_BYTES = 56
# In a section VIRTIO: the device's configuration, and in it fields of virtio 1.2, 5.5.4 and 5.15.4.
VIRTIO_CONFIG = 48
BALLOON_ACTUAL = VIRTIO_CONFIG + 4
MEM_PLUGGED, MEM_REQUESTED = VIRTIO_CONFIG + 40, VIRTIO_CONFIG + 48
VMGENID = 0xfe000


def guest_page(vmm, runs, gpa):
    """16 bytes at gpa as the VMM has them; None: they are not its own."""
    for at, size, hva in runs:
        if at <= gpa < at + size:
            with open(f'/proc/{vmm.process.pid}/mem', 'rb', buffering=0) as f:
                f.seek(hva + gpa - at)
                return f.read(16)
    return None


def with_blocks(snapshot, path, blocks, claimed=None):
    """The snapshot of a guest that has these blocks plugged: the payload has no driver for that."""
    parsed = snapshot.parsed()
    body = parsed.sections[s.MEM, SLOT_MEM]
    for block in blocks:
        if block // 8 == len(body):
            body.extend(bytes(8))
        body[block // 8] |= 1 << block % 8
    struct.pack_into('<Q', parsed.sections[s.VIRTIO, SLOT_MEM], MEM_PLUGGED,
                     (len(blocks) if claimed is None else claimed) * BLOCK)
    return snapshot.with_state(path, parsed.pack())


@pytest.fixture
def grown(vmm, tmp_path):
    """A running guest with a region, asked to take some of it and to lend some."""
    g = Guest(vmm, extra=v.u64(v.Tag.PLUG_BYTES, PLUG)).wait_ready()
    g.start('counter')
    g.peer.request(v.Op.RESIZE, v.u64(v.Tag.PLUGGED_BYTES, 8 * BLOCK))
    g.peer.request(v.Op.BALLOON, v.u64(v.Tag.BALLOON_BYTES, 16 << 20))
    return g


def asked(guest, plugged=0):
    found = guest.counters()
    assert (found['mem-region-bytes'], found['mem-requested-bytes']) == (PLUG, 8 * BLOCK)
    assert (found['mem-plugged-bytes'], found['balloon-requested-bytes']) == (plugged * BLOCK, 16 << 20)


def save_grown(vmm, peer, path, layers=()):
    return s.save(vmm, peer, path, layers, memory=MEMORY_AND_PLUG)


def test_what_was_asked_of_memory_is_kept(vmm, grown, second, tmp_path):
    s.pause(grown.peer)
    refused(errno.EPROTO, 'RESIZE', grown.peer.request, v.Op.RESIZE, v.u64(v.Tag.PLUGGED_BYTES, 0))
    snapshot = save_grown(vmm, grown.peer, tmp_path / 'one')
    assert struct.unpack_from('<Q', snapshot.parsed().sections[s.CONFIG, 0], CONFIG_PLUG_BYTES)[0] == PLUG
    plugged = with_blocks(snapshot, tmp_path / 'plugged', [0, 5, 63])
    parsed = plugged.parsed()
    struct.pack_into('<I', parsed.sections[s.VIRTIO, SLOT_BALLOON], BALLOON_ACTUAL, 256)
    plugged.state.write_bytes(parsed.pack())

    peer = second.connect()
    s.load(second, peer, plugged)
    again = save_grown(second, peer, tmp_path / 'again', plugged.layers)
    assert differing(plugged.parsed(), again.parsed()) == set()
    second.claim(peer)
    answer_to_claim(peer)
    copy = started(second, peer)
    asked(copy, plugged=3)
    assert copy.counters()['balloon-bytes'] == 256 * s.PAGE
    assert count(copy) >= 0

    # And back again, by a guest of which more, or less, was asked meanwhile.
    s.resume(grown.peer, snapshot.layers[0])
    grown.peer.request(v.Op.RESIZE, v.u64(v.Tag.PLUGGED_BYTES, 0))
    grown.peer.request(v.Op.BALLOON, v.u64(v.Tag.BALLOON_BYTES, 0))
    s.pause(grown.peer)
    s.rollback(grown.peer, plugged)
    resume_claimed(grown)
    asked(grown, plugged=3)
    assert count(grown) >= 0


def test_memory_in_the_region_is_carried(vmm, grown, second, tmp_path):
    """Pages there are pages like any other: out of a layer, and into the next."""
    s.pause(grown.peer)
    snapshot = save_grown(vmm, grown.peer, tmp_path / 'one')
    layer = tmp_path / 'filled'
    pages = s.layer_pages(snapshot.layers[0])
    pages[PLUG_GPA + 5 * BLOCK] = b'plugged!' * 512
    pages[PLUG_GPA + PLUG - s.PAGE] = b'the last' * 512
    s.write_layer(layer, MEMORY_AND_PLUG, snapshot.parsed().id, s.NO_ID, sorted(pages.items()))
    peer = second.connect()
    filled = s.Snapshot(snapshot.state, [layer])
    s.load(second, peer, filled)
    with open(f'/proc/{second.process.pid}/maps') as f:
        mapped = [x.split()[0] for x in f if x.rstrip().endswith(str(layer))]
    found = []
    with open(f'/proc/{second.process.pid}/mem', 'r+b', buffering=0) as f:
        for where in mapped:
            start, end = (int(x, 16) for x in where.split('-'))
            for at in range(start, end, s.PAGE):
                f.seek(at)
                if f.read(8) in (b'plugged!', b'the last'):
                    found.append(at)
                    f.seek(at)
                    f.write(b'changed!')
    assert len(found) == 2
    after = save_grown(second, peer, tmp_path / 'after', filled.layers)
    pages = s.layer_pages(after.layers[1])
    for gpa in (PLUG_GPA + 5 * BLOCK, PLUG_GPA + PLUG - s.PAGE):
        assert pages[gpa].startswith(b'changed!')
    # What lies between two regions, or behind the last, is nobody's.
    for gpa in (s.MEMORY, PLUG_GPA - s.PAGE, PLUG_GPA + PLUG):
        s.write_layer(layer, MEMORY_AND_PLUG, snapshot.parsed().id, s.NO_ID, [(gpa, bytes([1]) * s.PAGE)])
        with v.Vmm() as other:
            refused(errno.EBADMSG, 'out of place', s.load, other, other.connect(), filled)


def test_a_region_that_does_not_fit_is_refused(vmm, grown, tmp_path):
    s.pause(grown.peer)
    snapshot = save_grown(vmm, grown.peer, tmp_path / 'one')
    loader = Loader()

    def attempt(error, text, change, kind=s.VIRTIO, slot=SLOT_MEM):
        parsed = snapshot.parsed()
        change(parsed.sections[kind, slot])
        bad = snapshot.with_state(tmp_path / 'bad', parsed.pack())
        loader.open()
        refused(error, text, s.load, loader.vmm, loader.peer, bad)
        assert state(loader.peer) == v.State.NEW
        loader.close()
        with pytest.raises(v.Refused):
            s.rollback(grown.peer, bad)
        assert state(grown.peer) == v.State.PAUSED

    def put(at, value, form='<Q'):
        return lambda body: struct.pack_into(form, body, at, value)

    bad = errno.EBADMSG
    attempt(bad, 'of what is plugged', put(0, 1), s.MEM)
    attempt(bad, 'of what is plugged', put(MEM_PLUGGED, BLOCK))
    attempt(bad, 'of what is plugged', put(MEM_REQUESTED, 4096))
    attempt(bad, 'more is asked', put(MEM_REQUESTED, PLUG + BLOCK))
    attempt(bad, 'more is asked', put(MEM_REQUESTED, (1 << 64) - 1))
    attempt(bad, 'of what is plugged', put(VIRTIO_CONFIG, 4096))
    attempt(bad, 'of what is plugged', put(VIRTIO_CONFIG + 16, 0))
    attempt(bad, 'as large as the guest', put(VIRTIO_CONFIG, MEMORY_AND_PLUG // s.PAGE, '<I'), slot=SLOT_BALLOON)
    attempt(bad, 'memory to plug', put(CONFIG_PLUG_BYTES, 1 << 62), s.CONFIG, 0)
    attempt(bad, 'memory to plug', put(CONFIG_PLUG_BYTES, PLUG + BLOCK), s.CONFIG, 0)
    attempt(bad, 'other places', put(CONFIG_PLUG_BYTES, 2 * PLUG), s.CONFIG, 0)
    attempt(bad, 'other places', put(CONFIG_PLUG_BYTES, 0), s.CONFIG, 0)
    attempt(bad, 'other places', put(8 + 16, PLUG_GPA + PLUG), s.MEMMAP, 0)

    parsed = snapshot.parsed()
    del parsed.sections[s.MEM, SLOT_MEM]
    loader.open()
    refused(bad, 'other devices', s.load, loader.vmm, loader.peer,
            snapshot.with_state(tmp_path / 'bad', parsed.pack()))
    refused(errno.EINVAL, 'not for a snapshot', s.load, loader.vmm, loader.peer, snapshot,
            extra=v.u64(v.Tag.PLUG_BYTES, PLUG))
    loader.close()
    s.resume(grown.peer)
    asked(grown)
    assert count(grown) >= 0


def test_a_snapshot_without_a_region_is_of_another_shape(vmm, grown, second, tmp_path):
    plain = Guest(second).wait_ready()
    s.pause(plain.peer)
    snapshot = s.save(second, plain.peer, tmp_path / 'plain')
    s.pause(grown.peer)
    refused(errno.EXDEV, 'another shape', s.rollback, grown.peer, snapshot)
    s.resume(grown.peer)
    asked(grown)


def test_every_copy_has_a_generation_of_its_own(vmm, guest, tmp_path):
    s.pause(guest.peer)
    ident, runs = s.save_state(vmm, guest.peer, tmp_path / 'first')
    seen = [guest_page(vmm, runs, VMGENID)]
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    s.resume(guest.peer, snapshot.layers[0])

    # It is the same guest until it is put back.
    s.pause(guest.peer)
    _, runs = s.save_state(vmm, guest.peer, tmp_path / 'same')
    assert guest_page(vmm, runs, VMGENID) is None
    s.rollback(guest.peer, snapshot)
    resume_claimed(guest)
    s.pause(guest.peer)
    _, runs = s.save_state(vmm, guest.peer, tmp_path / 'back')
    seen.append(guest_page(vmm, runs, VMGENID))

    for i in range(2):
        with v.Vmm() as copy:
            peer = copy.connect()
            s.load(copy, peer, snapshot)
            _, runs = s.save_state(copy, peer, tmp_path / str(i))
            seen.append(guest_page(copy, runs, VMGENID))
    assert None not in seen and bytes(16) not in seen
    assert len(set(seen)) == len(seen) == 4


# Random points

def test_random_points(disks, tmp_path):
    """Saved at any moment; then it goes on, or is put back, or is loaded into a fresh VMM, in any order."""
    rng = random.Random(4711)
    guest, overlay, stack, last = disks.guest, disks.overlay, [], 0
    done = dict.fromkeys(('on', 'back', 'move'), 0)
    pauses = []
    for i in range(RANDOM_POINTS):
        time.sleep(rng.random() * 0.02)
        if rng.random() < 0.3:
            guest.start('echo', 'x' * rng.randrange(100))
        begin = time.monotonic()
        s.pause(guest.peer)
        pauses.append(time.monotonic() - begin)
        snapshot = s.save(guest.vmm, guest.peer, tmp_path / str(i), stack, overlay)
        what = rng.choice(list(done))
        done[what] += 1
        if what != 'on' and len(snapshot.layers) > 4:
            snapshot = s.flatten(snapshot, tmp_path / f'{i}-flat')

        if what == 'on':
            # A chain that is long enough is not added to: what was private stays so.
            grows = len(snapshot.layers) <= 6
            s.resume(guest.peer, snapshot.layers[-1] if grows else None)
            stack = snapshot.layers if grows else stack
        else:
            overlay = tmp_path / f'{i}-overlay'
            s.copy_overlay(snapshot.overlay, overlay)
            stack = snapshot.layers
        if what == 'back':
            s.rollback(guest.peer, snapshot, overlay)
            resume_claimed(guest, 5000 + i)
        elif what == 'move':
            old, fresh = guest.vmm, disks.other()
            guest = restore(fresh, snapshot, base=disks.base, overlay=overlay)
            old.__exit__()
        now = count(guest)
        assert now >= last
        last = now
    assert all(done.values())
    pauses.sort()
    middle, longest = pauses[len(pauses) // 2] * 1e3, pauses[-1] * 1e3
    print(f'{done}, counter at {last}, pause p50 {middle:.2f} ms, max {longest:.2f} ms')


# Hostile files

class Loader:
    """LOADs one file after another, in one VMM as long as that refuses them."""

    def __init__(self):
        self.vmm = None
        self.taken = 0

    def open(self):
        self.vmm = v.Vmm()
        self.peer = self.vmm.connect()
        assert state(self.peer) == v.State.NEW
        self.fds = len(os.listdir(f'/proc/{self.vmm.process.pid}/fd'))

    def close(self):
        if self.vmm:
            self.vmm.__exit__()
        self.vmm = None

    def try_file(self, snapshot):
        if not self.vmm:
            self.open()
        try:
            s.load(self.vmm, self.peer, snapshot)
        except v.Refused as e:
            assert e.message
            assert state(self.peer) == v.State.NEW
            assert len(os.listdir(f'/proc/{self.vmm.process.pid}/fd')) == self.fds
            return False
        assert state(self.peer) == v.State.BUILT
        self.taken += 1
        self.close()
        return True


@pytest.fixture
def loader():
    x = Loader()
    yield x
    x.close()


@pytest.fixture
def good(vmm, guest, tmp_path):
    stdin = guest.process_stream(guest.start('cat'), STDIN)
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'good')
    stdin.close()
    return snapshot


def test_truncated_files(good, loader, tmp_path):
    data = good.state.read_bytes()
    rng = random.Random(1)
    for size in [0, 1, 7, 8, 63, 64, 65, 95, 96, len(data) - 1, *(rng.randrange(len(data)) for _ in range(30))]:
        assert not loader.try_file(good.with_state(tmp_path / 'cut', data[:size]))
    assert not loader.try_file(good.with_state(tmp_path / 'longer', data + bytes(8)))
    assert not loader.try_file(good.with_state(tmp_path / 'huge', bytes(5 << 20)))
    # Sections cut short, or grown, with everything else in order.
    for key in good.parsed().sections:
        for cut in (-1, 1, 8):
            parsed = good.parsed()
            body = parsed.sections[key]
            parsed.sections[key] = body[:-1] if cut < 0 else body + bytes(cut)
            if key != (s.CPUID, 0) or cut < 0:
                assert not loader.try_file(good.with_state(tmp_path / 'section', parsed.pack())), key
        parsed = good.parsed()
        del parsed.sections[key]
        assert not loader.try_file(good.with_state(tmp_path / 'missing', parsed.pack())), key
    assert loader.try_file(good)


def same_sections(a, b):
    try:
        return s.StateFile(bytes(a)).sections == s.StateFile(b).sections and a[:64] == b[:64]
    except AssertionError:
        return False


def test_flipped_bits_are_seen(good, loader, tmp_path):
    data = good.state.read_bytes()
    rng = random.Random(2)
    for _ in range(HOSTILE_FILES // 3):
        damaged = bytearray(data)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        # Padding between sections is nobody's.
        if same_sections(damaged, data):
            continue
        assert not loader.try_file(good.with_state(tmp_path / 'bit', bytes(damaged)))


def test_hostile_contents(good, loader, tmp_path):
    """Files with right checksums and wrong contents: refused by name, or harmless. A guest that was made of one
    may do what it wants, the VMM stays up."""
    rng = random.Random(3)
    values = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, (1 << 63) - 1, (1 << 64) - 1]
    for _ in range(HOSTILE_FILES):
        parsed = good.parsed()
        key = rng.choice(list(parsed.sections))
        body = parsed.sections[key]
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            size = rng.choice((1, 2, 4, 8))
            if len(body) < size:
                continue
            at = rng.randrange(len(body) - size + 1)
            value = rng.choice(values) & ((1 << 8 * size) - 1) if rng.random() < 0.7 else rng.getrandbits(8 * size)
            body[at:at + size] = value.to_bytes(size, 'little')
        loader.try_file(good.with_state(tmp_path / 'hostile', parsed.pack()))
    print(f'{loader.taken} of {HOSTILE_FILES} were taken')


def test_hostile_guests_run(good, tmp_path):
    """What was taken also runs, or ends, and is saved, without harm to the VMM."""
    rng = random.Random(4)
    for i in range(20):
        parsed = good.parsed()
        key = rng.choice([k for k in parsed.sections if k[0] in (s.VCPU, s.VIRTIO, s.VSOCK, s.PCI)])
        body = parsed.sections[key]
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        with v.Vmm() as vmm:
            peer = vmm.connect()
            try:
                s.load(vmm, peer, good.with_state(tmp_path / 'one', parsed.pack()))
            except v.Refused:
                continue
            try:
                vmm.claim(peer)
                time.sleep(0.02)
                s.pause(peer)
                s.save_state(vmm, peer, tmp_path / f'state-{i}')
                s.resume(peer)
                peer.request(v.Op.KILL)
            except (v.ProtocolError, BrokenPipeError):
                pass
            status, record = vmm.wait()
            assert status == 0 and record[0] in (v.Reason.KILLED, v.Reason.INTERNAL_ERROR, v.Reason.TRIPLE_FAULT,
                                                 v.Reason.RESET, v.Reason.POWEROFF, v.Reason.PANIC)


def test_hostile_memory_files(good, loader, tmp_path):
    data = good.layers[0].read_bytes()
    header = s.LAYER_HEADER.unpack_from(data)
    n, memory, ident = header[2], header[3], header[4]
    runs = [list(s.RUN.unpack_from(data, s.LAYER_HEADER.size + i * s.RUN.size)) for i in range(n)]
    path = tmp_path / 'layer'

    def attempt(change, **kwargs):
        changed = [list(r) for r in runs]
        change(changed)
        packed = b''.join(s.RUN.pack(*r) for r in changed)
        s.seal_layer(path, kwargs.get('memory', memory), kwargs.get('ident', ident), kwargs.get('parent', s.NO_ID),
                     kwargs.get('n', len(changed)), packed)
        with open(path, 'r+b') as f:
            f.truncate(len(data))
            f.seek(max(4096, s.LAYER_HEADER.size + len(packed)))
            f.write(data[f.tell():])
        return loader.try_file(s.Snapshot(good.state, [path]))

    def put(index, field, value):
        def change(x):
            x[index][field] = value
        return change

    last = next(r for r in reversed(runs) if r[2] != s.RUN_ZERO)
    at = runs.index(last)
    for change in (put(0, 0, 1), put(0, 0, 1 << 63), put(-1, 0, memory), put(-1, 1, 0), put(-1, 1, 4097),
                   put(-1, 1, (1 << 64) - 4096), put(-1, 1, memory), put(at, 2, 1), put(at, 2, len(data)),
                   put(at, 2, 1 << 62), put(at, 2, (1 << 64) - 4096), lambda x: x.append(list(x[-1])),
                   lambda x: x.reverse(), put(at, 1, 1 << 40)):
        assert not attempt(change)
    nothing = lambda x: None
    assert not attempt(nothing, memory=memory * 2)
    assert not attempt(nothing, ident=bytes(range(16)))
    assert not attempt(nothing, parent=bytes(range(16)))
    assert not attempt(nothing, n=5000)
    assert not attempt(nothing, n=0xffffffff)
    for size in (0, 10, 63, 64, s.LAYER_HEADER.size + 5, 4096):
        assert not loader.try_file(s.Snapshot(good.state, [s.small_file(tmp_path, 'cut', data[:size])]))
    damaged = bytearray(data)
    damaged[70] ^= 1
    assert not loader.try_file(s.Snapshot(good.state, [s.small_file(tmp_path, 'bit', damaged)]))
    assert not loader.try_file(s.Snapshot(good.state, []))
    assert not loader.try_file(s.Snapshot(good.state, good.layers * 2))
    assert attempt(nothing)


@pytest.mark.parametrize('what, error, text', [
    ('version', errno.EPROTONOSUPPORT, 'version 2'), ('architecture', errno.EPROTONOSUPPORT, 'architecture'),
    ('type', errno.EPROTONOSUPPORT, 'unknown type'), ('tsc', errno.EXDEV, 'TSC'),
    ('cpuid', errno.EOPNOTSUPP, 'another CPU'), ('svm', errno.EBADMSG, 'no guest is given'),
    ('msr', errno.EBADMSG, 'MSR 0x10'), ('disk', errno.EXDEV, 'disk 0')])
def test_what_another_version_or_host_made_is_refused_by_name(good, loader, tmp_path, what, error, text):
    parsed = good.parsed()
    data = None
    if what == 'tsc':
        khz, = struct.unpack_from('<I', parsed.sections[s.CONFIG, 0], 20)
        struct.pack_into('<I', parsed.sections[s.CONFIG, 0], 20, khz * 2)
        invariant = any(struct.unpack_from('<I', leaf)[0] == 0x80000007 and struct.unpack_from('<I', leaf, 24)[0] & 256
                        for leaf in leaves(parsed))
        if not invariant:
            assert loader.try_file(good.with_state(tmp_path / 'x', parsed.pack()))
            return
    elif what in ('cpuid', 'svm'):
        set_leaf_bit(parsed, *((7, 16, 27) if what == 'cpuid' else (0x80000001, 20, 2)))
    elif what == 'msr':
        body = parsed.sections[s.VCPU, 0]
        _, n, xsave, _ = struct.unpack_from('<IIII', body)
        struct.pack_into('<I', body, len(body) - n * 16 - xsave, 0x10)
    elif what == 'disk':
        struct.pack_into('<I', parsed.sections[s.CONFIG, 0], 24, 1)
    else:
        data = bytearray(good.state.read_bytes())
        struct.pack_into('<I', data, {'version': 8, 'architecture': 12, 'type': 64}[what], 99 if what == 'type' else 2)
        seal(data)
    path = tmp_path / 'other'
    with pytest.raises(v.Refused) as info:
        with v.Vmm() as vmm:
            s.load(vmm, vmm.connect(), good.with_state(path, bytes(data or parsed.pack())))
    assert info.value.errno == error and text in info.value.message, info.value


def leaves(parsed):
    body = parsed.sections[s.CPUID, 0]
    return [body[at:at + 40] for at in range(0, len(body), 40)]


def set_leaf_bit(parsed, function, register, bit):
    """register: offset in struct kvm_cpuid_entry2."""
    body = parsed.sections[s.CPUID, 0]
    for at in range(0, len(body), 40):
        found, index = struct.unpack_from('<II', body, at)
        if (found, index) == (function, 0):
            value, = struct.unpack_from('<I', body, at + register)
            assert not value >> bit & 1, 'chosen for being clear'
            struct.pack_into('<I', body, at + register, value | 1 << bit)
            return
    raise AssertionError('no such leaf')


def seal(data):
    n, = struct.unpack_from('<I', data, 56)
    struct.pack_into('<I', data, 60, 0)
    struct.pack_into('<I', data, 60, s.zlib.crc32(data[:64 + n * 32]))
