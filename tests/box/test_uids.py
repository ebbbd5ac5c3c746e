# SPDX-License-Identifier: Apache-2.0
"""The uids that VMMs run as: one for each, of a range that is theirs alone."""

import contextlib
import os

import pytest

from cubetest import ctl, ctl_ok, prop, run, sandbox_ids, wait_for
from faults import Journal

DROP_IN = "/etc/cubed/cubed.conf.d/60-uids.conf"
BASE = 0x7a000000


@contextlib.contextmanager
def configured(value):
    with open(DROP_IN, "w", encoding="ascii") as f:
        f.write(f"[Limits]\nUIDRange={value}\n")
    run("systemctl", "restart", "cubed.service", check=True)
    try:
        yield
    finally:
        os.unlink(DROP_IN)
        run("systemctl", "restart", "cubed.service", check=True)


def of_uid(uid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/status", encoding="ascii") as f:
                if next(line for line in f if line.startswith("Uid:")).split()[1] == str(uid):
                    found.append(int(name))
    return found


@pytest.fixture
def only_one(template):
    for sandbox_id in sandbox_ids():
        ctl("kill", sandbox_id)
    with configured(f"{BASE:#x}/1"):
        yield


def test_a_uid_is_given_again_when_its_process_was_reaped(only_one):
    """With one uid in all: whoever gets it is the only one that has it, however soon after."""
    first = ctl_ok("create").strip()
    assert of_uid(BASE) == [int(prop(first, "VMMPID"))]
    refused = ctl("create")
    assert refused.returncode != 0 and b"UIDRange=" in refused.stderr

    for _ in range(5):
        before = of_uid(BASE)
        ctl_ok("kill", first)
        first = wait_for("a uid to be free", lambda: ctl("create").stdout.decode().strip())
        assert of_uid(BASE) == [int(prop(first, "VMMPID"))] != before
    # One that was adopted has its uid from before.
    run("systemctl", "restart", "cubed.service", check=True)
    wait_for("it to be taken over", lambda: first in sandbox_ids())
    assert b"UIDRange=" in ctl("create").stderr
    ctl_ok("kill", first)
    # it is not cubed's child, which is told when it was reaped, but that of PID 1
    wait_for("it to be reaped", lambda: not of_uid(BASE))


def test_a_range_with_somebody_in_it_is_told(template):
    run("useradd", "--system", "--no-create-home", "--uid", BASE + 1, "in-the-way", check=True)
    told = Journal()
    try:
        with configured(f"{BASE:#x}/16"):
            checked = ctl("check").stdout.decode()
            assert f"user in-the-way has uid {BASE + 1}" in checked
            told.says("user in-the-way has uid")
    finally:
        run("userdel", "in-the-way", check=True)
