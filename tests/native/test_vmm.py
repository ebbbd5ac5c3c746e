# SPDX-License-Identifier: Apache-2.0
"""cube-vmm by itself: its states and ends, its control protocol, its jail.

The guest is tests/payload/exit.S, which says hello and ends as its command line tells."""

import errno
import os
import signal
import socket
import struct
import subprocess
import time

import pytest

from vmm import (AGENT_CLAIM, AGENT_PING, AGENT_STREAM_PROCESS, CONSOLE_BYTES, FDS_MAX, FLAG_REPLY, HEADER, MAGIC, MESSAGE_MAX,
                 VERSION, Op, Peer, Reason, Refused, Role, State, Tag, Vmm, find_program, frame, tlv, u32, u64)

HELLO = 'hello from the guest\n'


def state(peer):
    return State(peer.request(Op.HELLO).number(Tag.STATE))


def open_fds(vmm):
    return len(os.listdir(f'/proc/{vmm.process.pid}/fd'))


def refused(peer, error, text, op, records=b'', fds=(), **kwargs):
    with pytest.raises(Refused) as info:
        peer.request(op, records, fds, **kwargs)
    assert info.value.errno == error, info.value
    assert text in info.value.message


# The ends of a guest

def test_poweroff(vmm, peer, kernel):
    vmm.start(peer, kernel, 'p')
    event = peer.event(Op.EVENT_EXIT)
    assert event.number(Tag.REASON) == Reason.POWEROFF
    assert vmm.wait() == (0, (Reason.POWEROFF, 0, 'the guest powered off'))
    assert vmm.console_text() == HELLO
    assert vmm.log_text() == ''


def test_reset_before_the_agent(vmm, peer, kernel):
    vmm.start(peer, kernel, 'r')
    assert peer.event(Op.EVENT_EXIT).number(Tag.REASON) == Reason.RESET_EARLY
    assert vmm.wait()[1][0] == Reason.RESET_EARLY


def test_triple_fault(vmm, peer, kernel):
    vmm.start(peer, kernel, 't')
    event = peer.event(Op.EVENT_EXIT)
    assert event.number(Tag.REASON) in (Reason.TRIPLE_FAULT, Reason.INTERNAL_ERROR)
    assert vmm.wait()[1][0] == event.number(Tag.REASON)


def test_no_peer_at_the_end(vmm, kernel):
    peer = vmm.connect()
    vmm.start(peer, kernel, 'p')
    peer.close()
    assert vmm.wait()[1][0] == Reason.POWEROFF


@pytest.mark.parametrize('what', ['i', 'm'])
def test_what_is_not_there_reads_as_ones(vmm, peer, kernel, what):
    vmm.start(peer, kernel, what)
    assert vmm.wait()[1][0] == Reason.POWEROFF
    assert vmm.console_text() == HELLO + 'ok\n'


def test_kill_in_each_state(kernel):
    for steps in range(3):
        with Vmm() as vmm:
            peer = vmm.connect()
            if steps > 0:
                vmm.build(peer, kernel, 'l')
            if steps > 1:
                vmm.claim(peer)
                vmm.wait_console(HELLO)
            peer.request(Op.KILL)
            assert peer.event(Op.EVENT_EXIT).number(Tag.REASON) == Reason.KILLED
            status, record = vmm.wait()
            assert status == 0
            assert record is None if steps == 0 else record[0] == Reason.KILLED


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGRTMIN + 4])
def test_signal_to_a_guest_that_does_not_listen(vmm, peer, kernel, number):
    vmm.start(peer, kernel, 'l', extra=u64(Tag.STOP_TIMEOUT_USEC, 300000))
    vmm.wait_console(HELLO)
    begin = time.monotonic()
    vmm.process.send_signal(number)
    assert vmm.wait(60)[1][0] == Reason.STOP_TIMEOUT
    assert time.monotonic() - begin > 0.25


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGRTMIN + 4])
def test_nothing_more_is_asked_of_a_guest_that_stops(vmm, peer, kernel, number):
    vmm.start(peer, kernel, 'l', extra=u64(Tag.STOP_TIMEOUT_USEC, 600000000))
    vmm.wait_console(HELLO)
    vmm.process.send_signal(number)
    until = time.monotonic() + 60
    while state(peer) != State.STOPPING:
        assert time.monotonic() < until
    refused(peer, errno.EPROTO, 'stopping', Op.STOP, u64(Tag.TIMEOUT_USEC, 1))
    refused(peer, errno.EPROTO, 'stopping', Op.AGENT, tlv(Tag.FRAME, frame(AGENT_PING, id=2)))
    peer.request(Op.KILL)
    assert vmm.wait(60)[1][0] == Reason.KILLED


def test_signal_before_the_guest_ran(kernel):
    for build in (False, True):
        with Vmm() as vmm:
            peer = vmm.connect()
            peer.request(Op.HELLO)
            if build:
                vmm.build(peer, kernel, 'p')
            vmm.process.send_signal(signal.SIGTERM)
            status, record = vmm.wait()
            assert status == 0
            assert record == ((Reason.KILLED, 0, 'told to end before the guest ran') if build else None)


def test_stop(vmm, peer, kernel):
    vmm.start(peer, kernel, 'h')
    vmm.wait_console(HELLO)
    refused(peer, errno.EINVAL, 'no time-out', Op.STOP)
    peer.request(Op.STOP, u64(Tag.TIMEOUT_USEC, 50000))
    assert vmm.wait(60)[1][0] == Reason.STOP_TIMEOUT


def test_a_stop_is_under_way_until_its_time_is_over(vmm, peer, kernel):
    vmm.start(peer, kernel, 'h')
    vmm.wait_console(HELLO)
    peer.request(Op.STOP, u64(Tag.TIMEOUT_USEC, 600000000))
    assert state(peer) == State.STOPPING
    peer.request(Op.KILL)
    assert vmm.wait(60)[1][0] == Reason.KILLED


def test_a_flood_on_the_console(vmm, peer, kernel):
    vmm.start(peer, kernel, 'f')
    until = time.monotonic() + 60
    while len(text := vmm.console_text()) < 2000:
        assert time.monotonic() < until
    # but where so much has come before we looked that it is gone
    assert HELLO in text or len(text) == CONSOLE_BYTES
    assert dict(counters(peer))['vcpu-pio'] > 2000
    peer.request(Op.KILL)
    vmm.wait()


@pytest.mark.parametrize('cpus', [2, 4, 16])
def test_cpus(vmm, peer, kernel, cpus):
    vmm.start(peer, kernel, 'p', cpus=cpus)
    assert vmm.wait()[1][0] == Reason.POWEROFF
    assert vmm.console_text() == HELLO


def test_32_gib(vmm, peer, kernel):
    vmm.start(peer, kernel, 'p', memory=32 << 30)
    assert vmm.wait()[1][0] == Reason.POWEROFF


def test_hidden_xsave(vmm, peer, kernel):
    vmm.start(peer, kernel, 'p', extra=u32(Tag.CPUID_HIDE, 1))
    assert vmm.wait()[1][0] == Reason.POWEROFF


# States

def counters(peer):
    return [(c[:24].rstrip(b'\0').decode(), int.from_bytes(c[24:], 'little')) for c in peer.request(Op.STATISTICS).all(Tag.COUNTER)]


def test_operations_by_state(vmm, peer, kernel):
    claim = tlv(Tag.FRAME, frame(AGENT_CLAIM))
    ping = tlv(Tag.FRAME, frame(AGENT_PING))

    assert state(peer) == State.NEW
    refused(peer, errno.EPROTO, 'CLAIM', Op.CLAIM, claim)
    refused(peer, errno.EPROTO, 'AGENT', Op.AGENT, ping)
    refused(peer, errno.EPROTO, 'STOP', Op.STOP, u64(Tag.TIMEOUT_USEC, 1))
    refused(peer, errno.EPROTO, 'STATISTICS', Op.STATISTICS)
    refused(peer, errno.ENODEV, 'console', Op.CONSOLE)
    assert state(peer) == State.NEW

    vmm.build(peer, kernel, 'l')
    assert state(peer) == State.BUILT
    with pytest.raises(Refused) as info:
        vmm.build(peer, kernel, 'l')
    assert info.value.errno == errno.EPROTO
    refused(peer, errno.EPROTO, 'AGENT', Op.AGENT, ping)
    refused(peer, errno.EINVAL, 'no claim', Op.CLAIM, ping)
    refused(peer, errno.EINVAL, 'no frame', Op.CLAIM)
    assert counters(peer)
    assert state(peer) == State.BUILT
    assert vmm.console_text() == ''

    vmm.claim(peer)
    assert state(peer) == State.RUNNING
    refused(peer, errno.EPROTO, 'CLAIM', Op.CLAIM, claim)
    refused(peer, errno.ENOTCONN, 'agent', Op.AGENT, ping)
    vmm.wait_console(HELLO)
    assert counters(peer)


def test_built_does_not_run(vmm, peer, kernel):
    vmm.build(peer, kernel, 'p')
    time.sleep(0.2)
    assert vmm.process.poll() is None
    assert vmm.console_text() == ''


def test_console_fd(vmm, peer, kernel):
    vmm.build(peer, kernel, 'p')
    for op in (Op.HELLO, Op.CONSOLE):
        m = peer.request(op)
        assert m.number(Tag.FD) == Role.CONSOLE
        assert len(m.fds) == 1
        assert os.fstat(m.fds[0]).st_ino == os.fstat(vmm.console).st_ino
        os.close(m.fds[0])


def test_a_failed_build_can_be_tried_again(vmm, peer, kernel):
    assert state(peer) == State.NEW
    before = open_fds(vmm)
    for records in (u32(99, 1), u64(Tag.INITRD_BYTES, 1), u32(Tag.UID, 1)):
        with pytest.raises(Refused):
            vmm.build(peer, kernel, 'p', extra=records)
        assert state(peer) == State.NEW

    # A descriptor that is not /dev/kvm fails late, with everything else in hand.
    fds = [os.open('/dev/null', os.O_RDWR), os.open(kernel.path, os.O_RDONLY),
           os.open('/dev/null', os.O_WRONLY)]
    records = (u32(Tag.FD, Role.KVM) + u32(Tag.FD, Role.KERNEL) + u32(Tag.FD, Role.EXIT) +
               u64(Tag.MEM_BYTES, 64 << 20) + u32(Tag.CPUS, 1) + kernel.records())
    refused(peer, errno.ENOTTY, 'KVM_GET_API_VERSION', Op.BUILD, records, fds)
    for fd in fds:
        os.close(fd)
    assert open_fds(vmm) == before

    vmm.start(peer, kernel, 'p')
    assert vmm.wait()[1][0] == Reason.POWEROFF


def test_bad_kernels_are_named(vmm, peer, kernel):
    class Bad:
        path = kernel.path

        def __init__(self, segment, entry=0x200000):
            self.segment, self.entry = segment, entry

        def records(self):
            return u64(Tag.ENTRY, self.entry) + tlv(Tag.SEGMENT, struct.pack('<QQQQ', *self.segment))

    for bad, text in ((Bad((0x200000, 1 << 40, 1, 1)), 'behind the end of the file'),
                      (Bad((0x1000, 0, 1, 1)), 'below 1 MiB'),
                      (Bad((0x200000, 0, 1, 1 << 31)), 'needs more than'),
                      (Bad((0x200000, 0, 1, 1), 0x100000), 'in no segment')):
        with pytest.raises(Refused, match=text):
            vmm.build(peer, bad)
    assert state(peer) == State.NEW


# The protocol

def test_answers_carry_op_and_seq(peer):
    m = peer.reply(peer.send(Op.HELLO, seq=12345))
    assert (m.op, m.seq, m.flags, m.error) == (Op.HELLO, 12345, FLAG_REPLY, 0)


def test_unknown_things(vmm, peer):
    refused(peer, errno.EOPNOTSUPP, 'unknown operation 50', 50)
    refused(peer, errno.EOPNOTSUPP, 'unknown operation 0', 0)
    refused(peer, errno.EOPNOTSUPP, 'unknown operation 64', Op.EVENT_AGENT)
    refused(peer, errno.EPROTONOSUPPORT, 'version 2', Op.HELLO, version=2)
    refused(peer, errno.EINVAL, 'flags', Op.HELLO, flags=FLAG_REPLY)
    refused(peer, errno.EINVAL, 'unknown tag 77', Op.HELLO, u32(77, 1))
    refused(peer, errno.EINVAL, 'unknown tag 13', Op.KILL, u64(Tag.TIMEOUT_USEC, 1))
    refused(peer, errno.EINVAL, 'unknown tag 77', Op.STOP, u64(Tag.TIMEOUT_USEC, 1) + u32(77, 1))
    refused(peer, errno.EINVAL, 'tag 13', Op.STOP, u64(Tag.TIMEOUT_USEC, 1) * 2)
    refused(peer, errno.EBADMSG, 'tag 13', Op.STOP, u32(Tag.TIMEOUT_USEC, 1))
    refused(peer, errno.EBADMSG, 'malformed', Op.HELLO, b'1234567')
    refused(peer, errno.EBADMSG, 'malformed', Op.HELLO, struct.pack('<HHI', 1, 0, 0xffffffff))
    assert state(peer) == State.NEW


def test_descriptors_in_excess_are_closed(vmm, peer):
    assert state(peer) == State.NEW
    before = open_fds(vmm)
    with open('/dev/null') as f:
        for n in (1, 16):
            refused(peer, errno.EINVAL, f'{n} file descriptors for 0 roles', Op.HELLO, fds=[f.fileno()] * n)
        refused(peer, errno.EINVAL, 'unknown tag', Op.HELLO, u32(Tag.FD, Role.KVM), [f.fileno()])
        build = (u32(Tag.FD, Role.STREAM) + u64(Tag.MEM_BYTES, 64 << 20) + u32(Tag.CPUS, 1) +
                 u64(Tag.ENTRY, 0x200000) + tlv(Tag.SEGMENT, struct.pack('<QQQQ', 0x200000, 0, 1, 1)))
        refused(peer, errno.EINVAL, 'role 7', Op.BUILD, build, [f.fileno()])
    assert open_fds(vmm) == before


@pytest.mark.parametrize('packet', [
    b'x',
    b'x' * 100,
    HEADER.pack(MAGIC ^ 1, VERSION, Op.HELLO, 0, 1, 0, 0),
    HEADER.pack(MAGIC, VERSION, Op.HELLO, 0, 1, 0, 8),
    HEADER.pack(MAGIC, VERSION, Op.HELLO, 0, 1, 0, 0) + b'12345678',
    HEADER.pack(MAGIC, VERSION, Op.HELLO, 0, 1, 0, 0xffffffff),
], ids=['short', 'noise', 'magic', 'longer', 'shorter', 'huge'])
def test_garbage_ends_the_connection_alone(vmm, packet):
    peer = vmm.connect()
    peer.send_raw(packet)
    assert peer.receive() is None
    peer.close()

    again = vmm.connect()
    assert state(again) == State.NEW


def test_too_large_a_packet(vmm):
    peer = vmm.connect()
    peer.send_raw(bytes(MESSAGE_MAX + 8))
    assert peer.receive() is None
    assert state(vmm.connect()) == State.NEW


def test_too_many_descriptors(vmm):
    peer = vmm.connect()
    assert state(peer) == State.NEW
    before = open_fds(vmm)
    with open('/dev/null') as f:
        peer.send(Op.HELLO, fds=[f.fileno()] * (FDS_MAX + 1))
    assert peer.receive() is None
    again = vmm.connect()
    assert state(again) == State.NEW
    assert open_fds(vmm) == before


def test_a_large_message(vmm, peer, kernel):
    vmm.build(peer, kernel, 'l')
    body = os.urandom(256 * 1024)
    peer.request(Op.CLAIM, tlv(Tag.FRAME, frame(AGENT_CLAIM, body)))
    refused(peer, errno.EINVAL, 'frame of', Op.AGENT, tlv(Tag.FRAME, frame(AGENT_PING, body + b'1')))
    refused(peer, errno.EINVAL, 'frame of', Op.AGENT, tlv(Tag.FRAME, frame(AGENT_PING, b'1')[:-1]))
    refused(peer, errno.EINVAL, 'frame of', Op.AGENT, tlv(Tag.FRAME, b'12345678901'))


def test_streams_are_checked(vmm, peer, kernel):
    a, b = socket.socketpair()
    stream = tlv(Tag.FRAME, frame(AGENT_STREAM_PROCESS, id=3))
    fd = u32(Tag.FD, Role.STREAM)

    refused(peer, errno.EPROTO, 'STREAM', Op.STREAM, stream + fd, [b.fileno()])
    vmm.start(peer, kernel, 'h')
    before = open_fds(vmm)
    refused(peer, errno.EINVAL, 'one socket', Op.STREAM, stream)
    refused(peer, errno.EINVAL, 'one socket', Op.STREAM, stream + fd * 2, [b.fileno()] * 2)
    refused(peer, errno.EINVAL, 'one socket', Op.STREAM, stream + u32(Tag.FD, Role.KVM), [b.fileno()])
    refused(peer, errno.EINVAL, 'opens no stream', Op.STREAM, tlv(Tag.FRAME, frame(AGENT_PING)) + fd,
            [b.fileno()])
    assert open_fds(vmm) == before
    b.close()
    a.close()


# Peers

def test_a_peer_that_leaves_and_comes_back(vmm, kernel):
    first = vmm.connect()
    vmm.start(first, kernel, 'l')
    first.close()
    vmm.wait_console(HELLO)

    second = vmm.connect()
    assert state(second) == State.RUNNING
    second.close()
    for _ in range(20):
        third = vmm.connect()
        assert state(third) == State.RUNNING
        third.close()
    last = vmm.connect()
    last.request(Op.KILL)
    assert vmm.wait()[1][0] == Reason.KILLED


def test_a_second_peer_waits_for_its_turn(vmm):
    first = vmm.connect()
    assert state(first) == State.NEW
    second = vmm.connect(timeout=0.3)
    second.send(Op.HELLO)
    with pytest.raises(socket.timeout):
        second.receive()
    assert state(first) == State.NEW

    first.close()
    second.socket.settimeout(60)
    assert second.receive().number(Tag.STATE) == State.NEW


def test_what_a_peer_sent_before_it_left_counts(vmm, kernel):
    peer = vmm.connect()
    vmm.build(peer, kernel, 'p')
    for _ in range(20):
        peer.send(Op.HELLO)
    peer.send(Op.CLAIM, tlv(Tag.FRAME, frame(AGENT_CLAIM)))
    peer.socket.shutdown(socket.SHUT_WR)
    assert vmm.wait()[1][0] == Reason.POWEROFF


def test_a_peer_that_does_not_read(vmm, kernel):
    peer = vmm.connect()
    vmm.start(peer, kernel, 'l')
    vmm.wait_console(HELLO)
    peer.socket.settimeout(0.5)
    with open(f'/proc/{vmm.process.pid}/statm') as f:
        before = int(f.read().split()[1]) * 4096
    sent, until = 2, time.monotonic() + 60
    while sent < 100000:
        try:
            peer.send(Op.CONSOLE, seq=sent + 1)
            sent += 1
        except (socket.timeout, BrokenPipeError, ConnectionResetError):
            # it takes so many, but none while it has no CPU
            if sent >= 100 or time.monotonic() > until:
                break
    assert 100 <= sent < 100000

    # Requests wait, memory does not grow, and what was asked is answered in order.
    with open(f'/proc/{vmm.process.pid}/statm') as f:
        assert int(f.read().split()[1]) * 4096 - before < 4 << 20
    peer.socket.settimeout(60)
    for seq in range(3, 100):
        m = peer.receive()
        assert m.seq == seq
        os.close(m.fds[0])
    peer.close()
    assert state(vmm.connect()) == State.RUNNING


def test_another_uid_is_refused(vmm):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.chmod(vmm.dir.name, 0o755)
            os.setresuid(1234, 1234, 1234)
            peer = Peer(vmm.path)
            try:
                peer.send(Op.KILL)
            except BrokenPipeError:
                pass
            status = 0 if peer.receive() is None else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert state(vmm.connect()) == State.NEW


# The jail

@pytest.fixture
def jailed():
    version = subprocess.run([find_program(), '--version'], capture_output=True, text=True, check=True)
    if 'no jail' in version.stdout:
        pytest.skip('a sanitizer build has no jail')


def status_fields(pid):
    with open(f'/proc/{pid}/status') as f:
        return dict(line.rstrip('\n').split(':\t', 1) for line in f if ':\t' in line)


def check_privileges(pid, uid):
    fields = status_fields(pid)
    assert fields['Uid'].split() == [str(uid)] * 4
    assert fields['Gid'].split() == [str(uid)] * 4
    assert fields['Groups'].split() == []
    for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
        assert int(fields[name], 16) == 0, name
    assert fields['NoNewPrivs'] == '1'
    assert fields['Seccomp'] == '2'
    return fields


def check_jail(pid):
    with open(f'/proc/{pid}/mountinfo') as f:
        mounts = f.read().splitlines()
    assert len(mounts) == 1
    assert mounts[0].split()[4] == '/'
    assert {'ro', 'nosuid', 'nodev', 'noexec'} <= set(mounts[0].split()[5].split(','))
    assert os.listdir(f'/proc/{pid}/root') == []
    with open(f'/proc/{pid}/limits') as f:
        limits = {line[:25].strip(): line[25:].split()[:2] for line in f}
    assert limits['Max core file size'] == ['0', '0']
    assert limits['Max locked memory'] == ['0', '0']
    assert limits['Max open files'] == ['512', '512']


def test_jail(jailed, vmm, peer, kernel):
    pid = vmm.process.pid
    peer.request(Op.HELLO)
    check_privileges(pid, vmm.uid)
    check_jail(pid)
    # Standard streams, the listener and the peer; loop, mailbox, signals.
    assert sorted(map(int, os.listdir(f'/proc/{pid}/fd'))) == list(range(8))

    vmm.start(peer, kernel, 'l', cpus=2)
    vmm.wait_console(HELLO)
    # The second CPU has nothing to do, and its thread may begin later.
    until, filters = time.monotonic() + 60, {}
    while filters.get('vcpu1') != 2 and time.monotonic() < until:
        for task in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{task}/comm') as f:
                filters[f.read().strip()] = int(check_privileges(task, vmm.uid)['Seccomp_filters'])
    assert filters['cube-vmm'] == 2
    assert filters['vcpu0'] == filters['vcpu1'] == 2
    # Nothing writable is executable, and nothing is both shared and executable.
    with open(f'/proc/{pid}/maps') as f:
        assert not [line for line in f if 'wx' in line.split()[1]]


def test_in_namespaces_of_its_own(jailed):
    # As cubed starts it: PID 1, which gets no signal that it does not handle.
    with Vmm(namespaces=True) as vmm:
        peer = vmm.connect()
        assert state(peer) == State.NEW
        children = subprocess.run(['pgrep', '-P', str(vmm.process.pid)], capture_output=True, text=True,
                                  check=True)
        pid = int(children.stdout)
        assert status_fields(pid)['NSpid'].split()[-1] == '1'
        check_jail(pid)
        os.kill(pid, signal.SIGTERM)
        assert vmm.wait()[0] == 0


@pytest.mark.parametrize('argv', [[], ['--uid=0', '--gid=0'], ['--uid=1'], ['--uid=x', '--gid=1'],
                                  ['--nonsense'], ['--uid=1', '--gid=1', 'more']])
def test_bad_arguments(argv):
    p = subprocess.run([find_program()] + argv, capture_output=True, text=True)
    assert p.returncode == 1
    assert 'cube-vmm' in p.stderr


def test_version():
    p = subprocess.run([find_program(), '--version'], capture_output=True, text=True, check=True)
    assert p.stdout.startswith('cube-vmm ')


def test_without_a_control_socket():
    p = subprocess.run([find_program(), '--uid=65534', '--gid=65534'], capture_output=True, text=True)
    assert p.returncode == 1
    assert 'descriptor 3' in p.stderr


def test_memory_that_is_asked_for(vmm, peer, kernel):
    """What the guest makes of it is its affair: this one has no drivers for it."""
    resize, balloon = u64(Tag.PLUGGED_BYTES, 64 << 20), u64(Tag.BALLOON_BYTES, 16 << 20)
    refused(peer, errno.EPROTO, 'RESIZE', Op.RESIZE, resize)
    refused(peer, errno.EPROTO, 'BALLOON', Op.BALLOON, balloon)
    vmm.build(peer, kernel, 'p', extra=u64(Tag.PLUG_BYTES, 4 << 30))
    peer.request(Op.RESIZE, resize)
    peer.request(Op.BALLOON, balloon)
    refused(peer, errno.EINVAL, 'plugging', Op.RESIZE, u64(Tag.PLUGGED_BYTES, (4 << 30) + (2 << 20)))
    refused(peer, errno.EINVAL, 'plugging', Op.RESIZE, u64(Tag.PLUGGED_BYTES, 4096))
    refused(peer, errno.EINVAL, 'balloon', Op.BALLOON, u64(Tag.BALLOON_BYTES, 4095))
    refused(peer, errno.EINVAL, 'balloon', Op.BALLOON, u64(Tag.BALLOON_BYTES, (4 << 30) + (64 << 20)))
    refused(peer, errno.EINVAL, 'number of bytes', Op.RESIZE)
    refused(peer, errno.EINVAL, 'unknown tag', Op.RESIZE, balloon)
    refused(peer, errno.EINVAL, '', Op.RESIZE, resize + resize)
    found = dict(counters(peer))
    assert found['mem-requested-bytes'] == 64 << 20 and found['mem-plugged-bytes'] == 0
    assert found['balloon-requested-bytes'] == 16 << 20 and found['balloon-bytes'] == 0


def test_without_a_region_nothing_can_be_plugged(vmm, peer, kernel):
    vmm.build(peer, kernel, 'p')
    refused(peer, errno.ENODEV, 'plugging', Op.RESIZE, u64(Tag.PLUGGED_BYTES, 0))
    assert 'mem-plugged-bytes' not in dict(counters(peer))
