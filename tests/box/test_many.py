# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes: at once, and one after another; none leaves anything, none holds cubed up."""

import os
import subprocess

from cubetest import ctl_ok, loop_is_free, manager, sandbox_ids

SEQUENCE = 1000 if os.environ.get("CUBE_LONG") == "1" else 100


def create_many(number):
    """number creates in flight at the same time; their ids."""
    jobs = [subprocess.Popen(["cubectl", "create", "--timeout", "1h"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE) for _ in range(number)]
    outputs = [(job.communicate(timeout=240), job.returncode) for job in jobs]
    assert all(code == 0 for _, code in outputs), outputs
    return [out.decode().strip() for (out, _), _ in outputs]


def test_twenty_at_once_hold_no_loop_up(clean):
    manager().ResetLoopMax()
    ids = []
    try:
        ids = create_many(20)
        assert len(set(ids)) == 20 and set(ids) <= set(sandbox_ids())
        for sandbox_id in ids:
            assert ctl_ok("exec", sandbox_id, "--", "echo", sandbox_id).strip() == sandbox_id
    finally:
        for sandbox_id in ids:
            ctl_ok("kill", sandbox_id)
    loop_is_free()


def test_a_hundred_one_after_another_leave_nothing(clean):
    for _ in range(SEQUENCE):
        ctl_ok("kill", ctl_ok("create").strip())
