# SPDX-License-Identifier: Apache-2.0
"""What a guest has for an address, and what the world sees; odd packets; who is not who he says."""

import socket
import struct

import netlab
import pytest
from packets import (ACK, FRAGMENT, ICMP, ICMP6, TCP, UDP, Wire, checksum, ethernet, fragment6, icmp, ip, is_ip, mac, pack, pseudo,
                     tcp, udp)

V4, V6 = netlab.INNER4, netlab.INNER6


@pytest.fixture
def sandbox(host):
    return host.sandbox(default='internet')


@pytest.fixture
def wire(sandbox):
    return Wire(sandbox.tap)


def test_every_guest_has_the_same_address_and_each_its_own(host):
    addresses = set()
    for _ in range(3):
        s = host.sandbox(default='internet')
        guest = s.guest()
        with guest.listen('0.0.0.0', 80) as server, host.netns.connect(s.address4, 80) as client:
            inside, peer = server.accept()
            assert inside.getsockname()[0] == netlab.INNER4
            assert client.getpeername()[0] == s.address4
            assert peer[0] == host.answer['net4'].replace('.0/16', '.1')
        addresses.add(s.address4)
    assert len(addresses) == 3


def test_gateway_answers_arp_neighbour_solicitation_and_ping(wire):
    arp = struct.pack('!HHBBH', 1, 0x800, 6, 4, 1) + mac(netlab.GUEST_MAC) + pack(V4) + bytes(6) + pack(netlab.GATEWAY4)
    wire.send(ethernet(arp, dst='ff:ff:ff:ff:ff:ff', kind=0x806))
    answer = wire.receive(want=lambda f: f[12:14] == b'\x08\x06' and f[21] == 2)
    assert answer[22:28] == mac(netlab.GATEWAY_MAC)

    target = pack(netlab.GATEWAY6)
    multicast = 'ff02::1:ff00:1'
    ns = icmp(135, 0, bytes(4), target + b'\x01\x01' + mac(netlab.GUEST_MAC), V6, multicast)
    wire.send(ethernet(ip(V6, multicast, ICMP6, ns, ttl=255), dst='33:33:ff:00:00:01'))
    answer = wire.receive(want=lambda f: f[12:14] == b'\x86\xdd' and f[20] == ICMP6 and f[54] == 136)
    assert answer[62:78] == target

    wire.send(ethernet(ip(V4, netlab.GATEWAY4, ICMP, icmp(8, 0, b'\0\1\0\1'))))
    assert wire.receive(want=lambda f: is_ip(f, ICMP))[34] == 0


@pytest.mark.parametrize('address', ['203.0.113.10', '2001:db8:1::10'])
@pytest.mark.parametrize('offload', [True, False])
def test_fragments_go_both_ways(host, sandbox, address, offload):
    guest = sandbox.guest(offload)
    data = bytes(range(256)) * 30
    with host.world.udp(address, 9) as server, guest.udp(family=netlab.family_of(address)) as client:
        client.connect((address, 9))
        client.send(data)
        got, peer = server.recvfrom(65536)
        assert got == data
        server.sendto(got, peer)
        assert client.recv(65536) == data
    assert guest.ping(address, size=4000)


def test_fragments_pass_with_their_first_one_only(host, sandbox, wire):
    sandbox.policy('allow 203.0.113.10 udp:9')
    whole = udp(V4, '203.0.113.10', 9, 9, bytes(1200))
    with host.world.udp('203.0.113.10', 9) as server:
        wire.send(ethernet(ip(V4, '203.0.113.10', UDP, whole[800:], ident=7, offset=800)))
        assert sandbox.statistics()['denied'] == {'fragment': 1}
        wire.send(ethernet(ip(V4, '203.0.113.10', UDP, whole[:800], ident=8, more=True)))
        wire.send(ethernet(ip(V4, '203.0.113.10', UDP, whole[800:], ident=8, offset=800)))
        assert server.recv(2000) == bytes(1200)
    with host.world.udp('203.0.113.10', 10) as other:
        other.settimeout(0.3)
        whole = udp(V4, '203.0.113.10', 9, 10, bytes(1200))
        wire.send(ethernet(ip(V4, '203.0.113.10', UDP, whole[:800], ident=9, more=True)))
        wire.send(ethernet(ip(V4, '203.0.113.10', UDP, whole[800:], ident=9, offset=800)))
        with pytest.raises(TimeoutError):
            other.recv(2000)
    assert sandbox.statistics()['denied'] == {'fragment': 2, 'policy': 1}


def test_fragments_that_write_over_headers_are_dropped(sandbox, wire):
    for offset in (8, 16):
        wire.send(ethernet(ip(V4, '203.0.113.10', UDP, bytes(64), offset=offset)))
        wire.send(ethernet(ip(V6, '2001:db8:1::10', FRAGMENT, fragment6(UDP, offset, False) + bytes(64))))
    assert sandbox.statistics()['denied'] == {'malformed': 4}


def test_icmp_errors_find_their_flow(host, sandbox):
    """A closed port of the world's answers the guest's connection and its datagram, and the other way round."""
    guest = sandbox.guest()
    for address in ('203.0.113.10', '2001:db8:1::10'):
        with guest.udp(family=netlab.family_of(address)) as client:
            client.connect((address, 7))
            client.send(b'is anybody there?')
            with pytest.raises(ConnectionRefusedError):
                client.recv(10)
    for address in (sandbox.address4, sandbox.address6):
        with host.netns.udp(family=netlab.family_of(address)) as client:
            client.connect((address, 7))
            client.send(b'is anybody there?')
            with pytest.raises(ConnectionRefusedError):
                client.recv(10)


def test_path_mtu_is_learned(host, sandbox):
    """A narrow link behind the uplink: the error quotes the packet, and the guest's stack believes it."""
    guest = sandbox.guest()
    far = netlab.Netns()
    host.world.ip(f'link add narrow mtu 1280 type veth peer name eth0 mtu 1500 netns {far.path()}')
    host.world.ip('address add 192.0.2.1/24 dev narrow', 'link set narrow up')
    far.ip('address add 192.0.2.2/24 dev eth0', 'link set eth0 up', 'route add default via 192.0.2.1')
    host.world.sysctl('ipv4/conf/all/forwarding', 1)
    with far.listen('192.0.2.2', 80) as server, guest.connect('192.0.2.2', 80) as client:
        s, _ = server.accept()
        with s:
            s.settimeout(netlab.PATIENT)
            client.sendall(bytes(100000))
            got = 0
            while got < 100000:
                got += len(s.recv(65536))
    assert 'mtu 1280' in guest.run('ip', 'route', 'get', '192.0.2.2').stdout
    far.close()


def test_icmp_errors_about_nothing_are_dropped(host, sandbox, wire):
    quoted = ip('203.0.113.10', V4, TCP, tcp('203.0.113.10', V4, 80, 4000))[:28]
    wire.send(ethernet(ip(V4, '203.0.113.10', ICMP, icmp(3, 1, payload=quoted))))
    assert sandbox.statistics()['denied'] == {'unrelated': 1}


def spoofed(host):
    server = host.world.udp('203.0.113.10', 9)
    server.settimeout(0.3)
    return server


@pytest.mark.parametrize('frame', [
    ethernet(ip('169.254.77.3', '203.0.113.10', UDP, udp('169.254.77.3', '203.0.113.10', 9, 9))),
    ethernet(ip('198.51.100.2', '203.0.113.10', UDP, udp('198.51.100.2', '203.0.113.10', 9, 9))),
    ethernet(ip('10.209.0.2', '203.0.113.10', UDP, udp('10.209.0.2', '203.0.113.10', 9, 9))),
    ethernet(ip(V4, '203.0.113.10', UDP, udp(V4, '203.0.113.10', 9, 9)), src='02:cb:ff:00:00:03'),
    ethernet(ip(V4, '203.0.113.10', UDP, udp(V4, '203.0.113.10', 9, 9)), dst='02:cb:00:00:00:02'),
    ethernet(ip('fdcb:ed00::3', '2001:db8:1::10', UDP, udp('fdcb:ed00::3', '2001:db8:1::10', 9, 9))),
])
def test_who_lies_about_himself_is_dropped_and_told(host, sandbox, wire, frame):
    with spoofed(host) as server:
        wire.send(frame)
        assert sandbox.statistics()['denied'] == {'spoofed': 1}
        assert host.netd.wait_event(netlab.EVENT_DENIED)['reason'] == 'spoofed'
        with pytest.raises(TimeoutError):
            server.recv(100)


def truncated():
    v4 = ethernet(ip(V4, '203.0.113.10', UDP, udp(V4, '203.0.113.10', 9, 9)))
    t4 = ethernet(ip(V4, '203.0.113.10', TCP, tcp(V4, '203.0.113.10', 9, 9)))
    v6 = ethernet(ip(V6, '2001:db8:1::10', UDP, udp(V6, '2001:db8:1::10', 9, 9)))
    return [v4[:20], v4[:33], v4[:38], t4[:40], t4[:52], v6[:30], v6[:53], v6[:58]]


ODD = [
    ethernet(ip(V4, '203.0.113.10', UDP, udp(V4, '203.0.113.10', 9, 9), options=b'\x83\x07\x04\x0a\x42\x00\x05\x00')),
    ethernet(ip(V6, '2001:db8:1::10', 43, bytes([UDP, 2, 0, 1]) + bytes(4) + pack('fd00:66::5') + udp(V6, '2001:db8:1::10', 9, 9))),
    ethernet(ip(V6, '2001:db8:1::10', 0, bytes([60, 0]) + bytes(6) + (bytes([60, 0]) + bytes(6)) * 6)),
    ethernet(b'\x55' + ip(V4, '203.0.113.10', UDP, udp(V4, '203.0.113.10', 9, 9))[1:], kind=0x800),
    ethernet(ip(V4, '203.0.113.10', ICMP, icmp(13, 0, payload=bytes(16)))),
    ethernet(ip(V4, '203.0.113.10', TCP, tcp(V4, '203.0.113.10', 9, 9)[:12] + b'\x10' + tcp(V4, '203.0.113.10', 9, 9)[13:])),
]


def test_source_routes_and_odd_headers_are_dropped(sandbox, wire):
    for frame in ODD:
        wire.send(frame)
    assert sandbox.statistics()['denied'] == {'malformed': len(ODD)}


def test_truncated_headers_are_dropped(sandbox, wire):
    for frame in truncated():
        wire.send(frame)
    s = sandbox.statistics()
    assert set(s['denied']) == {'malformed'} and s['out'] == 0


def test_vlan_tags_and_other_protocols_are_dropped(host, sandbox, wire):
    with spoofed(host) as server:
        inner = ip(V4, '203.0.113.10', UDP, udp(V4, '203.0.113.10', 9, 9))
        wire.send(ethernet(b'\x00\x05\x08\x00' + inner, kind=0x8100))
        wire.send(ethernet(bytes(60), kind=0x88cc))
        with pytest.raises(TimeoutError):
            server.recv(100)
    assert sandbox.statistics()['out'] == 0


@pytest.mark.parametrize('start, offset', [(34, 2), (34, 0), (24, 6), (30, 10), (34, 4)])
def test_a_checksum_is_written_nowhere_but_in_its_place(host, sandbox, wire, start, offset):
    """The VMM says where, and the kernel writes there after the verdict: into the port, if it is let."""
    with spoofed(host) as server:
        wire.send(ethernet(ip(V4, '203.0.113.10', UDP, udp(V4, '203.0.113.10', 9, 9, bytes(40)))), start, offset)
        assert sandbox.statistics()['denied'] == {'malformed': 1}
        with pytest.raises(TimeoutError):
            server.recv(100)


@pytest.mark.parametrize('v6', [False, True])
def test_a_checksum_that_a_device_is_to_finish_is_finished(host, sandbox, wire, v6):
    src, dst = (V6, '2001:db8:1::10') if v6 else (V4, '203.0.113.10')
    datagram = udp(src, dst, 9, 9, b'whole')
    partial = datagram[:6] + struct.pack('!H', ~checksum(pseudo(src, dst, UDP, len(datagram))) & 0xffff) + datagram[8:]
    with host.world.udp(dst, 9) as server:
        wire.send(ethernet(ip(src, dst, UDP, partial)), 54 if v6 else 34, 6)
        assert server.recv(100) == b'whole'


def test_raw_protocols_follow_the_rule_for_any(host, sandbox, wire):
    with host.world.socket(socket.AF_INET, socket.SOCK_RAW, 253) as server:
        server.bind(('203.0.113.10', 0))
        wire.send(ethernet(ip(V4, '203.0.113.10', 253, b'something')))
        assert server.recv(100)[20:] == b'something'
        server.settimeout(0.5)
        sandbox.policy('allow 203.0.113.10 tcp', 'allow 203.0.113.10 udp')
        wire.send(ethernet(ip(V4, '203.0.113.10', 253, b'something')))
        with pytest.raises(TimeoutError):
            server.recv(100)


def test_gateway_listens_on_nothing(host, sandbox, wire):
    with host.netns.listen('0.0.0.0', 80):
        wire.send(ethernet(ip(V4, netlab.GATEWAY4, TCP, tcp(V4, netlab.GATEWAY4, 4000, 80))))
        assert wire.receive(0.3, lambda f: is_ip(f, TCP) and f[47] & ACK) is None
