# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process (agent-harness), spoken to as its host does."""

import errno
import hashlib
import os
import pathlib
import random
import signal
import socket
import stat
import struct
import threading
import time

import pytest

from agentlib import (ADD_ENTROPY, CLAIM, DATA, END, ERROR, EXEC, EXITED, File, LIST_DIRECTORY, LIST_PROCESSES, MKDIR,
                      MORE, OK, PING, POWEROFF, PTY, REMOVE, RENAME, RESIZE, S_PROCESS, S_READ, S_TCP, S_WAIT, S_WRITE,
                      SET_TIME, SIGNAL, STAT, STDERR, STDIN, STDOUT, Agent, AgentError, body, parse, read_until, tlv,
                      until)

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CUBE_BUILD", TOP / "build"))
HARNESS = os.environ.get("CUBE_AGENT_HARNESS", str(BUILD / "tests/native/agent-harness"))


def sanitized():
    with open(HARNESS, "rb") as f:
        return b"__asan_init" in f.read()


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pid and mount namespaces, other users")


@pytest.fixture
def fresh(tmp_path_factory):
    """Starts agents, and looks at how they ended."""
    agents = []

    def start(**kwargs):
        agents.append(Agent(HARNESS, tmp_path_factory.mktemp("agent"), **kwargs))
        return agents[-1]

    yield start
    for a in agents:
        code, text = a.stop()
        assert code == 0, text
        assert "Sanitizer" not in text and "runtime error" not in text, text


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    a = Agent(HARNESS, tmp_path_factory.mktemp("agent"))
    yield a
    code, text = a.stop()
    assert code == 0, text
    assert "Sanitizer" not in text and "runtime error" not in text, text


@pytest.fixture
def agent(shared):
    """One agent for many tests: each must leave it well."""
    yield shared
    shared.alive()


class refused:
    """A with block that must end in this AgentError."""

    def __init__(self, number, text=""):
        self.number, self.text = number, text

    def __enter__(self):
        return self

    def __exit__(self, kind, e, _):
        assert kind is AgentError, f"not refused: {e!r}"
        assert e.errno == self.number, f"{errno.errorcode.get(e.errno)}: {e}"
        assert self.text in str(e)
        return True


# The control stream and the claim

def test_ready(agent):
    assert agent.ready["VERSION"] == 1
    assert agent.ready["KERNEL_RELEASE"] == os.uname().release
    assert agent.ready["CPUS"] >= 1 and agent.ready["MEM_BYTES"] > 1 << 20


def test_nothing_before_the_claim(fresh):
    a = fresh(claim=False)
    a.call(PING)
    with refused(errno.EAGAIN, "not claimed yet"):
        a.exec("true")
    with refused(errno.EAGAIN, "not claimed yet"):
        a.stream(S_READ, PATH="/etc/passwd")
    with refused(errno.EAGAIN):
        a.call(STAT, PATH="/")
    a.call(CLAIM, HOSTNAME="abc", REALTIME_NSEC=123, ENTROPY=b"x" * 64, CPUS=4, DISK_BYTES=1 << 32)
    assert a.machine_log() == ["entropy 64", "time 123", "hostname abc", "cpus 4", f"disk {1 << 32}"]
    assert a.code(a.exec("true")) == 0
    a.call(SET_TIME, REALTIME_NSEC=5)
    a.call(ADD_ENTROPY, ENTROPY=b"y" * 256)
    assert a.machine_log()[-2:] == ["time 5", "entropy 256"]


def test_failed_claim_is_no_claim(fresh):
    a = fresh(claim=False)
    with refused(errno.ENOENT, "CPU 16 of 20"):
        a.call(CLAIM, CPUS=20)
    with refused(errno.EAGAIN):
        a.exec("true")


def test_control_stream_comes_back(fresh):
    a = fresh()
    pid = a.exec("sleep", "0.3")
    a.control.close()
    a.accept()
    assert a.code(pid) == 0
    a.alive()


def test_late_answers_go_nowhere(fresh):
    a = fresh()
    a.control.send(LIST_DIRECTORY, body(PATH="/usr/bin"), 1)
    a.control.send(EXEC, body(ARGV=["true"]), 2)
    a.control.close()
    a.accept()
    for _ in range(20):
        a.alive()


def test_poweroff(fresh):
    a = fresh()
    for trap in "exit 0", "":
        pid = a.exec("sh", "-c", f"trap '{trap}' TERM; echo ready; while :; do sleep 0.1; done")
        assert a.attach(pid, STDOUT).read(6) == b"ready\n"
    start = time.monotonic()
    a.call(POWEROFF)
    with refused(errno.ESHUTDOWN):
        a.exec("true")
    assert a.process.wait(10) == 0
    assert 1.5 < time.monotonic() - start < 6
    assert a.machine_log()[-1] == "poweroff"


def test_poweroff_at_once_without_processes(fresh):
    a = fresh()
    start = time.monotonic()
    a.call(POWEROFF)
    assert a.process.wait(10) == 0
    assert time.monotonic() - start < 1.5


# Processes

@pytest.mark.parametrize("argv, expected", [
    (["true"], {"EXIT_CODE": 0, "TIMED_OUT": 0}),
    (["false"], {"EXIT_CODE": 1, "TIMED_OUT": 0}),
    (["sh", "-c", "exit 7"], {"EXIT_CODE": 7, "TIMED_OUT": 0}),
    (["sh", "-c", "exit 255"], {"EXIT_CODE": 255, "TIMED_OUT": 0}),
    (["sh", "-c", "kill -TERM $$"], {"EXIT_SIGNAL": 15, "TIMED_OUT": 0}),
    (["sh", "-c", "kill -KILL $$"], {"EXIT_SIGNAL": 9, "TIMED_OUT": 0}),
    (["sh", "-c", "kill -SEGV $$"], {"EXIT_SIGNAL": 11, "TIMED_OUT": 0}),
])
def test_exit(agent, argv, expected):
    assert agent.wait(agent.exec(*argv)) == expected


def test_streams_are_apart(agent):
    end, out, err = agent.run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (end["EXIT_CODE"], out, err) == (7, b"out\n", b"err\n")


def test_wait_before_and_after_exit_many_times(agent):
    pid = agent.exec("sh", "-c", "read x; exit 3")
    waiters = [agent.stream(S_WAIT, PID=pid) for _ in range(5)]
    gone = agent.stream(S_WAIT, PID=pid)
    gone.close()
    stdin = agent.attach(pid, STDIN)
    stdin.sock.sendall(b"\n")
    for w in waiters:
        t, _, _, data = w.recv()
        assert t == EXITED and parse(data)["EXIT_CODE"] == 3
        assert w.read_all() == b""
    assert [agent.code(pid) for _ in range(3)] == [3, 3, 3]
    with refused(errno.ESRCH, "process 4000000"):
        agent.wait(4000000)


def test_output_survives_the_exit(agent):
    pid = agent.exec("echo", "late")
    assert agent.code(pid) == 0
    assert agent.output(pid) == b"late\n"
    with refused(errno.EPIPE, "stdout"):
        agent.attach(pid, STDOUT)


def test_one_stream_once(agent):
    pid = agent.exec("cat")
    c = agent.attach(pid, STDIN)
    with refused(errno.EBUSY, "stdin"):
        agent.attach(pid, STDIN)
    with refused(errno.EINVAL, "terminal"):
        agent.attach(pid, PTY)
    with refused(errno.EINVAL, "unknown stream"):
        agent.attach(pid, 77)
    c.close()
    assert agent.code(pid) == 0


def test_environment(agent):
    end, out, _ = agent.run("env", ENV=["FOO=bar", "PATH=/usr/bin:/bin", "EMPTY="])
    env = dict(line.split("=", 1) for line in out.decode().splitlines())
    assert env == {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": env["SHELL"], "FOO": "bar",
                   "PATH": "/usr/bin:/bin", "EMPTY": ""}
    assert agent.run("env")[1].count(b"PATH=/usr/local/sbin:") == 1


def test_program_is_found_along_its_own_path(agent, tmp_path):
    (tmp_path / "hello").write_text("#!/bin/sh\necho hi\n")
    (tmp_path / "hello").chmod(0o755)
    assert agent.run("hello", ENV=[f"PATH={tmp_path}:/bin"])[1] == b"hi\n"


def test_surroundings(agent):
    script = ("pwd; umask; ulimit -Sn; cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l; "
              "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ps -o pid=,pgid=,sid= -p $$")
    _, out, err = agent.run("bash", "-c", script)
    lines = out.decode().split("\n")
    assert lines[0] == "/root" and lines[1] == "0022" and lines[2] == "1024" and lines[3] == "0"
    assert lines[4] == "4", "only the standard streams and ls's own"
    assert lines[5].split() == ["SigBlk:", "0" * 16] and lines[6].split() == ["SigIgn:", "0" * 16]
    pid, pgid, sid = lines[8].split()
    assert pid == pgid == sid


def test_users(agent):
    _, out, _ = agent.run("id", USER="nobody")
    assert b"uid=65534(nobody)" in out and b"groups=65534(nogroup)" in out
    _, out, _ = agent.run("sh", "-c", "id -u; id -g; echo $HOME; pwd", USER="54321")
    assert out == b"54321\n0\n/\n/\n"
    assert agent.run("id", "-un", USER="0")[1] == b"root\n"
    with refused(errno.ENOENT, "user nosuchuser"):
        agent.exec("id", USER="nosuchuser")
    # Effective privilege really is gone.
    assert agent.run("cat", "/etc/shadow", USER="nobody")[0]["EXIT_CODE"] == 1


@pytest.mark.parametrize("fields, number, text", [
    (dict(ARGV="no-such-program"), errno.ENOENT, "no-such-program"),
    (dict(ARGV="/etc/passwd"), errno.EACCES, "/etc/passwd"),
    (dict(ARGV="/etc"), errno.EACCES, "/etc"),
    (dict(ARGV=""), errno.EINVAL, "name is empty"),
    (dict(ARGV="true", CWD="/no/such/dir"), errno.ENOENT, "/no/such/dir"),
    (dict(ARGV="true", CWD="/etc/passwd"), errno.ENOTDIR, "/etc/passwd"),
    (dict(ARGV="true", CWD="/root", USER="nobody"), errno.EACCES, "/root"),
    (dict(ARGV="true", CWD="relative"), errno.EINVAL, "CWD"),
    (dict(ARGV="true", ENV="NOVALUE"), errno.EINVAL, "ENV"),
    (dict(ARGV="true", PTY=1, ROWS=70000, COLS=1), errno.EINVAL, "70000"),
    (dict(CWD="/"), errno.EINVAL, "ARGV is missing"),
])
def test_exec_failures_name_the_thing(agent, fields, number, text):
    with refused(number, text):
        agent.call(EXEC, **fields)


def test_missing_interpreter(agent, tmp_path):
    (tmp_path / "x").write_text("#!/no/such/interpreter\n")
    (tmp_path / "x").chmod(0o755)
    with refused(errno.ENOENT, "interpreter of"):
        agent.exec(str(tmp_path / "x"))


def test_signals(agent):
    pid = agent.exec("sleep", "100")
    agent.call(SIGNAL, PID=pid, SIGNAL=15)
    assert agent.wait(pid)["EXIT_SIGNAL"] == 15
    with refused(errno.ESRCH, "has exited"):
        agent.call(SIGNAL, PID=pid, SIGNAL=15)
    pid = agent.exec("sh", "-c", "sleep 100 & wait")
    with refused(errno.EINVAL, "no signal 99"):
        agent.call(SIGNAL, PID=pid, SIGNAL=99)
    agent.call(SIGNAL, PID=pid, SIGNAL=9, GROUP=1)
    assert agent.wait(pid)["EXIT_SIGNAL"] == 9
    assert agent.output(pid) == b"", "the group's other member has gone too"
    with refused(errno.ESRCH, "process 1"):
        agent.call(SIGNAL, PID=1, SIGNAL=9)


def test_timeout(agent):
    start = time.monotonic()
    end = agent.wait(agent.exec("sleep", "100", TIMEOUT_USEC=300000))
    assert end == {"EXIT_SIGNAL": 15, "TIMED_OUT": 1}
    assert 0.25 < time.monotonic() - start < 2


def test_timeout_kills_who_ignores_it(agent):
    start = time.monotonic()
    pid = agent.exec("sh", "-c", "trap '' TERM; sleep 100; sleep 100", TIMEOUT_USEC=500000)
    assert agent.wait(pid) == {"EXIT_SIGNAL": 9, "TIMED_OUT": 1}
    assert 2 < time.monotonic() - start < 5
    assert agent.output(pid) == b""


def test_timeout_reaches_the_rest_of_the_group(agent):
    pid = agent.exec("sh", "-c", "(trap '' TERM; sleep 100; sleep 100) & sleep 100", TIMEOUT_USEC=500000)
    assert agent.wait(pid) == {"EXIT_SIGNAL": 15, "TIMED_OUT": 1}
    assert agent.output(pid) == b"", "which holds stdout open until it is killed"


def test_timeout_not_reached(agent):
    assert agent.wait(agent.exec("true", TIMEOUT_USEC=20000000)) == {"EXIT_CODE": 0, "TIMED_OUT": 0}


def test_list_processes(agent):
    pid = agent.exec("sleep", "100", USER="nobody")

    def states():
        return {struct.unpack_from("<IIII", p)[0]: (*struct.unpack_from("<IIII", p)[1:], p[16:])
                for p in agent.call(LIST_PROCESSES).get("PROCESS", [])}

    assert states()[pid] == (65534, 0, 0, b"sleep")
    agent.call(SIGNAL, PID=pid, SIGNAL=9)
    until(lambda: states()[pid][1] == 1)
    agent.wait(pid)
    assert pid not in states()


def test_thousand_runs_leak_nothing(fresh):
    a = fresh()

    def once():
        assert a.run("true")[0]["EXIT_CODE"] == 0

    for _ in range(300):
        once()
    fds, rss = a.fds(), a.rss()
    for _ in range(700):
        once()
    assert a.fds() <= fds + 2
    assert a.children() == []
    if not sanitized():
        assert a.rss() < rss + 512


def test_unread_records_are_bounded(fresh):
    a = fresh()
    first = a.exec("echo", "x")
    pids = [a.exec("echo", "x") for _ in range(400)]
    until(lambda: a.children() == [])
    until(lambda: a.fds() < 256 * 3 + 40)
    assert len(a.call(LIST_PROCESSES)["PROCESS"]) == 256
    with refused(errno.ESRCH):
        a.wait(first)
    assert a.output(pids[-1]) == b"x\n"


def test_too_many_processes(fresh):
    a = fresh()
    for _ in range(1024):
        a.exec("sleep", "1000")
    with refused(errno.EAGAIN, "1024 processes"):
        a.exec("true")
    a.call(POWEROFF)
    assert a.process.wait(10) == 0


def test_orphans_are_reaped(agent):
    before = len(agent.children())
    _, out, _ = agent.run("sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.2 >/dev/null 2>&1 </dev/null &) ; done; echo done")
    assert out == b"done\n"
    until(lambda: len(agent.children()) == before)


# Bulk data

def pattern(n):
    return random.Random(n).randbytes(n)


def test_50_megabytes_out(agent, tmp_path):
    data = pattern(50_000_000)
    (tmp_path / "data").write_bytes(data)
    start = time.monotonic()
    end, out, _ = agent.run("cat", str(tmp_path / "data"))
    print(f"stdout: {50 / (time.monotonic() - start):.0f} MB/s")
    assert end["EXIT_CODE"] == 0 and out == data


def test_50_megabytes_in(agent):
    data = pattern(50_000_000)
    pid = agent.exec("sha256sum")
    c = agent.attach(pid, STDIN)
    c.sock.sendall(data)
    c.sock.shutdown(socket.SHUT_WR)
    assert c.read_all() == b""
    assert agent.output(pid).split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert agent.code(pid) == 0


def test_both_ways_at_once(agent):
    data = pattern(20_000_000)
    pid = agent.exec("cat")
    up, down = agent.attach(pid, STDIN), agent.attach(pid, STDOUT)

    def feed():
        up.sock.sendall(data)
        up.sock.shutdown(socket.SHUT_WR)

    t = threading.Thread(target=feed)
    t.start()
    assert down.read_all() == data
    t.join()
    assert agent.code(pid) == 0


def test_slow_reader_keeps_memory_flat(fresh):
    a = fresh()
    pid = a.exec("sh", "-c", "yes & exec yes >&2")
    out, err = a.attach(pid, STDOUT), a.attach(pid, STDERR)
    out.read(1 << 20)
    time.sleep(0.2)
    before = a.rss()
    for _ in range(20):
        out.read(1 << 16)
        time.sleep(0.05)
    if not sanitized(): # whose allocator keeps what is freed
        assert a.rss() < before + 256
    a.alive()
    # The writers see SIGPIPE when their readers leave, as in a pipeline.
    out.close()
    err.close()
    assert a.wait(pid)["EXIT_SIGNAL"] == signal.SIGPIPE


def test_reader_that_leaves_is_sigpipe(agent):
    pid = agent.exec("yes")
    c = agent.attach(pid, STDOUT)
    c.read(1 << 20)
    c.close()
    assert agent.wait(pid)["EXIT_SIGNAL"] == signal.SIGPIPE


def test_idle_reader_that_leaves_closes_the_pipe(agent):
    pid = agent.exec("sh", "-c", "read x; echo one; sleep 0.1; echo two; echo no >&2")
    c = agent.attach(pid, STDOUT)
    c.close()
    time.sleep(0.2)
    agent.attach(pid, STDIN).sock.sendall(b"\n")
    assert agent.wait(pid)["EXIT_SIGNAL"] == signal.SIGPIPE
    assert agent.output(pid, STDERR) == b""


def test_half_closed_reader_stays(agent):
    pid = agent.exec("sh", "-c", "sleep 0.3; echo still here")
    c = agent.attach(pid, STDOUT)
    c.sock.shutdown(socket.SHUT_WR)
    assert c.read_all() == b"still here\n"


def test_program_that_closes_stdin(agent):
    pid = agent.exec("sh", "-c", "exec <&-; sleep 0.5; echo done")
    c = agent.attach(pid, STDIN)
    assert c.read_all() == b"", "the host is told at once"
    assert agent.output(pid) == b"done\n"


def test_stdin_never_attached(agent):
    pid = agent.exec("cat")
    agent.attach(pid, STDIN).close()
    assert agent.code(pid) == 0


def test_data_right_behind_the_first_frame(agent):
    pid = agent.exec("cat")
    c = agent.open()
    b = body(PID=pid, STREAM=STDIN)
    c.sock.sendall(struct.pack("<IHHI", len(b), S_PROCESS, 0, 1) + b + b"early\n")
    c.sock.shutdown(socket.SHUT_WR)
    assert c.recv()[0] == OK
    assert agent.output(pid) == b"early\n"


# Terminals

def test_terminal(agent):
    pid = agent.exec("bash", "--norc", PTY=1, ROWS=33, COLS=99, ENV=["PS1=> "])
    c = agent.attach(pid, PTY)
    with refused(errno.EINVAL, "stdout"):
        agent.attach(pid, STDOUT)
    read_until(c, b"> ")
    c.sock.sendall(b"stty size; echo $TERM; tty\n")
    assert b"xterm-256color" in read_until(c, b"/dev/pts/")
    agent.call(RESIZE, PID=pid, ROWS=50, COLS=120)
    c.sock.sendall(b"stty size\n")
    read_until(c, b"50 120")
    c.sock.sendall(b"sleep 100\n")
    time.sleep(0.3)
    c.sock.sendall(b"\x03echo inter''rupted\n")
    read_until(c, b"interrupted")
    c.sock.sendall(b"exit 5\n")
    c.read_all()
    assert agent.code(pid) == 5


def test_terminal_size_at_start(agent):
    pid = agent.exec("stty", "size", PTY=1, ROWS=12, COLS=34)
    assert agent.attach(pid, PTY).read_all() == b"12 34\r\n"
    assert agent.code(pid) == 0


def test_resize_without_terminal(agent):
    pid = agent.exec("cat")
    with refused(errno.ENOTTY, "has no terminal"):
        agent.call(RESIZE, PID=pid, ROWS=1, COLS=1)
    agent.call(SIGNAL, PID=pid, SIGNAL=9)


def test_terminal_hangs_up(agent):
    pid = agent.exec("bash", "--norc", "-i", PTY=1)
    c = agent.attach(pid, PTY)
    c.sock.sendall(b"sleep 1000\n")
    time.sleep(0.5)
    c.close()
    assert agent.wait(pid)["EXIT_SIGNAL"] == signal.SIGHUP


def test_terminal_hangs_up_though_input_is_stuck(agent):
    pid = agent.exec("sh", "-c", "stty raw -echo; echo ready; sleep 1000", PTY=1)
    c = agent.attach(pid, PTY)
    read_until(c, b"ready")
    c.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while True:
            c.sock.sendall(b"x" * 65536)
    c.close()
    assert agent.wait(pid)["EXIT_SIGNAL"] == signal.SIGHUP


def test_terminal_survives_and_is_attached_again(agent):
    pid = agent.exec("sh", "-c", "trap '' HUP; stty -echo; echo ready; read x; echo got $x", PTY=1)
    c = agent.attach(pid, PTY)
    read_until(c, b"ready")
    c.close()
    time.sleep(0.3)
    c = agent.attach(pid, PTY)
    c.sock.sendall(b"again\n")
    assert b"got again" in c.read_all()


def test_terminal_end_of_input_is_ctrl_d(agent):
    pid = agent.exec("bash", "--norc", PTY=1, ENV=["PS1=> "])
    c = agent.attach(pid, PTY)
    read_until(c, b"> ")
    c.sock.sendall(b"echo a''b\n")
    c.sock.shutdown(socket.SHUT_WR)
    assert b"ab" in c.read_all()
    assert agent.code(pid) == 0
    pid = agent.exec("cat", PTY=1)
    c = agent.attach(pid, PTY)
    c.sock.sendall(b"xyz\n")
    c.sock.shutdown(socket.SHUT_WR)
    assert b"xyz\r\nxyz\r\n" in c.read_all()
    assert agent.code(pid) == 0


def test_terminal_closed_before_the_exit_does_not_change_the_status(agent):
    pid = agent.exec("sh", "-c", "exec <&- >&- 2>&-; sleep 0.3; exit 3", PTY=1)
    assert agent.attach(pid, PTY).read_all() == b""
    assert agent.code(pid) == 3


def test_terminal_with_much_output(agent):
    pid = agent.exec("seq", "200000", PTY=1)
    out = agent.attach(pid, PTY).read_all()
    assert out.split() == [str(i).encode() for i in range(1, 200001)]


def test_terminal_belongs_to_the_user(agent):
    pid = agent.exec("sh", "-c", "echo x >$(tty) && id -un", PTY=1, USER="nobody")
    assert b"x\r\nnobody" in agent.attach(pid, PTY).read_all()


# Files

def test_stat(agent, tmp_path):
    p = tmp_path / "file"
    p.write_bytes(b"12345")
    os.chown(p, 3, 4)
    p.chmod(0o4751)
    os.utime(p, ns=(0, 1234567890123456789))
    f = agent.stat(str(p))
    assert (f.name, f.size, f.mode, f.uid, f.gid, f.mtime, f.target) == \
        ("file", 5, stat.S_IFREG | 0o4751, 3, 4, 1234567890123456789, None)
    (tmp_path / "link").symlink_to("file")
    f = agent.stat(str(tmp_path / "link"))
    assert stat.S_ISLNK(f.mode) and f.target == "file"
    f = agent.stat(str(tmp_path / "link"), FOLLOW=1)
    assert stat.S_ISREG(f.mode) and f.size == 5
    assert stat.S_ISDIR(agent.stat("/").mode)
    with refused(errno.ENOENT, str(tmp_path / "none")):
        agent.stat(str(tmp_path / "none"))


def test_list_directory(agent, tmp_path):
    names = {f"file-{i}-{'x' * (i % 200)}" for i in range(5000)}
    for n in names:
        (tmp_path / n).touch()
    (tmp_path / "a link").symlink_to("/no/where")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    frames = agent.call_frames(LIST_DIRECTORY, PATH=str(tmp_path))
    assert len(frames) > 3, "comes in several frames"
    files = {f.name: f for f in (File(raw) for frame in frames for raw in frame.get("FILE", []))}
    assert set(files) == names | {"a link", "dir", "fifo"}
    assert files["a link"].target == "/no/where" and stat.S_ISFIFO(files["fifo"].mode)


def test_list_directory_errors(agent, tmp_path):
    assert agent.list(str(tmp_path)) == []
    with refused(errno.ENOTDIR):
        agent.list("/etc/passwd")
    with refused(errno.ENOENT, "/no/such"):
        agent.list("/no/such")


def test_other_requests_during_a_listing(agent, tmp_path):
    for i in range(5000):
        (tmp_path / f"{i:0200}").touch()
    agent.control.send(LIST_DIRECTORY, body(PATH=str(tmp_path)), 900001)
    agent.control.send(PING, b"", 900002)
    order, entries = [], 0
    while order.count(900001) == 0 or order.count(900002) == 0:
        t, flags, id, data = agent.control.recv()
        assert t == OK
        entries += len(parse(data).get("FILE", []))
        if not flags & MORE:
            order.append(id)
    assert order == [900002, 900001] and entries == 5000


def test_host_that_does_not_read_listings(fresh, tmp_path):
    a = fresh()
    for i in range(3000):
        (tmp_path / f"{i:0200}").touch()
    a.list(str(tmp_path))
    before = a.rss()
    for i in range(64):
        a.control.send(LIST_DIRECTORY, body(PATH=str(tmp_path)), i + 100)
    time.sleep(1)
    if not sanitized():
        # One listing is 750 kB: what waits is bounded, not 64 times that. Each has a directory open.
        assert a.rss() < before + 8192
    done, entries = set(), 0
    while len(done) < 64:
        t, flags, id, data = a.control.recv()
        assert t == OK
        entries += len(parse(data).get("FILE", []))
        if not flags & MORE:
            done.add(id)
    assert entries == 64 * 3000
    a.alive()


def test_remove(agent, tmp_path):
    (tmp_path / "f").touch()
    agent.call(REMOVE, PATH=str(tmp_path / "f"))
    assert not (tmp_path / "f").exists()
    (tmp_path / "d").mkdir()
    agent.call(REMOVE, PATH=str(tmp_path / "d") + "/")
    assert not (tmp_path / "d").exists()
    (tmp_path / "d" / "x").mkdir(parents=True)
    with refused(errno.ENOTEMPTY, str(tmp_path / "d")):
        agent.call(REMOVE, PATH=str(tmp_path / "d"))
    with refused(errno.ENOENT):
        agent.call(REMOVE, PATH=str(tmp_path / "none"), RECURSIVE=1)
    for path in "/", "//", f"{tmp_path}/d/.", f"{tmp_path}/d/..":
        with refused(errno.EINVAL):
            agent.call(REMOVE, PATH=path, RECURSIVE=1)
    assert (tmp_path / "d" / "x").exists()


def test_remove_tree_follows_no_link(agent, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    top = tmp_path / "top"
    for i in range(20):
        d = top / f"a{i}" / "b" / "c"
        d.mkdir(parents=True)
        for j in range(50):
            (d / f"f{j}").touch()
        (d / "dirlink").symlink_to(outside)
        (d / "filelink").symlink_to(outside / "precious")
        (d / "up").symlink_to("..")
    os.mkfifo(top / "fifo")
    (tmp_path / "toplink").symlink_to(top)
    agent.call(REMOVE, PATH=str(tmp_path / "toplink"), RECURSIVE=1)
    assert top.exists() and not (tmp_path / "toplink").is_symlink()
    agent.call(REMOVE, PATH=str(top), RECURSIVE=1)
    assert not top.exists()
    assert (outside / "precious").read_text() == "x"


def test_remove_deep_tree(agent, tmp_path):
    top = os.open(tmp_path, os.O_PATH)
    fd = os.dup(top)
    for _ in range(3000):
        os.mkdir("deeper-and-deeper", dir_fd=fd)
        n = os.open("deeper-and-deeper", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = n
    os.close(fd)
    agent.call(REMOVE, PATH=str(tmp_path / "deeper-and-deeper"), RECURSIVE=1)
    assert os.listdir(tmp_path) == []
    os.close(top)


def test_rename(agent, tmp_path):
    (tmp_path / "a").write_text("1")
    agent.call(RENAME, PATH=str(tmp_path / "a"), TARGET=str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "1"
    with refused(errno.ENOENT, f"{tmp_path}/a to {tmp_path}/c"):
        agent.call(RENAME, PATH=str(tmp_path / "a"), TARGET=str(tmp_path / "c"))


def test_mkdir(agent, tmp_path):
    agent.call(MKDIR, PATH=str(tmp_path / "a"))
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755
    agent.call(MKDIR, PATH=str(tmp_path / "b"), MODE=0o1777)
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o1777
    with refused(errno.EEXIST):
        agent.call(MKDIR, PATH=str(tmp_path / "a"))
    with refused(errno.ENOENT):
        agent.call(MKDIR, PATH=str(tmp_path / "x/y/z"))
    agent.call(MKDIR, PATH=str(tmp_path / "x/y/z"), PARENTS=1, MODE=0o700)
    agent.call(MKDIR, PATH=str(tmp_path / "x/y/z"), PARENTS=1)
    assert (tmp_path / "x/y/z").stat().st_mode & 0o7777 == 0o700
    (tmp_path / "b").chmod(0o1777)
    for p in tmp_path.parents:
        if str(p).startswith("/tmp/"):
            p.chmod(p.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    agent.call(MKDIR, PATH=str(tmp_path / "b/of/nobody"), PARENTS=1, USER="nobody")
    assert (tmp_path / "b/of").stat().st_uid == 65534
    with refused(errno.EACCES, "/root/x"):
        agent.call(MKDIR, PATH="/root/x", USER="nobody")
    (tmp_path / "file").touch()
    with refused(errno.ENOTDIR):
        agent.call(MKDIR, PATH=str(tmp_path / "file"), PARENTS=1)


def test_read(agent, tmp_path):
    data = pattern(3_000_001)
    (tmp_path / "f").write_bytes(data)
    assert agent.get(str(tmp_path / "f")) == data
    (tmp_path / "empty").touch()
    assert agent.get(str(tmp_path / "empty")) == b""
    c = agent.stream(S_READ, PATH=str(tmp_path / "f"))
    assert File(c.answer["FILE"][0]).size == len(data)
    c.close()
    assert b"MemTotal" in agent.get("/proc/meminfo"), "a file that says its size is 0"
    with refused(errno.EISDIR):
        agent.get("/etc")
    with refused(errno.ENOENT, "/no/such"):
        agent.get("/no/such")
    with refused(errno.EACCES, "/etc/shadow"):
        agent.get("/etc/shadow", USER="nobody")
    with refused(errno.ENOENT, "user nosuch"):
        agent.get("/etc/passwd", USER="nosuch")
    assert agent.get("/etc/shadow"), "root's rights are back"


def test_read_endless_device_and_leave(agent):
    c = agent.stream(S_READ, PATH="/dev/zero")
    for _ in range(100):
        assert c.recv()[0] == DATA
    c.close()


def test_read_fifo(agent, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path / "fifo", os.O_RDWR)
    c = agent.stream(S_READ, PATH=str(tmp_path / "fifo"))
    agent.alive()
    os.write(fd, b"hello")
    t, _, _, data = c.recv()
    assert (t, data) == (DATA, b"hello")
    os.close(fd)
    t, _, _, data = c.recv()
    assert t == END and parse(data)["ERRNO"] == 0


def test_write(agent, tmp_path):
    data = pattern(3_000_001)
    p = tmp_path / "f"
    agent.put(str(p), data, SIZE=len(data))
    assert p.read_bytes() == data and p.stat().st_mode & 0o7777 == 0o644
    agent.put(str(p), b"", MODE=0o4750)
    assert p.read_bytes() == b"" and p.stat().st_mode & 0o7777 == 0o4750
    os.chown(p, 5, 6)
    p.chmod(0o611)
    agent.put(str(p), b"kept")
    st = p.stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777, p.read_bytes()) == (5, 6, 0o611, b"kept")
    assert os.listdir(tmp_path) == ["f"]


def test_write_as_user(agent, tmp_path):
    d = tmp_path / "d"
    d.mkdir()
    for p in tmp_path.parents:
        if str(p).startswith("/tmp/"):
            p.chmod(p.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    with refused(errno.EACCES, str(d / "f")):
        agent.put(str(d / "f"), b"x", USER="nobody")
    os.chown(d, 65534, 65534)
    agent.put(str(d / "f"), b"x", USER="nobody")
    assert (d / "f").stat().st_uid == 65534
    # A file that the user may write, in a directory that he may not.
    d2 = tmp_path / "d2"
    d2.mkdir()
    (d2 / "f").write_text("longer than that")
    (d2 / "f").chmod(0o666)
    agent.put(str(d2 / "f"), b"y", USER="nobody")
    assert (d2 / "f").read_bytes() == b"y"


def test_write_follows_links(agent, tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    agent.put(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
    (tmp_path / "dangling").symlink_to("made")
    agent.put(str(tmp_path / "dangling"), b"x")
    assert (tmp_path / "made").read_bytes() == b"x"


def test_write_to_what_is_no_file(agent, tmp_path):
    agent.put("/dev/null", b"x" * 200000)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with refused(errno.EISDIR):
        agent.put(str(tmp_path), b"x")
    with refused(errno.ENOENT):
        agent.put(str(tmp_path / "none/f"), b"x")
    with refused(errno.ENOTDIR):
        agent.put("/etc/passwd/x", b"x")
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK)
    data = pattern(1_000_000)
    got = bytearray()

    def drain():
        while len(got) < len(data):
            try:
                got.extend(os.read(fd, 65536))
            except BlockingIOError:
                time.sleep(0.001)

    t = threading.Thread(target=drain)
    t.start()
    agent.put(str(tmp_path / "fifo"), data)
    t.join()
    os.close(fd)
    assert bytes(got) == data
    value = open("/proc/sys/kernel/printk_ratelimit").read()
    agent.put("/proc/sys/kernel/printk_ratelimit", value.encode())


def test_write_is_atomic(agent, tmp_path):
    p = tmp_path / "f"
    p.write_text("old")
    c = agent.stream(S_WRITE, PATH=str(p))
    c.send(DATA, b"x" * 65536)
    until(lambda: len(os.listdir(tmp_path)) == 2)
    assert p.read_text() == "old"
    c.close()
    until(lambda: os.listdir(tmp_path) == ["f"])
    assert p.read_text() == "old"
    # The host failed halfway.
    c = agent.stream(S_WRITE, PATH=str(p))
    c.send(DATA, b"x")
    c.send(END, body(ERRNO=5, MESSAGE="no"))
    t, _, _, data = c.recv()
    assert t == END and parse(data)["ERRNO"] == errno.ECANCELED
    # Fewer bytes than announced.
    with refused(errno.EBADMSG):
        agent.put(str(p), b"123", SIZE=4)
    assert os.listdir(tmp_path) == ["f"] and p.read_text() == "old"


def test_write_no_space(agent, tmp_path):
    with refused(errno.ENOSPC):
        agent.put("/dev/full", b"x" * 3000000)
    with refused(errno.EFBIG):
        agent.put(str(tmp_path / "f"), b"", SIZE=(1 << 63) - 1)
    assert os.listdir(tmp_path) == []


# TCP

def serve(family, address):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, 0))
    s.listen()
    s.settimeout(10)
    return s, s.getsockname()[1]


@pytest.mark.parametrize("family, address", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_tcp_half_close_both_ways(agent, family, address):
    try:
        s, port = serve(family, address)
    except OSError as e:
        pytest.skip(f"{address}: {e}")
    c = agent.stream(S_TCP, PORT=port)
    peer, _ = s.accept()
    data = pattern(5_000_000)
    t = threading.Thread(target=lambda: (c.sock.sendall(data), c.sock.shutdown(socket.SHUT_WR)))
    t.start()
    got = bytearray()
    while piece := peer.recv(1 << 16):
        got += piece
    t.join()
    assert bytes(got) == data
    # The host has ended its direction, the server still answers.
    t = threading.Thread(target=lambda: (peer.sendall(data[::-1]), peer.close()))
    t.start()
    assert c.read_all() == data[::-1]
    t.join()
    s.close()


def test_tcp_server_closes_first(agent):
    s, port = serve(socket.AF_INET, "127.0.0.1")
    c = agent.stream(S_TCP, PORT=port)
    peer, _ = s.accept()
    peer.sendall(b"bye")
    peer.shutdown(socket.SHUT_WR)
    assert c.read_all() == b"bye"
    c.sock.sendall(b"still heard")
    c.sock.shutdown(socket.SHUT_WR)
    assert peer.recv(100) == b"still heard" and peer.recv(100) == b""


def test_tcp_client_goes_away(agent):
    s, port = serve(socket.AF_INET, "127.0.0.1")
    fds = agent.fds()
    c = agent.stream(S_TCP, PORT=port)
    peer, _ = s.accept()
    c.sock.sendall(b"last words")
    c.close()
    assert peer.recv(100) == b"last words" and peer.recv(100) == b""
    until(lambda: agent.fds() <= fds)


def test_tcp_refused(agent):
    s, port = serve(socket.AF_INET, "127.0.0.1")
    s.close()
    with refused(errno.ECONNREFUSED, f"port {port}"):
        agent.stream(S_TCP, PORT=port)
    with refused(errno.EINVAL, "port 70000"):
        agent.stream(S_TCP, PORT=70000)


# What a broken or hostile host could send

@pytest.mark.parametrize("type, data, number", [
    (9999, b"", errno.EOPNOTSUPP),
    (OK, b"", errno.EOPNOTSUPP),
    (S_READ, body(PATH="/etc/passwd"), errno.EOPNOTSUPP),
    (PING, tlv(999, b""), errno.EINVAL),
    (PING, body(PID=1), errno.EINVAL),
    (PING, b"abc", errno.EBADMSG),
    (PING, struct.pack("<HHI", 1, 1, 0), errno.EBADMSG),
    (STAT, struct.pack("<HHI", 22, 0, 1 << 31), errno.EBADMSG),
    (STAT, struct.pack("<HHI", 22, 0, 0xffffffff), errno.EBADMSG),
    (STAT, tlv(22, b"/a\0b"), errno.EINVAL),
    (STAT, body(PATH="relative"), errno.EINVAL),
    (STAT, body(PATH="/" + "x" * 5000), errno.EINVAL),
    (STAT, body(PATH=["/a", "/b"]), errno.EINVAL),
    (STAT, body(PATH="/a", FOLLOW=2), errno.EINVAL),
    (SIGNAL, tlv(18, b"12345678") + body(SIGNAL=1), errno.EINVAL),
    (ADD_ENTROPY, body(ENTROPY=b"x" * 257), errno.EINVAL),
    (EXEC, body(ARGV="true", ENV="=x"), errno.EINVAL),
])
def test_malformed_requests(agent, type, data, number):
    agent.control.send(type, data, 4711)
    t, flags, id, answer = agent.control.recv()
    answer = parse(answer)
    if number == errno.EINVAL and answer["ERRNO"] == errno.EBADMSG:
        number = errno.EBADMSG
    assert (t, flags, id, answer["ERRNO"]) == (ERROR, 0, 4711, number) and answer["MESSAGE"]


def test_unknown_flags(agent):
    agent.control.send(PING, b"", 5, flags=MORE)
    t, _, id, answer = agent.control.recv()
    assert (t, id, parse(answer)["ERRNO"]) == (ERROR, 5, errno.EINVAL)


def test_oversize_frame_ends_the_control_stream_only(fresh):
    a = fresh()
    pid = a.exec("cat")
    a.control.sock.sendall(struct.pack("<IHHI", 256 * 1024 + 1, PING, 0, 1))
    with pytest.raises((EOFError, ConnectionResetError)):
        a.control.recv()
    a.accept()
    a.alive()
    a.attach(pid, STDIN).close()
    assert a.code(pid) == 0


def test_truncated_frame(fresh):
    a = fresh()
    a.control.sock.sendall(struct.pack("<IHHI", 100, PING, 0, 1) + b"x" * 50)
    a.control.close()
    a.accept()
    a.alive()


def test_frame_in_single_bytes(agent):
    for b in struct.pack("<IHHI", 0, PING, 0, 77):
        agent.control.sock.sendall(bytes([b]))
        time.sleep(0.002)
    assert agent.control.recv()[:3] == (OK, 0, 77)


def test_streams_with_broken_first_frames(agent):
    fds = agent.fds()
    for data in (b"", b"x", struct.pack("<IHHI", 1 << 30, S_READ, 0, 1), struct.pack("<IHHI", 8, S_READ, 0, 1) + b"abc",
                 os.urandom(500)):
        c = agent.open()
        c.sock.sendall(data)
        c.sock.shutdown(socket.SHUT_WR)
        try:
            c.read_all()
        except ConnectionResetError:
            pass
        c.close()
    for type in PING, EXEC, 12345, DATA:
        with pytest.raises(AgentError):
            agent.stream(type)
    until(lambda: agent.fds() <= fds)


def test_broken_frames_inside_a_write(agent, tmp_path):
    for data in (struct.pack("<IHHI", 65537, DATA, 0, 0), struct.pack("<IHHI", 0, OK, 0, 0),
                 struct.pack("<IHHI", 3, END, 0, 0) + b"abc"):
        c = agent.stream(S_WRITE, PATH=str(tmp_path / "f"))
        c.sock.sendall(data)
        try:
            c.read_all()
        except ConnectionResetError:
            pass
        c.close()
    until(lambda: os.listdir(tmp_path) == [])


def test_random_frames(agent):
    r = random.Random(1)
    for i in range(2000):
        type = r.choice([33, 34, 35, 36, 37, 38, 40, 41, 45, r.randrange(70000) & 0xffff])
        data = b"".join(tlv(r.randrange(40), r.randbytes(r.choice([0, 4, 8, r.randrange(40)])))
                        for _ in range(r.randrange(4)))
        if r.random() < 0.2:
            data = data[:r.randrange(len(data) + 1)]
        if type in (42, 44, 32):
            continue
        agent.control.send(type, data, i)
        while True:
            t, flags, id, _ = agent.control.recv()
            assert id == i
            if not flags & MORE:
                break


def test_many_streams_at_once(agent):
    fds = agent.fds()
    pids = [agent.exec("sh", "-c", f"echo {i}; cat") for i in range(100)]
    ends = [(agent.attach(p, STDIN), agent.attach(p, STDOUT), agent.stream(S_WAIT, PID=p)) for p in pids]
    for i, (up, down, wait) in enumerate(ends):
        up.sock.sendall(b"x")
        up.sock.shutdown(socket.SHUT_WR)
        assert down.read_all() == b"%d\nx" % i
        assert wait.recv()[0] == EXITED
        for c in up, down, wait:
            c.close()
    for p in pids:
        agent.output(p, STDERR)
    until(lambda: agent.fds() <= fds)
