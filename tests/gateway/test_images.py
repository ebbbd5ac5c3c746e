# SPDX-License-Identifier: Apache-2.0
"""Images that are fetched for templates of tenants: by the real cube-fetch and skopeo from Debian's registry, with TLS and a
password, into the hands of a fake core that says what it was given."""

import contextlib
import http.server
import random
import resource
import socket
import ssl
import struct
import subprocess
import threading

import pytest

import gateway as gw
from fetching import FETCH, PASSWORD, REGISTRY_USER, RELAY, RELAY_USER, Fetching, Silent, make_registry, missing, ociimage
from registry import free_port
from test_templates import archive, ask, put, start, status, step, url, wait

LOGIN = {'type': 'registry', 'username': REGISTRY_USER, 'password': PASSWORD}


@pytest.fixture(scope='module')
def layout(tmp_path_factory):
    made = ociimage.Layout(tmp_path_factory.mktemp('image') / 'layout')
    made.digest = made.add_image([ociimage.layer(('f', 'etc/hostname', 'x', 0o644, 0, {}))], {'Env': ['A=b']})
    return made


@pytest.fixture(scope='module')
def registry(tmp_path_factory, layout):
    if missing():
        pytest.skip(missing())
    made = make_registry(tmp_path_factory.mktemp('registry'), layout)
    yield made
    made.stop()


@pytest.fixture(scope='module')
def serving(started, registry, tmp_path_factory):
    made = Fetching(started, tmp_path_factory.mktemp('fetch'), registry.directory / 'certs/ca.crt')
    made.start()
    yield made
    made.stop()


@pytest.fixture
def fetching(gateway, serving, registry):
    gateway.restart(f'ImageRegistries=docker.io {registry.name} *.silent.test\nImageNetworks=127.0.0.1\n')
    yield serving
    gateway.restart()
    gw.wait_for('all of it to be over', serving.at_rest)


@pytest.fixture
def client(gateway):
    return gateway.client()


def start_image(client, image, code=202, name='imaged', **more):
    build = ask(client, name)
    reply = start(client, build, code, fromTemplate=None, fromImage=image, **more)
    return build if code == 202 else reply.body.decode()


def failed(client, image, **more):
    end = wait(client, start_image(client, image, **more))
    assert end['status'] == 'error' and end['reason']['step'] == 'base', end
    return end['reason']['message'], '\n'.join(e['message'] for e in end['logEntries'])


def test_an_image_is_fetched_and_built_of(client, gateway, fetching, registry, layout):
    build = ask(client, 'whole', cpuCount=2, memoryMB=1024)
    path, _ = url(client, build)
    assert put(gateway, path, archive(a=b'x')).status == 200
    start(client, build, fromTemplate=None, fromImage=f'{registry.name}/team/app:1', fromImageRegistry=LOGIN,
          steps=[step('COPY', 'a', '/a', filesHash='ab' * 32), step('RUN', 'x')], startCmd='serve')
    end = wait(client, build)
    assert end['status'] == 'ready', '\n'.join(e['message'] for e in end['logEntries'])
    log = '\n'.join(e['message'] for e in end['logEntries'])
    # The manifest has the digests of all else.
    assert f'Fetching {registry.name}/team/app:1' in log and 'Copying blob' in log
    assert 'image "" of ' in log and layout.digest in log
    # The user comes before the client's steps, and is none of them.
    assert 'copy of a directory to /.cube-build' in log and '[1/2] COPY' in log and '[2/2] RUN' in log and 'start serve' in log
    assert client.call('POST', '/v2/sandboxes', {'templateID': 'whole'}, 201)['templateID'] == build['templateID']
    gw.wait_for('its end', fetching.at_rest)


def test_one_that_was_fetched_waits_until_cubed_has_room(client, fetching, registry):
    build = start_image(client, f'{registry.name}/team/app:1', name='crowded', fromImageRegistry=LOGIN)
    assert wait(client, build)['status'] == 'ready'


def test_a_password_is_seen_by_nobody(client, gateway, fetching, registry):
    assert wait(client, start_image(client, f'{registry.name}/team/app:1', fromImageRegistry=LOGIN))['status'] == 'ready'
    calls = fetching.calls.read_text()
    assert f'docker://{registry.name}/team/app:1' in calls and '--src-authfile' in calls
    for text in (calls, fetching.log(), gateway.log(), gateway.host.log()):
        assert PASSWORD not in text and 'Y3ViZTpvbmx5' not in text


@pytest.mark.parametrize('login, words', [
    (None, 'authentication required'), ({**LOGIN, 'password': 'wrong'}, 'unauthorized'),
    ({'type': 'gcp', 'serviceAccountJson': '{"a": "b"}'}, 'unauthorized'),
])
def test_whom_a_registry_does_not_let_in(client, fetching, registry, login, words):
    more = {'fromImageRegistry': login} if login else {}
    why, log = failed(client, f'{registry.name}/team/app:1', **more)
    assert why == f'{registry.name}/team/app:1 could not be fetched, the log says why'
    assert words in log


def test_what_is_not_in_the_registry(client, fetching, registry):
    assert 'manifest unknown' in failed(client, f'{registry.name}/team/none', fromImageRegistry=LOGIN)[1]


@pytest.mark.parametrize('image, words', [
    ('elsewhere.test/a', 'fetches no images from elsewhere.test; its administrator'),
    ('ghcr.io/a/b:1', 'fetches no images from ghcr.io'),
    ('localhost/a', 'fetches no images from localhost;'),
    ('silent.test/a', 'fetches no images from silent.test;'),
    ('A b', 'not the name of an image'),
    ('--help', 'not the name of an image'),
    ('docker.io/x:', 'not the name of an image'),
    ('registry.test/../x', 'not the name of an image'),
])
def test_other_registries_are_not_asked(client, fetching, image, words):
    assert words in start_image(client, image, 400)


@pytest.mark.parametrize('login, words', [
    ({'type': 'aws', 'awsAccessKeyId': 'a', 'awsSecretAccessKey': 'b', 'awsRegion': 'c'}, 'aws ecr get-login-password'),
    ({'type': 'other'}, 'type has to be registry or gcp'), ({}, 'type has to be registry or gcp'),
    ({'type': 'registry', 'username': 'a:b', 'password': 'c'}, 'no colon'), ({'type': 'registry', 'username': 'a'}, 'and a password'),
])
def test_passwords_that_are_none(client, fetching, registry, login, words):
    assert words in start_image(client, f'{registry.name}/a', 400, fromImageRegistry=login)


def test_networks_are_as_many_as_the_relay_takes(client, gateway, fetching, registry):
    gateway.restart(f'ImageRegistries={registry.name}\nImageNetworks={"127.0.0.1 " * 64}\n')
    assert wait(client, start_image(client, f'{registry.name}/team/app:1', fromImageRegistry=LOGIN))['status'] == 'ready'
    warned = gateway.log().count('not a value for this key')
    gateway.restart(f'ImageRegistries={registry.name}\nImageNetworks={"127.0.0.1 " * 65}\n')
    assert gateway.log().count('not a value for this key') == warned + 1


def test_addresses_that_are_not_the_internets_are_not_connected_to(client, gateway, fetching, registry):
    gateway.restart(f'ImageRegistries={registry.name}\n')
    with Silent().socket:
        _, log = failed(client, f'{registry.name}/team/app:1', fromImageRegistry=LOGIN)
    assert 'connection not allowed by ruleset' in log
    assert f'registry.test, port {registry.port}, was not connected to' in fetching.log()


class Redirect(http.server.BaseHTTPRequestHandler):
    """A registry that sends whoever asks for an image to another place."""

    def do_GET(self):
        self.send_response(307 if 'manifests' in self.path else 200)
        if 'manifests' in self.path:
            self.send_header('Location', self.server.place)
        self.send_header('Docker-Distribution-Api-Version', 'registry/2.0')
        self.send_header('Content-Length', '0')
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.mark.parametrize('place', ['inside.test', '127.0.0.2', 'localhost', '169.254.169.254', '[::1]', '[::ffff:127.0.0.2]'])
def test_nor_where_a_registry_sends_one(client, gateway, fetching, registry, place):
    inside = Silent('127.0.0.2')
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Redirect)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(registry.directory / 'certs/ca.crt', registry.directory / 'key')
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.place = f'https://{place}:{inside.port}/'
    name = f'registry.test:{server.server_port}'
    gateway.restart(f'ImageRegistries={name}\nImageNetworks=127.0.0.1/32\n')
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        _, log = failed(client, f'{name}/team/app:1')
    finally:
        server.shutdown()
        server.server_close()
    # Loopback is its own, on which nothing is.
    assert f'{place}:{inside.port}' in log and ('not allowed' in log or 'refused' in log or 'unreachable' in log), log
    assert not inside.was_asked()


@pytest.mark.parametrize('sizes', [[3000000], [400000] * 4])
def test_one_that_is_too_large(client, gateway, fetching, registry, tmp_path, sizes):
    """A file of it, or all of them together."""
    large = ociimage.Layout(tmp_path / 'layout')
    large.add_image([ociimage.layer(('f', f'large{i}', random.randbytes(size // 2).hex(), 0o644, 0, {}))
                     for i, size in enumerate(sizes)], {})
    registry.push(large, 'large')
    gateway.restart(f'ImageRegistries={registry.name}\nImageNetworks=127.0.0.1\nImageMax=500K\n')
    why, log = failed(client, f'{registry.name}/large', fromImageRegistry=LOGIN)
    # One file that grows past it between two looks is an error of skopeo's, which it says.
    assert ('has more than 500' in why and 'ImageMax=' in why) or (len(sizes) == 1 and 'file too large' in log), (why, log)


def test_one_that_takes_too_long(client, gateway, fetching):
    silent = Silent()
    name = f'registry.test:{silent.port}'
    gateway.restart(f'ImageRegistries={name}\nImageNetworks=127.0.0.1\nImageTimeoutSec=1s\n')
    assert 'not there within 1s (ImageTimeoutSec=)' in failed(client, f'{name}/a')[0]
    silent.socket.close()
    gw.wait_for('its end', fetching.at_rest)


def test_it_ends_with_the_gateway_and_leaves_nothing(client, gateway, fetching):
    silent = Silent()
    name = f'registry.test:{silent.port}'
    gateway.restart(f'ImageRegistries={name}\nImageNetworks=127.0.0.1\n')
    start_image(client, f'{name}/a')
    silent.socket.accept()
    assert fetching.running() and list(fetching.place.iterdir())
    gateway.restart()
    gw.wait_for('its end', fetching.at_rest)


def test_what_a_build_has_leaves_less_for_uploads_until_it_ends(client, gateway, fetching):
    silent = Silent()
    name = f'registry.test:{silent.port}'
    gateway.restart(f'ImageRegistries={name}\nImageNetworks=127.0.0.1\nUploadMax=100K\nUploadsMax=150K\n')
    build, data = ask(client, 'holding'), archive(x=random.Random(1).randbytes(90000))
    assert put(gateway, url(client, build)[0], data).status == 200
    start(client, build, fromTemplate=None, fromImage=f'{name}/a', steps=[step('COPY', 'a', '/a', filesHash='ab' * 32)])
    path, _ = url(client, build, 'cd' * 32)
    reply = put(gateway, path, data)
    assert reply.status == 507 and 'builds of this tenant that are under way' in reply.json['message']
    # What it had sent is not pushed out, and there for its build.
    assert url(client, build)[1]
    silent.socket.close()
    assert wait(client, build)['status'] == 'error'
    assert put(gateway, path, data).status == 200


@pytest.mark.parametrize('does', ['sleep 0.1', 'echo more'])
def test_what_an_image_leaves_running_is_not_waited_for(client, fetching, registry, does):
    """It has the pipe that skopeo writes to, and says nothing there, or does not stop to."""
    skopeo, until = fetching.dir / 'bin/skopeo', fetching.place / 'until'
    before = skopeo.read_text()
    skopeo.write_text(f'#!/bin/sh\nwhile [ -e {until} ]; do {does}; done &\nexit 1\n')
    until.touch()
    try:
        assert 'could not be fetched' in failed(client, f'{registry.name}/team/app:1')[0]
    finally:
        until.unlink()
        skopeo.write_text(before)
    gw.wait_for('its end', fetching.at_rest)


def test_a_tenant_has_no_more_on_their_way_than_he_leaves_to_others(client, gateway, fetching):
    silent = Silent()
    name = f'registry.test:{silent.port}'
    gateway.restart(f'ImageRegistries={name}\nImageNetworks=127.0.0.1\n')
    other = gateway.client()
    for i in range(4):
        start_image(client, f'{name}/a', name=f'many{i}')
    assert 'as many images as it can' in start_image(client, f'{name}/a', 429)
    start_image(other, f'{name}/a')


def test_without_the_service(client, gateway, fetching, registry):
    fetching.stop()
    try:
        build = ask(client, 'later')
        refused = start(client, build, 503, fromTemplate=None, fromImage=f'{registry.name}/team/app:1', fromImageRegistry=LOGIN)
        assert b'starts cube-fetch.socket' in refused.body
        assert status(client, build)['status'] == 'waiting'
    finally:
        fetching.start()
    start(client, build, fromTemplate=None, fromImage=f'{registry.name}/team/app:1', fromImageRegistry=LOGIN)
    assert wait(client, build)['status'] == 'ready'


def test_one_of_the_hosts_stands_for_an_image_but_not_for_who_has_a_password(client, fetching):
    assert wait(client, start_image(client, 'python'))['status'] == 'ready'
    assert 'Fetching docker.io/library/python:latest' in failed(client, 'python', fromImageRegistry=LOGIN)[1]


# The relay alone.

def packet(kind, text=b''):
    return kind.encode() + text


@pytest.fixture
def relay():
    """relay(networks): a function that connects to its SOCKS server, and the end that holds it."""
    held = []

    def start_one(networks):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.fileno()
        script = f'exec 3<&{fd}; [ {fd} = 3 ] || exec {fd}<&-; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0"'
        process = subprocess.Popen(['bash', '-c', script, RELAY], pass_fds=[fd], user=RELAY_USER, group=RELAY_USER, extra_groups=[],
                                   stderr=subprocess.PIPE)
        theirs.close()
        ours.send(packet('n', networks.encode()))
        listener = socket.create_server(('127.0.0.1', 0))
        socket.send_fds(ours, [packet('s')], [listener.fileno()])
        port = listener.getsockname()[1]
        listener.close()
        held.append((ours, process))
        return lambda: socket.create_connection(('127.0.0.1', port)), ours, process
    yield start_one
    for ours, process in held:
        ours.close()
        process.communicate()
        assert process.returncode == 0


def ask_relay(connect, host, port):
    s = connect()
    s.settimeout(60)
    s.sendall(b'\5\1\0\5\1\0\3' + bytes([len(host)]) + host.encode() + struct.pack('>H', port))
    answer = b''
    while len(answer) < 12 and (more := s.recv(12 - len(answer))):
        answer += more
    return s, answer[3] if len(answer) == 12 else None


def own_addresses():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(('192.0.2.1', 9))
            return [s.getsockname()[0]]
        except OSError:
            return []


def test_a_relay_passes_both_ways_and_each_end(relay):
    connect, _, _ = relay('127.0.0.0/8')
    with socket.create_server(('127.0.0.1', 0)) as server:
        s, answer = ask_relay(connect, '127.0.0.1', server.getsockname()[1])
        there = server.accept()[0]
    assert answer == 0
    s.sendall(b'x' * 300000)
    s.shutdown(socket.SHUT_WR)
    data = b''
    while more := there.recv(65536):
        data += more
    assert data == b'x' * 300000
    there.sendall(b'answer')
    there.close()
    assert s.recv(100) == b'answer' and s.recv(100) == b''


@pytest.mark.parametrize('networks, host, answer', [
    ('', '127.0.0.1', 2), ('127.0.0.2', '127.0.0.1', 2), ('127.0.0.1', '127.0.0.1', 5), ('10.0.0.0/8', '169.254.169.254', 2),
    ('', '::1', 2), ('', '::ffff:127.0.0.1', 2), ('', '64:ff9b::7f00:1', 2), ('', '0.0.0.0', 2), ('', 'localhost', 2), ('', '0x7f.1', 2),
    ('', 'no-such-name.invalid', 4), ('10.0.0.0/8', '127.1', 2),
])
def test_what_a_relay_connects_to(relay, networks, host, answer):
    connect, _, _ = relay(networks)
    assert ask_relay(connect, host, free_port())[1] == answer


@pytest.mark.parametrize('address', own_addresses())
def test_nor_to_another_address_of_this_host(relay, address):
    connect, _, _ = relay('')
    assert ask_relay(connect, address, free_port())[1] == 2


@pytest.mark.parametrize('hello', [b'GET / HTTP/1.1\r\n\r\n', b'\5\1\2', b'\5\1\0\5\2\0\1' + bytes(6), b'\5\1\0\5\1\0\3\3a b\0\1',
                                   b'\5\1\0\5\1\0\3\0\0\1', b'\5\1\0\5\1\0\1' + bytes(6), b'\5\1\0\5\1\0\x09' + bytes(6), b'\5'])
def test_what_is_no_request_of_socks_is_not_answered(relay, hello):
    connect, _, _ = relay('0.0.0.0/0')
    with connect() as s:
        s.sendall(hello)
        s.shutdown(socket.SHUT_WR)
        answer = b''
        # Reset, where it has not read all.
        with contextlib.suppress(ConnectionResetError):
            while more := s.recv(100):
                answer += more
    assert answer in (b'', b'\5\0')


def limit_processes(relay, most):
    """Of its user, who may."""
    subprocess.run(['prlimit', f'--pid={relay}', f'--nproc={most}:'], check=True, user=RELAY_USER, group=RELAY_USER, extra_groups=[])


def test_a_relay_counts_only_children_that_there_are(relay):
    connect, _, process = relay('127.0.0.1')
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = server.getsockname()[1]
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        limit_processes(process.pid, 0)
        # As many as it has at a time.
        for _ in range(64):
            with connect() as s:
                assert s.recv(1) == b''
        limit_processes(process.pid, 'unlimited' if soft == resource.RLIM_INFINITY else soft)
        assert ask_relay(connect, '127.0.0.1', port)[1] == 0


def test_a_relay_ends_with_its_connection(relay):
    connect, ours, process = relay('127.0.0.1')
    with socket.create_server(('127.0.0.1', 0)) as server:
        s, answer = ask_relay(connect, '127.0.0.1', server.getsockname()[1])
    assert answer == 0
    ours.close()
    assert process.wait(60) == 0 and s.recv(1) == b''


@pytest.mark.parametrize('program', [FETCH, RELAY])
@pytest.mark.parametrize('packets', [[], [b''], [b'x'], [b'i'], [b'i\1\0'], [b'nten'], [b'n300.0.0.0/8'], [b'n', b's'], [b'n', b'x'],
                                     [b'n' + b'10.0.0.0/8 ' * 65], [b'i' + bytes(60000)]])
def test_neither_goes_on_with_what_it_can_not_read(program, packets):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = theirs.fileno()
    script = f'exec 3<&{fd}; [ {fd} = 3 ] || exec {fd}<&-; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0"'
    with subprocess.Popen(['bash', '-c', script, program], pass_fds=[fd], stderr=subprocess.PIPE) as process:
        theirs.close()
        # It may have ended at the first one.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for p in packets:
                ours.send(p)
        ours.close()
        error = process.stderr.read().decode()
    assert process.returncode in (0, 1) and error.count('\n') <= 1, error
