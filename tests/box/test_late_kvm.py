# SPDX-License-Identifier: Apache-2.0
"""A host whose KVM module is loaded when cubed runs already, as it may be at boot."""

import os

import pytest

from cubetest import created, ctl, ctl_ok, run


@pytest.fixture
def started_without_kvm(clean_again):
    """There is no /dev/kvm; what makes it."""
    run("systemctl", "stop", "cubed.service", check=True)
    device = os.stat("/dev/kvm")
    os.unlink("/dev/kvm")

    def load():
        if not os.path.exists("/dev/kvm"):
            os.mknod("/dev/kvm", device.st_mode, device.st_rdev)
            os.chown("/dev/kvm", device.st_uid, device.st_gid)
    try:
        run("systemctl", "start", "cubed.service", check=True)
        yield load
    finally:
        load()


def test_sandboxes_run_as_soon_as_there_is_one(started_without_kvm):
    told = ctl("create")
    assert told.returncode != 0 and b"/dev/kvm" in told.stderr
    started_without_kvm()
    with created() as sandbox_id:
        assert ctl_ok("exec", sandbox_id, "--", "echo", "here") == "here\n"
