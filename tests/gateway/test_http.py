# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: what is no request of E2B's, what is too large, and who is too slow."""

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import sys
import termios
import threading

import pytest

from gateway import UnixConnection, wait_for


class Raw:
    """Bytes out and in."""

    def __init__(self, gateway):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(gateway.socket))

    def send(self, data):
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def unread(self):
        """Bytes, and what the kernel takes for them, that the gateway has not taken yet."""
        return int.from_bytes(fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def read(self):
        """All until it is closed."""
        data = b''
        while True:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                piece = b''
            if not piece:
                return data
            data += piece

    def close(self):
        self.socket.close()


@pytest.fixture
def raw(gateway):
    made = []

    def connect():
        made.append(Raw(gateway))
        return made[-1]
    yield connect
    for r in made:
        r.close()


def head(client, method='POST', path='/v2/sandboxes'):
    return f'{method} {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {client.key}\r\n'


def test_paths_and_methods_that_are_not_there(client):
    for path in ('/', '/nosuch', '/v3/sandboxes', '/sandboxes/a/b/c', '/a/b/c/d/e/f/g/h', '/v2/sandboxes/x/kill'):
        assert client.fails('GET', path, 404) == 'There is nothing at this path'
    for method, path in (('PUT', '/sandboxes'), ('DELETE', '/v2/sandboxes'), ('PATCH', '/sandboxes/abc'), ('POST', '/health')):
        assert client.fails(method, path, 405) == 'This path has no such method'


@pytest.mark.parametrize('path', ['/sandboxes/%', '/sandboxes/%zz', '/sandboxes/a%00b', '/v2/sandboxes?a=%0', '/a/b/c/d/e/f/g/h/i',
                                  '/v2/sandboxes?' + '&'.join(f'a{n}=1' for n in range(40))])
def test_paths_that_are_wrong(client, path):
    client.fails('GET', path, 400)


@pytest.mark.parametrize('body', [b'', b'{', b'[]', b'"x"', b'nul', b'{"templateID":"python"} x', b'{"templateID":"python"}{}', b'\xff',
                                  b'{"templateID":"\xff"}', b'{"a":' * 100 + b'1' + b'}' * 100, b"{'templateID':'python'}", b'\0',
                                  b'{"templateID":"python",}'])
def test_bodies_that_are_no_json_object(client, body):
    reply = client.raw('POST', '/v2/sandboxes', body)
    assert reply.status == 400 and reply.json['message'].startswith('Error when parsing request: '), reply.body


def test_errors_are_json_with_their_code(client):
    reply = client.raw('GET', '/sandboxes/nonexistingsandbox')
    assert json.loads(reply.body) == {'code': 404, 'message': 'Sandbox "nonexistingsandbox" doesn\'t exist or you don\'t have access to it'}


def test_errors_are_text_whatever_they_tell_of(client):
    """Of bytes that are no character, and of what is cut off amid one."""
    assert client.fails('GET', '/templates/aliases/a%ff%c3', 400) == 'Invalid template reference: a??'
    assert client.fails('DELETE', '/templates/%80', 400) == 'Invalid template reference: ?'
    assert client.fails('GET', '/v2/sandboxes?template=a:%ff', 400) == 'Invalid template: a:?'
    assert client.fails('POST', '/v2/sandboxes', 400, {'templateID': 'x' + 'é' * 60}) == (
        'Invalid template reference: x' + 'é' * 49 + '?')


def test_a_body_has_a_limit(client):
    limit = 1024 * 1024
    body = b'{"templateID":"nosuch","x":"' + b'y' * limit
    body = body[:limit - 2] + b'"}'
    assert client.raw('POST', '/v2/sandboxes', body).status == 404
    assert client.raw('POST', '/v2/sandboxes', body + b' ').status == 413
    reply = client.raw('POST', '/v2/sandboxes', iter([body, b' ']))
    assert reply.status == 413 and reply.json['code'] == 413


def test_a_hundred_megabytes_are_refused_and_not_kept(gateway, client):
    def resident():
        with open(f'/proc/{gateway.process.pid}/statm') as f:
            return int(f.read().split()[1]) * 4096
    before = resident()
    reply = client.raw('POST', '/v2/sandboxes', iter([b'x' * 1024 * 1024] * 100))
    assert reply.status == 413
    assert gateway.anonymous().raw('POST', '/v2/sandboxes', iter([b'x' * 1024 * 1024] * 8)).status == 401
    assert resident() - before < 64 * 1024 * 1024


def test_without_end_it_is_cut_off(client):
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        client.raw('POST', '/v2/sandboxes', (b'x' * 1024 * 1024 for _ in range(140)))


def test_one_connection_serves_many(gateway, client):
    c = UnixConnection(gateway.socket)
    for status, path in ((200, '/v2/sandboxes'), (404, '/nosuch'), (400, '/%'), (200, '/v2/sandboxes'), (404, '/sandboxes/abc')):
        before = c.sock
        assert client.raw('GET', path, connection=c).status == status
        assert before is None or c.sock is before
    c.close()


def test_nothing_after_204(gateway, client):
    c = UnixConnection(gateway.socket)
    i = client.create()
    reply = client.raw('DELETE', f'/sandboxes/{i}', connection=c)
    assert (reply.status, reply.body) == (204, b'')
    assert client.raw('GET', '/v2/sandboxes', connection=c).status == 200
    c.close()


@pytest.mark.parametrize('framing', [
    'Content-Length: 2\r\nTransfer-Encoding: chunked\r\n', 'Content-Length: 2\r\nContent-Length: 3\r\n',
    'Content-Length: 2\r\nContent-Length: 2\r\n', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n',
    'Transfer-Encoding: gzip, chunked\r\n', 'Transfer-Encoding: xchunked\r\n', 'Content-Length: -1\r\n', 'Content-Length: 2x\r\n',
    'Content-Length: 99999999999999999999\r\n'])
def test_a_length_that_is_not_clear_ends_the_connection(gateway, client, raw, framing):
    """What comes behind could be a request that nobody in front of us has seen. libmicrohttpd 0.9.75 sends the head of some
    errors of its own twice."""
    smuggled = head(client, 'POST', '/v2/sandboxes') + 'Content-Length: 23\r\n\r\n{"templateID":"python"}'
    r = raw()
    try:
        r.send(head(client) + framing + '\r\n0\r\n\r\n' + smuggled)
    except BrokenPipeError:
        pass
    answer = r.read()
    assert answer == b'' or answer.startswith((b'HTTP/1.1 400 ', b'HTTP/1.1 413 ')), answer
    assert b'HTTP/1.1 2' not in answer and b'Connection: close' in answer or not answer
    assert gateway.host.ids() == []


def test_what_is_no_http_ends_the_connection(configured, client, raw):
    configured('RequestTimeoutSec=1\n')
    for data in (b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' * 20 + b'\r\n\r\n', b'GET\r\n\r\n', b'GET / HTTP/9.9\r\n\r\n',
                 b'\0' * 100 + b'\r\n\r\n', b'GET / HTTP/1.1\r\nX: ' + b'y' * 100000 + b'\r\n\r\n',
                 b'GET /' + b'x' * 100000 + b' HTTP/1.1\r\n\r\n'):
        r = raw()
        try:
            r.send(data)
            r.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        assert not r.read().startswith(b'HTTP/1.1 2'), data
    client.call('GET', '/v2/sandboxes')


def test_who_is_too_slow_is_cut_off_whatever_drips_in(configured, client, raw):
    configured('RequestTimeoutSec=1\n')
    beginnings = ('', 'POST /v2/sand', 'POST /v2/sandboxes HTTP/1.1\r\nX-A', head(client) + 'Content-Length: 1000\r\n\r\n{')
    slow = [raw() for _ in beginnings]
    for r, beginning in zip(slow, beginnings):
        # Where this machine is slower still, its time is over before.
        with contextlib.suppress(OSError):
            r.send(beginning)
    stop = threading.Event()

    def drip():
        while not stop.wait(0.1):
            for r in slow[1:]:
                with contextlib.suppress(OSError):
                    r.send('a')
    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        for r in slow:
            assert r.read() == b''
    finally:
        stop.set()
        dripping.join()
    client.call('GET', '/v2/sandboxes')


def test_a_connection_that_is_kept_has_its_own_time(configured, gateway, client, raw):
    configured('RequestTimeoutSec=10min\nKeepAliveSec=2\n')
    r = raw()
    r.send(head(client, 'GET') + '\r\n')
    # Its answer, then nothing until it is cut off.
    assert r.read().count(b'HTTP/1.1 200 ') == 1


def test_many_that_do_nothing_keep_nobody_out(configured, client, raw):
    configured('RequestTimeoutSec=1\nConnectionsMax=20\n')
    idle = [raw() for _ in range(40)]
    client.call('GET', '/v2/sandboxes')
    assert len(idle) == 40


def test_who_has_no_key_keeps_no_connection(configured, gateway, client, raw):
    configured('RequestTimeoutSec=1\nConnectionsMax=20\n')
    idle = [raw() for _ in range(20)]
    answered = 0
    for n, r in enumerate(idle):
        try:
            r.send(f'GET {"/v2/sandboxes" if n % 2 else "/health"} HTTP/1.1\r\nHost: x\r\n\r\n')
            answer = r.socket.recv(65536)
        except ConnectionError:
            answer = b''
        # On a machine that is busy its time may be over before.
        assert not answer or answer.startswith(b'HTTP/1.1 401 ' if n % 2 else b'HTTP/1.1 204 ')
        answered += bool(answer)
    assert answered > 0
    client.call('GET', '/v2/sandboxes')


def test_what_needs_no_key_keeps_no_body(configured, client, raw):
    """Who has no key can't take the room that there is for the bodies of those who have one."""
    configured('BodyMax=4K\nRequestTimeoutSec=10min\n')
    held = [raw() for _ in range(80)]
    for r in held:
        r.send('GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\n' + 'x' * 4095)
    # Those behind them are answered: they were read.
    for _ in range(3):
        client.call('GET', '/health', status=204)
    client.fails('POST', '/v2/sandboxes', 404, {'templateID': 'nosuch', 'x': 'y' * 4000})
    for r in held:
        r.send('x')
        assert r.socket.recv(65536).startswith(b'HTTP/1.1 204 ')


def test_all_bodies_together_fit_into_the_memory_of_the_unit(configured, client, raw):
    configured('BodyMax=4M\nRequestTimeoutSec=10min\n')
    # Half of the 128 MiB, since it is one tenant; 64 times as much as one body has would be twice that.
    held = [raw() for _ in range(16)]
    for r in held:
        r.send(head(client) + f'Content-Length: {4 << 20}\r\n\r\n')
        r.send(b'x' * ((4 << 20) - 1))
        # What is still on its way would find the room taken by the next one, and all of its body would be given up.
        wait_for('it to be read', lambda r=r: r.unread() == 0)
    body = {'templateID': 'nosuch', 'x': 'y' * (3 << 20)}
    assert client.fails('POST', '/v2/sandboxes', 503, body) == 'Too many requests at once, try again'
    for r in held:
        r.close()


def test_what_becomes_of_a_body_takes_room_until_its_answer(configured, gateway, client):
    """As many as there is memory for; cubed stands still meanwhile."""
    configured('BodyMax=64K\n')
    body = {'templateID': 'nosuch', 'x': ['a'] * 9000}
    c = UnixConnection(gateway.socket)
    os.kill(gateway.host.cubed.pid, signal.SIGSTOP)
    try:
        c.request('POST', '/v2/sandboxes', json.dumps(body), {'X-API-Key': client.key})
        for _ in range(3):
            client.call('GET', '/health', status=204)
        assert client.fails('POST', '/v2/sandboxes', 503, body) == 'Too many requests at once, try again'
    finally:
        os.kill(gateway.host.cubed.pid, signal.SIGCONT)
    assert c.getresponse().status == 404
    c.close()
    client.fails('POST', '/v2/sandboxes', 404, body)


def test_many_at_once(gateway, client):
    results = []

    def work():
        c = UnixConnection(gateway.socket)
        for _ in range(20):
            results.append(client.raw('GET', '/v2/sandboxes', connection=c).status)
        c.close()
    workers = [threading.Thread(target=work) for _ in range(20)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert results == [200] * 400


def test_more_calls_than_a_bus_has_outstanding_wait_for_their_turn(gateway, client):
    """cubed stands still meanwhile; the bus takes 128 of a connection."""
    connections = [UnixConnection(gateway.socket) for _ in range(200)]
    os.kill(gateway.host.cubed.pid, signal.SIGSTOP)
    try:
        for c in connections:
            c.request('GET', '/sandboxes/nonexistingsandbox', headers={'X-API-Key': client.key})
    finally:
        os.kill(gateway.host.cubed.pid, signal.SIGCONT)
    assert [c.getresponse().status for c in connections] == [404] * 200
    for c in connections:
        c.close()


def test_when_it_ends_who_waits_is_answered(gateway, client):
    c = UnixConnection(gateway.socket)
    os.kill(gateway.host.cubed.pid, signal.SIGSTOP)
    try:
        c.request('GET', '/sandboxes/nonexistingsandbox', headers={'X-API-Key': client.key})
        # Those behind it are answered: it was read.
        for _ in range(3):
            client.call('GET', '/health', status=204)
        gateway.process.terminate()
        response = c.getresponse()
        assert response.status == 503 and json.loads(response.read())['code'] == 503
        assert response.headers['Retry-After'] == '1'
        assert gateway.process.wait(60) == 0, gateway.log()
    finally:
        os.kill(gateway.host.cubed.pid, signal.SIGCONT)
        gateway.process = None
        gateway.start()
    client.call('GET', '/v2/sandboxes')


def test_when_it_ends_nobody_begins_to_wait(gateway, client, raw):
    r = raw()
    os.kill(gateway.host.cubed.pid, signal.SIGSTOP)
    try:
        # The second is looked at once the first is answered.
        r.send((head(client, 'GET', '/sandboxes/nonexistingsandbox') + '\r\n') * 2)
        for _ in range(3):
            client.call('GET', '/health', status=204)
        gateway.process.terminate()
        assert r.read().count(b'HTTP/1.1 503 ') == 2
        assert gateway.process.wait(60) == 0, gateway.log()
    finally:
        os.kill(gateway.host.cubed.pid, signal.SIGCONT)
        gateway.process = None
        gateway.start()
    client.call('GET', '/v2/sandboxes')
