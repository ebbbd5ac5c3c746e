# SPDX-License-Identifier: Apache-2.0
"""Snapshots, forks and templates."""

import urllib.parse

import pytest


def remove(client, snapshot, status=204):
    client.call('DELETE', '/templates/' + urllib.parse.quote(snapshot, safe=''), status=status)


@pytest.fixture(autouse=True)
def tidy(gateway):
    yield
    for i in gateway.host.ids():
        gateway.host.ctl('kill', i)
    for line in gateway.host.ctl('snapshot', 'list', '--no-legend').stdout.splitlines():
        if ' template ' not in line:
            gateway.host.ctl('snapshot', 'rm', line.split()[0])


def test_one_is_taken_created_from_and_removed(client):
    i = client.create()
    taken = client.call('POST', f'/sandboxes/{i}/snapshots', {}, 201)
    assert taken['names'] == []
    assert client.call('GET', '/snapshots') == [taken]
    assert client.call('GET', f'/snapshots?sandboxID={i}') == [taken]
    client.call('DELETE', f'/sandboxes/{i}', status=204)
    assert client.call('GET', '/snapshots') == [taken]
    made = client.call('POST', '/v2/sandboxes', {'templateID': taken['snapshotID']}, 201)
    assert made['sandboxID'] != i
    client.call('DELETE', f'/sandboxes/{made["sandboxID"]}', status=204)
    remove(client, taken['snapshotID'])
    remove(client, taken['snapshotID'], 404)
    client.fails('POST', '/v2/sandboxes', 404, {'templateID': taken['snapshotID']})
    assert client.call('GET', '/snapshots') == []


def test_its_id_needs_no_escaping(client):
    """Older SDKs do none."""
    taken = client.call('POST', f'/sandboxes/{client.create()}/snapshots', {}, 201)
    client.call('DELETE', f'/templates/{taken["snapshotID"]}', status=204)
    assert client.call('GET', '/snapshots') == []


def test_names(client):
    i = client.create()
    first = client.call('POST', f'/sandboxes/{i}/snapshots', {'name': 'before'}, 201)
    assert len(first['names']) == 1 and first['names'][0].endswith('/before')
    assert client.call('GET', '/snapshots?name=before') == [first]
    assert client.call('GET', '/snapshots?name=nosuch') == []
    for name in ('before', 'before:default', first['names'][0]):
        client.call('POST', '/v2/sandboxes', {'templateID': name}, 201)
    for name in ('', 'a b', 'x:y', 'others/x', 'x' * 64, 7):
        client.fails('POST', f'/sandboxes/{i}/snapshots', 400, {'name': name})


def test_no_snapshot_has_a_tag(client):
    """Nor is one meant by a tag that does not exist."""
    i = client.create()
    taken = client.call('POST', f'/sandboxes/{i}/snapshots', {'name': 'before'}, 201)
    own = taken['names'][0]
    for name in ('before:v2', f'{own}:v2', taken['snapshotID'].replace(':default', ':v2')):
        client.fails('POST', '/v2/sandboxes', 404, {'templateID': name})
        remove(client, name, 404)
    assert client.call('GET', '/snapshots') == [taken]
    remove(client, f'{own}:default')
    assert client.call('GET', '/snapshots') == []


def test_pages(client):
    i = client.create()
    taken = [client.call('POST', f'/sandboxes/{i}/snapshots', {}, 201) for _ in range(3)][::-1]
    first = client.raw('GET', '/snapshots?limit=2')
    assert first.json == taken[:2]
    last = client.raw('GET', f'/snapshots?limit=2&nextToken={first.headers["X-Next-Token"]}')
    assert last.json == taken[2:] and last.headers['X-Next-Token'] is None
    assert client.raw('GET', '/snapshots?limit=3').headers['X-Next-Token'] is None
    client.fails('GET', '/snapshots?limit=0', 400)
    client.fails('GET', '/snapshots?nextToken=x', 400)
    client.fails('GET', '/snapshots?sandboxID=a-b-c', 400)


def test_another_tenants_is_as_not_there(gateway, client):
    other = gateway.client()
    i = other.create()
    taken = other.call('POST', f'/sandboxes/{i}/snapshots', {'name': 'mine'}, 201)
    plain = taken['snapshotID'].split(':')[0]
    whole = taken['names'][0].replace('mine', plain)
    assert client.call('GET', '/snapshots') == [] == client.call('GET', f'/snapshots?sandboxID={i}')
    for name in (taken['snapshotID'], taken['names'][0], 'mine', plain, whole, f'{whole}:default'):
        client.fails('POST', '/v2/sandboxes', 404, {'templateID': name})
        remove(client, name, 404)
    assert other.call('GET', '/snapshots') == [taken]


def test_one_of_the_hosts_is_as_not_there(gateway, client):
    snapshot = gateway.host.ctl('snapshot', gateway.host.create(), '--name=plain').stdout.strip()
    assert client.call('GET', '/snapshots') == []
    for name in (snapshot, 'plain'):
        remove(client, name, 404)
        client.fails('POST', '/v2/sandboxes', 404, {'templateID': name})


def test_one_that_the_host_took_of_ones_own_is_ones_own(gateway, client):
    snapshot = gateway.host.ctl('snapshot', client.create(), '--name=plain').stdout.strip()
    (listed,) = client.call('GET', '/snapshots')
    assert listed['snapshotID'] == f'{snapshot}:default'
    client.call('POST', '/v2/sandboxes', {'templateID': 'plain'}, 201)
    assert gateway.client().call('GET', '/snapshots') == []


def test_forks(client):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'metadata': {'a': 'b'}}, 201)
    forks = client.call('POST', f'/sandboxes/{made["sandboxID"]}/fork', {'count': 3, 'timeout': 60}, 201)
    sandboxes = [f['sandbox'] for f in forks]
    assert len({s['sandboxID'] for s in sandboxes} | {made['sandboxID']}) == 4
    assert len({s['envdAccessToken'] for s in sandboxes} | {made['envdAccessToken']}) == 4
    for s in sandboxes:
        seen = client.call('GET', f'/sandboxes/{s["sandboxID"]}')
        assert seen['state'] == 'running' and seen['metadata'] == {'a': 'b'}
        assert seen['envdAccessToken'] == s['envdAccessToken']
    assert len(client.call('POST', f'/v2/sandboxes/{made["sandboxID"]}/fork', status=201)) == 1
    assert client.fails('POST', f'/sandboxes/{made["sandboxID"]}/fork', 400, {'count': 0}) == 'Count must be at least 1'
    client.fails('POST', f'/sandboxes/{made["sandboxID"]}/fork', 400, {'count': 101})
    client.fails('POST', f'/sandboxes/{made["sandboxID"]}/fork', 400, {'timeout': 0})


def test_templates(client):
    found = {t['aliases'][0]: t for t in client.call('GET', '/templates')}
    assert 'python' in found and 'private' not in found
    assert found['python']['templateID'] == 'tpythonpython' and found['python']['names'] == ['python:latest']
    assert found['python']['public'] is True
    assert client.gateway.host.ctl('template', 'alias', 'base:v1', 'python').returncode == 0
    try:
        (python,) = [t for t in client.call('GET', '/templates') if 'python' in t['aliases']]
        assert python['aliases'] == ['python', 'base'] and python['names'] == ['python:latest', 'base:v1']
    finally:
        assert client.gateway.host.ctl('template', 'alias', '--remove', 'base:v1').returncode == 0
    assert client.call('GET', '/templates/aliases/python') == {'templateID': 'tpythonpython', 'public': True}
    client.fails('GET', '/templates/aliases/nosuch', 404)
    client.fails('GET', '/templates/aliases/private', 404)
    client.fails('GET', '/templates/aliases/a%20b', 400)
    client.fails('DELETE', '/templates/python', 403)
    client.fails('DELETE', '/templates/nosuch', 404)
    assert client.call('GET', '/templates/aliases/python')
