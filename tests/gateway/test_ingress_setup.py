# SPDX-License-Identifier: Apache-2.0
"""cubectl ingress: which files it writes for haproxy and the gateway, for whom they are, and what clients are told."""

import os
import subprocess

import pytest

from ingress import set_up, variables_of


@pytest.fixture
def host(started):
    return started.host


def openssl(*argv):
    return subprocess.run(['openssl', *map(str, argv)], capture_output=True, text=True)


def verified(files, name):
    return openssl('verify', '-CAfile', files / 'ca.pem', '-verify_hostname', name, files / 'tls.pem').returncode == 0


def test_without_a_word_there_is_no_tls(host, tmp_path):
    assert set_up(host, tmp_path).stdout == 'export E2B_API_URL=http://127.0.0.1:3000\nexport E2B_SANDBOX_URL=http://127.0.0.1:3000\n'
    assert variables_of(tmp_path) == {'HTTP': '127.0.0.1:3000'}
    assert sorted(p.name for p in tmp_path.rglob('*') if p.is_file()) == ['ingress.conf']


def test_a_domain_has_a_certificate(host, tmp_path):
    out = set_up(host, tmp_path, '--domain=cube.test').stdout
    ca = tmp_path / 'etc/cubed/ingress/ca.pem'
    assert out == f'export E2B_DOMAIN=cube.test:8443\nexport SSL_CERT_FILE={ca}\nexport NODE_EXTRA_CA_CERTS={ca}\n'
    assert variables_of(tmp_path) == {'HTTP': '127.0.0.1:3000', 'HTTPS': '127.0.0.1:8443', 'DOMAIN': 'cube.test'}
    assert (tmp_path / 'etc/cubed/gateway.conf.d/ingress.conf').read_text().endswith('[Gateway]\nDomain=cube.test:8443\n')
    files = ca.parent
    assert {p.name: p.stat().st_mode & 0o777 for p in files.iterdir()} == {
        'ca.key': 0o600, 'ca.pem': 0o644, 'ca.domain': 0o644, 'tls.pem': 0o600}
    for name in ('cube.test', 'api.cube.test', '49983-iabc.cube.test'):
        assert verified(files, name)
    for name in ('a.b.cube.test', 'example.test', 'test'):
        assert not verified(files, name)


def test_gateway_and_clients_can_read_what_a_careful_root_makes(host, tmp_path):
    before = os.umask(0o077)
    try:
        set_up(host, tmp_path, '--domain=cube.test')
    finally:
        os.umask(before)
    for path in ('etc/cubed', 'etc/cubed/ingress', 'etc/cubed/gateway.conf.d'):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o755, path
    for path in ('ingress/ca.pem', 'gateway.conf.d/ingress.conf'):
        assert (tmp_path / 'etc/cubed' / path).stat().st_mode & 0o777 == 0o644, path
    for path in ('ca.key', 'tls.pem'):
        assert (tmp_path / 'etc/cubed/ingress' / path).stat().st_mode & 0o777 == 0o600, path


def test_the_authority_can_vouch_for_nothing_else(host, tmp_path):
    set_up(host, tmp_path, '--domain=cube.test')
    files = tmp_path / 'etc/cubed/ingress'
    for name, good in (('DNS:x.cube.test', True), ('DNS:example.test', False), ('DNS:notcube.test', False), ('IP:127.0.0.1', False)):
        made = openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', tmp_path / 'k',
                       '-out', tmp_path / 'c', '-subj', '/CN=x', '-addext', f'subjectAltName={name}', '-addext',
                       'basicConstraints=critical,CA:FALSE', '-CA', files / 'ca.pem', '-CAkey', files / 'ca.key')
        assert made.returncode == 0, made.stderr
        assert (openssl('verify', '-CAfile', files / 'ca.pem', tmp_path / 'c').returncode == 0) == good, name


def test_a_second_setup_renews_the_certificate_and_keeps_the_authority(host, tmp_path):
    set_up(host, tmp_path, '--domain=cube.test')
    files = tmp_path / 'etc/cubed/ingress'
    before = {p.name: p.read_bytes() for p in files.iterdir()}
    set_up(host, tmp_path, '--domain=cube.test', '--listen=0.0.0.0:443', '--listen-plain=[::1]:80')
    after = {p.name: p.read_bytes() for p in files.iterdir()}
    assert {n for n in before if before[n] != after[n]} == {'tls.pem'} and verified(files, 'x.cube.test')
    assert variables_of(tmp_path) == {'HTTP': '[::1]:80', 'HTTPS': '0.0.0.0:443', 'DOMAIN': 'cube.test'}
    assert host.ctl('ingress', 'env', f'--root={tmp_path}').stdout.splitlines()[0] == 'export E2B_DOMAIN=cube.test'
    assert host.ctl('ingress', 'env', f'--root={tmp_path}', '--headers').stdout.splitlines() == [
        'export E2B_API_URL=http://[::1]:80', 'export E2B_SANDBOX_URL=http://[::1]:80']
    set_up(host, tmp_path, '--domain=other.test')
    assert verified(files, 'x.other.test') and (files / 'ca.key').read_bytes() != before['ca.key']


def test_it_says_what_is_open_to_others(host, tmp_path):
    assert 'Without TLS keys and all else can be read' in set_up(host, tmp_path, '--listen-plain=0.0.0.0').stderr
    assert 'Without TLS' not in set_up(host, tmp_path, '--domain=cube.test').stderr


@pytest.mark.parametrize('options', [
    ['--domain=localhost'], ['--domain=-a.test'], ['--domain=a..test'], ['--domain=a.test.'], ['--domain=A.test'],
    ['--domain=a.test\nHTTP=0.0.0.0:1'], ['--domain=' + 'a.' * 200 + 'test'], ['--domain='], ['--listen=1'],
    ['--listen-plain=0'], ['--listen-plain=65536'], ['--listen-plain=host:1'], ['--listen-plain=1.2.3.4:x'],
    ['--listen-plain=::1'], ['--listen-plain=[127.0.0.1]'], ['--listen-plain=127.0.0.1:1 ssl'], ['--headers'], ['x'],
    ['--domain=a.test', '--listen=1', '--listen-plain=1'], ['--domain=a.test', '--listen-plain=0.0.0.0:8443'],
    ['--domain=a.test', '--listen=[::]:443', '--listen-plain=192.0.2.1:443'],
])
def test_what_it_refuses(host, tmp_path, options):
    result = host.ctl('ingress', 'setup', f'--root={tmp_path}', *options)
    assert result.returncode == 1 and result.stderr and not result.stdout
    assert not list(tmp_path.iterdir())


def test_removed_is_all_that_it_made(host, tmp_path):
    set_up(host, tmp_path, '--domain=cube.test')
    own = tmp_path / 'etc/cubed/gateway.conf.d/own.conf'
    own.write_text('')
    result = host.ctl('ingress', 'remove', f'--root={tmp_path}')
    assert result.returncode == 0, result.stderr
    assert [p for p in tmp_path.rglob('*') if p.is_file()] == [own] and not (tmp_path / 'etc/cubed/ingress').exists()
    assert 'cubectl ingress setup' in host.ctl('ingress', 'env', f'--root={tmp_path}').stderr
