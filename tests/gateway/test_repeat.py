# SPDX-License-Identifier: Apache-2.0
"""A create that is sent again, since its client had no answer, gets the sandbox of the first time."""

import json

import pytest

import gateway as gw
from gateway import UnixConnection
from guest import Envd


def create(client, key, status=201, path='/v2/sandboxes', **options):
    reply = client.raw('POST', path, json.dumps({'templateID': 'python', **options}), {'Idempotency-Key': key} if key else {})
    assert reply.status == status, reply.body
    return reply.json


def test_it_makes_one_however_often_it_is_sent(client):
    made = create(client, 'first-1', metadata={'a': 'b'}, envVars={'A': 'b'})
    assert [create(client, 'first-1', metadata={'a': 'b'}, envVars={'A': 'b'}) for _ in range(3)] == [made] * 3
    assert client.gateway.host.ids() == [made['sandboxID']]
    assert Envd(client.gateway.host, made).variables()['A'] == 'b'
    assert create(client, 'second-2')['sandboxID'] != made['sandboxID'] != create(client, None)['sandboxID']


def test_while_the_first_is_under_way_others_are_told_so(client):
    host = client.gateway.host
    host.envd_hold.touch()
    try:
        c = UnixConnection(client.gateway.socket)
        c.request('POST', '/v2/sandboxes', json.dumps({'templateID': 'python'}), {'X-API-Key': client.key, 'Idempotency-Key': 'once'})
        gw.wait_for('it to be begun', lambda: len(host.ids()) == 1 and f'envd waits: {host.ids()[0]}' in host.log())
        reply = client.raw('POST', '/v2/sandboxes', b'{"templateID":"python"}', {'Idempotency-Key': 'once'})
        assert (reply.status, reply.headers['Retry-After'], reply.headers['Should-Retry']) == (409, '1', 'true')
        # Another one's is his.
        other = UnixConnection(client.gateway.socket)
        other.request('POST', '/v2/sandboxes', json.dumps({'templateID': 'python'}),
                      {'X-API-Key': client.gateway.client().key, 'Idempotency-Key': 'once'})
        gw.wait_for('the other', lambda: len(host.ids()) == 2 and all(f'envd waits: {i}' in host.log() for i in host.ids()))
    finally:
        host.envd_hold.unlink()
    for i in host.ids():
        host.ctl('kill', i)
    assert {c.getresponse().status, other.getresponse().status} == {500}
    c.close()
    other.close()
    create(client, 'once')


def test_another_request_with_the_same_key_is_refused_and_ends_nothing(client):
    made = create(client, 'key', timeout=60)
    assert 'was sent with another request before' in create(client, 'key', 422, timeout=70)['message']
    assert client.gateway.host.ids() == [made['sandboxID']]


def test_a_key_is_its_tenants(gateway, client):
    assert create(client, 'same')['sandboxID'] != create(gateway.client(), 'same')['sandboxID']


def test_one_that_ended_is_made_anew_and_one_that_is_paused_is_told(client):
    first = create(client, 'again')['sandboxID']
    client.call('POST', f'/sandboxes/{first}/pause', {}, 204)
    assert create(client, 'again')['sandboxID'] == first
    assert client.call('GET', f'/sandboxes/{first}')['state'] == 'paused'
    client.call('DELETE', f'/sandboxes/{first}', status=204)
    gw.wait_for('it to be gone', lambda: client.gateway.host.ids() == [])
    assert create(client, 'again')['sandboxID'] != first


def test_who_can_not_be_served_a_second_time_loses_nothing(client):
    made = create(client, 'kept')
    client.gateway.host.envd_taken.touch()
    try:
        create(client, 'kept', 500)
    finally:
        client.gateway.host.envd_taken.unlink()
    assert client.gateway.host.ids() == [made['sandboxID']]
    assert create(client, 'kept') == made


def test_one_that_came_to_nothing_is_not_told_while_it_ends(client):
    host = client.gateway.host
    for file in (host.envd_taken, host.stop_hold):
        file.touch()
    try:
        create(client, 'ending', 500)
        host.envd_taken.unlink()
        [ending] = host.ids()
        made = create(client, 'ending')
        assert made['sandboxID'] != ending and create(client, 'ending') == made
    finally:
        host.envd_taken.unlink(missing_ok=True)
        host.stop_hold.unlink()
        host.ctl('kill', ending)


def test_a_request_that_was_long_in_coming_is_the_second_one(client):
    """What the first one made is not ended when it can't be served to the second."""
    body = json.dumps({'templateID': 'python'})
    slow = UnixConnection(client.gateway.socket)
    slow.putrequest('POST', '/v2/sandboxes')
    for name, value in {'X-API-Key': client.key, 'Idempotency-Key': 'slow', 'Content-Length': str(len(body))}.items():
        slow.putheader(name, value)
    slow.endheaders()
    # The gateway has read it before another one's answer.
    client.call('GET', '/v2/sandboxes')
    made = create(client, 'slow')
    client.gateway.host.envd_taken.touch()
    try:
        slow.send(body.encode())
        assert slow.getresponse().status == 500
    finally:
        client.gateway.host.envd_taken.unlink()
        slow.close()
    assert create(client, 'slow') == made
    assert client.gateway.host.ids() == [made['sandboxID']]


@pytest.mark.parametrize('key', ['', 'a b', 'ü', 'x' * 256])
def test_what_is_no_key(client, key):
    assert 'Idempotency-Key has 1 to 255' in client.raw('POST', '/v2/sandboxes', b'{"templateID":"python"}', {'Idempotency-Key': key.encode()}).json['message']
    assert client.gateway.host.ids() == []


def test_it_is_in_no_log_and_no_label(client):
    made = create(client, 'canary-in-idempotency')
    host = client.gateway.host
    seen = host.ctl('show', made['sandboxID']).stdout + host.log() + client.gateway.log()
    assert made['sandboxID'] in seen and 'canary' not in seen
