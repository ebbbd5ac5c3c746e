# SPDX-License-Identifier: Apache-2.0
"""A sandbox is paused to disk and resumed: it goes on as if it had stood still."""

import os

import dbus
import pytest

from cubetest import (ERROR, created, ctl, ctl_ok, events, journal, leftovers, prop, run, sandbox, options, sandbox_ids, wait_for)
from snapshots import count, counting, goes_on, put, sector


def pause(sandbox_id, **values):
    sandbox(sandbox_id).Pause(options(values), timeout=120)


def resume(sandbox_id):
    sandbox(sandbox_id).Resume(options({}), timeout=120)


def test_memory_and_disk_go_on(clean):
    with counting("--label", "a=b", "--hostname", "name") as sandbox_id:
        put(sandbox_id, 30, "kept")
        uid = run("stat", "-c", "%u", f"/proc/{prop(sandbox_id, 'VMMPID')}").stdout
        before = count(sandbox_id)
        pause(sandbox_id)
        assert prop(sandbox_id, "State") == "paused"
        assert prop(sandbox_id, "VMMPID") == 0
        resume(sandbox_id)
        assert prop(sandbox_id, "State") == "running"
        assert prop(sandbox_id, "Start") == "restored"
        assert goes_on(sandbox_id) >= before
        assert sector(sandbox_id, 30) == "kept"
        assert prop(sandbox_id, "Hostname") == "name"
        assert prop(sandbox_id, "Labels") == {"a": "b"}
        assert run("stat", "-c", "%u", f"/proc/{prop(sandbox_id, 'VMMPID')}").stdout != uid
