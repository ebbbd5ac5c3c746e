# SPDX-License-Identifier: Apache-2.0
"""cubectl's verbs about saved states."""

import json

import pytest


@pytest.fixture
def host(host):
    yield host
    for i in host.ids():
        host.ctl('kill', i)
    while left := ids(host):
        assert any(host.ctl('snapshot', 'rm', i).returncode == 0 for i in left)


def ok(host, *argv):
    result = host.ctl(*argv)
    assert result.returncode == 0 and result.stderr == '', result.stderr
    return result.stdout.strip()


def ids(host):
    return [line.split()[0] for line in ok(host, 'snapshot', 'list', '--no-legend').splitlines()]


def shown(host, i, name):
    return ok(host, 'show', i, '-p', name, '--value')


def test_pause_and_resume(host, guest):
    other = host.create()
    assert ok(host, 'pause', guest, other) == ''
    assert shown(host, guest, 'State') == shown(host, other, 'State') == 'paused'
    result = host.ctl('exec', guest, 'true')
    assert result.returncode == 255 and 'resume it first' in result.stderr
    assert host.ctl('status', guest).returncode == 3
    # what is so already is no error
    assert ok(host, 'pause', guest) == ok(host, 'resume', guest, other) == ok(host, 'resume', guest) == ''
    assert ok(host, 'exec', guest, 'echo', 'here') == 'here' and shown(host, guest, 'Start') == 'restored'
    assert ok(host, 'pause', '--no-memory', guest) == ok(host, 'resume', guest) == ''
    assert shown(host, guest, 'Start') == 'booted'
    assert ok(host, 'pause', guest) == ok(host, 'resume', '--no-memory', guest) == ''
    assert shown(host, guest, 'Start') == 'booted'


def test_one_that_fails_does_not_hold_the_others(host, guest):
    result = host.ctl('pause', 'i99999999999', guest)
    assert result.returncode == 1 and "'i99999999999'" in result.stderr
    assert shown(host, guest, 'State') == 'paused'


def test_snapshot_and_create(host, guest):
    first = ok(host, 'snapshot', guest, '--name', 'before')
    second = ok(host, 'snapshot', '--name=after', guest)
    assert ids(host) == [first, second]
    show = ok(host, 'snapshot', 'show', second)
    for line in (f'Id={second}', 'Name=after', 'Kind=snapshot', f'Sandbox={guest}', f'Parent={first}', 'Durable=yes',
                 'MemoryBytes=2000', 'HasMemory=yes'):
        assert line in show.splitlines()
    new = ok(host, 'create', f'snapshot:{first}', '--label', 'a=b')
    assert shown(host, new, 'BaseSnapshot') == first and shown(host, new, 'Start') == 'restored'
    assert 'restored' in ok(host, 'status', new) and first in ok(host, 'status', new)
    for argv in (['run', f'snapshot:{first}', 'echo', 'x'], ['run', '--label', 'a=b', f'snapshot:{first}', '--', 'echo', 'x'],
                 ['run', f'snapshot:{first}', '--label', 'a=b', '--', 'echo', 'x']):
        assert ok(host, *argv) == 'x'
    assert host.ctl('run', '--', f'snapshot:{first}').returncode == 127


def test_tables_and_json(host, guest):
    i = ok(host, 'snapshot', guest, '--name', 'x')
    out = ok(host, 'snapshots')
    assert out.splitlines()[0].split() == ['ID', 'NAME', 'KIND', 'NUMBER', 'SANDBOX', 'OWNER', 'SIZE', 'CREATED']
    assert out.splitlines()[1].split()[:6] == [i, 'x', 'snapshot', '-', guest, 'root'] and '1 snapshot listed.' in out
    assert ok(host, 'snapshot', '--no-legend').split()[0] == i
    (row,) = json.loads(ok(host, 'snapshot', 'list', '-j'))
    assert row['id'] == i and row['size'] == 6000 and row['number'] is None and isinstance(row['created'], int)
    (row,) = json.loads(ok(host, 'snapshot', 'show', i, '-j', '-p', 'Kind,DiskBytes'))
    assert row == {'Kind': 'snapshot', 'DiskBytes': 3000}
    other = host.create()
    assert ok(host, 'snapshots', '--no-legend', '--sandbox', other) == ''
    assert ok(host, 'snapshots', '--no-legend', '--kind=pause') == ''


def test_removal(host, guest):
    first, second = ok(host, 'snapshot', guest), ok(host, 'snapshot', guest)
    result = host.ctl('snapshot', 'rm', first, second)
    assert result.returncode == 1 and f'snapshot {second}' in result.stderr and ids(host) == [first]
    assert ok(host, 'snapshot', 'rm', first) == '' and ids(host) == []


def test_fork(host, guest):
    copies = ok(host, 'fork', guest, '-n', '3', '--label', 'a=b', '--timeout', '1h', '--on-timeout', 'pause').splitlines()
    assert len({guest, *copies}) == 4 and set(host.ids()) == {guest, *copies}
    for i in copies:
        assert shown(host, i, 'Labels') == 'a=b' and shown(host, i, 'OnTimeout') == 'pause'
        assert shown(host, i, 'TimeoutUSec') == '1h'
    assert len(ok(host, 'fork', guest).splitlines()) == 1


def test_a_fork_of_which_some_fail(host, guest):
    result = host.ctl('fork', guest, '-n', '5')
    assert result.returncode == 1 and len(result.stdout.split()) == 3 and result.stderr.count('There are enough') == 2
    result = host.ctl('fork', guest, '-n', '4', '-j')
    answer = json.loads(result.stdout)
    assert result.returncode == 1 and all('id' in x for x in answer[:3]) and answer[3] == {'error': 'There are enough'}


def test_rollback_and_checkpoints(host):
    i = host.create('--checkpoint=exec')
    assert shown(host, i, 'Checkpoint') == 'exec'
    assert ok(host, 'checkpoints', i) == 'No checkpoints.'
    for _ in range(2):
        ok(host, 'exec', i, 'true')
    lines = [line.split() for line in ok(host, 'checkpoints', i, '--no-legend').splitlines()]
    assert [line[0] for line in lines] == ['1', '2']
    assert shown(host, i, 'BaseSnapshot') == lines[1][1]
    assert ok(host, 'rollback', i, '--to', '1') == '' and shown(host, i, 'BaseSnapshot') == lines[0][1]
    assert ok(host, 'rollback', i, lines[1][1]) == '' and shown(host, i, 'BaseSnapshot') == lines[1][1]
    assert [row['number'] for row in json.loads(ok(host, 'checkpoints', i, '-j'))] == [1, 2]
    result = host.ctl('rollback', i, '--to', '3')
    assert result.returncode == 1 and f'{i} has no checkpoint 3' in result.stderr


def test_time_outs_are_shown(host):
    i = host.create('--idle-timeout', '10min', '--on-timeout', 'pause-disk', '--checkpoint', '30s')
    show = ok(host, 'show', i).splitlines()
    for line in ('IdleTimeoutUSec=10min', 'OnTimeout=pause-disk', 'Checkpoint=interval', 'CheckpointIntervalUSec=30s',
                 'Start=booted', 'BaseSnapshot='):
        assert line in show
    status = ok(host, 'status', i)
    assert 'after 10min without work' in status and 'pause-disk' in status
