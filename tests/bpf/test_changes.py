# SPDX-License-Identifier: Apache-2.0
"""A policy that changes under open connections: what is no longer allowed ends at both ends, the rest does not notice."""

import contextlib
import errno
import socket
import struct
import threading
import time

import netlab
import pytest
from packets import ACK, ICMP, ICMP6, RST, SYN, TCP, UDP, Wire, checksum, ethernet, icmp, ip, is_ip, pseudo, tcp, udp

ADDRESSES = ['203.0.113.10', '2001:db8:1::10']
OTHER = {'203.0.113.10': '203.0.113.20', '2001:db8:1::10': '2001:db8:1::20'}


class Connection:
    def __init__(self, guest, world, address, port=80):
        with world.listen(address, port) as server:
            self.client = guest.connect(address, port)
            self.server, _ = server.accept()
            self.server.settimeout(netlab.PATIENT)
        self.works()

    def works(self):
        self.client.sendall(b'ping')
        assert self.server.recv(10) == b'ping'
        self.server.sendall(b'pong')
        assert self.client.recv(10) == b'pong'

    def is_cut(self):
        """Both ends hear of it without doing anything."""
        for s in (self.client, self.server):
            with pytest.raises(ConnectionResetError):
                s.recv(10)
        return True

    def close(self):
        self.client.close()
        self.server.close()


@pytest.fixture
def connect():
    with contextlib.ExitStack() as stack:
        def make(*arguments):
            c = Connection(*arguments)
            stack.callback(c.close)
            return c
        yield make


@pytest.mark.parametrize('offload', [True, False])
@pytest.mark.parametrize('address', ADDRESSES)
def test_a_silent_connection_is_cut_at_both_ends(host, connect, address, offload):
    s = host.sandbox(default='internet')
    guest = s.guest(offload)
    silent, other = connect(guest, host.world, address), connect(guest, host.world, OTHER[address])
    s.policy(f'allow {OTHER[address]}')
    assert silent.is_cut()
    other.works()
    for netns in (guest, host.world):
        assert netns.stat('TcpInCsumErrors') + netns.stat('Icmp6InCsumErrors') + netns.stat('IcmpInCsumErrors') == 0


@pytest.mark.parametrize('upload', [True, False])
@pytest.mark.parametrize('address', ADDRESSES)
def test_a_busy_connection_is_cut_at_both_ends(host, connect, address, upload):
    s = host.sandbox(default='internet')
    c = connect(s.guest(), host.world, address)
    errors, moving = {}, threading.Event()

    def pump(name, f):
        try:
            while f():
                moving.set()
            errors[name] = 'end of file'
        except OSError as e:
            errors[name] = e.errno
    sender, receiver = (c.client, c.server) if upload else (c.server, c.client)
    threads = [threading.Thread(target=pump, args=('sender', lambda: sender.send(bytes(65536)))),
               threading.Thread(target=pump, args=('receiver', lambda: receiver.recv(65536)))]
    for t in threads:
        t.start()
    assert moving.wait(netlab.PATIENT)
    s.policy()
    for t in threads:
        t.join(netlab.PATIENT)
        assert not t.is_alive()
    assert errors == {'sender': errno.ECONNRESET, 'receiver': errno.ECONNRESET}
    assert host.world.stat('TcpInCsumErrors') == 0


def test_a_connection_of_the_host_stays(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    with guest.listen('0.0.0.0', 80) as server, host.netns.connect(s.address4, 80) as client:
        inside, _ = server.accept()
        s.policy()
        client.sendall(b'still')
        assert inside.recv(10) == b'still'
        inside.sendall(b'there')
        assert client.recv(10) == b'there'


def test_an_inbound_connection_is_cut_when_inbound_ends(host):
    s = host.sandbox('inbound 198.51.100.0/24')
    guest = s.guest()
    host.world.ip(f'route add {s.address4} via 198.51.100.2')
    with guest.listen('0.0.0.0', 80) as server, host.world.connect(s.address4, 80) as client:
        inside, _ = server.accept()
        s.policy()
        inside.settimeout(netlab.PATIENT)
        for end in (client, inside):
            with pytest.raises(ConnectionResetError):
                end.recv(10)


def test_what_is_allowed_again_works_again(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    with host.world.udp('203.0.113.10', 9) as server, guest.udp(family=socket.AF_INET) as client:
        client.bind(('0.0.0.0', 4000))
        client.connect(('203.0.113.10', 9))
        client.send(b'one')
        assert server.recv(10) == b'one'
        s.policy()
        client.send(b'two')
        with pytest.raises(OSError):
            client.recv(10)
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.recv(10)
        server.settimeout(netlab.PATIENT)
        s.policy(default='internet')
        client.send(b'three')
        assert server.recv(10) == b'three'


def test_answers_to_a_denied_flow_do_not_come_in(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    with host.world.udp('203.0.113.10', 9) as server, guest.udp(family=socket.AF_INET) as client:
        client.connect(('203.0.113.10', 9))
        client.send(b'one')
        _, peer = server.recvfrom(10)
        s.policy()
        server.sendto(b'late', peer)
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(10)


def test_errors_about_a_denied_flow_do_not_go_out(host):
    s = host.sandbox(default='internet')
    wire = Wire(s.tap)
    answer = ip('203.0.113.10', netlab.INNER4, UDP, udp('203.0.113.10', netlab.INNER4, 9, 4000))[:28]
    complaint = ethernet(ip(netlab.INNER4, '203.0.113.10', ICMP, icmp(3, 3, payload=answer)))
    wire.send(ethernet(ip(netlab.INNER4, '203.0.113.10', UDP, udp(netlab.INNER4, '203.0.113.10', 4000, 9))))
    wire.send(complaint)
    assert s.statistics()['out'] == 2
    s.policy()
    wire.send(complaint)
    assert s.statistics()['denied'] == {'unrelated': 1}


def test_a_guest_that_does_not_answer_can_not_keep_the_other_end(host):
    """A VMM that ignores the probe: what comes from the world is answered with a reset all the same."""
    s = host.sandbox(default='internet')
    wire = Wire(s.tap)
    with host.world.listen('203.0.113.10', 80) as server:
        wire.send(ethernet(ip(netlab.INNER4, '203.0.113.10', TCP, tcp(netlab.INNER4, '203.0.113.10', 4000, 80, SYN))))
        answer = wire.receive(want=lambda f: is_ip(f, TCP))
        theirs = int.from_bytes(answer[38:42], 'big')
        wire.send(ethernet(ip(netlab.INNER4, '203.0.113.10', TCP, tcp(netlab.INNER4, '203.0.113.10', 4000, 80, ACK, 1001, theirs + 1))))
        remote, _ = server.accept()
        with remote:
            s.policy()
            remote.sendall(b'anybody?')
            remote.settimeout(netlab.PATIENT)
            with pytest.raises(ConnectionResetError):
                remote.recv(10)
    reset = wire.receive(want=lambda f: is_ip(f, TCP) and f[47] & RST)
    assert int.from_bytes(reset[38:42], 'big') == theirs + 1


def test_a_refused_connection_fails_at_once(host):
    s = host.sandbox()
    wire = Wire(s.tap)
    wire.send(ethernet(ip(netlab.INNER4, '203.0.113.10', TCP, tcp(netlab.INNER4, '203.0.113.10', 4000, 80, SYN, seq=77))))
    reset = wire.receive(want=lambda f: is_ip(f, TCP))
    assert reset[47] == RST | ACK
    assert int.from_bytes(reset[42:46], 'big') == 78
    assert s.statistics()['flows_open'] == 0


def test_equal_policies_share_their_table(host):
    one, two = host.sandbox(), host.sandbox()
    a = one.policy('allow 8.8.8.8', 'deny 9.9.9.9')
    b = two.policy('allow 8.8.8.8', 'deny 9.9.9.9')
    c = two.policy('allow 8.8.4.4')
    assert a['policy'] == b['policy'] != c['policy']
    assert one.policy()['policy'] == 1
    assert one.policy(default='internet')['policy'] == 2


@pytest.mark.parametrize('unfinished', [True, False])
@pytest.mark.parametrize('v6', [True, False])
@pytest.mark.parametrize('proto', [TCP, UDP])
def test_refusals_have_right_checksums(host, proto, v6, unfinished):
    """Whether the guest had finished its own or left that to the device: the answer is made out of its packet."""
    src, dst = (netlab.INNER6, '2001:db8:1::10') if v6 else (netlab.INNER4, '203.0.113.10')
    wire = Wire(host.sandbox().tap)
    payload = b'odd'
    whole = tcp(src, dst, 4000, 80, ACK, 5, 6, payload) if proto == TCP else udp(src, dst, 4000, 80, payload)
    at = 16 if proto == TCP else 6
    if unfinished:
        whole = whole[:at] + struct.pack('!H', ~checksum(pseudo(src, dst, proto, len(whole))) & 0xffff) + whole[at + 2:]
    wire.send(ethernet(ip(src, dst, proto, whole)), (54 if v6 else 34) if unfinished else None, at)
    kind = TCP if proto == TCP else ICMP6 if v6 else ICMP
    answer = wire.receive(want=lambda f: is_ip(f, kind))
    l4 = answer[54 if v6 else 34:]
    assert v6 or checksum(answer[14:34]) == 0
    assert checksum((b'' if kind == ICMP else pseudo(dst, src, kind, len(l4))) + l4) == 0
    if proto == TCP:
        assert l4[13] & RST and int.from_bytes(l4[4:8], 'big') == 6
    else:
        assert (l4[0], l4[1]) == ((1, 1) if v6 else (3, 13))


def complaint(wire, v6):
    """Type and code of the next ICMP error, and what it quotes."""
    frame = wire.receive(want=lambda f: is_ip(f, ICMP6 if v6 else ICMP))
    l4 = frame[54 if v6 else 34:]
    addresses = (frame[22:38], frame[38:54]) if v6 else (frame[26:30], frame[30:34])
    assert checksum((addresses[0] + addresses[1] + struct.pack('!I3xB', len(l4), ICMP6) if v6 else b'') + l4) == 0
    return l4[0], l4[1], l4[8:]


@pytest.mark.parametrize('v6', [True, False])
def test_pings_and_other_protocols_are_refused_like_datagrams(host, v6):
    src, dst = (netlab.INNER6, '2001:db8:1::10') if v6 else (netlab.INNER4, '203.0.113.10')
    wire = Wire(host.sandbox().tap)
    ping = icmp(128 if v6 else 8, 0, struct.pack('!HH', 7, 1), b'payload', *((src, dst) if v6 else ()))
    for proto, packet in ((ICMP6 if v6 else ICMP, ping), (132, bytes(32))):
        sent = ip(src, dst, proto, packet)
        wire.send(ethernet(sent))
        kind, code, quoted = complaint(wire, v6)
        assert (kind, code) == ((1, 1) if v6 else (3, 13))
        # by what a program knows its own: an echo's number, behind its checksum
        assert quoted[:2] == sent[:2] and quoted[-4:] == packet[4:8]


@pytest.mark.parametrize('v6', [True, False])
def test_nobody_complains_about_a_complaint_or_an_answer(host, v6):
    src, dst = (netlab.INNER6, '2001:db8:1::10') if v6 else (netlab.INNER4, '203.0.113.10')
    wire = Wire(host.sandbox().tap)
    ends = (src, dst) if v6 else ()
    answer = icmp(129 if v6 else 0, 0, struct.pack('!HH', 7, 1), b'payload', *ends)
    error = icmp(1 if v6 else 3, 4 if v6 else 3, bytes(4), ip(dst, src, UDP, udp(dst, src, 53, 4000)), *ends)
    for packet in (answer, error):
        wire.send(ethernet(ip(src, dst, ICMP6 if v6 else ICMP, packet)))
    wire.send(ethernet(ip(src, dst, UDP, udp(src, dst, 4001, 53))))
    assert complaint(wire, v6)[2][-8:-6] == struct.pack('!H', 4001)


def test_before_a_sandbox_stops_the_hosts_connections_end_at_both_ends(host):
    s, other = host.sandbox(default='internet'), host.sandbox()
    guest, neighbour = s.guest(), other.guest()
    with guest.listen('0.0.0.0', 80) as server, guest.listen('::', 81) as server6, neighbour.listen('0.0.0.0', 80) as third:
        ends = []
        for listener, address, port in ((server, s.address4, 80), (server6, s.address6, 81)):
            ends.append(host.netns.connect(address, port))
            ends.append(listener.accept()[0])
        unharmed = host.netns.connect(other.address4, 80)
        assert host.netd.call(netlab.QUIESCE, slot=s.slot)[0]['count'] == 2
        for end in ends:
            end.settimeout(netlab.PATIENT)
            with pytest.raises((ConnectionAbortedError, ConnectionResetError)):
                end.recv(10)
            end.close()
        with pytest.raises(ConnectionRefusedError):
            host.netns.connect(s.address4, 80)
        unharmed.sendall(b'here')
        with third.accept()[0] as inside:
            assert inside.recv(10) == b'here'
        unharmed.close()


def test_no_connection_slips_through_while_it_is_closed(host):
    """Those of before are ended, later ones are refused, and none that begins between the two is left."""
    s = host.sandbox(default='internet')
    stop, held, inside = threading.Event(), [], []

    def accept(server):
        server.settimeout(0.1)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                inside.append(server.accept()[0])

    def hammer():
        while not stop.is_set():
            client = socket.socket()
            client.settimeout(netlab.PATIENT)
            held.append((client, client.connect_ex((s.address4, 80))))

    with s.guest().listen('0.0.0.0', 80) as server:
        threads = [threading.Thread(target=accept, args=(server,)), *(threading.Thread(target=hammer) for _ in range(4))]
        for t in threads:
            t.start()
        while len(held) < 50:
            time.sleep(0.001)
        host.netd.call(netlab.QUIESCE, slot=s.slot)
        seen = len(held)
        while len(held) < seen + 50:
            time.sleep(0.001)
        stop.set()
        for t in threads:
            t.join()
    # Who was told before may be the last to say so.
    assert {r for _, r in held[:40]} == {0} and errno.ECONNREFUSED in {r for _, r in held[seen:]}
    for client, r in held:
        assert r in (0, errno.ECONNREFUSED, errno.ECONNABORTED)
        if r == 0:
            with pytest.raises((ConnectionAbortedError, ConnectionResetError)):
                client.recv(1)
        client.close()
    for end in inside:
        end.close()
