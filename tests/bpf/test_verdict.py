# SPDX-License-Identifier: Apache-2.0
"""Who may talk to whom, with the real stack of a namespace behind the tap."""

import contextlib
import errno
import select
import socket
import sys

import netlab
import pytest
from packets import ACK, RST, TCP, UDP, Wire, ethernet, ip, tcp, udp

REFUSED = (errno.ECONNREFUSED, errno.EACCES, errno.EHOSTUNREACH)


def exchange(client, server):
    """Both ways over TCP. Whom the server saw."""
    s, peer = server.accept()
    with s:
        s.settimeout(netlab.PATIENT)
        client.sendall(b'question')
        assert s.recv(100) == b'question'
        s.sendall(b'answer')
        assert client.recv(100) == b'answer'
    return peer[0]


def reaches(guest, world, address, port=80):
    """True, or False when the guest is told at once that it may not."""
    with world.listen(address, port) as server:
        try:
            with guest.connect(address, port) as client:
                exchange(client, server)
                return True
        except OSError as e:
            assert e.errno in REFUSED, f'{address} port {port}: {e}'
            return False


def asks(guest, world, address, port=53):
    """The same over UDP."""
    with world.udp(address, port) as server, guest.udp(family=netlab.family_of(address)) as client:
        client.connect((address, port))
        client.send(b'question')
        heard = select.select([server, client], [], [], netlab.PATIENT)[0]
        assert heard, f'{address} port {port}: neither comes it there, nor is it refused'
        if server in heard:
            data, peer = server.recvfrom(100)
            server.sendto(data + b'?', peer)
            return client.recv(100) == b'question?'
        with pytest.raises(OSError) as e:
            client.recv(100)
        assert e.value.errno in REFUSED
        assert not select.select([server], [], [], 0.3)[0]
        return False


def test_default_is_that_nothing_passes(host):
    guest = host.sandbox().guest()
    assert not reaches(guest, host.world, '203.0.113.10')
    assert not reaches(guest, host.world, '2001:db8:1::10')
    assert not asks(guest, host.world, '8.8.8.8')
    assert not guest.ping('8.8.8.8', timeout=0.3)


def test_internet_is_reached_masqueraded(host):
    guest = host.sandbox(default='internet').guest()
    with host.world.listen('203.0.113.10', 80) as server, guest.connect('203.0.113.10', 80) as client:
        assert exchange(client, server) == '198.51.100.2'
    with host.world.listen('2001:db8:1::10', 80) as server, guest.connect('2001:db8:1::10', 80) as client:
        assert exchange(client, server) == '2001:db8::2'
    assert asks(guest, host.world, '8.8.8.8')
    assert asks(guest, host.world, '2001:db8:1::20')
    assert guest.ping('203.0.113.20')
    assert guest.ping('2001:db8:1::10')


@pytest.mark.parametrize('address', ['10.66.0.5', '169.254.169.254', 'fd00:66::5'])
def test_internet_has_no_special_ranges(host, address):
    guest = host.sandbox(default='internet').guest()
    assert not reaches(guest, host.world, address)
    assert not asks(guest, host.world, address)


def test_special_range_opens_by_a_rule_inside_of_it(host):
    guest = host.sandbox('allow 10.66.0.0/16 tcp:80', 'allow 0.0.0.0/0').guest()
    assert reaches(guest, host.world, '10.66.0.5', 80)
    assert not reaches(guest, host.world, '10.66.0.5', 81)
    assert not reaches(guest, host.world, '169.254.169.254')


def test_allow_list(host):
    guest = host.sandbox('allow 203.0.113.10 tcp:80,8000-8100', 'allow 8.8.8.8 udp:53', 'allow 2001:db8:1::10').guest()
    assert reaches(guest, host.world, '203.0.113.10', 80)
    assert reaches(guest, host.world, '203.0.113.10', 8050)
    assert not reaches(guest, host.world, '203.0.113.10', 8101)
    assert not reaches(guest, host.world, '203.0.113.20', 80)
    assert asks(guest, host.world, '8.8.8.8', 53)
    assert not asks(guest, host.world, '8.8.8.8', 54)
    assert reaches(guest, host.world, '2001:db8:1::10', 1)
    assert not reaches(guest, host.world, '2001:db8:1::20', 1)


def test_selective_deny(host):
    guest = host.sandbox('deny 203.0.113.0/24', 'allow 203.0.113.20', default='internet').guest()
    assert not reaches(guest, host.world, '203.0.113.10')
    assert reaches(guest, host.world, '203.0.113.20')
    assert reaches(guest, host.world, '8.8.8.8')


def test_allow_wins_over_a_longer_deny(host):
    guest = host.sandbox('allow 8.0.0.0/8', 'deny 8.8.8.8/32', default='internet').guest()
    assert reaches(guest, host.world, '8.8.8.8')


def test_services_of_the_host_need_a_rule_that_says_so(host):
    s = host.sandbox('allow 0.0.0.0/0', 'allow 10.0.0.0/8', default='internet')
    guest = s.guest()
    assert not reaches(guest, host.netns, '198.51.100.2')
    assert not reaches(guest, host.netns, host.answer['net4'].replace('.0/16', '.1'))
    assert s.statistics()['denied'] == {'host': 2}
    s.policy('allow 198.51.100.2 tcp:80 host')
    assert reaches(guest, host.netns, '198.51.100.2', 80)
    assert not reaches(guest, host.netns, '198.51.100.2', 81)


def test_another_sandbox_needs_a_rule_on_both_sides(host):
    one, two = host.sandbox(), host.sandbox()
    a, b = one.guest(), two.guest()

    def try_it(timeout=0.5):
        with b.listen('0.0.0.0', 80) as server:
            try:
                with a.connect(two.address4, 80, timeout=timeout) as client:
                    return exchange(client, server)
            except OSError:
                return None
    one.policy(default='internet')
    two.policy(f'inbound {one.address4}')
    assert try_it() is None
    one.policy(f'allow {two.address4} tcp:80')
    two.policy(default='internet')
    assert try_it() is None
    two.policy(f'inbound {one.address4} tcp:80')
    assert try_it(netlab.PATIENT) == one.address4


def test_world_does_not_reach_a_sandbox(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    host.world.ip(f'route add {s.address4} via 198.51.100.2')
    with guest.listen('0.0.0.0', 80) as server:
        with pytest.raises(TimeoutError):
            host.world.connect(s.address4, 80, timeout=0.5)
        assert s.statistics()['denied']['inbound'] >= 1
        s.policy('inbound 198.51.100.0/24 tcp:80')
        with host.world.connect(s.address4, 80) as client:
            exchange(client, server)


CONNECT = '''
import os, socket, sys
os.setuid(int(sys.argv[1]))
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET)
s.settimeout(60)
try:
    s.connect((sys.argv[2], 80))
except OSError as e:
    sys.exit(e.errno or 110)
'''


def connect_as(netns, uid, address):
    return netns.run(sys.executable, '-c', CONNECT, str(uid), address, check=False).returncode


def test_from_the_host_root_owner_and_ingress_users_connect(make_host):
    host = make_host(ingress_uid=4001, net6='fd3c:cbed::/64')
    s = host.sandbox()
    guest = s.guest()
    s.claim(policy=1, owner=4000)
    with guest.listen('0.0.0.0', 80), guest.listen('::', 81):
        assert connect_as(host.netns, 0, s.address4) == 0
        assert connect_as(host.netns, 4000, s.address4) == 0
        assert connect_as(host.netns, 4001, s.address4) == 0
        assert connect_as(host.netns, 4002, s.address4) == errno.ECONNREFUSED
    assert s.statistics()['denied'] == {'owner': 1}


def test_a_claim_is_one_write_to_a_plain_map(host):
    s = host.sandbox()
    guest = s.guest()
    assert not reaches(guest, host.world, '203.0.113.10')
    s.claim(policy=2)
    assert reaches(guest, host.world, '203.0.113.10')
    loaded, _ = host.netd.call(netlab.POLICY_LOAD, ('allow', '8.8.8.8'))
    s.claim(policy=loaded['policy'], generation=2)
    assert reaches(guest, host.world, '8.8.8.8')
    assert not reaches(guest, host.world, '203.0.113.10')


def test_nothing_passes_without_entry_policy_or_slot(host):
    s = host.sandbox(default='internet')
    guest = s.guest()
    assert reaches(guest, host.world, '203.0.113.10')
    s.claim(policy=4711)
    assert not reaches(guest, host.world, '203.0.113.10')


def test_bad_policies_change_nothing(host):
    s = host.sandbox('allow 203.0.113.10')
    guest = s.guest()
    for rules, what in ((['8.8.8.8', '10.0.0.0/99'], '10.0.0.0/99'), (['8.8.8.8 tcp:70000'], '70000'),
                        (['8.8.8.8'] * 4096, '4095 rules')):
        with pytest.raises(netlab.NetdError, match=what):
            s.policy(*(f'allow {r}' for r in rules))
    with pytest.raises(netlab.NetdError, match='"deny" or "internet"'):
        s.policy(default='open')
    assert reaches(guest, host.world, '203.0.113.10')
    assert not reaches(guest, host.world, '8.8.8.8')


def test_policy_for_a_slot_that_is_not_there(host):
    with pytest.raises(netlab.NetdError, match='no slot 77'):
        host.netd.call(netlab.POLICY_SET, ('allow', '8.8.8.8'), slot=77)
    with pytest.raises(netlab.NetdError, match='names no slot'):
        host.netd.call(netlab.POLICY_SET, ('allow', '8.8.8.8'))
    for op in (netlab.LIMITS_SET, netlab.STATISTICS):
        with pytest.raises(netlab.NetdError, match='no slot 77'):
            host.netd.call(op, slot=77)
    # the host's connections to a sandbox may be there after its links are gone
    assert host.netd.call(netlab.QUIESCE, slot=77)[0] == {'count': 0}
    with pytest.raises(netlab.NetdError, match='names no slot'):
        host.netd.call(netlab.QUIESCE)
    with pytest.raises(netlab.NetdError, match='no policy 4711'):
        host.netd.call(netlab.POLICY_SET, slot=host.sandbox().slot, policy=4711)
    with pytest.raises(netlab.NetdError, match='no policy 1 '):
        host.netd.call(netlab.POLICY_DROP, policy=1)


def test_a_table_stays_for_as_many_as_loaded_it(host):
    # two policies to cubed, for they are written otherwise, and one table
    one, other = (host.netd.call(netlab.POLICY_LOAD, ('allow', rule))[0]['policy'] for rule in ('8.8.8.8', '8.8.8.8/32'))
    assert one == other
    for _ in range(2):
        host.netd.call(netlab.POLICY_DROP, policy=one)
    with pytest.raises(netlab.NetdError, match=f'no policy {one} '):
        host.netd.call(netlab.POLICY_DROP, policy=one)


def test_the_longest_list_there_may_be(host):
    s = host.sandbox()
    guest = s.guest()
    s.policy('allow 8.8.8.8', *(f'allow 20.{i >> 8}.{i & 255}.0/24' for i in range(4000)))
    assert reaches(guest, host.world, '8.8.8.8')
    assert not reaches(guest, host.world, '203.0.113.10')


def test_resolver_is_reached_through_the_gateway_if_the_policy_resolves(make_host):
    host = make_host(net4='10.99.0.0/24', resolver4='10.99.0.1')
    s = host.sandbox()
    guest = s.guest()

    def resolves(timeout=netlab.PATIENT):
        with host.netns.udp('10.99.0.1', 53) as server, guest.udp(family=socket.AF_INET) as client:
            server.settimeout(timeout)
            client.connect((netlab.GATEWAY4, 53))
            client.send(b'question')
            try:
                data, peer = server.recvfrom(100)
            except TimeoutError:
                return None
            server.sendto(data, peer)
            assert client.recv(100) == b'question'
            return peer[0]
    assert resolves(timeout=0.3) is None
    s.policy('allow example.com')
    assert resolves() == s.address4
    with host.netns.listen('10.99.0.1', 53) as server, guest.connect(netlab.GATEWAY4, 53) as client:
        assert exchange(client, server) == s.address4
    with pytest.raises(OSError), host.netns.listen('10.99.0.1', 54):
        guest.connect(netlab.GATEWAY4, 54, timeout=0.3)


def test_no_number_of_a_denied_guest_gets_out(host):
    """Not in the reset that the other end of a connection gets when it is cut: here there never was one."""
    closed, opened = host.sandbox(), host.sandbox(default='internet')
    with host.world.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003)) as sniffer, host.world.udp('8.8.8.8', 9):
        for flags in (ACK, ACK | RST, 0):
            segment = tcp(netlab.INNER4, '8.8.8.8', 4000, 443, flags, seq=0x5ec5e7)
            Wire(closed.tap).send(ethernet(ip(netlab.INNER4, '8.8.8.8', TCP, segment)))
        last = udp(netlab.INNER4, '8.8.8.8', 4000, 9, b'the last one')
        Wire(opened.tap).send(ethernet(ip(netlab.INNER4, '8.8.8.8', UDP, last)))
        while b'the last one' not in (packet := sniffer.recv(2000)):
            assert bytes.fromhex('005ec5e7') not in packet


def test_who_takes_over_the_port_of_another_is_judged_himself(make_host):
    """A flow is known for a while after it has ended."""
    host = make_host()
    s = host.sandbox()
    guest = s.guest()
    s.claim(policy=1, owner=4000)
    port = '''
import os, socket, sys
os.setuid(int(sys.argv[1]))
kind = getattr(socket, sys.argv[3])
s = socket.socket(socket.AF_INET, kind)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", 40000))
s.settimeout(60)
try:
    s.connect((sys.argv[2], 80))
    s.send(b"x")
    # The guest ends it first, so that no port is kept here.
    kind == socket.SOCK_STREAM and s.recv(1)
except OSError as e:
    sys.exit(e.errno or 110)
'''

    def run(uid, kind):
        return host.netns.start(sys.executable, '-c', port, str(uid), s.address4, kind)

    with guest.listen('0.0.0.0', 80) as server:
        process = run(4000, 'SOCK_STREAM')
        server.accept()[0].close()
        assert process.wait() in (0, errno.ECONNRESET)
        assert run(4002, 'SOCK_STREAM').wait() == errno.ECONNREFUSED
    with guest.udp(netlab.INNER4, 80) as server:
        assert run(4000, 'SOCK_DGRAM').wait() == 0
        assert server.recv(10) == b'x'
        run(4002, 'SOCK_DGRAM').wait()
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.recv(10)
