# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Programs: how they start, what surrounds them, how they end."""

import errno
import struct
import time

import pytest

from agentlib import (EXEC, EXITED, LIST_PROCESSES, POWEROFF, PTY, SIGNAL, STDIN, STDOUT, S_WAIT, parse, refused,
                      sanitized, until)


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
    # As container images name them: that group, and none of the user's own.
    _, out, _ = agent.run("id", USER="nobody:daemon")
    assert b"uid=65534(nobody) gid=1(daemon) groups=1(daemon)\n" == out
    assert agent.run("sh", "-c", "id -u; id -G", USER="54321:777")[1] == b"54321\n777\n"
    assert agent.run("id", "-un", USER="nobody:")[1] == b"nobody\n"
    with refused(errno.ENOENT, "user nobody:nosuchgroup"):
        agent.exec("id", USER="nobody:nosuchgroup")
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
    assert time.monotonic() - start > 0.25


def test_timeout_kills_who_ignores_it(agent):
    start = time.monotonic()
    pid = agent.exec("sh", "-c", "trap '' TERM; sleep 100; sleep 100", TIMEOUT_USEC=2000000)
    assert agent.wait(pid) == {"EXIT_SIGNAL": 9, "TIMED_OUT": 1}
    assert time.monotonic() - start > 2
    assert agent.output(pid) == b""


def test_timeout_reaches_the_rest_of_the_group(agent):
    pid = agent.exec("sh", "-c", "(trap '' TERM; sleep 100; sleep 100) & sleep 100", TIMEOUT_USEC=2000000)
    assert agent.wait(pid) == {"EXIT_SIGNAL": 15, "TIMED_OUT": 1}
    assert agent.output(pid) == b"", "which holds stdout open until it is killed"


def test_timeout_not_reached(agent):
    assert agent.wait(agent.exec("true", TIMEOUT_USEC=60000000)) == {"EXIT_CODE": 0, "TIMED_OUT": 0}


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
    assert a.process.wait(60) == 0


def test_orphans_are_reaped(agent):
    before = len(agent.children())
    _, out, _ = agent.run("sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.2 >/dev/null 2>&1 </dev/null &) ; done; echo done")
    assert out == b"done\n"
    until(lambda: len(agent.children()) == before)
