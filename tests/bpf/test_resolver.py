# SPDX-License-Identifier: Apache-2.0
"""What guests can resolve, and what an answer opens: the real cube-resolver, and a DNS server in the world."""

import contextlib
import os
import pathlib
import socket
import struct
import time

import dns
import netlab
import pytest
from test_lifecycle import elements, wait
from test_verdict import REFUSED, asks, exchange, reaches

WEB, WEB6, OTHER, OTHER6 = '203.0.113.10', '2001:db8:1::10', '203.0.113.20', '2001:db8:1::20'
PRIVATE, PRIVATE6, METADATA = '10.66.0.5', 'fd00:66::5', '169.254.169.254'


class Lab:
    """One sandbox, its resolver and the world's."""

    def __init__(self, host, *rules, default='deny', options=()):
        self.host = host
        self.server = dns.Server(host.world)
        self.resolver = dns.Resolver(host, *options)
        self.sandbox = host.sandbox(*rules, default=default)
        self.guest = self.sandbox.guest()
        self.stub = dns.Stub(self.guest)
        self.ask = self.stub.ask

    def reaches(self, address, port=80):
        return reaches(self.guest, self.host.world, address, port)

    def denied(self):
        """Names that cubed has been told of."""
        self.host.netd.call(netlab.PING)
        return [(e['reason'], e['name'], e['address'], e['count']) for kind, e in self.host.netd.events
                if kind == netlab.EVENT_NAME_DENIED and e['slot'] == self.sandbox.slot]

    def close(self):
        if self.resolver.process.poll() is None:
            self.resolver.stop()
        self.server.close()


@pytest.fixture
def lab(host):
    with contextlib.ExitStack() as stack:
        def make(*rules, **more):
            one = Lab(host, *rules, **more)
            stack.callback(one.close)
            return one
        yield make


# whether it resolves

@pytest.mark.parametrize('offload', [True, False])
@pytest.mark.parametrize('gateway', [netlab.GATEWAY4, netlab.GATEWAY6])
def test_nothing_resolves_when_everything_is_denied(host, gateway, offload):
    """And programs are told at once."""
    server, resolver = dns.Server(host.world), dns.Resolver(host)
    try:
        server.put('web.example', WEB)
        guest = host.sandbox().guest(offload)
        stub = dns.Stub(guest, gateway)
        for tcp in (False, True):
            with pytest.raises(OSError) as e:
                stub.ask('web.example', tcp=tcp)
            assert e.value.errno in REFUSED
        assert server.asked == []
        assert guest.stat('IcmpInCsumErrors') + guest.stat('Icmp6InCsumErrors') + guest.stat('TcpInCsumErrors') == 0
    finally:
        resolver.stop()
        server.close()


def test_all_names_resolve_when_the_internet_is_open(lab):
    one = lab(default='internet')
    one.server.put('web.example', WEB)
    one.server.put('mail.example', 'hello', kind='TXT')
    one.server.put('private.example', PRIVATE)
    assert one.ask('web.example').addresses == [WEB]
    assert one.ask('mail.example', 'TXT').texts == ['"hello"']
    assert one.ask('nothing.example').rcode == 'NXDOMAIN'
    # told, but of no use: a name opens no special range
    assert one.ask('private.example').addresses == [PRIVATE]
    assert one.reaches(WEB)
    assert not one.reaches(PRIVATE)


def test_only_names_of_the_policy_resolve(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.server.put('other.example', OTHER)
    one.server.put('sub.web.example', OTHER)
    assert one.ask('web.example').addresses == [WEB]
    for name in ('other.example', 'sub.web.example', 'example', 'xweb.example', 'web.example.other', '.'):
        assert one.ask(name).rcode == 'NXDOMAIN'
    assert [name for name, _ in one.server.asked] == ['web.example']


def test_a_denied_name_never_leaves_the_host(lab):
    one = lab('allow web.example')
    for name in ('c2VjcmV0.evil.example', 'c2VjcmV0.web.example', 'a' * 63 + '.' + 'b' * 63 + '.evil.example'):
        assert one.ask(name).rcode == 'NXDOMAIN'
        assert one.ask(name, 'TXT', tcp=True).rcode == 'NXDOMAIN'
    assert one.server.asked == []


def test_a_label_with_a_dot_in_it_is_no_subdomain(lab):
    one = lab('allow *.web.example')
    # the label "x.web.example", below "evil"; and one with a space
    for labels in ([b'x.web.example', b'evil'], [b'a.web', b'example'], [b'a b', b'web', b'example'], [b'\0', b'web', b'example']):
        name = b''.join(bytes([len(x)]) + x for x in labels) + b'\0'
        reply = one.stub.exchange(struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + name + struct.pack('!HH', 1, 1))
        assert reply[:2] == b'\0\7' and reply[3] & 15 == 3
    assert one.server.asked == []


def test_case_and_trailing_dot_do_not_matter_and_tell_nothing(lab):
    one = lab('allow WEB.example.')
    one.server.put('web.example', WEB)
    assert one.ask('wEb.ExAmPlE').addresses == [WEB]
    assert one.server.asked == [('web.example', 'A')]


def test_a_wildcard_is_what_lies_below(lab):
    one = lab('allow *.web.example')
    one.server.put('a.web.example', WEB)
    one.server.put('a.b.web.example', WEB6, kind='AAAA')
    one.server.put('web.example', OTHER)
    assert one.ask('a.web.example').addresses == [WEB]
    assert one.ask('a.b.web.example', 'AAAA').addresses == [WEB6]
    assert one.ask('web.example').rcode == 'NXDOMAIN'
    assert one.reaches(WEB) and one.reaches(WEB6)
    assert not one.reaches(OTHER)


def test_search_domains_are_other_names(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    assert one.ask('web.example.corp.example').rcode == 'NXDOMAIN'
    assert one.ask('web.example').addresses == [WEB]


@pytest.mark.parametrize('kind,rcode', [('ANY', 'REFUSED'), ('AXFR', 'REFUSED'), ('IXFR', 'REFUSED')])
@pytest.mark.parametrize('default', ['internet', 'deny'])
def test_transfers_and_any_are_refused(lab, default, kind, rcode):
    one = lab('allow web.example', default=default)
    one.server.put('web.example', WEB)
    assert one.ask('web.example', kind).rcode == rcode
    assert one.server.asked == []


def test_other_types_of_an_allowed_name(lab):
    one = lab('allow web.example')
    one.server.put('web.example', '10 mail.example', kind='MX')
    one.server.records['web.example'] = [('MX', 'mail.example', 60), ('TXT', 'hello', 60)]
    assert one.ask('web.example', 'TXT').texts == ['"hello"']
    assert [t.split()[1] for t in one.ask('web.example', 'MX').texts] == ['mail.example.']
    # it could carry addresses: programs go on with A and AAAA
    answer = one.ask('web.example', 'HTTPS')
    assert (answer.rcode, answer.texts) == ('NOERROR', [])
    assert ('web.example', 'HTTPS') not in one.server.asked


# what an answer opens

def test_an_answer_opens_its_addresses_and_no_others(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    one.server.put('web.example', WEB6, kind='AAAA')
    assert not one.reaches(WEB) and not one.reaches(WEB6)
    assert one.ask('web.example').addresses == [WEB]
    assert one.reaches(WEB) and not one.reaches(WEB6)
    assert one.ask('web.example', 'AAAA').addresses == [WEB6]
    assert one.reaches(WEB6)
    assert not one.reaches(OTHER) and not one.reaches(OTHER6)


def test_an_answer_opens_for_its_own_sandbox_only(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    other = one.host.sandbox('allow web.example')
    guest = other.guest()
    assert one.ask('web.example').addresses == [WEB]
    assert one.reaches(WEB)
    assert not reaches(guest, one.host.world, WEB)
    assert dns.Stub(guest).ask('web.example').addresses == [WEB]
    assert reaches(guest, one.host.world, WEB)


def test_ports_of_the_rule_hold(lab):
    one = lab('allow web.example tcp:443', 'allow *.example tcp:22', 'allow shared.test udp:53')
    one.server.put('web.example', WEB)
    one.server.put('other.example', OTHER)
    one.server.put('shared.test', WEB)
    one.ask('web.example')
    assert one.reaches(WEB, 443) and one.reaches(WEB, 22) and not one.reaches(WEB, 80)
    one.ask('other.example')
    assert one.reaches(OTHER, 22) and not one.reaches(OTHER, 443)
    # two names, one address: neither takes from the other
    assert not asks(one.guest, one.host.world, WEB)
    one.ask('shared.test')
    assert asks(one.guest, one.host.world, WEB)
    assert one.reaches(WEB, 443) and one.reaches(WEB, 22)


def test_a_chain_of_aliases_belongs_to_the_name_that_was_asked_for(lab):
    one = lab('allow web.example')
    one.server.put('web.example', 'cdn.test', kind='CNAME', ttl=20)
    one.server.put('cdn.test', 'edge.test', kind='CNAME', ttl=600)
    one.server.put('edge.test', WEB, OTHER)
    answer = one.ask('web.example')
    assert answer.addresses == [WEB, OTHER]
    assert answer.texts[:2] == ['cdn.test.', 'edge.test.']
    assert one.reaches(WEB) and one.reaches(OTHER)
    assert one.ask('cdn.test').rcode == 'NXDOMAIN'


def test_records_outside_of_the_chain_are_dropped(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)

    def with_more(query, reply):
        reply.add_answer(dns.RR('evil.example', dns.QTYPE.A, ttl=60, rdata=dns.A(OTHER)))
        reply.add_ar(dns.RR('web.example', dns.QTYPE.A, ttl=60, rdata=dns.A(OTHER)))
        return [reply.pack()]
    one.server.odd['web.example'] = with_more
    answer = one.ask('web.example')
    assert answer.addresses == [WEB]
    assert len(answer.record.ar) == 0
    assert not one.reaches(OTHER)


def test_a_ring_of_aliases_ends(lab):
    one = lab('allow web.example')
    one.server.put('web.example', 'a.test', kind='CNAME')
    one.server.put('a.test', 'web.example', kind='CNAME')
    assert one.ask('web.example', tcp=True).addresses == []


def test_time_to_live_zero_is_open_for_a_while(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB, ttl=0)
    answer = one.ask('web.example')
    assert answer.ttls == [0]
    assert one.reaches(WEB)


def test_an_answer_closes_again_but_not_for_what_it_opened(lab):
    one = lab('allow web.example', options=('--ttl-min=0', '--ttl-max=1'))
    one.server.put('web.example', WEB, ttl=5000)
    answer = one.ask('web.example')
    # the guest is not to keep it longer than it is of use
    assert answer.ttls == [1]
    with one.host.world.listen(WEB, 80) as server, one.guest.connect(WEB, 80) as client:
        inside, _ = server.accept()
        wait(lambda: not one.reaches(WEB, 81), 15)
        client.sendall(b'still')
        assert inside.recv(10) == b'still'
        # nor does a new generation of the same policy end it
        one.sandbox.policy('allow web.example')
        client.sendall(b'still')
        assert inside.recv(10) == b'still'
    assert one.ask('web.example').addresses == [WEB]
    assert one.reaches(WEB)


def test_a_changing_answer(lab):
    one = lab('allow web.example')
    one.server.put('web.example', WEB)
    assert one.ask('web.example').addresses == [WEB]
    one.server.records['web.example'] = [('A', OTHER, 300)]
    assert one.ask('web.example').addresses == [OTHER]
    assert one.reaches(WEB) and one.reaches(OTHER)


def test_many_answers_are_bounded(lab):
    one = lab('allow web.example')
    many = [f'203.0.113.{i}' for i in range(1, 201)]
    one.server.put('web.example', *many)
    answer = one.ask('web.example')
    assert answer.truncated and answer.addresses == [] and answer.size <= 512
    answer = one.ask('web.example', tcp=True)
    assert answer.addresses == many[:64]
    assert one.reaches(WEB)
    assert one.ask('web.example', udp_size=4096).size <= 1232
    assert elements(one.host, 'names') == 64


def test_a_sandbox_has_only_its_share_of_the_map(lab):
    one = lab('allow *.web.example', options=('--rate=100000',))
    for i in range(20):
        one.server.put(f'n{i}.web.example', *(f'203.0.{i}.{k}' for k in range(1, 65)))
        one.ask(f'n{i}.web.example', tcp=True)
    assert elements(one.host, 'names') == 1024
    # another cube-resolver counts what is there
    one.resolver.kill()
    one.resolver.start()
    one.server.put('last.web.example', *(f'203.1.1.{k}' for k in range(1, 65)))
    one.ask('last.web.example', tcp=True)
    assert elements(one.host, 'names') == 1024


# special ranges

@pytest.mark.parametrize('address', [PRIVATE, METADATA, '127.0.0.1', '100.64.1.1'])
def test_an_answer_in_a_special_range_opens_nothing(lab, address):
    one = lab('allow web.example')
    one.server.put('web.example', address)
    one.server.put('mixed.example', address, WEB)
    answer = one.ask('web.example')
    assert (answer.rcode, answer.addresses) == ('NOERROR', [])
    assert elements(one.host, 'names') == 0
    assert one.denied() == [('answer', 'web.example', address, 1)]
    one.sandbox.policy('allow mixed.example')
    assert one.ask('mixed.example').addresses == [WEB]


@pytest.mark.parametrize('address', [PRIVATE6, '::1', '::ffff:a42:5', '64:ff9b::a42:5', '2002:a42:5::1'])
def test_nor_one_for_ipv6(lab, address):
    one = lab('allow web.example')
    one.server.put('web.example', address, kind='AAAA')
    assert one.ask('web.example', 'AAAA').addresses == []
    assert elements(one.host, 'names') == 0


def test_nor_one_of_the_host_or_another_sandbox(lab):
    one = lab('allow *.example')
    other = one.host.sandbox(default='internet')
    one.server.put('sandbox.example', other.address4)
    one.server.put('host.example', '198.51.100.2')
    assert one.ask('sandbox.example').addresses == []
    one.ask('host.example')
    assert not reaches(one.guest, one.host.netns, '198.51.100.2')


def test_a_rule_with_a_range_opens_what_lies_in_it(lab):
    one = lab('allow db.example in 10.66.0.0/16 tcp:5432')
    one.server.put('db.example', PRIVATE, METADATA, WEB, '10.67.0.5')
    one.server.put('web.example', PRIVATE)
    assert one.ask('web.example').rcode == 'NXDOMAIN'
    assert one.ask('db.example').addresses == [PRIVATE]
    assert one.reaches(PRIVATE, 5432)
    assert not one.reaches(PRIVATE, 80)
    assert not one.reaches(METADATA, 5432) and not one.reaches(WEB, 5432)


def test_a_range_of_ipv6(lab):
    one = lab('allow db.example in fd00:66::/64')
    one.server.put('db.example', PRIVATE6, kind='AAAA')
    assert one.ask('db.example', 'AAAA').addresses == [PRIVATE6]
    assert one.reaches(PRIVATE6)


def test_under_the_internet_policy_a_name_opens_a_range_too(lab):
    one = lab('allow db.example in 10.66.0.0/16', default='internet')
    one.server.put('db.example', PRIVATE)
    one.server.put('other.example', WEB)
    assert not one.reaches(PRIVATE)
    assert one.ask('db.example').addresses == [PRIVATE]
    assert one.ask('other.example').addresses == [WEB]
    assert one.reaches(PRIVATE)


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
        time.sleep(0.1)
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
    one = lab('allow *.web.example', options=('--try-timeout=300ms',))
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
        for _ in range(500):
            s.send(dns.question('evil.example').pack())
        s.settimeout(0.5)
        n = 0
        with contextlib.suppress(TimeoutError):
            while True:
                s.recv(512)
                n += 1
    assert 20 <= n < 100
    assert dns.Stub(other).ask('web.example').addresses == [WEB]


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


# audit

def test_a_denied_name_is_told_once(lab):
    one = lab('allow web.example')
    for _ in range(5):
        one.ask('evil.example')
        one.ask('Evil.Example', 'AAAA')
    assert one.denied() == [('name', 'evil.example', '', 1)]


def test_and_once_an_interval_with_its_count(make_host):
    host = make_host(audit_sec=1)
    one = Lab(host, 'allow web.example')
    try:
        for _ in range(4):
            one.ask('evil.example')
        wait(lambda: time.sleep(0.3) or (one.ask('evil.example') and len(one.denied()) > 1))
        first, second = one.denied()[:2]
        assert first[3] == 1 and second[:3] == first[:3] and second[3] >= 4
    finally:
        one.close()


def test_a_flood_of_names_is_told_as_a_number(lab):
    one = lab('allow web.example')
    for i in range(100):
        one.ask(f'n{i}.evil.example')
    told = one.denied()
    assert [t[1] for t in told] == [f'n{i}.evil.example' for i in range(16)]
    wait(lambda: len(one.denied()) > 16, 15)
    assert one.denied()[16:] == [('name', '', '', 84)]


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
            end.settimeout(1)
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


def test_a_policy_of_thousands_of_names(lab):
    rules = [f'allow n{i}.{"x" * 30}.example' for i in range(4000)]
    one = lab(*rules)
    name = f'n3999.{"x" * 30}.example'
    one.server.put(name, WEB)
    assert one.ask(name).addresses == [WEB]
    assert one.ask(f'n4000.{"x" * 30}.example').rcode == 'NXDOMAIN'


def test_a_host_without_ipv6(make_host):
    one = Lab(make_host(), 'allow web.example')
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


@pytest.mark.parametrize('options,text', [
    (('--ttl-min=x',), 'can\'t be read'), (('--ttl-min=10', '--ttl-max=5'), 'make no sense'), (('--rate=0',), 'make no sense'),
    (('--what',), 'unrecognized'), (('more',), 'make no sense')])
def test_options_that_make_no_sense(host, options, text):
    r = host.netns.run(str(netlab.BUILD / 'net/cube-resolver'), *options, check=False)
    assert r.returncode == 1 and text in r.stderr


def test_only_root_and_its_own_user_may_connect(host):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(str(host.runtime / 'resolver'))
        s.settimeout(5)
        assert s.recv(100000, socket.MSG_TRUNC)[:4] == b'RSLV'
    os.chmod(host.runtime / 'resolver', 0o666)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(str(host.runtime / 'resolver'))
            s.settimeout(5)
            os._exit(0 if s.recv(10) == b'' else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    host.netd.call(netlab.PING)


def test_the_map_of_entries_is_read_only_to_it(host):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(str(host.runtime / 'resolver'))
        s.settimeout(5)
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
