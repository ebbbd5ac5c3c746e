# SPDX-License-Identifier: Apache-2.0
"""A kernel whose cells run in a child process that keeps the variables: a shell, or node.

The child has standard output and error, which go to the client as they come, and a control descriptor on which it
tells, line by line, what else happened; the last line of a cell is its "done". All that it printed before is in its
pipes by then. The child is started with the first cell: before that there is nothing in it, and a copy of the
machine must not share its seeds. It is in the kernel's process group, so that a SIGINT reaches what it runs too.
"""

import codecs
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from ipykernel.kernelbase import Kernel

CHUNK = 65536
MAX_LINE = 64 << 20
# A child may be at something for which it does not hear that the kernel is gone.
PREFIX = ("setpriv", "--pdeathsig", "KILL", "--")


class ChildEnded(Exception):
    pass


class Child:
    """The process and our ends of its pipes."""

    def __init__(self, process: subprocess.Popen[bytes], control: int) -> None:
        self.process = process
        self.control = control
        assert process.stdout and process.stderr
        self._streams = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._streams.values()}
        self._line = bytearray()
        self._selector = selectors.DefaultSelector()
        for fd in (*self._streams, control):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ)

    def run(self, on_text: Callable[[str, str], None], on_line: Callable[[bytes], bool]) -> None:
        """Until on_line says that this was the last one of the cell."""
        done = False
        while not done:
            ready = [key.fd for key, _ in self._selector.select()]
            for fd in ready:
                if fd != self.control:
                    self._read_stream(fd, on_text)
            if self.control in ready:
                # What was printed before a line is shown before it.
                self._drain(on_text)
                done = self._read_control(on_line)
        self._drain(on_text)

    def _drain(self, on_text: Callable[[str, str], None]) -> None:
        for fd in list(self._streams):
            # no more than a pipe holds: something else may go on writing
            for _ in range(16):
                if not self._read_stream(fd, on_text):
                    break

    def _read_stream(self, fd: int, on_text: Callable[[str, str], None]) -> bool:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(fd)
            del self._streams[fd]
            return False
        name = self._streams[fd]
        text = self._decoders[name].decode(data)
        if text:
            on_text(name, text)
        return True

    def _read_control(self, on_line: Callable[[bytes], bool]) -> bool:
        data = os.read(self.control, CHUNK)
        if not data or len(self._line) > MAX_LINE:
            raise ChildEnded
        self._line += data
        *lines, rest = self._line.split(b"\n")
        self._line = bytearray(rest)
        return any([on_line(bytes(line)) for line in lines])

    def close(self) -> int:
        """What it exited with."""
        self._selector.close()
        self.process.kill()
        for file in (self.process.stdin, self.process.stdout, self.process.stderr):
            if file:
                file.close()
        os.close(self.control)
        return self.process.wait()


class ChildKernel(Kernel):
    """Subclasses start the child, tell it what to run, and understand its lines."""

    implementation = "cube"
    implementation_version = "1"
    banner = ""
    child_words = "the process"

    _child: Child | None = None
    _failure: dict[str, Any] | None = None

    @property
    def directory(self) -> str:
        """Of this kernel alone; whoever started it removes it."""
        return os.path.dirname(self.parent.abs_connection_file)

    def start_child(self) -> Child:
        raise NotImplementedError

    def send_cell(self, child: Child, code: str, env: Mapping[str, str]) -> None:
        raise NotImplementedError

    def on_line(self, line: bytes) -> bool:
        """True for the last one. self.fail() tells of an error."""
        raise NotImplementedError

    def fail(self, name: str, value: str, traceback: str = "") -> None:
        self._failure = {"ename": name, "evalue": value, "traceback": traceback.splitlines()}

    def publish(self, kind: str, content: Mapping[str, Any]) -> None:
        self.send_response(self.iopub_socket, kind, content)

    def _on_text(self, name: str, text: str) -> None:
        self.publish("stream", {"name": name, "text": text})

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False):
        env = self.get_parent("shell").get("metadata", {}).get("env", {})
        self._failure = None
        try:
            # It is for the child, which got it too, and ends the cell by itself.
            signal.signal(signal.SIGINT, lambda *_: None)
            if not self._child:
                self._child = self.start_child()
            self.send_cell(self._child, code, env)
            self._child.run(self._on_text, self.on_line)
        except (ChildEnded, BrokenPipeError, ConnectionResetError):
            self._on_child_end()
        return self._reply()

    def _on_child_end(self) -> None:
        assert self._child
        status = self._child.close()
        self._child = None
        how = f"exit status {status}" if status >= 0 else f"signal {-status}"
        words = f"{self.child_words} ended ({how}); what it had in its variables is gone"
        if status == 0:
            self._on_text("stderr", words + "\n")
        else:
            self.fail("ProcessEnded", words)

    def _reply(self) -> dict[str, Any]:
        if self._failure:
            self.publish("error", self._failure)
            return {"status": "error", "execution_count": self.execution_count, **self._failure}
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

    def do_shutdown(self, restart):
        if self._child:
            self._child.close()
            self._child = None
        return {"status": "ok", "restart": restart}
