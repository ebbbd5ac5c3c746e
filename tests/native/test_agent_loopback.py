# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process in a network namespace, and a client in another: servers on loopback can be reached on
the address of the network card, and nobody's ports are taken for that."""

import contextlib
import ctypes
import errno
import os
import socket
import struct
import subprocess
import threading
import time

import pytest

from agentlib import CLAIM, pattern, until
from test_agent_net import Inside, network

CLONE_NEWNET = 0x40000000
GUEST4, GUEST6 = '169.254.77.2', 'fdcb:ed00::2'
HOST4, HOST6 = '169.254.77.1', 'fdcb:ed00::1'
LOCAL = {4: '127.0.0.1', 6: '::1'}
GUEST = {4: GUEST4, 6: GUEST6}
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}

libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def namespace(path):
    """This thread in it. Sockets stay in the one that they were made in."""
    with open('/proc/thread-self/ns/net', 'rb') as back, open(path, 'rb') as there:
        assert libc.setns(there.fileno(), CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(back.fileno(), CLONE_NEWNET) == 0


class Place:
    def __init__(self, agent):
        self.agent = agent
        self.inside = Inside(agent)
        self.sockets = []
        self.guest = f'/proc/{agent.pid}/ns/net'
        # The namespace outside lives as long as this process in it.
        self.holder = subprocess.Popen(['unshare', '--net', 'sleep', 'infinity'])
        self.outside = f'/proc/{self.holder.pid}/ns/net'
        here = os.readlink('/proc/self/ns/net')
        until(lambda: os.readlink(self.outside) != here)

    def connect_cards(self):
        self.inside.ip('link', 'set', 'lo', 'up')
        self.inside.add_card()
        self.inside.ip('link', 'set', 'eth0-peer', 'netns', str(self.holder.pid))
        for command in (['link', 'set', 'lo', 'up'], ['link', 'set', 'eth0-peer', 'up'],
                        ['addr', 'add', f'{HOST4}/24', 'dev', 'eth0-peer'],
                        ['addr', 'add', f'{HOST6}/64', 'dev', 'eth0-peer', 'nodad']):
            subprocess.run(['nsenter', '-n', '-t', str(self.holder.pid), 'ip', *command], check=True)
        self.claim()

    def claim(self):
        self.agent.call(CLAIM, NETWORK=[network(f'{GUEST4}/24'), network(f'{GUEST6}/64')])

    def socket(self, where, version, kind=socket.SOCK_STREAM):
        with namespace(where):
            s = socket.socket(FAMILY[version], kind)
        s.settimeout(60)
        self.sockets.append(s)
        return s

    def serve(self, address, port=0, version=None, **options):
        """A listening socket in the guest."""
        s = self.socket(self.guest, version or (6 if ':' in address else 4))
        for name, value in options.items():
            level = socket.IPPROTO_IPV6 if name.startswith('IPV6') else socket.SOL_SOCKET
            s.setsockopt(level, getattr(socket, name), value)
        s.bind((address, port))
        s.listen()
        return s

    def connect(self, port, version=4):
        """From outside."""
        s = self.socket(self.outside, version)
        s.connect((GUEST[version], port))
        return s

    def reaches(self, server, version=4):
        """Whether it is this server that answers outside, for a new connection."""
        c = self.connect(server.getsockname()[1], version)
        peer, _ = server.accept()
        peer.settimeout(60)
        c.sendall(b'ask')
        answer = take(peer, 3)
        peer.sendall(answer + b'!')
        with peer:
            with c:
                same = take(c, 4) == b'ask!'
            # Who closes first keeps the port for a minute: not the server.
            assert peer.recv(1) == b''
        return same

    def refused(self, port, version=4):
        try:
            s = self.connect(port, version)
        except ConnectionRefusedError:
            return True
        s.close()
        return False

    def close(self):
        for s in self.sockets:
            s.close()
        self.holder.kill()
        self.holder.wait()


def take(s, n):
    out = b''
    while len(out) < n:
        piece = s.recv(n - len(out))
        if not piece:
            break
        out += piece
    return out


def port_of(s):
    return s.getsockname()[1]


@pytest.fixture
def place(fresh):
    p = Place(fresh(net=True, loopback=True))
    p.connect_cards()
    yield p
    p.close()


def log(place):
    with open(place.agent.path('stderr')) as f:
        return f.read()


@pytest.mark.parametrize('client', [4, 6])
@pytest.mark.parametrize('server', [4, 6])
def test_a_server_on_loopback_is_reached(place, server, client):
    assert place.reaches(place.serve(LOCAL[server]), client)


def test_its_peer_is_loopback(place):
    server = place.serve('127.0.0.1')
    client = place.connect(port_of(server))
    peer, address = server.accept()
    assert address[0] == '127.0.0.1'
    assert client.getpeername() == (GUEST4, port_of(server))
    peer.close()


def test_each_client_gets_the_family_that_it_came_by(place):
    a = place.serve('127.0.0.1')
    b = place.serve('::1', port_of(a))
    assert place.reaches(a, 4) and place.reaches(b, 6)


def test_a_mapped_address_is_loopback_too(place):
    assert place.reaches(place.serve('::ffff:127.0.0.1'))


def test_nothing_listens(place):
    s = place.serve('127.0.0.1')
    port = port_of(s)
    s.close()
    assert place.refused(port) and place.refused(port, 6)


def test_a_server_that_stops_is_gone(place):
    s = place.serve('127.0.0.1')
    assert place.reaches(s)
    port = port_of(s)
    s.shutdown(socket.SHUT_RDWR)
    until(lambda: place.refused(port))
    s.listen()
    assert place.reaches(s)


@pytest.mark.parametrize('address, version', [('0.0.0.0', 4), ('::', 6), ('::', 4), (GUEST4, 4), (GUEST6, 6)])
def test_a_server_for_everybody_is_left_alone(place, address, version):
    server = place.serve(address)
    client = place.connect(port_of(server), version)
    _, peer = server.accept()
    # The client itself, not the agent.
    assert peer[:2] == (('::ffff:' if ':' in address and version == 4 else '') + {4: HOST4, 6: HOST6}[version],
                        port_of(client))


def test_beside_a_server_on_the_card(place):
    """Each address of a port is somebody else's."""
    card = place.serve(GUEST4)
    local = place.serve('127.0.0.1', port_of(card))
    assert place.reaches(card)
    with namespace(place.guest), socket.create_connection(('127.0.0.1', port_of(card)), 60):
        local.accept()


def test_ipv6_only_beside_loopback(place):
    a = place.serve('127.0.0.1')
    b = place.serve('::', port_of(a), IPV6_V6ONLY=1)
    assert place.reaches(b, 6)


@pytest.mark.parametrize('address', ['0.0.0.0', '::'])
def test_the_port_can_be_taken(place, address):
    """Nothing of the agent's holds it, not even without SO_REUSEADDR: who listens for everybody gets what comes."""
    first = place.serve('127.0.0.1')
    port = port_of(first)
    assert place.reaches(first)
    with pytest.raises(OSError) as e:
        place.serve(address, port)
    assert e.value.errno == errno.EADDRINUSE, 'by the server itself, as without an agent'
    first.close()
    second = []

    def taken():
        with contextlib.suppress(OSError):
            second.append(place.serve(address, port))
        return second
    until(taken)
    assert place.reaches(second[0])


def test_the_port_can_be_taken_under_open_connections(place):
    first = place.serve('127.0.0.1', SO_REUSEADDR=1)
    client = place.connect(port_of(first))
    peer, _ = first.accept()
    first.close()
    second = place.serve('0.0.0.0', port_of(peer), SO_REUSEADDR=1)
    assert place.reaches(second)
    client.sendall(b'still')
    assert take(peer, 5) == b'still'
    peer.close()


def test_every_port_can_be_bound_but_one(place):
    """The agent's own listeners are on a port of the superuser's that nobody uses."""
    with namespace(place.guest):
        table = subprocess.run(['ss', '-Htln'], check=True, capture_output=True, text=True).stdout.split('\n')
    assert {line.split()[3] for line in table if line} == {'127.0.0.1:1', '[::1]:1'}


def test_the_agents_listener_serves_nobody(place):
    assert place.refused(1) and place.refused(1, 6)
    with namespace(place.guest), socket.create_connection(('::1', 1), 60) as s:
        assert s.recv(1) == b''


def test_other_addresses_of_loopback_stay_inside(place):
    s = place.serve('127.0.0.2')
    assert place.refused(port_of(s))


def test_two_users(place):
    """Who runs a server makes no difference."""
    program = ('import os,socket,sys\n'
               'os.setuid(int(sys.argv[1]))\n'
               's = socket.create_server((sys.argv[2], 0), family=socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET)\n'
               'print(s.getsockname()[1], flush=True)\n'
               'while True:\n'
               '    c, _ = s.accept()\n'
               '    c.sendall(str(os.getuid()).encode())\n'
               '    c.close()\n')
    for uid, address in ((1001, '127.0.0.1'), (1002, '::1')):
        with namespace(place.guest):
            server = subprocess.Popen(['python3', '-c', program, str(uid), address], stdout=subprocess.PIPE, text=True)
        try:
            client = place.connect(int(server.stdout.readline()))
            assert take(client, 10) == str(uid).encode()
        finally:
            server.kill()
            server.communicate()


def test_several_listeners_of_one_port(place):
    """SO_REUSEPORT: the port is served until the last one has gone."""
    a = place.serve('127.0.0.1', SO_REUSEPORT=1)
    b = place.serve('127.0.0.1', port_of(a), SO_REUSEPORT=1)
    a.close()
    assert place.reaches(b)
    port = port_of(b)
    b.close()
    assert place.refused(port)


def test_udp_stays_inside(place):
    local = place.socket(place.guest, 4, socket.SOCK_DGRAM)
    local.bind(('127.0.0.1', 0))
    place.serve('127.0.0.1', port_of(local))
    client = place.socket(place.outside, 4, socket.SOCK_DGRAM)
    client.connect((GUEST4, port_of(local)))
    client.send(b'x')
    with pytest.raises(ConnectionRefusedError):
        client.recv(1)

    everybody = place.socket(place.guest, 4, socket.SOCK_DGRAM)
    everybody.bind(('0.0.0.0', 0))
    place.serve('127.0.0.1', port_of(everybody))
    client.connect((GUEST4, port_of(everybody)))
    client.send(b'x')
    assert everybody.recvfrom(1)[1][0] == HOST4


def test_only_the_card_leads_to_loopback(place):
    """Not another link of the guest's, such as that of its containers."""
    place.inside.ip('link', 'add', 'other', 'type', 'veth', 'peer', 'name', 'other-peer')
    place.inside.ip('link', 'set', 'other-peer', 'netns', str(place.holder.pid))
    place.inside.ip('addr', 'add', '10.8.8.2/24', 'dev', 'other')
    place.inside.ip('link', 'set', 'other', 'up')
    for command in (['addr', 'add', '10.8.8.1/24', 'dev', 'other-peer'], ['link', 'set', 'other-peer', 'up']):
        subprocess.run(['nsenter', '-n', '-t', str(place.holder.pid), 'ip', *command], check=True)
    server = place.serve('127.0.0.1')
    s = place.socket(place.outside, 4)
    with pytest.raises(ConnectionRefusedError):
        s.connect(('10.8.8.2', port_of(server)))
    assert place.reaches(server)


def test_a_container_has_ports_of_its_own(place):
    holder = subprocess.Popen(['nsenter', '-n', '-t', str(place.agent.pid), 'unshare', '--net', 'sh', '-c',
                               'ip link set lo up; echo; exec sleep infinity'], stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        s = place.socket(f'/proc/{holder.pid}/ns/net', 4)
        s.bind(('127.0.0.1', 0))
        s.listen()
        assert place.refused(port_of(s))
    finally:
        holder.kill()
        holder.communicate()


def test_bulk_and_half_close(place):
    server = place.serve('127.0.0.1')
    client = place.connect(port_of(server))
    peer, _ = server.accept()
    data = pattern(20_000_000)
    for source, sink in ((client, peer), (peer, client)):
        t = threading.Thread(target=lambda s=source: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        t.start()
        got = bytearray()
        while piece := sink.recv(1 << 16):
            got += piece
        t.join()
        assert bytes(got) == data
    peer.close()


def test_a_slow_reader_costs_no_memory(place):
    server = place.serve('127.0.0.1')
    client = place.connect(port_of(server))
    peer, _ = server.accept()
    before = place.agent.rss()
    client.settimeout(3)
    sent, end = 0, time.monotonic() + 60
    while sent < 200_000_000:
        try:
            sent += client.send(bytes(1 << 20))
        except TimeoutError:
            # it took more than it may grow by; before, it had no CPU
            if sent > 4 << 20 or time.monotonic() > end:
                break
    assert 4 << 20 < sent < 200_000_000
    assert place.agent.rss() - before < 2048
    client.shutdown(socket.SHUT_WR)
    while piece := peer.recv(1 << 20):
        sent -= len(piece)
    assert sent == 0
    peer.close()


def test_a_reset_reaches_the_other_side(place):
    server = place.serve('127.0.0.1')
    client = place.connect(port_of(server))
    peer, _ = server.accept()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    client.close()
    assert peer.recv(1) == b''
    peer.close()

    client = place.connect(port_of(server))
    peer, _ = server.accept()
    peer.sendall(b'last')
    peer.close()
    assert take(client, 10) == b'last'


def test_more_connections_than_there_may_be(place):
    """1024 at once; the next ones wait for their turn."""
    server = place.serve('127.0.0.1')
    clients, peers = [], []
    fds = place.agent.fds()
    for _ in range(1024):
        clients.append(place.connect(port_of(server)))
        peers.append(server.accept()[0])
    late = place.connect(port_of(server))
    late.sendall(b'late')
    server.settimeout(0.3)
    with pytest.raises(TimeoutError):
        server.accept()
    clients[0].close()
    peers[0].close()
    server.settimeout(60)
    peer, _ = server.accept()
    assert take(peer, 4) == b'late'
    for s in [*peers, peer]:
        s.close()
    for s in [*clients, late]:
        s.close()
    until(lambda: place.agent.fds() <= fds)


def test_an_epoch_ends_them(place):
    server = place.serve('127.0.0.1')
    client = place.connect(port_of(server))
    peer, _ = server.accept()
    place.claim()
    for s in (client, peer):
        with pytest.raises(ConnectionResetError):
            s.recv(1)
    peer.close()
    assert place.reaches(server), 'new ones go on'


def test_listeners_from_before_the_card(fresh):
    """A template's servers are there before the network is."""
    with contextlib.closing(Place(fresh(net=True, loopback=True))) as place:
        place.inside.ip('link', 'set', 'lo', 'up')
        server = place.serve('127.0.0.1')
        place.connect_cards()
        assert place.reaches(server)


def test_without_cgroups_or_bpf_the_rest_works(fresh):
    """Here: without the privilege for it."""
    with contextlib.closing(Place(fresh(net=True, loopback=True, without='sys_admin'))) as place:
        place.connect_cards()
        assert log(place).count('\n') == 1
        assert "servers on 127.0.0.1 can't be reached from outside: " in log(place)
        server = place.serve('127.0.0.1')
        assert place.refused(port_of(server))
        assert place.reaches(place.serve('0.0.0.0'))
