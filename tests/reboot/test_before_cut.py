# SPDX-License-Identifier: Apache-2.0
"""Leaves sandboxes behind, for test_after_cut.py, to which things are done until the host's power is cut."""

import os

import labhost
from cubetest import created, ctl_ok, run, snapshot, wait_for

NOTES = f"{labhost.PLACE}/cut.jsonl"


def lines():
    """How many notes there are; one who ended writes no more of them."""
    state = run("systemctl", "show", "-P", "ActiveState", "writer.service").stdout.decode().strip()
    assert state in ("active", "activating"), run("journalctl", "-u", "writer.service", "-n", "20", "-o", "cat").stdout.decode()
    try:
        with open(NOTES, encoding="utf-8") as f:
            return f.read().count("\n")
    except FileNotFoundError:
        return 0


def test_much_is_being_written():
    labhost.prepare()
    with created("--memory", "256M") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "sh", "-c", "echo base >/dev/shm/word; echo base >/root/word")
        base = snapshot(sandbox_id)
    os.sync()  # whatever else there is
    run("systemd-run", "--unit=writer", "/usr/bin/python3", "-B", f"{labhost.PLACE}/tests/reboot/writer.py", NOTES, base, check=True)
    wait_for("things to be done again and again", lambda: lines() >= 14, timeout=540)
