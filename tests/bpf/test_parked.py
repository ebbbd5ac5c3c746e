# SPDX-License-Identifier: Apache-2.0
"""A paused sandbox that a connection of the host resumes: what waits in its tap, what gets there at all, and what is cut."""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import threading
import time

import netlab
import pytest
from test_verdict import connect_as

CLOSED, PARKED = 2, 4
OWNER, INGRESS = 4000, 4001


@pytest.fixture
def host(make_host):
    return make_host(ingress_uid=INGRESS, net6='fd3c:cbed::/64')


# TCP and UDP, as daemon/parked-tap.c has it: the stack of the namespace looks for neighbours and listeners.
FILTER = [(0x28, 0, 0, 12), (0x15, 0, 3, 0x0800), (0x30, 0, 0, 23), (0x15, 5, 0, 6), (0x15, 4, 5, 17),
          (0x15, 0, 4, 0x86dd), (0x30, 0, 0, 20), (0x15, 1, 0, 6), (0x15, 0, 1, 17), (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0)]


def filter_tap(s):
    code = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *line) for line in FILTER))
    fcntl.ioctl(s.tap, 0x401054d5, struct.pack('=HxxxxxxQ', len(FILTER), ctypes.addressof(code)))


def park(s, generation=2, flags=PARKED):
    """As cubed does: what waited before is of no interest, then one write to the map."""
    filter_tap(s)
    drain(s)
    s.claim(policy=1, flags=flags, owner=OWNER, generation=generation)


def drain(s):
    frames = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frames.append(os.read(s.tap, 65536))
    return frames


def woken(s, timeout=netlab.PATIENT):
    """Whether something waits in the tap that is for the guest, as cubed asks."""
    return bool(select.select([s.tap], [], [], timeout)[0])


@contextlib.contextmanager
def connecting(netns, address, port=80):
    """A connection that is on its way."""
    s = netns.socket(netlab.family_of(address))
    s.setblocking(False)
    assert s.connect_ex((address, port)) == errno.EINPROGRESS
    with s:
        yield s


def resume(s, address='0.0.0.0', port=80):
    """The guest goes on, and with it its server."""
    servers = []
    s.guest(ready=lambda netns: servers.append(netns.listen(address, port)))
    return servers[0]


def result(s):
    assert select.select([], [s], [], netlab.PATIENT)[1], 'nothing has become of the connection'
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def sent_again(host):
    return host.netns.stat('TcpRetransSegs')


@pytest.mark.parametrize('v6', [False, True])
def test_a_connection_waits_in_the_tap_and_is_answered_without_asking_again(host, v6):
    s = host.sandbox(default='internet')
    park(s)
    drain(s)
    before, begin = sent_again(host), time.monotonic()
    with connecting(host.netns, s.address6 if v6 else s.address4) as client:
        assert woken(s)
        with resume(s, '::' if v6 else '0.0.0.0') as server:
            assert result(client) == 0
            # After a second it is asked for again, whoever answers.
            assert sent_again(host) == before or time.monotonic() - begin > 0.9
            with server.accept()[0] as inside:
                client.setblocking(True)
                client.sendall(b'request')
                assert inside.recv(10) == b'request'
                s.claim(policy=1, owner=OWNER, generation=3)
                inside.sendall(b'answer')
                assert client.recv(10) == b'answer'


def test_many_at_once_wait(host):
    s = host.sandbox()
    park(s)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connecting(host.netns, s.address4)) for _ in range(20)]
        assert woken(s)
        with resume(s):
            assert [result(c) for c in clients] == [0] * 20


def test_who_asks_again_waits_once(host):
    s = host.sandbox()
    park(s)
    before = sent_again(host)
    with connecting(host.netns, s.address4) as client:
        while sent_again(host) == before:
            assert not select.select([], [client], [], 0.05)[1]
        assert len(drain(s)) == 1
        # Lost, it is asked for again once the guest is there.
        guest = s.guest()
        with guest.listen('0.0.0.0', 80):
            s.claim(policy=1, owner=OWNER, generation=3)
            assert result(client) == 0


def test_a_datagram_wakes(host):
    s = host.sandbox()
    park(s)
    with host.netns.udp(family=socket.AF_INET) as client:
        client.sendto(b'wake up', (s.address4, 53))
        assert woken(s)


@pytest.mark.parametrize('uid, expected', [(0, True), (OWNER, True), (INGRESS, True), (4002, False)])
def test_who_may_connect_wakes_and_nobody_else(host, uid, expected):
    s = host.sandbox()
    park(s)
    failed = None
    if expected:
        thread = threading.Thread(target=lambda: s.host.netns.start(
            sys.executable, '-c', 'import os,socket,sys; os.setuid(int(sys.argv[1])); s=socket.socket(); s.settimeout(2);'
            's.connect_ex((sys.argv[2], 80))', str(uid), s.address4).wait())
        thread.start()
        assert woken(s)
        thread.join()
    else:
        failed = connect_as(host.netns, uid, s.address4)
        assert failed == errno.ECONNREFUSED and not woken(s, 0.3)


def test_pings_answers_and_stray_segments_do_not_wake(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    with guest.udp(netlab.INNER4, 7000) as asks, host.world.udp('203.0.113.10', 53) as server:
        asks.sendto(b'question', ('203.0.113.10', 53))
        peer = server.recvfrom(100)[1]
        s.guest_.close()
        s.guest_ = None
        park(s)
        server.sendto(b'answer', peer)
        assert not woken(s, 0.3)
    assert not host.netns.ping(s.address4, timeout=0.3)
    assert not woken(s, 0.3)
    with host.netns.socket(kind=socket.SOCK_RAW, proto=socket.IPPROTO_TCP) as raw:
        for flags in (0x10, 0x12, 0x11, 0x04, 0x18):
            raw.sendto(struct.pack('!HHIIBBHHH', 40000, 80, 1, 1, 0x50, flags, 100, 0, 0), (s.address4, 0))
    assert not woken(s, 0.3)


def test_neither_neighbours_nor_the_world_wake(host):
    s, other = host.sandbox(default='internet'), host.sandbox(f'allow {"10.0.0.0/8"}', default='internet')
    s.policy('inbound 0.0.0.0/0')
    park(s)
    host.world.ip(f'route add {s.address4} via 198.51.100.2')
    neighbour = other.guest()
    for netns in (host.world, neighbour):
        with netns.udp(family=socket.AF_INET) as client, contextlib.suppress(OSError):
            client.sendto(b'hello', (s.address4, 53))
        with contextlib.suppress(OSError):
            netns.connect(s.address4, 80, timeout=0.3).close()
    assert not woken(s, 0.3)


def test_before_it_is_parked_connections_end_but_for_those_that_still_ask(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    with guest.listen('0.0.0.0', 80) as server:
        client, inside = host.netns.connect(s.address4, 80), server.accept()[0]
        s.claim(policy=2, owner=OWNER)
        s.guest_.pump.kill()
        s.guest_.pump.wait()
        with client, inside, connecting(host.netns, s.address4) as asking:
            assert host.netd.call(netlab.PARK, slot=s.slot)[0]['count'] == 1
            with pytest.raises(ConnectionAbortedError):
                client.recv(10)
            # One that begins now is told nothing, and that owner still is who may.
            with connecting(host.netns, s.address4, 81) as begun:
                filter_tap(s)
                drain(s)
                assert not woken(s, 0.3)
                s.claim(policy=1, flags=PARKED, owner=OWNER, generation=9)
                assert woken(s)
                s.guest_.close()
                s.guest_ = None
                with resume(s):
                    assert result(asking) == 0
                    assert result(begun) == errno.ECONNREFUSED, 'by the guest itself'
                assert connect_as(host.netns, 4002, s.address4) == errno.ECONNREFUSED


def test_a_parked_one_that_is_closed_refuses_who_waits(host):
    s = host.sandbox()
    park(s)
    with connecting(host.netns, s.address4) as client:
        assert woken(s)
        assert host.netd.call(netlab.QUIESCE, slot=s.slot)[0]['count'] == 1
        assert result(client) == errno.ECONNABORTED
        with pytest.raises(ConnectionRefusedError):
            host.netns.connect(s.address4, 80)


def test_what_the_guest_had_open_before_says_nothing_until_it_is_opened(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    with guest.listen('0.0.0.0', 80) as server, host.netns.udp('10.209.0.1', 5000) as ear:
        client, inside = host.netns.connect(s.address4, 80), server.accept()[0]
        with client, inside, guest.udp(netlab.INNER4, 6000) as mouth:
            ear.sendto(b'ask', (s.address4, 6000))
            _, peer = mouth.recvfrom(10)
            park(s)
            mouth.sendto(b'old', peer)
            with pytest.raises(ConnectionResetError):
                inside.sendall(b'old')
                inside.settimeout(netlab.PATIENT)
                inside.recv(10)
            ear.settimeout(0.3)
            with pytest.raises((TimeoutError, ConnectionRefusedError)):
                ear.recv(10)


def test_the_end_of_the_service_does_not_wait_for_who_is_paused(host):
    s = host.sandbox()
    park(s)
    host.netd.stop()
    with host.start_removal() as p:
        s.close()
        assert p.wait(netlab.PATIENT) == 0
