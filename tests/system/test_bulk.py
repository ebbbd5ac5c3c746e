# SPDX-License-Identifier: Apache-2.0
"""Large streams arrive byte for byte, and never pass cubed."""

import hashlib
import os
import subprocess

from cubetest import cubed_pid, run

SIZE = 200_000_000 if os.environ.get("CUBE_LONG") == "1" else 40_000_000
# A program in the guest that writes or checks bytes that depend on their position.
BLOCK = bytes(range(251)) * 261
WRITER = f"""
import sys
block = bytes(range(251)) * 261
left = {SIZE}
while left > 0:
    left -= sys.stdout.buffer.write(block[:left])
"""
READER = """
import hashlib, sys
h, n = hashlib.sha256(), 0
while data := sys.stdin.buffer.read(1 << 16):
    h.update(data); n += len(data)
print(n, h.hexdigest())
"""


def expected_digest():
    h, left = hashlib.sha256(), SIZE
    while left > 0:
        h.update(BLOCK[:left])
        left -= min(left, len(BLOCK))
    return h.hexdigest()


def cubed_io():
    """Bytes that cubed has read and written so far."""
    with open(f"/proc/{cubed_pid()}/io", encoding="ascii") as f:
        fields = dict(line.split(": ") for line in f.read().splitlines())
    return int(fields["rchar"]) + int(fields["wchar"])


def test_much_through_stdout(shared):
    before = cubed_io()
    with subprocess.Popen(["cubectl", "exec", shared, "--", "python3", "-c", WRITER],
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as p:
        h, n = hashlib.sha256(), 0
        while data := p.stdout.read(1 << 20):
            h.update(data)
            n += len(data)
    assert (p.returncode, n, h.hexdigest()) == (0, SIZE, expected_digest())
    assert cubed_io() - before < 1_000_000


def test_much_through_stdin(shared):
    before = cubed_io()
    with subprocess.Popen(["cubectl", "exec", shared, "--", "python3", "-c", READER],
                          stdout=subprocess.PIPE, stdin=subprocess.PIPE) as p:
        left = SIZE
        while left > 0:
            left -= p.stdin.write(BLOCK[:left])
        p.stdin.close()
        out = p.stdout.read().decode().split()
    assert (p.returncode, out) == (0, [str(SIZE), expected_digest()])
    assert cubed_io() - before < 1_000_000


def test_a_client_that_does_not_read_holds_the_program_not_the_host(shared):
    vmm = run("systemctl", "show", "-P", "MemoryCurrent", f"cube-{shared}.scope", check=True)
    before = int(vmm.stdout)
    with subprocess.Popen(["cubectl", "exec", shared, "--", "cat", "/dev/zero"],
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as p:
        try:
            p.stdout.read(1 << 20)
            # Read nothing more until the program in the guest has filled what there is to fill.
            run("cubectl", "exec", shared, "--", "sleep", "3", check=True)
            now = int(run("systemctl", "show", "-P", "MemoryCurrent", f"cube-{shared}.scope", check=True).stdout)
            assert now - before < 32 * 1024 * 1024
        finally:
            p.kill()
