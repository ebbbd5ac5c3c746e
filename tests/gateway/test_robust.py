# SPDX-License-Identifier: Apache-2.0
"""Clients that are wrong, many, or gone before they are answered."""

import json
import os
import re
import resource
import signal

import pytest

import gateway as gw
from gateway import UnixConnection
from test_http import Raw, head
from test_keys import listed


@pytest.fixture
def stopped(gateway):
    """cubed stands still until it is told to go on."""
    os.kill(gateway.host.cubed.pid, signal.SIGSTOP)

    def go_on():
        os.kill(gateway.host.cubed.pid, signal.SIGCONT)
    yield go_on
    go_on()


def open_files(gateway):
    return len(os.listdir(f'/proc/{gateway.process.pid}/fd'))


def read_by_the_gateway(client):
    """Who came before is looked at before who comes later."""
    for _ in range(3):
        client.call('GET', '/health', status=204)


WRONG = [('templateID', 7), ('templateID', []), ('templateID', 'a\0b'), ('timeout', '60'), ('timeout', 1.5), ('timeout', True),
         ('timeout', {}), ('timeout', -1), ('timeout', 1 << 70), ('autoPause', 'true'), ('autoPause', 1), ('autoPauseMemory', []),
         ('metadata', 'a=b'), ('metadata', []), ('metadata', {'a': 1}), ('metadata', {'a': {}}), ('metadata', {'a': None}),
         ('allow_internet_access', 'no'), ('network', []), ('network', {'allowOut': '1.1.1.1'}), ('network', {'allowOut': [1]}),
         ('network', {'denyOut': {}}), ('network', {'allowPublicTraffic': 'no'}), ('autoResume', True)]


@pytest.mark.parametrize('name,value', WRONG)
def test_a_field_of_another_type(client, name, value):
    assert client.fails('POST', '/v2/sandboxes', 400, {'templateID': 'python', name: value})
    assert client.call('GET', '/v2/sandboxes') == []


def test_fields_that_nobody_knows_are_let_be(client):
    deep = {'a': [{'b': [None, True, 1e300, 'é']}]}
    i = client.create(somethingNew=deep, networks={}, __proto__={'x': 1})
    client.call('POST', f'/sandboxes/{i}/timeout', {'timeout': 60, 'x': deep}, 204)


def test_of_a_field_that_is_there_twice_the_last_counts(client):
    reply = client.raw('POST', '/v2/sandboxes', b'{"templateID":"nosuch","templateID":"python"}')
    assert reply.status == 201 and reply.json['alias'] == 'python'


def test_depth_has_an_end(client):
    def nested(n):
        return '{"templateID":"nosuch","x":' + '[' * n + ']' * n + '}'
    assert client.raw('POST', '/v2/sandboxes', nested(10)).status == 404
    for n in (17, 1000, 300000):
        reply = client.raw('POST', '/v2/sandboxes', nested(n))
        assert reply.status == 400 and 'Error when parsing request' in reply.json['message']


def test_requests_that_are_sent_ahead_are_answered_in_turn(gateway, client):
    r = Raw(gateway)
    paths = ['/sandboxes/nonexistingsandbox', '/nosuch', '/v2/sandboxes', '/%', '/health']
    r.send(''.join(head(client, 'GET', p) + '\r\n' for p in paths))
    r.send(head(client, 'GET', '/nosuch') + 'Connection: close\r\n\r\n')
    assert re.findall(rb'HTTP/1.1 (\d+) ', r.read()) == [b'404', b'404', b'200', b'400', b'204', b'404']
    r.close()


def test_thousands_of_connections(configured, gateway, client):
    configured('ConnectionsMax=4096\n')
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    before = open_files(gateway)
    connections = [UnixConnection(gateway.socket) for _ in range(2000)]
    try:
        for c in connections:
            c.request('GET', '/sandboxes/nonexistingsandbox', headers={'X-API-Key': client.key})
        assert {c.getresponse().status for c in connections} == {404}
        client.call('GET', '/v2/sandboxes')
    finally:
        for c in connections:
            c.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    # It may have opened one or two of its own for the first time, here and below.
    gw.wait_for('them to be closed', lambda: open_files(gateway) < before + 20)


def send_create(client, n):
    c = UnixConnection(client.gateway.socket)
    body = {'templateID': 'python', 'metadata': {'n': str(n)}, 'timeout': 77}
    c.request('POST', '/v2/sandboxes', json.dumps(body), {'X-API-Key': client.key})
    return c


def test_who_leaves_amid_a_create_leaves_a_sandbox_that_is_his(gateway, client, stopped):
    """With its time-out, as if the answer had been lost on its way."""
    before = open_files(gateway)
    connections = [send_create(client, n) for n in range(20)]
    read_by_the_gateway(client)
    for c in connections:
        c.close()
    stopped()
    gw.wait_for('all to be there', lambda: len(client.call('GET', '/v2/sandboxes')) == 20)
    theirs = client.call('GET', '/v2/sandboxes')
    assert sorted(s['metadata']['n'] for s in theirs) == sorted(map(str, range(20)))
    assert {s['sandboxID'] for s in theirs} == set(gateway.host.ids())
    for s in theirs:
        client.call('DELETE', f'/sandboxes/{s["sandboxID"]}', status=204)
    gw.wait_for('the connections to be closed', lambda: open_files(gateway) < before + 10)


def test_who_leaves_at_once_leaves_a_sandbox_that_is_his_or_none(gateway, client):
    before = open_files(gateway)
    for n in range(20):
        send_create(client, n).close()
    read_by_the_gateway(client)
    gw.wait_for('the connections to be closed', lambda: open_files(gateway) < before + 10)
    gw.wait_for('each that was made to be his',
                lambda: {s['sandboxID'] for s in client.call('GET', '/v2/sandboxes')} == set(gateway.host.ids()))


def test_a_key_that_is_revoked_while_the_body_is_under_way(gateway):
    client = gateway.client('gone-meanwhile')
    (key,) = [i for i, (name, _) in listed(gateway).items() if name == 'gone-meanwhile']
    r = Raw(gateway)
    body = '{"templateID":"python"}'
    r.send(head(client) + f'Connection: close\r\nContent-Length: {len(body)}\r\n\r\n' + body[:-1])
    read_by_the_gateway(gateway.anonymous())
    assert gateway.host.ctl('apikey', 'revoke', key).returncode == 0
    r.send(body[-1])
    answer = r.read()
    assert answer.startswith(b'HTTP/1.1 401 ') and b'revoked' in answer, answer
    assert gateway.host.ids() == []
    r.close()


def test_a_key_that_is_revoked_while_cubed_works(gateway, stopped):
    """What was begun is answered, and nothing after it."""
    client = gateway.client('gone-later')
    (key,) = [i for i, (name, _) in listed(gateway).items() if name == 'gone-later']
    c = UnixConnection(gateway.socket)
    c.request('GET', '/sandboxes/nonexistingsandbox', headers={'X-API-Key': client.key})
    read_by_the_gateway(gateway.anonymous())
    assert gateway.host.ctl('apikey', 'revoke', key).returncode == 0
    stopped()
    assert c.getresponse().read() and client.raw('GET', '/v2/sandboxes', connection=c).status == 401
    c.close()


def test_a_thousand_keys(gateway):
    path = gateway.state / 'keys.json'
    good = path.read_bytes()
    client = gateway.client('the-last')
    kept = json.loads(path.read_text())
    many = [{'id': f'kmany{n:07}', 'tenant': f'tmany{n}', 'name': f'number {n}', 'created': 1, 'sha256': f'{n:064x}'}
            for n in range(1000)]
    gateway.stop()
    path.write_text(json.dumps({**kept, 'keys': many + kept['keys']}))
    os.chown(path, gw.UID, gw.UID)
    gateway.start()
    try:
        client.call('GET', '/v2/sandboxes')
        assert len(listed(gateway)) == 1000 + len(kept['keys'])
        another = gateway.client('and-one')
        another.call('GET', '/v2/sandboxes')
        assert gateway.host.ctl('apikey', 'revoke', 'kmany0000999').returncode == 0
        assert 'kmany0000999' not in listed(gateway)
        client.call('GET', '/v2/sandboxes')
    finally:
        gateway.stop()
        path.write_bytes(good)
        gateway.start()
