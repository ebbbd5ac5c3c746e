# SPDX-License-Identifier: Apache-2.0
"""Limits, counters, and what is told of what was denied."""

import contextlib
import time

import netlab
import pytest
from packets import ACK, SYN, TCP, UDP, Wire, ethernet, ip, tcp, udp

SERVER = '203.0.113.10'


@pytest.fixture
def sandbox(host):
    return host.sandbox(default='internet')


def datagrams(wire, n, size=100, port=9, sport=4000):
    for _ in range(n):
        wire.send(ethernet(ip(netlab.INNER4, SERVER, UDP, udp(netlab.INNER4, SERVER, sport, port, bytes(size)))))


def test_counters_count(host, sandbox):
    wire = Wire(sandbox.tap)
    with host.world.udp(SERVER, 9) as server:
        datagrams(wire, 10)
        for _ in range(10):
            data, peer = server.recvfrom(1000)
        server.sendto(data, peer)
        assert wire.receive(want=lambda f: f[23] == UDP)
    s = sandbox.statistics()
    assert (s['out'], s['out_bytes'], s['in'], s['in_bytes']) == (10, 1420, 1, 142)
    assert s['flows_open'] == 1 and s['denied'] == {}


def test_packets_a_second_out(host, sandbox):
    """What a bucket holds passes, which is never less than a small burst."""
    wire, begin = Wire(sandbox.tap), time.monotonic()
    sandbox.limits(packets_out=1)
    datagrams(wire, 200)
    s, took = sandbox.statistics(), time.monotonic() - begin
    assert 64 <= s['out'] <= 65 + took
    assert s['denied'] == {'rate': 200 - s['out']}


def test_a_large_packet_counts_as_what_it_is_cut_into(host, sandbox):
    segment = tcp(netlab.INNER4, SERVER, 4000, 80, ACK, payload=bytes(10000))
    Wire(sandbox.tap).send(ethernet(ip(netlab.INNER4, SERVER, TCP, segment)), 34, 16, gso=1, gso_size=100, header=54)
    assert 100 <= sandbox.statistics()['out'] <= 101


def test_bytes_a_second_out(host, sandbox):
    wire, begin = Wire(sandbox.tap), time.monotonic()
    sandbox.limits(bytes_out=1000)
    datagrams(wire, 400, size=1400)
    s, took = sandbox.statistics(), time.monotonic() - begin
    assert 256 * 1024 - 1442 <= s['out_bytes'] <= 256 * 1024 + 1442 + 1000 * took
    assert set(s['denied']) == {'rate'}


def test_packets_a_second_in(host, sandbox):
    wire = Wire(sandbox.tap)
    with host.world.udp(SERVER, 9) as server:
        datagrams(wire, 1)
        data, peer = server.recvfrom(1000)
        begin = time.monotonic()
        sandbox.limits(packets_in=1)
        for _ in range(200):
            server.sendto(data, peer)
    s, took = sandbox.statistics(), time.monotonic() - begin
    assert 64 <= s['in'] <= 65 + took and s['denied'] == {'rate': 200 - s['in']}


def test_a_limit_is_changed_live(host, sandbox):
    wire = Wire(sandbox.tap)
    sandbox.limits(packets_out=1)
    datagrams(wire, 200)
    held = sandbox.statistics()['out']
    sandbox.limits()
    datagrams(wire, 200)
    assert sandbox.statistics()['out'] == held + 200


def connects(wire, n, first=1):
    for i in range(n):
        wire.send(ethernet(ip(netlab.INNER4, SERVER, TCP, tcp(netlab.INNER4, SERVER, first + i, 80, SYN))))


def test_open_flows_have_a_limit_that_a_neighbour_does_not_feel(host, sandbox):
    sandbox.limits(flows_open=50)
    connects(Wire(sandbox.tap), 80)
    s = sandbox.statistics()
    assert s['flows_open'] == 50 and s['denied'] == {'flows': 30}
    other = host.sandbox(default='internet')
    connects(Wire(other.tap), 80)
    assert other.statistics()['flows_open'] == 80


def test_open_flows_have_a_limit_by_default(host, sandbox):
    connects(Wire(sandbox.tap), 1100)
    assert sandbox.statistics()['flows_open'] == 1024


def test_new_flows_a_second_have_a_limit(host, sandbox):
    sandbox.limits(flows_new=20)
    begin = time.monotonic()
    connects(Wire(sandbox.tap), 80)
    s, took = sandbox.statistics(), time.monotonic() - begin
    assert 20 <= s['flows_open'] <= 21 + 20 * took and set(s['denied']) == {'flows'}


def test_limits_are_asked_before_the_hosts_conntrack(host, sandbox):
    sandbox.limits(flows_open=5)
    connects(Wire(sandbox.tap), 50)
    count = host.netns.run('cat', '/proc/sys/net/netfilter/nf_conntrack_count').stdout
    assert int(count) <= 6


def test_a_denied_destination_is_told_once(host):
    s = host.sandbox()
    wire = Wire(s.tap)
    datagrams(wire, 20)
    event = host.netd.wait_event(netlab.EVENT_DENIED)
    assert event == {'slot': s.slot, 'reason': 'policy', 'protocol': UDP, 'address': SERVER, 'port': 9, 'count': 1, 'direction': 0}
    assert host.netd.no_event(netlab.EVENT_DENIED)
    datagrams(wire, 1, port=10)
    assert host.netd.wait_event(netlab.EVENT_DENIED)['port'] == 10
    assert s.statistics()['denied'] == {'policy': 21}


def test_what_was_not_told_is_counted_with_the_next_event(make_host):
    host = make_host(audit_sec=1)
    s = host.sandbox()
    wire = Wire(s.tap)
    datagrams(wire, 5)
    told, sent, end = [host.netd.wait_event(netlab.EVENT_DENIED)['count']], 5, time.monotonic() + 60
    assert told == [1]
    # until a packet of a later interval is told that had others before it
    while told[-1] == 1:
        assert time.monotonic() < end
        datagrams(wire, 1)
        sent += 1
        with contextlib.suppress(TimeoutError):
            told.append(host.netd.wait_event(netlab.EVENT_DENIED, 0.05)['count'])
    # all but those of the interval that is not over
    with contextlib.suppress(TimeoutError):
        while True:
            told.append(host.netd.wait_event(netlab.EVENT_DENIED, 0.05)['count'])
    assert sum(told) <= sent


def test_a_guest_can_not_flood_the_journal(host):
    s = host.sandbox()
    wire = Wire(s.tap)
    begin = time.monotonic()
    for port in range(1, 501):
        datagrams(wire, 1, port=port)
    s_ = s.statistics()
    host.netd.call(netlab.PING)
    # Ten at once, and ten a second.
    assert 10 <= len(host.netd.events) <= 11 + 10 * (time.monotonic() - begin)
    assert s_['audit_lost'] + len(host.netd.events) == 500


@pytest.mark.parametrize('address, reason', [('10.66.0.5', 'special-range'), ('198.51.100.2', 'host'), ('169.254.169.254', 'special-range')])
def test_reasons(host, sandbox, address, reason):
    wire = Wire(sandbox.tap)
    wire.send(ethernet(ip(netlab.INNER4, address, UDP, udp(netlab.INNER4, address, 9, 9))))
    event = host.netd.wait_event(netlab.EVENT_DENIED)
    assert (event['reason'], event['address']) == (reason, address)
