# SPDX-License-Identifier: Apache-2.0
"""What becomes of sandboxes when the gateway is killed: who was told of one keeps it, of others none is left."""

import contextlib
import json

import pytest

import gateway as gw
from gateway import UnixConnection


@pytest.fixture
def kill(gateway):
    """Afterwards it is back."""
    def now():
        gateway.process.kill()
        gateway.process.wait()
        gw.wait_for('its end', lambda: not gateway.on_bus())
    yield now
    gateway.start()


@contextlib.contextmanager
def held(file, gateway, what):
    """Until it is left cubed, or its guests, do not get beyond that; afterwards it has said so."""
    said = gateway.host.log().count(what)
    file.touch()
    try:
        yield lambda n: gw.wait_for(what, lambda: gateway.host.log().count(what) >= said + n)
    finally:
        file.unlink()


def send(client, path, body):
    c = UnixConnection(client.gateway.socket)
    c.request('POST', path, json.dumps(body), {'X-API-Key': client.key})
    return c


def test_those_that_clients_were_told_of_outlive_it(gateway, client, kill):
    i = client.create()
    copies = [f['sandbox']['sandboxID'] for f in client.call('POST', f'/sandboxes/{i}/fork', {'count': 2, 'timeout': 60}, 201)]
    kill()
    assert sorted(gateway.host.ids()) == sorted([i, *copies])


def test_before_it_has_begun(gateway, client, kill):
    """A create that waits for its policy makes none any more."""
    loaded = gateway.host.log().count('network loads: done')
    with held(gateway.host.hold, gateway, 'network load waits') as wait:
        c = send(client, '/v2/sandboxes', {'templateID': 'python', 'network': {'allowOut': ['slow.example'], 'denyOut': ['0.0.0.0/0']}})
        wait(1)
        kill()
    gw.wait_for('it to go on', lambda: gateway.host.log().count('network loads: done') > loaded)
    gw.wait_for('it to be gone', lambda: gateway.host.ids() == [])
    c.close()


def test_while_its_guest_is_made_ready(gateway, client, kill):
    with held(gateway.host.envd_hold, gateway, 'envd waits') as wait:
        c = send(client, '/v2/sandboxes', {'templateID': 'python'})
        wait(1)
        assert len(gateway.host.ids()) == 1
        kill()
        gw.wait_for('it to be gone', lambda: gateway.host.ids() == [])
    c.close()


def test_while_the_copies_of_a_fork_are_made_ready(gateway, client, kill):
    i = client.create()
    with held(gateway.host.envd_hold, gateway, 'envd waits') as wait:
        c = send(client, f'/sandboxes/{i}/fork', {'count': 3, 'timeout': 60})
        wait(1)
        assert len(gateway.host.ids()) == 4
        kill()
        gw.wait_for('the copies to be gone', lambda: gateway.host.ids() == [i])
    c.close()
