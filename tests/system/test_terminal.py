# SPDX-License-Identifier: Apache-2.0
"""-t gives a working terminal; Ctrl-C reaches the guest, with and without one."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from cubetest import ctl_ok


class Terminal:
    """cubectl on a pty of its own; what it printed so far is in .seen."""

    def __init__(self, *argv, rows=30, cols=100):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp("cubectl", ["cubectl", *argv])
        self.seen = b""
        self.resize(rows, cols)

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.fd, data)

    def expect(self, pattern, timeout=400):
        deadline = time.monotonic() + timeout
        while not (match := re.search(pattern, self.seen)):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    break
        match = match or re.search(pattern, self.seen)
        assert match, f"no {pattern!r} in {self.seen!r}"
        self.seen = self.seen[match.end():]
        return match

    def status(self):
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_terminal_has_its_size_follows_resizes_and_passes_the_status(shared):
    # a prompt with the number of the command: none can be taken for another, and
    # what is typed between two of them would be echoed twice
    t = Terminal("exec", shared, "-t", "--env", r"PS1=<\#> ", "--", "bash", "--norc")
    t.expect(rb"<1> ")
    t.send(b"stty size\n")
    t.expect(rb"30 100\r\n")
    t.expect(rb"<2> ")
    t.resize(41, 123)
    # the new size comes by another way than what is typed
    t.send(b"until [ \"$(stty size)\" = '41 123' ]; do sleep 0.1; done; stty size\n")
    t.expect(rb"41 123\r\n")
    t.expect(rb"<3> ")
    t.send(b"sh -c 'echo started; exec sleep 6000'\n")
    t.expect(rb"started\r\n")
    t.send(b"\x03")
    # were it not interrupted, no prompt would come before the end of the sleep
    t.expect(rb"<4> ")
    t.send(b"exit 9\n")
    assert t.status() == 9


def test_vi_edits_a_file(shared):
    t = Terminal("exec", shared, "-t", "--env", "TERM=xterm", "--", "vi", "/tmp/edited")
    t.expect(rb"~")
    t.send(b"ihello from vi\x1b:wq\r")
    assert t.status() == 0
    assert ctl_ok("exec", shared, "--", "cat", "/tmp/edited") == "hello from vi\n"


def test_interrupt_reaches_the_guest_without_a_terminal(shared):
    trap = "trap 'echo interrupted; exit 42' INT; echo ready; while :; do sleep 1; done"
    with subprocess.Popen(["cubectl", "exec", shared, "--", "sh", "-c", trap],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"ready\n"
        p.send_signal(signal.SIGINT)
        assert p.stdout.read() == b"interrupted\n"
        assert p.wait(400) == 42
