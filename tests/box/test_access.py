# SPDX-License-Identifier: Apache-2.0
"""Who may do what: root, the owner, another user, group cube, and nobody without polkit."""

import pytest

from cubetest import as_user, created, ctl_ok, journal, prop, run, sandbox_ids

DENIED = b"org.cubed.Cube1.Error.AccessDenied"


def call(user, sandbox_id, *method):
    return as_user(user, "busctl", "--verbose", "call", "org.cubed.Cube1", f"/org/cubed/Cube1/sandbox/{sandbox_id}",
                   "org.cubed.Cube1.Sandbox", *method)


def raw_error(user, sandbox_id, member, *arguments):
    """The name of the D-Bus error that a user's call gets, from dbus-send."""
    return as_user(user, "dbus-send", "--system", "--print-reply", "--dest=org.cubed.Cube1",
                   f"/org/cubed/Cube1/sandbox/{sandbox_id}", f"org.cubed.Cube1.Sandbox.{member}", *arguments).stderr


@pytest.fixture
def alice_in_cube():
    run("usermod", "-aG", "cube", "alice", check=True)
    yield
    run("gpasswd", "-d", "alice", "cube", check=True)


@pytest.mark.parametrize("member, arguments", [
    ("Stop", ()),
    ("Kill", ()),
    ("SetTimeout", ("uint64:1000000",)),
    ("ListProcesses", ()),
    ("OpenConsole", ()),
    ("Connect", ("uint16:80",)),
    ("StatFile", ("string:/etc", "boolean:true")),
])
def test_another_user_is_denied_by_name_and_it_is_recorded(shared, member, arguments):
    assert DENIED in raw_error("bob", shared, member, *arguments)
    assert shared in sandbox_ids()


def test_a_denial_is_audited(shared):
    raw_error("bob", shared, "Kill")
    bob = run("id", "-u", "bob").stdout.decode().strip()
    assert any(e.get("CUBE_EVENT") == "denied" and e.get("CUBE_ACTOR_UID") == bob for e in journal(shared))


def test_an_ordinary_user_may_not_create(template):
    result = as_user("bob", "cubectl", "--no-ask-password", "create")
    assert result.returncode == 1 and result.stdout == b""


def test_group_cube_may_create_and_the_owner_may_do_everything(template, alice_in_cube):
    result = as_user("alice", "cubectl", "create")
    assert result.returncode == 0, result.stderr
    sandbox_id = result.stdout.decode().strip()
    alice = int(run("id", "-u", "alice").stdout)
    assert prop(sandbox_id, "Owner") == alice
    assert as_user("alice", "cubectl", "exec", sandbox_id, "--", "echo", "mine").stdout == b"mine\n"
    assert DENIED in raw_error("bob", sandbox_id, "Kill")
    assert sandbox_id not in as_user("bob", "cubectl", "list").stdout.decode()
    assert ctl_ok("exec", sandbox_id, "--", "echo", "roots") == "roots\n"
    assert as_user("alice", "cubectl", "kill", sandbox_id).returncode == 0


def test_quota_per_user_names_the_limit(template, alice_in_cube):
    ids = []
    try:
        for _ in range(5):
            ids.append(as_user("alice", "cubectl", "create").stdout.decode().strip())
        result = as_user("alice", "cubectl", "create")
        assert result.returncode == 1 and b"MaxSandboxesPerUser" in result.stderr
    finally:
        for sandbox_id in ids:
            ctl_ok("kill", sandbox_id)


def test_without_polkit_everything_unprivileged_is_denied(template, shared, alice_in_cube):
    run("systemctl", "mask", "--runtime", "--now", "polkit.service", check=True)
    try:
        assert as_user("alice", "cubectl", "create").returncode == 1
        assert DENIED in raw_error("bob", shared, "Kill")
        assert ctl_ok("exec", shared, "--", "echo", "root") == "root\n"
        with created() as sandbox_id:
            assert sandbox_id in sandbox_ids()
    finally:
        run("systemctl", "unmask", "--runtime", "polkit.service", check=True)
        run("systemctl", "start", "polkit.service", check=True)
