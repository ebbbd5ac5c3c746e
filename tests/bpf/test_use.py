# SPDX-License-Identifier: Apache-2.0
"""When a sandbox's network was last of use, which its idle time-out asks: what somebody else and the guest say to each other."""

import contextlib
import errno
import socket
import time

import netlab
import pytest
from packets import UDP, Wire, ethernet, ip, udp

SERVER = '203.0.113.10'


@pytest.fixture
def sandbox(host):
    s = host.sandbox(default='internet')
    s.guest()
    return s


def used(s):
    return s.statistics()['used']


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def of_use(s):
    """What happens meanwhile is."""
    before = now()
    yield
    assert before <= used(s) <= now()


@contextlib.contextmanager
def of_no_use(s):
    yield
    assert used(s) == 0


def test_a_connection_from_outside_that_the_guest_takes(host, sandbox):
    with of_use(sandbox), sandbox.guest_.netns.listen('0.0.0.0', 80):
        host.netns.connect(sandbox.address4, 80).close()


def test_a_connection_of_the_guest_that_is_taken(host, sandbox):
    with of_use(sandbox), host.world.listen(SERVER, 80):
        sandbox.guest_.netns.connect(SERVER, 80).close()


def test_what_comes_over_a_connection_as_long_as_it_comes(host, sandbox):
    """Known to a second."""
    with host.world.listen(SERVER, 80) as server, sandbox.guest_.netns.connect(SERVER, 80) as inside, server.accept()[0] as outside:
        first = used(sandbox)
        while used(sandbox) == first:
            outside.sendall(b'more')
            assert inside.recv(100)
        assert used(sandbox) - first > 900_000_000


def test_a_datagram_that_is_answered(host, sandbox):
    guest = sandbox.guest_.netns
    with guest.udp(netlab.INNER4, 7000) as inside, host.netns.udp(family=socket.AF_INET) as outside:
        outside.sendto(b'question', (sandbox.address4, 7000))
        _, peer = inside.recvfrom(100)
        assert used(sandbox) == 0
        with of_use(sandbox):
            inside.sendto(b'answer', peer)
            assert outside.recv(100) == b'answer'


def test_nothing_that_nobody_answers(host, sandbox):
    """Neither a guest that talks to itself keeps it, nor whoever knocks."""
    guest = sandbox.guest_.netns
    with of_no_use(sandbox), guest.udp(netlab.INNER4, 7000) as inside, host.netns.udp(family=socket.AF_INET) as outside, \
            host.world.udp(SERVER, 9) as ear:
        for _ in range(5):
            inside.sendto(b'anybody?', (SERVER, 9))
            ear.recv(100)
            outside.sendto(b'anybody?', (sandbox.address4, 7000))
            inside.recv(100)


def test_nothing_that_the_guest_says_to_who_asked_once(host, sandbox):
    guest = sandbox.guest_.netns
    with guest.udp(netlab.INNER4, 7000) as inside, host.netns.udp(family=socket.AF_INET) as outside:
        outside.sendto(b'question', (sandbox.address4, 7000))
        _, peer = inside.recvfrom(100)
        inside.sendto(b'answer', peer)
        assert outside.recv(100) == b'answer'
        first = used(sandbox)
        while now() - first < 1_200_000_000:
            inside.sendto(b'and more', peer)
            assert outside.recv(100)
        assert used(sandbox) == first


@pytest.mark.parametrize('times', [1, 3])
def test_no_connection_that_is_refused(host, sandbox, times):
    guest = sandbox.guest_.netns
    with of_no_use(sandbox):
        for _ in range(times):
            # the same port each time, as of one who asks again
            for netns, own, peer in ((guest, netlab.INNER4, SERVER), (host.netns, '', sandbox.address4)):
                with netns.socket() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind((own, 5555))
                    assert s.connect_ex((peer, 81)) == errno.ECONNREFUSED


def test_nothing_that_is_denied(host):
    s = host.sandbox()
    wire = Wire(s.tap)
    with of_no_use(s), host.world.udp(SERVER, 9) as server:
        for _ in range(3):
            wire.send(ethernet(ip(netlab.INNER4, SERVER, UDP, udp(netlab.INNER4, SERVER, 4000, 9))))
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.recv(100)
        assert s.statistics()['denied'] == {'policy': 3}


def test_no_ping(host, sandbox):
    with of_no_use(sandbox):
        for _ in range(3):
            assert host.netns.ping(sandbox.address4)
            assert sandbox.guest_.netns.ping(SERVER)
