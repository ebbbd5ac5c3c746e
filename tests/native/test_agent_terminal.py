# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Programs on a terminal."""

import errno
import signal
import socket
import time

import pytest

from agentlib import PTY, RESIZE, SIGNAL, STDOUT, read_until, refused


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
    c.sock.sendall(b"sh -c 'echo run\"\"ning; exec sleep 100'\n")
    read_until(c, b"running")
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
