# SPDX-License-Identifier: Apache-2.0
"""A VMM that was taken over by its guest: cubed validates what it says, goes on, and gets rid of it."""

import os
import shutil
import time

import dbus
import pytest

from cubetest import (NAME, ROOT, SANDBOX, at_rest, bus, ctl, ctl_ok, cubed_pid, journal, loop_is_free, manager,
                      nothing_left_since, options, prop, run, sandbox, sandbox_ids, wait_for)

HERE = os.path.dirname(os.path.abspath(__file__))
LIBEXEC = "/srv/cubed/hostile"
DROP_IN = "/run/systemd/system/cubed.service.d/50-hostile.conf"


def restart():
    run("systemctl", "daemon-reload", check=True)
    run("systemctl", "restart", "cubed.service", check=True)


@pytest.fixture(scope="module")
def libexec(template):
    os.makedirs(LIBEXEC, exist_ok=True)
    for name in os.listdir("/usr/lib/cubed"):
        if not os.path.lexists(f"{LIBEXEC}/{name}"):
            os.symlink(f"/usr/lib/cubed/{name}", f"{LIBEXEC}/{name}")
    os.unlink(f"{LIBEXEC}/cube-vmm")
    shutil.copy(os.path.join(HERE, "hostile-vmm"), f"{LIBEXEC}/cube-vmm")
    os.makedirs(os.path.dirname(DROP_IN), exist_ok=True)
    with open(DROP_IN, "w", encoding="ascii") as f:
        f.write(f"[Service]\nEnvironment=CUBED_LIBEXEC_DIR={LIBEXEC}\n")
    restart()
    yield
    os.unlink(DROP_IN)
    restart()
    shutil.rmtree(LIBEXEC)


def n_restarts():
    return int(run("systemctl", "show", "-P", "NRestarts", "cubed.service", check=True).stdout)


@pytest.fixture
def hostile(libexec, request):
    """hostile("deaf"): the id of a sandbox whose VMM does that, once it runs."""

    def make(mode):
        with open(f"{LIBEXEC}/mode", "w", encoding="ascii") as f:
            f.write(mode)
        sandbox_id, _ = manager().CreateSandbox("template:", options({}), timeout=60)
        return sandbox_id

    # a first one has given this cubed what it keeps: its socket to the journal
    ctl_ok("kill", make("deaf"))
    before, others = at_rest(), set(sandbox_ids())
    restarts = n_restarts()
    yield make
    assert n_restarts() == restarts, "cubed died"
    for sandbox_id in set(sandbox_ids()) - others:
        ctl("kill", sandbox_id)
    nothing_left_since(before)


def gone(sandbox_id):
    wait_for(f"{sandbox_id} to be gone", lambda: sandbox_id not in sandbox_ids())


@pytest.mark.parametrize("mode", ["exit-and-stay", "hang-up", "garbage", "huge", "positive"])
def test_it_is_ended(hostile, mode):
    gone(hostile(mode))


def test_stop_of_one_that_is_deaf(hostile):
    sandbox_id = hostile("deaf")
    start = time.monotonic()
    assert ctl("stop", sandbox_id, timeout=60).returncode == 0
    assert time.monotonic() - start < 40


def test_calls_to_one_that_is_deaf_are_bounded(hostile):
    sandbox_id = hostile("deaf")
    connections = [bus() for _ in range(3)]
    for connection in connections:
        for _ in range(100):
            m = dbus.lowlevel.MethodCallMessage(NAME, f"{ROOT}/sandbox/{sandbox_id}", SANDBOX, "Exec")
            m.append(["true", "x" * 200_000], options({}), signature="asa{sv}")
            connection.send_message(m)
        connection.flush()
    assert ctl("list", timeout=60).returncode == 0
    for connection in connections:
        connection.close()
    ctl_ok("kill", sandbox_id)


@pytest.mark.parametrize("mode", ["devices", "frames"])
def test_a_flood_of_events_holds_nobody_up(hostile, mode):
    sandbox_id = hostile(mode)
    manager().ResetLoopMax()
    start = time.monotonic()
    for _ in range(20):
        assert ctl("list", timeout=60).returncode == 0
    assert time.monotonic() - start < 30
    loop_is_free()
    ctl_ok("kill", sandbox_id)
    entries = journal(sandbox_id)
    assert len(entries) < 40
    assert not journal("other")


def test_descriptors_it_sends_are_closed(hostile):
    sandbox_id = hostile("fds")
    vmm = prop(sandbox_id, "VMMPID")
    wait_for("it to send all", lambda: b"all are sent" in run("journalctl", "--no-pager", f"_PID={vmm}").stdout)
    wait_for("cubed to have none of them", lambda: len(os.listdir(f"/proc/{cubed_pid()}/fd")) < 100)
    ctl_ok("kill", sandbox_id)


@pytest.mark.parametrize("mode", ["more", "listing", "twice"])
def test_strange_answers(hostile, mode):
    sandbox_id = hostile(mode)
    for call in ("ListProcesses", "GetStatistics"):
        try:
            getattr(sandbox(sandbox_id), call)(timeout=2)
        except dbus.DBusException as e:
            print(mode, call, e)
    try:
        print(len(sandbox(sandbox_id).ListDirectory("/", timeout=5)))
    except dbus.DBusException as e:
        print(mode, e)
    assert ctl("list", timeout=60).returncode == 0
    ctl_ok("kill", sandbox_id)


@pytest.mark.parametrize("mode", ["list", "interleave"])
def test_unread_listings_take_no_memory(hostile, mode):
    """Answers as long as they may be, one after the other or all at once, to one who asks for many and reads none."""
    sandbox_id = hostile(mode)
    manager().ResetLoopMax()
    connection = bus()
    for _ in range(100):
        m = dbus.lowlevel.MethodCallMessage(NAME, f"{ROOT}/sandbox/{sandbox_id}", SANDBOX, "ListDirectory")
        m.append("/", signature="s")
        connection.send_message(m)
    connection.flush()
    for _ in range(20):
        time.sleep(0.5)
        assert ctl("list", timeout=60).returncode == 0
        with open(f"/proc/{cubed_pid()}/status", encoding="ascii") as f:
            fields = dict(line.split(":", 1) for line in f)
        rss = int(fields["RssAnon"].split()[0]) // 1024
        assert rss < 200
        loop_is_free()
    connection.close()
    ctl_ok("kill", sandbox_id)


def test_a_create_that_hears_nothing_ends(hostile):
    with pytest.raises(dbus.DBusException) as e:
        hostile("mute")
    assert "BootTimeout" in str(e.value) or "answer" in str(e.value)


def test_one_in_the_wrong_state_is_not_taken_over(hostile):
    sandbox_id = hostile("deaf")
    run("systemctl", "restart", "cubed.service", check=True)
    gone(sandbox_id)
