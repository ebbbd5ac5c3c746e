# SPDX-License-Identifier: Apache-2.0
"""Copies of a running sandbox: each a sandbox of its own from that instant on, and the parent goes on."""

import json
import os
import pathlib
import subprocess

import dbus
import pytest

from cubetest import (ERROR, ROOT, at_rest, crash, created, ctl, ctl_ok, manager, nothing_left_since, options, prop, sandbox,
                      sandbox_ids, snapshot_dirs, wait_for)
from snapshots import count, counting, goes_on, put, sector


@pytest.fixture
def forked(clean):
    """forked(ID, N, ...): the ids of N copies that are gone afterwards."""
    made = []

    def fork(sandbox_id, n, **values):
        results = sandbox(sandbox_id).Fork(dbus.UInt32(n), options(values), timeout=120)
        made.extend(str(r[1]) for r in results if r[0])
        return results

    def fork_ids(sandbox_id, n, **values):
        results = fork(sandbox_id, n, **values)
        assert all(r[0] for r in results), results
        return [str(r[1]) for r in results]

    fork_ids.results = fork
    yield fork_ids
    for sandbox_id in made:
        ctl("kill", sandbox_id)


def test_copies_and_parent_go_their_own_ways(forked):
    with counting() as parent:
        put(parent, 100, "early")
        before = count(parent)
        with subprocess.Popen(["cubectl", "exec", parent, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
            cat.stdin.write(b"before\n")
            cat.stdin.flush()
            assert cat.stdout.readline() == b"before\n"
            copies = forked(parent, 3)
            assert len(set(copies)) == 3 and parent not in copies
            cat.stdin.write(b"after\n")
            cat.stdin.close()
            assert cat.stdout.readline() == b"after\n"
        put(parent, 100, "parent's")
        for copy in copies:
            assert count(copy) >= before
            assert sector(copy, 100) == "early"
            put(copy, 100, copy)
            goes_on(copy)
        assert [sector(copy, 100) for copy in copies] == copies
        assert sector(parent, 100) == "parent's"
        assert {prop(copy, "Start") for copy in copies} == {"restored"}
        assert len({os.stat(f"/proc/{int(prop(copy, 'VMMPID'))}").st_uid for copy in copies + [parent]}) == 4
        goes_on(parent)


def test_forks_of_a_fork_of_a_fork(forked):
    """More generations than a VMM has layers: they are merged behind the scenes."""
    with counting() as parent:
        put(parent, 7, "root")
        line, (copy,) = ["root"], forked(parent, 1)
        for i in range(9):
            assert sector(copy, 7) == line[-1]
            goes_on(copy)
            put(copy, 7, f"generation{i}")
            line.append(f"generation{i}")
            (child,) = forked(copy, 1)
            if i % 2:
                ctl_ok("kill", copy)
            copy = child
        assert sector(copy, 7) == line[-1]
        assert sector(parent, 7) == "root"
        goes_on(copy)
        goes_on(parent)


def test_each_succeeds_or_fails_on_its_own(forked):
    """Root has no quota of its own: MaxSandboxes= is lowered to what is there and two more."""
    with created("--timeout", "1h") as parent:
        path = "/etc/cubed/cubed.conf.d/60-quota.conf"
        with open(path, "w", encoding="ascii") as f:
            f.write(f"[Limits]\nMaxSandboxes={len(sandbox_ids()) + 2}\n")
        try:
            manager().Reload()
            results = forked.results(parent, 4)
            assert sorted(int(r[0]) for r in results) == [0, 0, 1, 1]
            for ok, copy, path_of, name, message in results:
                if ok:
                    assert path_of == f"{ROOT}/sandbox/{copy}" and not name and prop(copy, "State") == "running"
                else:
                    assert (copy, path_of, name) == ("", "/", ERROR + "QuotaExceeded") and "MaxSandboxes=" in message
        finally:
            with open(path, "w", encoding="ascii") as f:
                f.write("")
            manager().Reload()
        assert ctl_ok("exec", parent, "--", "echo", "on") == "on\n"


def test_the_saved_state_goes_with_the_last_that_needs_it(forked):
    before = snapshot_dirs()
    with created("--timeout", "1h") as parent:
        copies = forked(parent, 2)
        assert len(snapshot_dirs() - before) == 1
    wait_for("the parent to be gone", lambda: parent not in sandbox_ids())
    put(copies[0], 3, "alive")
    assert sector(copies[0], 3) == "alive"
    assert len(snapshot_dirs() - before) == 1
    for copy in copies:
        ctl_ok("kill", copy)
    wait_for("it to be gone", lambda: snapshot_dirs() == before)


def test_what_a_copy_can_have_of_its_own(forked):
    with created("--timeout", "1h") as parent:
        (copy,) = forked(parent, 1, timeout=dbus.UInt64(1234_000_000), labels=dbus.Dictionary({"k": "v"}, signature="ss"))
        assert prop(copy, "Labels") == {"k": "v"}
        assert prop(parent, "Labels") == {}
        assert prop(copy, "TimeoutUSec") == 1234_000_000


def test_the_parent_is_killed_in_it(clean):
    """What was made by then is told, and nothing else is left."""
    for _ in range(3):
        parent = ctl_ok("create", "--timeout", "1h").strip()
        with subprocess.Popen(["cubectl", "fork", "-n", "3", parent], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            ctl("kill", parent)
            out, _ = p.communicate(timeout=60)
        reply = out.decode().split()
        for copy in reply:
            if copy in sandbox_ids():
                ctl("kill", copy)


def untold():
    """Copies that run, of which nobody was told yet."""
    for path in pathlib.Path("/run/cubed/sandbox").glob("*/state.json"):
        try:
            state = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        if state["state"] == "running" and state["untold"]:
            yield state["id"]


def test_cubed_is_killed_in_it(template):
    """Nobody is told of the copies that were made by then, and the next cubed ends them."""
    before = at_rest()
    with created("--timeout", "1h") as parent:
        for _ in range(20):
            with subprocess.Popen(["cubectl", "fork", "-n", "20", parent], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
                wait_for("a copy", lambda: any(untold()) or p.poll() is not None)
                crash()
                copies, _ = p.communicate(timeout=60)
            if p.returncode != 0:
                break
            assert len(copies.split()) == 20
            ctl_ok("kill", *copies.decode().split())
        else:
            pytest.fail("it was never amid it")
        assert not copies
        wait_for("the copies to be gone", lambda: sandbox_ids() == [parent])
        assert prop(parent, "State") == "running"
    nothing_left_since(before, but=["fds"])
