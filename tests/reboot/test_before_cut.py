# SPDX-License-Identifier: Apache-2.0
"""Leaves sandboxes behind, for test_after_cut.py, to which things are done until the host's power is cut."""

import os

import labhost
from cubetest import ctl_ok, run, wait_for

NOTES = f"{labhost.PLACE}/cut.jsonl"


def lines():
    try:
        with open(NOTES, encoding="utf-8") as f:
            return f.read().count("\n")
    except FileNotFoundError:
        return 0


def test_much_is_being_written():
    labhost.prepare()
    sandbox_id = ctl_ok("create", "--memory", "256M", "--timeout", "1h").strip()
    os.sync()  # whatever else there is
    run("systemd-run", "--unit=writer", "/usr/bin/python3", "-B", f"{labhost.PLACE}/tests/reboot/writer.py", NOTES, sandbox_id, check=True)
    wait_for("things to be done again and again", lambda: lines() >= 10, timeout=540)
