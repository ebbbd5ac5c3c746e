# SPDX-License-Identifier: Apache-2.0
"""One tenant that floods the gateway takes neither its calls to cubed nor its room from the others."""

import json
import os
import re
import signal

import pytest

from gateway import UnixConnection, wait_for

SLOW = {'allowOut': ['slow.example'], 'denyOut': ['0.0.0.0/0']}
TOO_MANY = 'Too many requests at once, try again'


@pytest.fixture
def held(gateway):
    """cubed loads no policy that names slow.example, until it is let."""
    gateway.host.hold.touch()
    yield gateway.host.hold.unlink
    gateway.host.hold.unlink(missing_ok=True)


@pytest.fixture
def flood(gateway, client):
    """Sends requests of one tenant, and does not wait for their answers."""
    connections = []

    def send(method, path, body, n):
        for _ in range(n):
            c = UnixConnection(gateway.socket)
            c.request(method, path, json.dumps(body) if body else None, {'X-API-Key': client.key})
            connections.append(c)
        # Those behind them are answered: they were read.
        for _ in range(3):
            client.call('GET', '/health', status=204)
        return connections
    yield send
    for c in connections:
        c.close()


def answers(connections):
    return sorted(c.getresponse().status for c in connections)


def waiting(gateway):
    return gateway.host.log().count('network load waits')


def test_creates_that_take_long(gateway, held, flood):
    before = waiting(gateway)
    connections = flood('POST', '/v2/sandboxes', {'templateID': 'python', 'network': SLOW}, 40)
    wait_for('some to wait in cubed', lambda: waiting(gateway) >= before + 4)
    others = [gateway.client() for _ in range(3)]
    assert gateway.host.ids() == []
    made = [other.create() for other in others]
    assert set(gateway.host.ids()) == set(made)
    assert waiting(gateway) == before + 4
    held()
    assert answers(connections) == [201] * 40


@pytest.fixture
def asked(gateway, tmp_path):
    """The ids of the sandboxes that cubed was asked about, in turn."""
    path = tmp_path / 'monitor'
    with open(path, 'w') as f:
        monitor = gateway.host.start(['stdbuf', '-oL', 'busctl', '--system', 'monitor', "--match=member='GetAll'"], stdout=f, stderr=f)
    wait_for('the monitor', lambda: 'Monitoring' in path.read_text())
    yield lambda: re.findall(r'Path=/org/cubed/Cube1/sandbox/(\S+)  Interface=\S+  Member=GetAll', path.read_text())
    monitor.kill()
    monitor.wait()
    gateway.host.processes.remove(monitor)


def test_calls_that_wait_for_cubed(gateway, client, flood, asked):
    """It stands still meanwhile. Those of another tenant don't stand behind all that the first one has sent, nor in a queue."""
    first, second = 'aaaaaaaaaaaa', 'bbbbbbbbbbbb'
    other = UnixConnection(gateway.socket)
    key = gateway.client().key
    os.kill(gateway.host.cubed.pid, signal.SIGSTOP)
    try:
        connections = flood('GET', f'/sandboxes/{first}', None, 150)
        other.request('GET', f'/sandboxes/{second}', headers={'X-API-Key': key})
        for _ in range(3):
            client.call('GET', '/health', status=204)
    finally:
        os.kill(gateway.host.cubed.pid, signal.SIGCONT)
    assert other.getresponse().status == 404
    other.close()
    assert answers(connections) == [404] * 150
    wait_for('all of it', lambda: len(asked()) == 151)
    assert asked() == [first] * 50 + [second] + [first] * 100


def test_the_tenant_that_waits_longest_is_next(gateway, held, flood, client):
    """Two flood: what is left to creates is all in use, and who comes next does not stand behind all that wait."""
    before = waiting(gateway)
    slow = {'templateID': 'python', 'network': SLOW}
    connections = flood('POST', '/v2/sandboxes', slow, 40)
    second = gateway.client()
    for _ in range(40):
        c = UnixConnection(gateway.socket)
        c.request('POST', '/v2/sandboxes', json.dumps(slow), {'X-API-Key': second.key})
        connections.append(c)
    wait_for('all that may to wait in cubed', lambda: waiting(gateway) == before + 6)
    third = gateway.client()
    c = UnixConnection(gateway.socket)
    c.request('POST', '/v2/sandboxes', json.dumps({'templateID': 'python', 'metadata': {'who': 'third'}}), {'X-API-Key': third.key})
    for _ in range(3):
        client.call('GET', '/health', status=204)
    held()
    assert c.getresponse().status == 201
    c.close()
    assert answers(connections) == [201] * 80
    # In the order in which they were begun: the six, and then the third tenant's at the next turn.
    begun = gateway.host.ctl('list', '--no-legend').stdout.split('\n')
    (place,) = [n for n, line in enumerate(begun) if third.call('GET', '/v2/sandboxes')[0]['sandboxID'] in line]
    assert place <= 12


def test_room_for_bodies(configured, gateway):
    """Of 256 KiB: one tenant gets half, and what others leave is for who comes next."""
    configured('BodyMax=4K\nRequestTimeoutSec=10min\n')
    part = b'POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Length: 4096\r\n\r\n' + b'x' * 4000
    one, other, last = gateway.client(), gateway.client(), gateway.client()
    open_ones = []

    def hold(client, n):
        for _ in range(n):
            c = UnixConnection(gateway.socket)
            c.connect()
            c.sock.sendall(part % client.key.encode())
            open_ones.append(c)
        for _ in range(3):
            client.call('GET', '/health', status=204)

    body = {'templateID': 'nosuch', 'x': 'y' * 4000}
    try:
        hold(one, 64)
        reply = one.raw('POST', '/v2/sandboxes', json.dumps(body))
        assert reply.status == 503 and reply.headers['Retry-After'] == '1' and reply.json['message'] == TOO_MANY
        other.fails('POST', '/v2/sandboxes', 404, body)
        hold(other, 64)
        assert other.fails('POST', '/v2/sandboxes', 503, body) == TOO_MANY
        last.fails('POST', '/v2/sandboxes', 404, body)
    finally:
        for c in open_ones:
            c.close()
    wait_for('the room to be there again', lambda: one.raw('POST', '/v2/sandboxes', json.dumps(body)).status == 404)


def test_room_for_answers_that_nobody_reads(configured, gateway):
    """They are kept for as long as a client may take to read them."""
    configured('BodyMax=64K\n')
    client, other = gateway.client(), gateway.client()
    for _ in range(40):
        client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'metadata': {'a': 'x' * 8000}}, 201)
    path, unread = '/v2/sandboxes?limit=100', []
    assert client.raw('GET', path).status == 200
    try:
        for _ in range(10):
            c = UnixConnection(gateway.socket)
            c.request('GET', path, headers={'X-API-Key': client.key})
            unread.append(c)
        wait_for('them to have all that there is', lambda: client.raw('GET', path).status == 503)
        # Of what takes none there is enough, and for others as well.
        assert client.raw('GET', '/v2/sandboxes?limit=1').status == 200
        other.call('POST', '/v2/sandboxes', {'templateID': 'python', 'metadata': {'a': 'x' * 8000}}, 201)
        assert len(other.call('GET', path)) == 1
    finally:
        for c in unread:
            c.close()
    wait_for('their room to be free', lambda: client.raw('GET', path).status == 200)


def test_requests_under_way(configured, gateway, client, held, flood):
    """Of 40: 20 of one tenant."""
    configured('ConnectionsMax=40\n')
    i = client.create()
    connections = flood('PUT', f'/sandboxes/{i}/network', SLOW, 20)
    assert client.fails('GET', '/v2/sandboxes', 503) == TOO_MANY
    assert gateway.client().call('GET', '/v2/sandboxes') == []
    held()
    assert answers(connections) == [204] * 20
    assert len(client.call('GET', '/v2/sandboxes')) == 1
