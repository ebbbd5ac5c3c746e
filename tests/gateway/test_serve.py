# SPDX-License-Identifier: Apache-2.0
"""That the guest of a sandbox serves E2B's envd by the time a client is answered."""

import pwd

import pytest

from gateway import wait_for
from guest import Envd


@pytest.fixture
def taken(gateway):
    """No guest can serve envd."""
    gateway.host.envd_taken.touch()
    yield
    gateway.host.envd_taken.unlink(missing_ok=True)


def identity(made):
    return {'E2B_SANDBOX': 'true', 'E2B_SANDBOX_ID': made['sandboxID'], 'E2B_TEMPLATE_ID': made['templateID']}


def test_a_new_one_is_served_with_its_token_and_variables(client):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'envVars': {'A': 'b=ü', 'EMPTY': ''}}, 201)
    envd = Envd(client.gateway.host, made)
    assert envd.call('GET', '/health')[0] == 204
    assert envd.variables() == {**identity(made), 'A': 'b=ü', 'EMPTY': ''}
    for token in (None, 'x' * 64, client.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)['envdAccessToken']):
        envd.token = token
        assert envd.call('GET', '/envs')[0] == 401


def test_one_without_a_token_asks_for_none(client):
    made = client.call('POST', '/sandboxes', {'templateID': 'python', 'timeout': 60}, 201)
    assert Envd(client.gateway.host, made).variables() == identity(made)


def test_where_there_is_no_such_user_as_e2bs_it_is_root(client, tmp_path):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)
    assert Envd(client.gateway.host, made).owner_of_a_new_file(tmp_path / 'f') == 0


def test_the_user_and_directory_of_the_template_go_before_that(client, tmp_path):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'daemon'}, 201)
    envd = Envd(client.gateway.host, made)
    tmp_path.chmod(0o777)
    assert envd.owner_of_a_new_file(tmp_path / 'f') == pwd.getpwnam('daemon').pw_uid
    entries = envd.call('POST', '/filesystem.Filesystem/ListDir', b'{}', **{'Content-Type': 'application/json'})[1]['entries']
    assert '/usr/bin' in [e['path'] for e in entries]


@pytest.mark.parametrize('variables, message', [
    ({'A': 1}, "field 'envVars' is not a map of strings"), (['A=1'], "field 'envVars' is not an object"),
    ({'A=B': '1'}, "'A=B' is no name of a variable"), ({'': '1'}, "'' is no name of a variable"),
    ({'a-b': '1'}, "'a-b' is no name of a variable"), ({'1A': '1'}, "'1A' is no name of a variable"),
    ({'A': 'x\0y'}, "field 'envVars' is not a map of strings"), ({'A': 'x' * 140000}, 'envVars can have'),
    ({f'A{i}': '' for i in range(1025)}, 'envVars can have'),
])
def test_variables_that_are_none(client, variables, message):
    assert message in client.fails('POST', '/v2/sandboxes', 400, {'templateID': 'python', 'envVars': variables})
    assert client.gateway.host.ids() == []


def test_large_variables(client):
    value = 'x' * 100000
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'envVars': {'A': value}}, 201)
    assert Envd(client.gateway.host, made).variables()['A'] == value


def test_variables_are_told_to_the_guest_alone(client):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'envVars': {'CANARYNAME': 'canaryvalue'}}, 201)
    host = client.gateway.host
    seen = host.call(f'/org/cubed/Cube1/sandbox/{made["sandboxID"]}', 'Sandbox', 'GetStatistics').stdout
    seen += host.ctl('show', made['sandboxID']).stdout + host.log() + client.gateway.log()
    assert made['sandboxID'] in seen and 'canary' not in seen.lower() and made['envdAccessToken'] not in seen


def test_forks_have_their_own_tokens(client):
    source = client.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)
    forked = [f['sandbox'] for f in client.call('POST', f'/sandboxes/{source["sandboxID"]}/fork', {'count': 3, 'timeout': 60}, 201)]
    assert len({s['envdAccessToken'] for s in (source, *forked)}) == 4
    for s in forked:
        envd = Envd(client.gateway.host, s)
        assert envd.variables() == identity(s)
        envd.token = source['envdAccessToken']
        assert envd.call('GET', '/envs')[0] == 401


def test_one_from_a_snapshot_has_its_own(client):
    source = client.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)
    taken = client.call('POST', f'/sandboxes/{source["sandboxID"]}/snapshots', {}, 201)
    made = client.call('POST', '/v2/sandboxes', {'templateID': taken['snapshotID'], 'envVars': {'A': 'b'}}, 201)
    assert Envd(client.gateway.host, made).variables() == {**identity(made), 'A': 'b'}
    client.call('DELETE', f'/sandboxes/{source["sandboxID"]}', status=204)
    client.call('DELETE', f'/sandboxes/{made["sandboxID"]}', status=204)
    client.call('DELETE', '/templates/' + taken['snapshotID'].replace('/', '%2F').replace(':', '%3A'), status=204)


@pytest.mark.parametrize('path', ['connect', 'resume'])
@pytest.mark.parametrize('pause, resume', [({'memory': False}, {}), ({}, {'memory': False}), ({'memory': False}, {'memory': False})])
def test_one_that_boots_from_its_disk_is_served_again(client, path, pause, resume):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'envVars': {'A': 'b'}}, 201)
    client.call('POST', f'/sandboxes/{made["sandboxID"]}/pause', pause, 204)
    again = client.call('POST', f'/sandboxes/{made["sandboxID"]}/{path}', {'timeout': 60, **resume}, 201)
    assert client.gateway.host.ctl('show', made['sandboxID'], '-p', 'Start', '--value').stdout == 'booted\n'
    assert again['envdAccessToken'] == made['envdAccessToken']
    assert Envd(client.gateway.host, again).variables() == identity(made)


def test_one_that_somebody_else_resumed_is_served_when_a_client_connects(client):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)
    client.call('POST', f'/sandboxes/{made["sandboxID"]}/pause', {'memory': False}, 204)
    assert client.gateway.host.ctl('resume', made['sandboxID']).returncode == 0
    envd = Envd(client.gateway.host, made)
    with pytest.raises(ConnectionRefusedError):
        envd.variables()
    client.call('POST', f'/v2/sandboxes/{made["sandboxID"]}/connect', {'timeout': 10})
    assert envd.variables() == identity(made)


def test_variables_outlive_a_pause_with_memory(client):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'envVars': {'A': 'b'}}, 201)
    client.call('POST', f'/sandboxes/{made["sandboxID"]}/pause', {}, 204)
    client.call('POST', f'/v2/sandboxes/{made["sandboxID"]}/connect', {}, 201)
    assert Envd(client.gateway.host, made).variables() == {**identity(made), 'A': 'b'}


def test_one_that_can_not_be_served_is_not_made(client, taken):
    for path in ('/sandboxes', '/v2/sandboxes'):
        message = client.fails('POST', path, 500, {'templateID': 'python'})
        assert 'could not be made ready for its clients' in message and 'a program in the guest has it' in message
        assert client.call('GET', '/v2/sandboxes') == []
    wait_for('both to be gone', lambda: client.gateway.host.ids() == [])


def test_a_fork_that_can_not_be_served_is_not_made(gateway, client):
    i = client.create()
    gateway.host.envd_taken.touch()
    try:
        forked = client.call('POST', f'/sandboxes/{i}/fork', {'count': 2, 'timeout': 60}, 201)
    finally:
        gateway.host.envd_taken.unlink()
    assert [f['error']['code'] for f in forked] == [500, 500] and 'could not be made ready' in forked[0]['error']['message']
    assert [s['sandboxID'] for s in client.call('GET', '/v2/sandboxes')] == [i]


def test_a_paused_one_that_can_not_be_served_is_kept(client, gateway):
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)
    client.call('POST', f'/sandboxes/{made["sandboxID"]}/pause', {'memory': False}, 204)
    gateway.host.envd_taken.touch()
    try:
        client.fails('POST', f'/v2/sandboxes/{made["sandboxID"]}/connect', 500, {})
    finally:
        gateway.host.envd_taken.unlink()
    client.call('POST', f'/v2/sandboxes/{made["sandboxID"]}/connect', {})
    assert Envd(gateway.host, made).variables() == identity(made)
