# SPDX-License-Identifier: Apache-2.0
"""Firewalls of others: what stops sandboxes is found, and what is advised then lets them through."""

import pathlib
import resource

import netlab
import pytest
from test_lifecycle import SERVER, wait

CHAIN = 'type filter hook forward priority filter'
FIREWALLS = {
    'as Docker has it': ('ip filter FORWARD', f'table ip filter {{ chain FORWARD {{ {CHAIN}; policy drop; ip daddr 192.0.2.1 accept; }}; }}'),
    'for both families': ('inet fw forward', f'table inet fw {{ chain forward {{ {CHAIN}; policy drop; }}; }}'),
    'with a last rule': ('inet firewalld filter_FORWARD', f'''table inet firewalld {{ chain filter_FORWARD {{ {CHAIN} + 10; policy accept;
        ct state established,related accept; reject with icmpx admin-prohibited; }}; }}'''),
    'with a rule that counts': ('ip fw f', f'table ip fw {{ chain f {{ {CHAIN}; policy accept; counter drop; }}; }}'),
}


def passes(guest, world, timeout=netlab.PATIENT):
    """Whether a connection comes about; what a firewall drops without a word times out."""
    with world.listen(SERVER, 80):
        try:
            guest.connect(SERVER, 80, timeout=timeout).close()
        except OSError:
            return False
        return True


def check(host):
    return host.netd.call(netlab.CHECK)[0]['chains']


@pytest.mark.parametrize('name', FIREWALLS)
def test_a_chain_that_drops_is_found_and_the_advice_helps(make_host, name):
    chain, rules = FIREWALLS[name]
    host = make_host()
    guest = host.sandbox(default='internet').guest()
    assert check(host) == '' and passes(guest, host.world)
    host.netns.run('nft', rules)
    assert check(host) == chain
    assert not passes(guest, host.world, timeout=0.3)
    host.netns.run('nft', f'insert rule {chain} iifname "cube*" accept')
    assert check(host) == chain, 'one direction alone is not enough'
    host.netns.run('nft', f'insert rule {chain} oifname "cube*" accept')
    assert check(host) == '' and passes(guest, host.world)


def is_settled(netd):
    """No news is there of its own table and links, nor a timer that looks at what these led to: that of the sweep remains."""
    netd.call(netlab.PING)
    timers = [text for path in pathlib.Path(f'/proc/{netd.process.pid}/fdinfo').iterdir()
              if 'it_value' in (text := path.read_text(encoding='ascii'))]
    return timers and not any('it_value: (0, ' in text for text in timers)


def test_chains_are_listed_again_only_when_a_ruleset_has_changed(make_host):
    """Anybody may ask as often as he likes. To list them takes a socket, and cube-netd ends when it can't have one."""
    host = make_host()
    chain, rules = FIREWALLS['for both families']
    wait(lambda: check(host) == '' and is_settled(host.netd))
    pid = host.netd.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    for _ in range(3):
        assert check(host) == ''
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    host.netns.run('nft', rules)
    assert check(host) == chain
    host.netns.run('nft', 'delete table inet fw')
    assert check(host) == ''


def test_chains_that_are_not_in_the_way_are_not_told(make_host):
    host = make_host()
    host.netns.run('nft', f'table ip a {{ chain f {{ {CHAIN}; policy accept; ip daddr 192.0.2.1 drop; ip saddr 192.0.2.1 accept; }}; }}')
    host.netns.run('nft', 'table ip b { chain i { type filter hook input priority filter; policy drop; }; chain forward { drop; }; }')
    assert check(host) == ''


def test_the_second_barrier_holds_whatever_others_accept(make_host):
    host = make_host()
    s = host.sandbox('allow 203.0.113.0/24')
    guest = s.guest()
    host.netns.run('nft', f'table ip a {{ chain f {{ {CHAIN} - 200; policy accept; accept; }}; }}')
    assert passes(guest, host.world)
    host.netns.run('tc', 'qdisc', 'del', 'dev', f'cube{s.slot}', 'clsact')
    assert not passes(guest, host.world, timeout=0.3)


def test_more_chains_than_can_be_told(make_host):
    host = make_host()
    host.netns.run('nft', '; '.join(f'table ip {"x" * 60}{i} {{ chain {"y" * 60} {{ {CHAIN}; policy drop; }}; }}' for i in range(30)))
    assert check(host).startswith('ip ' + 'x' * 60)
