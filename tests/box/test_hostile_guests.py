# SPDX-License-Identifier: Apache-2.0
"""Guests that mean harm: what one does to its own control stream may not be felt elsewhere."""

import os
import subprocess

from cubetest import created, ctl, ctl_ok, prop, sandbox, wait_for


def bytes_from(sandbox_id):
    return int(sandbox(sandbox_id).GetStatistics()["vsock-from-guest-bytes"])


def signals_about(sandbox_id, more_bytes):
    """How many signals come from its object while the guest says so much."""
    match = f"type='signal',path='/org/cubed/Cube1/sandbox/{sandbox_id}'"
    with subprocess.Popen(["dbus-monitor", "--system", match], stdout=subprocess.PIPE) as p:
        try:
            # what it says when it listens
            assert b"signal" in p.stdout.readline()
            enough = bytes_from(sandbox_id) + more_bytes
            wait_for("the guest to go on", lambda: bytes_from(sandbox_id) > enough, timeout=60)
        finally:
            p.terminate()
        return p.stdout.read().count(b"member=PropertiesChanged")


def test_an_agent_that_is_ready_again_and_again_tells_nobody(template):
    with created("--template", template("flood")) as sandbox_id:
        release = prop(sandbox_id, "KernelRelease")
        assert signals_about(sandbox_id, 30_000) == 0
        assert prop(sandbox_id, "KernelRelease") == release
        assert ctl("exec", sandbox_id, "--", "echo", "still").stdout == b"still\n"
        assert prop(sandbox_id, "State") == "running"


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
