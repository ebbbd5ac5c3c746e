# SPDX-License-Identifier: Apache-2.0
"""The description says what there is. That each answer is as it says is checked in all tests here, by their client."""

import re

from description import METHODS, TOP, Description

DESCRIPTION = Description()


def target(path):
    path = path.replace('{sandboxID}', 'nonexistingsandbox').replace('{template}', 'nosuch')
    return path.replace('{hash}', '0' * 64).replace('{buildID}', '00000000-0000-4000-8000-000000000000')


def test_all_that_is_described_is_served(client):
    for method, path in DESCRIPTION.operations():
        reply = client.raw(method, target(path))
        assert reply.status != 405 and b'There is nothing at this path' not in reply.body, (method, path)


def test_nothing_else_is(client):
    for path in DESCRIPTION.tree['paths']:
        for method in METHODS:
            if DESCRIPTION.find(method, target(path)) is None:
                assert client.raw(method.upper(), target(path)).status == 405, (method, path)


def test_each_route_is_described():
    routes = re.findall(r'^        { "([A-Z]+)", "(/[^"]*)"', (TOP / 'gateway/routes.c').read_text(), re.M)
    described = {(method, re.sub('{(hash|buildID)}', '{item}', path).replace('{sandboxID}', '{sandbox}')) for method, path in DESCRIPTION.operations()}
    assert len(routes) > 15 and set(routes) == described


def test_only_health_is_open(gateway):
    """An upload needs a URL that was signed, in place of a key."""
    for method, path in DESCRIPTION.operations():
        status = gateway.anonymous().raw(method, target(path)).status
        assert status == (204 if path == '/health' else 403 if method == 'PUT' and '{hash}' in path else 401), (method, path)
