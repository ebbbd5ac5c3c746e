# SPDX-License-Identifier: Apache-2.0
"""Speaks the agent's protocol (base/agent-proto.h) over unix sockets, to the harness."""

import errno
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CUBE_BUILD", TOP / "build"))
HARNESS = os.environ.get("CUBE_AGENT_HARNESS", str(BUILD / "tests/native/agent-harness"))

OK, ERROR = 1, 2
READY = 16
(CLAIM, EXEC, SIGNAL, RESIZE, LIST_PROCESSES, STAT, LIST_DIRECTORY, REMOVE, RENAME, MKDIR, SET_TIME,
 ADD_ENTROPY, POWEROFF, PING, FREEZE, THAW, SYMLINK, ENVD, USAGE) = range(32, 51)
S_PROCESS, S_WAIT, S_READ, S_WRITE, S_TCP = range(64, 69)
DATA, END, EXITED = range(96, 99)
MORE = 1
STDIN, STDOUT, STDERR, PTY = range(4)

TAGS = {name: i for i, name in enumerate(
    "ERRNO MESSAGE VERSION KERNEL_RELEASE CPUS MEM_BYTES HOSTNAME REALTIME_NSEC ENTROPY ARGV ENV CWD USER "
    "PTY ROWS COLS TIMEOUT_USEC PID SIGNAL GROUP PROCESS PATH TARGET FOLLOW FILE RECURSIVE MODE PARENTS "
    "STREAM PORT SIZE EXIT_CODE EXIT_SIGNAL TIMED_OUT DISK_BYTES FREEZE_DISK "
    "NETWORK MTU NAMESERVER LINK TOKEN USER_OPTIONAL KEEP_ENV USAGE".split(), 1)}
NAMES = {v: k for k, v in TAGS.items()}
U64 = {"MEM_BYTES", "REALTIME_NSEC", "TIMEOUT_USEC", "SIZE", "DISK_BYTES"}
STR = {"MESSAGE", "KERNEL_RELEASE"}
RAW = {"PROCESS", "FILE", "USAGE"}


def tlv(tag, data):
    return struct.pack("<HHI", tag, 0, len(data)) + data + b"\0" * (-len(data) % 8)


def body(**fields):
    out = b""
    for name, value in fields.items():
        for v in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(v, str):
                v = os.fsencode(v)
            elif not isinstance(v, bytes):
                v = struct.pack("<Q" if name in U64 else "<I", v)
            out += tlv(TAGS[name], v)
    return out


def parse(data):
    out = {}
    while data:
        tag, _, n = struct.unpack_from("<HHI", data)
        v = data[8:8 + n]
        name = NAMES[tag]
        if name in RAW:
            out.setdefault(name, []).append(v)
        else:
            out[name] = v.decode() if name in STR else int.from_bytes(v, "little")
        data = data[8 + n + (-n % 8):]
    return out


def frame(type, data=b"", id=0, flags=0):
    return struct.pack("<IHHI", len(data), type, flags, id) + data


class File:
    def __init__(self, raw):
        self.size, self.mtime, self.mode, self.uid, self.gid, n = struct.unpack_from("<QQIIII", raw)
        self.name = os.fsdecode(raw[32:32 + n])
        rest = raw[32 + n:]
        self.target = os.fsdecode(rest[1:]) if rest else None


class AgentError(Exception):
    def __init__(self, fields):
        super().__init__(fields.get("MESSAGE", ""))
        self.errno = fields["ERRNO"]


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


def sanitized():
    with open(HARNESS, "rb") as f:
        return b"__asan_init" in f.read()


def pattern(n):
    return random.Random(n).randbytes(n)


class Conn:
    """Frames on one socket."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(60)

    def send(self, type, data=b"", id=0, flags=0):
        self.sock.sendall(frame(type, data, id, flags))

    def read(self, n):
        out = bytearray()
        while len(out) < n:
            piece = self.sock.recv(n - len(out))
            if not piece:
                raise EOFError
            out += piece
        return bytes(out)

    def recv(self):
        n, type, flags, id = struct.unpack("<IHHI", self.read(12))
        return type, flags, id, self.read(n)

    def read_all(self):
        out = bytearray()
        while piece := self.sock.recv(1 << 16):
            out += piece
        return bytes(out)

    def close(self):
        self.sock.close()


class Agent:
    def __init__(self, directory, claim=True, net=False, loopback=False, without=None, env=None, stdin=subprocess.DEVNULL):
        self.directory = str(directory)
        self.next_id = 1
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path("control.sock"))
        self.listener.listen()
        self.listener.settimeout(60)
        self.errors = open(self.path("stderr"), "w+")
        self.process = subprocess.Popen(
            ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", *(["--net"] if net else []),
             *(["setpriv", f"--bounding-set=-{without}"] if without else []), HARNESS,
             self.directory, *(["loopback"] if loopback else [])],
            stderr=self.errors, stdin=stdin, env={**os.environ, **(env or {})})
        self.accept()
        if claim:
            self.call(CLAIM, HOSTNAME="t", CPUS=1)

    def path(self, name):
        return os.path.join(self.directory, name)

    def accept(self):
        self.control = Conn(self.listener.accept()[0])
        type, _, id, data = self.control.recv()
        assert (type, id) == (READY, 0)
        self.ready = parse(data)

    @property
    def pid(self):
        """Of the harness itself, outside of its namespace."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return int(f.read().split()[0])

    def status(self, field):
        with open(f"/proc/{self.pid}/status") as f:
            return next(line.split()[1] for line in f if line.startswith(field + ":"))

    def rss(self):
        return int(self.status("VmRSS"))

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def children(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children") as f:
            return f.read().split()

    def machine_log(self):
        with open(self.path("machine.log")) as f:
            return f.read().splitlines()

    def call_frames(self, type, **fields):
        id, self.next_id = self.next_id, self.next_id + 1
        self.control.send(type, body(**fields), id)
        frames = []
        while True:
            t, flags, got, data = self.control.recv()
            assert got == id
            if t == ERROR:
                raise AgentError(parse(data))
            assert t == OK
            frames.append(parse(data))
            if not flags & MORE:
                return frames

    def call(self, type, **fields):
        return self.call_frames(type, **fields)[-1]

    def exec(self, *argv, **fields):
        return self.call(EXEC, ARGV=list(argv), **fields)["PID"]

    def open(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(self.path("stream.sock"))
        return Conn(s)

    def stream(self, type, **fields):
        c = self.open()
        c.send(type, body(**fields), 7)
        t, _, id, data = c.recv()
        assert id == 7
        if t == ERROR:
            assert c.read_all() == b""
            c.close()
            raise AgentError(parse(data))
        assert t == OK
        c.answer = parse(data)
        return c

    def attach(self, pid, which):
        return self.stream(S_PROCESS, PID=pid, STREAM=which)

    def wait(self, pid):
        c = self.stream(S_WAIT, PID=pid)
        t, _, _, data = c.recv()
        assert t == EXITED
        assert c.read_all() == b""
        c.close()
        return parse(data)

    def code(self, pid):
        return self.wait(pid).get("EXIT_CODE")

    def output(self, pid, which=STDOUT):
        c = self.attach(pid, which)
        out = c.read_all()
        c.close()
        return out

    def run(self, *argv, **fields):
        pid = self.exec(*argv, **fields)
        out, err = self.output(pid), self.output(pid, STDERR)
        return self.wait(pid), out, err

    def get(self, path, **fields):
        c = self.stream(S_READ, PATH=path, **fields)
        out = bytearray()
        while True:
            t, _, _, data = c.recv()
            if t == END:
                end = parse(data)
                if end["ERRNO"]:
                    raise AgentError(end)
                c.close()
                return bytes(out)
            assert t == DATA and 0 < len(data) <= 65536
            out += data

    def put(self, path, data, **fields):
        c = self.stream(S_WRITE, PATH=path, **fields)
        for i in range(0, len(data), 65536):
            c.send(DATA, data[i:i + 65536])
        c.send(END)
        t, _, _, answer = c.recv()
        assert t == END
        c.close()
        if parse(answer)["ERRNO"]:
            raise AgentError(parse(answer))

    def list(self, path):
        return [File(f) for frame in self.call_frames(LIST_DIRECTORY, PATH=path) for f in frame.get("FILE", [])]

    def stat(self, path, **fields):
        return File(self.call(STAT, PATH=path, **fields)["FILE"][0])

    def alive(self):
        self.call(PING)

    def stop(self):
        """Ends it, and says what sanitizers found."""
        if self.process.poll() is None:
            try:
                self.control.send(POWEROFF, b"", 0)
            except OSError:
                self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "did not end"
        self.control.close()
        self.listener.close()
        self.errors.seek(0)
        text = self.errors.read()
        self.errors.close()
        return code, text


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.01)


def settled(value, looks=15):
    """What it is once it has not changed from one look to the next so many times."""
    last, same, end = value(), 0, time.monotonic() + 60
    while same < looks:
        time.sleep(0.02)
        now = value()
        same = same + 1 if now == last else 0
        last = now
        assert time.monotonic() < end, f"it changes again and again, lately to {last}"
    return last


def read_until(conn, text, seconds=60):
    out = b""
    end = time.monotonic() + seconds
    while text not in out:
        left = end - time.monotonic()
        assert left > 0 and select.select([conn.sock], [], [], left)[0], f"{text!r} not in {out!r}"
        piece = conn.sock.recv(65536)
        if not piece:
            raise EOFError(out)
        out += piece
    return out
