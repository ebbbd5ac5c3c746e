# SPDX-License-Identifier: Apache-2.0
"""Clocks and timers of a guest that is paused, saved, loaded and rolled back: its monotonic time stands still while it
lies in a file, its real time is what the claim says, and no timer is lost."""

import contextlib
import errno
import struct
import time

import pytest

import snapshot as s
import vmm as v
from snapguest import answer_to_claim, count, goes_on, refused, second, started
from test_devices import LIST, OK, SIGNAL, STDOUT, T_PID, T_SIGNAL, Guest, parse_frame, read_all

T_REALTIME, T_PROCESS = 8, 21
PARKED = 1.5
MODES = ['once', 'deadline']


class Clock:
    """What the guest's clocks say, and between which two instants of this host they said it."""

    def __init__(self, guest):
        self.before = time.monotonic_ns()
        status, out, _ = guest.run('clock')
        self.host_realtime = time.time_ns()
        self.after = time.monotonic_ns()
        assert status == 0, 'the guest has no kvm-clock'
        self.tsc, self.monotonic, self.realtime, self.was_away = map(int, out.split())

    def check_realtime(self, claim_took):
        """Right, as far as it took to ask, and to tell."""
        uncertain = self.after - self.before + claim_took + 50_000_000
        assert abs(self.host_realtime - self.realtime) <= uncertain


def check_ran(before, after, left_out=(0, 0)):
    """The guest's time went on as the host's did, but for what is left out, which is known between two bounds."""
    ran = after.monotonic - before.monotonic
    least, most = after.before - before.after - left_out[1], after.after - before.before - left_out[0]
    assert before.tsc < after.tsc
    assert least * 0.99 - 1_000_000 <= ran <= most * 1.01 + 1_000_000


def claim_record(number):
    return v.tlv(v.Tag.FRAME, v.frame(v.AGENT_CLAIM, v.u64(T_REALTIME, time.time_ns()), id=number))


def claimed(vmm, peer):
    """The guest, and the two instants between which it began to run."""
    before = time.monotonic_ns()
    peer.request(v.Op.CLAIM, claim_record(1))
    answer_to_claim(peer)
    return started(vmm, peer), (before, time.monotonic_ns())


def resume_claimed(guest):
    before = time.monotonic_ns()
    guest.peer.request(v.Op.RESUME, claim_record(7))
    answer_to_claim(guest.peer, 7)
    return before, time.monotonic_ns()


def saved(vmm, guest, directory, layers=()):
    """A snapshot, and the two instants between which it was taken."""
    before = time.monotonic_ns()
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, directory, layers)
    return snapshot, (before, time.monotonic_ns())


def between(one, other):
    """Bounds of how long it is from one to the other, of each of which two bounds are known."""
    return other[0] - one[1], other[1] - one[0]


@pytest.fixture
def guest(vmm):
    return Guest(vmm).wait_ready()


# Clocks

def test_time_goes_on_through_a_pause(guest):
    first = Clock(guest)
    assert not first.was_away
    s.pause(guest.peer)
    time.sleep(0.3)
    s.resume(guest.peer)
    after = Clock(guest)
    check_ran(first, after)
    assert after.was_away, 'else its watchdogs report what passed meanwhile'
    assert not Clock(guest).was_away


def test_time_goes_on_in_a_guest_that_was_saved(vmm, guest, tmp_path):
    first = Clock(guest)
    snapshot, _ = saved(vmm, guest, tmp_path / 'one')
    s.resume(guest.peer, snapshot.layers[0])
    after = Clock(guest)
    check_ran(first, after)
    assert after.was_away


def test_a_copy_does_not_see_how_long_it_lay(vmm, guest, second, tmp_path):
    """Neither in the file nor between its load and its claim."""
    first = Clock(guest)
    snapshot, when = saved(vmm, guest, tmp_path / 'one')
    time.sleep(PARKED / 2)
    peer = second.connect()
    s.load(second, peer, snapshot)
    time.sleep(PARKED / 2)
    copy, went = claimed(second, peer)
    after = Clock(copy)
    check_ran(first, after, between(when, went))
    assert after.was_away
    after.check_realtime(went[1] - went[0])
    time.sleep(0.3)
    later = Clock(copy)
    check_ran(after, later)
    later.check_realtime(went[1] - went[0])


def test_time_goes_back_with_a_rollback(vmm, guest, tmp_path):
    first = Clock(guest)
    snapshot, when = saved(vmm, guest, tmp_path / 'one')
    s.resume(guest.peer, snapshot.layers[0])
    for _ in range(2):
        time.sleep(0.5)
        s.pause(guest.peer)
        s.rollback(guest.peer, snapshot)
        time.sleep(0.2)
        went = resume_claimed(guest)
        after = Clock(guest)
        check_ran(first, after, between(when, went))
        assert after.was_away
        after.check_realtime(went[1] - went[0])


def test_copies_of_copies(vmm, guest, tmp_path):
    """What each leaves out adds up to no more than that."""
    first = last = Clock(guest)
    layers, left_out = [], [0, 0]
    with contextlib.ExitStack() as copies:
        for i in range(5):
            snapshot, when = saved(vmm, guest, tmp_path / str(i), layers)
            layers = snapshot.layers
            time.sleep(0.2)
            vmm = copies.enter_context(v.Vmm())
            peer = vmm.connect()
            s.load(vmm, peer, snapshot)
            guest, went = claimed(vmm, peer)
            left_out = [a + b for a, b in zip(left_out, between(when, went))]
            now = Clock(guest)
            assert last.monotonic < now.monotonic and last.tsc < now.tsc
            check_ran(first, now, left_out)
            last = now


# Hosts whose TSC is another

TSC_KHZ = 20                      # in section CONFIG
LEAF_BYTES, LEAF_POWER, INVARIANT = 40, 0x80000007, 1 << 8


def power_leaf(parsed):
    """Where CPUID's word with the invariant TSC is."""
    body = parsed.sections[s.CPUID, 0]
    for at in range(0, len(body), LEAF_BYTES):
        if struct.unpack_from('<I', body, at)[0] == LEAF_POWER:
            return at + 24
    return None


def with_tsc(snapshot, path, factor, invariant):
    parsed = snapshot.parsed()
    khz, = struct.unpack_from('<I', parsed.sections[s.CONFIG, 0], TSC_KHZ)
    struct.pack_into('<I', parsed.sections[s.CONFIG, 0], TSC_KHZ, int(khz * factor))
    at, body = power_leaf(parsed), parsed.sections[s.CPUID, 0]
    assert at is not None or not invariant
    if at is not None:
        flags, = struct.unpack_from('<I', body, at)
        struct.pack_into('<I', body, at, flags | INVARIANT if invariant else flags & ~INVARIANT)
    return snapshot.with_state(path, parsed.pack())


@pytest.mark.parametrize('factor', [0.5, 1.001, 3])
def test_another_frequency_is_carried_by_the_clock(vmm, guest, second, tmp_path, factor):
    first = Clock(guest)
    snapshot, when = saved(vmm, guest, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, with_tsc(snapshot, tmp_path / 'other', factor, False))
    copy, went = claimed(second, peer)
    after = Clock(copy)
    check_ran(first, after, between(when, went))
    time.sleep(0.2)
    check_ran(after, Clock(copy))


@pytest.mark.parametrize('factor, same', [(0.5, False), (0.999, False), (1.0001, True), (1.001, False), (3, False)])
def test_another_frequency_is_refused_to_a_guest_that_counts_on_it(vmm, guest, second, tmp_path, factor, same):
    snapshot, _ = saved(vmm, guest, tmp_path / 'one')
    at = power_leaf(snapshot.parsed())
    if at is None or not snapshot.parsed().sections[s.CPUID, 0][at + 1] & INVARIANT >> 8:
        pytest.skip('this host gives no guest an invariant TSC')
    other = with_tsc(snapshot, tmp_path / 'other', factor, True)
    if same:
        s.load(second, second.connect(), other)
    else:
        refused(errno.EXDEV, 'invariant TSC', s.load, second, second.connect(), other)


# Timers

def finishes(guest, pid, msec):
    """It does, and not too early by the guest's own clock."""
    out = read_all(guest.process_stream(pid, STDOUT))
    assert guest.wait(pid) == 0
    assert int(out) > msec * 990_000


def has_finished(guest, pid):
    guest.number += 1
    guest.peer.request(v.Op.AGENT, v.tlv(v.Tag.FRAME, v.frame(LIST, id=guest.number)))
    _, _, records = parse_frame(guest.peer.event(v.Op.EVENT_AGENT).get(v.Tag.FRAME))
    states = {}
    for tag, body in records:
        if tag == T_PROCESS:
            found, _, states[found] = struct.unpack_from('<III', body)
    return states[pid] == 1


def stop(guest, pid):
    assert guest.call(SIGNAL, v.u32(T_PID, pid) + v.u32(T_SIGNAL, 9))[0] == OK


@pytest.mark.parametrize('mode', MODES)
def test_a_timer_that_is_to_fire(vmm, guest, second, tmp_path, mode):
    pid = guest.start(mode, '1000')
    snapshot, _ = saved(vmm, guest, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, snapshot)
    time.sleep(1.2)
    finishes(claimed(second, peer)[0], pid, 1000)
    s.resume(guest.peer)
    finishes(guest, pid, 1000)


@pytest.mark.parametrize('mode', MODES)
def test_a_timer_that_fires_while_the_guest_is_paused(vmm, guest, second, tmp_path, mode):
    """KVM has noted it, and not yet told the local APIC."""
    pid = guest.start(mode, '100')
    s.pause(guest.peer)
    time.sleep(0.2)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, snapshot)
    finishes(claimed(second, peer)[0], pid, 100)
    s.resume(guest.peer, snapshot.layers[0])
    finishes(guest, pid, 100)


@pytest.mark.parametrize('mode', MODES)
def test_a_timer_whose_interrupt_waits(vmm, guest, second, tmp_path, mode):
    """While it counts the guest keeps interrupts off: its local APIC holds this one."""
    counter = guest.start('counter')
    pid = guest.start(mode, '50')
    time.sleep(0.2)
    snapshot, _ = saved(vmm, guest, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, snapshot)
    copy, _ = claimed(second, peer)
    assert not has_finished(copy, pid)
    stop(copy, counter)
    finishes(copy, pid, 50)
    s.resume(guest.peer, snapshot.layers[0])
    stop(guest, counter)
    finishes(guest, pid, 50)


@pytest.mark.parametrize('mode, other', [MODES, MODES[::-1]])
def test_a_timer_goes_back_with_a_rollback(vmm, guest, tmp_path, mode, other):
    """One that was set meanwhile is gone, and the one of then fires again."""
    pid = guest.start(mode, '400')
    snapshot, _ = saved(vmm, guest, tmp_path / 'one')
    s.resume(guest.peer, snapshot.layers[0])
    finishes(guest, pid, 400)
    guest.start(other, '100000')
    s.pause(guest.peer)
    s.rollback(guest.peer, snapshot)
    resume_claimed(guest)
    finishes(guest, pid, 400)


# What else a guest was in the middle of

def test_no_answer_to_an_access_is_lost(vmm, guest, tmp_path):
    """A vCPU that is stopped in the middle of an access to a port finishes it before it is saved."""
    guest.start('registers')
    before = count(guest)
    layers = []
    for i in range(6):
        for _ in range(20):
            s.pause(guest.peer)
            s.resume(guest.peer)
        snapshot, _ = saved(vmm, guest, tmp_path / str(i), layers)
        layers = snapshot.layers
        with v.Vmm() as other:
            peer = other.connect()
            s.load(other, peer, snapshot)
            copy, _ = claimed(other, peer)
            goes_on(copy, before)
        s.resume(guest.peer, layers[-1])
    goes_on(guest, before)


def test_the_console_goes_on(vmm, guest, second, tmp_path):
    """It has no interrupt that could get lost: what is written is out at once."""
    assert guest.run('print', 'before')[0] == 0
    snapshot, _ = saved(vmm, guest, tmp_path / 'one')
    peer = second.connect()
    s.load(second, peer, snapshot)
    copy, _ = claimed(second, peer)
    assert copy.run('print', 'in', 'the', 'copy')[0] == 0
    assert second.console_text() == 'in the copy\n'
    s.resume(guest.peer)
    assert guest.run('print', 'after')[0] == 0
    assert vmm.console_text().endswith('before\nafter\n')
