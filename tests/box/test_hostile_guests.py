# SPDX-License-Identifier: Apache-2.0
"""Guests that mean harm: what one does to its own control stream may not be felt elsewhere."""

import subprocess
import time

from cubetest import bus, created, ctl, cubed_pid, manager, prop, run, sandbox, wait_for


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def signals_about(sandbox_id, seconds):
    """How many signals come from its object in that time."""
    script = f"timeout {seconds} dbus-monitor --system \"type='signal',path='/org/cubed/Cube1/sandbox/{sandbox_id}'\""
    return run("bash", "-c", script).stdout.count(b"member=PropertiesChanged")


def test_an_agent_that_is_ready_again_and_again_tells_nobody(template):
    with created("--template", template("flood")) as sandbox_id:
        release = prop(sandbox_id, "KernelRelease")
        assert signals_about(sandbox_id, 2) == 0
        assert prop(sandbox_id, "KernelRelease") == release
        assert ctl("exec", sandbox_id, "--", "echo", "still").stdout == b"still\n"
        start = time.monotonic()
        for _ in range(20):
            assert prop(sandbox_id, "State") == "running"
        assert time.monotonic() - start < 2
        before = cpu_seconds(cubed_pid())
        time.sleep(2)
        print("cubed's CPU under the flood:", (cpu_seconds(cubed_pid()) - before) / 2)
