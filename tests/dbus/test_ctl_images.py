# SPDX-License-Identifier: Apache-2.0
"""Container images that cubectl brings in by skopeo: from Debian's registry on loopback, and from archives."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys

import pytest

from bushost import BUILD, CUBECTL, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'lib'))

import ociimage  # noqa: E402
from registry import Registry, run  # noqa: E402

LAYERS = [
    ociimage.layer(('d', 'etc', '', 0o755, 0, {}), ('f', 'etc/old', 'old', 0o644, 0, {}),
                   ('f', 'bin/su', 'su', 0o4755, 0, {}), ('f', 'bin/ping', 'p', 0o755, 7, {'user.caps': 'raw'})),
    ociimage.layer(('f', 'etc/.wh.old', '', 0o644, 0, {}), ('h', 'bin/su2', 'bin/su', 0o4755, 0, {}),
                   ('f', 'etc/new', 'new', 0o600, 1000, {}), ('l', 'sbin', 'bin', 0o777, 0, {})),
]


@pytest.fixture(scope='module')
def layout(tmp_path_factory):
    made = ociimage.Layout(tmp_path_factory.mktemp('image') / 'layout')
    made.digest = made.add_image(LAYERS, {'Env': ['A=b'], 'User': 'app'})
    return made


@pytest.fixture
def build(host, tmp_path):
    """build(reference, option...): cubectl's result. What it made for it is gone by then."""
    place = tmp_path / 'place'
    place.mkdir()

    def go(reference, *options):
        result = host.ctl('template', 'build', 'mine', '--from', reference, *options,
                          env={'TMPDIR': str(place), 'HOME': str(tmp_path), 'REGISTRY_AUTH_FILE': ''})
        assert list(place.iterdir()) == []
        return result
    return go


@pytest.fixture(scope='module')
def registry(tmp_path_factory):
    """registry(tls): one of its own."""
    started = []

    def start(tls):
        started.append(Registry(tmp_path_factory.mktemp('registry'), tls))
        return started[-1]
    yield start
    for made in started:
        made.stop()


@pytest.fixture(scope='module')
def private(registry, layout):
    """A registry with TLS and a password that has the image."""
    made = registry(True)
    made.push(layout, 'team/app:1')
    return made.address, made.directory


def test_a_registry_with_tls_and_a_password(build, private, layout):
    address, top = private
    good = build(f'docker://{address}/team/app:1', '--authfile', top / 'auth.json', '--cert-dir', top / 'certs')
    assert good.returncode == 0, good.stderr
    # The manifest has the digests of all else.
    assert 'image "" of ' in good.stderr and layout.digest in good.stderr
    assert 'Copying blob' in good.stderr and good.stdout == 'tfakefakefake\n'


def test_what_a_registry_refuses(build, private, tmp_path):
    address, top = private
    reference = f'docker://{address}/team/app:1'
    wrong = tmp_path / 'wrong.json'
    wrong.write_text((top / 'auth.json').read_text().replace('Y3ViZT', 'Y3ViZX'))
    for options, words in [(['--cert-dir', top / 'certs'], 'authentication required'),
                           (['--cert-dir', top / 'certs', '--authfile', wrong], 'unauthorized'),
                           (['--authfile', top / 'auth.json'], 'certificate signed by unknown authority')]:
        bad = build(reference, *options)
        assert bad.returncode == 1 and words in bad.stderr and bad.stdout == '', bad.stderr
        assert f'bring in {reference}' in bad.stderr
    bad = build(f'docker://{address}/team/other', '--authfile', top / 'auth.json', '--cert-dir', top / 'certs')
    assert bad.returncode == 1 and 'manifest unknown' in bad.stderr


def test_plain_http_only_where_it_is_asked_for(build, registry, layout):
    plain = registry(False)
    plain.push(layout, 'app')
    address = plain.address
    bad = build(f'docker://{address}/app')
    assert bad.returncode == 1 and 'HTTP response to HTTPS client' in bad.stderr
    good = build(f'docker://{address}/app', '--insecure')
    assert good.returncode == 0 and layout.digest in good.stderr


def test_a_layout_is_given_as_it_is(build, layout):
    good = build(f'oci:{layout.directory}:latest')
    assert good.returncode == 0 and 'image "latest" of ' in good.stderr and layout.digest in good.stderr
    assert 'image "" of ' in build(f'oci:{layout.directory}').stderr
    bad = build(f'oci:{layout.directory}/index.json')
    assert bad.returncode == 1 and 'Not a directory' in bad.stderr


@pytest.mark.parametrize('kind', ['docker-archive', 'oci-archive'])
def test_archives(build, layout, tmp_path, kind):
    run('skopeo', 'copy', f'oci:{layout.directory}', f'{kind}:{tmp_path}/image.tar:app:1')
    good = build(f'{kind}:{tmp_path}/image.tar')
    assert good.returncode == 0 and 'image "" of ' in good.stderr, good.stderr
    (tmp_path / 'image.tar').write_bytes(b'this is no archive')
    assert build(f'{kind}:{tmp_path}/image.tar').returncode == 1
    assert 'no such file' in build(f'{kind}:{tmp_path}/nothing.tar').stderr


@pytest.mark.parametrize('options', [[], ['--dest-oci-accept-uncompressed-layers']])
def test_what_skopeo_makes_becomes_the_same_files(layout, tmp_path, options):
    """By way of docker's own format, whose layers are packed or not."""
    run('skopeo', 'copy', f'oci:{layout.directory}', f'docker-archive:{tmp_path}/image.tar:app:1')
    run('skopeo', 'copy', *options, f'docker-archive:{tmp_path}/image.tar', f'oci:{tmp_path}/layout')
    found = []
    for directory in (layout.directory, tmp_path / 'layout'):
        info = f'exec {BUILD}/daemon/image/cube-image image-info "" <"$1" 3>&1'
        about = json.loads(run('sh', '-c', info, 'sh', directory))
        assert about['defaults'] == {'env': ['A=b'], 'user': 'app'}
        merge = f'exec {BUILD}/daemon/image/cube-image image 1000000 "$2" <"$1"'
        found.append(ociimage.manifest(run('sh', '-c', merge, 'sh', directory, about['manifest'])))
    assert found[0] == found[1] == ociimage.manifest(ociimage.layer(
        ('d', 'etc', '', 0o755, 0, {}), ('d', 'bin', '', 0o755, 0, {}), ('f', 'bin/su', 'su', 0o4755, 0, {}),
        ('h', 'bin/su2', 'bin/su', 0o4755, 0, {}), ('f', 'bin/ping', 'p', 0o755, 7, {'user.caps': 'raw'}),
        ('f', 'etc/new', 'new', 0o600, 1000, {}), ('l', 'sbin', 'bin', 0o777, 0, {})))


def test_layers_are_read_with_nothing_left_to_open(tmp_path):
    """By a second filter, that has no call for it: what reads them may be root, whose the directory is."""
    program = f'{BUILD}/daemon/image/cube-image'
    if b'__asan' in pathlib.Path(program).read_bytes():
        pytest.skip('sanitizers do without filters')
    layout = ociimage.Layout(tmp_path / 'layout')
    layout.add_image([ociimage.layer(('f', 'large', random.Random(1).randbytes(500000).hex(), 0o644, 0, {}))], {})
    manifest = json.loads((layout.directory / 'index.json').read_text())['manifests'][0]['digest']
    fd = os.open(layout.directory, os.O_RDONLY)
    with subprocess.Popen([program, 'image', '10000000', manifest], stdin=fd, stdout=subprocess.PIPE) as p:
        os.close(fd)
        status = pathlib.Path(f'/proc/{p.pid}/status')
        # It waits for us once the pipe is full.
        wait_for('its second filter', lambda: 'Seccomp_filters:\t2\n' in status.read_text())
        assert len(p.stdout.read()) > 1000000
    assert p.returncode == 0


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_leaves_nothing(host, tmp_path, number):
    """A registry that takes the connection and says nothing."""
    (tmp_path / 'place').mkdir()
    with socket.create_server(('127.0.0.1', 0)) as silent:
        p = subprocess.Popen([CUBECTL, 'template', 'build', 'mine', '--insecure', '--from',
                              f'docker://127.0.0.1:{silent.getsockname()[1]}/app'], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**host.env, 'TMPDIR': str(tmp_path / 'place')})
        silent.accept()
        p.send_signal(number)
        out, error = p.communicate(timeout=60)
    assert p.returncode == 1 and out == b'' and b'interrupted' in error
    assert list((tmp_path / 'place').iterdir()) == []


def test_skopeo_is_needed_for_what_is_not_here(host, tmp_path):
    bad = host.ctl('template', 'build', 'mine', '--from', 'docker://127.0.0.1:1/app', env={'PATH': str(tmp_path)})
    assert bad.returncode == 1 and 'skopeo: not found: install the package' in bad.stderr


def test_what_skopeo_says_commands_no_terminal(host, tmp_path):
    """A registry chooses the words of its errors."""
    (tmp_path / 'skopeo').write_text("#!/bin/sh\nprintf 'denied: \\033[2J\\303\\251\\n' >&2\nprintf 'the end\\302' >&2\nexit 1\n")
    (tmp_path / 'skopeo').chmod(0o755)
    bad = host.ctl('template', 'build', 'mine', '--from', 'docker://127.0.0.1:1/app', env={'PATH': f'{tmp_path}:{os.environ["PATH"]}'})
    assert bad.returncode == 1 and bad.stderr.startswith('denied: \\x1b[2Jé\nthe end\\xc2') and 'skopeo said why' in bad.stderr


@pytest.mark.parametrize('argv, words', [
    (['--from', 'debian:12'], 'docker://NAME'),
    (['--from', '/x', '--insecure'], 'are for registries'),
    (['--from', 'oci:/x', '--authfile', 'y'], 'are for registries'),
    (['--from', 'oci:/nonexistent'], 'No such file'),
])
def test_usage(host, argv, words):
    bad = host.ctl('template', 'build', 'mine', *argv)
    assert bad.returncode in (1, 2) and words in bad.stderr and bad.stdout == ''
