# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Standard streams: much data both ways, and either end going away."""

import hashlib
import signal
import socket
import struct
import threading
import time

from agentlib import OK, STDERR, STDIN, STDOUT, S_PROCESS, body, pattern, sanitized, settled


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
    before = settled(a.rss)
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
    pid = agent.exec("sh", "-c", "read x; for i in $(seq 600); do echo $i; sleep 0.1; done; echo no >&2")
    c = agent.attach(pid, STDOUT)
    c.close()
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
