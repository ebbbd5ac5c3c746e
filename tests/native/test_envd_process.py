# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Its envd: programs and terminals."""

import base64
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import socket
import struct
import termios
import threading
import time
from select import select as select_fds

import pytest

from agentlib import BUILD, CLAIM, POWEROFF, SIGNAL, AgentError, pattern, sanitized, until
from envdlib import Envd, StreamError

OK = {"exitCode": 0, "exited": True, "status": "exit status 0"}


@pytest.fixture(scope="module")
def envd(shared):
    return Envd(shared, "secret", USER="root", ENV=["A=sandbox", "B=sandbox"])


def b64(data):
    return base64.b64encode(data).decode()


def select(pid):
    return {"process": {"pid": pid}}


def pid_of(stream):
    return stream.event()["start"]["pid"]


def send(envd, pid, data, which="stdin"):
    return envd.call("process.Process/SendInput", {**select(pid), "input": {which: b64(data)}})


def kill(envd, pid, name="SIGNAL_SIGKILL"):
    return envd.call("process.Process/SendSignal", {**select(pid), "signal": name})


class ends_with:
    """A with block in which a stream ends in this error."""

    def __init__(self, code, message):
        self.code, self.message = code, message

    def __enter__(self):
        return self

    def __exit__(self, kind, e, _):
        assert kind is StreamError, f"no error: {e!r}"
        assert (e.code, e.message) == (self.code, self.message)
        return True


def test_output_and_end_of_a_program(envd):
    assert envd.run("/bin/sh", "-c", "echo out; echo err >&2") == (OK, {"stdout": b"out\n", "stderr": b"err\n", "pty": b""})
    end, _ = envd.run("/bin/sh", "-c", "exit 3")
    assert end == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    end, _ = envd.run("/bin/sh", "-c", "kill -SEGV $$")
    assert end == {"exitCode": -1, "exited": False, "status": "signal: segmentation fault",
                   "error": "signal: segmentation fault"}


def test_output_comes_while_it_runs(envd):
    with envd.start("/bin/sh", "-c", "echo first; read x; echo $x", stdin=True) as s:
        pid = pid_of(s)
        assert s.until("stdout", b"first\n")
        assert send(envd, pid, b"second\n") == (200, {})
        assert s.to_end() == (OK, {"stdout": b"second\n", "stderr": b"", "pty": b""})


def test_the_pid_is_that_of_the_sandbox(envd):
    with envd.start("/bin/sh", "-c", "echo $$") as s:
        pid = pid_of(s)
        assert s.to_end()[1]["stdout"] == b"%d\n" % pid


def test_any_bytes_and_many_of_them(envd):
    data = pattern(3_000_000)
    path = os.path.join(envd.agent.directory, "data")
    pathlib.Path(path).write_bytes(data)
    assert envd.run("cat", path)[1]["stdout"] == data


def test_variables(envd):
    _, out = envd.run("/usr/bin/env", envs={"B": "request", "Ä": "ö=ü"})
    variables = dict(line.split("=", 1) for line in out["stdout"].decode().splitlines())
    assert variables["A"] == "sandbox" and variables["B"] == "request" and variables["Ä"] == "ö=ü"
    assert variables["E2B_SANDBOX"] == "true" and variables["HOME"] == "/root" and variables["USER"] == "root"
    assert variables["LOGNAME"] == "root" and "/usr/bin" in variables["PATH"]


def test_directories(envd):
    assert envd.run("pwd", cwd="/tmp")[1]["stdout"] == b"/tmp\n"
    assert envd.run("pwd")[1]["stdout"] == b"/root\n"
    assert envd.run("pwd", cwd="~")[1]["stdout"] == b"/root\n"
    assert envd.run("pwd", cwd="../tmp/./")[1]["stdout"] == b"/tmp\n"
    with ends_with("invalid_argument", "cwd '/root/nowhere' does not exist"):
        envd.run("pwd", cwd="nowhere")
    with ends_with("invalid_argument", "cannot expand user-specific home dir"):
        envd.run("pwd", cwd="~daemon")
    with envd.start("pwd", cwd="/etc/passwd") as s:
        with pytest.raises(StreamError, match="invalid_argument: error starting process 'pwd': .*Not a directory"):
            s.event()


def test_users(envd):
    assert envd.run("id", "-un", user="daemon")[1]["stdout"] == b"daemon\n"
    with ends_with("unauthenticated", "invalid username: 'nobody-here'"):
        envd.run("id", user="nobody-here")


def test_a_default_user_directory_and_no_token(fresh):
    envd = Envd(fresh(), USER="daemon", CWD="/tmp")
    assert envd.run("/bin/sh", "-c", "id -un; pwd")[1]["stdout"] == b"daemon\n/tmp\n"
    envd.configure(USER="nobody-here")
    with ends_with("unauthenticated", "invalid default user: 'nobody-here'"):
        envd.run("id")


def test_a_default_user_that_need_not_be_there(fresh):
    envd = Envd(fresh(), USER="nobody-here", USER_OPTIONAL=1)
    assert envd.run("id", "-un")[1]["stdout"] == b"root\n"
    envd.configure(USER="daemon", USER_OPTIONAL=1)
    assert envd.run("id", "-un")[1]["stdout"] == b"daemon\n"


def test_variables_that_are_kept(fresh):
    def variables():
        return envd.json("GET", "/envs")[1]
    envd = Envd(fresh(), ENV=["A=1", "B=2"])
    envd.configure(ENV=["B=3", "C=4"], KEEP_ENV=1)
    assert variables() == {"E2B_SANDBOX": "true", "A": "1", "B": "3", "C": "4"}
    envd.configure("token", KEEP_ENV=1)
    assert variables() == {"E2B_SANDBOX": "true", "A": "1", "B": "3", "C": "4"}
    envd.configure(ENV=["B=5"])
    assert variables() == {"E2B_SANDBOX": "true", "B": "5"}


def test_who_it_is_is_left_for_programs_that_look_for_it(fresh):
    agent = fresh()
    envd = Envd(agent, ENV=["E2B_SANDBOX_ID=one", "E2B_TEMPLATE_ID=base", "E2B_SANDBOX_IDENTITY=other"])
    assert agent.machine_log()[-1] == "e2b one base"
    envd.configure(ENV=["E2B_SANDBOX_ID=two"], KEEP_ENV=1)
    assert agent.machine_log()[-1] == "e2b two base"


def test_too_many_variables_change_nothing(fresh):
    envd = Envd(fresh(), "secret", ENV=["A=1"])
    with pytest.raises(AgentError, match="variables of envd: they are too many") as e:
        envd.configure("secret", ENV=[f"V{i}=" for i in range(4097)])
    assert e.value.errno == errno.E2BIG
    assert envd.json("GET", "/envs")[1] == {"E2B_SANDBOX": "true", "A": "1"}


def test_a_program_that_is_not_there_is_one_that_fails(envd):
    end, out = envd.run("no-such-program")
    assert end["exitCode"] == 127 and end["exited"] and b"no-such-program" in out["stderr"]
    end, out = envd.run("/etc/passwd")
    assert end["exitCode"] == 126 and b"ermission denied" in out["stderr"]


@pytest.mark.skipif(sanitized(), reason="a sanitizer has to be the first that is loaded")
@pytest.mark.parametrize("pty", [None, (80, 24)])
def test_a_program_whose_output_can_not_be_followed_is_ended(fresh, tmp_path, pty):
    full = tmp_path / "full"
    (tmp_path / "agents-input").write_text("not of the program\n")
    with open(tmp_path / "agents-input") as stdin:
        agent = fresh(stdin=stdin, env={"LD_PRELOAD": str(BUILD / "tests/native/failing-epoll.so"), "FAILING_EPOLL": str(full)})
    envd = Envd(agent)
    with envd.start("sleep", "1000") as other:
        pid = other.event()["start"]["pid"]
        full.touch()
        end, out = envd.run("/bin/sh", "-c", "echo out; sleep 1000", pty=pty)
        assert end["status"] == "signal: killed" and not any(out.values()), (end, out)
        full.unlink()
        assert envd.run("echo", "out", pty=pty)[0] == OK
        assert [p["pid"] for p in envd.call("process.Process/List", {})[1]["processes"]] == [pid]


def test_standard_input(envd):
    _, out = envd.run("readlink", "/proc/self/fd/0", stdin=False)
    assert out["stdout"] == b"/dev/null\n"
    with envd.start("cat", stdin=True) as s:
        pid = pid_of(s)
        for data in (b"", b"a\n", "ä$'\"\\\n".encode(), b"\0\xff"):
            assert send(envd, pid, data) == (200, {})
        for _ in range(2):
            assert envd.call("process.Process/CloseStdin", select(pid))[0] in (200, 404)
        assert s.to_end() == (OK, {"stdout": b"a\n" + "ä$'\"\\\n".encode() + b"\0\xff", "stderr": b"", "pty": b""})
    with envd.start("sleep", "1000", stdin=False) as s:
        pid = pid_of(s)
        assert send(envd, pid, b"a") == (500, {
            "code": "internal", "message": "error writing to stdin: stdin not enabled or closed"})
        assert "tty not assigned to process" in send(envd, pid, b"a", "pty")[1]["message"]
        kill(envd, pid)
        s.to_end()


def test_input_that_the_program_does_not_take_yet_waits(envd):
    data = pattern(1_000_000)
    with envd.start("/bin/sh", "-c", "read x; cat | sha256sum; cat", stdin=True) as s:
        pid = pid_of(s)
        c = envd.connect()
        c.request("POST", "/process.Process/SendInput", json.dumps({**select(pid), "input": {"stdin": b64(b"\n" + data)}}),
                  {**envd.headers(), "Content-Type": "application/json"})
        assert c.getresponse().status == 200
        c.close()
        envd.call("process.Process/CloseStdin", select(pid))

        assert s.to_end()[1]["stdout"].startswith(hashlib.sha256(data).hexdigest().encode())


def envelope(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", 0, len(data)) + data


class InputStream:
    """StreamInput, in parts of a test's choosing."""

    def __init__(self, envd, **headers):
        self.conn = envd.connect()
        self.conn.putrequest("POST", "/process.Process/StreamInput")
        for name, value in {**envd.headers(), "Content-Type": "application/connect+json", "Transfer-Encoding": "chunked",
                            **headers}.items():
            self.conn.putheader(name, value)
        self.conn.endheaders()

    def put(self, data):
        if data:
            self.conn.send(b"%x\r\n%s\r\n" % (len(data), data))

    def start(self, pid):
        self.put(envelope({"start": select(pid)}))

    def data(self, data, kind="stdin"):
        self.put(envelope({"data": {"input": {kind: b64(data)}}}))

    def answer(self, end=True):
        """What came of it: None, or the error."""
        if end:
            self.conn.send(b"0\r\n\r\n")
        response = self.conn.getresponse()
        assert (response.status, response.headers["Content-Type"]) == (200, "application/connect+json")
        data = response.read()
        self.conn.close()
        if data == envelope({}) + b"\2" + envelope({})[1:]:
            return None
        assert data[0] == 2 and len(data) == 5 + int.from_bytes(data[1:5], "big"), data
        return json.loads(data[5:])["error"]


def test_input_as_a_stream(envd):
    data = pattern(1_000_000)
    with envd.start("sha256sum", stdin=True) as s:
        pid = pid_of(s)
        stream = InputStream(envd)
        stream.start(pid)
        stream.data(b"")
        stream.put(envelope({"keepalive": {}}))
        for at in range(0, len(data), 100_000):
            stream.data(data[at:at + 100_000])
        # In pieces, and several in one.
        last = envelope({"data": {"input": {"stdin": b64(b"a")}}})
        for byte in last:
            stream.put(bytes([byte]))
        stream.put(last * 100)
        assert stream.answer() is None
        envd.call("process.Process/CloseStdin", select(pid))
        assert s.to_end()[1]["stdout"].startswith(hashlib.sha256(data + b"a" * 101).hexdigest().encode())
    with envd.start("/bin/sh", "-c", "read x; echo got $x", pty=(80, 24)) as s:
        stream = InputStream(envd)
        stream.start(pid_of(s))
        stream.data(b"word\n", "pty")
        assert stream.answer() is None
        assert b"got word" in s.to_end()[1]["pty"]


def test_a_stream_of_input_waits_for_the_program(envd, tmp_path):
    """More than is ever kept for one: what it does not read waits at the client."""
    data = pattern(1_000_000)
    with envd.start("/bin/sh", "-c", f"read x < {fifo(envd, 'go')}; sha256sum", stdin=True) as s:
        pid = pid_of(s)
        stream = InputStream(envd)
        stream.start(pid)
        sender = threading.Thread(target=lambda: [stream.data(data) for _ in range(40)])
        sender.start()
        # Nobody else is kept waiting.
        assert envd.run("echo", "out")[0] == OK
        pathlib.Path(fifo(envd, "go")).write_text("\n")
        sender.join()
        assert stream.answer() is None
        envd.call("process.Process/CloseStdin", select(pid))
        assert s.to_end()[1]["stdout"].startswith(hashlib.sha256(data * 40).hexdigest().encode())


def test_a_stream_of_input_that_is_none(envd):
    with envd.start("cat", stdin=True) as s:
        pid = pid_of(s)
        for code, message, parts in (
                ("not_found", "process with pid 999999 not found", [envelope({"start": select(999999)})]),
                ("invalid_argument", "no message of this method", [envelope({"data": {"input": {"stdin": ""}}})]),
                ("invalid_argument", "no message of this method", [envelope({"other": {}})]),
                ("invalid_argument", "no message of this method", [envelope({"start": select(pid)}), envelope({"data": {}})]),
                ("invalid_argument", "no stream of messages", [envelope(b"{")]),
                ("invalid_argument", "no stream of messages", [b"\1" + envelope({})[1:]]),
                ("invalid_argument", "no stream of messages", [envelope({"start": select(pid)})[:-1]]),
                ("resource_exhausted", "too large", [struct.pack(">BI", 0, 1 << 30)]),
                ("internal", "tty not assigned", [envelope({"start": select(pid)}), envelope({"data": {"input": {"pty": ""}}})])):
            stream = InputStream(envd)
            for part in parts:
                stream.put(part)
            error = stream.answer()
            assert (error["code"], message in error["message"]) == (code, True), error
        stream = InputStream(envd, **{"Connect-Timeout-Ms": "300"})
        stream.start(pid)
        assert stream.answer(end=False)["code"] == "deadline_exceeded"
        stream = InputStream(envd)
        stream.start(pid)
        stream.data(b"out")
        s.until("stdout", b"out")
        kill(envd, pid)
        s.to_end()
        stream.data(b"late")
        assert stream.answer()["code"] == "not_found"


def test_a_stream_of_input_whose_program_ends_while_it_waits(envd):
    with envd.start("sleep", "1000", stdin=True) as s:
        pid = pid_of(s)
        stream = InputStream(envd)
        stream.start(pid)
        stream.data(pattern(1_000_000))
        assert envd.run("echo", "out")[0] == OK
        kill(envd, pid)
        s.to_end()
        assert stream.answer()["code"] == "internal"


def test_a_background_child_that_holds_the_output(envd):
    """It keeps the command running, until it lets go; a kill does not wait for it."""
    with envd.start("/bin/sh", "-c", "(read x < %s; echo child) & echo parent" % fifo(envd, "hold")) as s:
        pid_of(s)
        s.until("stdout", b"parent\n")
        pathlib.Path(fifo(envd, "hold")).write_text("\n")
        assert s.to_end() == (OK, {"stdout": b"child\n", "stderr": b"", "pty": b""})
    with envd.start("/bin/sh", "-c", "sleep 1000 & echo $!; wait") as s:
        pid = pid_of(s)
        child = int(s.until("stdout", b"\n"))
        assert kill(envd, pid) == (200, {})
        assert s.to_end()[0]["status"] == "signal: killed"
    assert envd.run("kill", str(child))[0] == OK


def fifo(envd, name):
    path = os.path.join(envd.agent.directory, name)
    if not os.path.exists(path):
        os.mkfifo(path)
    return path


@pytest.mark.parametrize("name, status", [
    ("SIGNAL_SIGKILL", "signal: killed"), ("SIGNAL_SIGTERM", "signal: terminated"), (9, "signal: killed")])
def test_signals(envd, name, status):
    with envd.start("sleep", "1000") as s:
        pid = pid_of(s)
        assert kill(envd, pid, name) == (200, {})
        assert s.to_end()[0] == {"exitCode": -1, "exited": False, "status": status, "error": status}
        assert kill(envd, pid) == (404, {"code": "not_found", "message": f"process with pid {pid} not found"})


def test_a_kill_is_answered_when_the_program_is_gone(envd):
    """One that takes its time to go: it has much memory to give back."""
    script = "import time; x = bytearray(b'x') * (256 << 20); print('full', flush=True); time.sleep(1000)"
    with envd.start("/usr/bin/python3", "-c", script) as s:
        pid = pid_of(s)
        s.event()
        assert kill(envd, pid) == (200, {})
        assert envd.call("process.Process/List", {}) == (200, {"processes": []})
        assert kill(envd, pid)[0] == 404
        s.to_end()


def test_other_signals_and_processes_that_are_not_envds(envd):
    with envd.start("sleep", "1000") as s:
        pid = pid_of(s)
        assert kill(envd, pid, "SIGNAL_SIGHUP") == (501, {"code": "unimplemented", "message": "invalid signal: SIGNAL_SIGHUP"})
        assert kill(envd, 1)[0] == 404
        other = envd.agent.exec("sleep", "1000")
        assert kill(envd, other)[0] == 404
        envd.agent.call(SIGNAL, PID=other, SIGNAL=9)
        kill(envd, pid)
        s.to_end()


def test_list_has_what_runs_and_was_started_here(envd):
    with envd.start("sleep", "1000", tag="sleeper", envs={"X": "y"}, cwd="/tmp") as s:
        pid = pid_of(s)
        wanted = {"config": {"cmd": "sleep", "args": ["1000"], "envs": {"X": "y"}, "cwd": "/tmp"}, "pid": pid,
                  "tag": "sleeper"}
        assert envd.call("process.Process/List", {}) == (200, {"processes": [wanted]})
        status, _ = envd.call("process.Process/SendSignal", {"process": {"tag": "sleeper"}, "signal": "SIGNAL_SIGKILL"})
        assert status == 200
        s.to_end()
        assert envd.call("process.Process/List", {}) == (200, {"processes": []})


def test_more_listeners_each_hear_all_and_late_ones_the_end(envd):
    with envd.start("cat", stdin=True) as s:
        pid = pid_of(s)
        with envd.stream("process.Process/Connect", select(pid)) as second:
            assert pid_of(second) == pid
            send(envd, pid, b"hello\n")
            assert s.until("stdout", b"hello\n") == second.until("stdout", b"hello\n")
            envd.call("process.Process/CloseStdin", select(pid))
            assert s.to_end() == second.to_end() == (OK, {"stdout": b"", "stderr": b"", "pty": b""})
    with envd.stream("process.Process/Connect", select(pid)) as late:
        assert pid_of(late) == pid
        assert late.to_end() == (OK, {"stdout": b"", "stderr": b"", "pty": b""})
    for selector, text in (({"pid": 999999}, "pid 999999"), ({"tag": "none"}, "tag none")):
        with ends_with("not_found", f"process with {text} not found"):
            envd.stream("process.Process/Connect", {"process": selector}).event()


def test_a_client_that_goes_away_leaves_the_program_running(envd):
    before = envd.agent.fds()
    with envd.start("/bin/sh", "-c", "while read x; do seq 10000; echo $x; done", stdin=True) as s:
        pid = pid_of(s)
    until(lambda: envd.agent.fds() < before + 8)
    # With nobody there its output is thrown away, and does not stop it.
    for _ in range(10):
        assert send(envd, pid, b"unheard\n") == (200, {})
    with envd.stream("process.Process/Connect", select(pid)) as s:
        assert pid_of(s) == pid
        send(envd, pid, b"heard\n")
        s.until("stdout", b"\nheard\n")
        assert kill(envd, pid) == (200, {})
        s.to_end()
    until(lambda: envd.agent.fds() <= before + 1)


def test_input_that_nobody_reads_has_a_bound(envd):
    with envd.start("sleep", "1000") as s:
        pid = pid_of(s)
        body = json.dumps({**select(pid), "input": {"stdin": b64(b"x" * 2_900_000)}})
        clients = [envd.connect() for _ in range(6)]
        for c in clients:
            c.request("POST", "/process.Process/SendInput", body, {**envd.headers(), "Content-Type": "application/json"})
        # One of them is beyond it; the others wait.
        answered, = select_fds([c.sock for c in clients], [], [], 60)[0]
        r = next(c for c in clients if c.sock is answered).getresponse()
        assert (r.status, json.loads(r.read())["code"]) == (429, "resource_exhausted")
        for c in clients:
            c.close()
        assert kill(envd, pid) == (200, {})
        assert s.to_end()[0]["status"] == "signal: killed"


class SlowReader:
    """A listener to a program that buffers next to nothing, so that what it does not read stays with the agent."""

    def __init__(self, envd, *argv):
        self.agent = envd.agent
        before = set(self.agent.children())
        message = json.dumps({"process": {"cmd": argv[0], "args": list(argv[1:])}}).encode()
        self.s = socket.socket()
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # The agent's socket is sized by what it may send in one go.
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self.s.settimeout(60)
        self.s.connect(("127.0.0.1", envd.port))
        self.s.sendall(b"POST /process.Process/Start HTTP/1.1\r\nX-Access-Token: secret\r\nContent-Type: application/connect+json\r\n"
                       b"Content-Length: %d\r\n\r\n" % (5 + len(message)) + struct.pack(">BI", 0, len(message)) + message)
        self.data = b""
        while b'"pid":' not in self.data:
            self.read()
        self.pid = int(self.data.split(b'"pid":')[1].split(b"}")[0])
        # Its number on this side of the agent's namespace.
        self.outer, = set(self.agent.children()) - before

    def read(self):
        data = self.s.recv(32768)
        assert data, "cut off"
        self.data += data

    def pending(self):
        """Bytes of the program's output that the agent has not read."""
        fd = os.open(f"/proc/{self.outer}/fd/1", os.O_RDONLY | os.O_NONBLOCK)
        try:
            return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"1234"))[0]
        finally:
            os.close(fd)

    def stays_pending(self):
        """Though the agent does other things meanwhile."""
        for _ in range(20):
            if self.pending() == 0:
                return False
            self.agent.alive()
            time.sleep(0.01)
        return True


def test_a_program_that_ends_while_its_listener_is_behind(envd):
    r = SlowReader(envd, "cat")
    while not r.stays_pending():
        assert send(envd, r.pid, b"x" * 16384) == (200, {})
    # It takes some, not all: then the agent goes on reading without having sent all that it held.
    while r.stays_pending():
        r.read()
        assert send(envd, r.pid, b"x") == (200, {})
    behind = len(r.data) + 100_000
    while len(r.data) < behind:
        r.read()
    assert envd.call("process.Process/CloseStdin", select(r.pid)) == (200, {})
    while b'"exit status 0"' not in r.data:
        r.read()
    r.s.close()
    envd.agent.alive()


def test_a_listener_that_does_not_read_holds_the_program_up(envd):
    with envd.start("/bin/sh", "-c", "yes | head -c 50000000; echo end >&2") as s:
        pid_of(s)
        envd.agent.alive()
        if not sanitized():
            assert envd.agent.rss() < 60_000
        assert len(s.to_end()[1]["stdout"]) == 50_000_000


def test_time_out(envd):
    with envd.start("/bin/sh", "-c", "trap '' TERM; echo x; read y < %s" % fifo(envd, "never"),
                    headers={"Connect-Timeout-Ms": "2000"}) as s:
        pid = pid_of(s)
        with ends_with("deadline_exceeded", "context deadline exceeded"):
            s.to_end()
    with envd.stream("process.Process/Connect", select(pid)) as s:
        pid_of(s)
        assert s.to_end()[0]["status"] == "signal: killed"
    with ends_with("invalid_argument", "invalid Connect-Timeout-Ms"):
        envd.run("true", headers={"Connect-Timeout-Ms": "soon"})


def test_the_time_out_of_a_listener_is_not_the_programs(envd):
    with envd.start("sleep", "1000") as s:
        pid = pid_of(s)
        with envd.stream("process.Process/Connect", select(pid), **{"Connect-Timeout-Ms": "100"}) as second:
            pid_of(second)
            with ends_with("deadline_exceeded", "context deadline exceeded"):
                second.event()
        assert kill(envd, pid) == (200, {})
        assert s.to_end()[0]["status"] == "signal: killed"


def test_keepalive(envd):
    with envd.start("sleep", "1000", headers={"Keepalive-Ping-Interval": "1"}) as s:
        pid = pid_of(s)
        assert s.event() == {"keepalive": {}}
        assert s.event() == {"keepalive": {}}
        kill(envd, pid)
        s.to_end()


def test_a_terminal(envd):
    with envd.start("/bin/sh", "-i", pty=(80, 24), envs={"PS1": "> "}) as s:
        pid = pid_of(s)
        assert send(envd, pid, b"stty size; tty; echo $TERM\n", "pty") == (200, {})
        out = s.until("pty", b"xterm-256color\r\n")
        assert b"24 80\r\n" in out and b"/dev/pts/" in out
        assert envd.call("process.Process/Update", {**select(pid), "pty": {"size": {"cols": 100, "rows": 30}}}) == (200, {})
        send(envd, pid, b"stty size\n", "pty")
        s.until("pty", b"30 100\r\n")
        assert "tty assigned" in send(envd, pid, b"x")[1]["message"]
        status, answer = envd.call("process.Process/CloseStdin", select(pid))
        assert status == 500 and answer["code"] == "unknown" and "Ctrl+D" in answer["message"]
        send(envd, pid, b"exit\n", "pty")
        assert s.to_end()[0] == OK


def test_a_terminal_outlives_its_client(envd):
    with envd.start("/bin/sh", pty=(80, 24)) as s:
        pid = pid_of(s)
    with envd.stream("process.Process/Connect", select(pid)) as s:
        assert pid_of(s) == pid
        send(envd, pid, b"echo a''b\n", "pty")
        s.until("pty", b"ab\r\n")
        assert kill(envd, pid) == (200, {})
        assert s.to_end()[0]["status"] == "signal: killed"


def test_update_without_a_terminal(envd):
    with envd.start("sleep", "1000") as s:
        pid = pid_of(s)
        assert envd.call("process.Process/Update", {**select(pid), "pty": {"size": {"cols": 1, "rows": 1}}}) == (
            500, {"code": "internal", "message": "error resizing tty: tty not assigned to process"})
        kill(envd, pid)
        s.to_end()


def test_a_claim_ends_the_streams_and_not_the_programs(fresh):
    agent = fresh()
    envd = Envd(agent)
    with envd.start("/bin/sh", "-c", "while read x; do echo $x; done", stdin=True) as s:
        pid = pid_of(s)
        agent.call(CLAIM)
        with pytest.raises((ConnectionError, AssertionError)):
            s.event()
    with envd.stream("process.Process/Connect", select(pid)) as s:
        assert pid_of(s) == pid
        send(envd, pid, b"still here\n")
        s.until("stdout", b"still here\n")


BAD = [
    b"", b"\0", b"\0\0\0\0\2{", b"\0\0\0\0\2{}{}", b"\1\0\0\0\2{}", b"\2\0\0\0\2{}", b"\0\xff\xff\xff\xff{}",
    *(struct.pack(">BI", 0, len(m)) + m for m in (
        b"[]", b"{", b"{}", b'{"process":1}', b'{"process":{}}', b'{"process":{"cmd":""}}', b'{"process":{"cmd":["a"]}}',
        b'{"process":{"cmd":"a\\u0000b"}}', b'{"process":{"cmd":"true","args":[1]}}', b'{"process":{"cmd":"true","args":["\\u0000"]}}',
        b'{"process":{"cmd":"true","envs":{"A":1}}}', b'{"process":{"cmd":"true","envs":{"A=":"x"}}}',
        b'{"process":{"cmd":"true","envs":{"":"x"}}}', b'{"process":{"cmd":"true"},"pty":{"size":{"cols":-1}}}',
        b'{"process":{"cmd":"true"},"pty":{"size":{"cols":70000,"rows":1}}}', b'{"process":{"cmd":"true"},"stdin":1}'))]


@pytest.mark.parametrize("body", BAD)
def test_what_is_no_message(envd, body):
    status, headers, data = envd.request("POST", "/process.Process/Start", body,
                                         headers={"Content-Type": "application/connect+json"})
    assert status == 200 and data[0] == 2
    assert json.loads(data[5:])["error"]["code"] == "invalid_argument"


def test_other_types_and_encodings(envd):
    def post(**headers):
        return envd.request("POST", "/process.Process/List", b"{}", headers={k.replace("_", "-"): v for k, v in headers.items()})
    assert post(Content_Type="application/json; charset=utf-8")[0] == 200
    assert post(Content_Type="application/json", Content_Encoding="identity")[0] == 200
    status, headers, _ = post(Content_Type="application/proto")
    assert status == 415 and headers["Accept-Post"] == "application/json"
    assert post(Content_Type="application/json", Content_Encoding="gzip")[0] == 415
    assert envd.request("GET", "/process.Process/List")[0] == 405
    assert envd.request("POST", "/process.Process/Nothing", b"{}")[0] == 404


def test_a_body_beyond_the_limit(envd):
    status, answer = envd.call("process.Process/SendInput", {**select(1), "input": {"stdin": "A" * (4 << 20)}})
    assert status == 413 and answer["code"] == 413


def test_many_at_once_and_nothing_is_left(fresh):
    envd = Envd(fresh())
    before = envd.agent.fds()
    streams = [envd.start("/bin/sh", "-c", f"echo {i}; read x", stdin=True) for i in range(50)]
    for i, s in enumerate(streams):
        pid = pid_of(s)
        s.until("stdout", b"%d\n" % i)
        envd.call("process.Process/CloseStdin", select(pid))
        s.to_end()
        s.close()
    # A timer for each that is still known, and no pipe.
    until(lambda: envd.agent.fds() <= before + 50)
    assert not envd.agent.children()


def test_power_off_with_programs_and_listeners(fresh):
    envd = Envd(fresh())
    s = envd.start("sleep", "1000", stdin=True)
    pid_of(s)
    envd.agent.control.send(POWEROFF)
    assert envd.agent.process.wait(60) == 0
    s.close()
