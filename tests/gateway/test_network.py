# SPDX-License-Identifier: Apache-2.0
"""E2B's network of a sandbox becomes a policy of cubed's."""

import json

import pytest


def policy(client, i):
    """default, allow, deny"""
    result = client.gateway.host.ctl('policy', 'show', i, '--json=short')
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    return found['default'], found.get('allow', []), found.get('deny', [])


@pytest.mark.parametrize('options, expected', [
    ({}, ('internet', [], [])),
    ({'allow_internet_access': True}, ('internet', [], [])),
    ({'allow_internet_access': False}, ('deny', [], [])),
    ({'network': {'denyOut': ['0.0.0.0/0']}}, ('deny', [], [])),
    ({'network': {'allowOut': ['1.1.1.1', '8.8.8.0/24'], 'denyOut': ['0.0.0.0/0']}}, ('deny', ['1.1.1.1', '8.8.8.0/24'], [])),
    ({'network': {'allowOut': ['*.example.com'], 'denyOut': ['0.0.0.0/0']}}, ('deny', ['*.example.com'], [])),
    ({'network': {'allowOut': ['example.com']}, 'allow_internet_access': False}, ('deny', ['example.com'], [])),
    ({'network': {'denyOut': ['8.8.8.8', '2001:db8::/32']}}, ('internet', [], ['8.8.8.8', '2001:db8::/32'])),
    ({'network': None}, ('internet', [], [])),
])
def test_create(client, options, expected):
    assert policy(client, client.create(**options)) == expected


def test_it_is_shown_as_it_was_asked_for(client):
    i = client.create(network={'allowOut': ['1.1.1.1'], 'denyOut': ['0.0.0.0/0']})
    seen = client.call('GET', f'/sandboxes/{i}')
    assert seen['network'] == {'allowOut': ['1.1.1.1'], 'denyOut': ['0.0.0.0/0']} and seen['allowInternetAccess'] is False
    i = client.create(network={'denyOut': ['8.8.8.8']})
    seen = client.call('GET', f'/sandboxes/{i}')
    assert seen['network'] == {'allowOut': [], 'denyOut': ['8.8.8.8']} and seen['allowInternetAccess'] is True


def test_an_update_replaces_all_of_it(client):
    i = client.create(network={'denyOut': ['8.8.8.8']})
    client.call('PUT', f'/sandboxes/{i}/network', {'allowOut': ['1.1.1.1'], 'denyOut': ['0.0.0.0/0']}, 204)
    assert policy(client, i) == ('deny', ['1.1.1.1'], [])
    client.call('PUT', f'/sandboxes/{i}/network', {}, 204)
    assert policy(client, i) == ('internet', [], [])
    client.call('PUT', f'/sandboxes/{i}/network', {'allow_internet_access': False}, 204)
    assert policy(client, i) == ('deny', [], [])
    client.fails('PUT', f'/sandboxes/{i}/network', 400)


@pytest.mark.parametrize('network, message', [
    ({'denyOut': ['example.com']}, 'invalid denied CIDR example.com'),
    ({'denyOut': ['1.2.3.4/33']}, 'invalid denied CIDR 1.2.3.4/33'),
    ({'denyOut': ['']}, 'invalid denied CIDR '),
    ({'allowOut': ['a b'], 'denyOut': ['0.0.0.0/0']}, 'invalid allowed address a b'),
    ({'allowOut': ['1.2.3'], 'denyOut': ['0.0.0.0/0']}, 'invalid allowed address 1.2.3'),
    ({'allowOut': ['example.com tcp:443'], 'denyOut': ['0.0.0.0/0']}, 'invalid allowed address example.com tcp:443'),
    ({'allowOut': ['example.com']}, 'When specifying allowed domains in allow out, you must include \'ALL_TRAFFIC\''),
    ({'allowOut': 'x'}, "field 'allowOut' is not a list of strings"),
    ({'allowOut': [1]}, "field 'allowOut' is not a list of strings"),
    ({'allowOut': ['10.1.2.3'], 'denyOut': ['0.0.0.0/0']}, 'private or special range'),
    ({'rules': {'a.com': []}}, 'Network transform rules are not available for your team.'),
    ({'egressProxy': {'address': 'p:1'}}, 'egressProxy is not supported'),
])
def test_what_is_refused(client, network, message):
    assert message in client.fails('POST', '/v2/sandboxes', 400, {'templateID': 'python', 'network': network})
    i = client.create()
    assert message in client.fails('PUT', f'/sandboxes/{i}/network', 400, network)
    assert policy(client, i) == ('internet', [], [])


def test_a_host_without_the_internet(configured, client):
    configured('DefaultInternetAccess=no\n')
    for options in ({}, {'allow_internet_access': True}):
        assert policy(client, client.create(**options)) == ('deny', [], [])
    i = client.create(network={'allowOut': ['example.com']})
    assert policy(client, i) == ('deny', ['example.com'], [])
    client.call('PUT', f'/sandboxes/{i}/network', {}, 204)
    assert policy(client, i) == ('deny', [], [])
