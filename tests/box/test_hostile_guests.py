# SPDX-License-Identifier: Apache-2.0
"""Guests that mean harm: what one does to its own control stream may not be felt elsewhere."""

import os
import time

from cubetest import created, ctl, ctl_ok, cubed_pid, prop, run


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


def test_a_disk_has_its_size_and_no_more(template):
    with created("--disk", "64M") as sandbox_id:
        def size():
            found = os.stat(f"/var/lib/cubed/sandboxes/{sandbox_id}.disk")
            return found.st_size, found.st_blocks * 512
        assert ctl_ok("exec", sandbox_id, "--", "fill", "vdb") == "0 0\n"
        whole, used = size()
        assert whole == 64 << 20 and 512 * 4096 <= used <= 65 << 20
        # and nothing goes into the image, which all sandboxes share
        failed, taken = ctl_ok("exec", sandbox_id, "--", "fill", "vda").split()
        assert int(failed) > 0 and taken == "0"
        assert size() == (whole, used)
