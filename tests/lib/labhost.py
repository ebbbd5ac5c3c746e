# SPDX-License-Identifier: Apache-2.0
"""The lab as a host of Linux guests. dev/test has handed in what templates are made of."""

import os

import cubetest

PLACE = "/srv/cubed"


def build_template(name, *options):
    if cubetest.ctl("template", "show", name).returncode != 0:
        cubetest.ctl_ok("template", "build", name, "--from", f"{PLACE}/python.squashfs", *options, timeout=600)


def prepare():
    """KVM that is missing here is a failure, never a skip. A boot takes its time in an emulated machine."""
    assert os.path.exists("/dev/kvm"), "/dev/kvm is missing in the lab"
    os.makedirs("/etc/cubed/cubed.conf.d", exist_ok=True)
    with open("/etc/cubed/cubed.conf.d/50-test.conf", "w", encoding="utf-8") as f:
        f.write("[Sandbox]\nBootTimeout=5min\nStopTimeout=60s\nDefaultTimeout=1h\n")
    cubetest.run("systemctl", "restart", "cubed.service", check=True)
    build_template("python")
