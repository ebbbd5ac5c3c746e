# SPDX-License-Identifier: Apache-2.0
"""Logs of sandboxes: what cubed knows of them, and their console, of which the fake core has two lines."""

import os

import gateway as gw


def logs(client, i, query=''):
    return client.call('GET', f'/v2/sandboxes/{i}/logs{query}')['logs']


def messages(entries):
    return [e['message'] for e in entries]


def test_life_and_console_in_order(client):
    i = client.create()
    seen = logs(client, i)
    assert messages(seen) == ['created from template python', 'running', 'Linux version 6.1', 'booted ?[31mred?[0m']
    assert [e['fields']['source'] for e in seen] == ['cubed', 'cubed', 'console', 'console']
    assert sorted(e['timestamp'] for e in seen) == [e['timestamp'] for e in seen]
    assert seen[0]['timestamp'] == client.call('GET', f'/sandboxes/{i}')['startedAt']
    assert logs(client, i, '?direction=backward') == seen[::-1]
    assert logs(client, i, '?limit=1&search=Linux') == [seen[2]]
    assert logs(client, i, '?level=error') == []


def test_the_older_path_has_lines(client):
    i = client.create()
    seen = client.call('GET', f'/sandboxes/{i}/logs?limit=5000')
    # lines of the console are of the moment at which they are read
    assert messages(seen['logEntries']) == messages(logs(client, i))
    assert seen['logs'] == [{'timestamp': e['timestamp'], 'line': e['message']} for e in seen['logEntries']]


def test_a_paused_one_has_no_console(client):
    i = client.create()
    client.call('POST', f'/sandboxes/{i}/pause', {}, 204)
    assert messages(logs(client, i)) == ['created from template python', 'paused']


def test_only_of_ones_own(gateway, client):
    i = gateway.client().create()
    for path in (f'/sandboxes/{i}/logs', f'/v2/sandboxes/{i}/logs', '/v2/sandboxes/i0123456789012/logs'):
        client.fails('GET', path, 404)


def test_questions_that_are_wrong(client):
    i = client.create()
    for query in ('cursor=x', 'limit=1001', 'limit=-1', 'direction=up', 'level=loud', 'search=' + 'x' * 257):
        client.fails('GET', f'/v2/sandboxes/{i}/logs?{query}', 400)


def test_many_at_once_leave_no_file_open(gateway, client):
    i = client.create()
    before = len(os.listdir(f'/proc/{gateway.process.pid}/fd'))
    for _ in range(50):
        assert logs(client, i)
    gw.wait_for('files to be closed', lambda: len(os.listdir(f'/proc/{gateway.process.pid}/fd')) < before + 10)
