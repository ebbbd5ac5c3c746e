# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Connections to servers in the guest."""

import errno
import socket
import threading

import pytest

from agentlib import S_TCP, pattern, refused, until


def serve(family, address):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, 0))
    s.listen()
    s.settimeout(60)
    return s, s.getsockname()[1]


@pytest.mark.parametrize("family, address", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_tcp_half_close_both_ways(agent, family, address):
    try:
        s, port = serve(family, address)
    except OSError as e:
        pytest.skip(f"{address}: {e}")
    c = agent.stream(S_TCP, PORT=port)
    peer, _ = s.accept()
    data = pattern(5_000_000)
    t = threading.Thread(target=lambda: (c.sock.sendall(data), c.sock.shutdown(socket.SHUT_WR)))
    t.start()
    got = bytearray()
    while piece := peer.recv(1 << 16):
        got += piece
    t.join()
    assert bytes(got) == data
    # The host has ended its direction, the server still answers.
    t = threading.Thread(target=lambda: (peer.sendall(data[::-1]), peer.close()))
    t.start()
    assert c.read_all() == data[::-1]
    t.join()
    s.close()


def test_tcp_server_closes_first(agent):
    s, port = serve(socket.AF_INET, "127.0.0.1")
    c = agent.stream(S_TCP, PORT=port)
    peer, _ = s.accept()
    peer.sendall(b"bye")
    peer.shutdown(socket.SHUT_WR)
    assert c.read_all() == b"bye"
    c.sock.sendall(b"still heard")
    c.sock.shutdown(socket.SHUT_WR)
    assert peer.recv(100) == b"still heard" and peer.recv(100) == b""


def test_tcp_client_goes_away(agent):
    s, port = serve(socket.AF_INET, "127.0.0.1")
    fds = agent.fds()
    c = agent.stream(S_TCP, PORT=port)
    peer, _ = s.accept()
    c.sock.sendall(b"last words")
    c.close()
    assert peer.recv(100) == b"last words" and peer.recv(100) == b""
    until(lambda: agent.fds() <= fds)


def test_tcp_refused(agent):
    s, port = serve(socket.AF_INET, "127.0.0.1")
    s.close()
    with refused(errno.ECONNREFUSED, f"port {port}"):
        agent.stream(S_TCP, PORT=port)
    with refused(errno.EINVAL, "port 70000"):
        agent.stream(S_TCP, PORT=70000)
