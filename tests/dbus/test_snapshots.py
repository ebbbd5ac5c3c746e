# SPDX-License-Identifier: Apache-2.0
"""Saved states on the bus: pause, resume, snapshot, fork, rollback, and snapshots as objects."""

import json
import subprocess
import time

import pytest

from bushost import NAME, NOBODY, ROOT

MANAGER = (ROOT, 'Manager')
OTHER = 1  # daemon: the bus takes only users that exist


def sandbox(i):
    return f'{ROOT}/sandbox/{i}'


def data(host, path, interface, method, signature='', *arguments, **kwargs):
    result = host.busctl('--json=short', 'call', NAME, path, f'{NAME}.{interface}', method, signature, *arguments, **kwargs)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)['data'] if result.stdout.strip() else None


def error(host, path, interface, method, signature='', *arguments, **kwargs):
    result = host.call(path, interface, method, signature, *arguments, **kwargs)
    assert result.returncode != 0, result.stdout
    return result.stderr


def properties(host, path, interface):
    result = host.busctl('--json=short', 'call', NAME, path, 'org.freedesktop.DBus.Properties', 'GetAll', 's',
                         f'{NAME}.{interface}')
    assert result.returncode == 0, result.stderr
    return {k: v['data'] for k, v in json.loads(result.stdout)['data'][0].items()}


def snapshot(host, i, *options):
    return data(host, sandbox(i), 'Sandbox', 'Snapshot', 'a{sv}', *(options or ['0']))[0]


def listed(host, *filters, **kwargs):
    return {s[0]: s for s in data(host, *MANAGER, 'ListSnapshots', 'a{sv}', *(filters or ['0']), **kwargs)[0]}


@pytest.fixture
def host(host):
    yield host
    for i in host.ids():
        host.ctl('kill', i)
    while left := listed(host):
        assert any(host.call(*MANAGER, 'RemoveSnapshot', 's', i).returncode == 0 for i in left)


def test_snapshot_is_an_object(host, guest):
    i, path = data(host, sandbox(guest), 'Sandbox', 'Snapshot', 'a{sv}', '1', 'name', 's', 'before')
    assert path == f'{ROOT}/snapshot/{i}'
    p = properties(host, path, 'Snapshot')
    assert p['Id'] == i and p['Name'] == 'before' and p['Kind'] == 'snapshot' and p['Number'] == 0
    assert p['Sandbox'] == guest and p['Template'] == 'tpythonpython' and p['TemplateName'] == 'python'
    assert p['Parent'] == '' and p['Owner'] == 0 and p['CreatedTimestamp'] > 0
    assert (p['StateBytes'], p['MemoryBytes'], p['DiskBytes']) == (1000, 2000, 3000)
    assert p['HasMemory'] is True and p['Durable'] is True
    assert data(host, *MANAGER, 'GetSnapshot', 's', i) == [path]
    second = snapshot(host, guest)
    p = properties(host, f'{ROOT}/snapshot/{second}', 'Snapshot')
    assert p['Parent'] == i and p['Name'] == ''
    assert properties(host, sandbox(guest), 'Sandbox')['BaseSnapshot'] == second
    objects = host.busctl('call', NAME, ROOT, 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects').stdout
    assert path in objects and f'{ROOT}/snapshot/{second}' in objects


def test_a_snapshot_that_can_not_be_taken(host, guest):
    assert 'The disk is full' in error(host, sandbox(guest), 'Sandbox', 'Snapshot', 'a{sv}', '1', 'name', 's', 'broken')
    assert properties(host, sandbox(guest), 'Sandbox')['State'] == 'running' and listed(host) == {}


def test_create_from_a_snapshot(host, guest):
    i = snapshot(host, guest)
    new, path = data(host, *MANAGER, 'CreateSandbox', 'sa{sv}', f'snapshot:{i}', '0')
    p = properties(host, path, 'Sandbox')
    assert new != guest and p['Start'] == 'restored' and p['BaseSnapshot'] == i and p['Template'] == 'tpythonpython'
    assert properties(host, sandbox(guest), 'Sandbox')['Start'] == 'booted'
    host.ctl('kill', guest)
    data(host, *MANAGER, 'CreateSandbox', 'sa{sv}', f'snapshot:{i}', '0')


def test_time_outs_and_checkpoints_of_a_create(host):
    def created(*options):
        return properties(host, data(host, *MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', *options)[1], 'Sandbox')
    p = created('0')
    assert p['IdleTimeoutUSec'] == 2**64 - 1 and p['OnTimeout'] == 'kill'
    assert p['Checkpoint'] == '' and p['CheckpointIntervalUSec'] == 0
    p = created('3', 'idle-timeout', 't', '5000000', 'on-timeout', 's', 'pause-disk', 'checkpoint', 's', 'exec')
    assert p['IdleTimeoutUSec'] == 5000000 and p['OnTimeout'] == 'pause-disk'
    assert p['Checkpoint'] == 'exec' and p['CheckpointIntervalUSec'] == 0
    assert p['AutoResume'] is False
    p = created('3', 'checkpoint', 't', '60000000', 'on-timeout', 's', 'pause', 'auto-resume', 'b', 'true')
    assert p['AutoResume'] is True
    assert p['OnTimeout'] == 'pause' and p['Checkpoint'] == 'interval' and p['CheckpointIntervalUSec'] == 60000000
    data(host, sandbox(p['Id']), 'Sandbox', 'SetIdleTimeout', 't', '7000000')
    assert properties(host, sandbox(p['Id']), 'Sandbox')['IdleTimeoutUSec'] == 7000000
    data(host, sandbox(p['Id']), 'Sandbox', 'SetAutoResume', 'b', 'false')
    assert properties(host, sandbox(p['Id']), 'Sandbox')['AutoResume'] is False


def test_pause_and_resume(host, guest):
    data(host, sandbox(guest), 'Sandbox', 'Pause', 'a{sv}', '0')
    p = properties(host, sandbox(guest), 'Sandbox')
    (held,) = listed(host)
    assert p['State'] == 'paused' and p['BaseSnapshot'] == held and listed(host)[held][2] == 'pause'
    assert 'resume it first' in error(host, sandbox(guest), 'Sandbox', 'Exec', 'asa{sv}', '1', 'true', '0')
    assert 'resume it first' in error(host, sandbox(guest), 'Sandbox', 'Rollback', 'sa{sv}', held, '0')
    assert 'goes with it' in error(host, *MANAGER, 'RemoveSnapshot', 's', held)
    data(host, sandbox(guest), 'Sandbox', 'Resume', 'a{sv}', '0')
    p = properties(host, sandbox(guest), 'Sandbox')
    assert p['State'] == 'running' and p['Start'] == 'restored' and p['BaseSnapshot'] == '' and listed(host) == {}


def test_a_resume_makes_a_lifetime_longer_and_never_shorter(host, guest):
    def resume(*options):
        data(host, sandbox(guest), 'Sandbox', 'Resume', 'a{sv}', str(len(options)), *(a for o in options for a in o))
        return properties(host, sandbox(guest), 'Sandbox')['Deadline']
    assert resume(('timeout', 't', '60000000')) == 2**64 - 1
    data(host, sandbox(guest), 'Sandbox', 'SetTimeout', 't', '300000000')
    now = time.time() * 1e6
    first = resume(('timeout', 't', '600000000'))
    assert now + 500e6 < first < now + 700e6
    assert resume(('timeout', 't', '60000000')) == first and resume(('wait', 'b', 'true')) == first
    assert resume(('timeout', 't', '6000000000'), ('wait', 'b', 'true'), ('memory', 'b', 'false')) > first
    data(host, sandbox(guest), 'Sandbox', 'Pause', 'a{sv}', '0')
    assert resume(('timeout', 't', '60000000')) < now + 200e6
    assert 'timeout' in error(host, sandbox(guest), 'Sandbox', 'Resume', 'a{sv}', '1', 'timeout', 't', '0')


def test_pause_without_memory_boots(host, guest):
    data(host, sandbox(guest), 'Sandbox', 'Pause', 'a{sv}', '1', 'memory', 'b', 'false')
    (held,) = listed(host)
    assert properties(host, f'{ROOT}/snapshot/{held}', 'Snapshot')['HasMemory'] is False
    data(host, sandbox(guest), 'Sandbox', 'Resume', 'a{sv}', '0')
    assert properties(host, sandbox(guest), 'Sandbox')['Start'] == 'booted'


def test_fork_says_what_became_of_each(host, guest):
    (answer,) = data(host, sandbox(guest), 'Sandbox', 'Fork', 'ua{sv}', '4', '2', 'labels', 'a{ss}', '1', 'a', 'b',
                     'timeout', 't', '60000000')
    assert [x[0] for x in answer] == [True, True, True, False]
    assert answer[3] == [False, '', '/', f'{NAME}.Error.QuotaExceeded', 'There are enough']
    assert len({x[1] for x in answer[:3]} | {guest}) == 4
    for _, i, path, name, message in answer[:3]:
        p = properties(host, path, 'Sandbox')
        assert path == sandbox(i) and name == message == ''
        assert p['State'] == 'running' and p['Start'] == 'restored' and p['Labels'] == {'a': 'b'}
        assert p['TimeoutUSec'] == 60000000
    # what they stand on is nobody's to see
    assert listed(host) == {} and p['BaseSnapshot'] == ''


def test_a_fork_ends_like_the_first_one_unless_told(host):
    i = host.create('--timeout', '1h', '--idle-timeout', '5min', '--on-timeout', 'pause', '--auto-resume', '--checkpoint', 'exec',
                    '--label', 'a=b')
    names = ('TimeoutUSec', 'IdleTimeoutUSec', 'OnTimeout', 'AutoResume', 'Checkpoint', 'CheckpointIntervalUSec', 'Labels')

    def forked(*options):
        ((answer,),) = data(host, sandbox(i), 'Sandbox', 'Fork', 'ua{sv}', '1', *options)
        p = properties(host, answer[2], 'Sandbox')
        return [p[name] for name in names]
    assert forked('0') == [3600 * 10**6, 300 * 10**6, 'pause', True, 'exec', 0, {}]
    assert forked('5', 'timeout', 't', '2000000000', 'idle-timeout', 't', '3000000000', 'on-timeout', 's', 'kill',
                  'auto-resume', 'b', 'false', 'checkpoint', 't', '4000000000') == [2000 * 10**6, 3000 * 10**6, 'kill', False, 'interval', 4000 * 10**6, {}]


def test_forks_of_a_users_sandbox_are_his(polkit):
    host = polkit
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    i = host.create(uid=NOBODY)
    for uid in (0, NOBODY):
        ((answer,),) = data(host, sandbox(i), 'Sandbox', 'Fork', 'ua{sv}', '1', '0', uid=uid)
        assert properties(host, answer[2], 'Sandbox')['Owner'] == NOBODY
    # it is a create, which he may not do any more
    host.mock_polkit('SetAllowed', 'as', '0')
    assert 'org.cubed.cube1.create for sandbox:' in error(host, sandbox(i), 'Sandbox', 'Fork', 'ua{sv}', '1', '0', uid=NOBODY)
    assert host.call(sandbox(i), 'Sandbox', 'Snapshot', 'a{sv}', '0', uid=NOBODY).returncode == 0


def test_rollback(host, guest):
    first, second = snapshot(host, guest), snapshot(host, guest)
    data(host, sandbox(guest), 'Sandbox', 'Rollback', 'sa{sv}', first, '0')
    assert properties(host, sandbox(guest), 'Sandbox')['BaseSnapshot'] == first
    # another one's is not for it
    other = host.create()
    assert f'{other} has no snapshot' in error(host, sandbox(other), 'Sandbox', 'Rollback', 'sa{sv}', second, '0')


def test_list_filters(host, guest):
    other = host.create()
    mine, theirs = snapshot(host, guest), snapshot(host, other, '1', 'name', 's', 'x')
    data(host, sandbox(other), 'Sandbox', 'Pause', 'a{sv}', '0')
    assert set(listed(host, '1', 'sandbox', 's', guest)) == {mine}
    assert set(listed(host, '1', 'kind', 's', 'snapshot')) == {mine, theirs}
    both = listed(host, '2', 'kind', 's', 'snapshot', 'sandbox', 's', other)
    assert both[theirs][:5] == [theirs, 'x', 'snapshot', 0, other] and both[theirs][7] == 6000
    assert len(listed(host, '1', 'kind', 's', 'pause')) == 1
    assert listed(host, '1', 'kind', 's', 'layer') == {}


def test_removal_is_refused_with_who_stands_on_it(host, guest):
    first, second = snapshot(host, guest), snapshot(host, guest)
    user = data(host, *MANAGER, 'CreateSandbox', 'sa{sv}', f'snapshot:{first}', '0')[0]
    words = error(host, *MANAGER, 'RemoveSnapshot', 's', first)
    assert f'sandbox {user}' in words and f'snapshot {second}' in words and guest not in words
    host.ctl('kill', user)
    words = error(host, *MANAGER, 'RemoveSnapshot', 's', first)
    assert user not in words and second in words
    data(host, *MANAGER, 'RemoveSnapshot', 's', second)
    # its own sandbox, which runs on its layers, does not hold it
    data(host, *MANAGER, 'RemoveSnapshot', 's', first)
    assert listed(host) == {} and 'No snapshot' in error(host, *MANAGER, 'GetSnapshot', 's', first)
    assert host.busctl('get-property', NAME, f'{ROOT}/snapshot/{first}', f'{NAME}.Snapshot', 'Id').returncode != 0


def test_the_list_of_who_stands_on_it_is_bounded(host, guest):
    first, *above = [snapshot(host, guest) for _ in range(19)]
    words = error(host, *MANAGER, 'RemoveSnapshot', 's', first)
    assert sum(i in words for i in above) == 16 and 'and 2 more' in words


def test_removal_names_the_paused(host, guest):
    first = snapshot(host, guest)
    user = data(host, *MANAGER, 'CreateSandbox', 'sa{sv}', f'snapshot:{first}', '0')[0]
    data(host, sandbox(user), 'Sandbox', 'Pause', 'a{sv}', '0')
    assert f'stand: paused sandbox {user};' in error(host, *MANAGER, 'RemoveSnapshot', 's', first)
    host.ctl('kill', user)
    # the own one is no reason: it can be resumed all the same
    data(host, sandbox(guest), 'Sandbox', 'Pause', 'a{sv}', '0')
    data(host, *MANAGER, 'RemoveSnapshot', 's', first)
    data(host, sandbox(guest), 'Sandbox', 'Resume', 'a{sv}', '0')


def test_a_checkpoint_may_always_go(host):
    i = host.create('--checkpoint=exec')
    for _ in range(2):
        host.ctl('exec', i, 'true')
    first, second = listed(host, '1', 'kind', 's', 'checkpoint')
    kept = snapshot(host, i)
    data(host, *MANAGER, 'RemoveSnapshot', 's', first)
    data(host, *MANAGER, 'RemoveSnapshot', 's', second)
    assert set(listed(host)) == {kept} and properties(host, f'{ROOT}/snapshot/{kept}', 'Snapshot')['Parent'] == ''


def test_a_snapshot_outlives_its_sandbox_but_a_pause_does_not(host, guest):
    kept = snapshot(host, guest)
    data(host, sandbox(guest), 'Sandbox', 'Pause', 'a{sv}', '0')
    assert len(listed(host)) == 2
    assert host.ctl('kill', guest).returncode == 0
    assert set(listed(host)) == {kept} and host.ids() == []


def test_snapshots_of_others(polkit):
    host = polkit
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    roots = snapshot(host, host.create())
    theirs = host.create(uid=NOBODY)
    i = data(host, sandbox(theirs), 'Sandbox', 'Snapshot', 'a{sv}', '0', uid=NOBODY)[0]
    assert set(listed(host, uid=NOBODY)) == {i} and set(listed(host)) == {i, roots}
    assert listed(host, uid=OTHER) == {}
    assert f"No snapshot '{i}'" in error(host, *MANAGER, 'GetSnapshot', 's', i, uid=OTHER)
    assert f"No snapshot '{i}'" in error(host, *MANAGER, 'CreateSandbox', 'sa{sv}', f'snapshot:{i}', '0', uid=OTHER)
    assert 'Access denied' in error(host, *MANAGER, 'RemoveSnapshot', 's', i, uid=OTHER)
    # root's sandbox on it is not named to its owner
    user = data(host, *MANAGER, 'CreateSandbox', 'sa{sv}', f'snapshot:{i}', '0')[0]
    words = error(host, *MANAGER, 'RemoveSnapshot', 's', i, uid=NOBODY)
    assert 'of another user' in words and user not in words
    host.ctl('kill', user)
    data(host, *MANAGER, 'RemoveSnapshot', 's', i, uid=NOBODY)
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.list')
    assert set(listed(host, uid=OTHER)) == {roots}


def test_signals(host, guest):
    """A pause's snapshot is an object until the resume, though its layers are needed on."""
    monitor = subprocess.Popen(['busctl', '--system', 'monitor', '--json=short', NAME], env=host.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert 'Monitoring' in monitor.stderr.readline()
    data(host, sandbox(guest), 'Sandbox', 'Pause', 'a{sv}', '0')
    (held,) = listed(host)
    data(host, sandbox(guest), 'Sandbox', 'Resume', 'a{sv}', '0')
    host.ctl('kill', guest)
    seen = []
    for line in monitor.stdout:
        message = json.loads(line)
        if message['type'] == 'signal':
            seen.append((message['member'], message['payload']['data']))
            if message['member'] == 'SandboxRemoved':
                break
    monitor.terminate()
    monitor.wait()
    path = f'{ROOT}/snapshot/{held}'
    assert [d for n, d in seen if n == 'SnapshotNew'] == [[held, path]]
    assert [d for n, d in seen if n == 'SnapshotRemoved'] == [[held, path]]
    added = [d[1] for n, d in seen if n == 'InterfacesAdded' and d[0] == path]
    assert added[0][f'{NAME}.Snapshot']['Kind']['data'] == 'pause'
    assert [f'{NAME}.Snapshot' in d[1] for n, d in seen if n == 'InterfacesRemoved' and d[0] == path] == [True]
    states = [d[1]['State']['data'] for n, d in seen if n == 'PropertiesChanged' and 'State' in d[1]]
    assert states[:2] == ['paused', 'running']


def test_audit(host, guest):
    i = snapshot(host, guest)
    data(host, sandbox(guest), 'Sandbox', 'Rollback', 'sa{sv}', i, '0')
    data(host, sandbox(guest), 'Sandbox', 'Fork', 'ua{sv}', '1', '0')
    data(host, sandbox(guest), 'Sandbox', 'Pause', 'a{sv}', '0')
    data(host, sandbox(guest), 'Sandbox', 'Resume', 'a{sv}', '0')
    for what in ('snapshot', 'rollback', 'fork', 'pause', 'resume'):
        assert f'audit {what} {guest} actor=0' in host.log()
