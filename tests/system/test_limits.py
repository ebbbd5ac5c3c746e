# SPDX-License-Identifier: Apache-2.0
"""A sandbox stays inside its memory, CPU and disk limits, and ends inside them."""

import os
import subprocess
import time

import pytest

from cubetest import PATIENCE, created, ctl, ctl_ok, end_of, events, run, sandbox_ids, wait_for
from test_memory import scope_file


def scope_number(sandbox_id, name):
    return int(run("systemctl", "show", "-P", name, f"cube-{sandbox_id}.scope", check=True).stdout)


def test_memory_max_is_the_wall_behind_it():
    """The scope's limit, lowered under a running guest, ends that sandbox and nothing else."""
    with created() as neighbour, created() as sandbox_id:
        run("systemctl", "set-property", "--runtime", f"cube-{sandbox_id}.scope", "MemoryMax=160M", check=True)
        subprocess.run(["cubectl", "exec", sandbox_id, "--", "python3", "-c", "taken = []\nwhile True: taken.append(b'x' * (1 << 20))"],
                       timeout=PATIENCE, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
        assert "oom-kill" in end_of(sandbox_id)
        assert ctl_ok("exec", neighbour, "--", "echo", "alive") == "alive\n"


def cpu_stat(sandbox_id, name):
    return int(dict(line.split() for line in scope_file(sandbox_id, "cpu.stat").splitlines())[name])


def cpu_share(sandbox_id, seconds):
    """Of one CPU, over so long or somewhat longer."""
    def sample():
        return cpu_stat(sandbox_id, "usage_usec"), time.monotonic_ns() // 1000
    usage, began = sample()
    time.sleep(seconds)
    more, now = sample()
    return (more - usage) / (now - began)


def test_half_a_cpu_is_half_a_cpu():
    with created() as sandbox_id:
        run("busctl", "--timeout=500", "call", "org.cubed.Cube1", f"/org/cubed/Cube1/sandbox/{sandbox_id}",
            "org.cubed.Cube1.Sandbox", "SetLimits", "a{sv}", "1", "cpu-quota", "t", "500000", check=True)
        assert run("systemctl", "show", "-P", "CPUQuotaPerSecUSec",
                   f"cube-{sandbox_id}.scope").stdout.strip() == b"500ms"
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "sh", "-c", "echo on; while :; do :; done"], stdout=subprocess.PIPE) as spin:
            try:
                assert spin.stdout.readline() == b"on\n"
                shares = []

                def gets_it():
                    """Others of this host may want the CPU as well, for a while; and what a CPU that stood still is found to have
                    been used for is taken back only later."""
                    shares.append(cpu_share(sandbox_id, 10))
                    return 0.40 <= shares[-1] <= 0.56
                wait_for("it to get what it may have", gets_it)
                # and not because others left it no more
                assert cpu_stat(sandbox_id, "nr_throttled") > 0, shares
            finally:
                spin.kill()


def test_disk_is_as_large_as_asked_and_filling_it_is_the_guests_trouble():
    with created("--disk", "5G") as sandbox_id:
        size = int(ctl_ok("exec", sandbox_id, "--", "df", "--output=size", "-BM", "/").split()[-1].rstrip("M"))
        assert 4500 < size <= 5120
        result = ctl("exec", sandbox_id, "--", "sh", "-c", "fallocate -l 6G /root/big; echo still here")
        assert b"No space left" in result.stderr and result.stdout == b"still here\n"


def test_lifetime_ends_it_with_a_reason():
    sandbox_id = ctl_ok("create", "--timeout", "5min").strip()
    run("busctl", "--timeout=500", "call", "org.cubed.Cube1", f"/org/cubed/Cube1/sandbox/{sandbox_id}",
        "org.cubed.Cube1.Sandbox", "SetTimeout", "t", "1000000", check=True)
    wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
    assert "timeout" in end_of(sandbox_id)
    assert "exit" in events(sandbox_id)


def set_memory(sandbox_id, mib):
    return run("busctl", "--timeout=500", "call", "org.cubed.Cube1", f"/org/cubed/Cube1/sandbox/{sandbox_id}",
               "org.cubed.Cube1.Sandbox", "SetLimits", "a{sv}", "1", "memory", "t", str(mib << 20))


def guest_mib(sandbox_id):
    return int(ctl_ok("exec", sandbox_id, "--", "sed", "-n", "s/MemTotal: *\\([0-9]*\\).*/\\1/p", "/proc/meminfo")) >> 10


@pytest.mark.parametrize("template", ["python", "python612"] if os.environ.get("CUBE_LONG") == "1" else ["python"])
def test_memory_grows_and_shrinks_while_the_guest_runs(template):
    with created("--template", template, "--memory", "256M") as sandbox_id:
        small, wall = guest_mib(sandbox_id), scope_number(sandbox_id, "MemoryMax")
        assert set_memory(sandbox_id, 448).returncode == 0
        # plugged it is; the kernel of the guest brings it online a moment later
        wait_for("the new memory to be online", lambda: guest_mib(sandbox_id) - small == 192)
        assert 192 << 20 <= scope_number(sandbox_id, "MemoryMax") - wall < 208 << 20

        # More than it was created with, all of it touched, and given back by itself once it is free.
        ctl_ok("exec", sandbox_id, "--", "python3", "-c",
               "b = bytearray(270 << 20)\nb[::4096] = b'x' * len(b[::4096])")
        wait_for("free pages to be given back", lambda: scope_number(sandbox_id, "MemoryCurrent") < 200 << 20)

        assert set_memory(sandbox_id, 224).returncode == 0
        assert small - guest_mib(sandbox_id) == 32
        assert scope_number(sandbox_id, "MemoryMax") < wall
        assert scope_number(sandbox_id, "MemoryCurrent") <= scope_number(sandbox_id, "MemoryMax")
        assert ctl("show", "-p", "Memory", "--value", sandbox_id).stdout.strip() == b"%d" % (224 << 20)

        assert set_memory(sandbox_id, 256).returncode == 0
        wait_for("what was lent to be back", lambda: guest_mib(sandbox_id) == small)
        too_much = set_memory(sandbox_id, 5120)
        assert too_much.returncode != 0 and b"can grow to" in too_much.stderr
