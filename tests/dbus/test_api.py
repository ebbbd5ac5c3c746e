# SPDX-License-Identifier: Apache-2.0
"""The D-Bus front: names, options, errors, signals, introspection."""

import http.client
import json
import os
import pathlib
import pwd
import re
import socket
import subprocess

import pytest

from bushost import CUBED, FAKE_CUBED, NAME, NOBODY, ROOT, TOP, wait_for

MANAGER = (ROOT, 'Manager')


def sandbox(i):
    return f'{ROOT}/sandbox/{i}'


@pytest.mark.parametrize('interface', ['Manager', 'Sandbox', 'Template', 'Snapshot', 'Job'])
def test_committed_xml(host, interface):
    printed = host.run(CUBED, f'--bus-introspect={NAME}.{interface}')
    committed = (TOP / f'dbus/{NAME}.{interface}.xml').read_text()
    assert printed.stdout == committed


def test_the_man_page_has_them_all():
    """Methods, the options of calls, and the errors."""
    page = (TOP / 'docs/man/org.cubed.Cube1.5.scd').read_text()
    xml = ''.join(f.read_text() for f in (TOP / 'dbus').glob('*.xml'))
    code = ''.join(f.read_text() for f in (TOP / 'dbus').glob('bus-*.[ch]'))
    wanted = [f'*{m}*' for m in re.findall(r'<method name="(\w+)"', xml)]
    wanted += [f'*{o}*' for o in re.findall(r'\{ "([a-z-]+)", BUS_OPTION', code)]
    wanted += [f'_{e}_' for e in re.findall(r'BUS_ERROR_PREFIX "(\w+)"', code)]
    assert len(wanted) > 100 and [w for w in wanted if w not in page] == []


def test_introspect_unknown_interface(host):
    assert host.run(CUBED, f'--bus-introspect={NAME}.Nope').returncode != 0


@pytest.mark.parametrize('options, words', [
    (['1', 'memry', 't', '1'], "no option 'memry'"),
    (['1', 'memory', 's', '256M'], "'memory' has type s, but takes t"),
    (['2', 'cpus', 'u', '1', 'cpus', 'u', '2'], "'cpus' is given twice"),
    (['1', 'memory', 't', '0'], "'memory' is 0"),
    (['1', 'cpus', 'u', '0'], "'cpus' is 0"),
    (['1', 'timeout', 't', '0'], "'timeout' is 0"),
    (['1', 'hostname', 's', 'a b'], "Host name 'a b'"),
    (['1', 'request-id', 's', ''], 'request-id'),
    (['1', 'labels', 'a{ss}', '1', 'a=b', 'c'], "'a=b' is not a valid key"),
    (['1', 'idle-timeout', 't', '0'], "'idle-timeout' is 0"),
    (['1', 'on-timeout', 's', 'sleep'], "'on-timeout' is 'sleep'"),
    (['1', 'checkpoint', 's', 'often'], "'checkpoint' is 'often'"),
    (['1', 'checkpoint', 'u', '5'], "'checkpoint' has type u"),
    (['1', 'checkpoint', 't', '0'], "'checkpoint' is 0"),
    (['1', 'checkpoint', 't', '999999'], 'less than a second'),
    (['1', 'checkpoint', 't', str(2**64 - 1)], 'without an end'),
    (['2', 'checkpoint', 't', '5000000', 'checkpoint', 's', 'exec'], "'checkpoint' is given twice"),
])
def test_bad_options(host, options, words):
    result = host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', *options)
    assert result.returncode != 0
    assert words in result.stderr
    assert host.ids() == []


@pytest.mark.parametrize('source, words', [
    ('python', 'names no kind'),
    ('layer:x', 'must be template:'),
    ('snapshot:', "No snapshot ''"),
    ('snapshot:s99999999999', "No snapshot 's99999999999'"),
    ('template:nosuch', "No template 'nosuch'"),
    ('template:python:other', "No template 'python:other'"),
])
def test_bad_source(host, source, words):
    result = host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', source, '0')
    assert result.returncode != 0 and words in result.stderr


def test_create_by_id_and_by_default(host):
    for source in ('template:tpythonpython', 'template:python:latest', 'template:'):
        result = host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', source, '0')
        assert result.returncode == 0, result.stderr


def test_request_id(host):
    """A repeated call gets the same sandbox, also while the first one is under way."""
    calls = [subprocess.Popen(['busctl', '--system', 'call', NAME, ROOT, f'{NAME}.Manager', 'CreateSandbox', 'sa{sv}',
                               'template:python', '1', 'request-id', 's', 'one'], env=host.env,
                              stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {c.communicate(timeout=60)[0] for c in calls}
    assert len(answers) == 1 and len(host.ids()) == 1
    again = host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', '1', 'request-id', 's', 'one')
    assert {again.stdout} == answers


def test_properties_and_object_manager(host):
    i = host.create('--label', 'team=a b', '--memory', '256M', '--hostname', 'box-1', '--timeout', '1h')
    result = host.busctl('--json=short', 'call', NAME, ROOT, 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')
    objects = json.loads(result.stdout)['data'][0]
    p = {k: v['data'] for k, v in objects[sandbox(i)][f'{NAME}.Sandbox'].items()}
    assert p['Id'] == i and p['State'] == 'running' and p['Owner'] == 0
    assert p['Labels'] == {'team': 'a b'} and p['Memory'] == 256 << 20 and p['Hostname'] == 'box-1'
    assert p['TimeoutUSec'] == 3600 * 10**6 and p['Start'] == 'booted' and p['Scope'] == f'cube-{i}.scope'
    # what a guest told that is not UTF-8
    assert p['KernelRelease'] == '6.1.0-\\xfffake'
    assert f'{ROOT}/template/tpythonpython' in objects


def test_signals(host):
    monitor = subprocess.Popen(['busctl', '--system', 'monitor', '--json=short', NAME], env=host.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert 'Monitoring' in monitor.stderr.readline()
    i = host.create()
    host.ctl('kill', i)
    seen = []
    for line in monitor.stdout:
        message = json.loads(line)
        if message['type'] == 'signal':
            seen.append((message['member'], message['payload']['data']))
            if message['member'] == 'SandboxRemoved':
                break
    monitor.terminate()
    monitor.wait()
    names = [n for n, _ in seen]
    assert names.index('SandboxNew') < names.index('PropertiesChanged') < names.index('SandboxRemoved')
    assert ['SandboxRemoved', [i, 'killed', 0]] in [list(x) for x in seen]
    gone = [d for n, d in seen if n == 'InterfacesRemoved']
    assert gone and f'{NAME}.Sandbox' in gone[0][1]


def test_unknown_sandbox(host):
    for method, signature, arguments in (('Stop', '', []), ('SetTimeout', 't', ['5']), ('Exec', 'asa{sv}', ['1', 'ls', '0'])):
        result = host.call(sandbox('i99999999999'), 'Sandbox', method, signature, *arguments)
        assert result.returncode != 0 and "No sandbox 'i99999999999'" in result.stderr
    assert 'not a sandbox id' in host.call(*MANAGER, 'GetSandbox', 's', 'No!').stderr


def test_get_by_pid(host, guest):
    pid = host.busctl('get-property', NAME, sandbox(guest), f'{NAME}.Sandbox', 'VMMPID').stdout.split()[1]
    assert sandbox(guest) in host.call(*MANAGER, 'GetSandboxByPID', 'u', pid).stdout
    assert 'belongs to no sandbox' in host.call(*MANAGER, 'GetSandboxByPID', 'u', '1').stderr


@pytest.mark.parametrize('method, signature, arguments, words', [
    ('Exec', 'asa{sv}', ['0', '0'], 'no program'),
    ('Exec', 'asa{sv}', ['1', 'ls', '1', 'env', 'as', '1', 'secret'], "Entry 1 of option 'env'"),
    ('Exec', 'asa{sv}', ['1', 'ls', '1', 'cwd', 's', 'tmp'], 'not absolute'),
    ('Exec', 'asa{sv}', ['1', 'ls', '1', 'rows', 'u', '5'], "no option 'rows'"),
    ('SignalProcess', 'uib', ['1', '0', 'false'], 'not a signal'),
    ('ResizeProcess', 'uuu', ['1', '0', '80'], "can't have"),
    ('Connect', 'q', ['0'], 'Port 0'),
    ('StatFile', 'sb', ['etc', 'false'], 'not absolute'),
    ('CopyTo', 'sa{sv}', ['/x', '1', 'mode', 'u', '65536'], 'no mode'),
    ('SetLimits', 'a{sv}', ['1', 'memory', 's', '5'], "'memory'"),
    ('SetLimits', 'a{sv}', ['1', 'disk', 't', '5'], "no option 'disk'"),
    ('SetIdleTimeout', 't', ['0'], 'over at once'),
    ('Pause', 'a{sv}', ['1', 'disk', 'b', 'true'], "no option 'disk'"),
    ('Resume', 'a{sv}', ['1', 'disk', 'b', 'true'], "no option 'disk'"),
    ('Snapshot', 'a{sv}', ['1', 'name', 's', 'a b'], "'a b' is not a name"),
    ('Snapshot', 'a{sv}', ['1', 'name', 's', ''], 'not a name'),
    ('Fork', 'ua{sv}', ['0', '0'], '0 copies'),
    ('Fork', 'ua{sv}', ['129', '0'], '129 copies'),
    ('Fork', 'ua{sv}', ['1', '1', 'on-timeout', 's', 'x'], "'on-timeout' is 'x'"),
    ('Fork', 'ua{sv}', ['1', '1', 'hostname', 's', 'x'], "no option 'hostname'"),
    ('Rollback', 'sa{sv}', ['s99999999999', '0'], "no snapshot 's99999999999'"),
])
def test_bad_arguments(host, guest, method, signature, arguments, words):
    result = host.call(sandbox(guest), 'Sandbox', method, signature, *arguments)
    assert result.returncode != 0 and words in result.stderr
    assert 'secret' not in result.stderr


def test_files(host, guest, tmp_path):
    """Names that are not UTF-8, or have a character that the bus has none for, come out escaped."""
    (tmp_path / 'plain').write_text('12345')
    (tmp_path / 'link').symlink_to('plain')
    (pathlib.Path(str(tmp_path)) / b'bad\xff'.decode('utf-8', 'surrogateescape')).touch()
    (tmp_path / 'none\ufffe\U0010ffff').touch()
    result = host.busctl('--json=short', 'call', NAME, sandbox(guest), f'{NAME}.Sandbox', 'ListDirectory', 's', tmp_path)
    files = {f[0]: f for f in json.loads(result.stdout)['data'][0]}
    assert set(files) == {'plain', 'link', 'bad\\xff', 'none\\xef\\xbf\\xbe\\xf4\\x8f\\xbf\\xbf'}
    assert files['plain'][4] == 5 and files['link'][6] == 'plain'

    def call(method, signature, *arguments):
        return host.call(sandbox(guest), 'Sandbox', method, signature, *arguments)
    assert call('MakeDirectory', 'sa{sv}', tmp_path / 'a/b', '1', 'parents', 'b', 'true').returncode == 0
    assert call('RenameFile', 'ss', tmp_path / 'plain', tmp_path / 'a/b/moved').returncode == 0
    assert (tmp_path / 'a/b/moved').read_text() == '12345'
    assert call('RemoveFile', 'sb', tmp_path / 'a', 'false').returncode != 0
    assert call('RemoveFile', 'sb', tmp_path / 'a', 'true').returncode == 0
    assert not (tmp_path / 'a').exists()
    missing = call('StatFile', 'sb', '/nosuch', 'true')
    assert missing.returncode != 0 and 'No such file' in missing.stderr


def test_envd(host, guest):
    with socket.socket(socket.AF_INET6) as s:
        s.bind(('::', 0))
        port = s.getsockname()[1]

    def serve(*options):
        return host.call(sandbox(guest), 'Sandbox', 'ServeEnvd', 'a{sv}', str(len(options)), *(a for o in options for a in o))

    def variables(token):
        c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
        c.request('GET', '/envs', headers={'X-Access-Token': token})
        r = c.getresponse()
        body = json.loads(r.read())
        c.close()
        return r.status, body

    given = ('port', 'u', str(port)), ('token', 's', 'secret'), ('user', 's', 'root'), ('cwd', 's', '/')
    assert serve(*given, ('env', 'as', '1', 'A=b')).returncode == 0
    assert variables('secret') == (200, {'E2B_SANDBOX': 'true', 'A': 'b'}) and variables('other')[0] == 401
    for option, words in ((('token', 's', ''), 'An empty token is none'), (('cwd', 's', 'secret'), 'not an absolute path'),
                          (('env', 'as', '1', 'secret'), 'not of the form NAME=VALUE'), (('port', 'u', '65536'), 'no port 65536'),
                          (('port', 'u', str(port % 65535 + 1)), 'it has another one already')):
        result = serve(option)
        assert result.returncode != 0 and words in result.stderr and 'secret' not in result.stderr
    assert variables('secret')[0] == 200
    assert serve(*given, ('env', 'as', '1', 'C=d'), ('keep-env', 'b', 'true')).returncode == 0
    assert variables('secret') == (200, {'E2B_SANDBOX': 'true', 'A': 'b', 'C': 'd'})
    assert serve(given[0], given[1], ('user', 's', 'nobody-here'), ('user-optional', 'b', 'true')).returncode == 0
    assert variables('secret') == (200, {'E2B_SANDBOX': 'true'})
    assert 'secret' not in host.log()


def test_envd_is_as_the_template_says(host):
    guest = host.create('--template=daemon')
    path = f'/tmp/envd-of-a-template-{os.getpid()}'
    with socket.socket(socket.AF_INET6) as s:
        s.bind(('::', 0))
        port = s.getsockname()[1]

    def owner(*options):
        given = ('port', 'u', str(port)), *options
        assert host.call(sandbox(guest), 'Sandbox', 'ServeEnvd', 'a{sv}', str(len(given)), *(a for o in given for a in o)).returncode == 0
        c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
        c.request('POST', f'/files?path={path}', b'', {'Content-Type': 'application/octet-stream'})
        assert c.getresponse().status == 200
        c.close()
        uid = os.stat(path).st_uid
        os.unlink(path)
        return pwd.getpwuid(uid).pw_name

    optional = 'user-optional', 'b', 'true'
    assert owner() == 'daemon'
    assert owner(('user', 's', 'games')) == 'games'
    assert owner(('user', 's', 'games'), optional) == 'daemon'


def test_limits_and_statistics(host, guest):
    assert host.call(sandbox(guest), 'Sandbox', 'SetLimits', 'a{sv}', '1', 'cpu-quota', 't', '500000').returncode == 0
    assert host.call(sandbox(guest), 'Sandbox', 'SetTimeout', 't', '60000000').returncode == 0
    p = host.ctl('show', guest, '-p', 'CPUQuotaPerSecUSec,TimeoutUSec', '--value').stdout.split('\n')
    assert p[:2] == ['500ms', '1min']
    assert host.call(sandbox(guest), 'Sandbox', 'SetLimits', 'a{sv}', '1', 'memory', 't', '1073741824').returncode == 0
    assert host.ctl('show', guest, '-p', 'Memory', '--value').stdout.strip() == '1073741824'
    statistics = host.call(sandbox(guest), 'Sandbox', 'GetStatistics').stdout
    assert '"exits" t 17' in statistics and 'MemoryPeak' not in statistics


def test_what_the_guest_says_of_itself(host, guest):
    """The agent runs as a process of this host here."""
    usage = host.call(sandbox(guest), 'Sandbox', 'GetGuestUsage').stdout
    figures = {name: int(value) for name, value in re.findall(r'"(\w+)" [tu] (\d+)', usage)}
    assert set(figures) == {'CPUs', 'CPUTotalUSec', 'CPUIdleUSec', 'MemoryTotal', 'MemoryUsed', 'MemoryCache', 'DiskTotal', 'DiskUsed'}
    assert figures['CPUs'] == os.cpu_count() and figures['CPUIdleUSec'] <= figures['CPUTotalUSec']
    assert 0 < figures['MemoryUsed'] < figures['MemoryTotal'] and 0 < figures['DiskUsed'] < figures['DiskTotal']


def test_bound_client(host):
    """A sandbox made with bind-client ends with its client: busctl leaves as soon as it has its answer."""
    result = host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', '1', 'bind-client', 'b', 'true')
    assert result.returncode == 0
    wait_for('the sandbox to be gone', lambda: host.ids() == [])


def test_audit(host, guest):
    host.ctl('exec', guest, '-e', 'TOKEN=hunter2', '--', 'true')
    host.ctl('kill', guest)
    log = host.log()
    assert f'audit exec {guest} actor=0 program=true' in log and f'audit kill {guest} actor=0' in log
    assert 'hunter2' not in log


def test_only_one_cubed(host):
    second = host.run(FAKE_CUBED, '/nonexistent')
    assert second.returncode != 0 and 'File exists' in second.stderr


def test_nobody_may_not_own_the_name(host):
    result = host.run(FAKE_CUBED, '/nonexistent', uid=NOBODY)
    assert result.returncode != 0 and 'Permission denied' in result.stderr


def test_a_build_has_ordered_steps(host):
    steps = ['steps', 'a(sas)', '3', 'ENV', '2', 'A', '1', 'RUN', '2', 'make install', 'app', 'WORKDIR', '1', '/srv']
    result = host.call(*MANAGER, 'DeriveTemplate', 'ssa{sv}', 'stepped', 'python', '1', *steps)
    assert result.returncode == 0, result.stderr
    job = result.stdout.split('"')[1]

    def get(name):
        return host.busctl('get-property', NAME, job, f'{NAME}.Job', name).stdout.strip()
    wait_for('the build', lambda: get('State') == 's "done"')
    assert get('BuildStep') == 'u 4' and get('CachedSteps') == 'u 0'


@pytest.mark.parametrize('option, words', [
    (['steps', 'as', '1', 'RUN'], "'steps' has type as, but takes a(sas)"),
    (['kernel-name', 's', 'small'], "no option 'kernel-name'"),
    (['disk', 't', '1'], "no option 'disk'"),
    (['no-cache', 'u', '1'], "'no-cache' has type u, but takes b"),
    (['force-step', 'u', '0'], "'force-step'"),
    (['steps', 'a(sas)', '257', *(['RUN', '1', 'true'] * 257)], 'more than 256 entries'),
])
def test_wrong_options_of_a_build_on_another_template(host, option, words):
    result = host.call(*MANAGER, 'DeriveTemplate', 'ssa{sv}', 'stepped', 'python', '1', *option)
    assert result.returncode != 0 and words in result.stderr, result.stderr


def test_a_build_on_a_template_that_is_not_there(host):
    result = host.call(*MANAGER, 'DeriveTemplate', 'ssa{sv}', 'stepped', 'nosuch', '0')
    assert "No template 'nosuch'" in result.stderr
    # Nor on one of somebody else's.
    result = host.call(*MANAGER, 'DeriveTemplate', 'ssa{sv}', 'stepped', 'private', '0', uid=NOBODY)
    assert result.returncode != 0
