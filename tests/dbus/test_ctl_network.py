# SPDX-License-Identifier: Apache-2.0
"""cubectl and the network: policies and limits at create and later, and what is shown of them."""

import json
import re
import subprocess

import pytest

from bushost import CUBECTL, NOBODY


def ok(host, *argv, **kwargs):
    result = host.ctl(*argv, **kwargs)
    assert result.returncode == 0, result.stderr
    return result.stdout


def shown(host, i):
    return json.loads(ok(host, 'policy', 'show', i, '-j'))


def policy(default='deny', allow=(), deny=(), inbound=()):
    return {'default': default, 'allow': list(allow), 'deny': list(deny), 'inbound': list(inbound)}


def test_a_policy_from_create_to_clear(host):
    i = host.create('--allow', 'example.com tcp:443', '--allow', '*.example.com')
    assert shown(host, i) == policy(allow=['example.com tcp:443', '*.example.com'])
    # a rule with blanks is one argument
    ok(host, 'policy', 'allow', i, '8.8.8.8 udp:53', '9.9.9.9')
    ok(host, 'policy', 'deny', i, '1.1.1.1')
    ok(host, 'policy', 'inbound', i, '198.51.100.0/24 tcp:80')
    assert shown(host, i) == policy(allow=['example.com tcp:443', '*.example.com', '8.8.8.8 udp:53', '9.9.9.9'],
                                    deny=['1.1.1.1'], inbound=['198.51.100.0/24 tcp:80'])
    ok(host, 'policy', 'remove', i, '8.8.8.8 udp:53', '1.1.1.1', '198.51.100.0/24 tcp:80')
    assert shown(host, i) == policy(allow=['example.com tcp:443', '*.example.com', '9.9.9.9'])
    ok(host, 'policy', 'set', i, '--default', 'internet', '--deny', '1.1.1.1')
    assert shown(host, i) == policy('internet', deny=['1.1.1.1'])
    ok(host, 'policy', 'clear', i)
    assert shown(host, i) == policy()


def test_policy_show(host):
    i = host.create('--network', 'internet', '--allow', '8.8.8.8 udp:53', '--inbound', 'all')
    lines = ok(host, 'policy', 'show', i).splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        ['LIST', 'RULE'], ['default', 'internet'], ['allow', '8.8.8.8 udp:53'], ['inbound', 'all']]
    assert not ok(host, 'policy', 'show', i, '--no-legend').startswith('LIST')


def test_two_at_once(host, guest):
    rules = [f'8.8.8.{n}' for n in range(12)]
    calls = [subprocess.Popen([CUBECTL, 'policy', 'allow', guest, rule], env=host.env) for rule in rules]
    assert [c.wait(60) for c in calls] == [0] * len(rules)
    assert sorted(shown(host, guest)['allow']) == sorted(rules)


def test_a_rule_that_stands_in_two_lists_is_removed_from_both(host):
    i = host.create('--allow', '9.9.9.9', '--deny', '9.9.9.9', '--deny', '1.1.1.1')
    ok(host, 'policy', 'remove', i, '9.9.9.9')
    assert shown(host, i) == policy(deny=['1.1.1.1'])


def test_run_and_fork(host):
    run = ok(host, 'run', '--allow', '9.9.9.9', '--bandwidth-out', '10M', '--', 'echo', 'hello')
    assert run == 'hello\n'
    i = host.create('--allow', '9.9.9.9')
    copy, = ok(host, 'fork', i).split()
    own, = ok(host, 'fork', i, '--network', 'internet').split()
    assert shown(host, copy) == policy(allow=['9.9.9.9']) and shown(host, own) == policy('internet')


def test_limits(host):
    i = host.create('--bandwidth-out', '10M', '--bandwidth-in', '500K', '--packets-out', '1000', '--packets-in', '2000',
                    '--new-connections', '20', '--open-connections', '30')
    names = ['BandwidthOut', 'BandwidthIn', 'PacketsOut', 'PacketsIn', 'NewConnections', 'OpenConnections']
    p = json.loads(ok(host, 'show', i, '-j'))[0]
    assert [p[f'Network{n}Max'] for n in names] == [10 << 20, 500 << 10, 1000, 2000, 20, 30]
    ok(host, 'limit', i, '--bandwidth-out', 'infinity', '--open-connections', '5', '--memory', '1G', '--cpu-quota', '50%')
    assert ok(host, 'show', i, '-p', 'NetworkBandwidthOutMax,NetworkOpenConnectionsMax,Memory,CPUQuotaPerSecUSec',
              '--value').split() == ['1073741824', '500ms', 'infinity', '5']


def test_show(host):
    i = host.create('--allow', '8.8.8.8 udp:53', '--allow', 'example.com')
    lines = ok(host, 'show', i).splitlines()
    assert 'NetworkPolicy=default=deny; allow=8.8.8.8 udp:53; allow=example.com' in lines
    address = next(line for line in lines if line.startswith('NetworkAddress='))
    assert re.fullmatch(r'NetworkAddress=10\.99\.0\.\d+', address)
    for line in ('NetworkPacketsOut=3', 'NetworkDeniedPacketsOut=2', 'NetworkDeniedPolicy=2', 'NetworkOpenConnections=1'):
        assert line in lines
    p = json.loads(ok(host, 'show', i, '-j'))[0]
    assert p['NetworkPolicy'] == policy(allow=['8.8.8.8 udp:53', 'example.com']) and p['NetworkBytesOut'] == 300
    assert ok(host, 'show', i, '-p', 'NetworkBytesOut', '--value') == '300\n'
    assert 'NetworkPolicy=default=deny; allow=example.com tcp:443' in ok(host, 'template', 'show', 'online').splitlines()
    # what others may see of it are its properties; to look is nothing that is denied
    before = host.log().count('audit denied')
    lines = ok(host, 'show', i, uid=NOBODY).splitlines()
    assert address in lines and 'NetworkPacketsOut=3' not in lines
    assert host.log().count('audit denied') == before


def test_status(host):
    i = host.create('--network', 'internet', '--deny', '1.1.1.1', '--deny', '9.9.9.9', '--inbound', 'all')
    lines = [line.strip() for line in ok(host, 'status', i).splitlines()]
    assert 'Network: internet, 2 deny, 1 inbound' in lines
    assert any(re.fullmatch(r'Address: 10\.99\.0\.\d+ fd99::[0-9a-f]+', line) for line in lines)
    assert 'Sent: 3 packets, 300B; denied 2 packets, 120B' in lines and 'Connections: 1 open' in lines


def test_status_of_the_service(host, guest):
    lines = [line.strip() for line in ok(host, 'status').splitlines()]
    assert 'Sandboxes: 1' in lines and 'Network: 10.99.0.0/16 fd99::/64' in lines and 'Uplink: eth0' in lines
    assert json.loads(ok(host, 'status', '-j'))['Network4'] == '10.99.0.0/16'


@pytest.mark.parametrize('argv, words', [
    (['policy'], 'show, set, allow, deny, inbound, remove or clear'),
    (['policy', 'list'], "'policy list' is not known"),
    (['policy', 'show'], 'needs more'),
    (['policy', 'show', 'X'], 'not a sandbox id'),
    (['policy', 'show', 'i99999999999'], "No sandbox 'i99999999999'"),
    (['policy', 'set', 'i99999999999'], "'policy clear' denies everything"),
    (['policy', 'set', 'i99999999999', '--default', 'allow'], 'deny or internet'),
    (['policy', 'set', 'i99999999999', '--default', 'internet', 'x'], "does not take 'x'"),
    (['policy', 'set', 'i99999999999', '--default', 'internet'], "No sandbox 'i99999999999'"),
    (['policy', 'allow', 'i99999999999'], 'needs more'),
    (['policy', 'allow', 'i99999999999', '8.8.8.8'], "No sandbox 'i99999999999'"),
    (['policy', 'clear', 'i99999999999', 'x'], "does not take 'x'"),
    (['policy', 'remove', 'i99999999999'], 'needs more'),
    (['create', '--network', 'open'], 'deny or internet'),
    (['create', '--allow', 'a..b'], 'empty label'),
    (['create', '--allow', '8.8.8.8 tcp:70000'], 'a port is 0 to 65535'),
    (['create', '--allow', 'bücher.example'], 'xn--'),
    (['create', '--deny', 'example.com'], 'names can only be allowed'),
    (['create', '--bandwidth-out', '0'], 'infinity'),
    (['create', '--bandwidth-in', 'fast'], 'infinity'),
    (['create', '--packets-out', '0'], 'from 1 on'),
    (['create', '--open-connections', '-1'], 'from 1 on'),
    (['limit'], 'needs more'),
    (['limit', 'i99999999999'], 'needs a limit'),
    (['limit', 'i99999999999', '--memory', '0'], "can't be 0"),
    (['limit', 'i99999999999', '--cpu-quota', '50'], 'percentage'),
    (['limit', 'i99999999999', '--disk', '1G'], 'disk'),
    (['limit', 'i99999999999', '--bandwidth-out', '1M'], "No sandbox 'i99999999999'"),
    (['template', 'build', 'a', '--from', '/x', '--network', 'yes'], 'deny or internet'),
    (['template', 'build', 'a', '--from', '/x', '--build-network', 'yes'], '--build-network=yes'),
    (['template', 'build', 'a', '--from', '/x', '--no-warm', '--build-allow', 'x'], '--build-allow'),
])
def test_bad_input(host, argv, words):
    result = host.ctl(*argv)
    assert result.returncode == 1 and words in result.stderr and result.stdout == ''
    assert host.ids() == []


def test_rules_that_are_not_there(host, guest):
    result = host.ctl('policy', 'remove', guest, '9.9.9.9')
    assert result.returncode == 1 and "no rule '9.9.9.9'" in result.stderr
    result = host.ctl('policy', 'allow', guest, '8.8.8.8', 'a..b')
    assert result.returncode == 1 and 'empty label' in result.stderr
    assert shown(host, guest) == policy()
