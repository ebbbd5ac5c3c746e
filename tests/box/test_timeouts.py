# SPDX-License-Identifier: Apache-2.0
"""Time limits that are set to never."""

import os

import pytest

from cubetest import ctl, ctl_ok, journal, run

DROP_IN = "/etc/cubed/cubed.conf.d/60-timeouts.conf"


@pytest.fixture
def never():
    with open(DROP_IN, "w", encoding="ascii") as f:
        f.write("[Sandbox]\nBootTimeout=infinity\nStopTimeout=infinity\nDefaultTimeout=infinity\n")
    run("systemctl", "reload", "cubed.service", check=True)
    yield
    os.unlink(DROP_IN)
    run("systemctl", "reload", "cubed.service", check=True)


def test_with_no_limits_at_all_a_guest_boots_and_is_asked_to_power_off(template, never):
    sandbox_id = ctl_ok("create").strip()
    try:
        scope = f"cube-{sandbox_id}.scope"
        assert run("systemctl", "show", "-P", "TimeoutStopUSec", scope).stdout.strip() == b"infinity"
        assert ctl("stop", sandbox_id, timeout=30).returncode == 0
    finally:
        ctl("kill", sandbox_id)
    assert journal(sandbox_id, "CUBE_EVENT=exit")[0]["CUBE_REASON"] == "poweroff"
