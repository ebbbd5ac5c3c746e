# SPDX-License-Identifier: Apache-2.0
"""What lives how long, what happens when somebody takes a part of it away, and what a host can be like."""

import contextlib
import errno
import os
import re
import signal
import socket
import time

import netlab
import pytest
from test_verdict import exchange, reaches

SERVER, SERVER6 = '203.0.113.10', '2001:db8:1::10'


def wait(condition, seconds=netlab.PATIENT):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, 'it did not become true'
        time.sleep(0.01)


def links(host):
    return re.findall(r'^\d+: (cube\d+)@', host.netns.run('ip', '-o', 'link').stdout, re.M)


def elements(host, name):
    text = host.netns.run('bpftool', 'map', 'dump', 'pinned', f'{host.pins()}/{name}').stdout
    return len(re.findall(r'"key":', text))


def tables(host):
    return host.netns.run('nft', 'list', 'tables').stdout


def is_shut(guest, world):
    """Nothing arrives."""
    for address in (SERVER, SERVER6):
        with world.udp(address, 9) as server, guest.udp(family=netlab.family_of(address)) as client:
            server.settimeout(0.2)
            client.connect((address, 9))
            with contextlib.suppress(OSError):
                client.send(b'1')
            with pytest.raises(TimeoutError):
                server.recv(10)
    return True


def test_everything_of_a_sandbox_goes_with_its_fds(host):
    for _ in range(3):
        s = host.sandbox(default='internet')
        s.limits(flows_open=10)
        assert reaches(s.guest(), host.world, SERVER)
    assert len(links(host)) == 3
    assert elements(host, 'flows') == 3
    for s in host.sandboxes:
        s.close()
    wait(lambda: not links(host))
    for name in ('slots', 'sandboxes', 'limits', 'usage', 'flows'):
        wait(lambda: elements(host, name) == 0)


def test_no_leak_after_many(host):
    def count():
        host.netd.call(netlab.PING)
        fds = len(os.listdir(f'/proc/{host.netd.process.pid}/fd'))
        return fds, elements(host, 'slots'), elements(host, 'policies'), len(links(host))
    before = count()
    n = 1000 if os.environ.get('CUBE_LONG') == '1' else 60
    for _ in range(n):
        answer, fds = host.netd.call(netlab.SLOT_NEW)
        assert len(fds) == 2
        for fd in fds:
            os.close(fd)
    wait(lambda: not links(host))
    wait(lambda: count() == before)


def test_an_address_is_not_given_out_again_soon(make_host):
    host = make_host(net4='10.99.0.0/28')
    seen = set()
    for _ in range(13):
        s = host.sandbox(default='internet')
        seen.add(s.address4)
        s.close()
    assert seen == {f'10.99.0.{i}' for i in range(2, 15)}
    with pytest.raises(netlab.NetdError, match='All addresses .* taken'):
        host.netd.call(netlab.SLOT_NEW)


def test_one_that_nobody_had_is_free_at_once(make_host):
    host = make_host(net4='10.99.0.0/28')
    for _ in range(30):
        host.sandbox().close()
        wait(lambda: not links(host))


def test_addresses_go_on_where_the_cube_netd_before_was(host):
    first, second = host.sandbox(default='internet'), host.sandbox(default='internet')
    first.close()
    wait(lambda: len(links(host)) == 1)
    host.netd.kill()
    second.close()
    host.sandboxes.clear()
    wait(lambda: not links(host))
    host.start()
    assert host.sandbox().slot == second.slot + 1


def test_links_that_somebody_takes_away_are_told(host):
    """Who holds a sandbox's tap would not hear of it: that stays, and nothing ever comes there."""
    s = host.sandbox()
    host.netns.ip(f'link del cube{s.slot}')
    assert host.netd.wait_event(netlab.EVENT_LINKS_GONE) == {'slot': s.slot}
    assert elements(host, 'slots') == 0
    # the same one again is there already when the news would be
    host.sandbox(slot=s.slot)
    assert host.netd.no_event(netlab.EVENT_LINKS_GONE)


def test_news_of_links_that_nobody_listened_to_are_told_later(make_host):
    """Then all are to be looked at."""
    host = make_host(start=False)
    host.start(room=0)
    doomed = [host.sandbox() for _ in range(20)]
    for s in doomed:
        host.netns.ip(f'link del cube{s.slot}')
    wait(lambda: elements(host, 'slots') == 0)
    told = []
    while 0 not in told:
        told.append(host.netd.wait_event(netlab.EVENT_LINKS_GONE)['slot'])
    assert 1 < len(told) < 20 and told[:-1] == [s.slot for s in doomed][:len(told) - 1]


def test_a_kept_address_comes_back(host):
    s = host.sandbox()
    host.netd.call(netlab.SLOT_KEEP, slot=s.slot)
    address = s.address4
    s.close()
    # at once: the old links may still be there
    again = host.sandbox(default='internet', slot=s.slot)
    assert again.address4 == address
    # what is told late of the old ones does not touch the new ones
    host.netd.call(netlab.PING)
    assert reaches(again.guest(), host.world, SERVER)
    assert len(links(host)) == 1
    with pytest.raises(netlab.NetdError, match='in use'):
        host.netd.call(netlab.SLOT_NEW, slot=s.slot)
    with pytest.raises(netlab.NetdError, match='no slot 65535'):
        host.netd.call(netlab.SLOT_NEW, slot=65535)


def test_flows_and_policies_go_on_while_cube_netd_is_away(host):
    s = host.sandbox('allow 203.0.113.0/24 tcp:80', 'allow 2001:db8::/32')
    guest = s.guest()
    with host.world.listen(SERVER, 80) as server, guest.connect(SERVER, 80) as client:
        inside, _ = server.accept()
        host.netd.kill()
        client.sendall(b'alone')
        assert inside.recv(10) == b'alone'
        assert reaches(guest, host.world, SERVER6)
        assert not reaches(guest, host.world, '8.8.8.8')
        host.start()
        client.sendall(b'again')
        assert inside.recv(10) == b'again'
        assert s.statistics()['flows_open'] >= 2
        assert reaches(guest, host.world, '203.0.113.20')
        # what was given out is known to the new one, and what it makes does not collide
        assert host.sandbox().address4 != s.address4
        s.policy('allow 8.8.8.8')
        inside.settimeout(netlab.PATIENT)
        with pytest.raises(ConnectionResetError):
            inside.recv(10)
        assert reaches(guest, host.world, '8.8.8.8')


def test_what_went_while_cube_netd_was_away_is_cleaned(host):
    host.sandbox(default='internet')
    host.netd.kill()
    host.sandboxes[0].close()
    wait(lambda: not links(host))
    host.start()
    assert elements(host, 'slots') == elements(host, 'sandboxes') == elements(host, 'usage') == 0


@pytest.mark.parametrize('stopped', [False, True])
def test_a_flushed_ruleset_lets_nothing_pass(host, stopped):
    guest = host.sandbox(default='internet').guest()
    assert reaches(guest, host.world, SERVER) and reaches(guest, host.world, SERVER6)
    if stopped:
        host.netd.process.send_signal(signal.SIGSTOP)
        host.netns.run('nft', 'flush', 'ruleset')
        assert is_shut(guest, host.world)
        host.netd.process.send_signal(signal.SIGCONT)
    else:
        host.netns.run('nft', 'flush', 'ruleset')
    host.netd.wait_event(netlab.EVENT_TABLE)
    assert 'table inet cubed' in tables(host)
    assert reaches(guest, host.world, SERVER) and reaches(guest, host.world, SERVER6)


@pytest.mark.parametrize('command', [
    ('delete', 'table', 'inet', 'cubed'), ('flush', 'chain', 'inet', 'cubed', 'forward'),
    ('flush', 'chain', 'inet', 'cubed', 'postrouting'), ('insert', 'rule', 'inet', 'cubed', 'forward', 'accept')])
def test_any_change_to_our_table_is_undone(host, command):
    before = host.netns.run('nft', 'list', 'table', 'inet', 'cubed').stdout
    host.netns.run('nft', *command)
    host.netd.wait_event(netlab.EVENT_TABLE)
    assert host.netns.run('nft', 'list', 'table', 'inet', 'cubed').stdout == before


def test_tables_of_others_are_nothing_to_us(host):
    host.netns.run('nft', 'add table inet other; add chain inet other c { type filter hook input priority 0; }')
    host.netns.run('nft', 'delete table inet other')
    assert host.netd.no_event(netlab.EVENT_TABLE)


@pytest.mark.parametrize('where', ['host', 'peer', 'tap'])
def test_a_filter_that_is_gone_lets_nothing_pass(host, where):
    s = host.sandbox(default='internet')
    guest = s.guest()
    assert reaches(guest, host.world, SERVER)
    netns, link = {'host': (host.netns, f'cube{s.slot}'), 'peer': (s.netns, 'eth0'), 'tap': (s.netns, 'tap0')}[where]
    netns.run('tc', 'qdisc', 'del', 'dev', link, 'clsact')
    if where == 'peer':
        with pytest.raises(OSError):
            guest.connect(SERVER, 80, timeout=0.3)
    else:
        assert is_shut(guest, host.world)


@pytest.mark.parametrize('name', ['slots', 'sandboxes', 'usage'])
def test_an_element_that_is_gone_lets_nothing_pass(host, name):
    s = host.sandbox(default='internet')
    guest = s.guest()
    assert reaches(guest, host.world, SERVER)
    host.netns.run('bpftool', 'map', 'delete', 'pinned', f'{host.pins()}/{name}', 'key', *(str(b) for b in s.slot.to_bytes(4, 'little')))
    assert is_shut(guest, host.world)


def test_the_network_is_chosen_around_what_the_host_has(make_host):
    host = make_host(start=False)
    host.netns.ip('address add 10.209.5.1/24 dev up0', 'route add 10.231.0.0/17 via 198.51.100.1',
                  'route add 0.0.0.0/1 via 198.51.100.1', 'route add 128.0.0.0/1 via 198.51.100.1')
    host.start()
    assert host.answer['net4'] == '172.29.0.0/16'


@pytest.mark.parametrize('line, text', [
    ('address add 10.98.5.1/24 dev up0', '10.98.0.0/16 overlaps with the address 10.98.5.1/24 of up0'),
    ('route add 10.0.0.0/8 via 198.51.100.1', '10.98.0.0/16 overlaps with the route 10.0.0.0/8 of up0')])
def test_an_overlap_is_an_error_that_names_both(make_host, line, text):
    host = make_host(start=False)
    host.netns.ip(line)
    host.setup['net4'] = '10.98.0.0/16'
    with pytest.raises(netlab.NetdError, match=re.escape(text)):
        host.start()
    assert 'cubed' not in tables(host)


@pytest.mark.parametrize('setup, text', [
    ({'net4': '10.98.0.0/31'}, 'length 8 to 28'), ({'net4': 'fd00::/64'}, 'not an IPv4 network'), ({'net4': 'x'}, 'not an IPv4 network'),
    ({'net6': '10.0.0.0/8'}, 'not an IPv6 network'), ({'mark': 3}, 'one bit'), ({'mark': 0}, 'one bit'),
    ({'resolver4': 'x'}, "resolver's address")])
def test_bad_settings(make_host, setup, text):
    host = make_host(start=False)
    host.setup.update(setup)
    with pytest.raises(netlab.NetdError, match=text):
        host.start()


def test_without_the_bpf_file_system_there_is_no_network(make_host, tmp_path):
    host = make_host(start=False)
    host.netd = netlab.Netd(tmp_path, host.runtime)
    with pytest.raises(netlab.NetdError, match='no BPF file system is mounted'):
        host.netd.call(netlab.SETUP, mark=netlab.MARK)
    assert 'cubed' not in tables(host)


def test_nothing_works_before_setup(make_host):
    host = make_host(start=False)
    host.netd = netlab.Netd(host.directory, host.runtime)
    host.netd.call(netlab.PING)
    with pytest.raises(netlab.NetdError, match='has not been set up'):
        host.netd.call(netlab.SLOT_NEW)
    with pytest.raises(netlab.NetdError, match='does not know'):
        host.netd.call(99)


def test_mtu_and_uplink_are_found_by_the_route(make_host):
    host = make_host(mtu=1400)
    assert (host.answer['uplink'], host.answer['mtu']) == ('up0', 1400)
    s = host.sandbox()
    assert s.mtu == 1400
    assert 'mtu 1400' in host.netns.run('ip', 'link', 'show', f'cube{s.slot}').stdout
    assert 'mtu 1400' in s.netns.run('ip', 'link', 'show', 'tap0').stdout


def test_a_host_without_uplink_gets_one_later(make_host):
    host = make_host(uplink=False)
    assert (host.answer['uplink'], host.answer['mtu']) == ('', 1500)
    s = host.sandbox(default='internet')
    guest = s.guest()
    with pytest.raises(OSError):
        guest.connect(SERVER, 80, timeout=0.3)
    # Once, or again where a second has passed.
    assert set(s.statistics()['denied']) == {'host'}
    host.add_uplink()
    assert host.netd.wait_event(netlab.EVENT_UPLINK)['uplink'] == 'up0'
    assert reaches(guest, host.world, SERVER)
    host.netns.ip('link set up0 down')
    assert host.netd.wait_event(netlab.EVENT_UPLINK)['uplink'] == ''


def test_a_host_that_did_not_forward_does_so_for_sandboxes_only(make_host):
    """Also after cube-netd was started again, and after the uplink is another one."""
    host = make_host()
    inner = netlab.Netns()
    host.netns.ip(f'link add lan0 type veth peer name eth0 netns {inner.path()}', 'address add 192.0.2.1/24 dev lan0', 'link set lan0 up')
    inner.ip('address add 192.0.2.2/24 dev eth0', 'link set eth0 up', 'route add default via 192.0.2.1')
    host.world.ip('route add 192.0.2.0/24 via 198.51.100.2')
    guest = host.sandbox(default='internet').guest()
    for _ in range(2):
        assert host.netns.sysctl('ipv4/conf/up0/forwarding') == '1'
        assert reaches(guest, host.world, SERVER)
        with inner.udp('192.0.2.2', 9) as server, host.world.udp(family=socket.AF_INET) as client:
            server.settimeout(0.3)
            client.sendto(b'let me through', ('192.0.2.2', 9))
            with pytest.raises(TimeoutError):
                server.recv(100)
        host.netd.kill()
        host.start()
    host.netns.ip('link set up0 down')
    host.netd.wait_event(netlab.EVENT_UPLINK)
    assert host.netns.sysctl('ipv4/conf/up0/forwarding') == '0'
    inner.close()


def test_a_host_that_forwards_goes_on_forwarding(make_host):
    host = make_host(start=False)
    host.netns.sysctl('ipv4/ip_forward', 1)
    host.start()
    inner = netlab.Netns()
    host.netns.ip(f'link add lan0 type veth peer name eth0 netns {inner.path()}', 'address add 192.0.2.1/24 dev lan0', 'link set lan0 up')
    inner.ip('address add 192.0.2.2/24 dev eth0', 'link set eth0 up', 'route add default via 192.0.2.1')
    host.world.ip('route add 192.0.2.0/24 via 198.51.100.2')
    assert host.world.ping('192.0.2.2')
    host.netd.stop()
    assert host.remove() == (0, '')
    assert host.netns.sysctl('ipv4/conf/up0/forwarding') == '1'
    assert host.world.ping('192.0.2.2')
    inner.close()


def test_forwarding_that_was_turned_off_is_on_again_after_a_restart(host):
    """While it is off nothing passes; the host's own traffic is not concerned."""
    guest = host.sandbox(default='internet').guest()
    for value in (1, 0):
        host.netns.sysctl('ipv4/ip_forward', value)
    with pytest.raises(OSError), host.world.listen(SERVER, 80):
        guest.connect(SERVER, 80, timeout=0.3)
    host.netd.kill()
    host.start()
    assert reaches(guest, host.world, SERVER)


def test_without_a_network_for_ipv6_there_is_none(make_host):
    host = make_host()
    s = host.sandbox(default='internet')
    guest = s.guest()
    assert s.address6 is None
    with pytest.raises(OSError):
        guest.connect(SERVER6, 80, timeout=0.3)
    assert reaches(guest, host.world, SERVER)
    assert host.netns.sysctl('ipv6/conf/all/forwarding') == '0'


def test_a_host_without_ipv6(make_host):
    host = make_host(start=False)
    host.netns.sysctl('ipv6/conf/all/disable_ipv6', 1)
    host.start()
    assert reaches(host.sandbox(default='internet').guest(), host.world, SERVER)
    host.netd.stop()
    host.setup['net6'] = 'fd3c:cbed::/64'
    with pytest.raises(netlab.NetdError, match='no IPv6 for the sandbox network fd3c:cbed::/64'):
        host.start()


def test_routers_are_still_believed_with_ipv6(make_host):
    host = make_host(start=False, net6='fd3c:cbed::/64')
    host.netns.sysctl('ipv6/conf/up0/accept_ra', 1)
    host.start()
    assert host.netns.sysctl('ipv6/conf/up0/accept_ra') == '2'


def test_the_same_setup_again_has_the_same_answer(host):
    """cubed gave the first one up, on a host that is slow."""
    s = host.sandbox(default='internet')
    again, fds = host.netd.call(netlab.SETUP, **host.setup)
    assert again == host.answer and len(fds) == 1
    os.close(fds[0])
    assert reaches(s.guest(), host.world, SERVER)
    with pytest.raises(netlab.NetdError, match='set up otherwise already'):
        host.netd.call(netlab.SETUP, **host.setup | {'mark': 0x2000})


@pytest.mark.parametrize('family', ['4', '6'])
def test_addresses_of_nobody_are_unreachable_at_once(host, family):
    """Also one whose sandbox has just gone: nothing of the host's hangs."""
    s = host.sandbox(default='internet')
    address, far = (s.address4, '10.209.200.1') if family == '4' else (s.address6, 'fd3c:cbed::8000:1')
    s.close()
    wait(lambda: not links(host))
    for nobody in (address, far):
        with pytest.raises(OSError) as refused:
            host.netns.connect(nobody, 80)
        assert refused.value.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)
    host.netd.kill()
    host.start()
    with pytest.raises(OSError) as refused:
        host.netns.connect(far, 80)
    assert refused.value.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)
    host.netd.stop()
    assert host.remove() == (0, '')
    assert 'unreachable' not in host.netns.run('ip', '-4', 'route').stdout + host.netns.run('ip', '-6', 'route').stdout.replace('unreachable default', '')


@pytest.mark.parametrize('family', ['4', '6'])
def test_connections_of_the_host_end_with_the_links(host, family):
    """Also one whose first segment the links took with them: it would be told of no route only after two minutes."""
    s = host.sandbox(default='internet')
    address = s.address4 if family == '4' else s.address6
    with host.netns.socket(netlab.family_of(address)) as client:
        client.setblocking(False)
        assert client.connect_ex((address, 80)) == errno.EINPROGRESS
        s.close()
        wait(lambda: client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNABORTED)
