# SPDX-License-Identifier: Apache-2.0
"""An agent that means harm, answering cubed and cubectl (tests/payload/hostile-agent.c): that call fails with an error that
says so, or that one sandbox ends; cubed stays as large as it was, and a neighbour notices nothing."""

import contextlib
import os
import subprocess
import time
from concurrent import futures

import dbus
import pytest

from cubetest import (ERROR, NAME, ROOT, SANDBOX, bus, created, ctl, ctl_ok, cubed_pid, events, journal, leftovers, loop_is_free,
                      manager, options, prop, sandbox, sandbox_ids, snapshot, wait_for)
from test_pause_restart import ask

FAILED, TIMEOUT = ERROR + "GuestFailed", ERROR + "GuestTimeout"
FILE = ("file", 0o100644, 7)


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:")) << 10


def is_alive(sandbox_id):
    return ctl("exec", sandbox_id, "--", "echo", "alive", timeout=60).stdout == b"alive\n"


@pytest.fixture(scope="module")
def neighbour(template):
    with created("--timeout", "1h") as sandbox_id:
        yield sandbox_id


@contextlib.contextmanager
def unharmed(neighbour, megabytes=4):
    """Whatever is done in here: cubed is the same, not larger, holds nothing, stops for nothing, and serves the neighbour."""
    assert is_alive(neighbour)
    pid, size, held = cubed_pid(), rss(cubed_pid()), leftovers()["fds"]
    manager().ResetLoopMax()
    yield
    assert is_alive(neighbour)
    assert cubed_pid() == pid
    loop_is_free()
    assert rss(pid) - size < megabytes << 20
    wait_for("its descriptors to be as before", lambda: leftovers()["fds"] <= held)


def fails(member, sandbox_id, *args, timeout=60):
    """The error that a call ends with, in that time."""
    with pytest.raises(dbus.DBusException) as e:
        getattr(sandbox(sandbox_id), member)(*args, timeout=timeout)
    assert e.value.get_dbus_name() != "org.freedesktop.DBus.Error.NoReply", member
    return e.value


def is_printable(text):
    return all(c >= 0x20 and c not in range(0x7f, 0xa0) or c == 0x0a for c in map(ord, text.decode()))


NONSENSE = ["type", "request", "no-records", "long-record", "short-record", "name-len", "tag", "two"]


@pytest.mark.parametrize("member, args, but", [("StatFile", (False,), ()), ("ListDirectory", (), ("two",))])
def test_an_answer_that_makes_no_sense_is_called_so(shared, neighbour, member, args, but):
    with unharmed(neighbour):
        for mode in NONSENSE:
            if mode in but:
                continue
            e = fails(member, shared, f"/hostile/{mode}", *args)
            assert e.get_dbus_name() == FAILED and "sense" in str(e), mode
        assert is_alive(shared)


def test_other_answers_than_the_one_that_was_asked_for_count_for_nothing(shared, neighbour):
    with unharmed(neighbour):
        for mode in "twice", "others":
            found = sandbox(shared).StatFile(f"/hostile/{mode}", False)
            assert (found[0], found[1], found[4]) == FILE
            assert sandbox(shared).StatFile("/hostile/file", False)[0] == "file"
        assert is_alive(shared)


def test_errors_of_a_guest_are_told_in_one_printable_line(shared, neighbour):
    with unharmed(neighbour):
        for mode, words in {"errno-0": "no error at all", "errno-huge": "less than nothing", "bare-error": "can't be used",
                            "message": r"\x1b]0;title\x07\x1b[2Jno\nCUBE_EVENT=kill\nFailed to do nothing",
                            "long-message": "xxxxxx"}.items():
            text = fails("StatFile", shared, f"/hostile/{mode}", False).get_dbus_message()
            assert words in text and len(text) < 2000 and "\n" not in text, mode
            result = ctl("cp", f"{shared}:/hostile/{mode}", "/tmp/none")
            assert result.returncode == 1 and result.stderr.count(b"\n") == 1 and is_printable(result.stderr), mode
    assert "kill" not in events(shared)


def test_a_guest_can_not_say_that_its_sandbox_is_gone(shared, neighbour):
    with unharmed(neighbour):
        for mode in "errno-gone", "errno-reset", "errno-not-connected":
            e = fails("StatFile", shared, f"/hostile/{mode}", False)
            assert e.get_dbus_name() == FAILED and "running" not in str(e), mode
        assert is_alive(shared)


def test_a_program_that_was_not_started(shared, neighbour):
    with unharmed(neighbour):
        for mode in "pid-0", "empty", "type", "no-records", "bare-error":
            assert fails("Exec", shared, [f"hostile-{mode}"], options({})).get_dbus_name() == FAILED, mode
        assert fails("Exec", shared, ["hostile-pid-unknown"], options({})).get_dbus_name().endswith("UnixProcessIdUnknown")
        assert is_alive(shared)


def test_a_program_that_did_not_end_that_way(shared, neighbour):
    """Its end is told twice, in numbers that can't be, or not at all: the first that makes sense counts."""
    modes = ["twice", "code", "signal", "both", "none", "garbage", "end"]
    with unharmed(neighbour):
        started = {mode: subprocess.Popen(["cubectl", "exec", shared, "--", f"hostile-exit-{mode}"], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) for mode in modes}
        for mode, p in started.items():
            _, stderr = p.communicate(timeout=60)
            assert p.returncode == (3 if mode == "twice" else 255), mode
            assert mode == "twice" or b"is lost" in stderr
        assert is_alive(shared)


@pytest.mark.parametrize("mode", ["garbage", "oversize", "hang-up"])
def test_one_that_breaks_its_control_stream_is_without_an_agent(neighbour, mode):
    with unharmed(neighbour), created() as sandbox_id:
        start = time.monotonic()
        assert fails("StatFile", sandbox_id, f"/hostile/{mode}", False).get_dbus_name() in (FAILED, TIMEOUT)
        # and not when its time to answer is over, two minutes later
        assert time.monotonic() - start < 60
        result = ctl("exec", sandbox_id, "--", "true", timeout=60)
        assert result.returncode == 255 and b"agent" in result.stderr
        assert ctl("stop", sandbox_id, timeout=60).returncode == 0
        assert sandbox_id not in sandbox_ids()


def error_name(call, *args):
    try:
        call(*args, timeout=60)
    except dbus.DBusException as e:
        return e.get_dbus_name()
    return None


@pytest.mark.parametrize("mode", ["silence", "half"])
def test_calls_that_are_never_answered_are_few_and_end_with_their_sandbox(neighbour, mode):
    with unharmed(neighbour), created() as sandbox_id, futures.ThreadPoolExecutor(8) as pool:
        connection, *others = [bus() for _ in range(9)]
        asked = [ask(other, sandbox_id, "StatFile", "sb", f"/hostile/{mode}", False) for other in others]
        waiting = [pool.submit(pending.block) for pending, _ in asked]
        for _ in range(200):
            m = dbus.lowlevel.MethodCallMessage(NAME, f"{ROOT}/sandbox/{sandbox_id}", SANDBOX, "RemoveFile")
            m.append(f"/hostile/{mode}", False, signature="sb")
            connection.send_message(m)
        connection.flush()
        wait_for("no more to be taken", lambda: error_name(sandbox(sandbox_id).StatFile, "/payload", False) == ERROR + "Busy")
        assert is_alive(neighbour)
        assert not any(call.done() for call in waiting)
        ctl_ok("kill", sandbox_id)
        futures.wait(waiting, timeout=60)
        assert [reply.get_error_name() for _, replies in asked for reply in replies] == [FAILED] * 8
        for each in connection, *others:
            each.close()


def test_a_listing_without_end_is_ended(neighbour):
    with unharmed(neighbour, megabytes=32), created() as sandbox_id:
        start = time.monotonic()
        assert "lists more than" in str(fails("ListDirectory", sandbox_id, "/hostile/more", timeout=60))
        assert time.monotonic() - start < 30
        # it goes on and on, and nobody listens
        manager().ResetLoopMax()
        for _ in range(5):
            assert is_alive(neighbour)
        assert rss(cubed_pid()) < 100 << 20


FLOODS = ["events", "answers", "large-answers", "ports", "connections"]


@pytest.mark.parametrize("mode", FLOODS)
def test_a_flood_that_nobody_asked_for_is_felt_by_nobody(neighbour, mode):
    with unharmed(neighbour), created() as sandbox_id:
        vmm = prop(sandbox_id, "VMMPID")
        size = rss(vmm)
        ctl("exec", sandbox_id, "--", "misbehave", mode, timeout=60)
        for _ in range(10):
            assert is_alive(neighbour)
        assert sandbox_id not in sandbox_ids() or rss(vmm) - size < 8 << 20
        assert len(journal(sandbox_id)) < 20
        assert prop(neighbour, "State") == "running"


def test_one_that_introduces_itself_by_many_names_has_one(neighbour):
    """To its own cubed, and to the one that goes on with a copy of it."""
    with unharmed(neighbour), created() as sandbox_id:
        ctl("exec", sandbox_id, "--", "misbehave", "names")
        wait_for("it to be back", lambda: is_alive(sandbox_id))
        monitor = subprocess.Popen(["dbus-monitor", "--system", "type='signal',member='PropertiesChanged'"], stdout=subprocess.PIPE)
        try:
            wait_for("the monitor", lambda: monitor.stdout.readline())
            fork = ctl_ok("fork", sandbox_id).strip()
            assert is_alive(neighbour)
            ctl_ok("kill", fork)
        finally:
            monitor.terminate()
        assert monitor.communicate()[0].count(b"KernelRelease") < 5


# Files.

def tree(root):
    """What is in there, links not followed."""
    return {os.path.relpath(os.path.join(base, name), root).encode(errors="surrogateescape")
            for base, dirs, names in os.walk(root) for name in dirs + names}


def test_names_lead_nowhere_but_into_the_destination(shared, neighbour, tmp_path):
    (tmp_path / "in").mkdir()
    with unharmed(neighbour):
        result = ctl("cp", "-r", f"{shared}:/hostile/names", tmp_path / "in")
    assert result.returncode == 1 and is_printable(result.stderr)
    assert {line.split(b" ")[0] for line in result.stderr.splitlines()} == {b"Left"}
    assert tree(tmp_path) == {b"in", b"in/names"} | {b"in/names/" + name for name in (
        b"good", b"\x1b[2J\x1b[31mred", b"two\nlines", rb"\xff\xfe\x80", "\x9b31m".encode(), b"\x7f", b"-rf", b"~",
        b"$(reboot)", rb"nul\x00nul", b"n" * 255, b"link")}
    assert all(os.path.isfile(tmp_path / "in/names" / name) and not os.path.islink(tmp_path / "in/names" / name)
               for name in os.listdir(tmp_path / "in/names"))
    assert not os.path.exists("/tmp/out") and not os.path.exists("/out")


def test_a_tree_without_end_has_one(shared, neighbour, tmp_path):
    with unharmed(neighbour):
        result = ctl("cp", "-r", f"{shared}:/hostile/deep", tmp_path, timeout=60)
    assert result.returncode == 1 and result.stderr.endswith(b": too deep\n")
    assert len(tree(tmp_path)) < 100


def test_contents_that_are_none_leave_no_file(shared, neighbour, tmp_path):
    with unharmed(neighbour):
        for mode in ("long-frame", "half-frame", "no-end", "errno", "end-message", "request-frame", "open-more", "open-large",
                     "open-garbage", "open-error"):
            result = ctl("cp", f"{shared}:/hostile/{mode}", tmp_path, timeout=60)
            assert result.returncode == 1 and result.stderr.count(b"\n") == 1 and is_printable(result.stderr), mode
            assert tree(tmp_path) == set(), mode
        assert is_alive(shared)


def test_who_does_not_take_a_file_is_soon_done_with(shared, neighbour, tmp_path):
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    with unharmed(neighbour):
        # one that says that all is in place before it is has only lied about itself
        for mode, may in (("end", (0, 1)), ("data", (1,)), ("open-garbage", (1,)), ("open-error", (1,))):
            result = ctl("cp", tmp_path / "file", f"{shared}:/hostile/{mode}", timeout=60)
            assert result.returncode in may and result.stderr.count(b"\n") == result.returncode, mode
        assert is_alive(shared)


def connections(sandbox_id):
    return int(sandbox(sandbox_id).GetStatistics()["vsock-connections"])


@contextlib.contextmanager
def copying(*argv):
    with subprocess.Popen(["cubectl", "cp", *argv]) as p:
        try:
            yield p
        finally:
            p.terminate()


def test_a_copy_from_one_that_says_no_more_waits_and_can_be_ended(neighbour, tmp_path):
    with unharmed(neighbour), created() as sandbox_id:
        before = connections(sandbox_id)
        with copying(f"{sandbox_id}:/hostile/stall", tmp_path / "file") as p:
            wait_for("its stream", lambda: connections(sandbox_id) > before)
            assert is_alive(sandbox_id) and p.poll() is None
        wait_for("its stream to be gone", lambda: connections(sandbox_id) == before)
    assert not os.path.exists(tmp_path / "file")


def test_a_copy_to_one_that_does_not_read_is_held_back(neighbour, tmp_path):
    """What the guest was sent waits for it, in a bounded room, for as long as it is there."""
    file = tmp_path / "file"
    file.write_bytes(bytes(32 << 20))
    with unharmed(neighbour), created() as sandbox_id:
        vmm = prop(sandbox_id, "VMMPID")
        size, before = rss(vmm), connections(sandbox_id)
        with copying(file, f"{sandbox_id}:/hostile/deaf") as p:
            wait_for("its stream", lambda: connections(sandbox_id) > before)
            for _ in range(10):
                assert is_alive(sandbox_id) and is_alive(neighbour)
            assert p.poll() is None and rss(vmm) - size < 4 << 20
        assert is_alive(sandbox_id)


# Between two lives.

@pytest.mark.parametrize("mode", ["epoch-twice", "epoch-more", "epoch-message"])
def test_a_claim_or_a_freeze_that_is_answered_strangely_is_answered(neighbour, mode):
    with unharmed(neighbour), created("--timeout", "1h") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "misbehave", mode)
        saved = snapshot(sandbox_id)
        ctl_ok("rollback", sandbox_id, saved)
        assert is_alive(sandbox_id)
        fork = ctl_ok("fork", sandbox_id).strip()
        assert is_alive(fork) and is_alive(sandbox_id)
        ctl_ok("kill", fork)
        ctl_ok("pause", "--no-memory", sandbox_id)
        ctl_ok("resume", sandbox_id)
        assert is_alive(sandbox_id)
        manager().RemoveSnapshot(saved)
    told = [entry for entry in journal(sandbox_id) if "hooks" in entry["MESSAGE"]]
    assert all(len(entry["MESSAGE"]) < 4000 and entry["MESSAGE"].isprintable() for entry in told)
    assert events(sandbox_id).count("kill") == 1


@pytest.mark.parametrize("mode", ["epoch-error", "epoch-type", "epoch-reset"])
def test_a_claim_or_a_freeze_that_is_refused_fails_that_alone(neighbour, mode):
    with unharmed(neighbour), created("--timeout", "1h") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "misbehave", mode)
        result = ctl("pause", "--no-memory", sandbox_id)
        assert result.returncode == 1 and is_printable(result.stderr) and result.stderr.count(b"\n") == 1
        assert prop(sandbox_id, "State") == "running" and is_alive(sandbox_id)
        result = ctl("fork", sandbox_id)
        # and not when its time to boot is over: that has no reason behind it
        assert result.returncode == 1 and is_printable(result.stderr) and b"did not take the claim: " in result.stderr
        assert is_alive(sandbox_id)


def test_a_freeze_that_is_never_answered_holds_up_that_pause_alone(neighbour):
    with unharmed(neighbour), created("--timeout", "1h") as sandbox_id:
        ctl_ok("exec", sandbox_id, "--", "misbehave", "epoch-silence")
        with subprocess.Popen(["cubectl", "pause", "--no-memory", sandbox_id], stderr=subprocess.PIPE) as p:
            wait_for("it to be asked", lambda: prop(sandbox_id, "State") == "pausing")
            for _ in range(5):
                assert is_alive(neighbour)
            assert p.poll() is None
            ctl_ok("kill", sandbox_id)
            assert p.wait(timeout=60) == 1 and is_printable(p.stderr.read())
        assert sandbox_id not in sandbox_ids()
