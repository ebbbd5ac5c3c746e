# SPDX-License-Identifier: Apache-2.0
"""cube-resolver itself: how it is reached, whom it asks, what it bears of guests, what it tells, and who may come and go."""

import contextlib
import os
import pathlib
import random
import socket
import struct
import subprocess
import time
import traceback

import dns
import netlab
import pytest
from packets import ACK, SYN, TCP, UDP, Wire, ethernet, ip, is_ip, tcp, udp
from test_lifecycle import elements, wait
from test_resolver import OTHER, WEB
from test_verdict import asks, exchange

RESOLVER_MAGIC, RESOLVER_VERSION = 0x564c5352, 1


# the way there

@pytest.mark.parametrize('gateway', [netlab.GATEWAY4, netlab.GATEWAY6])
@pytest.mark.parametrize('tcp', [False, True])
def test_both_families_and_transports(lab, gateway, tcp):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    assert dns.Stub(one.guest, gateway).ask('web.example', tcp=tcp).addresses == [WEB]
    for netns in (one.guest, one.host.netns):
        assert netns.stat('UdpInCsumErrors') + netns.stat('Udp6InCsumErrors') + netns.stat('TcpInCsumErrors') == 0


@pytest.mark.parametrize('offload', [True, False])
def test_without_offload(host, offload):
    server, resolver = dns.Server(host.world), dns.Resolver(host)
    try:
        server.put('web.example', *(f'203.0.113.{i}' for i in range(1, 61)))
        guest = host.sandbox('allow web.example').guest(offload)
        for gateway in (netlab.GATEWAY4, netlab.GATEWAY6):
            stub = dns.Stub(guest, gateway)
            assert len(stub.ask('web.example', tcp=True).addresses) == 60
            assert len(stub.ask('web.example', udp_size=1232).addresses) == 60
    finally:
        resolver.stop()
        server.close()


def test_a_foreign_server_is_out_of_reach(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.ask('web.example')
    assert not asks(one.guest, one.host.world, '8.8.8.8')
    assert not one.reaches('8.8.8.8', 53) and not one.reaches('8.8.8.8', 853)


def test_another_server_of_the_host_is_not_in_the_way(host):
    """It has port 53 of all addresses, and is not asked."""
    six = host.netns.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    six.bind(('::', 53))
    with six, host.netns.udp('0.0.0.0', 53) as udp, host.netns.listen('0.0.0.0', 53):
        server, resolver = dns.Server(host.world), dns.Resolver(host)
        try:
            server.put('web.example', WEB)
            stub = dns.Stub(host.sandbox('allow web.example').guest())
            assert stub.ask('web.example').addresses == [WEB]
            assert stub.ask('web.example', tcp=True).addresses == [WEB]
            udp.settimeout(0.1)
            with pytest.raises(TimeoutError):
                udp.recv(100)
        finally:
            resolver.stop()
            server.close()


def resolver_port(host):
    text = host.netns.run('ss', '-Hlun', 'src', host.answer['net4'].split('/')[0][:-1] + '1').stdout
    return int(text.split()[3].rsplit(':', 1)[1])


def test_who_is_no_sandbox_is_not_answered(lab):
    """Not the host's processes, and nobody who writes a sandbox's address on a packet that comes from elsewhere."""
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    own, port = one.host.answer['net4'].split('/')[0][:-1] + '1', resolver_port(one.host)
    with one.host.netns.udp(own) as s:
        s.settimeout(0.3)
        s.sendto(dns.question('web.example').pack(), (own, port))
        with pytest.raises(TimeoutError):
            s.recv(100)
    one.host.netns.sysctl('ipv4/conf/all/rp_filter', 0)
    one.host.netns.sysctl('ipv4/conf/up0/rp_filter', 0)
    one.host.world.ip(f'address add {one.sandbox.address4}/32 dev lo', f'route add {own} via 198.51.100.2')
    with one.host.world.udp(one.sandbox.address4) as s:
        s.sendto(dns.question('web.example').pack(), (own, port))
    # what it would have opened is not open, when everything that came before has been worked on
    assert one.ask('nothing.example').rcode == 'NXDOMAIN'
    assert one.server.asked == []


@pytest.mark.parametrize('gateway', [netlab.GATEWAY4, netlab.GATEWAY6])
@pytest.mark.parametrize('tcp', [False, True])
def test_queries_take_no_room_in_the_hosts_connection_tracking(lab, gateway, tcp):
    """Which all sandboxes and the host share: a query is no flow that the filter counts."""
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    stub = dns.Stub(one.guest, gateway)
    stub.ask('nothing.example', tcp=tcp)
    before = int(one.host.netns.sysctl('netfilter/nf_conntrack_count'))
    for _ in range(20):
        assert stub.ask('nothing.example', tcp=tcp).rcode == 'NXDOMAIN'
    assert int(one.host.netns.sysctl('netfilter/nf_conntrack_count')) == before


def test_no_number_of_policies_is_too_many_to_be_told(host):
    """Not even of the largest: whoever has them would take DNS away from others."""
    def large(i):
        return [f'allow {"x" * 60}.{"y" * 60}.{"z" * 60}.{"w" * 40}.{i}-{k}.example' for k in range(1300)]
    server, guest = dns.Server(host.world), host.sandbox('allow web.example', *large('own')).guest()
    for i in range(200):
        host.netd.call(netlab.POLICY_LOAD, *(tuple(rule.split(' ', 1)) for rule in large(i)), default='deny')
    resolver = dns.Resolver(host)
    try:
        server.put('web.example', WEB)
        assert dns.Stub(guest).ask('web.example').addresses == [WEB]
    finally:
        resolver.stop()
        server.close()


# upstream

def test_a_truncated_answer_is_asked_for_by_tcp(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.server.truncate.add('web.example')
    assert one.ask('web.example').addresses == [WEB]
    assert one.server.by_tcp == ['web.example']


def test_answers_to_something_else_do_not_count(lab):
    one = lab('allow *.example')
    one.server.put('web.example', WEB)

    def with_forged(query, reply):
        right = bytearray(reply.pack())
        other_id = bytes([right[0] ^ 1]) + bytes(right[1:])
        evil = query.reply()
        evil.add_answer(dns.RR('web.example', dns.QTYPE.A, ttl=60, rdata=dns.A(OTHER)))
        other_name = dns.DNSRecord.parse(evil.pack())
        other_name.questions[0].qname = 'evil.example'
        other_type = dns.DNSRecord.parse(evil.pack())
        other_type.questions[0].qtype = dns.QTYPE.TXT
        no_answer = bytearray(evil.pack())
        no_answer[2] &= 0x7f
        two = dns.DNSRecord.parse(evil.pack())
        two.add_question(dns.DNSRecord.question('evil.example').q)
        return [other_id, b'', b'x', evil.pack()[:20], other_name.pack(), other_type.pack(), bytes(no_answer), two.pack(), bytes(right)]
    one.server.odd['web.example'] = with_forged
    assert one.ask('web.example').addresses == [WEB]
    assert not one.reaches(OTHER)


def test_nobody_else_can_answer(lab):
    """Even who knows everything about the query but the address of the server."""
    one = lab('allow web.example')
    one.server.put('web.example', WEB)

    def from_elsewhere(query, reply):
        evil = query.reply()
        evil.add_answer(dns.RR('web.example', dns.QTYPE.A, ttl=60, rdata=dns.A(OTHER)))
        with one.host.world.udp(WEB, 53) as s:
            s.sendto(evil.pack(), ('198.51.100.2', one.server.ports[-1]))
        return [reply.pack()]
    one.server.odd['web.example'] = from_elsewhere
    assert one.ask('web.example').addresses == [WEB]


def test_ids_and_ports_are_random(lab):
    one = lab('allow *.web.example')
    for i in range(20):
        one.ask(f'n{i}.web.example')
    assert len(set(one.server.ids)) > 15 and len(set(one.server.ports)) > 15
    assert sorted(one.server.ids) != one.server.ids and sorted(one.server.ports) != one.server.ports


def test_the_next_server_is_asked_when_one_fails(lab):
    one = lab('allow *.web.example', options=('--try-timeout=1s',))
    one.server.put('a.web.example', WEB)
    # nobody listens; answers that it can't; does not answer
    refusing, silent = dns.Server(one.host.world, '203.0.113.10'), dns.Server(one.host.world, '203.0.113.20')
    try:
        refusing.rcode = {'a.web.example': dns.RCODE.SERVFAIL, 'b.web.example': dns.RCODE.SERVFAIL}
        silent.silent = True
        one.resolver.conf.write_text('nameserver 8.8.8.8\nnameserver 203.0.113.10\nnameserver 198.51.100.1\n')
        assert one.ask('a.web.example').addresses == [WEB]
        assert refusing.asked
        one.resolver.conf.write_text('options timeout:1\nnameserver 203.0.113.20\nnameserver 198.51.100.1 # this one\n; none\n')
        assert one.ask('a.web.example').addresses == [WEB]
        assert silent.asked
    finally:
        refusing.close()
        silent.close()


def test_no_server_answers(lab):
    one = lab('allow web.example', options=('--try-timeout=200ms', '--timeout=300ms'))
    one.server.silent = True
    assert one.ask('web.example').rcode == 'SERVFAIL'
    assert one.ask('web.example', tcp=True).rcode == 'SERVFAIL'


def test_resolv_conf_is_read_again_when_it_changes(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    other = dns.Server(one.host.world, OTHER)
    try:
        other.put('web.example', OTHER)
        assert one.ask('web.example').addresses == [WEB]
        new = one.resolver.conf.with_suffix('.new')
        new.write_text(f'nameserver {OTHER}\n')
        os.replace(new, one.resolver.conf)
        assert one.ask('web.example').addresses == [OTHER]
    finally:
        other.close()


def test_what_upstream_has_not_is_told(lab):
    one = lab('allow *.web.example')
    one.server.put('four.web.example', WEB)
    answer = one.ask('nothing.web.example')
    assert answer.rcode == 'NXDOMAIN' and [str(r.rname) for r in answer.record.auth] == ['example.']
    answer = one.ask('four.web.example', 'AAAA')
    assert (answer.rcode, answer.addresses) == ('NOERROR', [])


# hostile guests

def test_what_is_no_query_is_not_answered_or_an_error(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    good = dns.question('web.example').pack()

    def rcode(data):
        return one.stub.exchange(data)[3] & 15
    assert rcode(good[:14]) == 1
    assert rcode(good[:4] + b'\0\2' + good[6:]) == 1
    assert rcode(good[:4] + b'\0\0' + good[6:12]) == 1
    assert rcode(good[:2] + b'\x28' + good[3:]) == 4
    assert rcode(good[:-2] + b'\0\3') == 5
    # a name that points at itself
    assert rcode(good[:12] + b'\xc0\x0c' + b'\0\1\0\1') == 1
    for data in (b'', b'x', good[:11], good[:2] + b'\x81' + good[3:]):
        with pytest.raises(TimeoutError):
            one.stub.exchange(data, timeout=0.2)
    assert one.server.asked == []
    assert one.ask('web.example').addresses == [WEB]


def test_queries_are_no_flows(lab):
    """A sandbox may have so many of them open, and each query has a port of its own."""
    one = lab('allow web.example', options=('--rate=10000',))
    one.server.put('web.example', WEB)
    one.sandbox.limits(flows_open=5)
    for i in range(20):
        assert one.ask('web.example', tcp=i % 4 == 0).addresses == [WEB]
    assert one.sandbox.statistics()['flows_open'] == 0
    assert elements(one.host, 'flows') == 0
    assert one.reaches(WEB)


def test_a_flood_of_queries_does_not_reach_the_resolver(lab):
    one = lab('allow web.example')
    with one.guest.udp(family=socket.AF_INET) as s:
        s.connect((netlab.GATEWAY4, 53))
        s.setblocking(False)
        end = time.monotonic() + 60
        while 'rate' not in one.sandbox.statistics()['denied']:
            assert time.monotonic() < end
            for _ in range(3000):
                with contextlib.suppress(BlockingIOError):
                    s.send(b'flood')


def test_queries_of_one_sandbox_are_limited(lab):
    one = lab('allow web.example', options=('--rate=20',))
    one.server.put('web.example', WEB)
    other = one.host.sandbox('allow web.example').guest()
    with one.guest.udp(family=socket.AF_INET) as s:
        s.connect((netlab.GATEWAY4, 53))
        begin = end = time.monotonic()
        for _ in range(500):
            s.send(dns.question('evil.example').pack())
        n = 0
        while n < 20:
            s.recv(512)
            n, end = n + 1, time.monotonic()
        s.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while True:
                s.recv(512)
                n, end = n + 1, time.monotonic()
    # a second's worth at once, and then so many a second
    assert n <= 20 + 20 * (end - begin)
    assert dns.Stub(other).ask('web.example').addresses == [WEB]


def test_many_sandboxes_together_do_not_keep_others_from_resolving(lab):
    """By names that nobody answers: as many as there is room for."""
    one = lab(default='internet')
    one.server.put('web.example', WEB)
    one.server.odd['slow.example'] = lambda query, reply: []
    for _ in range(40):
        wire = Wire(one.host.sandbox(default='internet').tap)
        for i in range(64):
            query = udp(netlab.INNER4, netlab.GATEWAY4, 4000 + i, 53, dns.question('slow.example').pack())
            wire.send(ethernet(ip(netlab.INNER4, netlab.GATEWAY4, UDP, query)))
        # what came before has been worked on
        assert one.ask('web.example', 'ANY').rcode == 'REFUSED'
    assert one.ask('web.example').addresses == [WEB]


def test_many_sandboxes_together_do_not_keep_others_from_connecting(lab):
    one = lab(default='internet')
    one.server.put('web.example', WEB)

    def send(wire, port, flags, seq, ack=0):
        wire.send(ethernet(ip(netlab.INNER4, netlab.GATEWAY4, TCP, tcp(netlab.INNER4, netlab.GATEWAY4, port, 53, flags, seq, ack))))
    for _ in range(64):
        wire = Wire(one.host.sandbox(default='internet').tap)
        for port in range(4000, 4008):
            send(wire, port, SYN, 1000)
            answer = wire.receive(want=lambda f: is_ip(f, TCP) and f[47] == SYN | ACK)
            send(wire, port, ACK, 1001, int.from_bytes(answer[38:42], 'big') + 1)
    assert one.ask('web.example', tcp=True).addresses == [WEB]


def test_queries_under_way_are_limited(lab):
    one = lab('allow *.web.example', options=('--rate=10000',))
    one.server.silent = True
    other = one.host.sandbox('allow web.example').guest()
    with one.guest.udp(family=socket.AF_INET) as s:
        s.connect((netlab.GATEWAY4, 53))
        for i in range(70):
            s.send(dns.question(f'n{i}.web.example').pack())
        for _ in range(6):
            assert dns.Answer(s.recv(512)).rcode == 'SERVFAIL'
        s.settimeout(0.2)
        with pytest.raises(TimeoutError):
            s.recv(512)
        one.server.silent = False
        one.server.put('web.example', WEB)
        assert dns.Stub(other).ask('web.example').addresses == [WEB]


def test_a_query_that_is_repeated_is_asked_upstream_once(lab):
    one = lab('allow web.example', options=('--try-timeout=5s',))
    one.server.silent = True
    with one.guest.udp(family=socket.AF_INET) as s:
        s.connect((netlab.GATEWAY4, 53))
        q = dns.question('web.example').pack()
        for _ in range(5):
            s.send(q)
    assert one.ask('evil.example').rcode == 'NXDOMAIN'
    wait(lambda: one.server.asked)
    assert len(one.server.asked) == 1


def test_connections_of_one_sandbox_are_limited(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(one.guest.connect(netlab.GATEWAY4, 53)) for _ in range(8)]
        # half a query, and one too long
        idle[0].sendall(b'\0')
        idle[1].sendall(b'\xff\xff')
        assert idle[1].recv(1) == b''
        more = stack.enter_context(one.guest.connect(netlab.GATEWAY4, 53))
        q = dns.question('web.example').pack()
        for _ in range(3):
            more.sendall(len(q).to_bytes(2, 'big') + q)
            assert dns.Answer(dns.receive_tcp(more)).addresses == [WEB]
        over = stack.enter_context(one.guest.connect(netlab.GATEWAY4, 53))
        with contextlib.suppress(ConnectionResetError):
            assert over.recv(1) == b''
        assert one.ask('web.example').addresses == [WEB]


def test_a_connection_that_is_slow_on_purpose_has_its_time_and_no_more(lab):
    """One byte after the other, or asking and never reading: what counts is when a query began."""
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    q = dns.question('web.example').pack()
    query = len(q).to_bytes(2, 'big') + q
    with contextlib.ExitStack() as stack:
        slow = {stack.enter_context(one.guest.connect(netlab.GATEWAY4, 53)): iter(query * 1000) for _ in range(7)}
        greedy = stack.enter_context(one.guest.connect(netlab.GATEWAY4, 53))
        greedy.sendall(query * 20)
        end = time.monotonic() + 60
        while slow:
            assert time.monotonic() < end
            for s, rest in list(slow.items()):
                try:
                    s.sendall(bytes([next(rest)]))
                except OSError:
                    del slow[s]
            assert one.ask('web.example').addresses == [WEB]
            time.sleep(0.4)
        # those were let go, so that others have a place
        assert one.ask('web.example', tcp=True).addresses == [WEB]


def test_queries_that_are_broken_in_any_way_harm_nobody(lab):
    one = lab('allow web.example', 'allow *.deep.example', options=('--rate=1000000',))
    one.server.put('web.example', WEB)
    rng = random.Random(1)
    good = [dns.question(name, kind, udp_size).pack() for name in ('web.example', 'a.b.c.deep.example', 'x' * 63 + '.deep.example')
            for kind in ('A', 'AAAA', 'HTTPS', 'TXT') for udp_size in (None, 512, 65535)]
    pid = one.resolver.process.pid

    def broken():
        data = bytearray(rng.choice(good))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            data[at] = rng.choice((0, 1, 0x3f, 0x40, 0xc0, 0xff, rng.randrange(256)))
        return bytes(data[:rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data + rng.randbytes(rng.choice((0, 0, 1, 40))))

    def large():
        """Names that point at each other through 4 KiB."""
        return good[0][:12] + b''.join(b'\x01a' + struct.pack('!H', 0xc000 | rng.randrange(0, 4000)) for _ in range(1000))[:4080]

    def anonymous():
        return int(next(line for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines() if line.startswith('RssAnon')).split()[1])

    def flood(n):
        with one.guest.udp(family=socket.AF_INET) as s:
            s.connect((netlab.GATEWAY4, 53))
            for i in range(n):
                s.send(broken())
                if i % 50 == 0:
                    assert one.ask('web.example').addresses == [WEB]
        for _ in range(n // 20):
            with one.guest.connect(netlab.GATEWAY4, 53) as s, contextlib.suppress(OSError):
                data = rng.choice((broken, large))()
                s.sendall((len(data) + rng.choice((0, 0, 0, 1, -1)) & 0xffff).to_bytes(2, 'big') + data)
                s.shutdown(socket.SHUT_WR)
                s.recv(65536)

    flood(500)
    fds, before = len(os.listdir(f'/proc/{pid}/fd')), anonymous()
    flood(1500)
    assert one.ask('web.example', tcp=True).addresses == [WEB]
    assert one.resolver.process.poll() is None
    wait(lambda: len(os.listdir(f'/proc/{pid}/fd')) <= fds)
    assert anonymous() - before < 1024


# audit

def test_a_denied_name_is_told_once(lab):
    one = lab('allow web.example')
    for _ in range(5):
        one.ask('evil.example')
        one.ask('Evil.Example', 'AAAA')
    assert one.denied() == [('name', 'evil.example', '', 1)]


def test_and_once_an_interval_with_its_count(make_host):
    host = make_host(audit_sec=1)
    one = dns.Lab(host, 'allow web.example')
    try:
        asked, end = 0, time.monotonic() + 60
        while sum(count for *_, count in one.denied()) < 5:
            assert time.monotonic() < end
            one.ask('evil.example')
            asked += 1
            time.sleep(0.1)
        told = one.denied()
        counts = [count for *_, count in told]
        assert all(t[:3] == ('name', 'evil.example', '') for t in told)
        # All but those of the interval that is not over.
        assert counts[0] == 1 and max(counts) > 1 and sum(counts) <= asked
    finally:
        one.close()


def test_a_flood_of_names_is_told_as_a_number(lab):
    one = lab('allow web.example')
    for i in range(100):
        one.ask(f'n{i}.evil.example')
    told = one.denied()
    assert [t[1] for t in told] == [f'n{i}.evil.example' for i in range(16)]
    wait(lambda: len(one.denied()) > 16)
    assert one.denied()[16:] == [('name', '', '', 84)]


@pytest.mark.parametrize('gateway', [netlab.GATEWAY4, netlab.GATEWAY6])
@pytest.mark.parametrize('tcp', [False, True])
def test_a_denied_query_is_told_with_the_port_it_was_sent_to(lab, gateway, tcp):
    """Not with that of the resolver's socket, which no guest knows."""
    one = lab()
    with pytest.raises(OSError):
        dns.Stub(one.guest, gateway).ask('web.example', tcp=tcp)
    event = one.host.netd.wait_event(netlab.EVENT_DENIED)
    own = one.host.answer['net4' if gateway == netlab.GATEWAY4 else 'net6'].split('/')[0]
    assert event['address'] == (own[:-1] + '1' if gateway == netlab.GATEWAY4 else own + '1')
    assert (event['reason'], event['protocol'], event['port']) == ('policy', TCP if tcp else UDP, 53)


def test_a_denied_destination_has_the_name_that_led_to_it(lab):
    one = lab('allow web.example tcp:443')
    one.server.put('web.example', WEB)
    one.ask('web.example')
    assert not one.reaches(WEB, 80)
    event = one.host.netd.wait_event(netlab.EVENT_DENIED)
    assert (event['address'], event['port'], event['name']) == (WEB, 80, 'web.example')


# lives

def test_a_policy_that_changes_closes_what_names_opened(lab):
    one = lab('allow web.example', 'allow other.example')
    one.server.put('web.example', WEB)
    one.server.put('other.example', OTHER)
    one.ask('web.example')
    one.ask('other.example')
    with one.host.world.listen(WEB, 80) as web, one.host.world.listen(OTHER, 80) as other, \
            one.guest.connect(WEB, 80) as client, one.guest.connect(OTHER, 80) as kept:
        gone, _ = web.accept()
        stays, _ = other.accept()
        one.sandbox.policy('allow other.example')
        for end in (client, gone):
            end.settimeout(netlab.PATIENT)
            with pytest.raises(ConnectionResetError):
                end.recv(10)
        kept.sendall(b'still')
        assert stays.recv(10) == b'still'
    assert not one.reaches(WEB)
    assert one.reaches(OTHER)
    assert one.ask('web.example').rcode == 'NXDOMAIN'
    assert elements(one.host, 'names') == 1
    one.sandbox.policy()
    assert not one.reaches(OTHER)
    assert elements(one.host, 'names') == 0


def test_a_policy_that_changes_while_a_name_is_asked_for(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)

    def slow(query, reply):
        one.sandbox.policy('allow other.example')
        return [reply.pack()]
    one.server.odd['web.example'] = slow
    assert one.ask('web.example').rcode == 'NXDOMAIN'
    assert not one.reaches(WEB)


def test_names_go_with_their_sandbox(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.ask('web.example')
    assert elements(one.host, 'names') == 1
    one.sandbox.close()
    wait(lambda: elements(one.host, 'names') == 0)


def test_a_restart_of_cube_resolver(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.ask('web.example')
    one.resolver.kill()
    assert one.reaches(WEB)
    # a query that comes meanwhile waits for the next one
    with one.guest.udp(family=socket.AF_INET) as s:
        s.connect((netlab.GATEWAY4, 53))
        s.send(dns.question('web.example').pack())
        one.resolver.start()
        assert dns.Answer(s.recv(512)).addresses == [WEB]
    assert one.ask('evil.example').rcode == 'NXDOMAIN'


class Told:
    """cube-resolver, and who is cube-netd to it."""

    def __init__(self, directory):
        path = directory / 'resolver'
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(str(path))
        self.socket.listen()
        self.socket.settimeout(netlab.PATIENT)
        self.process = subprocess.Popen([netlab.BUILD / 'net/cube-resolver', f'--socket={path}'], stderr=subprocess.PIPE, text=True)

    def tell(self, magic=RESOLVER_MAGIC, version=RESOLVER_VERSION):
        """A packet on a new connection, which is ended for it."""
        peer, _ = self.socket.accept()
        with peer:
            peer.settimeout(netlab.PATIENT)
            peer.send(struct.pack('<IHHIIiI', magic, version, 1, 0, 0, 0, 0))
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b''

    def ended(self):
        """Its status and what it said."""
        try:
            return self.process.wait(netlab.PATIENT), self.process.stderr.read()
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()
            self.socket.close()


def test_a_cube_netd_of_another_version_ends_it(tmp_path):
    """With a failure, after which systemd starts the one that is installed now."""
    told = Told(tmp_path)
    told.tell(version=RESOLVER_VERSION + 1)
    status, said = told.ended()
    assert status == 1
    assert said == (f'cube-resolver: cube-netd speaks version {RESOLVER_VERSION + 1} of their protocol and this cube-resolver '
                    f'version {RESOLVER_VERSION}: it ends, so that its service starts the one that is installed\n')


def test_what_is_not_understood_is_said_once(tmp_path):
    told = Told(tmp_path)
    for _ in range(3):
        told.tell(magic=1)
    told.process.terminate()
    status, said = told.ended()
    assert status == 0
    assert said == 'cube-resolver: what cube-netd says is not understood: Bad message; it is asked again until it is\n'


def test_cube_netd_away_and_back(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.server.put('new.example', OTHER)
    assert one.ask('web.example').addresses == [WEB]
    one.host.netd.kill()
    # names go on
    assert one.ask('web.example').addresses == [WEB]
    assert one.ask('new.example').rcode == 'NXDOMAIN'
    one.host.start()
    # and on, though the new one knows nothing of the policy but its number
    for _ in range(2):
        assert one.ask('web.example', tcp=True).addresses == [WEB]
        wait(lambda: one.ask('web.example').addresses == [WEB])
    assert one.reaches(WEB)
    one.sandbox.policy('allow new.example')
    assert one.ask('new.example').addresses == [OTHER]
    assert one.ask('web.example').rcode == 'NXDOMAIN'


def test_both_restarted(lab):
    """Nobody knows the names any more: nothing resolves until cubed gives the sandbox its policy again."""
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    assert one.ask('web.example').addresses == [WEB]
    one.resolver.kill()
    one.host.netd.kill()
    one.host.start()
    one.resolver.start()
    assert one.ask('web.example').rcode == 'SERVFAIL'
    one.sandbox.policy('allow web.example')
    assert one.ask('web.example').addresses == [WEB]


def test_nothing_is_kept_of_a_network_that_was_taken_down_once_there_is_another(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.ask('web.example')
    # behind that, what it asked upstream by is closed
    assert one.ask('evil.example').rcode == 'NXDOMAIN'

    def held():
        fds, links = f'/proc/{one.resolver.process.pid}/fd', []
        for fd in os.listdir(fds):
            # it may be closed meanwhile
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f'{fds}/{fd}'))
        return sum(link == 'anon_inode:bpf-map' for link in links), {link for link in links if link.startswith('socket:')}
    maps, sockets = held()
    assert maps == 2 and len(sockets) >= 5
    for s in one.host.sandboxes:
        s.close()
    one.host.netd.stop()
    assert one.host.remove() == (0, '')
    one.host.start()
    wait(lambda: not sockets & held()[1] and len(held()[1]) == len(sockets) and held()[0] == 2)


def test_a_policy_of_thousands_of_names(lab):
    rules = [f'allow n{i}.{"x" * 30}.example' for i in range(4000)]
    one = lab(*rules)
    name = f'n3999.{"x" * 30}.example'
    one.server.put(name, WEB)
    assert one.ask(name).addresses == [WEB]
    assert one.ask(f'n4000.{"x" * 30}.example').rcode == 'NXDOMAIN'


def test_a_host_without_ipv6(make_host):
    one = dns.Lab(make_host(), 'allow web.example')
    try:
        one.server.put('web.example', WEB)
        assert one.ask('web.example').addresses == [WEB]
        assert one.reaches(WEB)
    finally:
        one.close()


def test_it_runs_without_privileges(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.ask('web.example')
    status = dict(line.split(':\t', 1) for line in
                  pathlib.Path(f'/proc/{one.resolver.process.pid}/status').read_text().splitlines() if ':\t' in line)
    assert status['Uid'].split() == [str(netlab.RESOLVER_UID)] * 4
    assert {status[k] for k in ('CapInh', 'CapPrm', 'CapEff')} == {'0000000000000000'}
    assert (status['Seccomp'], status['NoNewPrivs']) == ('2', '1')


@pytest.mark.parametrize('options, text', [
    (('--ttl-min=x',), '--ttl-min=x is not a number'), (('--try-timeout=soon',), '--try-timeout=soon is not a time like 2s'),
    (('--ttl-min=10', '--ttl-max=5'), '--ttl-min=10 is more than --ttl-max=5'), (('--ttl-max=0',), '--ttl-max=0 opens nothing'),
    (('--rate=0',), '--rate=0 lets nobody ask'), (('--timeout=2h',), '--timeout= is an hour at most'),
    (('--what',), "unrecognized option '--what'"), (('more',), '"more" is no option')])
def test_options_that_make_no_sense(host, options, text):
    r = host.netns.run(str(netlab.BUILD / 'net/cube-resolver'), *options, check=False)
    assert r.returncode == 1 and text in r.stderr


def test_only_root_and_its_own_user_may_connect(host):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(str(host.runtime / 'resolver'))
        s.settimeout(netlab.PATIENT)
        assert s.recv(100000, socket.MSG_TRUNC)[:4] == b'RSLV'
    os.chmod(host.runtime / 'resolver', 0o666)
    pid = os.fork()
    if pid == 0:
        refused = False
        try:
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(str(host.runtime / 'resolver'))
                s.settimeout(netlab.PATIENT)
                # the end at once, without an error: nothing else is how cube-netd refuses
                refused = s.recv(10) == b''
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    host.netd.call(netlab.PING)


def test_the_map_of_entries_is_read_only_to_it(host):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(str(host.runtime / 'resolver'))
        s.settimeout(netlab.PATIENT)
        _, fds, _, _ = socket.recv_fds(s, 100000, 8)
    with pytest.raises(PermissionError):
        netlab.update(fds[1], struct.pack('=I', 5), bytes(16))
    for fd in fds:
        os.close(fd)


def test_exchange_of_both_programs_over_a_long_time(lab):
    """Nothing grows: neither descriptors nor elements."""
    one = lab('allow *.web.example', options=('--rate=100000',))
    one.server.put('a.web.example', WEB)

    def fds():
        return len(os.listdir(f'/proc/{one.resolver.process.pid}/fd'))
    one.ask('a.web.example', tcp=True)
    wait(lambda: fds() > 5)
    before = fds()
    n = 5000 if os.environ.get('CUBE_LONG') == '1' else 300
    for i in range(n):
        one.ask('a.web.example', tcp=i % 2 == 0)
    wait(lambda: fds() <= before)
    assert elements(one.host, 'names') == 1
    with one.host.world.listen(WEB, 80) as server, one.guest.connect(WEB, 80) as client:
        assert exchange(client, server) == '198.51.100.2'
