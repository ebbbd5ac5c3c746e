# SPDX-License-Identifier: Apache-2.0
"""What E2B's SDKs do with sandboxes, and what they are answered."""

import concurrent.futures
import datetime
import time
import urllib.parse

import pytest

from gateway import UID, UnixConnection, allow, wait_for

MESSAGE_GONE = 'Sandbox "{}" doesn\'t exist or you don\'t have access to it'


def when(text):
    assert text.endswith('Z'), text
    return datetime.datetime.fromisoformat(text[:-1]).replace(tzinfo=datetime.timezone.utc).timestamp()


def ids(page):
    return [s['sandboxID'] for s in page]


def pages(client, query):
    """All pages of a list, each with what it says comes next."""
    token = None
    while True:
        more = f'&nextToken={urllib.parse.quote(token)}' if token else ''
        reply = client.raw('GET', f'/v2/sandboxes?{query}{more}')
        assert reply.status == 200, reply.body
        yield ids(reply.json)
        token = reply.headers['X-Next-Token']
        if not token:
            return


def test_a_sandbox_is_created_seen_and_killed(client):
    before = time.time()
    made = client.call('POST', '/v2/sandboxes', {'templateID': 'python', 'metadata': {'k 1': 'v&=ü'}}, 201)
    assert made['templateID'] == 'tpythonpython' and made['alias'] == 'python'
    assert made['clientID'] and made['envdVersion'] == '0.6.13' and len(made['envdAccessToken']) == 64
    seen = client.call('GET', f'/sandboxes/{made["sandboxID"]}')
    assert {k: seen[k] for k in ('templateID', 'sandboxID', 'state', 'cpuCount', 'memoryMB', 'diskSizeMB', 'metadata')} == {
        'templateID': 'tpythonpython', 'sandboxID': made['sandboxID'], 'state': 'running', 'cpuCount': 1, 'memoryMB': 512,
        'diskSizeMB': 4096, 'metadata': {'k 1': 'v&=ü'}}
    assert seen['lifecycle'] == {'onTimeout': 'kill', 'autoResume': False} and seen['allowInternetAccess'] is True
    assert seen['envdAccessToken'] == made['envdAccessToken']
    assert before - 1 < when(seen['startedAt']) and 290 < when(seen['endAt']) - when(seen['startedAt']) < 310
    client.call('DELETE', f'/sandboxes/{made["sandboxID"]}', status=204)
    assert client.fails('DELETE', f'/sandboxes/{made["sandboxID"]}', 404) == MESSAGE_GONE.format(made['sandboxID'])


def test_v1_has_15_seconds_and_no_token_unless_asked_for(client):
    made = client.call('POST', '/sandboxes', {'templateID': 'python'}, 201)
    assert 'envdAccessToken' not in made
    seen = client.call('GET', f'/sandboxes/{made["sandboxID"]}')
    assert 10 < when(seen['endAt']) - when(seen['startedAt']) < 20
    assert client.call('POST', '/sandboxes', {'templateID': 'python', 'secure': True}, 201)['envdAccessToken']


def test_what_old_sdks_send_unasked_is_fine(client):
    client.call('POST', '/sandboxes', {
        'templateID': 'python', 'allow_internet_access': True, 'autoPause': False, 'autoResume': {'enabled': False},
        'envVars': {}, 'metadata': {}, 'secure': True, 'timeout': 61, 'mcp': None, 'fieldOfTomorrow': {'a': [1]}}, 201)


def test_a_body_in_chunks(client):
    reply = client.raw('POST', '/v2/sandboxes', iter([b'{"templateID":', b'"python"}']))
    assert reply.status == 201, reply.body


@pytest.mark.parametrize('body, message', [
    ({}, 'templateID'), ({'templateID': ''}, 'templateID'), ({'templateID': 7}, 'templateID'),
    ({'templateID': 'python', 'timeout': 0}, 'Timeout must be greater than 0'),
    ({'templateID': 'python', 'timeout': -3}, 'Timeout must be greater than 0'),
    ({'templateID': 'python', 'timeout': 10**6}, 'Timeout cannot be greater than 86400 seconds'),
    ({'templateID': 'python', 'timeout': '5'}, "field 'timeout' is not a whole number"),
    ({'templateID': 'python', 'timeout': 1.5}, "field 'timeout' is not a whole number"),
    ({'templateID': 'python', 'metadata': {'a': 1}}, "field 'metadata' is not a map of strings"),
    ({'templateID': 'python', 'metadata': {'a': 'x' * 9000}}, 'metadata can have'),
    ({'templateID': 'python', 'metadata': {'a': 'b\0'}}, "field 'metadata' is not a map of strings"),
    ({'templateID': 'python\0x'}, 'NUL'),
    ({'templateID': 'a b'}, 'Invalid template reference: a b'), ({'templateID': 'a:b:c'}, 'Invalid template reference'),
    ({'templateID': '../../etc'}, 'Invalid template reference'),
    ({'templateID': 'python', 'autoPauseMemory': False}, 'autoPauseMemory=false only applies when autoPause is true.'),
    ({'templateID': 'python', 'autoResume': {'enabled': 1}}, "field 'enabled'"),
    ({'templateID': 'python', 'autoResume': True}, "field 'autoResume'"),
    ({'templateID': 'python', 'autoPause': True, 'autoPauseMemory': False, 'autoResume': {'enabled': True}},
     'autoPauseMemory=false cannot be combined with autoResume'),
    ({'templateID': 'python', 'volumeMounts': [{'name': 'v', 'path': '/v'}]}, 'volumeMounts is not supported'),
])
def test_what_is_wrong_is_told(client, body, message):
    assert message in client.fails('POST', '/v2/sandboxes', 400, body)
    assert client.gateway.host.ids() == []


def test_templates_that_are_not_there(client):
    assert client.fails('POST', '/v2/sandboxes', 404, {'templateID': 'nosuch'}) == "template 'nosuch' not found"
    assert client.fails('POST', '/v2/sandboxes', 404, {'templateID': 'python:x1'}) == "tag 'x1' does not exist for template 'python'"
    assert client.fails('POST', '/v2/sandboxes', 404, {'templateID': 'others/python'}) == "template 'python' not found"
    # It is another user's of this host.
    client.fails('POST', '/v2/sandboxes', 404, {'templateID': 'private'})
    client.call('POST', '/v2/sandboxes', {'templateID': 'tpythonpython'}, 201)
    client.call('POST', '/v2/sandboxes', {'templateID': 'python:default'}, 201)


@pytest.mark.parametrize('method, path', [
    ('GET', ''), ('DELETE', ''), ('POST', '/connect'), ('POST', '/timeout'), ('POST', '/refreshes'), ('POST', '/pause'),
    ('POST', '/resume'), ('PUT', '/network'), ('POST', '/snapshots'), ('POST', '/fork')])
def test_what_is_not_there(client, method, path):
    for i in ('nonexistingsandbox', 'i0123456789', 'x'):
        assert client.fails(method, f'/sandboxes/{i}{path}', 404, {'timeout': 5}) == MESSAGE_GONE.format(i)
    for i in ('a-b-c', 'A', '..', 'x%2fy', '-', 'a' * 100):
        assert client.fails(method, f'/sandboxes/{i}{path}', 400, {'timeout': 5}) == 'Invalid sandbox ID'


def test_an_id_may_have_a_client_behind_it(client):
    i = client.create()
    assert client.call('GET', f'/sandboxes/{i}-6532622b')['sandboxID'] == i


@pytest.mark.parametrize('method, path', [
    ('GET', ''), ('DELETE', ''), ('POST', '/connect'), ('POST', '/timeout'), ('POST', '/refreshes'), ('POST', '/pause'),
    ('POST', '/resume'), ('PUT', '/network'), ('POST', '/snapshots'), ('POST', '/fork')])
def test_another_tenants_is_as_not_there(gateway, client, method, path):
    i = gateway.client().create()
    assert client.fails(method, f'/sandboxes/{i}{path}', 404, {'timeout': 5}) == MESSAGE_GONE.format(i)
    assert gateway.host.ids() == [i]


def test_what_others_made_is_as_not_there_whatever_its_labels_say(gateway):
    client = gateway.client('--tenant=team')
    # Nor what another user's tenant of the same name has, also where the gateway may see all that is on the host.
    allow(gateway.host, 'list')
    made = gateway.host.call('/org/cubed/Cube1', 'Manager', 'CreateSandbox', 'sa{sv}', 'template:python', '1', 'tenant', 's', 'team',
                             uid=3)
    assert made.returncode == 0, made.stderr
    for labels in (('0',), ('1', 'labels', 'a{ss}', '1', 'e2b/tenant', 'team')):
        made = gateway.host.call('/org/cubed/Cube1', 'Manager', 'CreateSandbox', 'sa{sv}', 'template:python', *labels)
        assert made.returncode == 0, made.stderr
    assert len(gateway.host.ids()) == 3
    try:
        for i in gateway.host.ids():
            client.fails('GET', f'/sandboxes/{i}', 404)
        assert client.call('GET', '/v2/sandboxes') == []
    finally:
        allow(gateway.host)


def test_connecting_never_shortens(client):
    i = client.create(timeout=100)
    end = client.call('GET', f'/sandboxes/{i}')['endAt']
    assert client.call('POST', f'/v2/sandboxes/{i}/connect', {'timeout': 50})['sandboxID'] == i
    assert client.call('GET', f'/sandboxes/{i}')['endAt'] == end
    client.call('POST', f'/v2/sandboxes/{i}/connect')
    later = client.call('GET', f'/sandboxes/{i}')['endAt']
    assert 150 < when(later) - when(end) < 250
    client.call('POST', f'/sandboxes/{i}/connect', {'timeout': 900})
    assert when(client.call('GET', f'/sandboxes/{i}')['endAt']) > when(later)
    client.fails('POST', f'/sandboxes/{i}/connect', 400)
    client.fails('POST', f'/sandboxes/{i}/connect', 400, {})
    client.fails('POST', f'/v2/sandboxes/{i}/connect', 400, {'timeout': 0})


def test_pause_and_resume(client):
    i = client.create()
    token = client.call('GET', f'/sandboxes/{i}')['envdAccessToken']
    client.call('POST', f'/sandboxes/{i}/pause', {}, 204)
    seen = client.call('GET', f'/sandboxes/{i}')
    assert seen['state'] == 'paused' and abs(when(seen['endAt']) - time.time()) < 60
    assert client.fails('POST', f'/sandboxes/{i}/pause', 409) == f"Error pausing sandbox - sandbox '{i}' is already paused"
    client.fails('POST', f'/sandboxes/{i}/timeout', 404, {'timeout': 60})
    client.fails('POST', f'/sandboxes/{i}/snapshots', 409)
    client.fails('POST', f'/sandboxes/{i}/fork', 409)
    made = client.call('POST', f'/v2/sandboxes/{i}/connect', {'timeout': 77}, 201)
    assert made['sandboxID'] == i and made['envdAccessToken'] == token
    assert client.call('GET', f'/sandboxes/{i}')['state'] == 'running'
    assert client.fails('POST', f'/sandboxes/{i}/resume', 409) == f'Sandbox {i} is already running'
    client.call('POST', f'/sandboxes/{i}/pause', {'memory': False}, 204)
    client.call('POST', f'/sandboxes/{i}/resume', {'timeout': 60}, 201)
    client.call('POST', f'/sandboxes/{i}/pause', status=204)
    assert "field 'memory'" in client.fails('POST', f'/v2/sandboxes/{i}/connect', 400, {'memory': 'no'})
    client.call('DELETE', f'/sandboxes/{i}', status=204)


def test_many_connect_to_a_paused_one(client):
    i = client.create()
    client.call('POST', f'/sandboxes/{i}/pause', {}, 204)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: client.raw('POST', f'/v2/sandboxes/{i}/connect', '{}'), range(8)))
    assert {r.status for r in replies} <= {200, 201} and {r.json['sandboxID'] for r in replies} == {i}
    assert client.call('GET', f'/sandboxes/{i}')['state'] == 'running'


@pytest.mark.parametrize('paused', [True, False])
def test_who_connects_for_a_short_time_takes_none_from_others(client, paused):
    i = client.create(timeout=20)
    if paused:
        client.call('POST', f'/sandboxes/{i}/pause', {}, 204)
    times = [60, 7200, 30, 45, 3600, 90, 15, 50]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda t: client.raw('POST', f'/v2/sandboxes/{i}/connect', f'{{"timeout": {t}}}'), times))
    assert {r.status for r in replies} <= ({200, 201} if paused else {200})
    assert when(client.call('GET', f'/sandboxes/{i}')['endAt']) - time.time() > 7000


def test_time(client):
    i = client.create(timeout=600)
    client.call('POST', f'/sandboxes/{i}/timeout', {'timeout': 30}, 204)
    seen = client.call('GET', f'/sandboxes/{i}')
    assert when(seen['endAt']) - time.time() < 40
    client.call('POST', f'/sandboxes/{i}/refreshes', {'duration': 10}, 204)
    assert client.call('GET', f'/sandboxes/{i}')['endAt'] == seen['endAt']
    client.call('POST', f'/sandboxes/{i}/refreshes', {'duration': 3600}, 204)
    assert when(client.call('GET', f'/sandboxes/{i}')['endAt']) > when(seen['endAt'])
    for body in (None, {}, {'timeout': 'x'}, {'timeout': -1}):
        client.fails('POST', f'/sandboxes/{i}/timeout', 400, body)
    # More than there can be is cut off; none at all ends it.
    client.call('POST', f'/sandboxes/{i}/timeout', {'timeout': 10**9}, 204)
    client.call('POST', f'/sandboxes/{i}/timeout', {'timeout': 0}, 204)
    assert client.gateway.host.call(f'/org/cubed/Cube1/sandbox/{i}', 'Sandbox', 'Kill').returncode in (0, 1)


def test_what_happens_at_the_end_is_kept(client):
    for options, on_timeout in (({}, 'kill'), ({'autoPause': True}, 'pause'), ({'autoPause': True, 'autoPauseMemory': False}, 'pause')):
        i = client.create(**options)
        assert client.call('GET', f'/sandboxes/{i}')['lifecycle']['onTimeout'] == on_timeout
    listed = client.gateway.host.ctl('show', i, '-p', 'OnTimeout', '--value')
    assert listed.stdout.strip() == 'pause-disk'


def test_traffic_resumes_it_when_it_is_asked_for(client):
    for options, auto in (({'autoPause': True, 'autoResume': {'enabled': True}}, True), ({'autoResume': {'enabled': True}}, True),
                          ({'autoResume': {'enabled': False}}, False), ({'autoResume': None}, False)):
        i = client.create(**options)
        assert client.call('GET', f'/sandboxes/{i}')['lifecycle']['autoResume'] is auto
        assert client.gateway.host.ctl('show', i, '-p', 'AutoResume', '--value').stdout.strip() == ('yes' if auto else 'no')


def test_lists(client):
    made = [client.create(metadata={'n': str(n), 'k 1': 'v&=2'}) for n in range(5)]
    assert ids(client.call('GET', '/v2/sandboxes')) == made[::-1]
    assert ids(client.call('GET', '/v2/sandboxes?order=asc')) == made
    client.call('POST', f'/sandboxes/{made[4]}/pause', {}, 204)
    assert ids(client.call('GET', '/v2/sandboxes')) == made[::-1]
    assert ids(client.call('GET', '/v2/sandboxes?state=paused')) == [made[4]]
    assert ids(client.call('GET', '/v2/sandboxes?state=running')) == made[3::-1]
    assert ids(client.call('GET', '/v2/sandboxes?state=running,paused')) == made[::-1]
    assert ids(client.call('GET', '/sandboxes')) == made[3::-1]
    one = client.call('GET', '/v2/sandboxes?metadata=n%3D2')
    assert ids(one) == [made[2]] and one[0]['metadata'] == {'n': '2', 'k 1': 'v&=2'}
    assert 'envdAccessToken' not in one[0] and 'network' not in one[0]
    # As the SDKs encode it, three times.
    assert ids(client.call('GET', '/v2/sandboxes?metadata=k%2525201%3Dv%252526%25253D2%26n%3D3')) == [made[3]]
    assert client.call('GET', '/v2/sandboxes?metadata=n%3D2%26n2%3D3') == []
    assert ids(client.call('GET', '/v2/sandboxes?template=python')) == made[::-1]
    for name in ('nosuch', 'team/python', 'a%20b', '%EF%BF%BE'):
        assert client.call('GET', f'/v2/sandboxes?template={name}') == []
    started = client.call('GET', f'/sandboxes/{made[3]}')['startedAt']
    assert ids(client.call('GET', f'/v2/sandboxes?startedAfter={started[:-4]}Z')) == made[4:2:-1]


def test_pages(client):
    made = [client.create() for _ in range(5)][::-1]
    assert list(pages(client, 'limit=2')) == [made[:2], made[2:4], made[4:]]
    assert list(pages(client, 'limit=2&order=asc')) == [made[:2:-1], made[2:0:-1], made[:1]]
    # One that is just full is the last one.
    assert list(pages(client, 'limit=5')) == [made]
    for query in ('limit=0', 'limit=101', 'limit=x', 'state=dead', 'order=up', 'startedAfter=now', 'template=a:b',
                  'nextToken=x', 'nextToken=1_../..', 'metadata=x'):
        client.fails('GET', f'/v2/sandboxes?{query}', 400)


def test_a_list_goes_on_where_a_page_of_cubeds_ends(gateway):
    """Which it does at a megabyte of labels: of these there are some that no client sees."""
    client = gateway.client('--tenant=longlabels')

    def create(n):
        made = gateway.host.call('/org/cubed/Cube1', 'Manager', 'CreateSandbox', 'sa{sv}', 'template:python', '2',
                                 'tenant', 's', 'longlabels', 'labels', 'a{ss}', '2', 'long', 'x' * 100000,
                                 'e2b/metadata', f'{{"n":"{n % 2}"}}', uid=UID)
        assert made.returncode == 0, made.stderr
        return made.stdout.split('"')[1]

    made = [create(n) for n in range(24)][::-1]
    assert ids(client.call('GET', '/v2/sandboxes')) == made == ids(client.call('GET', '/sandboxes'))
    assert ids(client.call('GET', '/v2/sandboxes?metadata=n%3D1')) == made[::2]
    assert list(pages(client, 'limit=9&metadata=n%3D1')) == [made[:18:2], made[18::2]]
    assert list(pages(client, 'limit=20')) == [made[:20], made[20:]]


def test_a_list_has_ones_own(gateway, client):
    theirs = gateway.client().create()
    mine = client.create()
    assert ids(client.call('GET', '/v2/sandboxes')) == [mine] == ids(client.call('GET', '/sandboxes'))
    assert set(gateway.host.ids()) == {theirs, mine}


def test_keys_of_one_tenant_see_the_same(gateway):
    one, other = gateway.client('--tenant=team'), gateway.client('--tenant=team')
    i = one.create()
    assert other.call('GET', f'/sandboxes/{i}')['sandboxID'] == i
    assert ids(other.call('GET', '/v2/sandboxes')) == [i]
    other.call('DELETE', f'/sandboxes/{i}', status=204)


def test_many_are_created_at_once(client):
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        made = list(pool.map(lambda _: client.create(), range(50)))
    assert len(set(made)) == 50
    assert set(ids(client.call('GET', '/v2/sandboxes'))) == set(made)
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        list(pool.map(lambda i: client.call('DELETE', f'/sandboxes/{i}', status=204), made))
    assert client.call('GET', '/v2/sandboxes') == []


def test_a_vanished_client_leaves_a_sandbox_that_is_told(gateway, client):
    c = UnixConnection(gateway.socket)
    c.request('POST', '/v2/sandboxes', '{"templateID":"python"}', {'X-API-Key': client.key})
    wait_for('the sandbox to be in the making', gateway.host.ids)
    c.close()
    wait_for('the sandbox', lambda: client.call('GET', '/v2/sandboxes'))


@pytest.mark.parametrize('metadata', [{'a': '\ufffe'}, {'\ufdd0': 'a'}, {'a': '\U0001ffff'}])
def test_what_no_bus_can_carry_is_the_clients_fault(client, metadata):
    message = client.fails('POST', '/v2/sandboxes', 400, {'templateID': 'python', 'metadata': metadata})
    assert message.startswith("validation error: field 'metadata'")
