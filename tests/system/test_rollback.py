# SPDX-License-Identifier: Apache-2.0
"""Rollback and forks of Linux guests: memory, disk, tmpfs, open files and processes are those of then, clocks are right,
and no two copies draw the same random numbers."""

import contextlib
import json
import time

import dbus
import pytest

from cubetest import created, ctl, ctl_ok, options, prop, remove_snapshot, run, sandbox, snapshot

# It has one word in a variable, a tmpfs, a file on disk and a file that it keeps open, and a thread that counts.
CHECKER = r"""
import json, os, socket, sys, threading, time
state = {"word": "", "count": 0}
kept = open("/root/kept", "w+")
def work():
    while True:
        state["count"] += 1
        time.sleep(0.01)
threading.Thread(target=work, daemon=True).start()
s = socket.socket(socket.AF_UNIX)
s.bind("/root/checker")
s.listen()
while True:
    c, _ = s.accept()
    word = c.recv(1000).decode()
    if word != "?":
        state["word"] = word
        for path in "/dev/shm/word", "/root/word":
            with open(path, "w") as f:
                f.write(word)
                f.flush()
                os.fsync(f.fileno())
        kept.seek(0)
        kept.truncate()
        kept.write(word)
        kept.flush()
    kept.seek(0)
    words = {state["word"], open("/dev/shm/word").read(), open("/root/word").read(), kept.read()}
    answer = {"words": sorted(words), "count": state["count"], "pid": os.getpid(), "monotonic": time.monotonic(),
              "boottime": time.clock_gettime(time.CLOCK_BOOTTIME), "random": os.urandom(16).hex(), "time": time.time()}
    c.send(json.dumps(answer).encode())
    c.close()
"""
ASK = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('/root/checker'); s.send(sys.argv[1].encode()); " \
      "print(s.recv(10000).decode())"


def ask(sandbox_id, word="?"):
    """What the checker has. Its clock shows the host's time to within a second."""
    before = time.time()
    answer = json.loads(ctl_ok("exec", sandbox_id, "--", "python3", "-c", ASK, word))
    assert before - 1 <= answer["time"] <= time.time() + 1
    return answer


def has(sandbox_id, word):
    answer = ask(sandbox_id)
    assert answer["words"] == [word]
    return answer


@contextlib.contextmanager
def checked(*arguments):
    with created("--timeout", "1h", *arguments) as sandbox_id:
        run("cubectl", "exec", sandbox_id, "--", "sh", "-c", "cat >/root/checker.py", input=CHECKER.encode(), check=True)
        ctl_ok("exec", sandbox_id, "--", "sh", "-c", "setsid python3 /root/checker.py </dev/null >/root/log 2>&1 &")
        ctl_ok("exec", sandbox_id, "--", "sh", "-c", "while ! test -S /root/checker; do sleep 0.1; done")
        yield sandbox_id


@pytest.mark.parametrize("cpus", [1, 2])
def test_all_is_as_it_was_then(cpus):
    with checked("--memory", "512M", "--cpus", cpus) as sandbox_id:
        first = ask(sandbox_id, "first")
        one = snapshot(sandbox_id)
        between = ask(sandbox_id)
        ask(sandbox_id, "second")
        two = snapshot(sandbox_id)
        ask(sandbox_id, "third")
        ctl_ok("exec", sandbox_id, "--", "rm", "/root/word")
        randoms = {first["random"], between["random"]}
        for target, word in (one, "first"), (two, "second"), (one, "first"):
            began = time.monotonic()
            sandbox(sandbox_id).Rollback(target, options({}), timeout=600)
            answer = has(sandbox_id, word)
            assert answer["pid"] == first["pid"]
            assert answer["random"] not in randoms
            randoms.add(answer["random"])
            if target == one:
                for clock in "monotonic", "boottime":
                    assert first[clock] <= answer[clock] <= between[clock] + time.monotonic() - began
                assert first["count"] <= answer["count"]
            assert ask(sandbox_id)["count"] > answer["count"]
            ask(sandbox_id, "spoilt")
        assert ctl_ok("exec", sandbox_id, "--", "nproc").strip() == str(cpus)
    for snapshot_id in (two, one):
        remove_snapshot(snapshot_id)


def test_copies_differ_in_what_must_differ():
    with checked("--memory", "512M") as sandbox_id:
        parent = ask(sandbox_id, "common")
        results = sandbox(sandbox_id).Fork(dbus.UInt32(3), options({}), timeout=600)
        copies = [str(r[1]) for r in results]
        try:
            assert all(r[0] for r in results), results
            answers = [has(copy, "common") for copy in copies] + [has(sandbox_id, "common")]
            assert {answer["pid"] for answer in answers} == {parent["pid"]}
            assert len({answer["random"] for answer in answers}) == 4
            names = [ctl_ok("exec", copy, "--", "hostname").strip() for copy in copies]
            assert names == copies
            for copy in copies:
                ask(copy, copy)
            for copy in copies:
                has(copy, copy)
            has(sandbox_id, "common")
        finally:
            for copy in copies:
                ctl("kill", copy)


def test_hooks_run_in_a_copy_and_the_journal_tells_of_one_that_fails():
    hooks = """mkdir -p /etc/cube/fork.d; cd /etc/cube/fork.d
        printf '#!/bin/sh\necho $CUBE_EPOCH >>/root/epochs\n' >10-good
        printf '#!/bin/sh\necho no luck\nexit 3\n' >20-bad
        chmod 755 *"""
    with created("--timeout", "1h") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "sh", "-c", hooks)
        made, copy, *why = sandbox(sandbox_id).Fork(dbus.UInt32(1), options({}), timeout=600)[0]
        assert made, why
        try:
            epochs = ctl_ok("exec", copy, "--", "cat", "/root/epochs").split()
            assert len(epochs) == 1 and int(epochs[0]) > 1
            told = run("journalctl", "-u", "cubed.service", "-o", "cat", "--no-pager", "-g", copy).stdout.decode()
            assert "20-bad" in told and "no luck" in told
            assert ctl("exec", sandbox_id, "--", "test", "-e", "/root/epochs").returncode == 1
        finally:
            ctl("kill", copy)


def mem_total(sandbox_id):
    for line in ctl_ok("exec", sandbox_id, "--", "cat", "/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no MemTotal")


def set_memory(sandbox_id, size):
    sandbox(sandbox_id).SetLimits(options({"memory": dbus.UInt64(size)}), timeout=600)


def memory_max(sandbox_id):
    return int(run("systemctl", "show", "-P", "MemoryMax", f"cube-{sandbox_id}.scope", check=True).stdout)


def test_memory_is_as_much_as_then():
    """More that was plugged since goes, what was plugged then is there again, and the scope's limit fits."""
    with checked("--memory", "512M") as sandbox_id:
        ask(sandbox_id, "small")
        small, small_total, small_max = snapshot(sandbox_id), mem_total(sandbox_id), memory_max(sandbox_id)
        set_memory(sandbox_id, 768 << 20)
        ask(sandbox_id, "large")
        large, large_total, large_max = snapshot(sandbox_id), mem_total(sandbox_id), memory_max(sandbox_id)
        assert large_total > small_total + (200 << 20)
        for target, word, size, total, limit in ((small, "small", 512, small_total, small_max),
                                                 (large, "large", 768, large_total, large_max)):
            sandbox(sandbox_id).Rollback(target, options({}), timeout=600)
            has(sandbox_id, word)
            assert prop(sandbox_id, "Memory") == size << 20
            assert abs(mem_total(sandbox_id) - total) < 8 << 20
            assert memory_max(sandbox_id) == limit
        # all of it is there
        ctl_ok("exec", sandbox_id, "--", "python3", "-c", "x = bytearray(600 << 20); x[::4096] = b'x' * len(x[::4096])")
    for snapshot_id in (large, small):
        remove_snapshot(snapshot_id)
