# SPDX-License-Identifier: Apache-2.0
"""Who may do what: root, the owner, whom polkit lets; polkit allowing, denying, absent, hanging."""

import os
import subprocess
import time

import pytest

from bushost import CUBECTL, NAME, NOBODY, ROOT, wait_for

OTHER = 1  # daemon: the bus takes only users that exist
MANAGER = (ROOT, 'Manager')
DENIED = 'Access denied'


def sandbox(i):
    return f'{ROOT}/sandbox/{i}'


CALLS = [
    ('Stop', '', []),
    ('Kill', '', []),
    ('SetTimeout', 't', ['1000000']),
    ('SetLimits', 'a{sv}', ['0']),
    ('GetStatistics', '', []),
    ('GetGuestUsage', '', []),
    ('Exec', 'asa{sv}', ['1', 'true', '0']),
    ('ExecPty', 'asa{sv}', ['1', 'true', '0']),
    ('WaitProcess', 'u', ['2']),
    ('SignalProcess', 'uib', ['2', '9', 'true']),
    ('ResizeProcess', 'uuu', ['2', '24', '80']),
    ('ListProcesses', '', []),
    ('CopyTo', 'sa{sv}', ['/tmp/x', '0']),
    ('CopyFrom', 'sa{sv}', ['/etc/passwd', '0']),
    ('StatFile', 'sb', ['/etc/passwd', 'true']),
    ('ListDirectory', 's', ['/']),
    ('RemoveFile', 'sb', ['/nonexistent', 'false']),
    ('RenameFile', 'ss', ['/nonexistent', '/nonexistent2']),
    ('MakeDirectory', 'sa{sv}', ['/nonexistent/a', '0']),
    ('ServeEnvd', 'a{sv}', ['0']),
    ('Connect', 'q', ['80']),
    ('OpenConsole', '', []),
    ('SetIdleTimeout', 't', ['1000000']),
    ('SetAutoResume', 'b', ['true']),
    ('Pause', 'a{sv}', ['0']),
    ('Resume', 'a{sv}', ['0']),
    ('Snapshot', 'a{sv}', ['0']),
    ('Fork', 'ua{sv}', ['1', '0']),
    ('Rollback', 'sa{sv}', ['s99999999999', '0']),
    ('SetNetworkPolicy', 'a{sv}', ['1', 'default', 's', 'internet']),
    ('ChangeNetworkPolicy', 'a{sv}a{sv}', ['0', '0']),
]


def test_list_of_calls_is_complete(host, guest):
    import re
    xml = host.busctl('introspect', '--xml-interface', NAME, sandbox(guest)).stdout
    ours = re.search(r'<interface name="org\.cubed\.Cube1\.Sandbox">.*?</interface>', xml, re.S)[0]
    assert sorted(re.findall(r'<method name="(\w+)"', ours)) == sorted(name for name, _, _ in CALLS)


@pytest.mark.parametrize('method, signature, arguments', CALLS)
def test_another_uid_is_denied(host, guest, method, signature, arguments):
    """No polkit on this bus: absent means denied."""
    result = host.call(sandbox(guest), 'Sandbox', method, signature, *arguments, uid=NOBODY)
    assert result.returncode != 0 and DENIED in result.stderr
    assert guest in host.ids()
    assert f'audit denied actor={NOBODY}' in host.log()


def test_typed_error(host, guest):
    dbus = pytest.importorskip('dbus')
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            bus = dbus.bus.BusConnection(host.env['DBUS_SYSTEM_BUS_ADDRESS'])
            bus.get_object(NAME, sandbox(guest), introspect=False).Kill(dbus_interface=f'{NAME}.Sandbox')
        except dbus.DBusException as e:
            status = 0 if e.get_dbus_name() == f'{NAME}.Error.AccessDenied' else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize('method, signature, arguments', [
    ('CreateSandbox', 'sa{sv}', ['template:python', '0']),
    ('Reload', '', []),
    ('RemoveTemplate', 's', ['python']),
    ('AliasTemplate', 'ss', ['stable', 'python']),
    ('AliasTemplate', 'ss', ['python', '']),
    ('ResetLoopMax', '', []),
])
def test_manager_denies_without_polkit(host, method, signature, arguments):
    result = host.call(*MANAGER, method, signature, *arguments, uid=NOBODY)
    assert result.returncode != 0 and DENIED in result.stderr
    assert host.ids() == []


def test_lists_are_filtered(polkit):
    host = polkit
    mine = host.create()
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    theirs = host.create(uid=NOBODY)
    listed = host.ctl('list', '--no-legend', uid=NOBODY).stdout
    assert theirs in listed and mine not in listed
    assert set(host.ids()) == {mine, theirs}
    assert f"No sandbox '{mine}'" in host.call(*MANAGER, 'GetSandbox', 's', mine, uid=NOBODY).stderr
    assert host.call(*MANAGER, 'GetSandbox', 's', theirs, uid=NOBODY).returncode == 0

    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.list')
    listed = host.ctl('list', '--no-legend', uid=NOBODY).stdout
    assert theirs in listed and mine in listed


# Owns polkit's name, or waits for it; ends when it is asked, or says yes.
POLKIT = """
import os, sys
import dbus.service, dbus.mainloop.glib
from gi.repository import GLib
dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
bus = dbus.SystemBus()
class Authority(dbus.service.Object):
    @dbus.service.method('org.freedesktop.PolicyKit1.Authority', in_signature='(sa{sv})sa{ss}us', out_signature='(bba{ss})')
    def CheckAuthorization(self, subject, action, details, flags, cancellation):
        if sys.argv[1] == 'ends':
            os._exit(0)
        return True, False, {}
bus.request_name('org.freedesktop.PolicyKit1')
Authority(bus, '/org/freedesktop/PolicyKit1/Authority')
print('ready', flush=True)
GLib.MainLoop().run()
"""


def polkits(host, *behaviours):
    """The first has the name, each after it gets it when the one before ends."""
    processes = []
    for behaviour in behaviours:
        processes.append(host.start(['/usr/bin/python3', '-c', POLKIT, behaviour], stdout=subprocess.PIPE))
        assert processes[-1].stdout.readline() == b'ready\n'
    return processes


@pytest.mark.parametrize('behaviours, allowed', [(['ends', 'allows'], True), (['ends', 'ends', 'allows'], False)])
def test_a_polkit_that_is_restarted_is_asked_once_more(host, behaviours, allowed):
    processes = polkits(host, *behaviours)
    try:
        result = host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', 'template:python', '0', uid=NOBODY)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            host.processes.remove(process)
        wait_for('polkit to be gone', lambda: 'org.freedesktop.PolicyKit1' not in host.busctl('list').stdout)
    assert (result.returncode == 0) == allowed, result.stderr
    assert allowed or 'could not be asked of polkit' in result.stderr


def test_the_owner_needs_no_polkit(polkit):
    host = polkit
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    i = host.create(uid=NOBODY)
    host.mock_polkit('SetAllowed', 'as', '0')
    assert host.ctl('exec', i, '--', 'echo', 'hello', uid=NOBODY).stdout == 'hello\n'
    assert host.ctl('stop', i, uid=OTHER).returncode == 1
    assert host.ctl('stop', i, uid=NOBODY).returncode == 0


def test_templates_of_others_are_not_seen(host):
    assert 'private' in host.ctl('template', 'list').stdout
    assert 'private' in host.ctl('template', 'list', uid=OTHER).stdout
    listed = host.ctl('template', 'list', uid=NOBODY).stdout
    assert 'python' in listed and 'private' not in listed
    for ref in ('private', 'tprivateprivat'):
        assert 'No template' in host.ctl('template', 'show', ref, uid=NOBODY).stderr


def test_a_public_template_is_everybodys_to_use_and_its_owners_to_change(polkit):
    polkit.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    host, public = polkit, 'tpublicpublicp'
    assert 'offered' in host.ctl('template', 'list', uid=NOBODY).stdout
    assert host.ctl('template', 'show', public, '-p', 'Public', '--value', uid=NOBODY).stdout.strip() in ('true', 'yes')
    assert host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', f'template:{public}', '0', uid=NOBODY).returncode == 0
    # by its id: its name is its owner's, and might be anybody's next
    assert 'No template' in host.call(*MANAGER, 'CreateSandbox', 'sa{sv}', 'template:offered', '0', uid=NOBODY).stderr
    for verb in (['rm', public], ['alias', 'mine', public], ['export', public, '-']):
        denied = host.ctl('-q', 'template', *verb, uid=NOBODY)
        assert denied.returncode == 1 and 'manage-templates' in denied.stderr, verb
    assert host.ctl('template', 'alias', 'mine', 'offered', uid=OTHER).returncode == 0


def test_names_are_the_owners(host):
    """Of others nothing is seen or named; one's own needs no polkit; root's name goes to the owner's names."""
    for ref in ('private', 'tprivateprivat'):
        assert 'No template' in host.ctl('template', 'alias', 'mine', ref, uid=NOBODY).stderr
    assert host.ctl('template', 'alias', 'mine', 'private', uid=OTHER).returncode == 0
    assert 'name mine:latest of 1: tprivateprivat by 1\n' in host.log()
    assert 'mine:latest' in host.ctl('template', 'list', uid=OTHER).stdout
    assert 'mine:latest' not in host.call(*MANAGER, 'ListTemplateNames', uid=NOBODY).stdout
    assert "No template has the name 'mine:latest'" in host.ctl('template', 'alias', '--remove', 'mine', uid=NOBODY).stderr
    assert host.ctl('template', 'alias', 'ours', 'tprivateprivat').returncode == 0
    assert 'name ours:latest of 1: tprivateprivat by 0\n' in host.log()


def test_what_is_exported_is_for_its_owner(host, tmp_path):
    """Root's templates everybody may use, but what the memory of their guests has is root's."""
    for name, uid, words in (('python', NOBODY, DENIED), ('private', NOBODY, 'No template'), ('private', OTHER, None)):
        result = host.ctl('-q', 'template', 'export', name, '-', uid=uid)
        assert (result.stdout == 'the pack of tprivateprivat\n') if words is None else (words in result.stderr and result.stdout == '')
    denied = host.ctl('template', 'import', '/dev/null', uid=NOBODY)
    assert denied.returncode == 1 and DENIED in denied.stderr


def test_polkit_allows_by_action(polkit):
    host = polkit
    i = host.create()
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.exec')
    assert host.ctl('exec', i, '--', 'true', uid=NOBODY).returncode == 0
    result = host.ctl('kill', i, uid=NOBODY)
    assert result.returncode == 1 and 'org.cubed.cube1.manage' in result.stderr
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.manage')
    assert host.ctl('kill', i, uid=NOBODY).returncode == 0


def test_polkit_denies(polkit):
    result = polkit.ctl('create', uid=NOBODY)
    assert result.returncode == 1 and DENIED in result.stderr
    assert polkit.ids() == []


def has_hanging(host):
    return 'true' in host.busctl('call', 'org.freedesktop.PolicyKit1', '/org/freedesktop/PolicyKit1/Authority',
                                 'org.freedesktop.DBus.Mock', 'HaveHangingCalls').stdout


def asking(host, *argv, **kwargs):
    """cubectl as nobody."""
    return subprocess.Popen([CUBECTL, *argv], env=host.env, user=NOBODY, group=NOBODY, extra_groups=[], stdin=subprocess.DEVNULL,
                            text=True, **kwargs)


def test_polkit_hangs(impatient):
    """In the end it is a denial."""
    host = impatient
    host.mock_polkit('SimulateHang', 'b', 'true')
    started = time.monotonic()
    stuck = asking(host, '--no-ask-password', 'create', stderr=subprocess.PIPE)
    _, error = stuck.communicate(timeout=60)
    assert stuck.returncode == 1 and DENIED in error
    assert time.monotonic() - started > 2
    assert host.ids() == []


def test_answer_after_hanging(polkit):
    """Nobody else waits meanwhile."""
    host = polkit
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    host.mock_polkit('SimulateHang', 'b', 'true')
    waiting = asking(host, 'create', stdout=subprocess.PIPE)
    wait_for('the question', lambda: has_hanging(host))
    other = host.create()
    assert waiting.poll() is None and host.ids() == [other]
    host.mock_polkit('ReleaseHangingCalls', '')
    out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0 and host.ids() == [other, out.strip()]


def test_sandbox_gone_while_polkit_thinks(polkit):
    """The message's second turn finds no object; the answer is dropped."""
    host = polkit
    i = host.create()
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.manage')
    host.mock_polkit('SimulateHang', 'b', 'true')
    waiting = asking(host, 'stop', i, stderr=subprocess.PIPE)
    wait_for('the question', lambda: has_hanging(host))
    host.ctl('kill', i)
    host.mock_polkit('ReleaseHangingCalls', '')
    _, error = waiting.communicate(timeout=60)
    assert waiting.returncode == 1 and f"No sandbox '{i}'" in error


def test_one_client_can_not_fill_the_queue(polkit):
    """Questions of one client are bounded; others still get through."""
    host = polkit
    dbus = pytest.importorskip('dbus')
    host.mock_polkit('SetAllowed', 'as', '1', 'org.cubed.cube1.create')
    host.mock_polkit('SimulateHangActions', 'as', '1', 'org.cubed.cube1.manage')
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        bus = dbus.bus.BusConnection(host.env['DBUS_SYSTEM_BUS_ADDRESS'])
        for _ in range(100):
            message = dbus.lowlevel.MethodCallMessage(NAME, ROOT, f'{NAME}.Manager', 'Reload')
            bus.send_message(message)
        bus.flush()
        os.write(w, b'x')
        time.sleep(60)
        os._exit(0)
    os.close(w)
    os.read(r, 1)
    try:
        wait_for('those beyond the bound to be refused',
                 lambda: host.log().count(f'audit denied actor={NOBODY} action=org.cubed.cube1.manage') >= 90)
        assert has_hanging(host) and host.ctl('create', uid=OTHER).returncode == 0
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(r)
