# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. E2B's own SDK, unmodified, against its envd: in its debug mode, in which it asks no
control plane."""

import os
import subprocess

import pytest

from envdlib import Envd

pytestmark = pytest.mark.skipif("CUBE_E2B_SDK" not in os.environ,
                                reason="CUBE_E2B_SDK names no environment with e2b; dev/test makes one")

SYNC = """
import os, sys, time
from e2b import *
sandbox = Sandbox.create()
work = sys.argv[1]

def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")
"""
ASYNC = """
import asyncio, os, sys
from e2b import *
work = sys.argv[1]

async def main():
    sandbox = await AsyncSandbox.create()
"""
# The SDK's threads can abort an interpreter that ends.
LEAVE = "\nsys.stdout.flush()\nos._exit(0)\n"


@pytest.fixture(scope="module")
def envd(shared):
    return Envd(shared, USER="root", ENV=["GLOBAL=1"])


@pytest.fixture
def run(envd, tmp_path):
    def run(script):
        result = subprocess.run(
            [os.environ["CUBE_E2B_SDK"] + "/bin/python", "-c", script + LEAVE, str(tmp_path)], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=120, env=os.environ | {
                "E2B_DEBUG": "true", "E2B_API_KEY": "e2b_" + "0" * 40, "E2B_SANDBOX_URL": f"http://127.0.0.1:{envd.port}"})
        assert result.returncode == 0, f"{result.returncode}: {result.stdout}"
    return run


def run_async(run, script):
    run(ASYNC + "".join(f"    {line}\n" for line in script.splitlines()) + "\nasyncio.run(main())\n")


def test_commands(run):
    run(SYNC + """
assert sandbox.is_running()
result = sandbox.commands.run("echo out; echo err >&2; echo $GLOBAL $OWN", envs={"OWN": "2"}, cwd=work)
assert (result.stdout, result.stderr, result.exit_code) == ("out\\n1 2\\n", "err\\n", 0), result
assert sandbox.commands.run("pwd", cwd=work).stdout == work + "\\n"
assert sandbox.commands.run("id -un", user="daemon").stdout == "daemon\\n"
assert sandbox.commands.run("printf '\\\\xff\\\\xc3'").stdout
e = raises(CommandExitException, lambda: sandbox.commands.run("echo no >&2; exit 3"))
assert (e.exit_code, e.stderr) == (3, "no\\n")
assert raises(CommandExitException, lambda: sandbox.commands.run("no-such-command")).exit_code == 127
raises(TimeoutException, lambda: sandbox.commands.run("sleep 100", timeout=0.5))
raises(InvalidArgumentException, lambda: sandbox.commands.run("true", cwd=work + "/none"))
raises(AuthenticationException, lambda: sandbox.commands.run("true", user="nobody-here"))
lines = []
sandbox.commands.run("seq 3", on_stdout=lines.append)
assert "".join(lines) == "1\\n2\\n3\\n"
""")


def test_background_commands_and_their_input(run):
    run(SYNC + """
handle = sandbox.commands.run("cat", background=True, stdin=True)
assert handle.pid in [p.pid for p in sandbox.commands.list()]
sandbox.commands.send_stdin(handle.pid, "a\\u00e4\\n")
sandbox.commands.send_stdin(handle.pid, "")
sandbox.commands.close_stdin(handle.pid)
assert handle.wait().stdout == "a\\u00e4\\n"
handle = sandbox.commands.run("cat", background=True, stdin=True)
sandbox.commands.stream_input(handle.pid, ["a", b"b", "\\u00e4\\n"])
sandbox.commands.close_stdin(handle.pid)
assert handle.wait().stdout == "ab\\u00e4\\n"
raises(NotFoundException, lambda: sandbox.commands.stream_input(999999, ["a"]))
handle = sandbox.commands.run("sleep 1000", background=True)
again = sandbox.commands.connect(handle.pid)
assert again.pid == handle.pid
handle.disconnect()
assert sandbox.commands.run(f"kill -0 {again.pid}").exit_code == 0
assert sandbox.commands.kill(again.pid) is True
raises(CommandExitException, again.wait)
assert sandbox.commands.kill(again.pid) is False
raises(SandboxException, lambda: sandbox.commands.connect(999999))
assert sandbox.commands.list() == []
""")


def test_files(run):
    run(SYNC + """
path = work + "/d/f \\u00fc.txt"
info = sandbox.files.write(path, "hello")
assert (info.path, info.name) == (path, "f \\u00fc.txt"), info
assert sandbox.files.read(path) == "hello" and bytes(sandbox.files.read(path, format="bytes")) == b"hello"
assert b"".join(sandbox.files.read(path, format="stream")) == b"hello"
many = sandbox.files.write_files([{"path": work + "/1", "data": "one"}, {"path": work + "/2", "data": b"\\xff"}])
assert [m.path for m in many] == [work + "/1", work + "/2"]
assert bytes(sandbox.files.read(work + "/2", format="bytes")) == b"\\xff"
sandbox.files.write(work + "/empty", "")
assert sandbox.files.read(work + "/empty") == ""
data = os.urandom(5_000_000)
sandbox.files.write(work + "/large", data)
assert bytes(sandbox.files.read(work + "/large", format="bytes")) == data
raises(NotFoundException, lambda: sandbox.files.read(work + "/none"))
raises(InvalidArgumentException, lambda: sandbox.files.read(work))
assert sandbox.files.exists(path) and not sandbox.files.exists(work + "/none")
assert sandbox.files.make_dir(work + "/new/deep") is True and sandbox.files.make_dir(work + "/new/deep") is False
assert [(e.name, e.type) for e in sandbox.files.list(work, depth=1)] == [
    ("1", FileType.FILE), ("2", FileType.FILE), ("d", FileType.DIR), ("empty", FileType.FILE), ("large", FileType.FILE),
    ("new", FileType.DIR)]
assert [e.path for e in sandbox.files.list(work + "/new", depth=2)] == [work + "/new/deep"]
info = sandbox.files.get_info(path)
assert (info.size, info.mode, info.permissions, info.owner, info.group, info.type) == (
    5, 0o644, "-rw-r--r--", "root", "root", FileType.FILE)
os.symlink("1", work + "/link")
assert sandbox.files.get_info(work + "/link").symlink_target == work + "/1"
assert sandbox.files.rename(path, work + "/moved/f").path == work + "/moved/f"
raises(NotFoundException, lambda: sandbox.files.rename(path, work + "/x"))
sandbox.files.remove(work + "/new")
sandbox.files.remove(work + "/new")
assert not sandbox.files.exists(work + "/new")
""")


def test_watching(run):
    run(SYNC + """
handle = sandbox.files.watch_dir(work, recursive=True)
sandbox.files.write(work + "/f", "x")
sandbox.files.make_dir(work + "/nested")
seen = []
while (FilesystemEventType.CREATE, "nested/file") not in seen:
    if (FilesystemEventType.CREATE, "nested") in seen and not sandbox.files.exists(work + "/nested/file"):
        sandbox.files.write(work + "/nested/file", "x")
    seen += [(e.type, e.name) for e in handle.get_new_events()]
assert (FilesystemEventType.WRITE, "f") in seen
handle.stop()
raises(NotFoundException, lambda: sandbox.files.watch_dir(work + "/none"))
raises(SandboxException, lambda: sandbox.files.watch_dir(work + "/f"))
""")


def test_terminals(run):
    run(SYNC + """
terminal = sandbox.pty.create(PtySize(cols=80, rows=24), envs={"OWN": "2"}, cwd=work)
sandbox.pty.resize(terminal.pid, PtySize(cols=100, rows=30))
sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $OWN-own; exit\\n")
out = b""
def collect(data):
    global out
    out += data
assert terminal.wait(on_pty=collect).exit_code == 0
assert b"30 100" in out and b"2-own" in out, out
terminal = sandbox.pty.create(PtySize(cols=80, rows=24))
assert sandbox.pty.kill(terminal.pid) is True
raises(CommandExitException, terminal.wait)
assert sandbox.pty.kill(terminal.pid) is False
""")


def test_asynchronously(run):
    run_async(run, """
result = await sandbox.commands.run("echo hello")
assert result.stdout == "hello\\n"
results = await asyncio.gather(*(sandbox.commands.run(f"sleep 0.1; echo {i}") for i in range(20)))
assert [r.stdout for r in results] == [f"{i}\\n" for i in range(20)]
assert (await sandbox.files.write(work + "/f", "data")).path == work + "/f"
assert await sandbox.files.read(work + "/f") == "data"
assert [e.name for e in await sandbox.files.list(work)] == ["f"]
events = asyncio.Queue()
handle = await sandbox.files.watch_dir(work, on_event=events.put_nowait)
await sandbox.files.write(work + "/g", "data")
while True:
    event = await events.get()
    if (event.type, event.name) == (FilesystemEventType.WRITE, "g"):
        break
await handle.stop()
output = asyncio.Queue()
terminal = await sandbox.pty.create(PtySize(cols=80, rows=24), on_data=output.put_nowait)
await sandbox.pty.send_stdin(terminal.pid, b"exit\\n")
assert (await terminal.wait()).exit_code == 0
handle = await sandbox.commands.run("cat", background=True, stdin=True)
async with sandbox.commands.stream_input(handle.pid) as stream:
    await stream.send("one ")
    await stream.send("two")
await sandbox.commands.close_stdin(handle.pid)
assert (await handle.wait()).stdout == "one two"
handle = await sandbox.commands.run("sleep 1000", background=True)
assert await handle.kill() is True
""")
