# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process, in a network namespace of its own: what a claim says about the network."""

import errno
import ipaddress
import json
import struct
import subprocess

import pytest

from agentlib import CLAIM, refused

MAC = '02:cb:ff:00:00:02'
GATEWAY_MAC = '02:cb:ff:00:00:01'


def network(address, gateway=None, gateway_mac=GATEWAY_MAC):
    """An AgentNetwork record, of '10.0.0.2/24' and '10.0.0.1'."""
    i = ipaddress.ip_interface(address)

    def packed(a):
        return ipaddress.ip_address(a).packed.ljust(16, b'\0') if a else bytes(16)
    return struct.pack('<II16s16s6s2x', i.version, i.network.prefixlen, packed(i.ip), packed(gateway),
                       bytes.fromhex(gateway_mac.replace(':', '')) if gateway_mac else bytes(6))


V4 = network('169.254.77.2/30', '169.254.77.1')
V6 = network('fdcb:ed00::2/64', 'fdcb:ed00::1')


class Inside:
    """The agent's namespace."""

    def __init__(self, agent):
        self.agent = agent

    def run(self, *argv):
        return subprocess.run(['nsenter', '-n', '-t', str(self.agent.pid), *argv], check=True, capture_output=True,
                              text=True).stdout

    def ip(self, *argv):
        return self.run('ip', *argv)

    def show(self, *argv):
        return json.loads(self.ip('-j', *argv) or '[]')

    def addresses(self, name='eth0'):
        return [f'{a["local"]}/{a["prefixlen"]}' for a in self.show('addr', 'show', 'dev', name)[0]['addr_info']
                if a['scope'] != 'link' or a['local'].startswith('169.254.')]

    def add_card(self, name='eth0', mac=MAC):
        self.ip('link', 'add', name, 'address', mac, 'type', 'veth', 'peer', 'name', f'{name}-peer')
        self.ip('link', 'set', f'{name}-peer', 'up')


@pytest.fixture
def bare(fresh):
    """An agent that has nothing but lo, and is not claimed."""
    a = fresh(claim=False, net=True)
    a.inside = Inside(a)
    return a


@pytest.fixture
def agent(bare):
    bare.inside.add_card()
    return bare


def test_both_families(agent):
    i = agent.inside
    agent.call(CLAIM, NETWORK=[V4, V6], MTU=1420, NAMESERVER=['169.254.77.1', 'fdcb:ed00::1'])
    assert i.addresses() == ['169.254.77.2/30', 'fdcb:ed00::2/64']
    link = i.show('link', 'show', 'dev', 'eth0')[0]
    assert link['mtu'] == 1420 and 'UP' in link['flags']
    assert [(r['gateway'], r['dev']) for r in i.show('route', 'show', 'default')] == [('169.254.77.1', 'eth0')]
    assert [(r['gateway'], r['dev']) for r in i.show('-6', 'route', 'show', 'default')] == [('fdcb:ed00::1', 'eth0')]
    neighbours = {n['dst']: (n['lladdr'], n['state']) for n in i.show('neigh', 'show', 'dev', 'eth0', 'nud', 'permanent')}
    assert neighbours['169.254.77.1'] == neighbours['fdcb:ed00::1'] == (GATEWAY_MAC, ['PERMANENT'])
    assert agent.machine_log() == ['nameserver 169.254.77.1', 'nameserver fdcb:ed00::1']


def test_the_address_can_be_used_at_once(agent):
    agent.call(CLAIM, NETWORK=[V6])
    info = agent.inside.show('-6', 'addr', 'show', 'dev', 'eth0')[0]['addr_info']
    assert [a for a in info if a['local'] == 'fdcb:ed00::2' and not a.get('tentative')]


def test_the_card_is_known_by_its_address(bare):
    bare.inside.add_card('aaa', '02:cb:ff:00:00:99')
    bare.inside.add_card('zzz')
    bare.call(CLAIM, NETWORK=[V4])
    assert bare.inside.addresses('aaa') == []
    assert bare.inside.addresses('zzz') == ['169.254.77.2/30']


def test_a_gateway_outside_of_the_prefix(agent):
    agent.call(CLAIM, NETWORK=[network('10.1.1.2/32', '10.9.9.1', None)])
    assert agent.inside.show('route', 'show', 'default')[0]['gateway'] == '10.9.9.1'
    assert agent.inside.show('neigh', 'show', 'dev', 'eth0', 'nud', 'permanent') == []


def test_no_gateway(agent):
    agent.call(CLAIM, NETWORK=[network('10.1.1.2/24')])
    assert agent.inside.addresses() == ['10.1.1.2/24']
    assert agent.inside.show('route', 'show', 'default') == []


def test_the_same_again(agent):
    for _ in range(3):
        agent.call(CLAIM, NETWORK=[V4, V6], MTU=1500)
    assert agent.inside.addresses() == ['169.254.77.2/30', 'fdcb:ed00::2/64']
    assert len(agent.inside.show('route', 'show', 'default')) == 1
    assert len(agent.inside.show('-6', 'route', 'show', 'default')) == 1


def test_another_network_replaces_it(agent):
    i = agent.inside
    agent.call(CLAIM, NETWORK=[V4, V6], MTU=1500)
    i.ip('addr', 'add', '192.0.2.7/24', 'dev', 'eth0')
    agent.call(CLAIM, NETWORK=[network('10.7.0.2/24', '10.7.0.1')], MTU=1400)
    # What somebody in the guest added is his.
    assert sorted(i.addresses()) == ['10.7.0.2/24', '192.0.2.7/24']
    assert [r['gateway'] for r in i.show('route', 'show', 'default')] == ['10.7.0.1']
    assert i.show('link', 'show', 'dev', 'eth0')[0]['mtu'] == 1400


def test_a_claim_without_a_network_leaves_it(agent):
    agent.call(CLAIM, NETWORK=[V4, V6])
    agent.call(CLAIM, HOSTNAME='x')
    assert agent.inside.addresses() == ['169.254.77.2/30', 'fdcb:ed00::2/64']


def test_repairs_what_the_guest_had_changed(agent):
    i = agent.inside
    agent.call(CLAIM, NETWORK=[V4], MTU=1500)
    i.ip('addr', 'flush', 'dev', 'eth0')
    i.ip('link', 'set', 'eth0', 'down', 'mtu', '900')
    agent.call(CLAIM, NETWORK=[V4], MTU=1500)
    assert i.addresses() == ['169.254.77.2/30']
    assert i.show('route', 'show', 'default')[0]['gateway'] == '169.254.77.1'


def test_without_a_card(bare):
    bare.call(CLAIM, NETWORK=[V4], NAMESERVER=['169.254.77.1'])
    with open(bare.path('stderr')) as f:
        assert 'no network card' in f.read()
    assert bare.code(bare.exec('true')) == 0


def test_without_ipv6(agent):
    agent.inside.run('sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6')
    agent.call(CLAIM, NETWORK=[V6, V4])
    assert agent.inside.addresses() == ['169.254.77.2/30']


def test_what_the_kernel_refuses_fails_the_claim(agent):
    with refused(errno.EINVAL, 'MTU 20'):
        agent.call(CLAIM, NETWORK=[V4], MTU=20)
    with refused(errno.EAGAIN):
        agent.exec('true')
    agent.call(CLAIM, NETWORK=[V4], MTU=1500)
    assert agent.code(agent.exec('true')) == 0


@pytest.mark.parametrize('what', [
    {'NETWORK': [V4[:-1]]},
    {'NETWORK': [V4 + b'\0']},
    {'NETWORK': [b'']},
    {'MTU': b'\0\0'},
])
def test_records_of_a_wrong_size(agent, what):
    with refused(errno.EBADMSG):
        agent.call(CLAIM, **what)
    assert agent.inside.addresses() == []


@pytest.mark.parametrize('what', [
    {'NETWORK': [struct.pack('<I', 5) + V4[4:]]},
    {'NETWORK': [V4[:4] + struct.pack('<I', 33) + V4[8:]]},
    {'NETWORK': [V6[:4] + struct.pack('<I', 129) + V6[8:]]},
    {'NETWORK': [V4[:-1] + b'\1']},
    {'NETWORK': [V4, V4]},
    {'NETWORK': [V4, V6, V4]},
    {'NAMESERVER': ['']},
    {'NAMESERVER': ['example.com']},
    {'NAMESERVER': ['1.2.3.4\nsearch x']},
    {'NAMESERVER': ['1.2.3.4.5']},
    {'NAMESERVER': ['fe80::1%eth0']},
    {'NAMESERVER': ['1.2.3.4'] * 4},
    {'MTU': [1500, 1500]},
])
def test_malformed(agent, what):
    with refused(errno.EINVAL):
        agent.call(CLAIM, **what)
    assert agent.inside.addresses() == []


def test_malformed_for_another_request(agent):
    agent.call(CLAIM)
    with refused(errno.EINVAL, 'does not belong'):
        agent.exec('true', NETWORK=[V4])
