# SPDX-License-Identifier: Apache-2.0
"""Leaves behind, for test_after.py, what has to outlive a reboot of the host, and what must not."""

import json

import labhost
from cubetest import created, ctl_ok, prop, sandbox_ids, snapshot
from linuxguest import begin_server, put_all, start_checker
from network import address

NOTES = f"{labhost.PLACE}/reboot.json"


def test_sandboxes_are_left_in_each_state():
    labhost.prepare()
    notes = {"boot": open("/proc/sys/kernel/random/boot_id", encoding="ascii").read()}
    with created("--timeout", "1h") as gone:
        start_checker(gone)
        put_all(gone, "gone")
        notes["snapshot"] = snapshot(gone)
    notes["running"] = ctl_ok("create", "--timeout", "1h").strip()

    paused = notes["paused"] = ctl_ok("create", f"snapshot:{notes['snapshot']}", "--timeout", "1h").strip()
    put_all(paused, "early")
    notes["early"] = snapshot(paused)
    notes["processes"] = put_all(paused, "late")["processes"]
    ctl_ok("pause", paused)

    without = notes["without memory"] = ctl_ok("create", f"snapshot:{notes['snapshot']}", "--timeout", "1h").strip()
    ctl_ok("exec", without, "--", "sh", "-c", "echo kept >/root/kept")
    ctl_ok("pause", "--no-memory", without)

    parked = notes["parked"] = ctl_ok("create", f"snapshot:{notes['snapshot']}", "--timeout", "1h", "--auto-resume").strip()
    begin_server(parked)
    notes["address"] = address(parked)
    ctl_ok("pause", parked)

    assert {notes["running"], paused, without, parked} <= set(sandbox_ids())
    assert prop(paused, "State") == prop(without, "State") == prop(parked, "State") == "paused"
    with open(NOTES, "w", encoding="utf-8") as f:
        json.dump(notes, f)
