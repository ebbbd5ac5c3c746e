# SPDX-License-Identifier: Apache-2.0
"""The description says what there is. That each answer is as it says is checked in all tests here, by their client."""

import re

from description import METHODS, TOP, Description

DESCRIPTION = Description()


def target(path):
    return re.sub(r'{sandboxID}', 'nonexistingsandbox', path).replace('{template}', 'nosuch')


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
    described = {(method, re.sub(r'{sandboxID}', '{sandbox}', path)) for method, path in DESCRIPTION.operations()}
    assert len(routes) > 15 and set(routes) == described


def test_only_health_is_open(gateway):
    for method, path in DESCRIPTION.operations():
        status = gateway.anonymous().raw(method, target(path)).status
        assert status == (204 if path == '/health' else 401), (method, path)
