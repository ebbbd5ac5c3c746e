# SPDX-License-Identifier: Apache-2.0
"""Each request is told in the log once, or counted: who floods it with refused ones does not fill it."""

import re

import pytest

from gateway import UnixConnection, wait_for
from test_http import Raw, head
from test_templates import HASH, ask, url

ENTRY = re.compile(r'CUBE_KEY=(\S*) CUBE_TENANT=\S* CUBE_SANDBOX=\S* CUBE_STATUS=(\d+) CUBE_REQUEST=(.*)')
MORE = re.compile(r'CUBE_KEY=(\S*) CUBE_COUNT=(\d+) more requests were refused')


@pytest.fixture
def log(gateway):
    """What is new in it, and nothing that was to be told of what was before."""
    gateway.restart()
    before = len(gateway.log())
    return lambda: gateway.log()[before:]


def counted(log, key=''):
    """How many were told, and how many more were counted."""
    return sum(k == key and status in ('401', '429') for k, status, _ in ENTRY.findall(log)), sum(int(n) for k, n in MORE.findall(log) if k == key)


def test_a_flood_without_a_key_is_counted(gateway, client, log):
    c = UnixConnection(gateway.socket)
    for _ in range(300):
        assert gateway.anonymous().raw('GET', '/v2/sandboxes', connection=c).status == 401
    c.close()
    # Of who has one all are told.
    for n in range(50):
        client.call('GET', f'/v2/sandboxes?n={n}')
    wait_for('the number to be told', lambda: sum(counted(log())) == 300)
    told, more = counted(log())
    assert told < more
    assert len({path for _, status, path in ENTRY.findall(log()) if '?n=' in path and status == '200'}) == 50


def test_a_key_beyond_its_rate_is_counted(configured, gateway):
    configured('RequestsPerSecond=1\nRequestsBurst=3\n')
    client = gateway.client()
    before = gateway.log()
    replies = [client.raw('GET', '/v2/sandboxes').status for _ in range(300)]
    gateway.stop()
    try:
        log = gateway.log()[len(before):]
    finally:
        gateway.start()
    (key,) = {k for k, status, _ in ENTRY.findall(log) if status == '429'}
    told, more = counted(log, key)
    assert told + more == replies.count(429) and told < more
    assert sum(status == '200' for _, status, _ in ENTRY.findall(log)) == replies.count(200) > 0


def test_a_key_has_its_rate_where_it_is_in_the_url_too(configured, gateway):
    """An entry for each upload, at whatever rate they come, would drive all others out of the journal."""
    configured('RequestsPerSecond=1\nRequestsBurst=5\n')
    client = gateway.client()
    path, _ = url(client, ask(client, 'uploads'))
    before = gateway.log()
    c = UnixConnection(gateway.socket)
    statuses = [gateway.anonymous().raw('PUT', path, b'x', connection=c).status for _ in range(300)]
    c.close()
    gateway.stop()
    try:
        log = gateway.log()[len(before):]
    finally:
        gateway.start()
    # What is no archive is an error of its own.
    assert statuses[0] == 400 and set(statuses) == {400, 429}
    (key,) = {k for k, status, _ in ENTRY.findall(log) if status == '429'}
    told, more = counted(log, key)
    assert told + more == statuses.count(429) and told < more


def test_who_leaves_before_he_is_answered_is_told_as_that(gateway, client, log):
    build = ask(client, 'audited')
    path, _ = url(client, build)
    upload, body = Raw(gateway), Raw(gateway)
    upload.send(f'PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc')
    body.send(head(client) + 'Content-Length: 1000\r\n\r\n{')
    for _ in range(3):
        client.call('GET', '/health', status=204)
    upload.close()
    body.close()
    wait_for('both to be told', lambda: sum(status == '499' for _, status, _ in ENTRY.findall(log())) == 2)
    told = [request.split('?')[0] for _, status, request in ENTRY.findall(log()) if status == '499']
    assert sorted(told) == ['POST /v2/sandboxes', f'PUT /templates/{build["templateID"]}/files/{HASH}']
