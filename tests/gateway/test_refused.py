# SPDX-License-Identifier: Apache-2.0
"""What only E2B's hosted service has is refused in words, and nothing of it falls into a 404."""

import pytest

from description import METHODS, Description

SERVICES = Description().tree['x-not-here']


@pytest.mark.parametrize('path', SERVICES)
def test_a_service_that_is_not_here(gateway, client, path):
    for target in (path, f'/v2{path}', f'/v3{path}', f'{path}/a%20name', f'{path}/id/metrics/max?start=1'):
        for method in METHODS:
            assert len(client.fails(method.upper(), target, 501)) > 40
    # Whatever it would be given.
    assert client.raw('PUT', f'{path}/v/file', b'\0no JSON').status == 501
    gateway.anonymous().fails('GET', path, 401)


def test_what_there_is_in_its_place_is_told(client):
    for path, hint in (('/volumes', 'snapshot or a template'), ('/secrets/x', 'environment'), ('/teams', 'tenant'),
                       ('/api-keys', 'cubectl apikey create'), ('/nodes', 'cubectl')):
        assert hint in client.fails('GET', path, 501)


def test_names_that_only_begin_like_one_are_no_service(client):
    for path in ('/volumesx', '/v2', '/v4/volumes', '/sandboxes/volumes/x', '/v2/v2/volumes'):
        client.fails('GET', path, 404)


def test_a_sandbox_with_the_mcp_gateway(client):
    assert 'mcp is not supported by this host' in client.fails('POST', '/v2/sandboxes', 400, {
        'templateID': 'python', 'mcp': {'github': {'token': 'x'}}})
    assert client.call('GET', '/v2/sandboxes') == []
    assert client.create(mcp=None)
