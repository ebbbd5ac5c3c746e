# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around a rollback, with the real VMM: the sandbox goes on as it was."""

import concurrent.futures
import contextlib
import glob
import os
import signal

import pytest

from cubetest import (another_helper, bus, crash, created_from, ctl, ctl_ok, descriptors, options, prop, remove_snapshot,
                      remove_snapshots, run, sandbox, sandbox_ids, snapshot, snapshot_dirs, wait_for)
from snapshots import count, counting, goes_on, put, sector
from test_restart import restart
from test_rollback import refused, rollback
from test_snapshot_failures import SNAPSHOTS, stored_pid


@contextlib.contextmanager
def in_the_middle(sandbox_id, instant):
    """A rollback whose safety copy is being made, where cube-stored stands still; the future answer."""
    pid = stored_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(sandbox(sandbox_id, bus()).Rollback, instant, options({}), timeout=120)
            wait_for("its state to be saved", lambda: any(os.path.getsize(f) > 0 for f in glob.glob(f"{SNAPSHOTS}/.new-*/state")))
            yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def to_be_rolled_back():
    """A sandbox with "old" in sector 5 of its snapshot, and "new" there now."""
    with counting() as sandbox_id:
        put(sandbox_id, 5, "old")
        instant = snapshot(sandbox_id)
        put(sandbox_id, 5, "new")
        try:
            yield sandbox_id, instant
        finally:
            ctl("kill", sandbox_id)
            remove_snapshot(instant)


def test_a_capture_that_fails(clean_again):
    with to_be_rolled_back() as (sandbox_id, instant):
        before = snapshot_dirs()
        with in_the_middle(sandbox_id, instant) as job:
            pid = stored_pid()
            os.kill(pid, signal.SIGKILL)
            assert "cube-stored" in str(job.exception())
        assert snapshot_dirs() == before
        assert sector(sandbox_id, 5) == "new"
        another_helper("cube-stored", pid)
        rollback(sandbox_id, instant)
        assert sector(sandbox_id, 5) == "old"
    restart()


@pytest.mark.parametrize("which", ["memory", "disk", "state"])
def test_a_file_of_the_target_that_is_damaged(clean, which):
    with to_be_rolled_back() as (sandbox_id, instant):
        (path,) = glob.glob(f"{SNAPSHOTS}/{instant}/{which}*")
        os.truncate(path, os.path.getsize(path) + 4096)
        assert "can't be used" in refused("SnapshotInvalid", sandbox_id, instant)
        assert sector(sandbox_id, 5) == "new"
        goes_on(sandbox_id)


def test_killed_in_it(clean):
    with to_be_rolled_back() as (sandbox_id, instant):
        before = snapshot_dirs()
        with in_the_middle(sandbox_id, instant) as job:
            assert ctl("kill", sandbox_id).returncode == 0
            wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
            assert job.exception()
        assert snapshot_dirs() == before


def test_what_is_asked_in_it_is_answered(clean):
    """What waits when the guest is replaced is not given to the one that takes over."""
    with to_be_rolled_back() as (sandbox_id, instant):
        with in_the_middle(sandbox_id, instant) as job:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                word = pool.submit(ctl, "exec", sandbox_id, "--", "echo", "word")
                assert prop(sandbox_id, "State") == "running"
                os.kill(stored_pid(), signal.SIGCONT)
                job.result()
                result = word.result(60)
        assert result.returncode == 0 and result.stdout == b"word\n" or b"rolled back" in result.stderr
        assert sector(sandbox_id, 5) == "old"


@contextlib.contextmanager
def limit_comes_back(sandbox_id):
    """What its scope may have is raised, as for a rollback to when its guest had more, and has to come down again."""
    def limit():
        return run("systemctl", "show", "--value", "-p", "MemoryMax", f"cube-{sandbox_id}.scope", check=True).stdout.strip()

    before = limit()
    run("systemctl", "set-property", "--runtime", f"cube-{sandbox_id}.scope", "MemoryMax=3G", check=True)
    assert limit() == b"3221225472" != before
    yield
    wait_for("its memory limit to be settled", lambda: limit() == before)


@pytest.mark.parametrize("again", [restart, crash])
def test_cubed_is_restarted_in_it(clean_again, again):
    with to_be_rolled_back() as (sandbox_id, instant):
        before = snapshot_dirs()
        with in_the_middle(sandbox_id, instant) as job, limit_comes_back(sandbox_id):
            again()
            assert job.exception()
        assert sector(sandbox_id, 5) == "new"
        goes_on(sandbox_id)
        wait_for("the safety copy to be gone", lambda: snapshot_dirs() == before)
        rollback(sandbox_id, instant)
        assert sector(sandbox_id, 5) == "old"
        assert count(sandbox_id) > 0


def test_cubed_is_killed_while_it_waits_for_the_agent(clean_again):
    """The guest of the target runs: then it is that one, and the safety copy goes."""
    with counting() as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "ignore-claims")
        put(sandbox_id, 5, "old")
        instant = snapshot(sandbox_id)
        ctl_ok("exec", sandbox_id, "--", "heed-claims")
        put(sandbox_id, 5, "new")
        before = snapshot_dirs()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(sandbox(sandbox_id, bus()).Rollback, instant, options({}), timeout=120)
            wait_for("the safety copy", lambda: snapshot_dirs() - before)
            wait_for("the other guest to run", lambda: count_of_vmm_overlay(sandbox_id))
            with limit_comes_back(sandbox_id):
                crash()
                assert job.exception()
        assert sector(sandbox_id, 5) == "old"
        assert prop(sandbox_id, "BaseSnapshot") == instant
        wait_for("the safety copy to be gone", lambda: snapshot_dirs() == before)
        with created_from(snapshot_of(sandbox_id)) as child:
            assert sector(child, 5) == "old"
    remove_snapshots(snapshot_dirs() - before | {instant})


def snapshot_of(sandbox_id):
    ctl_ok("exec", sandbox_id, "--", "heed-claims")
    return snapshot(sandbox_id)


def count_of_vmm_overlay(sandbox_id):
    """Does its VMM have the new overlay open, and not the old one as one that is written to?"""
    pid = int(prop(sandbox_id, "VMMPID"))
    return any(link.endswith(f"{sandbox_id}.new") for link in descriptors(pid).values())
