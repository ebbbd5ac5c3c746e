# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Making a guest ready to be saved, and freezing its disk."""

import errno
import os
import signal

import pytest

from agentlib import (CLAIM, DATA, END, ERROR, FREEZE, OK, POWEROFF, REMOVE, SET_TIME, STAT, STDIN, S_READ, S_WRITE,
                      THAW, body, frame, parse, refused, until)


def test_freeze(fresh):
    a = fresh()
    a.call(FREEZE)
    assert a.machine_log()[-1] == "freeze 0"
    assert a.code(a.exec("true")) == 0, "only what is asked for is frozen"
    a.call(THAW)
    assert a.machine_log()[-1] == "freeze 0", "nothing to thaw"
    with refused(errno.EINVAL, "FREEZE_DISK"):
        a.call(FREEZE, FREEZE_DISK=2)


def test_not_before_the_claim(fresh):
    a = fresh(claim=False)
    with refused(errno.EAGAIN, "not claimed yet"):
        a.call(FREEZE, FREEZE_DISK=1)


def test_nothing_that_could_write_is_taken_while_the_disk_is_frozen(fresh):
    a = fresh()
    pid = a.exec("cat")
    c = a.attach(pid, STDIN)
    a.call(FREEZE, FREEZE_DISK=1)
    assert a.machine_log()[-1] == "freeze 1"
    with refused(errno.EAGAIN, "the file system is frozen"):
        a.exec("true")
    with refused(errno.EAGAIN, "the file system is frozen"):
        a.call(STAT, PATH="/")
    with refused(errno.EAGAIN, "the file system is frozen"):
        a.stream(S_WRITE, PATH="/tmp/x")
    with refused(errno.EAGAIN, "the file system is frozen"):
        a.stream(S_READ, PATH="/etc/passwd")
    with refused(errno.EAGAIN, "the file system is frozen"):
        a.call(FREEZE, FREEZE_DISK=1)
    a.alive()
    a.call(SET_TIME, REALTIME_NSEC=1)
    a.call(THAW)
    assert a.machine_log()[-1] == "thaw"
    c.close()
    assert a.code(pid) == 0, "streams that were open still are"


def test_next_claim_thaws_before_it_writes(fresh):
    a = fresh()
    a.call(FREEZE, FREEZE_DISK=1)
    a.call(CLAIM, HOSTNAME="copy", REALTIME_NSEC=7, ENTROPY=b"x" * 64)
    assert a.machine_log()[-4:] == ["entropy 64", "time 7", "thaw", "hostname copy"]
    assert a.code(a.exec("true")) == 0
    a.call(CLAIM, HOSTNAME="again")
    assert a.machine_log()[-1] == "hostname again" and a.machine_log().count("thaw") == 1


def test_failed_freeze_is_none(fresh):
    a = fresh()
    with open(a.path("freeze-error"), "w") as f:
        f.write(str(errno.EIO))
    with refused(errno.EIO, "freezing"):
        a.call(FREEZE, FREEZE_DISK=1)
    assert a.code(a.exec("true")) == 0


@pytest.fixture
def freezing(fresh):
    """An agent in the middle of a freeze, the request 77, and what lets it be done."""
    a = fresh()
    os.mkfifo(a.path("freeze-wait"))
    a.control.send(FREEZE, body(FREEZE_DISK=1), 77)
    until(lambda: a.machine_log()[-1] == "freeze 1")

    def finish():
        with open(a.path("freeze-wait"), "w") as f:
            f.write("x")

    return a, finish


def test_agent_serves_meanwhile(freezing):
    a, finish = freezing
    a.alive()
    with refused(errno.EAGAIN, "the file system is frozen"):
        a.exec("true")
    finish()
    assert a.control.recv()[:3] == (OK, 0, 77)
    a.call(THAW)


def test_thaw_in_the_middle_of_a_freeze_comes_behind_it(freezing):
    """Who gave the freeze up must not be left with a disk that is frozen later."""
    a, finish = freezing
    a.control.send(THAW, b"", 78)
    a.alive()
    with refused(errno.EBUSY, "under way"):
        a.call(THAW)
    finish()
    t, _, id, data = a.control.recv()
    assert (t, id, parse(data)["ERRNO"]) == (ERROR, 77, errno.ECANCELED)
    assert a.control.recv()[:3] == (OK, 0, 78)
    assert a.machine_log()[-1] == "thaw"
    assert a.code(a.exec("true")) == 0


def test_claim_in_the_middle_of_a_freeze_ends_it(freezing):
    a, _ = freezing
    a.control.send(CLAIM, body(HOSTNAME="copy"), 78)
    t, _, id, data = a.control.recv()
    assert (t, id, parse(data)["ERRNO"]) == (ERROR, 77, errno.ECANCELED)
    assert a.control.recv()[:3] == (OK, 0, 78)
    assert a.machine_log()[-2:] == ["thaw", "hostname copy"]
    until(lambda: a.children() == [])
    assert a.code(a.exec("true")) == 0


@pytest.mark.parametrize("thaw", [False, True])
def test_freeze_that_was_killed_leaves_nothing_frozen(freezing, thaw):
    """It may have come as far as to freeze the disk: anybody in the guest can kill it, and the kernel when it is out of memory."""
    a, _ = freezing
    if thaw:
        a.control.send(THAW, b"", 78)
        a.alive()
    helper, = a.children()
    os.kill(int(helper), signal.SIGKILL)
    t, _, id, data = a.control.recv()
    assert (t, id, parse(data)["ERRNO"]) == (ERROR, 77, errno.ECANCELED)
    if thaw:
        assert a.control.recv()[:3] == (OK, 0, 78)
    assert a.machine_log()[-2:] == ["freeze 1", "thaw"]
    assert a.code(a.exec("true")) == 0
    a.call(THAW)
    assert a.machine_log()[-1] == "thaw" and a.machine_log().count("thaw") == 1


def test_power_off_in_the_middle_of_a_freeze(freezing):
    a, _ = freezing
    a.control.send(POWEROFF, b"", 78)
    assert a.process.wait(60) == 0
    assert a.machine_log()[-2:] == ["thaw", "poweroff"]


def test_freeze_holds_no_end_of_a_users_pipe(fresh):
    a = fresh()
    os.mkfifo(a.path("freeze-wait"))
    pid = a.exec("cat")
    c = a.attach(pid, STDIN)
    a.control.send(FREEZE, b"", 77)
    until(lambda: a.machine_log()[-1] == "freeze 0")
    c.close()
    assert a.code(pid) == 0, "its input has ended although the freeze goes on"
    with open(a.path("freeze-wait"), "w") as f:
        f.write("x")
    assert a.control.recv()[:3] == (OK, 0, 77)


def test_file_on_its_way_in_is_dropped(fresh, tmp_path):
    a = fresh()
    c = a.stream(S_WRITE, PATH=str(tmp_path / "f"))
    c.send(DATA, b"x" * 65536)
    until(lambda: len(os.listdir(tmp_path)) == 1)
    a.call(FREEZE, FREEZE_DISK=1)
    assert os.listdir(tmp_path) == []
    t, _, _, data = c.recv()
    assert t == END and parse(data)["ERRNO"] == errno.ECANCELED
    c.send(DATA, b"more")
    c.send(END)
    assert c.read_all() == b""
    assert os.listdir(tmp_path) == []


def test_removal_under_way_stops(fresh, tmp_path):
    a = fresh()
    top = tmp_path / "top"
    top.mkdir()
    for i in range(2000):
        (top / str(i)).touch()
    a.control.sock.sendall(frame(REMOVE, body(PATH=str(top), RECURSIVE=1), 1) + frame(FREEZE, body(FREEZE_DISK=1), 2))
    answers = dict((id, (t, parse(data))) for t, _, id, data in (a.control.recv(), a.control.recv()))
    assert answers[2][0] == OK
    assert answers[1][0] == ERROR and answers[1][1]["ERRNO"] == errno.ECANCELED
    assert len(os.listdir(top)) == 2000
