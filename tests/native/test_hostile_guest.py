# SPDX-License-Identifier: Apache-2.0
"""A guest that breaks the rules (tests/hostile) against the VMM that runs it, one attack after the other.

Of each attack it is known what has to come of it: the request fails, the device stops and works again behind a reset, or
the machine ends and says why. Behind each the VMM still does all of its work, has not grown, and has said little."""

import errno
import os
import time

import pytest

import hostileguest as h
import snapshot as s
import vmm as v
from test_devices import T_ERRNO, read_all

LONG = os.environ.get('CUBE_LONG') == '1'

# Queues that a device reads, on its own account or when there is something for the guest.
QUEUES = ['vda/0', 'vdb/0', 'rng/0', 'net/0', 'net/1', 'balloon/0', 'balloon/1', 'balloon/2', 'balloon/3', 'balloon/4',
          'mem/0', 'vsock/0', 'vsock/1']

# P1 to P8: each of these breaks one rule, and every device stops at that.
RINGS = ['head', 'last-head', 'index', 'index-back', 'next', 'last-next', 'circle', 'empty-circle', 'over-the-end',
         'behind-the-end', 'in-bars', 'in-ecam', 'in-apic', 'far-away', 'wrap', 'wrap-to-zero', 'huge', 'long', 'order',
         'indirect-unasked', 'odd-table', 'empty-table', 'long-table', 'endless-table', 'table-over-the-end',
         'table-in-bars', 'table-wraps', 'table-and-next', 'table-in-a-table', 'table-next', 'table-circle']

# P4 and P15. The guest has something to say only about what was not as it should be.
REGISTERS = ['bad-queues', 'rings-on-rings', 'bells', 'reset-storm', 'status-jumps', 'widths', 'nowhere', 'config-space',
             'window', 'msix']

# P2: a second CPU writes while the VMM reads.
RACES = ['race-descriptors', 'race-tables', 'race-contents', 'race-rings', 'race-registers']

# Virtio 1.2, 5.2.6: OK, IOERR, UNSUPP.
BAD_BLK = {'last': 0, 'over-the-end': 1, 'behind-the-end': 1, 'wrap': 1, 'wrap-to-zero': 1, 'nearly-wrap': 1,
           'odd-read': 1, 'odd-write': 1, 'write-over-the-end': 1, 'write-wrap': 1, 'write-nowhere': 1, 'read-as-write': 0,
           'write-as-read': 0, 'discard': 2, 'write-zeroes': 2, 'unknown': 2, 'long-id': 0, 'short-id': 0,
           'flush-at-nowhere': 1}
FRAMES = ['nothing', 'short', 'long', 'very-long', 'checksum-outside', 'checksum-over-the-end', 'checksum-in-ethernet',
          'segments-of-0', 'segments-of-1', 'segments-without-checksum', 'segments-unknown', 'udp-segments',
          'header-outside', 'tcp-outside']
# Virtio 1.2, 5.15.6: ACK, NACK, BUSY, ERROR.
MEM = {'unasked': 1, 'before': 3, 'behind': 3, 'over': 3, 'odd': 3, 'none': 3, 'many': 3, 'zero': 3, 'unplugged': 3,
       'wrap': 3, 'wrap-far': 3, 'state-outside': 3, 'all': 0, 'unknown': 3, 'asked-by-itself': 1}

DEVICES = {
    'live-queue': [f'{q} used' for q in QUEUES],
    # P10. Nothing is written to a disk that is read-only, not even nothing.
    'disk-ranges': [f'vda {k} {1 if k == "write-as-read" else n}' for k, n in BAD_BLK.items()] +
                   [f'vdb {k} {n}' for k, n in BAD_BLK.items()],
    'disk-frames': ['no-header used 1', 'short-header used 1', 'no-status stopped', 'status-only used 0'],
    'disk-flood': ['vdb done 200'],
    # P9
    'frames': [f'{k} used' for k in FRAMES],
    'buffers': ['none stopped', 'header-less stopped', 'twice stopped'],
    # P12
    'balloon-pages': [f'{k}/{q} stopped' for k in ('firmware', 'video', 'end', 'bar', 'apic', 'far', 'far-half', 'odd')
                      for q in (0, 1)] +
                     ['none/0 used', 'none/1 used', 'long/0 stopped', 'long/1 stopped', 'good/0 used', 'good/1 used'],
    'balloon-reports': ['report/0 stopped', 'report/1 stopped', 'report/2 stopped', 'balloon asked 0'],
    'balloon-figures': ['held stopped'],
    'mem-ranges': [f'mem {k} {n}' for k, n in MEM.items()],
    'mem-frames': ['short stopped', 'narrow stopped', 'nothing stopped', 'empty stopped'],
    # P13: 64 KiB of the 256 that each chain has room for.
    'random-bytes': ['rng largest 65536', 'empty used', 'read-only used'],
    # P15
    'ports': [],
    'ipis': ['second starts'],
    # P11
    'packets': ['seqpacket reset', 'no-type reset', 'no-op reset', 'unknown-op reset', 'high-port reset', 'response reset',
                'data reset', 'reset ignored', 'another-guest ignored', 'host-to-host ignored', 'to-a-neighbour ignored',
                'any-cid ignored', 'longer-than-it-is stopped', 'long stopped', 'endless stopped'],
    'packet-frames': ['short-header stopped', 'narrow-buffer stopped'],
    'half-closes': ['send reset', 'receive reset', 'both reset', 'all-flags reset', 'again reset', 'response reset'],
    'long-frames': ['too-long reset', 'endless reset'],
    'no-credit': ['opening response', 'behind reset'],
}

STREAMS = ['stream-early', 'stream-long-answer', 'stream-overrun', 'stream-half', 'stream-liar']

ENDS = {
    'run-a-device': {v.Reason.INTERNAL_ERROR, v.Reason.TRIPLE_FAULT},
    'stack-in-a-device': {v.Reason.INTERNAL_ERROR, v.Reason.TRIPLE_FAULT},
    'tables-in-a-device': {v.Reason.INTERNAL_ERROR, v.Reason.TRIPLE_FAULT},
    'second-triple': {v.Reason.TRIPLE_FAULT},
    'second-off': {v.Reason.POWEROFF},
    'second-panic': {v.Reason.PANIC},
    'second-resets-first': {v.Reason.RESET, v.Reason.INTERNAL_ERROR, v.Reason.TRIPLE_FAULT},
    'ends-at-once': {v.Reason.PANIC, v.Reason.TRIPLE_FAULT},
}

OTHERS = ['floods', 'disk-feeds-itself', 'disk-into-rings', 'connections', 'reconnects', 'console', 'console-long']


@pytest.fixture(scope='module')
def guests(tmp_path_factory):
    """The one that is running. An attack that went wrong leaves none to the next test."""
    running = []
    yield running
    for g in running:
        g.close()


@pytest.fixture
def hostile(guests, tmp_path_factory):
    if not guests:
        guests.append(h.HostileGuest(tmp_path_factory.mktemp('hostile')))
    g = guests.pop()
    try:
        yield g
        g.unharmed()
        guests.append(g)
    finally:
        if not guests:
            g.close()


@pytest.fixture
def doomed(tmp_path):
    g = h.HostileGuest(tmp_path)
    yield g
    g.close()


def test_every_attack_is_expected_here(hostile):
    names = hostile.result(hostile.start('attacks'))
    assert sorted(names) == sorted(RINGS + REGISTERS + RACES + list(DEVICES) + STREAMS + list(ENDS) + OTHERS)


@pytest.mark.parametrize('name', RINGS)
def test_a_ring_that_breaks_a_rule_stops_its_device(hostile, name):
    assert hostile.attack(name) == [f'{q} stopped' for q in QUEUES]


@pytest.mark.parametrize('name', REGISTERS)
def test_registers_take_what_is_right_and_nothing_else(hostile, name):
    assert hostile.attack(name) == []


@pytest.mark.parametrize('name', DEVICES)
def test_a_request_that_is_wrong_fails(hostile, name):
    assert hostile.attack(name) == DEVICES[name]


@pytest.mark.parametrize('name', RACES)
def test_a_second_cpu_that_writes_while_the_vmm_reads(hostile, name):
    assert hostile.attack(name) == []


def test_frames_with_lies_reach_nobody(hostile):
    before = hostile.counters()
    hostile.attack('frames')
    after = hostile.counters()
    assert after['net-tx-dropped'] - before['net-tx-dropped'] == len(FRAMES)
    assert after['net-tx-packets'] == before['net-tx-packets']


def test_a_disk_that_writes_over_its_own_rings(hostile):
    out = hostile.attack('disk-into-rings')
    assert [line.split()[0] for line in out] == ['write', 'read/0', 'read/1', 'read/2', 'read/3']
    assert {line.split()[1] for line in out} <= {'used', 'stopped'}


# Streams that the host opens, and that the guest treats badly

def test_a_stream_whose_agent_speaks_too_early(hostile):
    pid = hostile.start('attack', 'stream-early')
    ours, m = hostile.stream_under_attack(pid)
    assert m.error == -errno.EBADMSG
    assert hostile.result(pid) == ['stream reset']
    assert read_all(ours) == b''


def test_a_stream_whose_answer_is_too_long(hostile):
    pid = hostile.start('attack', 'stream-long-answer')
    ours, m = hostile.stream_under_attack(pid)
    assert m.error == -errno.EBADMSG
    assert hostile.result(pid) == ['stream reset']
    assert read_all(ours) == b''


@pytest.mark.parametrize('name', ['stream-overrun', 'stream-half'])
def test_a_stream_that_goes_on_when_it_may_not(hostile, name):
    pid = hostile.start('attack', name)
    ours, m = hostile.stream_under_attack(pid)
    assert m.error == 0
    assert hostile.result(pid) == ['stream reset']
    # What was sent within its credit has come, and no more.
    assert len(read_all(ours)) <= 64 << 10


def test_a_stream_that_lies_about_its_room(hostile):
    pid = hostile.start('attack', 'stream-liar')
    ours, m = hostile.stream_under_attack(pid)
    assert m.error == 0
    ours.setblocking(False)
    try:
        while ours.send(bytes(1 << 16)):
            pass
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        pass
    assert hostile.result(pid) == ['stream got packets']
    ours.close()


# Floods

def answered_during(hostile, name, is_over):
    """How often the VMM answers until is_over, and what came of the attack. One that is over before we got a CPU tells
    nothing."""
    for _ in range(5):
        since, answered = hostile.printed(), 0
        pid = hostile.start('attack', name)
        while not is_over(since):
            hostile.peer.request(v.Op.STATISTICS)
            answered += 1
        out = hostile.result(pid)
        if answered > 1:
            break
    return answered, out


def test_a_flood_on_one_device_starves_no_other(hostile):
    floods = ['vda/0', 'vdb/0', 'rng/0', 'net/1', 'balloon/0', 'balloon/1', 'balloon/3', 'mem/0', 'vsock/1']
    # Nor the VMM's own work.
    answered, out = answered_during(hostile, 'floods', hostile.over)
    assert answered > 1
    expected = []
    for f in floods:
        expected += [f'{d} alive' for d in h.DEVICES if d != f.split('/')[0]] + [f'{f} over']
    assert out == expected


def test_a_disk_that_goes_on_by_itself(hostile):
    """Its ring is filled by what it reads. It takes time that is the sandbox's own, and does not stand in the way of a
    pause or of a reset."""
    assert hostile.attack('disk-feeds-itself') == ['vdb feeds itself']
    for _ in range(3):
        before = hostile.counters()['vdb-read-bytes']
        until = time.monotonic() + h.TIMEOUT
        while hostile.counters()['vdb-read-bytes'] == before:
            assert time.monotonic() < until
        hostile.peer.request(v.Op.PAUSE)
        paused = hostile.counters()['vdb-read-bytes']
        assert hostile.counters()['vdb-read-bytes'] == paused
        hostile.peer.request(v.Op.RESUME)


def test_a_hundred_thousand_connections(hostile):
    pid = hostile.start('attack', 'connections')
    assert hostile.result(pid) == ['control answers 49984', 'elsewhere answers 50048']
    assert hostile.counters()['vsock-connections'] <= 3


def test_an_agent_that_comes_and_goes_without_end(hostile):
    """Nobody reads what that makes the VMM say: it waits, and neither grows nor gives its peer up."""
    since = hostile.printed()
    pid = hostile.start('attack', 'reconnects')
    until = time.monotonic() + h.TIMEOUT
    while not hostile.over(since):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert hostile.figures()['own-bytes'] < hostile.before['own-bytes'] + h.GROWTH_BYTES
    assert hostile.result(pid) == ['reconnects done 20000']


@pytest.mark.parametrize('name, pages', [('console-long', 512) if LONG else ('console', 17)])
def test_a_console_that_prints_without_end(hostile, name, pages):
    answered, out = answered_during(hostile, name, lambda since: hostile.printed() >= since + pages * 4096)
    assert answered > 1
    assert out == [f'console pages {pages}']
    assert len(hostile.vmm.console_text()) == v.CONSOLE_BYTES


def test_pause_and_resume_in_the_middle_of_an_attack(hostile):
    for name in ('race-descriptors', 'reset-storm', 'disk-flood'):
        pid = hostile.start('attack', name)
        for _ in range(5):
            hostile.peer.request(v.Op.PAUSE)
            hostile.peer.request(v.Op.RESUME)
        hostile.result(pid)


def test_a_snapshot_of_what_attacks_have_left(doomed, tmp_path):
    """Registers, rings and configuration space as no driver leaves them are state like any other."""
    for name in ('head', 'config-space', 'race-registers', 'balloon-figures'):
        doomed.attack(name)
        s.pause(doomed.peer)
        snapshot = s.save(doomed.vmm, doomed.peer, tmp_path / name, overlay=doomed.overlay, memory=h.MEMORY + h.PLUG)
        with h.HostileGuest.copy(doomed, snapshot) as copy:
            assert copy.result(copy.start('alive')) == [f'{d} alive' for d in h.DEVICES]
        doomed.peer.request(v.Op.RESUME)
    doomed.unharmed()


@pytest.mark.parametrize('name', ['race-descriptors', 'floods', 'reset-storm', 'connections'] if LONG else ['floods'])
def test_a_snapshot_in_the_middle_of_an_attack(doomed, tmp_path, name):
    """Both of them go on with it, and come to its end."""
    pid = doomed.start('attack', name)
    # It has gone as far as to the vsock: a claim that came before would be lost with the agent's stream.
    doomed.peer.event(v.Op.EVENT_AGENT_LOST)
    s.pause(doomed.peer)
    snapshot = s.save(doomed.vmm, doomed.peer, tmp_path / name, overlay=doomed.overlay, memory=h.MEMORY + h.PLUG)
    doomed.peer.request(v.Op.RESUME)
    with h.HostileGuest.copy(doomed, snapshot) as copy:
        assert copy.result(copy.start('alive')) == [f'{d} alive' for d in h.DEVICES]
    doomed.result(pid)
    doomed.unharmed()


def test_nothing_spins_behind_all_that(hostile):
    hostile.unharmed()
    before, at = hostile.main_thread_seconds(), time.monotonic()
    time.sleep(0.3)
    assert hostile.main_thread_seconds() - before < (time.monotonic() - at) / 2


@pytest.mark.parametrize('name', ENDS)
def test_what_ends_the_machine_says_why(doomed, name):
    doomed.start('attack', name)
    status, record = doomed.vmm.wait(timeout=h.TIMEOUT)
    assert status == 0
    assert record[0] in ENDS[name] and record[2]
