# SPDX-License-Identifier: Apache-2.0
"""haproxy in front: which requests reach which sandbox, what they find there, and what its clients are told instead."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import ssl

import pytest

from gateway import wait_for
from ingress import (DOMAIN, ENVD, HOST, HTTP, HTTPS, Connection, Guest, Http2, Ingress, at_once, by_headers, error, one, raw)

NOT_FOUND = 'The sandbox was not found'
CLOSED = 'The sandbox is running but port is not open'
SECURED = "Sandbox is secured with traffic access token. "


@pytest.fixture(scope='module')
def front(started):
    if not shutil.which('haproxy'):
        pytest.skip('no haproxy here')
    started.restart(f'Domain={DOMAIN}:{HTTPS}')
    ingress = Ingress(started)
    try:
        yield ingress.start()
    finally:
        ingress.end()
        started.restart()


@pytest.fixture
def ingress(front, gateway):
    yield front
    assert front.process.poll() is None, front.log_path.read_text()


@pytest.fixture
def guest(ingress, client):
    """Makes sandboxes that can be reached."""
    guests = []

    def make(*ports, path='/v2/sandboxes', who=client, **options):
        made = who.call('POST', path, {'templateID': 'python', **options}, 201)
        g = Guest(ingress, who, made)
        guests.append(g)
        for port in ports:
            g.serve(port)
        return g
    yield make
    for g in guests:
        g.end()


def seen(reply):
    status, _, body = reply
    assert status == 200, (status, body)
    return json.loads(body)


def not_found(reply, sandbox):
    assert error(reply) == (502, {'sandboxId': sandbox, 'message': NOT_FOUND, 'code': 502})


def test_the_configuration_is_valid_in_each_of_its_forms(front):
    for variables in ({}, {'HTTP': '0.0.0.0:80,[::1]:80'}):
        result = front.check(**variables)
        assert result.returncode == 0 and 'WARNING' not in result.stderr, result.stderr
    for left_out in (('DOMAIN', 'HTTPS'), ('HTTPS',)):
        kept = {k: front.variables.pop(k) for k in left_out}
        result = front.check()
        front.variables.update(kept)
        assert result.returncode == 0 and 'WARNING' not in result.stderr, result.stderr


def test_the_control_plane_is_everything_that_names_no_sandbox(ingress, client):
    client.create()
    for host in (f'api.{DOMAIN}', f'api.{DOMAIN}:{HTTPS}', DOMAIN, '127.0.0.1:3000', 'localhost'):
        status, _, body = one(ingress, host, '/v2/sandboxes', {'X-API-Key': client.key})
        assert (status, len(json.loads(body))) == (200, 1)
    assert error(one(ingress, f'api.{DOMAIN}', '/v2/sandboxes')) == (401, {'code': 401, 'message': 'authorization header is missing'})


def test_a_sandbox_is_reached_by_its_name_and_by_headers(ingress, guest):
    g = guest(8000)
    assert g.made['domain'] == f'{DOMAIN}:{HTTPS}'
    for host in (g.host(8000), f'{g.host(8000)}:{HTTPS}', f'8000-{g.id}.{DOMAIN.upper()}', f'8000-{g.id}-cubed.{DOMAIN}',
                 f'{g.host(8000)}.'):
        answer = seen(one(ingress, host, '/a?b=c'))
        assert (answer['line'], answer['at']) == ('GET /a?b=c HTTP/1.1', [g.address, 8000])
        assert answer['headers']['host'] == host
    for sandbox in (g.id, f'{g.id}-cubed'):
        assert seen(by_headers(ingress, sandbox, 8000))['at'] == [g.address, 8000]


def test_where_the_name_says_it_the_headers_say_nothing(ingress, guest):
    first, second = guest(8000), guest(8000)
    headers = {'E2b-Sandbox-Id': second.id, 'E2b-Sandbox-Port': '1'}
    assert seen(one(ingress, first.host(8000), headers=headers))['at'] == [first.address, 8000]


def test_one_connection_may_speak_to_many_sandboxes(ingress, guest):
    guests = [guest(8000), guest(8000)]
    c = Connection(ingress.connect(), 'gw:3000')
    with contextlib.closing(c):
        for g in guests * 3:
            answer = seen(c.get('/', {'E2b-Sandbox-Id': g.id, 'E2b-Sandbox-Port': '8000'}))
            assert answer['at'] == [g.address, 8000]


def test_a_new_one_is_reached_as_soon_as_its_client_knows_of_it(ingress, client):
    def create_and_ask():
        made = client.call('POST', '/v2/sandboxes', {'templateID': 'python'}, 201)
        return made['sandboxID'], by_headers(ingress, made['sandboxID'], ENVD, '/init')[0], made['sandboxID'] in ingress.routes()
    for sandbox, _, known in at_once(*[create_and_ask] * 4) + [create_and_ask() for _ in range(4)]:
        assert known, sandbox


def test_the_agents_envd_is_reached_with_its_token(ingress, guest):
    g = guest()
    assert one(ingress, g.host(ENVD), '/health')[0] == 204
    assert one(ingress, g.host(ENVD), '/envs')[0] == 401
    status, _, body = one(ingress, g.host(ENVD), '/envs', {'X-Access-Token': g.made['envdAccessToken']})
    assert (status, json.loads(body)['E2B_SANDBOX_ID']) == (200, g.id)


@pytest.mark.parametrize('path', ['init', 'freeze', 'unfreeze', 'fsfreeze', 'fsthaw', 'collapse', 'upgrade'])
def test_what_is_the_hosts_of_envd_is_not_there_from_outside(ingress, guest, path):
    g = guest(8000)
    status, answer = error(one(ingress, g.host(ENVD), f'/{path}?x', method='POST', body='{}'))
    assert (status, answer['code'], answer['path']) == (404, 404, f'/{path}')
    assert answer['message'].startswith('This endpoint is reserved for the E2B control plane')
    # on other ports it is its user's
    assert seen(one(ingress, g.host(8000), f'/{path}'))['line'] == f'GET /{path} HTTP/1.1'


@pytest.mark.parametrize('host, text', [
    (f'8000.{DOMAIN}', b'Invalid host'), (f'www.{DOMAIN}', b'Invalid host'), (f'-.{DOMAIN}', b'Invalid sandbox port'),
    (f'x-iabc.{DOMAIN}', b'Invalid sandbox port'), (f'0-iabc.{DOMAIN}', b'Invalid sandbox port'),
    (f'65536-iabc.{DOMAIN}', b'Invalid sandbox port'), (f'123456-iabc.{DOMAIN}', b'Invalid sandbox port'),
    (f'80-.{DOMAIN}', b'Invalid sandbox ID'), (f'80-i_b.{DOMAIN}', b'Invalid sandbox ID'),
])
def test_a_name_that_is_none(ingress, host, text):
    status, _, body = one(ingress, host)
    assert (status, body) == (400, text)


@pytest.mark.parametrize('headers, text', [
    ({'E2b-Sandbox-Id': 'iabc'}, b'Missing header: E2b-Sandbox-Port'), ({'E2b-Sandbox-Port': '80'}, b'Missing header: E2b-Sandbox-Id'),
    ({'E2b-Sandbox-Id': 'iabc', 'E2b-Sandbox-Port': '80a'}, b'Invalid sandbox port'),
    ({'E2b-Sandbox-Id': 'IABC', 'E2b-Sandbox-Port': '80'}, b'Invalid sandbox ID'),
    ({'E2b-Sandbox-Id': 'iabc,idef', 'E2b-Sandbox-Port': '80'}, b'Invalid sandbox ID'),
    ({'E2b-Sandbox-Id': '../x', 'E2b-Sandbox-Port': '80'}, b'Invalid sandbox ID'),
])
def test_headers_that_name_nothing(ingress, headers, text):
    status, _, body = one(ingress, 'gw', headers=headers)
    assert (status, body) == (400, text)


def test_who_is_not_there_or_does_not_listen(ingress, guest):
    not_found(one(ingress, f'8000-inobodyatall.{DOMAIN}'), 'inobodyatall')
    g = guest()
    assert error(one(ingress, g.host(8001))) == (502, {'sandboxId': g.id, 'message': CLOSED, 'port': 8001, 'code': 502})


def test_the_servers_own_errors_stay_its_own(ingress, guest):
    g = guest(8000)
    for status in (502, 503, 504, 404):
        assert one(ingress, g.host(8000), f'/status?{status}')[::2] == (status, b'{"mine":true}')


def test_other_users_sandboxes_are_not_reached(ingress, gateway):
    mine = gateway.host.create()
    assert error(by_headers(ingress, mine, 80))[0] == 502 and mine not in ingress.routes()


def test_the_first_part_of_a_stream_arrives_while_it_goes_on(ingress, guest):
    g = guest(8000)
    c = Connection(ingress.connect(), g.host(8000))
    with contextlib.closing(c):
        c.request('GET', '/stream')
        response = c.getresponse()
        assert response.readline() == b'data: first\n'
        one(ingress, g.host(8000), '/go')
        assert response.read() == b'\ndata: last\n\n'


def test_a_body_passes_on_as_it_comes(ingress, guest):
    g = guest(8000)
    with ingress.connect() as s:
        s.sendall(f'POST /echo HTTP/1.1\r\nHost: {g.host(8000)}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n'.encode())
        f = s.makefile('rb')
        while f.readline() != b'\r\n':
            pass
        assert f.readline() == b'3\r\n' and f.readline() == b'one\r\n'
        s.sendall(b'3\r\ntwo\r\n0\r\n\r\n')
        assert f.read(13) == b'3\r\ntwo\r\n0\r\n\r\n'


def test_a_websocket(ingress, guest):
    g = guest(8000)
    with ingress.connect() as s:
        s.sendall(f'GET /websocket HTTP/1.1\r\nHost: {g.host(8000)}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
                  f'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n'.encode())
        f = s.makefile('rb')
        assert f.readline().startswith(b'HTTP/1.1 101')
        while f.readline() != b'\r\n':
            pass
        for text in (b'hello', b'again'):
            s.sendall(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)
            assert f.read(2 + len(text)) == bytes([0x81, len(text)]) + text


def test_a_hundred_megabytes_up_and_down(ingress, guest):
    g = guest(8000)
    size = 100 * 1024 * 1024
    part = b'\xa5' * 65536
    expected = hashlib.sha256()
    for _ in range(size // len(part)):
        expected.update(part)
    chunks = (part for _ in range(size // len(part)))
    assert one(ingress, g.host(8000), '/hash', method='POST', body=chunks)[2].decode() == expected.hexdigest()
    c = Connection(ingress.connect(), g.host(8000))
    with contextlib.closing(c):
        c.request('GET', f'/large?{size}')
        response, h = c.getresponse(), hashlib.sha256()
        while data := response.read(1 << 20):
            h.update(data)
    assert h.hexdigest() == expected.hexdigest()


def test_tls_with_the_name_of_each_sandbox(ingress, guest, client):
    g = guest(8000)
    for host in (g.host(8000), g.host(ENVD)):
        with ingress.tls(host) as s:
            assert Connection(s, f'{host}:{HTTPS}').get('/health')[0] in (200, 204)
    with ingress.tls(f'api.{DOMAIN}') as s:
        assert Connection(s, f'api.{DOMAIN}').get('/v2/sandboxes', {'X-API-Key': client.key})[0] == 200
    with ingress.tls(g.host(8000)) as s:
        headers = seen(Connection(s, g.host(8000)).get('/'))['headers']
    assert (headers['x-forwarded-proto'], headers['x-forwarded-for'], headers['x-forwarded-host']) == ('https', '127.0.0.1', g.host(8000))


def test_many_streams_of_one_http2_connection_each_reach_their_sandbox(ingress, guest):
    guests = [guest(8000), guest(8000)]
    with ingress.tls(guests[0].host(8000), ('h2', 'http/1.1')) as s:
        assert s.selected_alpn_protocol() == 'h2'
        h = Http2(s)
        streams = {1 + 2 * i: guests[i % 2] for i in range(20)}
        for stream, g in streams.items():
            h.request(stream, g.host(8000), f'/{stream}')
        _, data = h.answers(len(streams))
        for stream, g in streams.items():
            answer = json.loads(data[stream])
            assert (answer['line'], answer['at']) == (f'GET /{stream} HTTP/1.1', [g.address, 8000])


def test_whose_clients_must_see_a_stream_break_is_not_offered_http2(ingress, guest):
    g = guest()
    for port in (ENVD, 49999):
        with ingress.tls(g.host(port), ('h2', 'http/1.1')) as s:
            assert s.selected_alpn_protocol() == 'http/1.1'


def test_grpc_is_http2_to_the_guest_too(ingress, guest):
    g = guest().serve(50051, 'grpc')
    with ingress.tls(g.host(50051), ('h2',)) as s:
        h = Http2(s)
        h.request(1, g.host(50051), '/a.B/C', [('content-type', 'application/grpc+proto'), ('te', 'trailers')], b'\0\0\0\0\x02hi')
        blocks, data = h.answers(1)
        assert data[1] == b'\0\0\0\0\x02hi' and b'grpc-status' in blocks[1]


def test_a_sandbox_without_public_traffic_asks_for_its_token(ingress, guest, client):
    g = guest(8000, network={'allowPublicTraffic': False})
    token = g.made['trafficAccessToken']
    assert len(token) == 64 and token != g.made['envdAccessToken']
    detail = client.call('GET', f'/sandboxes/{g.id}')
    assert detail['trafficAccessToken'] == token and detail['network']['allowPublicTraffic'] is False
    assert client.call('POST', f'/v2/sandboxes/{g.id}/connect', {})['trafficAccessToken'] == token
    missing = f"{SECURED}Token header 'e2b-traffic-access-token' is missing"
    wrong = f"{SECURED}Provided token in header 'e2b-traffic-access-token' is invalid"
    assert error(one(ingress, g.host(8000))) == (403, {'sandboxId': g.id, 'message': missing, 'code': 403})
    for value in ('x', '', token[:-1], token + 'x', g.made['envdAccessToken']):
        status, answer = error(one(ingress, g.host(8000), headers={'E2B-Traffic-Access-Token': value}))
        assert (status, answer['message']) == (403, wrong)
    headers = seen(one(ingress, g.host(8000), headers={'E2B-Traffic-Access-Token': token}))['headers']
    assert 'e2b-traffic-access-token' not in headers
    # envd has its own
    assert one(ingress, g.host(ENVD), '/health')[0] == 204


def test_without_a_token_of_envd_there_is_none_for_traffic(client):
    message = client.fails('POST', '/sandboxes', 400, {'templateID': 'python', 'secure': False, 'network': {'allowPublicTraffic': False}})
    assert message.startswith('You cannot create a sandbox without public access')


@pytest.mark.parametrize('mask, host', [('localhost:${PORT}', 'localhost:8000'), ('example.test', 'example.test'), ('${PORT}.x', '8000.x')])
def test_the_server_sees_another_host(ingress, guest, client, mask, host):
    g = guest(8000, network={'maskRequestHost': mask})
    headers = seen(one(ingress, g.host(8000)))['headers']
    assert (headers['host'], headers['x-forwarded-host']) == (host, g.host(8000))
    assert client.call('GET', f'/sandboxes/{g.id}')['network']['maskRequestHost'] == mask


def test_names_of_headers_are_written_as_servers_may_look_for_them(ingress, guest):
    """A server that is a few lines of a script need not know that they are alike in any letters."""
    g = guest(8000, network={'maskRequestHost': 'example.test'})
    sent = {'content-type': 'text/plain', 'COOKIE': 'a=b', 'User-Agent': 'test', 'X-Own': '1'}
    names = seen(one(ingress, g.host(8000), headers=sent))['names']
    assert {'Host', 'Content-Type', 'Cookie', 'User-Agent', 'X-Forwarded-For', 'x-own'} <= set(names), names


@pytest.mark.parametrize('mask', ['a b', 'a|b', 'a;b', 'a\nb', 'ü', '${PORT}${PORT}', '${HOST}', 'x' * 300])
def test_a_host_that_is_none_is_no_mask(client, mask):
    assert client.fails('POST', '/v2/sandboxes', 400, {'templateID': 'python', 'network': {'maskRequestHost': mask}})


def test_servers_that_speak_tls_themselves(ingress, guest, client):
    """Whatever their certificate; the client's own TLS ends in front of them."""
    g = guest(8001, network={'httpsPorts': [7999, 8000, 8002]}).serve(8000, 'tls')
    assert client.call('GET', f'/sandboxes/{g.id}')['network']['httpsPorts'] == [7999, 8000, 8002]
    for port in 8000, 8001:
        assert seen(one(ingress, g.host(port)))['headers']['x-forwarded-proto'] == 'http'
    # What one guest has said in a handshake is not shown to the next, so each is a whole one.
    assert [seen(one(ingress, g.host(8000)))['resumed'] for _ in range(3)] == [False] * 3
    assert error(one(ingress, g.host(8002)))[1]['message'] == CLOSED
    # One that speaks none there, and TLS where nobody expects it.
    g.serve(7999).serve(8003, 'tls')
    assert one(ingress, g.host(7999))[0] == 502
    assert one(ingress, g.host(8003))[0] != 200
    copy = client.call('POST', f'/sandboxes/{g.id}/fork', {'count': 1, 'timeout': 60}, 201)[0]['sandbox']['sandboxID']
    assert client.call('GET', f'/sandboxes/{copy}')['network']['httpsPorts'] == [7999, 8000, 8002]


@pytest.mark.parametrize('ports', [8000, '8000', [0], [65536], ['8000'], [80.5], [ENVD], list(range(1, 10)), {'a': 1}])
def test_what_is_no_list_of_https_ports(client, ports):
    message = client.fails('POST', '/v2/sandboxes', 400, {'templateID': 'python', 'network': {'httpsPorts': ports}})
    assert 'httpsPorts' in message or 'https port' in message


def test_what_a_client_says_of_its_way_is_not_passed_on(ingress, guest):
    g = guest(8000)
    headers = seen(one(ingress, g.host(8000), headers={
        'X-Forwarded-For': '1.2.3.4', 'X-Forwarded-Proto': 'https', 'X-Forwarded-Host': 'bank.test', 'Forwarded': 'for=1.2.3.4',
        'X-Own': 'stays', 'X-Access-Token': 'stays'}))['headers']
    assert headers['x-forwarded-for'] == '127.0.0.1' and headers['x-forwarded-proto'] == 'http'
    assert headers['x-forwarded-host'] == g.host(8000) and 'forwarded' not in headers
    assert headers['x-own'] == headers['x-access-token'] == 'stays'


def test_the_gateway_is_told_how_a_client_came_whatever_that_says(ingress, client):
    build = client.call('POST', '/v3/templates', {'name': 'files'}, 202)
    path, headers = f'/templates/{build["templateID"]}/files/{"ab" * 32}', {'X-API-Key': client.key}
    for says, scheme in (('https', 'http'), (None, 'http')):
        status, _, body = one(ingress, f'api.{DOMAIN}', path, {**headers, **({'X-Forwarded-Proto': says} if says else {})})
        assert (status, json.loads(body)['url'].split('/templates')[0]) == (201, f'{scheme}://api.{DOMAIN}')
    with ingress.tls(f'api.{DOMAIN}') as s:
        _, _, body = Connection(s, f'api.{DOMAIN}:{HTTPS}').get(path, {**headers, 'X-Forwarded-Proto': 'http'})
        assert json.loads(body)['url'].split('/templates')[0] == f'https://api.{DOMAIN}:{HTTPS}'


# The end.

def test_a_killed_one_is_gone_when_its_client_is_told_so(ingress, guest):
    g = guest(8000)
    assert one(ingress, g.host(8000))[0] == 200
    g.kill()
    assert g.id not in ingress.routes()
    not_found(one(ingress, g.host(8000)), g.id)
    not_found(one(ingress, g.host(ENVD), '/health'), g.id)


def test_one_that_ends_by_itself_is_gone(ingress, guest, client):
    g = guest()
    client.call('POST', f'/sandboxes/{g.id}/timeout', {'timeout': 1}, 204)
    wait_for('its end', lambda: g.id not in ingress.routes())
    not_found(one(ingress, g.host(ENVD), '/health'), g.id)


def test_a_paused_one_is_gone_until_it_is_resumed(ingress, guest, client):
    g = guest(8000)
    client.call('POST', f'/sandboxes/{g.id}/pause', status=204)
    not_found(one(ingress, g.host(8000)), g.id)
    client.call('POST', f'/v2/sandboxes/{g.id}/connect', {}, status=201)
    assert one(ingress, g.host(8000))[0] == 200


def test_one_that_a_request_resumes_keeps_its_route_but_not_for_who_may_not_use_envd(ingress, guest, client):
    g = guest(8000)
    ingress.gateway.host.call(f'/org/cubed/Cube1/sandbox/{g.id}', 'Sandbox', 'SetAutoResume', 'b', 'true')
    client.call('POST', f'/sandboxes/{g.id}/pause', status=204)
    denied = "This sandbox can't be resumed with the credentials provided. Check your access token and try again."
    for headers in ({}, {'X-Access-Token': 'x'}):
        assert error(one(ingress, g.host(ENVD), '/health', headers)) == (403, {'sandboxId': g.id, 'message': denied, 'code': 403})
    # from here on it is cubed's to resume it; this guest was never away
    assert one(ingress, g.host(ENVD), '/health', {'X-Access-Token': g.made['envdAccessToken']})[0] == 204
    assert one(ingress, g.host(8000))[0] == 200
    client.call('POST', f'/v2/sandboxes/{g.id}/connect', {}, status=201)
    assert one(ingress, g.host(ENVD), '/health')[0] == 204


def test_a_fork_is_reached_and_has_tokens_of_its_own(ingress, guest, client):
    g = guest(network={'allowPublicTraffic': False})
    fork = client.call('POST', f'/sandboxes/{g.id}/fork', {}, 201)[0]['sandbox']
    assert fork['sandboxID'] in ingress.routes()
    assert fork['trafficAccessToken'] != g.made['trafficAccessToken'] and fork['domain'] == g.made['domain']


@pytest.mark.parametrize('path', ['/stream', '/sized'])
@pytest.mark.parametrize('tls', [False, True])
def test_a_stream_that_is_cut_does_not_end_well(ingress, guest, path, tls):
    g = guest(ENVD + 1, 8000)
    s = ingress.tls(g.host(8000)) if tls else ingress.connect()
    with contextlib.closing(Connection(s, g.host(8000))) as c:
        c.request('GET', path)
        response = c.getresponse()
        assert response.read(5)
        ingress.cut(g.address)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            response.read()


# Restarts.

def test_a_haproxy_that_is_started_anew_knows_all_of_them(ingress, guest):
    g = guest(8000)
    ingress.stop()
    made = g.client.create()
    gone = g.client.create()
    g.client.call('DELETE', f'/sandboxes/{gone}', status=204)
    ingress.start()
    assert set(ingress.routes()) == {g.id, made}
    assert one(ingress, g.host(8000))[0] == 200


def test_a_haproxy_that_nobody_has_told_anything_says_try_again(ingress, guest):
    g = guest()
    ingress.stop()
    g.client.gateway.stop()
    try:
        ingress.start(told=False)
        assert ingress.routes() is None
        status, headers, body = one(ingress, g.host(ENVD), '/health')
        assert (status, headers['Retry-After'], json.loads(body)['code']) == (503, '1', 503)
    finally:
        g.client.gateway.start(f'Domain={DOMAIN}:{HTTPS}')
    wait_for('all routes', lambda: ingress.routes() is not None)
    assert one(ingress, g.host(ENVD), '/health')[0] == 204


BROWSER = {'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0', 'Accept': 'text/html,*/*;q=0.8',
           'Sec-Fetch-Mode': 'navigate'}


def test_a_browser_is_shown_a_page_and_all_others_are_told_in_json(ingress, guest):
    g, secured = guest(8000), guest(network={'allowPublicTraffic': False})
    for host, status, port, message in ((g.host(8001), 502, ', port 8001', CLOSED), (f'80-inosuchsandbox00.{DOMAIN}', 502, '', NOT_FOUND),
                                        (secured.host(80), 403, '', SECURED)):
        sandbox = host.split('-')[1].split('.')[0]
        answered, headers, body = one(ingress, host, headers=BROWSER)
        page = body.decode()
        assert (answered, headers['Content-Type']) == (status, 'text/html; charset=utf-8')
        assert page.startswith('<!DOCTYPE html>') and f'<h1>{message}' in page
        assert f'<p>Sandbox {sandbox}{port}, status {status}</p>' in page
        for other in ({'Accept': 'application/json'}, {'Sec-Fetch-Mode': 'cors'}, {'User-Agent': 'e2b-js-sdk/2.51.0'}):
            answered, headers, body = one(ingress, host, headers={**BROWSER, **other})
            assert (answered, headers['Content-Type']) == (status, 'application/json; charset=utf-8')
            assert json.loads(body)['sandboxId'] == sandbox
    # What a sandbox says itself is its own.
    answered, headers, body = one(ingress, g.host(8000), '/status?502', headers=BROWSER)
    assert (answered, headers['Content-Type'], body) == (502, 'application/json', b'{"mine":true}')


def test_without_a_socket_of_the_gateway_it_says_try_again(ingress, gateway):
    away = gateway.socket.with_name('away')
    os.rename(gateway.socket, away)
    try:
        status, headers, body = one(ingress, f'api.{DOMAIN}', '/v2/sandboxes')
    finally:
        os.rename(away, gateway.socket)
    assert (status, headers['Retry-After'], json.loads(body)['code']) == (503, '1', 503)


def test_while_the_gateway_is_away_streams_and_routes_go_on(ingress, guest):
    g = guest(8000)
    c = Connection(ingress.connect(), g.host(8000))
    with contextlib.closing(c):
        c.request('GET', '/stream')
        response = c.getresponse()
        assert response.readline() == b'data: first\n'
        g.client.gateway.stop()
        assert one(ingress, g.host(8000))[0] == 200
        g.client.gateway.start(f'Domain={DOMAIN}:{HTTPS}')
        one(ingress, g.host(8000), '/go')
        assert response.read() == b'\ndata: last\n\n'


def test_what_ended_while_the_gateway_was_away_is_gone_when_it_is_back(ingress, guest):
    g, other = guest(), guest()
    g.client.gateway.stop()
    g.client.gateway.host.ctl('kill', g.id)
    assert g.id in ingress.routes()
    g.client.gateway.start(f'Domain={DOMAIN}:{HTTPS}')
    wait_for('the routes of now', lambda: set(ingress.routes()) == {other.id})


def test_creates_need_no_haproxy(ingress, client):
    ingress.stop()
    sandbox = client.create()
    client.call('DELETE', f'/sandboxes/{sandbox}', status=204)
    ingress.start()


# Wrong input.

def smuggle(host, lines, body):
    return f'POST /first HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n{body}GET /second HTTP/1.1\r\nHost: {host}\r\n\r\n'.encode()


@pytest.mark.parametrize('lines', [
    'Transfer-Encoding: xchunked\r\n', 'Transfer-Encoding: chunked, chunked\r\n', 'Transfer-Encoding : chunked\r\n',
    'Content-Length: 5\r\nContent-Length: 6\r\n', 'Content-Length: +5\r\n', 'Content-Length : 5\r\n', 'Content-Length: 5, 6\r\n',
    'Transfer-Encoding: chunked\0\r\n', 'Content-Length: 5\0\r\n', 'X\0: b\r\n', 'X: a\rb\r\n', 'Host: other\r\n',
])
def test_what_could_be_read_in_two_ways_is_refused(ingress, guest, lines):
    g = guest(8000)
    for host in (g.host(8000), f'api.{DOMAIN}'):
        answers = raw(ingress, smuggle(host, lines, 'hello'))
        assert answers.startswith(b'HTTP/1.1 4') and answers.count(b'HTTP/1.1') == 1, answers


def test_a_length_beside_chunks_counts_for_nobody(ingress, guest):
    g = guest(8000)
    answers = raw(ingress, smuggle(g.host(8000), 'Content-Length: 50\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n'))
    head, body = answers.split(b'\r\n\r\n', 1)
    headers = json.loads(body)['headers']
    assert 'content-length' not in headers and headers['transfer-encoding'] == 'chunked'


@pytest.mark.parametrize('request_', [
    'POST / HTTP/1.0\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'GET / HTTP/1.1\r\nX: {}\r\n\r\n',
    'GET http://api.cube.test/ HTTP/1.1\r\nHost: {}\r\n\r\n',
])
def test_no_host_two_hosts_and_chunks_of_old(ingress, guest, request_):
    g = guest(8000)
    assert raw(ingress, request_.format(g.host(8000)).replace('HTTP/1.1\r\n', 'HTTP/1.1\r\nConnection: close\r\n').encode()).startswith(b'HTTP/1.1 400')


@pytest.mark.parametrize('name', ['E2b-Sandbox-Id', 'E2b-Sandbox-Port'])
def test_two_sandboxes_at_once(ingress, name):
    data = f'GET / HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nE2b-Sandbox-Id: i1\r\nE2b-Sandbox-Port: 1\r\n{name}: 2\r\n\r\n'
    assert raw(ingress, data.encode()).startswith(b'HTTP/1.1 400')


def test_who_sends_slowly_keeps_nobody_else_waiting(ingress, guest):
    g = guest(8000)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            s = stack.enter_context(ingress.connect())
            s.sendall(b'GET / HTTP/1.1\r\nHost: x\r\nX-')
        assert one(ingress, g.host(8000))[0] == 200


@pytest.fixture
def with_variables(ingress):
    """Starts haproxy anew with others, for one test."""
    before = dict(ingress.variables)

    def start(**variables):
        ingress.stop()
        ingress.variables.update(variables)
        ingress.start()
    yield start
    ingress.variables = before
    ingress.stop()
    ingress.start()


def test_who_does_not_come_to_the_end_of_a_head_is_cut_off(with_variables, ingress):
    with_variables(HEAD_TIME='2s')
    assert raw(ingress, b'GET / HTTP/1.1\r\nHost: x\r\nX-').startswith(b'HTTP/1.1 408')


def test_one_sandbox_does_not_take_all_connections(with_variables, ingress, guest):
    g, other = guest(8000), guest(8000)
    with_variables(SANDBOX_CONNECTIONS='2')
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            c = stack.enter_context(contextlib.closing(Connection(ingress.connect(), g.host(8000))))
            c.request('GET', '/stream')
            assert c.getresponse().read(4) == b'data'
        status, answer = error(one(ingress, g.host(8000)))
        assert (status, answer['connectionLimit'], answer['code']) == (429, 2, 429)
        assert one(ingress, other.host(8000))[0] == 200


@pytest.mark.parametrize('port', [HTTP, HTTPS])
def test_one_address_does_not_take_all_connections(with_variables, ingress, guest, port):
    guest()
    with_variables(ADDRESS_CONNECTIONS='1', HTTP=f'0.0.0.0:{HTTP}', HTTPS=f'0.0.0.0:{HTTPS}')
    name = f'api.{DOMAIN}'

    def join():
        return ingress.tls(name, to=HOST) if port == HTTPS else ingress.connect(to=HOST)
    with contextlib.closing(join()) as first:
        assert Connection(first, name).get('/health')[0] == 204
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected, ssl.SSLEOFError)), contextlib.closing(join()) as second:
            Connection(second, name).get('/health')
        assert one(ingress, name, '/health')[0] == 204
