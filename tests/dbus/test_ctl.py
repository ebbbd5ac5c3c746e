# SPDX-License-Identifier: Apache-2.0
"""cubectl against the real agent's code: streams, statuses, signals, terminals, files, ports."""

import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import termios
import threading
import time

import pytest

from bushost import CUBECTL, wait_for

MEGABYTES = int(os.environ.get('STREAM_MEGABYTES', '200'))


def test_streams_and_status(host):
    result = host.ctl('run', '--', 'sh', '-c', 'echo out; echo err >&2; exit 7')
    assert (result.stdout, result.stderr, result.returncode) == ('out\n', 'err\n', 7)
    assert host.ids() == []


@pytest.mark.parametrize('command, status', [
    (['true'], 0),
    (['sh', '-c', 'exit 255'], 255),
    (['sh', '-c', 'kill -9 $$'], 128 + 9),
    (['sh', '-c', 'kill -TERM $$'], 128 + 15),
    (['/nonexistent'], 127),
    (['/etc/passwd'], 126),
])
def test_exit_status(host, guest, command, status):
    assert host.ctl('exec', guest, '--', *command).returncode == status


def test_exec_timeout(host, guest):
    assert host.ctl('exec', guest, '--exec-timeout', '300ms', '--', 'sleep', '60').returncode == 124


def test_quick_commands_never_fail(host, guest):
    """One that has ended before its streams are attached is no error."""
    for _ in range(60):
        result = host.ctl('exec', guest, '--', 'echo', 'x')
        assert (result.returncode, result.stdout, result.stderr) == (0, 'x\n', '')


def test_large_stdout(host, guest):
    size = MEGABYTES << 20
    p = subprocess.Popen([CUBECTL, 'exec', guest, '--', 'sh', '-c', f'head -c {size} /dev/urandom | tee /tmp/large-{guest}'],
                         env=host.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    digest, n = hashlib.sha256(), 0
    while chunk := p.stdout.read(1 << 20):
        digest.update(chunk)
        n += len(chunk)
    assert p.wait() == 0 and n == size
    there = host.ctl('exec', guest, '--', 'sha256sum', f'/tmp/large-{guest}').stdout.split()[0]
    os.unlink(f'/tmp/large-{guest}')
    assert digest.hexdigest() == there


def test_large_stdin(host, guest):
    block = os.urandom(1 << 20)
    p = subprocess.Popen([CUBECTL, 'exec', guest, '--', 'sha256sum'], env=host.env, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=False)
    digest = hashlib.sha256()
    for _ in range(MEGABYTES):
        p.stdin.write(block)
        digest.update(block)
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 0 and out.split()[0].decode() == digest.hexdigest()


def test_both_ways_at_once(host, guest):
    data = os.urandom(8 << 20)
    p = host.run(CUBECTL, 'exec', guest, '--', 'cat', input=data, text=False)
    assert p.returncode == 0 and p.stdout == data


def test_slow_reader_holds_the_writer_back(host, guest):
    p = subprocess.Popen([CUBECTL, 'exec', guest, '--', 'yes'], env=host.env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE)
    time.sleep(1)
    memory = int(re.search(r'VmRSS:\s+(\d+)', open(f'/proc/{p.pid}/status').read())[1])
    assert memory < 32 * 1024
    p.stdout.read(1000)
    p.stdout.close()
    assert p.wait(60) == 128 + signal.SIGPIPE


def test_closed_stdout_is_a_broken_pipe(host, guest):
    p = host.run('bash', '-c', '"$0" exec "$1" -- yes | head -n1; echo ${PIPESTATUS[0]}', CUBECTL, guest, timeout=60)
    assert p.stdout == f'y\n{128 + signal.SIGPIPE}\n'


def test_output_left_open_by_a_child(host, guest):
    """The command has ended; what it left behind does not hold us for ever."""
    result = host.ctl('exec', guest, '--', 'sh', '-c', 'sleep 1000 & echo done', timeout=60)
    assert result.returncode == 0 and result.stdout == 'done\n'


def start(host, *argv, **kwargs):
    kwargs.setdefault('stdin', subprocess.DEVNULL)
    return subprocess.Popen([CUBECTL, *argv], env=host.env, stdout=subprocess.PIPE, text=True, **kwargs)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_signals_reach_the_guest(host, guest, number):
    p = start(host, 'exec', guest, '--', 'sh', '-c',
              'trap "echo INT; exit 3" INT; trap "echo TERM; exit 3" TERM; trap "echo QUIT; exit 3" QUIT; '
              'echo ready; while :; do sleep 0.1; done')
    assert p.stdout.readline() == 'ready\n'
    p.send_signal(number)
    assert p.stdout.readline().strip() == number.name[3:]
    assert p.wait(60) == 3


def test_twice_kills(host, guest):
    """The first one has arrived before: two that wait for a process are one. One that comes more than a second behind it, where
    this machine stood still, is a first one again."""
    p = start(host, 'exec', guest, '--', 'sh', '-c', 'trap "echo INT" INT; echo ready; while :; do sleep 0.1; done')
    assert p.stdout.readline() == 'ready\n'

    def interrupted():
        p.send_signal(signal.SIGINT)
        return p.stdout.readline()
    assert interrupted() == 'INT\n' and p.poll() is None
    wait_for('two to come within a second', lambda: interrupted() == '')
    assert p.wait(60) == 128 + 9


def test_killed_client_takes_its_sandbox_along(host):
    p = start(host, 'run', '--', 'sh', '-c', 'echo ready; sleep 100')
    assert p.stdout.readline() == 'ready\n' and len(host.ids()) == 1
    p.kill()
    p.wait()
    wait_for('the sandbox to be gone', lambda: host.ids() == [])


def test_keep(host):
    result = host.ctl('run', '--keep', '--', 'true')
    assert result.returncode == 0
    ids = host.ids()
    assert len(ids) == 1 and ids[0] in result.stderr


def test_sandbox_ends_meanwhile(host):
    p = start(host, 'run', '--', 'sh', '-c', 'echo ready; sleep 100', stderr=subprocess.PIPE)
    assert p.stdout.readline() == 'ready\n'
    host.ctl('kill', host.ids()[0])
    _, error = p.communicate(timeout=60)
    assert p.returncode == 255 and 'killed' in error


def test_environment_user_and_directory(host, guest):
    result = host.ctl('exec', guest, '-e', 'A=1 2', '--env', 'FROM_HERE', '-u', 'nobody', '-C', '/usr', '--',
                      'sh', '-c', 'echo "$A/$FROM_HERE/$(id -un)/$PWD"', env={'FROM_HERE': 'x'})
    assert result.stdout == '1 2/x/nobody//usr\n'


class Terminal:
    """A pseudo terminal with cubectl on it."""

    def __init__(self, host, *argv, rows=24, cols=80):
        self.master, slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, cols, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen([CUBECTL, *argv], env=dict(host.env, TERM='xterm'), stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.text = ''

    def expect(self, pattern, timeout=60):
        end = time.monotonic() + timeout
        while not (match := re.search(pattern, self.text)):
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f'no {pattern!r} in {self.text!r}'
            self.text += os.read(self.master, 4096).decode(errors='replace')
        self.text = self.text[match.end():]
        return match

    def send(self, text):
        os.write(self.master, text.encode())

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, cols, 0, 0))

    def is_restored(self):
        return termios.tcgetattr(self.slave)[3] == self.before[3]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(host, guest):
    made = []

    def make(*argv, **kwargs):
        made.append(Terminal(host, 'exec', guest, '-t', *argv, **kwargs))
        return made[-1]
    yield make
    for t in made:
        t.close()


def test_terminal(terminal):
    t = terminal('--', 'sh', rows=30, cols=100)
    t.send('tty; stty size\n')
    t.expect(r'/dev/pts/\d+')
    t.expect('30 100')
    t.resize(40, 120)
    # the new size takes another way than what is typed
    t.send('until [ "$(stty size)" = "40 12""0" ]; do sleep 0.1; done; stty size\n')
    t.expect('40 120')
    # a raw terminal: Ctrl-C is a byte that the guest's line discipline makes a signal of
    t.send('sh -c "echo asleep$((1+1)); exec sleep 1000"\n')
    t.expect('asleep2')
    t.send('\x03')
    t.send('echo again$((1+1))\n')
    t.expect('again2')
    t.send('exit 5\n')
    assert t.process.wait(60) == 5
    assert t.is_restored()


def test_terminal_is_restored_when_terminated(terminal):
    t = terminal('--', 'sh', '-c', 'echo ready; exec sleep 100')
    t.expect('ready')
    assert not t.is_restored()
    t.process.send_signal(signal.SIGTERM)
    assert t.process.wait(60) == 128 + 15
    assert t.is_restored()


def test_terminal_in_raw_mode_passes_all_bytes(terminal):
    t = terminal('--', 'sh', '-c', 'stty raw -echo; echo ready; head -c 6 | od -An -tx1')
    t.expect('ready')
    t.send('\x03\x04\x1a\x11\x13\x00')
    t.expect('03 04 1a 11 13 00')
    assert t.process.wait(60) == 0


def test_shell(host, guest):
    t = Terminal(host, 'shell', guest)
    t.send('echo "$0/$TERM"; exit\n')
    t.expect(r'(bash|sh)/xterm')
    t.process.wait(60)
    t.close()


def test_copy_files(host, guest, tmp_path):
    (tmp_path / 'a').write_bytes(os.urandom(300_000))
    (tmp_path / 'a').chmod(0o741)
    there = tmp_path / 'there'
    there.mkdir()
    assert host.ctl('cp', tmp_path / 'a', f'{guest}:{there}/b').returncode == 0
    assert (there / 'b').read_bytes() == (tmp_path / 'a').read_bytes()
    assert (there / 'b').stat().st_mode & 0o7777 == 0o741
    assert host.ctl('cp', tmp_path / 'a', f'{guest}:{there}').returncode == 0
    assert (there / 'a').exists()
    back = tmp_path / 'back'
    back.mkdir()
    assert host.ctl('cp', f'{guest}:{there}/a', f'{guest}:{there}/b', back).returncode == 0
    assert sorted(f.name for f in back.iterdir()) == ['a', 'b']
    assert (back / 'a').stat().st_mode & 0o777 == 0o741


def test_copy_trees(host, guest, tmp_path):
    source = tmp_path / 'source'
    (source / 'deep/er').mkdir(parents=True)
    (source / 'deep/er/file').write_text('x')
    (source / 'empty').mkdir(mode=0o700)
    (source / 'link').symlink_to('deep/er/file')
    os.mkfifo(source / 'fifo')
    assert 'with -r' in host.ctl('cp', source, f'{guest}:{tmp_path}/there').stderr
    result = host.ctl('cp', '-r', source, f'{guest}:{tmp_path}/there')
    assert result.returncode == 1 and 'fifo' in result.stderr
    assert (tmp_path / 'there/deep/er/file').read_text() == 'x'
    assert (tmp_path / 'there/link').read_text() == 'x' and not (tmp_path / 'there/link').is_symlink()
    assert (tmp_path / 'there/empty').stat().st_mode & 0o777 == 0o700
    assert host.ctl('cp', '-r', f'{guest}:{tmp_path}/there', tmp_path / 'back').returncode == 0
    assert (tmp_path / 'back/deep/er/file').read_text() == 'x'


def test_copy_writes_through_no_link(host, guest, tmp_path):
    """What a guest names can't lead out of the destination, nor can a link that stands in it."""
    outside, there, back = tmp_path / 'outside', tmp_path / 'there', tmp_path / 'back'
    outside.mkdir()
    (there / 'sub').mkdir(parents=True)
    (there / 'sub/file').write_text('evil')
    back.mkdir()
    (back / 'there').mkdir()
    (back / 'there/sub').symlink_to(outside)
    assert host.ctl('cp', '-r', f'{guest}:{there}', back).returncode == 1
    assert list(outside.iterdir()) == []
    # set-id bits do not come along
    (there / 'suid').write_text('x')
    (there / 'suid').chmod(0o4755)
    assert host.ctl('cp', f'{guest}:{there}/suid', back).returncode == 0
    assert (back / 'suid').stat().st_mode & 0o7000 == 0


def test_copy_writes_into_nothing_that_stands_there(host, guest, tmp_path):
    """Below what the user named, names are the guest's: a pipe, a device or a link to one of these is replaced, not written to."""
    outside, there, back = tmp_path / 'outside', tmp_path / 'there', tmp_path / 'back'
    os.mkfifo(outside)
    (there / 'sub').mkdir(parents=True)
    (back / 'there/sub').mkdir(parents=True)
    os.mkfifo(back / 'there/pipe')
    (back / 'there/sub/null').symlink_to('/dev/null')
    (back / 'there/sub/link').symlink_to(outside)
    names = ('pipe', 'sub/null', 'sub/link')
    for name in names:
        (there / name).write_text(name)
    assert host.ctl('cp', '-r', f'{guest}:{there}', back, timeout=60).returncode == 0
    for name in names:
        assert stat.S_ISREG((back / 'there' / name).lstat().st_mode) and (back / 'there' / name).read_text() == name
    assert stat.S_ISFIFO(outside.lstat().st_mode)
    # what the user named himself is written to as it is
    assert host.ctl('cp', f'{guest}:{there}/pipe', '/dev/stdout').stdout == 'pipe'


def test_names_of_a_guest_are_no_lines_of_ours(host, guest, tmp_path):
    there = tmp_path / 'there'
    there.mkdir()
    os.mkfifo(there / 'a\nLeft out nothing\x1b[2J')
    result = host.ctl('cp', '-r', f'{guest}:{there}', tmp_path / 'back')
    assert result.returncode == 1
    assert result.stderr.count('\n') == 1 and r'a\x0aLeft out nothing\x1b[2J' in result.stderr


def test_copy_errors(host, guest, tmp_path):
    assert 'No such file' in host.ctl('cp', tmp_path / 'nosuch', f'{guest}:/tmp').stderr
    assert 'No such file' in host.ctl('cp', f'{guest}:/nosuch', tmp_path).stderr
    assert 'must be absolute' in host.ctl('cp', f'{guest}:relative', tmp_path).stderr
    assert 'ID:PATH' in host.ctl('cp', tmp_path / 'a', tmp_path / 'b').stderr
    assert 'not from one sandbox' in host.ctl('cp', f'{guest}:/a', f'{guest}:/b').stderr
    # nothing half-written is left
    assert list(tmp_path.iterdir()) == []


def test_run_in_and_out(host, tmp_path):
    (tmp_path / 'in').write_text('hello\n')
    result = host.ctl('run', '--in', f'{tmp_path}/in:{tmp_path}/there', '--out', f'{tmp_path}/result:{tmp_path}/out',
                      '--', 'sh', '-c', f'tr a-z A-Z <{tmp_path}/there >{tmp_path}/result')
    assert result.returncode == 0, result.stderr
    assert (tmp_path / 'out').read_text() == 'HELLO\n'


def test_forward(host, guest):
    """Many connections at once, half-close included."""
    server = socket.create_server(('127.0.0.1', 0))

    def serve():
        for _ in range(20):
            connection, _ = server.accept()

            def echo(c=connection):
                data = b''
                while chunk := c.recv(65536):
                    data += chunk
                c.sendall(data[::-1])
                c.close()
            threading.Thread(target=echo, daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()

    p = subprocess.Popen([CUBECTL, 'forward', guest, f'0:{server.getsockname()[1]}'], env=host.env,
                         stderr=subprocess.PIPE, text=True)
    local = int(re.search(r'127\.0\.0\.1:(\d+)', p.stderr.readline())[1])
    data = os.urandom(400_000)
    connections = [socket.create_connection(('127.0.0.1', local)) for _ in range(20)]
    for c in connections:
        threading.Thread(target=lambda c=c: (c.sendall(data), c.shutdown(socket.SHUT_WR)), daemon=True).start()
    for c in connections:
        received = b''
        while chunk := c.recv(65536):
            received += chunk
        assert received == data[::-1]
        c.close()
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == 0
    assert 'not [LOCAL:]PORT' in host.ctl('forward', guest, '99999').stderr
    server.close()


def test_tables_and_json(host):
    i = host.create('--label', 'a=b')
    out = host.ctl('list').stdout
    assert out.splitlines()[0].split() == ['ID', 'STATE', 'OWNER', 'TEMPLATE', 'CREATED']
    assert '1 sandbox listed.' in out and '\033' not in out
    assert host.ctl('list', '--no-legend').stdout.split()[:4] == [i, 'running', 'root', 'python']
    rows = json.loads(host.ctl('list', '--json=pretty').stdout)
    assert rows[0]['id'] == i and rows[0]['owner'] == 0 and isinstance(rows[0]['created'], int)
    assert host.ctl('--json=short', 'list').stdout.count('\n') == 1
    assert 'short, pretty or off' in host.ctl('list', '--json=xml').stderr
    shown = json.loads(host.ctl('show', i, '-j').stdout)[0]
    assert shown['Labels'] == {'a': 'b'} and shown['Id'] == i
    assert host.ctl('show', i, '-p', 'Id,State').stdout == f'Id={i}\nState=running\n'
    assert host.ctl('show', i, '--property=State', '--value').stdout == 'running\n'


def test_json_commands_no_terminal(host):
    """CSI as one character, and what turns text around: the same JSON, with nothing of them in it."""
    text = '\x9b2J\x7f\u202e\x1b[2Jé'
    i = host.create('--label', f'a={text}')
    for style in ('short', 'pretty'):
        shown = host.ctl(f'--json={style}', 'show', i).stdout
        assert not any(c in shown for c in '\x9b\x7f\u202e\x1b') and 'é' in shown
        assert json.loads(shown)[0]['Labels'] == {'a': text}
    host.ctl('kill', i)


def test_status_and_console(host, guest):
    result = host.ctl('status', guest)
    assert result.returncode == 0 and f'cube-{guest}.scope' in result.stdout
    assert host.ctl('status', 'i99999999999').returncode == 4
    assert 'Linux version 6.1' in host.ctl('logs', '--console', guest).stdout


def test_check(host):
    result = host.ctl('check')
    assert result.returncode == 0 and 'sched-core' in result.stdout


def test_template_verbs(host, tmp_path):
    (tmp_path / 'root.tar').write_bytes(b'')
    good = host.ctl('template', 'build', 'mine:1', '--from', tmp_path / 'root.tar', '--memory', '256M')
    assert good.returncode == 0 and good.stdout == 'tfakefakefake\n'
    assert 'making the root image' in good.stderr and 'line at 25' in good.stderr
    assert host.ctl('-q', 'template', 'build', 'mine', '--from', tmp_path / 'root.tar').stderr == ''
    bad = host.ctl('template', 'build', 'broken', '--from', tmp_path / 'root.tar')
    assert bad.returncode == 1 and 'not a tar' in bad.stderr and bad.stdout == ''
    assert 'Memory=536870912' in host.ctl('template', 'show', 'python').stdout
    assert 'in use' in host.ctl('template', 'rm', 'python').stderr


def test_template_alias(host, tmp_path):
    (tmp_path / 'root.tar').write_bytes(b'')
    assert host.ctl('template', 'alias', 'stable', 'python').returncode == 0
    row = [l for l in host.ctl('template', 'list', '--no-legend').stdout.splitlines() if 'tpythonpython' in l]
    assert len(row) == 1 and row[0].startswith('python:latest') and row[0].split()[-1] == 'stable:latest'
    assert 'Aliases=stable:latest' in host.ctl('template', 'show', 'stable').stdout
    # it moves; the other one has it no longer
    assert host.ctl('template', 'alias', 'stable:latest', 'online:latest').returncode == 0
    shown = json.loads(host.ctl('--json=short', 'template', 'show', 'stable', 'python').stdout)
    assert [t['Aliases'] for t in shown] == [['stable:latest'], []]
    assert host.ctl('template', 'alias', '--remove', 'stable').returncode == 0
    assert "No template 'stable'" in host.ctl('template', 'show', 'stable').stderr
    assert "No template has the name 'stable:latest'" in host.ctl('template', 'alias', '--remove', 'stable').stderr
    built = host.ctl('template', 'build', 'mine', '--from', tmp_path / 'root.tar', '--alias', 'a', '--alias', 'b:1')
    assert built.returncode == 0 and 'also named a:latest\nalso named b:1\n' in built.stderr


def test_the_man_page_has_all_keys_of_a_file():
    """They are the options of the build, and "name"."""
    top = pathlib.Path(__file__).resolve().parents[2]
    page = (top / 'docs/man/cube.json.5.scd').read_text()
    build = (top / 'ctl/build-options.h').read_text().split('#define BUILD_OPTIONS')[1].split('#define BUILD_HELP')[0]
    policy = (top / 'ctl/policy-options.h').read_text().split('#define POLICY_OPTIONS')[1].split('#define')[0]
    keys = re.findall(r'\{ "([a-z-]+)", \w+_argument', build + policy) + re.findall(r'POLICY_OPTIONS\("([a-z]+)"\)', build)
    assert len(keys) > 20 and [k for k in keys if f'*{k}*' not in page] == []


def test_template_build_from_a_file(host, tmp_path):
    """From another directory than that of the file."""
    repository = tmp_path / 'repository'
    (repository / 'app').mkdir(parents=True)
    (repository / 'root.tar').write_bytes(b'')
    (repository / 'cube.json').write_text(json.dumps({
        'name': 'web:1', 'from': 'root.tar', 'memory': '256M', 'cpus': 2, 'copy': ['app:/srv/app'], 'alias': ['web'],
        'setup': ['true'], 'network': 'internet'}))
    good = host.ctl('template', 'build', '--file', repository / 'cube.json')
    assert good.returncode == 0 and 'copy of a directory to /srv/app\n' in good.stderr and 'also named web:latest' in good.stderr
    assert 'build web: network internet' in host.log()
    other = host.ctl('template', 'build', 'mine', '--file', repository / 'cube.json', '--network', 'deny', '--alias', 'b', '--alias', 'c')
    assert 'also named b:latest\nalso named c:latest\n' in other.stderr and 'also named web' not in other.stderr
    assert 'build mine: network deny' in host.log()
    (repository / 'cube.json').write_text('{"name": "web", "from": "root.tar", "colour": "red"}')
    bad = host.ctl('template', 'build', '--file', repository / 'cube.json')
    assert bad.returncode == 1 and 'there is no key "colour"' in bad.stderr


def test_template_export_and_import(host, tmp_path):
    path = tmp_path / 'python.cube'
    good = host.ctl('template', 'export', 'python', path)
    assert good.returncode == 0 and good.stdout == '' and path.read_text() == 'the pack of tpythonpython\n'
    assert path.stat().st_mode & 0o777 == 0o600, 'it holds the memory of a guest'
    again = host.ctl('template', 'export', 'python', path)
    assert again.returncode == 1 and 'File exists' in again.stderr and path.read_text() != ''
    # nothing but the template on stdout; and of one that fails no file is left
    assert host.ctl('-q', 'template', 'export', 'python', '-').stdout == 'the pack of tpythonpython\n'
    bad = host.ctl('template', 'export', 'online', tmp_path / 'online.cube')
    assert bad.returncode == 1 and 'not a tar' in bad.stderr and not (tmp_path / 'online.cube').exists()

    result = host.ctl('template', 'import', '--alias', 'a', path, 'mine:1')
    assert result.returncode == 0 and result.stdout == 'tfakefakefake\n'
    assert 'import of the pack of tpythonpython\n as mine:1 and a:latest\n' in result.stderr
    result = host.ctl('template', 'import', '-', input='a stream')
    assert result.returncode == 0 and 'import of a stream as as-it-says:latest' in result.stderr
    assert 'No such file' in host.ctl('template', 'import', '/nonexistent').stderr


def test_gc(host):
    dry = host.ctl('gc', '--dry-run')
    lines = dry.stdout.splitlines()
    assert dry.returncode == 0 and lines[1].split() == ['template', 'tunusedunused', '3M'] and lines[-1] == '4M would be freed.'
    assert 'run it again' in dry.stderr and 'gc by 0, dry\n' in host.log()
    assert host.ctl('gc').stdout.splitlines()[-1] == '4M freed.' and 'gc by 0\n' in host.log()
    rows = json.loads(host.ctl('gc', '--json=short').stdout)
    assert rows[0] == {'kind': 'template', 'name': 'tunusedunused', 'size': 3 << 20}
    # what is one's own needs no polkit
    assert host.ctl('gc', uid=65534).stdout == '0B freed.\n' and 'gc by 65534\n' in host.log()
    assert 'does not take' in host.ctl('gc', 'all').stderr


def test_template_build_copies(host, tmp_path):
    (tmp_path / 'root.tar').write_bytes(b'')
    (tmp_path / 'app').mkdir()
    (tmp_path / 'a:b').write_text('x')
    build = ['template', 'build', 'mine', '--from', tmp_path / 'root.tar']
    good = host.ctl(*build, '--copy', f'{tmp_path}/app:/srv/app', '--copy', f'{tmp_path}/a:b:/etc/')
    assert good.returncode == 0
    assert 'copy of a directory to /srv/app\n' in good.stderr and 'copy of a file to /etc/a:b\n' in good.stderr

    os.mkfifo(tmp_path / 'pipe')
    for copy, words in [('/nonexistent:/x', 'No such file'), (f'{tmp_path}/pipe:/x', 'neither a file nor a directory'),
                        (f'{tmp_path}/app:srv', 'not SRC:DEST')]:
        bad = host.ctl(*build, '--copy', copy)
        assert bad.returncode != 0 and words in bad.stderr and bad.stdout == ''


def test_template_build_kernel_by_name_or_file(host, tmp_path):
    """A name is cubed's to look up, and what has a slash is a file, whatever it is called."""
    (tmp_path / 'root.tar').write_bytes(b'')
    (tmp_path / 'small').write_bytes(b'x')
    for n, (kernel, words) in enumerate([('small', 'small'), ('stock', 'stock'), (tmp_path / 'small', 'of a file')]):
        good = host.ctl('template', 'build', f'k{n}', '--from', tmp_path / 'root.tar', '--kernel', kernel)
        assert good.returncode == 0, good.stderr
        assert f'build k{n}: kernel {words}\n' in host.log()
    bad = host.ctl('template', 'build', 'k', '--from', tmp_path / 'root.tar', '--kernel', 'tiny')
    assert bad.returncode == 1 and 'open kernel tiny' in bad.stderr


def test_template_build_cancel(host, tmp_path):
    (tmp_path / 'root.tar').write_bytes(b'')
    p = subprocess.Popen([CUBECTL, 'template', 'build', 'slow', '--from', str(tmp_path / 'root.tar')], env=host.env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stderr.readline()
    p.send_signal(signal.SIGINT)
    out, error = p.communicate(timeout=60)
    assert p.returncode == 1 and out == '' and 'anceled' in error


@pytest.mark.parametrize('argv, words', [
    (['nosuch'], "no verb 'nosuch'"),
    (['run'], 'needs a command'),
    (['run', '--memory', '0', 'ls'], "can't be 0"),
    (['run', '--memory', 'lots', 'ls'], 'not a size'),
    (['run', '--memory', '64G', 'ls'], 'More memory than'),
    (['run', '--cpus', '17', 'ls'], '1 to 16'),
    (['run', '--cpu-quota', '50', 'ls'], 'percentage'),
    (['run', '--timeout', '0', 'ls'], 'infinity'),
    (['run', '--exec-timeout', 'soon', 'ls'], 'not a time'),
    (['run', '--template', 'nosuch', 'ls'], "No template 'nosuch'"),
    (['run', '--label', 'x', 'ls'], 'KEY=VALUE'),
    (['run', '--env', 'NOT_SET_HERE', 'ls'], 'no such variable'),
    (['run', '--in', 'a:b', 'ls'], 'must be absolute'),
    (['run', '--cwd', 'tmp', 'ls'], 'absolute'),
    (['exec'], 'needs a sandbox id'),
    (['exec', 'UPPER', 'ls'], 'not a sandbox id'),
    (['exec', 'i99999999999', 'ls'], "No sandbox 'i99999999999'"),
    (['stop', 'i99999999999'], "No sandbox 'i99999999999'"),
    (['forward', 'i99999999999', '80'], "No sandbox 'i99999999999'"),
    (['list', 'x'], "does not take 'x'"),
    (['list', '--nosuch'], 'nosuch'),
    (['template', 'build', 'a/b', '--from', '/x'], 'not NAME'),
    (['template', 'build', '--file', '/nonexistent'], 'No such file'),
    (['template', 'build', '--file', '/dev/null'], 'ends amid something'),
    (['template', 'build', 'a'], 'needs --from'),
    (['template', 'build', 'a', '--from', '/x', '--alias', 'a/b'], 'not NAME'),
    (['template', 'alias', 'a/b', 'python'], 'not NAME'),
    (['template', 'export', 'python'], 'needs more arguments'),
    (['template', 'export', 'nosuch', '-'], "No template 'nosuch'"),
    (['template', 'import', '/dev/null', 'a/b'], 'not NAME'),
    (['template', 'alias', 'a'], 'needs more arguments'),
    (['template', 'alias', 'a', 'nosuch'], "No template 'nosuch'"),
    (['template', 'build', 'a', '--from', '/nonexistent'], 'No such file'),
    (['create', 'python'], 'nothing to start from'),
    (['create', 'snapshot:s99999999999', '--template', 'python'], 'two things'),
    (['create', 'snapshot:s99999999999'], "No snapshot 's99999999999'"),
    (['create', '--on-timeout', 'sleep'], 'kill, pause or pause-disk'),
    (['create', '--idle-timeout', '0'], 'infinity'),
    (['create', '--checkpoint', '0'], 'neither exec nor'),
    (['run', 'snapshot:s99999999999'], 'needs a command'),
    (['run', 'snapshot:s99999999999', 'ls'], "No snapshot 's99999999999'"),
    (['pause'], 'needs more'),
    (['pause', 'i99999999999'], "No sandbox 'i99999999999'"),
    (['resume', '--memory', 'i99999999999'], 'memory'),
    (['snapshot', 'take'], 'list, show or rm'),
    (['snapshot', 'i99999999999'], "No sandbox 'i99999999999'"),
    (['snapshot', 'i99999999999', '--name', 'a b'], 'not a name'),
    (['snapshot', 'i99999999999', '--kind', 'snapshot'], 'for lists'),
    (['snapshot', 'list', '--name', 'x'], '--name='),
    (['snapshot', 'show'], 'needs more'),
    (['snapshot', 'show', 's99999999999'], "No snapshot 's99999999999'"),
    (['snapshot', 'rm', 's99999999999'], "No snapshot 's99999999999'"),
    (['snapshots', '--sandbox', 'X'], 'not a sandbox id'),
    (['fork', '-n', '0', 'i99999999999'], 'not a number'),
    (['fork', '--hostname', 'x', 'i99999999999'], 'hostname'),
    (['fork', 'i99999999999'], "No sandbox 'i99999999999'"),
    (['rollback', 'i99999999999'], '--to=N'),
    (['rollback', 'i99999999999', '--to', '0'], 'not the number'),
    (['rollback', 'i99999999999', 's99999999999', '--to', '1'], 'does not take'),
    (['rollback', 'i99999999999', '--to', '1'], 'no checkpoint 1'),
    (['-H', 'elsewhere', 'exec', 'i99999999999', 'ls'], 'do not pass through -H'),
])
def test_bad_input(host, argv, words):
    result = host.ctl(*argv)
    assert result.returncode == (255 if argv[0] in ('run', 'exec') or 'exec' in argv else 1)
    assert words in result.stderr and result.stdout == ''
    assert host.ids() == []


def test_no_bus(host):
    result = host.ctl('list', env={'DBUS_SYSTEM_BUS_ADDRESS': 'unix:path=/nonexistent'})
    assert result.returncode == 1 and 'is dbus running?' in result.stderr


def test_help_and_version(host):
    assert host.ctl('--version').stdout.startswith('cubectl ')
    for verb in re.findall(r'^  ([a-z]+) ', host.ctl('--help').stdout.split('Options:')[0], re.M):
        result = host.ctl(verb, '--help')
        assert result.returncode == 0 and f'cubectl {verb}' in result.stdout
