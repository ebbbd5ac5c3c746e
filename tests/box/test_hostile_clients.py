# SPDX-License-Identifier: Apache-2.0
"""Clients that mean harm, or are just broken: nothing that one does may be felt by another."""

import subprocess
import sys

import dbus
import pytest

from cubetest import ERROR, as_user, ctl, loop_is_free, manager, options, prop, run, sandbox, sandbox_ids

# Sends calls and never reads an answer. argv: sandbox id, how many, method, its string argument or nothing.
DEAF = """
import os, sys, time, dbus, signal
sandbox_id, count, member = sys.argv[1], int(sys.argv[2]), sys.argv[3]
connection = dbus.SystemBus(private=True)
for _ in range(count):  # not faster than they are answered, or the bus refuses them
    m = dbus.lowlevel.MethodCallMessage("org.cubed.Cube1", "/org/cubed/Cube1/sandbox/" + sandbox_id,
                                        "org.cubed.Cube1.Sandbox", member)
    if member == "Exec":
        m.append(["true"], {}, signature="asa{sv}")
    connection.send_message(m)
    connection.flush()
    time.sleep(0.001)
print("sent", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def alice(template):
    run("usermod", "-aG", "cube", "alice", check=True)
    yield "alice"
    run("gpasswd", "-d", "alice", "cube", check=True)


def test_a_client_that_leaves_descriptors_unread_stops_nobody(alice):
    """The bus counts descriptors that lie in a client's queue against the one who sent them: us."""
    sandbox_id = as_user(alice, "cubectl", "create", check=True).stdout.decode().strip()
    try:
        with subprocess.Popen(["runuser", "-u", alice, "--", sys.executable, "-c", DEAF, sandbox_id, "1000",
                               "OpenConsole"], stdout=subprocess.PIPE) as p:
            try:
                assert p.stdout.readline() == b"sent\n"
                for _ in range(20):
                    assert ctl("list", timeout=60).returncode == 0
            finally:
                run("pkill", "-KILL", "-P", p.pid)
                p.kill()
    finally:
        ctl("kill", sandbox_id)


def test_labels_have_a_size(alice):
    """What a restarted cubed can't read again would leave a VMM that belongs to nobody."""
    before = set(sandbox_ids())
    manager().ResetLoopMax()
    for labels in ({"a": "x" * 200_000}, {f"key-{i}": "\x01" * 10_000 for i in range(60)},
                   {f"key-{i}": "v" for i in range(1000)}, {str(i): "" for i in range(1_000_000)}):
        with pytest.raises(dbus.DBusException) as e:
            manager().CreateSandbox("template:", options({"labels": dbus.Dictionary(labels, signature="ss")}), timeout=60)
        assert e.value.get_dbus_name() == ERROR + "InvalidArgument"
    assert set(sandbox_ids()) == before
    loop_is_free()


@pytest.mark.parametrize("timeout", [(1 << 64) - 2, 1 << 63])
def test_a_timeout_of_ages_is_one(template, timeout):
    """It must not wrap around and end the sandbox at once."""
    sandbox_id, _ = manager().CreateSandbox("template:", options({"timeout": dbus.UInt64(timeout)}), timeout=60)
    try:
        assert ctl("exec", sandbox_id, "--", "true").returncode == 0
        assert prop(sandbox_id, "State") == "running"
        assert prop(sandbox_id, "Deadline") > 1 << 62
    finally:
        ctl("kill", sandbox_id)


def test_many_arguments_are_refused_at_once(shared):
    manager().ResetLoopMax()
    many = dbus.Array(["x"] * 1_000_000, signature="s")
    for argv, call in ((many, {}), (["true"], {"env": many})):
        with pytest.raises(dbus.DBusException) as e:
            sandbox(shared).Exec(argv, options(call), timeout=60)
        assert e.value.get_dbus_name() == ERROR + "InvalidArgument"
    loop_is_free()
    assert ctl("exec", shared, "--", *["true"] * 1000).returncode == 0
