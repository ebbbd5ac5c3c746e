# SPDX-License-Identifier: Apache-2.0
"""Bad input gets an error that names the thing, an exit status, and leaves nothing."""

import os

import pytest

from conftest import PAYLOAD
from cubetest import ctl, run, wait_for


@pytest.mark.parametrize("arguments, said", [
    (("create", "--template", "nosuch"), b"nosuch"),
    (("create", "--template", "bad/name"), b"bad/name"),
    (("create", "--memory", "0"), b"emory"),
    (("create", "--memory", "100T"), b"emory"),
    (("create", "--memory", "lots"), b"lots"),
    (("create", "--cpus", "0"), b"pu"),
    (("create", "--cpus", "17"), b"16"),
    (("create", "--disk", "1M"), b"isk"),
    (("create", "--timeout", "soon"), b"soon"),
    (("create", "--no-such-option"), b"no-such-option"),
    (("exec", "abcdefghijkl0123", "--", "true"), b"abcdefghijkl0123"),
    (("exec", "../../etc", "--", "true"), b"../../etc"),
    (("kill", "UPPER"), b"UPPER"),
    (("frobnicate",), b"frobnicate"),
    (("template", "rm", "nosuch"), b"nosuch"),
])
def test_it_is_refused_by_name(clean, arguments, said):
    result = ctl(*arguments)
    assert result.returncode in (1, 255)
    assert result.stdout == b"" and said in result.stderr


def test_an_option_that_does_not_exist_is_named_by_the_api(clean):
    result = run("busctl", "call", "org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager", "CreateSandbox",
                 "sa{sv}", "template:payload", "1", "colour", "s", "blue")
    assert result.returncode == 1 and b"colour" in result.stderr


def test_a_kernel_that_is_none_is_refused(clean, tmp_path):
    junk = tmp_path / "vmlinuz"
    junk.write_bytes(os.urandom(8192))
    result = ctl("template", "build", "junk", "--from", tmp_path, "--kernel", junk)
    assert result.returncode == 1 and b"kernel" in result.stderr.lower()
    assert ctl("template", "show", "junk").returncode == 1


def test_a_root_file_system_without_files_is_refused(clean, tmp_path):
    result = ctl("template", "build", "empty", "--from", tmp_path, "--kernel", PAYLOAD)
    assert result.returncode == 1 and b"the root file system holds no files" in result.stderr
    assert ctl("template", "show", "empty").returncode == 1


def test_a_template_in_use_is_not_removed(template, clean):
    from cubetest import created
    with created() as sandbox_id:
        result = ctl("template", "rm", "payload")
        assert result.returncode == 1 and sandbox_id.encode() in result.stderr


def test_kvm_missing_is_said_plainly(template, clean):
    run("mv", "/dev/kvm", "/dev/kvm.away", check=True)
    try:
        result = ctl("create")
        assert result.returncode == 1 and b"/dev/kvm" in result.stderr
        assert ctl("check").returncode == 1
    finally:
        run("mv", "/dev/kvm.away", "/dev/kvm", check=True)


def test_a_bus_that_goes_away_ends_cubed_and_not_the_sandboxes(template):
    """dbus is restarted under a running cubed; the sandbox is there afterwards."""
    from cubetest import created, ctl_ok
    with created("--timeout", "1h") as sandbox_id:
        run("systemctl", "restart", "dbus.service")
        wait_for("cubed to answer again", lambda: ctl("list").returncode == 0)
        assert ctl_ok("exec", sandbox_id, "--", "echo", "here") == "here\n"
