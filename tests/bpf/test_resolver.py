# SPDX-License-Identifier: Apache-2.0
"""What guests can resolve, and what an answer opens: the real cube-resolver, and a DNS server in the world."""

import struct

import dns
import netlab
import pytest
from test_lifecycle import elements, wait
from test_verdict import REFUSED, asks, reaches

WEB, WEB6, OTHER, OTHER6 = '203.0.113.10', '2001:db8:1::10', '203.0.113.20', '2001:db8:1::20'
PRIVATE, PRIVATE6, METADATA = '10.66.0.5', 'fd00:66::5', '169.254.169.254'


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
        wait(lambda: not one.reaches(WEB, 81))
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
