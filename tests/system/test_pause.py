# SPDX-License-Identifier: Apache-2.0
"""Linux guests are paused to disk and resumed: with their memory they go on, without it they boot from what they had written."""

import json
import os
import time

from cubetest import created, created_from, ctl_ok, prop, run, wait_for
from linuxguest import has_all, put_all

CYCLES = 50 if os.environ.get("CUBE_LONG") == "1" else 5

# Counts in memory; each time notes it in a tmpfs, and one byte more in a file on the disk that has no name any more.
WORKER = """
import json, os, time
kept = open('/root/unlinked', 'w+b', buffering=0)
os.unlink('/root/unlinked')
n, bad, gap, last = 0, 0, 0, time.monotonic()
while True:
    n += 1
    kept.write(b'x')
    now = time.monotonic()
    gap, last = max(gap, now - last), now
    bad += os.fstat(kept.fileno()).st_size != n
    with open('/mnt/new', 'w') as f:
        json.dump({'n': n, 'bad': bad, 'gap': gap, 'pid': os.getpid()}, f)
    os.rename('/mnt/new', '/mnt/state')
    time.sleep(0.05)
"""


def sh(sandbox_id, script):
    return ctl_ok("exec", sandbox_id, "--", "sh", "-c", script)


def start_worker(sandbox_id):
    run("cubectl", "exec", sandbox_id, "--", "sh", "-c", "mount -t tmpfs tmpfs /mnt && cat >/root/worker.py", check=True,
        input=WORKER.encode())
    sh(sandbox_id, "setsid python3 /root/worker.py </dev/null >/root/log 2>&1 & (setsid sh -c 'sleep 100000; exit 3' >/dev/null 2>&1 &)")
    return wait_for("the worker to work", lambda: (w := worker(sandbox_id)) and w["n"] > 3 and w)


def worker(sandbox_id):
    text = sh(sandbox_id, "cat /mnt/state 2>/dev/null || :")
    return json.loads(text) if text else None


def went_on(sandbox_id, before):
    """The same processes, which missed nothing and for which no time has passed."""
    now = wait_for("it to count on", lambda: (w := worker(sandbox_id)) and w["n"] > before["n"] and w)
    assert (now["pid"], now["bad"]) == (before["pid"], 0)
    assert "sleep 100000" in sh(sandbox_id, "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '")
    # realtime is the host's, but for the way here
    began = time.time()
    theirs = float(sh(sandbox_id, "date +%s.%N"))
    assert began - 1 <= theirs <= time.time() + 1
    return now


def boot_id(sandbox_id):
    return sh(sandbox_id, "cat /proc/sys/kernel/random/boot_id")


def restart_cubed():
    """What the next cubed knows of a paused one is on disk: /run has nothing of it, before a reboot as behind one."""
    run("systemctl", "stop", "cubed.service", check=True)
    assert not set(os.listdir("/run/cubed/sandbox")) & {i for i in os.listdir("/var/lib/cubed/sandboxes") if "." not in i}
    run("systemctl", "start", "cubed.service", check=True)


def test_all_that_was_in_it_goes_on():
    with created("--memory", "512M", "--timeout", "1h") as sandbox_id:
        state = start_worker(sandbox_id)
        boot = boot_id(sandbox_id)
        for between in (lambda: None, lambda: time.sleep(20), restart_cubed):
            ctl_ok("pause", sandbox_id)
            assert prop(sandbox_id, "State") == "paused"
            between()
            ctl_ok("resume", sandbox_id)
            assert prop(sandbox_id, "Start") == "restored"
            state = went_on(sandbox_id, state)
            assert boot_id(sandbox_id) == boot
        # 20 s on disk are no time to who sleeps for 50 ms
        assert state["gap"] < 15


def test_without_memory_its_files_are_whole():
    with created("--memory", "512M", "--timeout", "1h") as sandbox_id:
        boot = boot_id(sandbox_id)
        # what is written is not synced by anybody, and is being written
        sh(sandbox_id, "for i in $(seq 200); do echo $i >/root/file-$i; done; head -c 8M /dev/urandom >/root/big; sha256sum /root/big >/root/sum; "
                       "(setsid sh -c 'while :; do date >>/root/busy; done' >/dev/null 2>&1 &)")
        ctl_ok("pause", "--no-memory", sandbox_id)
        restart_cubed()
        ctl_ok("resume", sandbox_id)
        assert prop(sandbox_id, "Start") == "booted"
        assert boot_id(sandbox_id) != boot
        assert sh(sandbox_id, "sha256sum --quiet -c /root/sum && for i in $(seq 200); do [ $(cat /root/file-$i) = $i ] || echo $i; done") == ""
        assert sh(sandbox_id, "dmesg | grep -i 'ext4.*error' || :") == ""
        # and it can be paused as it is now
        ctl_ok("pause", sandbox_id)
        ctl_ok("resume", sandbox_id)
        assert prop(sandbox_id, "Start") == "restored"
        assert sh(sandbox_id, "cat /root/file-77").strip() == "77"


def test_many_times(checkers):
    with created_from(checkers().base) as sandbox_id:
        before = put_all(sandbox_id, "kept")
        for _ in range(CYCLES):
            ctl_ok("pause", sandbox_id)
            ctl_ok("resume", sandbox_id)
            now = has_all(sandbox_id, "kept")
            assert now["processes"] == before["processes"]
            assert now["count"] >= before["count"] and now["monotonic"] >= before["monotonic"]
            before = now
