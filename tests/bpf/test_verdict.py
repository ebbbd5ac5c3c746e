# SPDX-License-Identifier: Apache-2.0
"""Who may talk to whom, with real packets of a real stack behind the tap."""

import errno
import socket

import pytest


def exchange(client, server):
    """Both ways over TCP."""
    with server.accept()[0] as s:
        s.settimeout(5)
        client.sendall(b'question')
        assert s.recv(100) == b'question'
        s.sendall(b'answer')
        assert client.recv(100) == b'answer'
        return s.getpeername() if s.fileno() >= 0 else None


def test_default_is_that_nothing_passes(host):
    guest = host.sandbox().guest()
    host.world.listen('203.0.113.10', 80)
    with pytest.raises(OSError) as e:
        guest.connect('203.0.113.10', 80)
    assert e.value.errno == errno.ECONNREFUSED


def test_internet_is_reached_masqueraded(host):
    guest = host.sandbox(default='internet').guest()
    server = host.world.listen('203.0.113.10', 80)
    with guest.connect('203.0.113.10', 80) as client:
        assert exchange(client, server)[0] == '198.51.100.2'
