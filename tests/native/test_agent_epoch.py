# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. A further claim: the guest has become a copy, and its clients another's."""

import errno
import hashlib
import os
import signal
import socket
import struct

import pytest

from agentlib import (CLAIM, DATA, ERROR, EXEC, LIST_DIRECTORY, LIST_PROCESSES, OK, PING, PTY, STDERR, STDIN, STDOUT,
                      S_PROCESS, S_READ, S_TCP, S_WAIT, S_WRITE, body, frame, parse, pattern, read_until, refused,
                      sanitized, settled, until)


@pytest.fixture
def gate(tmp_path):
    """Lets programs under test go on, one line at a time: they say read x <gate."""

    class Gate:
        path = str(tmp_path / "gate")

        def open(self, line="go"):
            with open(self.path, "w") as f:
                f.write(line + "\n")

    os.mkfifo(Gate.path)
    return Gate()


def epoch(a, *streams):
    """The claim, then the resets."""
    a.control.send(CLAIM, body(HOSTNAME="copy", ENTROPY=b"e" * 64, CPUS=1), 4000)
    for s in streams:
        s.close()
    t, _, id, data = a.control.recv()
    assert (t, id) == (OK, 4000)
    return parse(data)


class stopped:
    """What is sent within is there before the agent runs again."""

    def __init__(self, a):
        self.pid = a.pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: open(f"/proc/{self.pid}/stat").read().split()[2] == "T")

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


# The claim

def test_every_claim_does_it_all(fresh):
    a = fresh(claim=False)
    for n in range(1, 4):
        a.call(CLAIM, HOSTNAME=f"n{n}", REALTIME_NSEC=n, ENTROPY=b"x" * 64, CPUS=n, DISK_BYTES=n << 30)
        cpus = [f"cpus {n}"] if n > 1 else []
        assert a.machine_log()[-4 - len(cpus):] == ["entropy 64", f"time {n}", f"hostname n{n}", *cpus, f"disk {n << 30}"]
        assert a.code(a.exec("true")) == 0


def test_failed_claim_leaves_it_unclaimed_until_one_succeeds(fresh):
    a = fresh()
    with refused(errno.ENOENT, "CPU 16 of 20"):
        a.call(CLAIM, CPUS=20)
    with refused(errno.EAGAIN, "not claimed yet"):
        a.exec("true")
    a.call(CLAIM, CPUS=1)
    assert a.code(a.exec("true")) == 0


def test_requests_from_before_are_answered_after_the_claim(fresh, tmp_path):
    a = fresh()
    for i in range(3000):
        (tmp_path / f"{i:0200}").touch()
    a.control.sock.sendall(frame(LIST_DIRECTORY, body(PATH=str(tmp_path)), 1) + frame(EXEC, body(ARGV="true"), 2) +
                           frame(CLAIM, body(CPUS=1), 3))
    entries, answers = 0, {}
    while len(answers) < 3:
        t, flags, id, data = a.control.recv()
        assert t == OK
        entries += len(parse(data).get("FILE", []))
        if not flags:
            answers[id] = parse(data)
    assert entries == 3000 and a.code(answers[2]["PID"]) == 0


# Programs go on without their clients

def test_output_can_be_attached_again(fresh, gate, tmp_path):
    a = fresh()
    heard = tmp_path / "heard"
    heard.touch()
    pid = a.exec("sh", "-c", f"while read x; do echo $x; echo $x >&2; echo $x $? >>{heard}; done <{gate.path}; exit 3")
    streams = [a.attach(pid, STDIN), a.attach(pid, STDOUT), a.attach(pid, STDERR), a.stream(S_WAIT, PID=pid)]
    with open(gate.path, "w", buffering=1) as f:
        f.write("one\n")
        assert streams[1].read(4) == streams[2].read(4) == b"one\n"
        epoch(a, *streams)
        f.write("unheard\n")
        until(lambda: heard.read_text() == "one 0\nunheard 0\n")
        out, err = a.attach(pid, STDOUT), a.attach(pid, STDERR)
        f.write("two\n")
        read_until(out, b"two\n")
        read_until(err, b"two\n")
    assert a.wait(pid) == {"EXIT_CODE": 3, "TIMED_OUT": 0}


@pytest.mark.parametrize("which", [STDOUT, STDERR, PTY])
def test_endless_output_neither_blocks_nor_fills_memory(fresh, tmp_path, which):
    a = fresh()
    to = " >&2" if which == STDERR else ""
    pid = a.exec("sh", "-c", f"head -c 30000000 /dev/zero{to} && touch {tmp_path}/done && exec sleep 1000", PTY=which == PTY)
    c = a.attach(pid, which)
    c.read(65536)
    before = settled(a.rss)
    epoch(a, c)
    until(lambda: (tmp_path / "done").exists(), seconds=60)
    if not sanitized():
        assert a.rss() < before + 512
    assert a.call(LIST_PROCESSES)["PROCESS"][0][:4] == struct.pack("<I", pid)


def test_input_is_silent_until_attached_again(fresh):
    a = fresh()
    pid = a.exec("cat")
    up, down = a.attach(pid, STDIN), a.attach(pid, STDOUT)
    up.sock.sendall(b"before\n")
    assert down.read(7) == b"before\n"
    epoch(a, up, down)
    down = a.attach(pid, STDOUT)
    up = a.attach(pid, STDIN)
    up.sock.sendall(b"after\n")
    assert down.read(6) == b"after\n"
    up.sock.shutdown(socket.SHUT_WR)
    assert down.read_all() == b"" and a.code(pid) == 0


def test_input_that_had_ended_is_still_delivered(fresh, gate):
    a = fresh()
    data = pattern(200_000)
    pid = a.exec("sh", "-c", f"read x <{gate.path}; exec sha256sum")
    up = a.attach(pid, STDIN)
    up.sock.sendall(data)
    up.sock.shutdown(socket.SHUT_WR)
    a.alive()
    epoch(a, up)
    epoch(a)
    gate.open()
    assert a.output(pid).split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_input_that_had_not_ended_does_not_end(fresh, gate):
    a = fresh()
    pid = a.exec("sh", "-c", f"read x <{gate.path}; exec wc -c")
    up = a.attach(pid, STDIN)
    up.sock.sendall(pattern(200_000))
    a.alive()
    epoch(a, up)
    gate.open()
    up = a.attach(pid, STDIN)
    up.sock.sendall(b"the end")
    up.sock.shutdown(socket.SHUT_WR)
    assert 65536 <= int(a.output(pid)) < 200_007, "what was in the pipe, and what came now"


def test_terminal_does_not_hang_up(fresh):
    a = fresh()
    pid = a.exec("bash", "--norc", "-i", PTY=1, ENV=["PS1=> "])
    c = a.attach(pid, PTY)
    read_until(c, b"> ")
    c.sock.sendall(b"variable=kept\n")
    read_until(c, b"> ")
    epoch(a, c)
    c = a.attach(pid, PTY)
    c.sock.sendall(b"echo is $variable\n")
    read_until(c, b"is kept")
    c.sock.sendall(b"exit 5\n")
    c.read_all()
    assert a.code(pid) == 5


def test_program_that_ends_alone_can_be_waited_for(fresh, gate):
    a = fresh()
    for pty in 0, 1:
        pid = a.exec("sh", "-c", f"read x <{gate.path}; echo unheard; exit 9", PTY=pty)
        streams = [a.attach(pid, PTY)] if pty else [a.attach(pid, STDOUT), a.attach(pid, STDERR)]
        epoch(a, *streams, a.stream(S_WAIT, PID=pid))
        gate.open()
        assert a.wait(pid) == {"EXIT_CODE": 9, "TIMED_OUT": 0}
        until(lambda: a.children() == [])


def test_background_program_outlives_many_others(fresh, gate, tmp_path):
    a = fresh()
    pid = a.exec("sh", "-c", f"(read x <{gate.path}; echo one; echo two; touch {tmp_path}/done) & exit 0")
    c = a.attach(pid, STDOUT)
    assert a.code(pid) == 0
    epoch(a, c)
    for _ in range(300):
        a.wait(a.exec("true"))
    gate.open()
    until(lambda: (tmp_path / "done").exists())


def test_output_that_nobody_had_attached_waits(fresh):
    a = fresh()
    pid = a.exec("echo", "early")
    assert a.code(pid) == 0
    epoch(a)
    assert a.output(pid) == b"early\n"


def test_client_that_goes_away_in_the_new_epoch_is_sigpipe(fresh):
    a = fresh()
    pid = a.exec("yes")
    c = a.attach(pid, STDOUT)
    epoch(a, c)
    c = a.attach(pid, STDOUT)
    c.read(1 << 20)
    c.close()
    assert a.wait(pid)["EXIT_SIGNAL"] == signal.SIGPIPE


# A reset that is seen before the claim was read

def survives(a, pid):
    out = a.attach(pid, STDOUT)
    a.attach(pid, STDIN).sock.sendall(b"alive\n")
    return read_until(out, b"alive\n")


@pytest.mark.parametrize("requests", [0, 100])
def test_reset_seen_first(fresh, requests):
    a = fresh()
    pid = a.exec("cat")
    up, down = a.attach(pid, STDIN), a.attach(pid, STDOUT)
    up.sock.sendall(b"x\n")
    assert down.read(2) == b"x\n"
    with stopped(a):
        # Has the agent look at the streams before it looks at the control stream.
        up.sock.sendall(b"y\n")
        down.sock.shutdown(socket.SHUT_WR)
        a.control.sock.sendall(frame(PING) * requests + frame(CLAIM, body(CPUS=1), 5))
        up.close()
        down.close()
    answers = [a.control.recv() for _ in range(requests + 1)]
    assert answers[-1][:3] == (OK, 0, 5)
    assert survives(a, pid)


def test_reset_seen_while_the_host_does_not_read(fresh, tmp_path):
    a = fresh()
    for i in range(5000):
        (tmp_path / f"{i:0200}").touch()
    pids = [a.exec("cat"), a.exec("bash", "--norc", "-i", PTY=1)]
    streams = [a.attach(pids[0], STDIN), a.attach(pids[0], STDOUT), a.attach(pids[1], PTY)]
    for i in range(8):
        a.control.send(LIST_DIRECTORY, body(PATH=str(tmp_path)), i + 10)
    a.control.send(CLAIM, body(CPUS=1), 5)
    for s in streams:
        s.close()
    done = set()
    while len(done) < 9:
        t, flags, id, _ = a.control.recv()
        assert t == OK
        if not flags:
            done.add(id)
    assert survives(a, pids[0])
    c = a.attach(pids[1], PTY)
    c.sock.sendall(b"echo ali''ve\n")
    read_until(c, b"alive")


def test_client_goes_away_while_requests_wait(fresh):
    a = fresh()
    pid = a.exec("cat")
    up = a.attach(pid, STDIN)
    with stopped(a):
        up.sock.sendall(b"y\n")
        a.control.sock.sendall(frame(PING) * 100)
        up.close()
    for _ in range(100):
        a.control.recv()
    assert a.code(pid) == 0, "no claim among them: its input has ended"


@pytest.mark.parametrize("control_first", [False, True])
def test_connection_that_was_not_accepted_yet(fresh, control_first):
    a = fresh()
    pid = a.exec("cat")
    b = body(PID=pid, STREAM=STDIN)
    with stopped(a):
        if control_first:
            a.control.send(CLAIM, body(CPUS=1), 4)
        c = a.open()
        c.send(S_PROCESS, b, 7)
        silent = a.open()
        a.control.send(CLAIM, body(CPUS=1), 5)
    while a.control.recv()[:3] != (OK, 0, 5):
        pass
    c.close()
    silent.close()
    assert survives(a, pid)


# Other streams

def test_file_that_was_being_written_is_dropped(fresh, tmp_path):
    a = fresh()
    (tmp_path / "f").write_text("old")
    c = a.stream(S_WRITE, PATH=str(tmp_path / "f"))
    c.send(DATA, b"x" * 65536)
    until(lambda: len(os.listdir(tmp_path)) == 2)
    epoch(a, c)
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_text() == "old"


def test_reading_ends_and_a_connection_closes(fresh):
    a = fresh()
    fds = a.fds()
    s = socket.create_server(("127.0.0.1", 0))
    s.settimeout(60)
    read, tcp = a.stream(S_READ, PATH="/dev/zero"), a.stream(S_TCP, PORT=s.getsockname()[1])
    peer, _ = s.accept()
    epoch(a, read, tcp)
    assert peer.recv(1) == b""
    until(lambda: a.fds() <= fds)


def test_a_thousand_epochs_leak_nothing(fresh):
    a = fresh()
    pids = [a.exec("cat"), a.exec("cat", PTY=1)]

    def once():
        c = [a.attach(pids[0], STDIN), a.attach(pids[0], STDOUT), a.attach(pids[0], STDERR), a.attach(pids[1], PTY),
             a.stream(S_WAIT, PID=pids[0]), a.stream(S_READ, PATH="/dev/zero"), a.open()]
        c[0].sock.sendall(b"x")
        assert c[1].read(1) == b"x"
        epoch(a, *c)

    for _ in range(20):
        once()
    fds, rss = settled(a.fds), a.rss()
    for _ in range(980):
        once()
    # the last one's connections may be closed a little later, and then there may be fewer than when it had no CPU
    until(lambda: a.fds() <= fds)
    if not sanitized():
        assert a.rss() < rss + 512
    assert len(a.call(LIST_PROCESSES)["PROCESS"]) == 2


# Hooks

def with_hooks(a):
    """The agent, and a way to give it hooks: each is a shell script that starts in its directory."""
    directory = a.path("fork.d")
    os.mkdir(directory)

    def add(name, script, mode=0o755, shell="/bin/sh"):
        with open(os.path.join(directory, name), "w") as f:
            f.write(f"#!{shell}\ncd {a.directory}\n{script}\n")
        os.chmod(os.path.join(directory, name), mode)

    return a, add


@pytest.fixture
def hooks(fresh):
    return with_hooks(fresh(claim=False))


def log_of(a):
    with open(a.path("log")) as f:
        return f.read().split()


def test_hooks_run_by_name_at_each_epoch_but_the_first(hooks):
    a, add = hooks
    for name in "20-b", "10-a", "30-c":
        add(name, f"echo {name} $CUBE_EPOCH $(id -u) >>log; tail -n 1 machine.log >>log")
    a.call(CLAIM, HOSTNAME="first")
    assert not os.path.exists(a.path("log"))
    for n in 2, 3:
        assert a.call(CLAIM, HOSTNAME="copy", DISK_BYTES=n) == {}
        assert log_of(a) == f"10-a {n} 0 disk {n} 20-b {n} 0 disk {n} 30-c {n} 0 disk {n}".split()
        os.unlink(a.path("log"))


def test_what_is_no_hook(hooks):
    a, add = hooks
    add("not-executable", "echo no >>log", mode=0o644)
    add(".hidden", "echo no >>log")
    add("backup~", "echo no >>log")
    os.mkdir(a.path("fork.d/directory"))
    os.symlink("nowhere", a.path("fork.d/dangling"))
    add("yes", "echo yes >>log")
    os.symlink("yes", a.path("fork.d/z-link"))
    a.call(CLAIM)
    assert a.call(CLAIM) == {}
    assert log_of(a) == ["yes", "yes"]


def test_failing_hooks_are_told_and_not_fatal(hooks):
    a, add = hooks
    add("1", "echo first line >&2; echo 'no entropy in here'; exit 3")
    add("2", "kill -9 $$")
    add("3", "exit 0", shell="/no/such/shell")
    add("4", "echo ran >>log")
    a.call(CLAIM)
    message = a.call(CLAIM)["MESSAGE"]
    assert message == ("hook 1: exit status 3: no entropy in here; hook 2: signal 9; "
                       "hook 3: exit status 127: No such file or directory")
    assert log_of(a) == ["ran"]
    assert a.code(a.exec("true")) == 0


def test_hooks_are_bounded_in_time(fresh):
    a, add = with_hooks(fresh(claim=False, env={"CUBE_HOOKS_SEC": "5"}))
    add("1", "echo one >>log")
    add("2", "sleep 1000 & sleep 1000")
    add("3", "echo three >>log")
    a.call(CLAIM)
    assert a.call(CLAIM)["MESSAGE"] == "hook 2: not done within 5 s, killed; 1 more not run"
    assert log_of(a) == ["one"]
    until(lambda: a.children() == [])
    assert a.code(a.exec("true")) == 0


def test_hooks_that_say_too_much(hooks):
    a, add = hooks
    add("1", "head -c 5000000 /dev/urandom; echo; echo last line; exit 1")
    for i in range(2, 40):
        add(f"{i}", "head -c 2000 /dev/zero | tr '\\0' x; exit 1")
    a.call(CLAIM)
    message = a.call(CLAIM)["MESSAGE"]
    assert message.startswith("hook 1: exit status 1: last line; ") and len(message) < 1024


def test_nothing_new_starts_while_hooks_run(hooks, gate):
    a, add = hooks
    add("1", f"echo >>log; read x <{gate.path}")
    a.call(CLAIM)
    pid = a.exec("cat")
    a.control.send(CLAIM, b"", 1)
    until(lambda: os.path.exists(a.path("log")))
    a.control.send(EXEC, body(ARGV="true"), 2)
    t, _, id, data = a.control.recv()
    assert (t, id, parse(data)["ERRNO"]) == (ERROR, 2, errno.EAGAIN)
    with refused(errno.EAGAIN, "not claimed yet"):
        a.attach(pid, STDIN)
    a.alive()
    gate.open()
    assert a.control.recv()[:3] == (OK, 0, 1)
    a.attach(pid, STDIN).close()
    assert a.code(pid) == 0


def test_claim_in_the_middle_of_another(hooks, gate):
    a, add = hooks
    add("1", f"echo $CUBE_EPOCH >>log; read x <{gate.path}; echo done >>log")
    a.call(CLAIM)
    a.control.send(CLAIM, b"", 1)
    until(lambda: os.path.exists(a.path("log")) and log_of(a))
    a.control.send(CLAIM, b"", 2)
    t, _, id, data = a.control.recv()
    assert (t, id, parse(data)["ERRNO"]) == (ERROR, 1, errno.ECANCELED)
    until(lambda: len(log_of(a)) == 2)
    gate.open()
    assert a.control.recv()[:3] == (OK, 0, 2)
    assert log_of(a) == ["2", "2", "done"]
    until(lambda: a.children() == [])


def test_power_off_in_the_middle_of_hooks(hooks):
    a, add = hooks
    add("1", "echo >>log; exec sleep 1000")
    add("2", "echo >>log; exec sleep 1000")
    a.call(CLAIM)
    a.control.send(CLAIM, b"", 1)
    until(lambda: os.path.exists(a.path("log")))
    os.kill(a.pid, signal.SIGTERM)
    assert a.process.wait(60) == 0
    with open(a.path("log")) as f:
        assert f.read() == "\n"
