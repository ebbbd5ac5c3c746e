# SPDX-License-Identifier: Apache-2.0
"""Pause, save, load and rollback of one cube-vmm."""

import errno
import os
import signal
import socket
import struct
import time

import pytest

import snapshot as s
import vmm as v
from snapguest import (answer_to_claim, count, differing, disks, goes_on, guest, refused, restore, resume_claimed,
                       second, soon, started, state)
from test_devices import ERROR, OK, PING, STDIN, STDOUT, Guest, parse_frame, read_all


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
    goes_on(guest, first)


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
            goes_on(g, last)
            last = count(g)


def test_streams_outlive_a_pause(vmm, guest):
    pid = guest.start('cat')
    stdin, stdout = guest.process_stream(pid, STDIN), guest.process_stream(pid, STDOUT)
    stdin.sendall(b'before ')
    s.pause(guest.peer)
    stdin.sendall(b'during')
    stdout.settimeout(0.2)
    time.sleep(0.05)
    s.resume(guest.peer)
    stdout.settimeout(60)
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
    assert 10_000_000 <= clocks[1] - clocks[0] < 60_000_000_000


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
        goes_on(started(third, other), 0)


def test_goes_on_in_a_second_vmm(vmm, guest, second, tmp_path):
    goes_on(guest, 0)
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    assert snapshot.layers[0].stat().st_size < 4 << 20
    s.resume(guest.peer)
    at_least = count(guest)

    copy = restore(second, snapshot)
    first = count(copy)
    assert first > 0
    goes_on(copy, first)
    goes_on(guest, at_least)
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
            goes_on(clone, before)
            assert clone.run('sector', 'vdb', '100')[1].rstrip(b'\0') == name.encode()
    assert g.run('sector', 'vdb', '100')[1].rstrip(b'\0') == b'later'
    goes_on(g, 0)


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


def test_new_streams_are_not_taken_for_old_ones(vmm, guest, second, tmp_path):
    """Those of before are reset in the copy while new ones are opened, and none has the port of one that the guest
    still knows."""
    old = []
    for _ in range(8):
        pid = guest.start('cat')
        old += [guest.process_stream(pid, STDIN), guest.process_stream(pid, STDOUT)]
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, snapshot)
    second.claim(peer)
    answer_to_claim(peer)
    copy = started(second, peer)
    for i in range(8):
        pid = copy.start('cat')
        stdin, stdout = copy.process_stream(pid, STDIN), copy.process_stream(pid, STDOUT)
        stdin.sendall(str(i).encode())
        stdin.shutdown(socket.SHUT_WR)
        assert read_all(stdout) == str(i).encode()
        assert copy.wait(pid) == 0
        stdin.close()
    s.wait_until(lambda: copy.counters()['vsock-connections'] == 1)
    s.resume(guest.peer)
    old[0].sendall(b'still')
    assert old[1].recv(100) == b'still'


def test_a_timer_goes_on(vmm, second, tmp_path):
    """What was left of a second of sleep is left in the copy, however late that comes."""
    g = Guest(vmm).wait_ready()
    begin = time.monotonic()
    pid = g.start('sleep', '1')
    time.sleep(0.3)
    s.pause(g.peer)
    slept = time.monotonic() - begin # at most
    snapshot = s.save(vmm, g.peer, tmp_path / 'one')
    time.sleep(1.2)
    peer = second.connect()
    s.load(second, peer, snapshot)
    time.sleep(0.3)
    second.claim(peer)
    begin = time.monotonic()
    answer_to_claim(peer)
    assert started(second, peer).wait(pid) == 0
    assert time.monotonic() - begin > 0.9 - slept


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


COUNTER_PAGES = 64                # tests/payload/process.c: all of them are in the lowest layer


def test_layers(vmm, guest, tmp_path):
    """A chain of deltas, each over the one before, loaded at every height."""
    layers, snapshots, counts = [], [], []
    s.wait_until(lambda: count(guest) > COUNTER_PAGES)
    for i in range(4):
        time.sleep(0.03)
        counts.append(count(guest))
        s.pause(guest.peer)
        snapshot = s.save(vmm, guest.peer, tmp_path / str(i), layers)
        layers = snapshot.layers
        snapshots.append(snapshot)
        s.resume(guest.peer, layers[-1])
    sizes = [x.stat().st_size for x in layers]
    assert all(size < sizes[0] for size in sizes[1:]), sizes
    for snapshot, at in reversed(list(zip(snapshots, counts))):
        with v.Vmm() as copy:
            assert at <= count(restore(copy, snapshot)) < soon(at)
    goes_on(guest, counts[-1])


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
    goes_on(g, counts[2])

    # Twice to the second-last, to one further down, then to what lies above: each is all of it.
    for number, at in enumerate((1, 1, 0, 2, 2)):
        s.pause(g.peer)
        overlay = tmp_path / f'overlay-{number}'
        s.copy_overlay(snapshots[at].overlay, overlay)
        s.rollback(g.peer, snapshots[at], overlay)
        assert state(g.peer) == v.State.PAUSED
        refused(errno.EINVAL, 'needs a claim', s.resume, g.peer)
        resume_claimed(g, 100 + number)
        assert counts[at] <= count(g) < soon(counts[at])
        assert g.run('sector', 'vdb', '100')[1].rstrip(b'\0') == str(at).encode()
        assert g.run('put-sector', 'vdb', '100', 'spoilt')[0] == 0
        goes_on(g, counts[at])


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
    assert before <= count(g) < soon(before)
    stdin.sendall(b'here')
    assert stdout.recv(100) == b'here'
