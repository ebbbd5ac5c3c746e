# SPDX-License-Identifier: Apache-2.0
"""Templates that tenants build: what is asked in which order, files, states and logs, tags, and what is refused."""

import io
import os
import re
import tarfile
import time

import pytest

import gateway as gw

HASH = 'ab' * 32


def archive(**files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w:gz') as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def step(kind, *args, **more):
    return {'type': kind, 'args': list(args), 'force': False, **more}


def ask(client, name, **more):
    return client.call('POST', '/v3/templates', {'name': name, **more}, 202)


def start(client, build, status=202, **body):
    path = f"/v2/templates/{build['templateID']}/builds/{build['buildID']}"
    reply = client.raw('POST', path, gw.json.dumps({'fromTemplate': 'python', 'steps': [], 'force': False, **body}))
    assert reply.status == status, reply.body
    return reply


def status(client, build, query=''):
    return client.call('GET', f"/templates/{build['templateID']}/builds/{build['buildID']}/status{query}")


def wait(client, build):
    gw.wait_for('the build', lambda: status(client, build)['status'] in ('ready', 'error'))
    return status(client, build)


def built(client, name, *steps, **more):
    build = ask(client, name, **more)
    start(client, build, steps=list(steps))
    end = wait(client, build)
    assert end['status'] == 'ready', end
    return build


def url(client, build, hash=HASH):
    reply = client.call('GET', f"/templates/{build['templateID']}/files/{hash}", status=201)
    scheme, rest = reply['url'].split('://')
    assert scheme == 'http' and rest.startswith('gateway/')
    return '/' + rest.split('/', 1)[1], reply['present']


def put(gateway, path, data, **headers):
    return gateway.anonymous().raw('PUT', path, data, headers)


def test_a_build_waits_until_it_is_started_once(client):
    build = ask(client, 'one:v1', tags=['x', 'v1'])
    assert build['tags'] == ['v1', 'x'] and build['aliases'] == ['one'] and build['public'] is False
    assert status(client, build)['status'] == 'waiting'
    reply = start(client, build)
    assert reply.body == b'' and reply.headers['Content-Length'] == '0'
    assert b'build is not in waiting state' in start(client, build, 400).body
    end = wait(client, build)
    assert end['status'] == 'ready' and end['logs'] == [] and end['logEntries']
    assert b'build is not in waiting state' in start(client, build, 400).body
    assert ask(client, 'one')['templateID'] == build['templateID']


def test_a_log_may_end_before_its_build(client):
    build = built(client, 'endless')
    assert 'line at 25' in [e['message'] for e in status(client, build)['logEntries']]


def test_a_build_without_a_log_is_ended(client, gateway):
    """Nobody would hear of it."""
    build = ask(client, 'logless')
    start(client, build)
    end = wait(client, build)
    assert end['status'] == 'error' and end['reason']['message'] == 'The log of this build could not be opened'

    def states():
        jobs = gateway.host.busctl('--json=short', 'call', 'org.cubed.Cube1', '/org/cubed/Cube1', 'org.freedesktop.DBus.ObjectManager',
                                   'GetManagedObjects')
        found = [o.get('org.cubed.Cube1.Job', {}) for o in gw.json.loads(jobs.stdout)['data'][0].values()]
        return [j['State']['data'] for j in found if 'logless' in j.get('Subject', {}).get('data', '')]
    gw.wait_for('its job to end', lambda: states() == ['canceled'])


def test_a_log_has_pages_and_stays_as_it_was(client):
    build = built(client, 'log', *[step('RUN', f'command {i}') for i in range(120)])
    first, second = status(client, build), status(client, build, '?logsOffset=100')
    assert len(first['logEntries']) == 100 and len(second['logEntries']) == 100
    assert status(client, build, '?logsOffset=200')['logEntries'][-1]['step'] == 'finalize'
    assert status(client, build, '?logsOffset=1&limit=2')['logEntries'] == first['logEntries'][1:3]
    assert status(client, build, '?logsOffset=100000')['logEntries'] == []
    assert status(client, build, '?level=error')['logEntries'] == []
    command = next(e for e in first['logEntries'] if e['message'] == 'command 7')
    assert command['step'] == '8' and command['level'] == 'info'


def test_what_an_earlier_build_has_done_is_told(client):
    before = step('RUN', 'done before')
    for steps, cached in ([before, before, step('RUN', 'x')], [1, 2]), ([before, before], [1, 2]), ([step('RUN', 'x'), before], []):
        build = built(client, 'cached', *steps)
        entries = [e for e in status(client, build)['logEntries'] if e['message'].endswith('] CACHED')]
        assert [(e['step'], e['message']) for e in entries] == [(str(i), f'[{i}/{len(steps)}] CACHED') for i in cached]


def test_what_is_to_be_done_in_any_case(client):
    def log(**body):
        build = ask(client, 'forced')
        start(client, build, **body)
        return [e['message'] for e in wait(client, build)['logEntries'] if e['message'].startswith('cache: ')]
    forced = [step('RUN', 'a'), {**step('RUN', 'b'), 'force': True}, {**step('RUN', 'c'), 'force': True}]
    assert log(steps=[step('RUN', 'a')]) == []
    assert log(steps=forced) == ['cache: yes, step 2 is forced']
    assert log(steps=forced, force=True) == ['cache: no, step 2 is forced']
    # Behind the two that give an image its user.
    assert log(steps=forced, fromTemplate=None, fromImage='python') == ['cache: yes, step 4 is forced']


@pytest.mark.parametrize('more, lines', [
    ({}, ['start serve', 'ready is-ready']), ({'startCmd': 'other'}, ['start other', 'ready sleep 20']),
    ({'readyCmd': 'mine'}, ['start serve', 'ready mine']),
    ({'startCmd': 'other', 'readyCmd': 'mine'}, ['start other', 'ready mine']),
])
def test_what_a_template_below_has_started_is_started(client, more, lines):
    build = ask(client, 'below')
    start(client, build, startCmd='serve', readyCmd='is-ready')
    assert wait(client, build)['status'] == 'ready'
    # Of one between the two, too.
    between = ask(client, 'between')
    start(client, between, fromTemplate='below')
    assert wait(client, between)['status'] == 'ready'
    above = ask(client, 'above')
    start(client, above, fromTemplate='between', **more)
    messages = [e['message'] for e in wait(client, above)['logEntries']]
    assert [m for m in messages if m.startswith(('start ', 'ready '))] == lines


def test_an_image_is_a_template_of_the_host_with_a_user(client):
    built(client, 'python')
    build = ask(client, 'imaged')
    start(client, build, fromTemplate=None, fromImage='docker.io/library/python:latest', steps=[step('RUN', 'x'), step('RUN', 'exit 1')])
    end = wait(client, build)
    messages = [e['message'] for e in end['logEntries']]
    assert '[1/2] RUN' in messages and 'user true' not in messages and 'on tpythonpython, 1 CPUs, 512 MiB' in messages
    assert end['reason']['step'] == '2'
    client.call('DELETE', '/templates/python', status=204)


def test_a_step_that_fails_is_named(client):
    build = ask(client, 'bad')
    start(client, build, steps=[step('RUN', 'true'), step('RUN', 'exit 1'), step('RUN', 'true')])
    end = wait(client, build)
    assert end['status'] == 'error' and end['reason']['step'] == '2'
    assert end['reason']['message'].startswith('step 2 of 2 (RUN) ended with exit status 1')
    assert end['logEntries'][-1]['level'] == 'error' and 'bad' not in end['reason']['message']
    assert client.call('GET', '/templates/aliases/bad', status=404)


@pytest.mark.parametrize('body, words', [
    ({}, 'Name is required'),
    ({'name': 'a b'}, 'Invalid name'),
    ({'name': 'x' * 64}, 'Invalid name'),
    ({'name': 'other/x'}, 'Invalid name'),
    ({'name': 'a..b'}, 'Invalid name'),
    ({'name': 'x', 'tags': [':y']}, 'Invalid tag'),
    ({'name': 'x', 'tags': ['00000000-0000-4000-8000-000000000000']}, 'Invalid tag'),
    ({'name': 'x', 'tags': 'y'}, "'tags' is not a list of strings"),
    ({'name': 'x', 'tags': [f't{i}' for i in range(20)]}, '14 tags at once'),
    ({'name': 'x', 'cpuCount': 0}, 'cpuCount has to be from 1 to 16'),
    ({'name': 'x', 'memoryMB': 64}, 'memoryMB has to be from 128'),
])
def test_what_is_no_build_is_refused(client, body, words):
    assert words in client.fails('POST', '/v3/templates', 400, body)


@pytest.mark.parametrize('body, words', [
    ({'fromTemplate': None}, 'fromImage or fromTemplate'),
    ({'fromImage': 'ubuntu'}, 'fromImage or fromTemplate'),
    ({'fromTemplate': None, 'fromImage': 'elsewhere.test/a/b'}, 'fetches no images from elsewhere.test'),
    ({'fromTemplate': None, 'fromImage': 'python:'}, "'python:' is not the name of an image"),
    ({'fromTemplate': None, 'fromImage': 'python', 'fromImageRegistry': {'type': 'aws'}}, 'aws ecr get-login-password'),
    ({'steps': [step('ADD', 'x')]}, 'no steps of type ADD'),
    ({'steps': [step('COPY', 'a', 'b')]}, 'step 1: COPY requires files hash to be set'),
    ({'steps': [step('RUN')]}, 'step 1: RUN takes other arguments'),
    ({'steps': [step('ENV', 'A')]}, 'step 1: ENV takes other arguments'),
    ({'steps': [step('RUN', 'x'), 7]}, 'step 2 is not an object'),
    ({'steps': [step('COPY', '../a', 'b', filesHash=HASH)]}, 'step 1: the source of a COPY leads out'),
    ({'steps': [step('COPY', 'a', 'b', filesHash='cd' * 32)]}, 'step 1: its files were not uploaded'),
    ({'steps': [step('RUN', 'x')] * 201}, '200 steps at most'),
])
def test_what_cant_be_built_is_refused_and_can_be_mended(client, body, words):
    build = ask(client, 'refused')
    assert words in start(client, build, 400, **body).body.decode()
    assert status(client, build)['status'] == 'waiting'
    start(client, build)
    assert wait(client, build)['status'] == 'ready'


def test_files_are_uploaded_once_and_reach_the_build(gateway, client):
    data = archive(**{'app/x': os.urandom(200000)})
    build = ask(client, 'files')
    path, present = url(client, build)
    assert not present
    assert put(gateway, path, data).status == 200
    assert url(client, build)[1]
    start(client, build, steps=[step('COPY', 'app/*', '/srv', '', '', filesHash=HASH), step('RUN', 'x')])
    messages = [e['message'] for e in wait(client, build)['logEntries']]
    assert f'with 1 of {len(data)} bytes' in messages and '/.cube-build/1 app /srv  ' in messages
    # Nothing is left of the directory of the build, and the files are for the next one.
    assert os.listdir(gateway.state / 'builds') == []
    other = ask(client, 'files-2')
    assert url(client, other)[1]


def test_files_of_a_tenant_are_his(gateway, client):
    build = ask(client, 'files')
    assert put(gateway, url(client, build)[0], archive(x=b'1')).status == 200
    other = gateway.client()
    theirs = ask(other, 'files')
    assert theirs['templateID'] != build['templateID']
    path, present = url(other, theirs)
    assert not present
    assert other.call('GET', f"/templates/{build['templateID']}/files/{HASH}", status=404)


@pytest.mark.parametrize('kind', ['RUN', 'ENV'])
@pytest.mark.parametrize('path', ['../../keys.json', '../{tenant}/{hash}'])
def test_no_step_brings_a_file_but_a_copy_of_what_was_uploaded(gateway, client, kind, path):
    """Not the gateway's own, nor what another tenant has uploaded."""
    victim = gateway.client()
    theirs = ask(victim, 'theirs')
    assert put(gateway, url(victim, theirs)[0], archive(a=b'a secret')).status == 200
    tenant = theirs['names'][0].split('/')[0]
    build = ask(client, 'ours')
    assert put(gateway, url(client, build, 'cd' * 32)[0], archive(a=b'ours')).status == 200
    assert (gateway.state / 'keys.json').exists() and (gateway.state / 'files' / tenant / HASH).exists()
    start(client, build, steps=[step(kind, 'a', *(['b'] if kind == 'ENV' else []), filesHash=path.format(tenant=tenant, hash=HASH))])
    end = wait(client, build)
    assert end['status'] == 'ready' and 'copy of a directory' not in str(end['logEntries'])


def test_an_upload_needs_what_was_signed(gateway, client):
    path, _ = url(client, ask(client, 'signed'), 'cd' * 32)
    good = archive(x=b'1')
    key = re.search('key=([a-z0-9]+)', path)[1]
    other = re.search('key=([a-z0-9]+)', url(o := gateway.client(), ask(o, 'other'))[0])[1]
    for wrong in (path.replace('cd' * 32, 'ef' * 32), path.replace(f'key={key}', f'key={other}'), path.replace(key, 'nosuch'),
                  path[:-1], path + '0',
                  re.sub('expires=[0-9]+', f'expires={int(time.time()) + 999999}', path), path.split('?')[0],
                  path.replace('/templates/', '/templates/x')):
        assert put(gateway, wrong, good).status in (403, 404), wrong
    assert put(gateway, path, good).status == 200
    assert 'signature=' not in gateway.log()
    assert gateway.host.ctl('apikey', 'revoke', key).returncode == 0
    assert put(gateway, path, good).status == 403


@pytest.mark.parametrize('data, words', [(b'', 'neither a tar'), (b'#' * 1000, 'neither a tar'), (b'\x1f\x8b', 'neither a tar')])
def test_what_is_no_archive_is_refused(gateway, client, data, words):
    path, _ = url(client, ask(client, 'archive'), '12' * 32)
    reply = put(gateway, path, data)
    assert reply.status == 400 and words in reply.json['message']
    assert not url(client, ask(client, 'archive'), '12' * 32)[1]


def test_an_upload_is_bounded(gateway, configured):
    configured('UploadMax=100K\nUploadsMax=150K')
    client = gateway.client()
    build = ask(client, 'bounded')
    data = archive(x=os.urandom(90000))
    assert put(gateway, url(client, build, '01' * 32)[0], data).status == 200
    assert put(gateway, url(client, build, '02' * 32)[0], os.urandom(110000)).status == 413
    assert url(client, build, '01' * 32)[1]
    # The oldest makes room.
    assert put(gateway, url(client, build, '03' * 32)[0], data).status == 200
    assert not url(client, build, '01' * 32)[1] and url(client, build, '03' * 32)[1]


def test_a_client_that_vanishes_leaves_no_part_of_an_upload(gateway, client):
    path, _ = url(client, ask(client, 'vanish'), '55' * 32)
    tenant = re.search('key=([a-z0-9]+)', path)[1]
    c = gw.UnixConnection(gateway.socket)
    c.putrequest('PUT', path)
    c.putheader('Content-Length', '100000')
    c.endheaders()
    c.send(b'x' * 50000)
    files = gateway.state / 'files' / tenant
    gw.wait_for('the part', lambda: files.is_dir() and os.listdir(files))
    c.close()
    gw.wait_for('its end', lambda: not os.listdir(files))


def test_a_gateway_that_was_killed_leaves_no_part_of_an_upload(gateway, configured):
    configured('UploadMax=100K\nUploadsMax=150K')
    client = gateway.client()
    path, _ = url(client, ask(client, 'killed'), '57' * 32)
    c = gw.UnixConnection(gateway.socket)
    c.putrequest('PUT', path)
    c.putheader('Content-Length', '100000')
    c.endheaders()
    files = gateway.state / 'files' / re.search('key=([a-z0-9]+)', path)[1]
    gw.wait_for('the part', lambda: files.is_dir() and os.listdir(files))
    (gateway.state / 'builds/of-before').mkdir()
    gateway.process.kill()
    gateway.process.wait()
    c.close()
    gateway.start('UploadMax=100K\nUploadsMax=150K')
    assert not files.exists() and os.listdir(gateway.state / 'builds') == []
    path, _ = url(client, ask(client, 'killed'), '57' * 32)
    assert put(gateway, path, archive(x=os.urandom(90000))).status == 200


def test_uploads_of_one_tenant_leave_room_for_others(gateway, configured):
    configured('ConnectionsMax=8')
    client, other = gateway.client(), gateway.client()
    path, _ = url(client, ask(client, 'many'), '56' * 32)
    under_way = []
    for _ in range(4):
        c = gw.UnixConnection(gateway.socket)
        c.putrequest('PUT', path)
        c.putheader('Content-Length', '1000')
        c.endheaders()
        under_way.append(c)
    files = gateway.state / 'files' / re.search('key=([a-z0-9]+)', path)[1]
    gw.wait_for('the parts', lambda: files.is_dir() and len(os.listdir(files)) == 4)
    reply = put(gateway, path, archive(x=b'1'))
    assert reply.status == 503 and reply.json['message'] == 'Too many requests at once, try again'
    assert put(gateway, url(other, ask(other, 'one'))[0], archive(x=b'1')).status == 200
    for c in under_way:
        c.close()
    gw.wait_for('their end', lambda: not os.listdir(files))
    assert put(gateway, path, archive(x=b'1')).status == 200


def test_tags(client):
    first, second = built(client, 'tagged:v1'), built(client, 'tagged:v2')
    assert first['templateID'] == second['templateID']
    assert client.call('POST', '/templates/tags', {'target': 'tagged:v1', 'tags': ['default', 'old']}, 201) == {
        'buildID': first['buildID'], 'tags': ['default', 'old']}
    tags = {t['tag']: t['buildID'] for t in client.call('GET', '/templates/tagged/tags')}
    assert tags == {'v1': first['buildID'], 'v2': second['buildID'], 'default': first['buildID'], 'old': first['buildID']}
    client.call('DELETE', '/templates/tags', {'name': 'tagged', 'tags': ['old', 'v2']}, 204)
    assert {t['tag'] for t in client.call('GET', f"/templates/{first['templateID']}/tags")} == {'v1', 'default'}
    # What has no tag any more is found by its build all the same, until there is another one.
    path = f"/templates/aliases/tagged:{second['buildID']}"
    assert client.call('GET', path)['templateID'] == first['templateID']
    built(client, 'tagged:v3')
    gw.wait_for('its end', lambda: client.raw('GET', path).status == 404)
    assert client.call('GET', f"/templates/aliases/tagged:{first['buildID']}")


@pytest.mark.parametrize('method, body, code, words', [
    ('POST', {'target': 'nosuch', 'tags': ['a']}, 404, "template 'nosuch' not found"),
    ('POST', {'target': 'taglike:nosuch', 'tags': ['a']}, 404, "with tag 'nosuch' not found"),
    ('POST', {'target': 'taglike', 'tags': []}, 400, 'At least one tag is required'),
    ('POST', {'target': 'taglike', 'tags': ['n:']}, 400, 'Invalid tag'),
    ('POST', {'target': ':x', 'tags': ['a']}, 400, 'Invalid target template format'),
    ('POST', {'target': 'python', 'tags': ['a']}, 403, "don't have access"),
    ('POST', {'tags': ['a']}, 400, "'target' is missing"),
    ('DELETE', {'name': 'taglike', 'tags': ['default']}, 400, "Cannot delete the 'default' tag"),
    ('DELETE', {'name': 'taglike', 'tags': ['nosuch']}, 404, "tag 'nosuch' does not exist"),
    ('DELETE', {'name': 'taglike:v1', 'tags': ['a']}, 400, 'should not contain a tag'),
    ('DELETE', {'name': 'nosuch', 'tags': ['a']}, 404, "template 'nosuch' not found"),
])
def test_tags_that_are_refused(client, method, body, code, words):
    built(client, 'taglike')
    assert words in client.fails(method, '/templates/tags', code, body)


def test_a_sandbox_of_a_template_of_ones_own(client):
    build = built(client, 'mine', cpuCount=2, memoryMB=1024)
    for ref in ('mine', 'mine:default', build['templateID'], f"mine:{build['buildID']}"):
        i = client.create(templateID=ref)
        info = client.call('GET', f'/sandboxes/{i}')
        assert (info['templateID'], info['alias']) == (build['templateID'], 'mine')
        client.call('DELETE', f'/sandboxes/{i}', status=204)
    assert client.fails('POST', '/v2/sandboxes', 404, {'templateID': 'mine:v9'}) == "tag 'v9' does not exist for template 'mine'"


def test_ones_own_name_goes_before_the_hosts(client):
    build = built(client, 'online')
    assert client.call('GET', '/templates/aliases/online') == {'templateID': build['templateID'], 'public': False}
    client.call('DELETE', '/templates/online', status=204)
    assert client.call('GET', '/templates/aliases/online')['public'] is True
    assert client.fails('DELETE', '/templates/online', 403) == "template 'online' belongs to the host"


def test_a_name_is_there_without_the_default_tag(client):
    build = built(client, 'tagless:v1')
    assert client.call('GET', '/templates/aliases/tagless')['templateID'] == build['templateID']
    assert client.call('GET', '/templates/aliases/tagless:default', status=404)
    assert client.fails('POST', '/v2/sandboxes', 404, {'templateID': 'tagless'}) == "tag 'default' does not exist for template 'tagless'"
    assert [t['tag'] for t in client.call('GET', '/templates/tagless/tags')] == ['v1']
    client.call('DELETE', '/templates/tagless', status=204)
    assert client.call('GET', '/templates/aliases/tagless', status=404)


def test_the_list_has_ones_own_once(client):
    build = built(client, 'listed:v1')
    built(client, 'listed', cpuCount=2, memoryMB=1024)
    mine = [t for t in client.call('GET', '/templates') if t['templateID'] == build['templateID']]
    assert len(mine) == 1 and mine[0]['aliases'] == ['listed'] and mine[0]['public'] is False
    assert mine[0]['names'] == ['listed:default'] and mine[0]['buildID'] != build['buildID']
    assert (mine[0]['cpuCount'], mine[0]['memoryMB']) == (2, 1024)
    assert 'python' in [a for t in client.call('GET', '/templates') for a in t['aliases']]


def test_tenants_dont_see_each_others(gateway, client):
    tenant = re.findall(r'CUBE_TENANT=(\w+) CUBE_ACTOR=0 key created', gateway.log())[-1]
    build = built(client, 'secret')
    other = gateway.client()
    for ref in ('secret', build['templateID'], f'{tenant}..secret', f'{tenant}/secret', f"secret:{build['buildID']}"):
        assert other.raw('POST', '/v2/sandboxes', gw.json.dumps({'templateID': ref})).status in (400, 404), ref
        assert other.raw('GET', f"/templates/aliases/{ref.replace('/', '%2F')}").status in (400, 404), ref
        assert other.raw('DELETE', f"/templates/{ref.replace('/', '%2F')}").status in (400, 404), ref
    assert status_of(other, build) == 404 and status_of(client, build) == 200
    assert build['templateID'] not in [t['templateID'] for t in other.call('GET', '/templates')]
    assert other.fails('POST', '/templates/tags', 404, {'target': 'secret', 'tags': ['a']})
    # The same name is another template of another tenant.
    assert built(other, 'secret')['templateID'] != build['templateID']
    client.call('DELETE', '/templates/secret', status=204)
    assert other.call('GET', '/templates/aliases/secret')
    assert client.call('GET', '/templates/aliases/secret', status=404)


def status_of(client, build):
    return client.raw('GET', f"/templates/{build['templateID']}/builds/{build['buildID']}/status").status


def test_what_is_built_is_known_to_a_gateway_that_was_started_anew(gateway, client):
    build = built(client, 'kept:v1')
    waiting = ask(client, 'kept')
    gateway.restart()
    assert status(client, build)['status'] == 'ready' and status(client, build)['logEntries'] == []
    assert client.call('GET', '/templates/kept/tags')[0]['buildID'] == build['buildID']
    assert status_of(client, waiting) == 404


def test_a_tenant_has_so_many_builds_at_once(gateway):
    client = gateway.client()
    for i in range(16):
        ask(client, f'many-{i}')
    assert 'maximum number of concurrent template builds' in client.fails('POST', '/v3/templates', 429, {'name': 'one-more'})
    ask(gateway.client(), 'another-tenant')


def test_there_is_always_some_for_who_comes_next(gateway):
    for _ in range(5):
        client = gateway.client()
        for i in range(16):
            client.raw('POST', '/v3/templates', gw.json.dumps({'name': f'many-{i}'}))
    ask(gateway.client(), 'another-tenant')


def test_what_became_of_a_build_is_told_however_many_another_tenant_has(gateway, client):
    def fail(of, n):
        builds = [ask(of, f'bad-{i}') for i in range(n)]
        for build in builds:
            start(of, build, steps=[step('RUN', 'exit 1')])
        assert [wait(of, build)['status'] for build in builds] == ['error'] * n
        return builds[0]
    # Of those before none waits any more.
    gateway.restart()
    kept, other = fail(client, 1), gateway.client()
    first = fail(other, 1)
    for _ in range(8):
        fail(other, 8)
    assert status(client, kept)['reason']['step'] == '1'
    assert other.raw('GET', f"/templates/{first['templateID']}/builds/{first['buildID']}/status").status == 404


def test_a_tenant_has_so_many_templates(gateway, configured):
    configured('TemplatesMax=2')
    client = gateway.client()
    built(client, 'first')
    built(client, 'second')
    build = ask(client, 'third')
    assert b'as many as TemplatesMax= allows' in start(client, build, 403).body
    client.call('DELETE', '/templates/first', status=204)
    start(client, build)
    assert wait(client, build)['status'] == 'ready'


def stored(gateway):
    """Those of all tenants that cubed has, by id, with or without a name."""
    reply = gateway.host.busctl('--json=short', 'call', 'org.cubed.Cube1', '/org/cubed/Cube1', 'org.cubed.Cube1.Manager', 'ListTemplates')
    assert reply.returncode == 0, reply.stderr
    return {t[0] for t in gw.json.loads(reply.stdout)['data'][0] if t[2] == gw.UID}


def until_gone(client, build, name):
    gw.wait_for('its end', lambda: client.raw('GET', f"/templates/aliases/{name}:{build['buildID']}").status == 404)


def start_when_there_is_room(client, build):
    path = f"/v2/templates/{build['templateID']}/builds/{build['buildID']}"
    body = gw.json.dumps({'fromTemplate': 'python', 'steps': [], 'force': False})
    gw.wait_for('room', lambda: client.raw('POST', path, body).status == 202)


def nameless(gateway):
    """Ids of those of all tenants that have lost their names."""
    reply = gateway.host.busctl('--json=short', 'call', 'org.cubed.Cube1', '/org/cubed/Cube1', 'org.freedesktop.DBus.ObjectManager',
                                'GetManagedObjects')
    assert reply.returncode == 0, reply.stderr
    templates = [i['org.cubed.Cube1.Template'] for i in gw.json.loads(reply.stdout)['data'][0].values() if 'org.cubed.Cube1.Template' in i]
    return {t['Id']['data'] for t in templates if t['Owner']['data'] == gw.UID and not t['Name']['data'] and not t['Aliases']['data']}


def test_a_name_that_is_built_again_leaves_what_it_stood_for_to_the_next_build(gateway, client):
    """Who just asked for it by name finds it there."""
    before = stored(gateway)
    last = built(client, 'again')
    for _ in range(3):
        build = built(client, 'again')
        until_gone(client, last, 'again')
        gw.wait_for('the end of the one before', lambda: len(stored(gateway) - before) == 2)
        last = build
    assert client.call('GET', f"/templates/aliases/again:{last['buildID']}")['templateID'] == last['templateID']
    client.call('DELETE', '/templates/again', status=204)
    gw.wait_for('the end of both', lambda: stored(gateway) == before)


def test_what_a_sandbox_stands_on_stays_and_counts(gateway, client, configured):
    """Of what has no name any more a tenant has as many as of what has one."""
    before = nameless(gateway)
    first = built(client, 'held')
    sandbox = client.create(templateID='held')
    built(client, 'held')
    until_gone(client, first, 'held')
    client.call('DELETE', '/templates/held', status=204)
    held = nameless(gateway) - before
    assert len(held) == 1
    configured('TemplatesMax=1')
    other = ask(client, 'other')
    assert b'that others took the place of' in start(client, other, 403).body
    assert held <= nameless(gateway)
    client.call('DELETE', f'/sandboxes/{sandbox}', status=204)
    start_when_there_is_room(client, other)
    assert wait(client, other)['status'] == 'ready' and not held & stored(gateway)


def test_what_an_admin_gave_a_name_stays(gateway, client):
    before = stored(gateway)
    build = built(client, 'pinned')
    kept, = stored(gateway) - before
    reply = gateway.host.call('/org/cubed/Cube1', 'Manager', 'AliasTemplate', 'ss', 'keepme:latest', kept, uid=0)
    assert reply.returncode == 0, reply.stderr
    for _ in range(2):
        last, build = build, built(client, 'pinned')
        until_gone(client, last, 'pinned')
    client.call('DELETE', '/templates/pinned', status=204)
    assert kept in stored(gateway)
    assert gateway.host.call('/org/cubed/Cube1', 'Manager', 'RemoveTemplate', 's', kept, uid=0).returncode == 0


def test_what_has_no_name_counts_and_goes(gateway, configured):
    configured('TemplatesMax=1')
    client = gateway.client()
    tenant = re.findall(r'CUBE_TENANT=(\w+) CUBE_ACTOR=0 key created', gateway.log())[-1]
    before = stored(gateway)
    build = built(client, 'lost')
    for tag in ('latest', build['buildID']):
        reply = gateway.host.call('/org/cubed/Cube1', 'Manager', 'AliasTemplate', 'ss', f'{tenant}..lost:{tag}', '', uid=gw.UID)
        assert reply.returncode == 0, reply.stderr
    assert client.call('GET', '/templates/aliases/lost', status=404) and len(stored(gateway) - before) == 1
    other = ask(client, 'other')
    start(client, other, 403)
    start_when_there_is_room(client, other)
    assert wait(client, other)['status'] == 'ready' and len(stored(gateway) - before) == 1


def test_what_is_being_built_counts(gateway, configured):
    configured('TemplatesMax=2')
    client = gateway.client()
    builds = [ask(client, f'at-once-{i}') for i in range(3)]
    for build in builds[:2]:
        start(client, build)
    assert b'with those under way' in start(client, builds[2], 403).body
    assert [wait(client, b)['status'] for b in builds[:2]] == ['ready'] * 2


def test_one_with_its_builds(client):
    first, second = built(client, 'info:a'), built(client, 'info:b', cpuCount=2, memoryMB=1024)
    waiting = ask(client, 'info')
    info = client.call('GET', '/templates/info')
    assert info['templateID'] == first['templateID'] and info['public'] is False and info['aliases'] == ['info']
    assert sorted(info['names']) == ['info:a', 'info:b'] and info['lastSpawnedAt'] is None
    builds = {b['buildID']: b for b in info['builds']}
    assert {i: b['status'] for i, b in builds.items()} == {first['buildID']: 'ready', second['buildID']: 'ready',
                                                           waiting['buildID']: 'waiting'}
    assert (builds[second['buildID']]['cpuCount'], builds[second['buildID']]['memoryMB']) == (2, 1024)
    assert [b['createdAt'] for b in info['builds']] == sorted((b['createdAt'] for b in info['builds']), reverse=True)
    assert client.call('GET', f"/templates/{first['templateID']}") == info
    host = client.call('GET', '/templates/python')
    assert host['public'] is True and host['templateID'] == 'tpythonpython' and len(host['builds']) == 1
    assert "template 'nosuch' not found" in client.fails('GET', '/templates/nosuch', 404)


def test_builds_have_pages(client):
    for tag in 'abc':
        built(client, f'paged:{tag}')
    whole = [b['buildID'] for b in client.call('GET', '/templates/paged')['builds']]
    found, query = [], '?limit=2'
    while query:
        reply = client.raw('GET', f'/templates/paged{query}')
        found.append([b['buildID'] for b in reply.json['builds']])
        token = reply.headers['X-Next-Token']
        query = token and f'?limit=2&nextToken={token}'
    assert found == [whole[:2], whole[2:]] and len(whole) == 3
    assert 'Invalid next token' in client.fails('GET', '/templates/paged?nextToken=nosuch', 400)
    assert 'limit is 1 to 100' in client.fails('GET', '/templates/paged?limit=0', 400)


def test_the_list_has_pages(client):
    for name in ('page-a', 'page-b', 'page-c'):
        built(client, name)
    whole = client.call('GET', '/v2/templates')
    assert sorted(whole, key=lambda t: t['templateID']) == whole
    assert sorted(client.call('GET', '/templates'), key=lambda t: t['templateID']) == whole
    found, query = [], '?limit=3'
    while query:
        reply = client.raw('GET', f'/v2/templates{query}')
        assert len(reply.json) <= 3
        found += reply.json
        token = reply.headers['X-Next-Token']
        query = token and f'?limit=3&nextToken={token}'
    assert found == whole and len(whole) > 3


def test_a_template_is_its_tenants_alone(client, gateway):
    built(client, 'mine-alone')
    for version in ('/v2', ''):
        names = client.call('PATCH', f'{version}/templates/mine-alone', {'public': False})['names']
        assert len(names) == 1 and names[0].endswith('/mine-alone')
        assert "their tenant's alone" in client.fails('PATCH', f'{version}/templates/mine-alone', 400, {'public': True})
    assert client.raw('PATCH', '/v2/templates/mine-alone', 'null', {}).status == 400
    client.fails('PATCH', '/v2/templates/python', 403, {'public': False})
    gateway.client().fails('PATCH', '/v2/templates/mine-alone', 404, {'public': False})


def test_a_log_by_time(client):
    build = built(client, 'bytime', step('RUN', 'x'))
    path = f"/templates/bytime/builds/{build['buildID']}"
    whole = client.call('GET', f'{path}/status')['logEntries']
    assert client.call('GET', f'{path}/logs') == {'logs': whole}
    assert client.call('GET', f'{path}/logs?direction=backward&limit=2')['logs'] == whole[:-3:-1]
    assert client.call('GET', f'{path}/logs?level=error')['logs'] == []
    assert client.call('GET', f'{path}/logs?cursor=99999999999999')['logs'] == []
    assert client.call('GET', f'{path}/logs?cursor=1&direction=backward')['logs'] == []
    assert client.call('GET', f'{path}/logs?cursor=99999999999999&direction=backward&limit=100')['logs'] == whole[::-1]
    client.fails('GET', f'{path}/logs?direction=up', 400)
    client.fails('GET', '/templates/bytime/builds/nosuch/logs', 404)
