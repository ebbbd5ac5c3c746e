# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. What a broken or hostile host could send."""

import errno
import os
import random
import socket
import struct
import time

import pytest

from agentlib import (ADD_ENTROPY, DATA, END, ERROR, EXEC, EXITED, MORE, OK, PING, SIGNAL, STAT, STDERR, STDIN,
                      STDOUT, S_READ, S_WAIT, S_WRITE, AgentError, body, parse, tlv, until)


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
