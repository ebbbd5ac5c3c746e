# SPDX-License-Identifier: Apache-2.0
"""What sandboxes use. The agent of the fake core's sandboxes is a process of this host, and so are its figures."""

import os
import time

from gateway import wait_for

NOBODYS = 'i0123456789012'


def metrics(client, i, query=''):
    return client.call('GET', f'/sandboxes/{i}/metrics{query}')


def test_one_sample_at_the_first_question(client):
    begin = int(time.time())
    i = client.create()
    [m] = metrics(client, i)
    assert begin <= m['timestampUnix'] <= time.time() and m['timestamp'].endswith('Z')
    assert m['cpuCount'] == os.cpu_count() and 0 <= m['cpuUsedPct'] <= 100
    assert 0 < m['memUsed'] < m['memTotal'] and m['memCache'] < m['memTotal']
    assert 0 < m['diskUsed'] <= m['diskTotal']


def test_questions_make_a_series_and_a_guest_is_asked_once_a_second(client):
    i = client.create()
    first = metrics(client, i)
    # At once, unless this machine stood still.
    assert metrics(client, i)[0] == first[0]

    def two():
        seen = metrics(client, i)
        return len(seen) >= 2 and seen
    seen = wait_for('a second sample', two)
    assert seen[0] == first[0]
    assert all(a['timestampUnix'] < b['timestampUnix'] for a, b in zip(seen, seen[1:]))


def test_a_range(client):
    i = client.create()
    [m] = metrics(client, i)
    at = m['timestampUnix']
    assert metrics(client, i, f'?start=0&end={at - 1}') == []
    assert metrics(client, i, f'?start=0&end={at}') == [m]
    assert metrics(client, i, f'?start={at}')[0] == m
    assert metrics(client, i, f'?start={at + 1000}') == []
    assert metrics(client, i, '?start=&end=')[0] == m
    for query in ('start=x', 'end=-1', 'start=1.5', 'start=2&end=1', 'end=99999999999999999999'):
        client.fails('GET', f'/sandboxes/{i}/metrics?{query}', 400)


def test_of_a_paused_one_what_was_seen_before(client):
    i, other = client.create(), client.create()
    seen = metrics(client, i)
    for s in (i, other):
        client.call('POST', f'/sandboxes/{s}/pause', {}, 204)
    assert metrics(client, i) == seen and metrics(client, other) == []


def test_only_of_ones_own(gateway, client):
    i = gateway.client().create()
    client.fails('GET', f'/sandboxes/{i}/metrics', 404)
    client.fails('GET', f'/sandboxes/{NOBODYS}/metrics', 404)
    assert client.call('GET', f'/sandboxes/metrics?sandbox_ids={i},{NOBODYS}') == {'sandboxes': {}}


def test_of_several(client):
    i, j, paused = client.create(), client.create(), client.create()
    client.call('POST', f'/sandboxes/{paused}/pause', {}, 204)
    seen = client.call('GET', f'/sandboxes/metrics?sandbox_ids={i},{NOBODYS},{paused},,{j}')['sandboxes']
    assert set(seen) == {i, j} and all(m['memTotal'] > 0 for m in seen.values())
    assert set(client.call('GET', f'/sandboxes/metrics?sandbox_ids={i}')['sandboxes']) == {i}
    assert client.call('GET', '/sandboxes/metrics?sandbox_ids=') == {'sandboxes': {}}
    client.fails('GET', '/sandboxes/metrics', 400)
    client.fails('GET', '/sandboxes/metrics?sandbox_ids=' + ','.join([NOBODYS] * 101), 400)
    # What can be no id is none of them.
    many = ','.join(['x', '../x', 'i' * 100] * 50)
    assert set(client.call('GET', f'/sandboxes/metrics?sandbox_ids={many},{i}')['sandboxes']) == {i}


def test_a_word_of_the_protocol_is_no_id(client):
    assert client.fails('DELETE', '/sandboxes/metrics', 405) == 'This path has no such method'
