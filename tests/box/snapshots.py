# SPDX-License-Identifier: Apache-2.0
"""What the payload guest has in memory and on disk, for tests of snapshots."""

import contextlib
import subprocess

from cubetest import created, ctl_ok, sandbox, wait_for


def count(sandbox_id):
    """How far "counter" is; fails when it found memory or disk not as it had left them."""
    value, bad = ctl_ok("exec", sandbox_id, "--", "count").split()
    assert bad == "0"
    return int(value)


def goes_on(sandbox_id):
    first = count(sandbox_id)
    wait_for("the guest to count on", lambda: count(sandbox_id) > first)
    return first


def start_counter(sandbox_id, busy=False):
    """It counts in the background, whoever looks; busy: without a pause, on a CPU that is the host's."""
    command = ["counter"] if busy else ["counter", "calmly"]
    p = subprocess.Popen(["cubectl", "exec", sandbox_id, "--", *command], stdin=subprocess.DEVNULL)
    wait_for("the guest to count", lambda: count(sandbox_id) > 0)
    return p


@contextlib.contextmanager
def counting(*options):
    """A sandbox that counts."""
    with created("--timeout", "1h", *options) as sandbox_id:
        p = start_counter(sandbox_id)
        try:
            yield sandbox_id
        finally:
            p.kill()
            p.wait()


def hanging(sandbox_id):
    return [process[0] for process in sandbox(sandbox_id).ListProcesses() if "hang" in map(str, process)]


def put(sandbox_id, sector, word):
    ctl_ok("exec", sandbox_id, "--", "put-sector", "vdb", sector, word)


def sector(sandbox_id, number):
    return ctl_ok("exec", sandbox_id, "--", "sector", "vdb", number).rstrip("\0")
