# SPDX-License-Identifier: Apache-2.0
"""Creating, using and ending a sandbox, and what systemd sees of it."""

import json
import subprocess

from cubetest import (active, created, ctl, ctl_ok, events, journal, manager, options, prop, run, sandbox_ids,
                      wait_for)


def test_create_prints_the_id_alone_and_kill_removes_everything(clean):
    out = ctl("create")
    assert out.returncode == 0 and out.stderr == b""
    sandbox_id = out.stdout.decode()
    assert sandbox_id.endswith("\n") and sandbox_id.count("\n") == 1
    sandbox_id = sandbox_id.strip()
    assert active(f"cube-{sandbox_id}.scope")
    assert ctl("kill", sandbox_id).returncode == 0
    assert sandbox_id not in sandbox_ids()


def test_run_passes_output_and_exit_status(clean):
    result = ctl("run", "--", "echo", "one", "two")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"one two\n", b"")
    assert ctl("run", "--", "exit", "7").returncode == 7


def test_list_and_show_tell_what_was_asked_for(clean):
    with created("--memory", "96M", "--cpus", "2", "--label", "job=17", "--timeout", "1h") as sandbox_id:
        listed = {entry["id"]: entry for entry in json.loads(ctl_ok("list", "--json=short"))}
        assert listed[sandbox_id]["state"] == "running"
        assert ctl_ok("show", "-p", "Memory", "--value", sandbox_id).strip() in ("96M", str(96 << 20))
        assert prop(sandbox_id, "CPUs") == 2
        assert prop(sandbox_id, "Labels") == {"job": "17"}
        assert prop(sandbox_id, "Start") == "booted"


def test_stop_powers_the_guest_off(clean):
    with created() as sandbox_id:
        assert ctl("stop", sandbox_id).returncode == 0
        assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "poweroff"


def test_a_guest_that_does_not_power_off_is_ended(template, clean):
    with created("--template", template("ignore-poweroff")) as sandbox_id:
        assert ctl("stop", sandbox_id).returncode == 0
        assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "stop-timeout"


def test_the_scope_is_an_ordinary_unit(clean):
    with created() as sandbox_id:
        scope = f"cube-{sandbox_id}.scope"
        status = run("systemctl", "status", "--no-pager", scope).stdout.decode()
        assert "cube-vmm" in status and sandbox_id in status
        assert "cube-vmm" in run("systemd-cgls", "--no-pager", "-u", "cube.slice").stdout.decode()
        shown = run("systemctl", "show", scope).stdout.decode()
        assert "Slice=cube.slice" in shown and "DevicePolicy=closed" in shown and "OOMPolicy=kill" in shown
        run("systemctl", "stop", scope, check=True)
        wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
        assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "poweroff"


def test_a_killed_vmm_is_noticed(clean):
    with created() as sandbox_id:
        run("kill", "-9", prop(sandbox_id, "VMMPID"), check=True)
        wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
        assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "signal"


def test_the_journal_tells_the_whole_life(clean):
    with created() as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "true")
        ctl_ok("stop", sandbox_id)
        assert events(sandbox_id) == ["create", "start", "exec", "stop", "exit"]
        for entry in journal(sandbox_id):
            assert entry["CUBE_OWNER_UID"] == "0" and len(entry["MESSAGE_ID"]) == 32


def test_lifetime_ends_it(clean):
    sandbox_id = ctl_ok("create", "--timeout", "1s").strip()
    wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
    assert ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip() == "timeout"


def test_a_client_that_is_killed_takes_its_sandbox_along(clean):
    before = set(sandbox_ids())
    with subprocess.Popen(["cubectl", "run", "--", "sleep", "600"], stdin=subprocess.DEVNULL) as p:
        fresh = wait_for("the sandbox", lambda: set(sandbox_ids()) - before)
        wait_for("the program", lambda: "exec" in events(list(fresh)[0]))
        p.kill()
    wait_for("the sandbox to be gone", lambda: not (set(sandbox_ids()) & fresh))


def test_request_id_makes_create_repeatable(clean):
    m = manager()
    first, _ = m.CreateSandbox("template:payload", options({"request-id": "abc"}))
    second, _ = m.CreateSandbox("template:payload", options({"request-id": "abc"}))
    assert first == second
    ctl_ok("kill", first)
