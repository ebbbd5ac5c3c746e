# SPDX-License-Identifier: Apache-2.0
"""System tests: Linux guests on real KVM, in the lab. dev/test has handed in what templates are made of."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cubetest  # noqa: E402


PLACE = "/srv/cubed"


def build_template(name, *options):
    if cubetest.ctl("template", "show", name).returncode != 0:
        cubetest.ctl_ok("template", "build", name, "--rootfs", f"{PLACE}/python.squashfs", *options, timeout=600)


@pytest.fixture(scope="session", autouse=True)
def host():
    """KVM that is missing here is a failure, never a skip. A boot takes its time in an emulated machine."""
    assert os.path.exists("/dev/kvm"), "/dev/kvm is missing in the lab"
    os.makedirs("/etc/cubed/cubed.conf.d", exist_ok=True)
    with open("/etc/cubed/cubed.conf.d/50-test.conf", "w", encoding="utf-8") as f:
        f.write("[Sandbox]\nBootTimeout=5min\nStopTimeout=60s\nDefaultTimeout=1h\n")
    cubetest.run("systemctl", "restart", "cubed.service", check=True)
    build_template("python")
    build_template("python612", "--kernel", f"{PLACE}/kernel-trixie/vmlinuz",
                   "--modules", f"{PLACE}/kernel-trixie/modules")


@pytest.fixture(scope="session")
def shared():
    """One sandbox for all tests that leave it as they found it: a boot costs most of a minute here."""
    with cubetest.created("--memory", "512M", "--timeout", "1h") as sandbox_id:
        yield sandbox_id
