# SPDX-License-Identifier: Apache-2.0
"""What becomes of sandboxes when the gateway is killed: who was told of one keeps it, of others none is left. And of requests
while cubed is restarted."""

import contextlib
import json
import os
import pathlib
import signal

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


@pytest.fixture
def cubed(gateway):
    """Ends it, with what is under way, and starts another one."""
    class Cubed:
        @staticmethod
        def stop():
            os.kill(gateway.host.cubed.pid, signal.SIGSTOP)

        @staticmethod
        def kill():
            pid = gateway.host.cubed.pid
            guests = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
            gateway.host.cubed.kill()
            gateway.host.cubed.wait()
            # They are processes, which end with nobody, unless they had ended before.
            for guest in guests:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(guest), signal.SIGKILL)

        start = staticmethod(gateway.host.start_cubed)
    yield Cubed
    if gateway.host.cubed.poll() is not None:
        gateway.host.start_cubed()


def read_by_the_gateway(client):
    """Who came before is looked at before who comes later."""
    for _ in range(3):
        client.call('GET', '/health', status=204)


def ask(client, method, path, body=None):
    c = UnixConnection(client.gateway.socket)
    c.request(method, path, body and json.dumps(body), {'X-API-Key': client.key})
    return c


def answer(c):
    response = c.getresponse()
    text = response.read()
    c.close()
    return response.status, json.loads(text), response.headers


@pytest.mark.parametrize('path, status', [('/sandboxes', 200), ('/v2/sandboxes', 200), ('/snapshots', 200), ('/templates', 200),
                                          ('/sandboxes/nonexistingsandbox', 404)])
def test_who_asked_the_one_that_ended_is_answered_by_the_next(client, cubed, path, status):
    cubed.stop()
    c = ask(client, 'GET', path)
    read_by_the_gateway(client)
    cubed.kill()
    cubed.start()
    assert answer(c)[0] == status


def test_who_comes_while_there_is_none_waits_for_the_next(client, cubed):
    cubed.kill()
    asked = [ask(client, 'GET', '/v2/sandboxes'), ask(client, 'POST', '/v2/sandboxes', {'templateID': 'python'})]
    read_by_the_gateway(client)
    cubed.start()
    assert [answer(c)[0] for c in asked] == [200, 201]
    assert len(client.gateway.host.ids()) == 1


def test_what_was_begun_is_not_begun_again(client, cubed):
    """Whether the one that ended had done it nobody knows."""
    i = client.create()
    client.gateway.host.envd_hold.touch()
    try:
        c = ask(client, 'POST', f'/v2/sandboxes/{i}/connect', {'timeout': 60})
        gw.wait_for('it to be begun', lambda: f'envd waits: {i}' in client.gateway.host.log())
        cubed.kill()
        status, said, headers = answer(c)
    finally:
        client.gateway.host.envd_hold.unlink()
    assert (status, headers['Retry-After'], headers['Should-Retry']) == (503, '1', None), said


def test_after_a_while_there_is_none(client, cubed):
    cubed.kill()
    status, said, headers = answer(ask(client, 'GET', '/v2/sandboxes'))
    assert status == 503 and 'cubed is not running here' in said['message'] and headers['Retry-After'] == '1'
    # And nobody waits for it any more.
    assert client.raw('GET', '/v2/sandboxes').status == 503
    cubed.start()
    client.call('GET', '/v2/sandboxes')
