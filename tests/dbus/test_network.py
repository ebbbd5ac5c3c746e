# SPDX-License-Identifier: Apache-2.0
"""Network policies and limits on the bus: what is taken, what is refused, who may, and what comes of two at once.

The rules are read by the code that cube-netd reads them with; loading and setting take their turns (fake-network.h)."""

import contextlib
import json
import os
import subprocess
import threading

import dbus
import pytest

from bushost import CUBECTL, NAME, NOBODY, ROOT, wait_for

MANAGER = (ROOT, 'Manager')
DENY_ALL = {'default': 'deny', 'allow': [], 'deny': [], 'inbound': []}
TRUSTED = 2  # SpecialRangesUsers= of the fake's configuration
SPECIAL = 'org.cubed.cube1.open-special-ranges'


def sandbox(i):
    return f'{ROOT}/sandbox/{i}'


def policy(**keys):
    """A policy as arguments of busctl."""
    words = [str(len(keys))]
    for key, value in keys.items():
        words += [key, 's', value] if isinstance(value, str) else [key, 'as', str(len(value)), *value]
    return words


def option(name, **keys):
    return [name, 'a{sv}', *policy(**keys)]


def set_policy(host, i, uid=0, **keys):
    return host.call(sandbox(i), 'Sandbox', 'SetNetworkPolicy', 'a{sv}', *policy(**keys), uid=uid)


def change_policy(host, i, add, remove, uid=0):
    return host.call(sandbox(i), 'Sandbox', 'ChangeNetworkPolicy', 'a{sv}a{sv}', *policy(**add), *policy(**remove), uid=uid)


def create(host, *options, source='template:python', uid=0):
    names = [o for o in options if isinstance(o, list)]
    words = [w for o in names for w in o]
    result = host.busctl('--json=short', 'call', NAME, ROOT, f'{NAME}.Manager', 'CreateSandbox', 'sa{sv}', source,
                         str(len(names)), *words, uid=uid)
    return json.loads(result.stdout)['data'][0] if result.returncode == 0 else result


def properties(host, path, interface):
    result = host.busctl('--json=short', 'call', NAME, path, 'org.freedesktop.DBus.Properties', 'GetAll', 's',
                         f'{NAME}.{interface}')
    return {k: v['data'] for k, v in json.loads(result.stdout)['data'][0].items()}


def policy_of(host, i, interface='Sandbox'):
    path = sandbox(i) if interface == 'Sandbox' else f'{ROOT}/template/{i}'
    return {k: v['data'] for k, v in properties(host, path, interface)['NetworkPolicy'].items()}


def test_nothing_passes_where_nothing_was_said(host, guest):
    assert policy_of(host, guest) == DENY_ALL


def test_set(host, guest):
    result = set_policy(host, guest, default='internet', allow=['8.8.8.8 udp:53', 'example.com'], deny=['1.1.1.1'],
                        inbound=['198.51.100.0/24 tcp:80'])
    assert result.returncode == 0, result.stderr
    assert policy_of(host, guest) == {'default': 'internet', 'allow': ['8.8.8.8 udp:53', 'example.com'],
                                      'deny': ['1.1.1.1'], 'inbound': ['198.51.100.0/24 tcp:80']}
    assert f'audit policy {guest} actor=0 default=internet' in host.log()
    # all of it is replaced
    assert set_policy(host, guest, allow=['9.9.9.9']).returncode == 0
    assert policy_of(host, guest) == {**DENY_ALL, 'allow': ['9.9.9.9']}
    assert set_policy(host, guest).returncode == 0
    assert policy_of(host, guest) == DENY_ALL


def changed_policy(line):
    """What a line of busctl's monitor tells of it, if it does."""
    message = json.loads(line)
    if message.get('member') == 'PropertiesChanged' and 'NetworkPolicy' in message['payload']['data'][1]:
        return message['payload']['data'][1]['NetworkPolicy']['data']
    return None


def test_a_change_is_told(host, guest):
    with subprocess.Popen(['busctl', '--system', 'monitor', '--json=short', NAME], env=host.env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as monitor:
        end = threading.Timer(60, monitor.kill)
        end.start()
        try:
            assert 'Monitoring' in monitor.stderr.readline()
            assert set_policy(host, guest, allow=['9.9.9.9']).returncode == 0
            told = next((policy for policy in map(changed_policy, monitor.stdout) if policy), None)
        finally:
            end.cancel()
            monitor.kill()
    assert told and told['allow']['data'] == ['9.9.9.9']


@pytest.mark.parametrize('words, text', [
    (['1', 'alow', 'as', '0'], "no option 'alow'"),
    (['1', 'allow', 's', '8.8.8.8'], "'allow' has type s, but takes as"),
    (['2', 'allow', 'as', '0', 'allow', 'as', '0'], "'allow' is given twice"),
    (['1', 'default', 's', 'allow'], 'takes deny or internet'),
    (['1', 'default', 's', ''], 'takes deny or internet'),
    (policy(allow=['10.0.0.0/33']), 'Rule "10.0.0.0/33"'),
    (policy(allow=['10.0.0/8']), 'Rule "10.0.0/8"'),
    (policy(allow=['8.8.8.8', '8.8.8.8 tcp:70000']), 'Rule "8.8.8.8 tcp:70000": a port is 0 to 65535'),
    (policy(allow=['8.8.8.8 sctp']), 'a protocol is'),
    (policy(allow=['example..com']), 'empty label'),
    (policy(allow=['x.' * 128]), 'a name has'),
    (policy(allow=['']), 'it is empty'),
    (policy(allow=['bücher.example']), 'xn--'),
    (policy(allow=['ü' * 500]), 'too long'),
    (policy(deny=['example.com']), 'names can only be allowed'),
    (policy(inbound=['example.com']), 'names can only be allowed'),
    (policy(allow=['8.8.8.8'] * 4096), 'at most 4095 rules'),
    (policy(allow=['8.8.8.8'] * 3000, deny=['8.8.8.8'] * 3000), 'at most 4095 rules'),
    (policy(allow=['1.1.1.1'] * 100_000), 'more than 16384 entries'),
    (policy(allow=['x' * 1000] * 300), '256 KiB of text'),
])
def test_bad_policies_change_nothing(host, guest, words, text):
    before = {**DENY_ALL, 'allow': ['9.9.9.9']}
    assert set_policy(host, guest, allow=['9.9.9.9']).returncode == 0
    result = host.call(sandbox(guest), 'Sandbox', 'SetNetworkPolicy', 'a{sv}', *words)
    assert result.returncode != 0 and text in result.stderr
    assert policy_of(host, guest) == before
    # the same at create: there is no sandbox then
    result = host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', '1', 'network-policy', 'a{sv}', *words)
    assert result.returncode != 0 and text in result.stderr
    assert host.ids() == [guest]


def test_a_trailing_dot_is_none(host, guest):
    assert set_policy(host, guest, allow=['Example.COM.']).returncode == 0


def test_the_largest_policy(host, guest):
    rules = [f'8.{n // 256}.{n % 256}.1' for n in range(4095)]
    assert set_policy(host, guest, allow=rules).returncode == 0
    assert policy_of(host, guest)['allow'] == rules
    result = change_policy(host, guest, {'deny': ['1.1.1.1']}, {})
    assert result.returncode != 0 and 'at most 4095 rules' in result.stderr


def test_no_such_sandbox(host):
    for result in (set_policy(host, 'i99999999999', default='internet'), change_policy(host, 'i99999999999', {}, {})):
        assert result.returncode != 0 and "No sandbox 'i99999999999'" in result.stderr


def test_what_cube_netd_can_not_do_is_an_error(host, guest):
    result = set_policy(host, guest, allow=['lost.example'])
    assert result.returncode != 0 and 'cube-netd ended' in result.stderr and 'cubectl check' in result.stderr
    result = set_policy(host, guest, allow=['stuck.example'])
    assert result.returncode != 0 and 'tables are full' in result.stderr
    assert policy_of(host, guest) == DENY_ALL
    assert f'audit policy {guest}' not in host.log()
    assert set_policy(host, guest, allow=['9.9.9.9']).returncode == 0


def test_change(host, guest):
    assert set_policy(host, guest, default='internet', allow=['8.8.8.8'], deny=['1.1.1.1']).returncode == 0
    result = change_policy(host, guest, {'allow': ['9.9.9.9', '8.8.8.8'], 'inbound': ['all']}, {'deny': ['1.1.1.1']})
    assert result.returncode == 0, result.stderr
    assert policy_of(host, guest) == {'default': 'internet', 'allow': ['8.8.8.8', '9.9.9.9'], 'deny': [], 'inbound': ['all']}
    # a rule that is not there, and one that is wrong: nothing of the call is done
    result = change_policy(host, guest, {'allow': ['7.7.7.7']}, {'allow': ['8.8.8.8', '1.2.3.4']})
    assert result.returncode != 0 and "no rule '1.2.3.4'" in result.stderr
    assert change_policy(host, guest, {'allow': ['7.7.7.7', 'x..y']}, {}).returncode != 0
    result = change_policy(host, guest, {'default': 'deny'}, {})
    assert result.returncode != 0 and "no option 'default'" in result.stderr
    assert policy_of(host, guest)['allow'] == ['8.8.8.8', '9.9.9.9']


def test_of_two_changes_at_once_none_is_lost(host, guest):
    rules = [f'8.8.8.{n}' for n in range(24)]
    calls = [subprocess.Popen(['busctl', '--system', 'call', NAME, sandbox(guest), f'{NAME}.Sandbox', 'ChangeNetworkPolicy',
                               'a{sv}a{sv}', *policy(allow=[rule]), '0'], env=host.env) for rule in rules]
    assert [c.wait(60) for c in calls] == [0] * len(rules)
    assert sorted(policy_of(host, guest)['allow']) == sorted(rules)


class Client:
    """Sends calls without waiting for the answers."""

    def __init__(self, host):
        self.bus = dbus.bus.BusConnection(host.env['DBUS_SYSTEM_BUS_ADDRESS'])

    def send(self, i, method, *policies):
        message = dbus.lowlevel.MethodCallMessage(NAME, sandbox(i), f'{NAME}.Sandbox', method)
        for p in policies:
            message.append({k: v if isinstance(v, str) else dbus.Array(v, 's') for k, v in p.items()}, signature='a{sv}')
        message.set_no_reply(True)
        self.bus.send_message(message)

    def arrive(self):
        """What is behind them, and waits for nothing, is answered when they have all come."""
        self.bus.get_object(NAME, ROOT, introspect=False).Ping(dbus_interface='org.freedesktop.DBus.Peer')

    def wait(self, i):
        """The answer to a call behind them is an answer to them all."""
        self.bus.flush()
        self.bus.get_object(NAME, sandbox(i), introspect=False).ChangeNetworkPolicy(
            dbus.Dictionary({}, 'sv'), dbus.Dictionary({}, 'sv'), dbus_interface=f'{NAME}.Sandbox')
        self.bus.close()


@contextlib.contextmanager
def slow_loads(host):
    """Loads of slow.example wait until the end of it; gives a wait for so many of them."""
    def waiting():
        return host.log().count('network load waits\n')

    def wait(n):
        wait_for(f'{n} loads', lambda: waiting() - before >= n)
        assert waiting() - before == n
    before = waiting()
    host.hold.touch()
    try:
        yield wait
    finally:
        host.hold.unlink()


def calling(host, path, interface, method, *words):
    """A call that is patient."""
    return subprocess.Popen(['busctl', '--system', '--timeout=60', 'call', NAME, path, f'{NAME}.{interface}', method, *words],
                            env=host.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def setting(host, i, **keys):
    return calling(host, sandbox(i), 'Sandbox', 'SetNetworkPolicy', 'a{sv}', *policy(**keys))


def test_the_last_call_wins(host, guest):
    """Also when the first one takes longer."""
    client = Client(host)
    with slow_loads(host) as wait:
        client.send(guest, 'SetNetworkPolicy', {'default': 'internet', 'allow': ['slow.example']})
        client.send(guest, 'SetNetworkPolicy', {})
        client.arrive()
        wait(1)
        assert policy_of(host, guest) == DENY_ALL
    client.wait(guest)
    assert policy_of(host, guest) == DENY_ALL
    # both were in force, one after the other
    log = host.log()
    assert log.index(f'audit policy {guest} actor=0 default=internet') < log.index(f'audit policy {guest} actor=0 default=deny')


def test_calls_that_wait_are_bounded(host, guest):
    client = Client(host)
    with slow_loads(host) as wait:
        client.send(guest, 'SetNetworkPolicy', {'allow': ['slow.example']})
        client.send(guest, 'SetNetworkPolicy', {})
        for n in range(200):
            client.send(guest, 'ChangeNetworkPolicy', {'allow': [f'8.8.8.{n}']}, {})
        client.arrive()
        wait(1)
    wait_for('those that there was room for', lambda: len(policy_of(host, guest)['allow']) == 62)
    client.wait(guest)
    assert policy_of(host, guest)['allow'] == [f'8.8.8.{n}' for n in range(62)]


def test_loads_of_one_user_are_bounded(host):
    """Each costs cube-netd time, and others want some of it. To close one is never too much."""
    guests, last = [host.create() for _ in range(20)], create(host, option('network-policy', default='internet'))
    with slow_loads(host) as wait:
        calls = [setting(host, i, allow=['slow.example', f'8.8.8.{n}']) for n, i in enumerate(guests)]
        wait_for('four to be refused', lambda: sum(c.poll() is not None for c in calls) == 4)
        wait(16)
        assert set_policy(host, last).returncode == 0 and policy_of(host, last) == DENY_ALL
    refused = [error for _, error in (c.communicate(timeout=60) for c in calls) if error]
    assert len(refused) == 4 and all('Too many network policies' in error for error in refused)
    assert [c.returncode for c in calls].count(0) == 16


def test_a_sandbox_that_goes_while_its_policy_is_loaded(host, guest):
    with slow_loads(host) as wait:
        first, second = [setting(host, guest, allow=['slow.example']) for _ in range(2)]
        wait(1)
        assert host.ctl('kill', guest).returncode == 0
    for call in (first, second):
        _, error = call.communicate(timeout=60)
        assert call.returncode != 0 and ('No sandbox' in error or 'ended meanwhile' in error)


def test_a_client_that_goes_while_its_policy_is_loaded(host, guest):
    client = Client(host)
    name = client.bus.get_unique_name()
    with slow_loads(host) as wait:
        client.send(guest, 'SetNetworkPolicy', {'allow': ['slow.example']})
        client.arrive()
        wait(1)
        client.bus.close()
        wait_for('the bus to miss it', lambda: name not in host.busctl('list', '--no-pager').stdout.split())
        # asked behind that, cubed has heard of it
        assert policy_of(host, guest) == DENY_ALL
    assert set_policy(host, guest, allow=['9.9.9.9']).returncode == 0
    assert policy_of(host, guest)['allow'] == ['9.9.9.9']


def test_create_with_a_policy(host):
    with slow_loads(host) as wait:
        call = calling(host, ROOT, 'Manager', 'CreateSandbox', 'sa{sv}', 'template:python', '1',
                       *option('network-policy', allow=['9.9.9.9', 'slow.example']))
        wait(1)
        assert not host.ids()
    assert call.communicate(timeout=60)[1] == ''
    (i,) = host.ids()
    assert policy_of(host, i) == {**DENY_ALL, 'allow': ['9.9.9.9', 'slow.example']}
    assert create(host, option('network-policy'), source='template:online')
    result = create(host, ['network-policy', 's', 'internet'])
    assert result.returncode != 0 and "'network-policy' has type s, but takes a{sv}" in result.stderr


def test_the_policy_of_the_template(host):
    assert policy_of(host, 'tonlineonlineo', 'Template') == {**DENY_ALL, 'allow': ['example.com tcp:443']}
    assert policy_of(host, 'tpythonpython', 'Template') == {}
    i = create(host, source='template:online')
    assert policy_of(host, i)['allow'] == ['example.com tcp:443']
    # one of its own stands in its place: nothing of the template's is left
    i = create(host, option('network-policy', allow=['9.9.9.9']), source='template:online')
    assert policy_of(host, i)['allow'] == ['9.9.9.9']


def test_the_same_request_while_its_policy_is_loaded(host):
    words = ['request-id', 's', 'once', *option('network-policy', allow=['slow.example'])]
    with slow_loads(host) as wait:
        calls = [calling(host, ROOT, 'Manager', 'CreateSandbox', 'sa{sv}', 'template:python', '2', *words) for _ in range(3)]
        wait(3)
    answers = {c.communicate(timeout=60)[0] for c in calls}
    assert len(answers) == 1 and len(host.ids()) == 1


def test_fork(host, guest):
    set_policy(host, guest, allow=['9.9.9.9'])
    host.call(sandbox(guest), 'Sandbox', 'SetLimits', 'a{sv}', '1', 'network-bandwidth-out', 't', '1000000')
    first = json.loads(host.ctl('fork', guest, '-j').stdout)[0]['id']
    assert policy_of(host, first)['allow'] == ['9.9.9.9']
    assert properties(host, sandbox(first), 'Sandbox')['NetworkBandwidthOutMax'] == 1000000
    result = host.busctl('--json=short', 'call', NAME, sandbox(guest), f'{NAME}.Sandbox', 'Fork', 'ua{sv}', '1', '1',
                         *option('network-policy', allow=['8.8.8.8']))
    assert policy_of(host, json.loads(result.stdout)['data'][0][0][1])['allow'] == ['8.8.8.8']


def build(host, name, tmp_path, *options, uid=0):
    (tmp_path / 'root.tar').touch()
    with open(tmp_path / 'root.tar', 'rb'):
        return host.ctl('template', 'build', name, '--from', tmp_path / 'root.tar', *options, uid=uid)


def test_limits(host):
    i = create(host, ['network-bandwidth-out', 't', '1000000'], ['network-bandwidth-in', 't', '2000000'],
               ['network-packets-out', 'u', '3000'], ['network-packets-in', 'u', '4000'],
               ['network-new-connections', 'u', '50'], ['network-open-connections', 'u', '60'])
    p = properties(host, sandbox(i), 'Sandbox')
    assert [p[f'Network{n}Max'] for n in ('BandwidthOut', 'BandwidthIn', 'PacketsOut', 'PacketsIn', 'NewConnections',
                                          'OpenConnections')] == [1000000, 2000000, 3000, 4000, 50, 60]
    result = host.call(sandbox(i), 'Sandbox', 'SetLimits', 'a{sv}', '1', 'network-open-connections', 'u', '7')
    assert result.returncode == 0
    p = properties(host, sandbox(i), 'Sandbox')
    assert p['NetworkOpenConnectionsMax'] == 7 and p['NetworkBandwidthOutMax'] == 1000000
    for words, text in ((['network-packets-in', 'u', '0'], "'network-packets-in' is 0"),
                        (['network-bandwidth-out', 's', '10M'], "has type s, but takes t"),
                        (['network-bandwidth', 't', '5'], "no option 'network-bandwidth'")):
        result = host.call(sandbox(i), 'Sandbox', 'SetLimits', 'a{sv}', '1', *words)
        assert result.returncode != 0 and text in result.stderr


def test_what_is_told_of_the_network(host, guest):
    p = properties(host, sandbox(guest), 'Sandbox')
    assert p['NetworkAddress'].startswith('10.99.0.') and p['NetworkAddress6'].startswith('fd99::')
    m = properties(host, ROOT, 'Manager')
    assert (m['Network4'], m['Network6'], m['Uplink'], m['NetworkError']) == ('10.99.0.0/16', 'fd99::/64', 'eth0', '')
    assert m['NetworkMTU'] == 1500 and m['NetworkFreeSlots'] == 8
    statistics = host.call(sandbox(guest), 'Sandbox', 'GetStatistics').stdout
    for words in ('"NetworkPacketsOut" t 3', '"NetworkBytesOut" t 300', '"NetworkDeniedPacketsOut" t 2',
                  '"NetworkDeniedPolicy" t 2', '"NetworkDeniedSpoofed" t 0', '"NetworkOpenConnections" t 1'):
        assert words in statistics


# Who may open special ranges.

PRIVATE = ['10.1.0.0/16', '127.0.0.1', '169.254.169.254', 'fd00::1', 'db.example in 10.0.0.0/8', '8.8.8.8 host']


@pytest.fixture
def owned(polkit):
    """Of nobody, who may create and nothing else."""
    polkit.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    return polkit, polkit.create(uid=NOBODY)


@pytest.mark.parametrize('rule', PRIVATE)
def test_the_owner_alone_may_not(owned, rule):
    host, i = owned
    for result in (set_policy(host, i, allow=[rule], uid=NOBODY), change_policy(host, i, {'allow': [rule]}, {}, uid=NOBODY),
                   create(host, option('network-policy', allow=['9.9.9.9', rule]), uid=NOBODY),
                   host.ctl('fork', i, '--allow', rule, uid=NOBODY)):
        assert result.returncode != 0 and 'Access denied' in result.stderr and SPECIAL in result.stderr
    assert f'audit denied actor={NOBODY} action={SPECIAL} object={i}' in host.log()
    assert policy_of(host, i) == DENY_ALL and host.ids() == [i]


def test_what_is_not_special_is_the_owners(owned):
    host, i = owned
    assert set_policy(host, i, default='internet', allow=['8.8.8.0/24'], deny=['10.0.0.0/8'], inbound=['8.8.8.8'],
                      uid=NOBODY).returncode == 0
    assert set_policy(host, i, allow=['0.0.0.0/0', 'all'], uid=NOBODY).returncode == 0


def test_another_user_needs_to_manage_it_first(owned):
    host, i = owned
    result = set_policy(host, i, uid=TRUSTED)
    assert result.returncode != 0 and 'org.cubed.cube1.manage' in result.stderr


def test_root_and_those_that_the_configuration_names(owned):
    host, i = owned
    assert set_policy(host, i, allow=['10.1.0.0/16']).returncode == 0
    j = create(host, option('network-policy', allow=['10.1.0.0/16']), uid=TRUSTED)
    assert policy_of(host, j)['allow'] == ['10.1.0.0/16']
    assert set_policy(host, j, allow=['10.2.0.0/16'], uid=TRUSTED).returncode == 0


def test_whom_polkit_lets(owned):
    host, i = owned
    host.mock_polkit('SetAllowed', 'as', '2', 'org.cubed.cube1.create', SPECIAL)
    assert set_policy(host, i, allow=['10.1.0.0/16'], uid=NOBODY).returncode == 0
    j = create(host, option('network-policy', allow=['10.3.0.0/16']), uid=NOBODY)
    assert policy_of(host, j)['allow'] == ['10.3.0.0/16']


def test_a_policy_that_an_admin_opened_is_not_the_owners_to_change(owned):
    """He may close it, though; and copies have what the first one has."""
    host, i = owned
    assert set_policy(host, i, allow=['10.1.0.0/16', '9.9.9.9']).returncode == 0
    result = change_policy(host, i, {'allow': ['10.2.0.0/16']}, {}, uid=NOBODY)
    assert result.returncode != 0 and SPECIAL in result.stderr
    assert host.ctl('fork', i, uid=NOBODY).returncode == 0
    assert change_policy(host, i, {}, {'allow': ['10.1.0.0/16']}, uid=NOBODY).returncode == 0
    assert policy_of(host, i)['allow'] == ['9.9.9.9']


def test_special_templates(owned):
    """What root built is for all to use. What another built opens special ranges for as long as he may himself."""
    host, i = owned
    j = create(host, source='template:special', uid=NOBODY)
    assert policy_of(host, j)['allow'] == ['10.1.0.0/16']
    result = create(host, source='template:own-special', uid=NOBODY)
    assert result.returncode != 0 and SPECIAL in result.stderr
    k = create(host, option('network-policy', allow=['9.9.9.9']), source='template:own-special', uid=NOBODY)
    assert policy_of(host, k)['allow'] == ['9.9.9.9']
    host.mock_polkit('SetAllowed', 'as', '2', 'org.cubed.cube1.create', SPECIAL)
    k = create(host, source='template:own-special', uid=NOBODY)
    assert policy_of(host, k)['allow'] == ['10.2.0.0/16']


def has_hanging(host):
    return 'true' in host.busctl('call', 'org.freedesktop.PolicyKit1', '/org/freedesktop/PolicyKit1/Authority',
                                 'org.freedesktop.DBus.Mock', 'HaveHangingCalls').stdout


def test_what_was_granted_is_not_asked_again(owned):
    """A call comes to its handler several times, for polkit and for the policy. A person is asked for each thing once."""
    host, _ = owned
    host.mock_polkit('SetAllowed', 'as', '2', 'org.cubed.cube1.create', SPECIAL)
    host.mock_polkit('SimulateHangActions', 'as', '1', SPECIAL)
    waiting = subprocess.Popen([CUBECTL, 'create', '--allow', '10.7.0.0/16', '--allow', 'slow.example'], env=host.env,
                               user=NOBODY, group=NOBODY, extra_groups=[], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for('the question', lambda: has_hanging(host))
    host.mock_polkit('SetAllowed', 'as', '1', SPECIAL)
    host.mock_polkit('ReleaseHangingCalls', '')
    out, error = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, error
    assert policy_of(host, out.strip())['allow'] == ['10.7.0.0/16', 'slow.example']
    # the next call is asked about anew
    assert 'org.cubed.cube1.create' in host.ctl('create', uid=NOBODY).stderr


def test_others_do_not_wait_for_a_person(owned):
    """While somebody is asked for a password root's policy comes in force; the one that was waited for comes later."""
    host, i = owned
    host.mock_polkit('SetAllowed', 'as', '1', SPECIAL)
    host.mock_polkit('SimulateHangActions', 'as', '1', SPECIAL)
    waiting = subprocess.Popen(['busctl', '--system', 'call', NAME, sandbox(i), f'{NAME}.Sandbox', 'SetNetworkPolicy',
                                'a{sv}', *policy(allow=['10.7.0.0/16'])], env=host.env, user=NOBODY, group=NOBODY,
                               extra_groups=[], stdin=subprocess.DEVNULL)
    wait_for('the question', lambda: has_hanging(host))
    assert set_policy(host, i, allow=['9.9.9.9']).returncode == 0
    assert policy_of(host, i)['allow'] == ['9.9.9.9']
    host.mock_polkit('ReleaseHangingCalls', '')
    assert waiting.wait(60) == 0
    assert policy_of(host, i)['allow'] == ['10.7.0.0/16']


def test_templates_with_policies(polkit, tmp_path):
    host = polkit
    os.chmod(tmp_path, 0o755)
    result = build(host, 'net1', tmp_path, '--network', 'internet', '--build-allow', '9.9.9.9')
    assert result.returncode == 0, result.stderr
    assert 'build net1: network internet, while it is built deny' in host.log()
    assert build(host, 'net2', tmp_path, '--build-network', 'internet').returncode == 0
    assert 'build net2: network not given, while it is built internet' in host.log()
    result = build(host, 'net3', tmp_path, '--no-warm', '--build-network', 'internet')
    assert result.returncode == 1 and '--no-warm' in result.stderr
    result = build(host, 'net4', tmp_path, '--allow', 'x..y')
    assert result.returncode == 1 and 'empty label' in result.stderr
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.manage-templates')
    for word in ('--allow', '--build-allow'):
        result = build(host, 'net5', tmp_path, '--allow', '9.9.9.9', word, '10.1.0.0/16', uid=NOBODY)
        assert result.returncode == 1 and SPECIAL in result.stderr
    host.mock_polkit('SetAllowed', 'as', '2', 'org.cubed.cube1.manage-templates', SPECIAL)
    result = build(host, 'net6', tmp_path, '--allow', '10.1.0.0/16', '--build-allow', '10.2.0.0/16', uid=NOBODY)
    assert result.returncode == 0, result.stderr
