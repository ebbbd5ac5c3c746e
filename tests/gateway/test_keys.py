# SPDX-License-Identifier: Apache-2.0
"""API keys: who is let in, who may make them, and that nothing tells them."""

import os
import re
import stat

import gateway as gw
from gateway import NOBODY_KEY, SECRET, allow


def listed(gateway):
    result = gateway.host.ctl('apikey', 'list', '--no-legend')
    assert result.returncode == 0, result.stderr
    return {line.split()[0]: line.split()[1:3] for line in result.stdout.splitlines()}


def test_without_one_nothing_is_told(gateway):
    client = gateway.anonymous()
    for path in ('/v2/sandboxes', '/sandboxes/i0123456789012', '/nosuch'):
        assert client.fails('GET', path, 401) == 'authorization header is missing'
    client.call('GET', '/health', status=204)


def test_a_wrong_one_is_refused(gateway):
    for key in (NOBODY_KEY, 'e2b_', 'x', '', NOBODY_KEY + '0', NOBODY_KEY.upper(), 'e2b_' + 'g' * 40):
        message = gw.Client(gateway, key).raw('GET', '/v2/sandboxes', headers={'X-API-Key': key}).json
        assert message['code'] == 401 and message['message'].startswith('Invalid API key'), message


def test_a_revoked_one_is_refused_at_once(gateway):
    client = gateway.client('a-name')
    client.call('GET', '/v2/sandboxes')
    (key,) = [i for i, (name, _) in listed(gateway).items() if name == 'a-name']
    result = gateway.host.ctl('apikey', 'revoke', key)
    assert result.returncode == 0, result.stderr
    client.fails('GET', '/v2/sandboxes', 401)
    assert key not in listed(gateway)
    assert f'There is no key {key}' in gateway.host.ctl('apikey', 'revoke', key).stderr


def test_they_outlast_a_restart_and_revoked_ones_do_not(gateway):
    kept, revoked = gateway.client('kept'), gateway.client('gone')
    for i, (name, _) in listed(gateway).items():
        if name == 'gone':
            gateway.host.ctl('apikey', 'revoke', i)
    made = kept.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)
    gateway.restart()
    seen = kept.call('GET', f'/sandboxes/{made["sandboxID"]}')
    assert seen['envdAccessToken'] == made['envdAccessToken']
    revoked.fails('GET', '/v2/sandboxes', 401)


def test_only_hashes_are_kept(gateway):
    key = gateway.key()
    path = gateway.state / 'keys.json'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = [file for file in gateway.state.rglob('*') if file.is_file()]
    assert path in kept and sorted(os.listdir(gateway.state)) == ['builds', 'files', 'keys.json']
    for file in kept:
        assert not re.search('|'.join(key[n:n + 8] for n in range(4, 36)).encode(), file.read_bytes()), file


def test_damaged_keys_let_nobody_in_and_everybody_is_told(gateway):
    """It goes on, rather than to be started again and again."""
    path = gateway.state / 'keys.json'
    client = gateway.client()
    good = path.read_bytes()
    gateway.stop()
    try:
        for bad in (b'', b'{', good[:-20], b'[]', b'{"version":2,"keys":[]}', b'{"version":1,"keys":[{"id":"x"}]}', good + b'\0'):
            path.write_bytes(bad)
            gateway.log_path.write_text('')
            gateway.start()
            why = f'{path} is damaged: put it back from a copy, or remove it and make new keys'
            assert f'Nobody is let in: {why}' in gateway.log(), bad
            assert 'cubectl apikey list' in client.fails('GET', '/v2/sandboxes', 503)
            assert client.raw('GET', '/v2/sandboxes').headers['Should-Retry'] == 'false'
            client.fails('POST', '/v2/sandboxes', 503, {'templateID': 'python'})
            gateway.anonymous().call('GET', '/health', status=204)
            for argv in (['list'], ['create', 'x'], ['revoke', 'kx']):
                result = gateway.host.ctl('apikey', *argv)
                assert result.returncode == 1 and why in result.stderr and result.stdout == ''
            assert 'manage-keys' in gateway.host.ctl('apikey', 'list', uid=gw.bus_host.NOBODY).stderr
            # It is left as it was found.
            assert path.read_bytes() == bad
            gateway.stop()
    finally:
        path.write_bytes(good)
        gateway.start()
    client.call('GET', '/v2/sandboxes')


def test_keys_of_a_wrong_mode_are_not_to_be_thrown_away(gateway):
    path = gateway.state / 'keys.json'
    client = gateway.client()
    path.chmod(0)
    gateway.log_path.write_text('')
    try:
        gateway.restart()
        why = f"{path} could not be read: Permission denied: make it readable for user cube-gateway; then 'systemctl restart cube-gateway'"
        assert f'Nobody is let in: {why}' in gateway.log() and why in gateway.host.ctl('apikey', 'list').stderr
    finally:
        path.chmod(0o600)
        gateway.restart()
    client.call('GET', '/v2/sandboxes')


def test_who_may_make_them_polkit_says(gateway):
    denied = gateway.host.ctl('apikey', 'create', uid=gw.bus_host.NOBODY)
    assert denied.returncode == 1 and 'manage-keys' in denied.stderr and denied.stdout == ''
    for argv in (('list',), ('revoke', 'kx')):
        assert 'manage-keys' in gateway.host.ctl('apikey', *argv, uid=gw.bus_host.NOBODY).stderr
    allow(gateway.host, 'manage-keys')
    try:
        made = gateway.host.ctl('apikey', 'create', uid=gw.bus_host.NOBODY)
        assert made.returncode == 0 and SECRET.fullmatch(made.stdout.strip()), made.stderr
        gw.Client(gateway, made.stdout.strip()).call('GET', '/v2/sandboxes')
    finally:
        allow(gateway.host)


def test_names_and_tenants(gateway):
    gateway.key('for the robot', '--tenant=team7')
    assert ['for', 'the'] in listed(gateway).values()
    for argv in (['--tenant=Team'], ['--tenant=7'], ['--tenant=a.b'], ['--tenant=' + 'a' * 21], ['x' * 65], ['a\nb'], ['']):
        result = gateway.host.ctl('apikey', 'create', *argv)
        assert result.returncode == 1 and 'Failed to make an API key' in result.stderr and result.stdout == '', argv


def test_what_cubectl_says_when_it_does_not_run(gateway):
    gateway.stop()
    try:
        result = gateway.host.ctl('apikey', 'list')
        assert result.returncode == 1 and 'cube-gateway is not running here' in result.stderr
    finally:
        gateway.start()


def test_too_many_requests_are_put_off(configured, gateway):
    configured('RequestsPerSecond=1\nRequestsBurst=3\n')
    client, other = gateway.client(), gateway.client()
    replies = [client.raw('GET', '/v2/sandboxes') for _ in range(20)]
    late = [r for r in replies if r.status == 429]
    assert late and replies[0].status == 200
    for r in late:
        assert r.json == {'code': 429, 'message': 'Rate limit exceeded'}
        assert int(r.headers['Retry-After']) >= 1 and r.headers['RateLimit-Limit'] == '3'
        assert r.headers['Should-Retry'] is None and r.headers['RateLimit-Remaining'] == '0' and int(r.headers['RateLimit-Reset']) >= 1
    # Whose fault it is not.
    other.call('GET', '/v2/sandboxes')
    assert all(r.status == 401 for r in (gateway.anonymous().raw('GET', '/v2/sandboxes') for _ in range(20)))


def test_each_request_is_in_the_log_with_its_key_and_without_its_secret(gateway):
    key = gateway.key('the-audited')
    (key_id,) = [i for i, (name, _) in listed(gateway).items() if name == 'the-audited']
    client = gw.Client(gateway, key)
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'metadata': {'canary': 'canary-metadata'}}, 201)
    client.fails('GET', '/sandboxes/nonexistingsandbox', 404)
    gateway.anonymous().fails('GET', '/v2/sandboxes?a=%0Ab', 401)
    # As some put them where they do not belong.
    for path in (f'/{key}', f'/v2/sandboxes?apiKey={key}&x={key}', f'/sandboxes/{key}', f'/templates/{key}'):
        client.raw('DELETE', path)
    gw.Client(gateway, NOBODY_KEY).fails('GET', '/v2/sandboxes', 401)
    gateway.restart()
    log = gateway.log()
    assert f'CUBE_KEY={key_id} CUBE_TENANT={key_id} CUBE_SANDBOX={made["sandboxID"]} CUBE_STATUS=201 CUBE_REQUEST=POST /v2/sandboxes' in log
    assert f'CUBE_KEY={key_id} CUBE_TENANT={key_id} CUBE_SANDBOX=nonexistingsandbox CUBE_STATUS=404' in log
    masked = 'e2b_' + '*' * 40
    assert f'DELETE /v2/sandboxes?apiKey={masked}&x={masked}' in log
    assert f'CUBE_KEY={key_id} CUBE_TENANT={key_id} CUBE_ACTOR=0 key created: the-audited' in log
    assert 'CUBE_KEY= CUBE_TENANT= CUBE_SANDBOX= CUBE_STATUS=401 CUBE_REQUEST=GET /v2/sandboxes?a=%0Ab' in log
    for secret in (key, key[4:], NOBODY_KEY[4:], 'canary-metadata', made['envdAccessToken']):
        assert secret not in log
    assert not SECRET.search(log)


def test_every_call_is_in_the_log_with_the_id_of_its_key(gateway):
    """Whatever became of it."""
    client = gateway.client('who-asked')
    (key_id,) = [i for i, (name, _) in listed(gateway).items() if name == 'who-asked']
    calls = [(method, re.sub(r'{\w+}', 'i0123456789012', path)) for method, path in gw.DESCRIPTION.operations()
             if gw.DESCRIPTION.find(method, path).get('security') != []]
    calls += [('GET', '/volumes'), ('GET', '/nosuch'), ('PATCH', '/sandboxes'), ('GET', '/%')]
    for method, path in calls:
        client.raw(method, path, b'no JSON')
    gateway.restart()
    lines = gateway.log().splitlines()
    for method, path in calls:
        assert any(line.startswith(f'CUBE_KEY={key_id} ') and line.endswith(f' CUBE_REQUEST={method} {path}') for line in lines), path
