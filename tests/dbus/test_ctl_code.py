# SPDX-License-Identifier: Apache-2.0
"""cubectl code, with a guest in which anything may answer on the code interpreter's port. tests/interpreter has it with
the real server."""

import base64
import ctypes
import http.server
import json
import os
import pty
import signal
import socket
import subprocess
import threading

import pytest

from bushost import CUBECTL, missing, started_host, wait_for

PORT = 49999
PNG = b'\x89PNG\r\n\x1a\n' + bytes(5000)
END = {'type': 'end_of_execution'}


def out(text):
    return {'type': 'stdout', 'text': text}


@pytest.fixture(scope='session')
def started(tmp_path_factory):
    why = missing()
    if why:
        pytest.skip(why)
    with started_host(tmp_path_factory.mktemp('bus'), own_network=True) as host:
        yield host


def guest_socket(host):
    """Listens on the port in the network of the guests. A socket stays where it was made, so a thread goes there for it."""
    made = []

    def make():
        fd = os.open(f'/proc/{host.cubed.pid}/ns/net', os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) == 0:
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(('127.0.0.1', PORT))
            s.listen(16)
            made.append(s)
        os.close(fd)
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.requests.append((self.path, dict(self.headers), body))
        self.server.answer(self)

    def begin(self):
        self.send_response(200)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))

    def event(self, event):
        self.chunk(json.dumps(event).encode() + b'\n')

    def text(self, status, text):
        self.send_response(status)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


class Guest(http.server.ThreadingHTTPServer):
    """What answers on the port, and what it was asked."""

    def __init__(self, host):
        super().__init__(('127.0.0.1', PORT), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = guest_socket(host)
        self.requests = []
        self.answer = None
        threading.Thread(target=self.serve_forever, kwargs={'poll_interval': 0.05}, daemon=True).start()

    def says(self, *events):
        def answer(handler):
            handler.begin()
            for event in events:
                handler.event(event)
            handler.chunk(b'')
        self.answer = answer

    def says_raw(self, data):
        def answer(handler):
            handler.begin()
            handler.chunk(data)
            handler.chunk(b'')
        self.answer = answer

    def handle_error(self, request, client_address):
        pass  # who asked has gone away


@pytest.fixture
def there(host):
    guest = Guest(host)
    guest.says(END)
    yield guest
    guest.shutdown()
    guest.server_close()


def code(host, text, *options, **kwargs):
    return host.ctl('code', *options, '-', input=text, **kwargs)


def test_a_cell_in_a_new_sandbox(host, there):
    there.says({'type': 'number_of_executions', 'execution_count': 1}, out('a\n'), {'type': 'stderr', 'text': 'e\n'},
               {'type': 'keepalive'}, {'type': 'result', 'text': '42', 'extra': {}, 'is_main_result': True}, END)
    result = code(host, 'print("é")')
    assert (result.stdout, result.stderr, result.returncode) == ('a\n42\n', 'e\n', 0)
    [(path, headers, body)] = there.requests
    assert path == '/execute' and body == {'code': 'print("é")', 'env_vars': {}}
    assert headers['Content-Type'] == 'application/json' and 'Expect' not in headers
    assert host.ids() == []


def test_it_is_of_the_template(host, there):
    assert code(host, '1', '--keep').returncode == 0
    assert host.ctl('list', '--no-legend').stdout.split()[3] == 'code-interpreter'


def test_another_template_and_options_of_create(host, there):
    result = code(host, '1', '--keep', '--template', 'python', '--label', 'a=b', '--timeout', '1h')
    [i] = host.ids()
    assert f'Sandbox {i} is kept' in result.stderr
    assert host.ctl('show', i, '-p', 'TemplateName', '--value').stdout == 'python\n'


def test_one_that_is_there_stays(host, there, guest):
    assert code(host, '1', '--sandbox', guest).returncode == 0
    assert host.ids() == [guest]


def test_an_error_of_the_code(host, there):
    there.says(out('before\n'), {'type': 'error', 'name': 'NameError', 'value': "name 'x'", 'traceback': "here\nNameError: name 'x'"},
               END)
    result = code(host, 'x')
    assert (result.stdout, result.stderr, result.returncode) == ('before\n', "here\nNameError: name 'x'\n", 1)


@pytest.mark.parametrize('name, language', [('a.py', 'python'), ('a.js', 'javascript'), ('a.ts', 'typescript'), ('a.R', 'r'),
                                            ('a.sh', 'bash'), ('a.txt', None), ('noext', None)])
def test_the_language_is_that_of_the_file(host, there, guest, tmp_path, name, language):
    (tmp_path / name).write_text('1')
    assert host.ctl('code', '--sandbox', guest, tmp_path / name).returncode == 0
    assert there.requests[-1][2].get('language') == language


def test_the_language_is_the_one_that_is_named(host, there, guest, tmp_path):
    (tmp_path / 'a.py').write_text('1')
    host.ctl('code', '--sandbox', guest, '--language', 'bash', tmp_path / 'a.py')
    assert there.requests[-1][2]['language'] == 'bash'


def test_a_context_goes_without_a_language(host, there, guest, tmp_path):
    (tmp_path / 'a.py').write_text('1')
    host.ctl('code', '--sandbox', guest, '--context', 'c1', tmp_path / 'a.py')
    assert there.requests[-1][2] == {'code': '1', 'context_id': 'c1', 'env_vars': {}}


def test_a_new_context(host, there):
    def answer(handler):
        if handler.path == '/contexts':
            handler.text(200, '{"id": "c7", "language": "r", "cwd": "/"}')
        else:
            handler.begin()
            handler.event(END)
            handler.chunk(b'')
    there.answer = answer
    result = code(host, '1', '--context', 'new', '--language', 'r')
    assert result.stderr == 'Context c7\n' and result.returncode == 0
    assert [(path, body) for path, _, body in there.requests] == [
        ('/contexts', {'language': 'r'}), ('/execute', {'code': '1', 'context_id': 'c7', 'env_vars': {}})]


def test_variables(host, there):
    code(host, '1', '-e', 'A=b=c', '--env', 'FROM_HERE', env={'FROM_HERE': 'x'})
    assert there.requests[-1][2]['env_vars'] == {'A': 'b=c', 'FROM_HERE': 'x'}


def test_no_proxy_is_asked(host, there):
    assert code(host, '1', env={'http_proxy': 'http://192.0.2.1:1', 'ALL_PROXY': 'http://192.0.2.1:1'}).returncode == 0


def test_output_comes_as_it_is_made(host, there):
    go_on = threading.Event()

    def answer(handler):
        handler.begin()
        handler.event(out('first\n'))
        go_on.wait(60)
        handler.event(out('second\n'))
        handler.event(END)
        handler.chunk(b'')
    there.answer = answer
    p = subprocess.Popen([CUBECTL, 'code', '-'], env=host.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == 'first\n'
    go_on.set()
    assert p.communicate(timeout=60)[0] == 'second\n' and p.returncode == 0


def test_ten_megabytes_in_one_line(host, there):
    there.says(out('é' * 10_000_000), END)
    assert code(host, '1').stdout == 'é' * 10_000_000


def test_a_large_cell(host, there):
    text = '# ' + 'é' * 2_000_000
    assert code(host, text).returncode == 0 and there.requests[-1][2]['code'] == text


def test_pictures_and_other_forms_are_files(host, there, tmp_path):
    picture = {'type': 'result', 'text': '<Figure>', 'png': base64.b64encode(PNG).decode(), 'html': '<b>', 'extra': {}}
    there.says(picture, picture, END)
    result = code(host, '1', cwd=tmp_path)
    assert (result.stdout, result.stderr) == ('<Figure>\n<Figure>\n', 'result-1.png\nresult-2.png\n')
    assert (tmp_path / 'result-2.png').read_bytes() == PNG
    result = code(host, '1', '--output', 'forms', cwd=tmp_path)
    assert result.stderr.splitlines()[:2] == ['forms/result-1.png', 'forms/result-1.html']
    assert (tmp_path / 'forms/result-2.html').read_text() == '<b>'


def test_a_result_that_can_not_be_shown_is_told(host, there):
    there.says({'type': 'result', 'html': '<b>', 'extra': {'text/x': 'y'}}, END)
    result = code(host, '1')
    assert result.stdout == '' and result.stderr == 'A result is not text, but: html, extra. --output=DIR keeps it.\n'


def on_a_terminal(host, env, cwd):
    """What `cubectl code` writes to the terminal that is its stdout and stderr."""
    master, slave = pty.openpty()
    p = subprocess.Popen([CUBECTL, 'code', '-'], env=host.env | env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=cwd)
    os.close(slave)
    shown = b''
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:
        pass  # how a terminal says that nobody has it open any more
    os.close(master)
    assert p.wait(60) == 0
    return shown


@pytest.mark.parametrize('env, begin', [({'TERM': 'xterm-kitty'}, b'\x1b_Ga=T,'), ({'TERM_PROGRAM': 'iTerm.app'}, b'\x1b]1337;File='),
                                        ({}, None), ({'TERM': 'xterm-kitty', 'TMUX': '1'}, None)])
def test_pictures_in_a_terminal(host, there, tmp_path, env, begin):
    there.says({'type': 'result', 'text': '<Figure>', 'png': base64.b64encode(PNG).decode()}, END)
    shown = on_a_terminal(host, env, tmp_path)
    if begin:
        assert shown.startswith(begin) and b'<Figure>' not in shown and list(tmp_path.iterdir()) == []
    else:
        assert shown == b'<Figure>\r\nresult-1.png\r\n' and (tmp_path / 'result-1.png').read_bytes() == PNG


def test_a_guest_commands_no_terminal(host, there, tmp_path):
    """On the streams, and in the text of a result; all that comes with an escape is cubectl's own."""
    there.says(out('\x1b]0;title\x07\x9b2J\r\n50%\r'), {'type': 'stderr', 'text': 'é\x1b[5n\n'}, {'type': 'result', 'text': '\x1bc'}, END)
    assert on_a_terminal(host, {}, tmp_path).decode() == '\\x1b]0;title\\x07\\xc2\\x9b2J\r\n50%\r\né\\x1b[5n\r\n\\x1bc\r\n'
    # elsewhere it is what programs read; here with ends of lines as Python has them
    assert code(host, '1').stdout == '\x1b]0;title\x07\x9b2J\n50%\n\x1bc\n'


def test_the_events_themselves(host, there):
    events = [out('a'), {'type': 'result', 'text': 'b', 'png': 'AAAA'}, {'type': 'error', 'name': 'E', 'value': '', 'traceback': ''}, END]
    there.says(*events)
    result = code(host, '1', '-j')
    assert [json.loads(line) for line in result.stdout.splitlines()] == events
    assert result.stderr == '' and result.returncode == 1


def test_who_reads_no_more_is_no_error(host, there):
    there.says(*[out('y' * 100_000 + '\n')] * 100, END)
    result = host.run('bash', '-c', 'echo 1 | "$0" code - | head -c1; echo ${PIPESTATUS[1]}', CUBECTL)
    assert result.stdout == f'y{128 + signal.SIGPIPE}\n' and result.stderr == ''


# Refusals, and guests that are no code interpreter.

def test_nobody_listens(host):
    result = code(host, '1')
    assert result.returncode == 255 and 'port 49999' in result.stderr and 'refused' in result.stderr
    assert host.ids() == []


@pytest.mark.parametrize('status, text, words', [
    (404, 'Context c1 not found', 'Context c1 not found'),
    (500, 'bad\x1b[2J', 'bad\\x1b[2J'),
    (500, '', 'no reason'),
    (302, 'elsewhere', 'elsewhere'),
    (404, 'x' * 1_000_000, 'x' * 1000),
])
def test_a_refusal_gives_the_reason(host, there, status, text, words):
    there.answer = lambda handler: handler.text(status, text)
    result = code(host, '1')
    assert result.returncode == 255 and words in result.stderr and len(result.stderr) < 20_000


@pytest.mark.parametrize('data', [b'\n', b'{}\n', b'<html>\n', b'{"type": "stdout"\n', b'[' * 100 + b'\n', b'{"type":"\xff"}\n',
                                  b'{"type": "result", "json": [0' + b',0' * 1_100_000 + b']}\n'])
def test_what_is_no_event(host, there, data):
    there.says_raw(data)
    result = code(host, '1')
    assert result.returncode == 255 and 'not what a code interpreter sends' in result.stderr


def test_a_line_without_an_end(host, there):
    def answer(handler):
        handler.begin()
        while True:
            handler.chunk(b'x' * (1 << 20))
    there.answer = answer
    result = code(host, '1')
    assert result.returncode == 255 and 'not what a code interpreter sends' in result.stderr


def test_an_answer_that_ends_early(host, there):
    there.says(out('a\n'))
    result = code(host, '1')
    assert result.stdout == 'a\n' and result.returncode == 255 and 'ended before the code did' in result.stderr


def test_a_connection_that_breaks(host, there, guest):
    def answer(handler):
        handler.begin()
        handler.event(out('a\n'))
        handler.connection.shutdown(socket.SHUT_RDWR)
    there.answer = answer
    result = code(host, '1', '--sandbox', guest)
    assert result.stdout == 'a\n' and result.returncode == 255 and 'is lost' in result.stderr


@pytest.mark.parametrize('data', [b'\0' * 10, b'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n', b'SSH-2.0-x\r\n', b''])
def test_what_is_no_http(host, guest, data):
    with guest_socket(host) as listening:
        def serve():
            s, _ = listening.accept()
            with s:
                s.recv(65536)
                s.sendall(data)
        thread = threading.Thread(target=serve)
        thread.start()
        result = code(host, '1', '--sandbox', guest)
        thread.join()
    assert result.returncode == 255 and 'is lost' in result.stderr


def test_the_sandbox_ends_meanwhile(host, there):
    def answer(handler):
        handler.begin()
        handler.event(out('on\n'))
        handler.rfile.read(1)
    there.answer = answer
    p = subprocess.Popen([CUBECTL, 'code', '-'], env=host.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    assert p.stdout.readline() == 'on\n'
    [i] = host.ids()
    host.ctl('kill', i)
    _, error = p.communicate(timeout=60)
    assert p.returncode == 255 and f'Sandbox {i} ended while the code ran: killed' in error


def test_who_is_ended_takes_the_sandbox_along(host, there):
    gone = threading.Event()

    def answer(handler):
        handler.begin()
        handler.event(out('on\n'))
        handler.rfile.read(1)
        gone.set()
    there.answer = answer
    p = subprocess.Popen([CUBECTL, 'code', '-'], env=host.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == 'on\n'
    p.send_signal(signal.SIGTERM)
    assert p.wait(60) == -signal.SIGTERM
    assert gone.wait(60)
    wait_for('the sandbox to be gone', lambda: host.ids() == [])


def test_who_is_ended_lets_go_of_the_cell(host, there, guest):
    gone = threading.Event()

    def answer(handler):
        handler.begin()
        handler.event(out('on\n'))
        handler.rfile.read(1)
        gone.set()
    there.answer = answer
    p = subprocess.Popen([CUBECTL, 'code', '--sandbox', guest, '-'], env=host.env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == 'on\n'
    p.send_signal(signal.SIGTERM)
    p.wait(60)
    assert gone.wait(60) and host.ids() == [guest]


@pytest.mark.parametrize('argv, words', [
    ([], 'needs more arguments'),
    (['a', 'b'], "does not take 'b'"),
    (['--sandbox', 'nope', '-'], "'nope' is not a sandbox id"),
    (['--sandbox', 'i99999999999', '--template', 'python', '-'], '--template= is for a new sandbox'),
    (['--sandbox', 'i99999999999', '--keep', '-'], '--keep is for a new sandbox'),
    (['--context', 'c', '-'], '--context= needs --sandbox='),
    (['--sandbox', 'i99999999999', '--context', 'c', '--language', 'r', '-'], 'exclude each other'),
    (['--env', 'no such', '-'], 'no such variable'),
    (['/no/such'], 'read /no/such: No such file'),
    (['--sandbox', 'i99999999999', '-'], 'connect to the code interpreter'),
    (['--template', 'no-such', '-'], 'no-such'),
    (['--output', '/dev/null', '--template', 'no-such', '-'], 'no-such'),
    (['-H', 'elsewhere', '-'], 'do not pass through -H'),
])
def test_what_is_wrong(host, argv, words):
    result = host.ctl('code', *argv, input='1')
    assert result.returncode == 255 and words in result.stderr


@pytest.mark.parametrize('data, words', [(b'\xff', 'no text in UTF-8'), (b'a\0b', 'no text in UTF-8'),
                                         (b'x' * (33 << 20), 'File too large')], ids=['no-utf-8', 'nul', 'large'])
def test_what_is_no_code(host, data, words):
    result = host.ctl('code', '-', input=data, text=False)
    assert result.returncode == 255 and words in result.stderr.decode() and host.ids() == []
