# SPDX-License-Identifier: Apache-2.0
"""The small guest kernel: all that a sandbox does with the stock one works with it, too. Under --long, which builds it."""

import os

import pytest

from cubetest import created, created_from, ctl, ctl_ok, prop, reason_of, remove_snapshot, sandbox_ids, snapshot, wait_for
from labhost import build_template

pytestmark = pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="its kernel takes ten minutes of CPU: --long")

# What tools for containers and browsers ask a kernel for.
NAMESPACES = "unshare --user --map-root-user --mount --pid --fork --net --uts --ipc --cgroup sh -c 'mount -t tmpfs t /mnt && id -u'"
FILE_SYSTEMS = ["overlay", "fuse", "ext4", "squashfs", "erofs", "tmpfs", "cgroup2", "mqueue"]
IO_URING = "import ctypes; print(ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(120)) >= 0)"


@pytest.fixture(scope="module", autouse=True)
def template(host):
    build_template("small", "--kernel", "small")


@pytest.fixture(scope="module")
def guest(template):
    with created("--template", "small", "--timeout", "1h") as sandbox_id:
        yield sandbox_id


def sh(sandbox_id, script):
    return ctl_ok("exec", sandbox_id, "--", "sh", "-c", script)


def test_it_is_this_kernel_and_its_sandboxes_start_restored(guest):
    assert prop(guest, "Start") == "restored"
    assert sh(guest, "uname -r").strip().endswith("-cube")
    assert sh(guest, "cat /proc/sys/kernel/tainted") == "0\n"
    assert sh(guest, "test -e /proc/modules || echo none") == "none\n"


def test_mitigations_are_on(guest):
    assert "mitigations" not in sh(guest, "cat /proc/cmdline")
    assert int(sh(guest, "zcat /proc/config.gz | grep -c '^CONFIG_MITIGATION_.*=y'")) > 20


def test_a_sandbox_may_be_booted_with_more_cpus():
    with created("--template", "small", "--memory", "256M", "--cpus", "3") as sandbox_id:
        assert prop(sandbox_id, "Start") == "booted"
        assert sh(sandbox_id, "nproc") == "3\n"


def test_what_containers_and_browsers_need(guest):
    assert sh(guest, NAMESPACES) == "0\n"
    known = sh(guest, "cat /proc/filesystems").split()
    assert [name for name in FILE_SYSTEMS if name not in known] == []
    assert sh(guest, "ls /dev/fuse /dev/net/tun") == "/dev/fuse\n/dev/net/tun\n"
    assert ctl_ok("exec", guest, "--", "python3", "-c", IO_URING) == "True\n"


def test_servers_on_loopback_are_forwarded_to(guest):
    assert " 0100007F:0001 00000000:0000 0A " in sh(guest, "cat /proc/net/tcp")


def test_state_survives_a_snapshot(guest):
    sh(guest, "echo kept > /tmp/mark")
    base = snapshot(guest)
    try:
        with created_from(base) as copy:
            assert sh(copy, "cat /tmp/mark") == "kept\n"
            assert sh(copy, "cat /proc/sys/kernel/random/uuid") != sh(guest, "cat /proc/sys/kernel/random/uuid")
    finally:
        remove_snapshot(base)


@pytest.mark.parametrize("how, reason", [
    ("echo c > /proc/sysrq-trigger", "panic"),
    ("echo o > /proc/sysrq-trigger; sleep 6000", "poweroff"),
])
def test_an_end_from_inside_has_its_reason(how, reason):
    sandbox_id = ctl_ok("create", "--template", "small").strip()
    assert ctl("exec", sandbox_id, "--", "sh", "-c", how).returncode == 255
    wait_for("the sandbox to be gone", lambda: sandbox_id not in sandbox_ids())
    assert reason_of(sandbox_id) == reason
