# SPDX-License-Identifier: Apache-2.0
"""What the gateway says to haproxy's own socket, and what it makes of answers that are none."""

import contextlib
import queue
import socket
import subprocess
import threading

import pytest

from gateway import wait_for

PROMPT = b'\n> '
VERSION = b'New version created: 7\n\n> '


class Haproxy:
    """Answers lines as told, and keeps them."""

    def __init__(self, path, answer):
        self.answer = answer
        self.lines, self.joined, self.connection = queue.Queue(), 0, None
        self.listener = socket.socket(socket.AF_UNIX)
        self.path = path
        path.unlink(missing_ok=True)
        self.listener.bind(str(path))
        path.chmod(0o666)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                s, _ = self.listener.accept()
                self.joined += 1
                self.connection = s
                with s, contextlib.suppress(OSError):
                    for line in s.makefile('rb'):
                        answer = self.answer(line.decode().rstrip('\n'))
                        self.lines.put(line.decode().rstrip('\n'))
                        if answer is None:
                            break
                        s.sendall(answer)

    def next(self):
        return self.lines.get(timeout=60)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.path.unlink()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)


@pytest.fixture
def haproxy(gateway):
    made = []

    def make(answer):
        made.append(Haproxy(gateway.ingress_dir / 'control', answer))
        return made[0]
    yield make
    for h in made:
        h.close()


def good(line):
    return VERSION if line.startswith('prepare') else PROMPT


def test_all_routes_are_put_in_place_in_one_step_then_changes_follow(haproxy, client):
    first = client.create()
    h = haproxy(good)
    assert [h.next() for _ in range(3)] == ['prompt', 'prepare map /dev/null', 'add map @7 /dev/null -ready yes']
    line = h.next()
    assert line.startswith(f'add map @7 /dev/null {first} 10.99.0.') and line.endswith('|||||')
    assert h.next() == 'commit map @7 /dev/null'
    second = client.create()
    assert h.next().startswith(f'add map /dev/null {second} 10.99.0.')
    client.call('DELETE', f'/sandboxes/{first}', status=204)
    assert h.next() == f'del map /dev/null {first}'


def test_an_answer_waits_until_haproxy_has_confirmed(haproxy, client):
    asked, go_on = threading.Event(), threading.Event()

    def slow(line):
        if line.startswith('add map /dev/null '):
            asked.set()
            assert go_on.wait(60)
        return good(line)
    h = haproxy(slow)
    while not h.next().startswith('commit'):
        pass
    done = []
    creating = threading.Thread(target=lambda: done.append(client.create()))
    creating.start()
    assert asked.wait(60)
    assert not done and client.call('GET', '/health', status=204) is None
    go_on.set()
    creating.join(60)
    assert done


@pytest.mark.parametrize('answer', [
    lambda line: PROMPT, lambda line: b'New version created: x\n\n> ', lambda line: b'Unknown command\n\n> ', lambda line: b'x' * 100000,
    lambda line: None, lambda line: b'\0\n> ', lambda line: VERSION if line.startswith('prep') else b'New version created: 1\n\n> ',
    lambda line: b'', lambda line: VERSION if line.startswith('prep') else None,
], ids=['empty', 'no-number', 'unknown', 'endless', 'end', 'nul', 'twice', 'silence', 'end-while-filling'])
def test_answers_that_are_none_hold_nobody_up(haproxy, client, answer):
    h = haproxy(answer)
    assert client.create()
    # it is asked anew, again and again
    wait_for('another try', lambda: h.joined > 1, timeout=120)
    assert client.create()
    h.answer = good
    wait_for('all routes', lambda: h.next().startswith('commit'), timeout=60)


def test_what_cubed_could_not_say_is_asked_for_again(alone):
    """Until it is known haproxy keeps what it has."""
    name, path, manager = 'org.cubed.Cube1', '/org/cubed/Cube1', 'org.freedesktop.DBus.ObjectManager'
    h = Haproxy(alone.ingress_dir / 'control', good)
    try:
        alone.host.start(['/usr/bin/python3', '-m', 'dbusmock', '--system', name, path, manager], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        wait_for('another try', lambda: alone.log().count('The sandboxes could not be asked for') >= 2, timeout=120)
        assert h.joined == 0
        result = alone.host.busctl('call', name, path, 'org.freedesktop.DBus.Mock', 'AddMethod', 'sssss', manager, 'GetManagedObjects', '',
                                   'a{oa{sa{sv}}}', 'ret = dbus.Dictionary({}, signature="oa{sa{sv}}")')
        assert result.returncode == 0, result.stderr
        assert h.next() == 'prompt'
    finally:
        h.close()
