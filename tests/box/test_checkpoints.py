# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: saved by themselves before each exec or at an interval, numbered, bounded, and to be rolled back to."""

import concurrent.futures
import contextlib
import glob
import os
import signal
import subprocess

from cubetest import (another_helper, created, ctl, ctl_ok, journal, manager, options, prop, run, sandbox_ids, snapshot_dirs,
                      wait_for)
from snapshots import put, sector
from test_snapshot_failures import SNAPSHOTS, small_disk, stored_pid  # noqa: F401

LIMITS = "/etc/cubed/cubed.conf.d/70-checkpoints.conf"


def numbers(sandbox_id):
    rows = manager().ListSnapshots(options({"sandbox": sandbox_id, "kind": "checkpoint"}))
    return sorted(int(row[3]) for row in rows)


def true(sandbox_id):
    ctl_ok("exec", sandbox_id, "--", "true")


@contextlib.contextmanager
def limited(text):
    with open(LIMITS, "w", encoding="ascii") as f:
        f.write("[Limits]\n" + text)
    manager().Reload()
    try:
        yield
    finally:
        os.unlink(LIMITS)
        manager().Reload()


@contextlib.contextmanager
def checkpointing(how="exec"):
    with created("--timeout", "1h", "--checkpoint", how) as sandbox_id:
        yield sandbox_id


def test_one_before_each_exec(clean):
    with checkpointing() as sandbox_id:
        assert prop(sandbox_id, "Checkpoint") == "exec"
        assert numbers(sandbox_id) == []
        for i in range(3):
            put(sandbox_id, 4, f"word{i}")      # checkpoint i + 1 is from before it
        assert numbers(sandbox_id) == [1, 2, 3]
        entries = journal(sandbox_id, "CUBE_EVENT=snapshot")
        assert [entry["CUBE_CHECKPOINT"] for entry in entries] == ["1", "2", "3"]
        for entry in entries:
            assert int(entry["CUBE_PAUSE_USEC"]) > 0
            assert int(entry["CUBE_SNAPSHOT_BYTES"]) > 0 and int(entry["CUBE_SNAPSHOT_PAGES"]) > 0
        ctl_ok("rollback", "--to", "3", sandbox_id)
        assert sector(sandbox_id, 4) == "word1"


def test_numbers_go_on_and_later_ones_stay(clean_again):
    with checkpointing() as sandbox_id:
        for i in range(4):
            put(sandbox_id, 4, f"word{i}")
        ctl_ok("rollback", "--to", "2", sandbox_id)
        assert numbers(sandbox_id) == [1, 2, 3, 4]
        assert sector(sandbox_id, 4) == "word0"
        assert numbers(sandbox_id) == [1, 2, 3, 4, 5]
        ctl_ok("rollback", "--to", "4", sandbox_id)
        assert sector(sandbox_id, 4) == "word2"
        run("systemctl", "restart", "cubed.service", check=True)
        true(sandbox_id)
        assert numbers(sandbox_id) == [1, 2, 3, 4, 5, 6, 7]


def test_at_an_interval(clean):
    with checkpointing("1s") as sandbox_id:
        assert prop(sandbox_id, "CheckpointIntervalUSec") == 1_000_000
        wait_for("two of them", lambda: len(numbers(sandbox_id)) >= 2)
        put(sandbox_id, 4, "late")
        assert numbers(sandbox_id)[0] == 1
        ctl_ok("rollback", "--to", "1", sandbox_id)
        assert sector(sandbox_id, 4) == ""
        last = numbers(sandbox_id)[-1]
        wait_for("it to go on", lambda: numbers(sandbox_id)[-1] > last)


def test_the_oldest_go_when_there_are_too_many(clean):
    with limited("CheckpointsMax=3\n"), checkpointing() as sandbox_id:
        for i in range(12):
            put(sandbox_id, 4, f"word{i}")
        wait_for("the oldest to go", lambda: numbers(sandbox_id) == [10, 11, 12])
        # of those that went, layers stay that others stand on: no more than a few
        wait_for("their layers to be merged", lambda: len(snapshot_dirs()) <= 3 + 3)
        ctl_ok("rollback", "--to", "10", sandbox_id)
        assert sector(sandbox_id, 4) == "word8"      # looking takes the next one
        wait_for("the oldest to go", lambda: numbers(sandbox_id) == [11, 12, 13])
        assert ctl("rollback", "--to", "10", sandbox_id).returncode != 0
        ctl_ok("rollback", "--to", "12", sandbox_id)
        assert sector(sandbox_id, 4) == "word10"


def test_the_oldest_go_when_they_are_too_large(clean):
    with limited("CheckpointBytesMax=1K\n"), checkpointing() as sandbox_id:
        for _ in range(3):
            true(sandbox_id)
        wait_for("all but the youngest to go", lambda: numbers(sandbox_id) == [3])


def test_they_go_with_their_sandbox(clean):
    before = snapshot_dirs()
    with checkpointing() as sandbox_id:
        for _ in range(6):
            true(sandbox_id)
        assert len(snapshot_dirs() - before) >= 6
    wait_for("it to be gone", lambda: sandbox_id not in sandbox_ids())
    wait_for("they to be gone", lambda: snapshot_dirs() == before)


def test_the_store_dies_in_one(clean_again):
    with checkpointing() as sandbox_id:
        true(sandbox_id)
        pid = stored_pid()
        os.kill(pid, signal.SIGSTOP)
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "echo", "runs"], stdout=subprocess.PIPE) as p:
            wait_for("it to be under way", lambda: any(os.path.getsize(f) > 0 for f in glob.glob(f"{SNAPSHOTS}/.new-*/state")))
            os.kill(pid, signal.SIGKILL)
            assert p.communicate(timeout=60)[0] == b"runs\n"
        assert p.returncode == 0
        another_helper("cube-stored", pid)
        true(sandbox_id)
        assert numbers(sandbox_id) == [1, 3]
    run("systemctl", "restart", "cubed.service", check=True)  # what was being made goes with the next start


def test_failures_fail_no_exec_and_are_not_told_each(small_disk):  # noqa: F811
    with checkpointing() as sandbox_id:
        st = os.statvfs("/var/lib/cubed")
        with open("/var/lib/cubed/filler", "wb") as f:
            f.write(bytes(st.f_bavail * st.f_bsize))
        for i in range(5):
            assert ctl_ok("exec", sandbox_id, "--", "echo", f"word{i}") == f"word{i}\n"
        (entry,) = journal(sandbox_id, "CUBE_EVENT=snapshot-failed")
        assert "no space left" in entry["MESSAGE"]
        assert numbers(sandbox_id) == []
        os.unlink("/var/lib/cubed/filler")
        true(sandbox_id)
        assert numbers(sandbox_id) == [6]


def test_several_execs_at_once(clean):
    """They share one that is from before all of them."""
    with checkpointing() as sandbox_id:
        with concurrent.futures.ThreadPoolExecutor(25) as pool:
            outs = [pool.submit(ctl_ok, "exec", sandbox_id, "--", "echo", f"word{i}") for i in range(25)]
            assert [out.result() for out in outs] == [f"word{i}\n" for i in range(25)]
        assert numbers(sandbox_id)
        assert not journal(sandbox_id, "CUBE_EVENT=snapshot-failed")
