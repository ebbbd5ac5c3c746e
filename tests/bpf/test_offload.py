# SPDX-License-Identifier: Apache-2.0
"""Bulk through the whole way, with each combination of what guest and device do for each other."""

import itertools
import os
import threading

import netlab
import pytest

MIB = 1 << 20
SIZE = (1024 if os.environ.get('CUBE_LONG') == '1' else 32) * MIB
# so that a piece that is lost, doubled or moved is seen
PATTERN = bytes(itertools.islice(itertools.cycle(range(251)), 251 * 4096))


def send(s):
    left = SIZE
    while left > 0:
        s.sendall(PATTERN[:left])
        left -= min(left, len(PATTERN))


def receive(s):
    got, buffer = 0, memoryview(bytearray(len(PATTERN)))
    twice = memoryview(PATTERN + PATTERN)
    while got < SIZE:
        n = s.recv_into(buffer)
        assert n > 0, f'ended after {got} bytes'
        at = got % len(PATTERN)
        assert buffer[:n] == twice[at:at + n], f'wrong bytes at {got}'
        got += n


@pytest.fixture(params=[0, netlab.CHECKSUM, netlab.SEGMENTS], ids=['sends plain', 'sends checksum', 'sends segments'])
def sends(request):
    return request.param


@pytest.fixture(params=[0, netlab.CHECKSUM, netlab.SEGMENTS], ids=['gets plain', 'gets checksum', 'gets segments'])
def receives(request):
    return request.param


def no_wrong_checksum(host, guest):
    return all(netns.stat(name) == 0 for netns in (guest, host.world, host.netns)
               for name in ('TcpInCsumErrors', 'UdpInCsumErrors', 'Udp6InCsumErrors'))


@pytest.mark.parametrize('address', ['203.0.113.10', '2001:db8:1::10'])
def test_no_byte_is_lost_and_no_checksum_wrong(host, address, sends, receives):
    guest = host.sandbox(default='internet').guest(sends=sends, receives=receives)
    with host.world.listen(address, 80) as server, guest.connect(address, 80) as client:
        remote, _ = server.accept()
        with remote:
            remote.settimeout(netlab.PATIENT)
            client.settimeout(netlab.PATIENT)
            for source, sink in ((client, remote), (remote, client)):
                thread = threading.Thread(target=send, args=(source,))
                thread.start()
                receive(sink)
                thread.join()
    assert no_wrong_checksum(host, guest)


@pytest.mark.parametrize('address', ['203.0.113.10', '2001:db8:1::10'])
def test_datagrams_of_all_sizes(host, address, sends, receives):
    """With and without fragments; an odd length, and none at all."""
    guest = host.sandbox(default='internet').guest(sends=sends, receives=receives)
    with host.world.udp(address, 4000) as server, guest.udp(family=netlab.family_of(address)) as client:
        client.connect((address, 4000))
        for size in (0, 1, 7, 64, 1471, 1472, 1473, 4001, 20000):
            client.send(PATTERN[:size])
            data, peer = server.recvfrom(65536)
            assert data == PATTERN[:size]
            server.sendto(PATTERN[1:size + 1], peer)
            assert client.recv(65536) == PATTERN[1:size + 1]
    assert no_wrong_checksum(host, guest)
