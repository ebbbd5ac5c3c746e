# SPDX-License-Identifier: Apache-2.0
"""The hostile guest (tests/hostile) as a sandbox with two CPUs, on KVM that needs no help of ours to run a kernel: its attacks
come to the same end as in the box, and a Linux guest beside it goes on."""

import os

import pytest

from cubetest import created, ctl, ctl_ok, make_root
from hostile_sandbox import ENDS, RACES, HostileSandbox, build_template

LONG = os.environ.get("CUBE_LONG") == "1"


@pytest.fixture(scope="module", autouse=True)
def hostile_template(tmp_path_factory):
    build_template(make_root(tmp_path_factory.mktemp("hostile")))
    yield
    ctl("template", "rm", "hostile")


def test_whatever_it_does_the_others_go_on():
    with created("--memory", "256M", "--timeout", "1h") as neighbour:
        guest = HostileSandbox()
        try:
            for name in guest.all_attacks() if LONG else RACES[:2]:
                print(name, flush=True)
                out = guest.attack(name)
                assert name not in RACES or out == []
            guest.is_whole()
            assert ctl_ok("exec", neighbour, "--", "echo", "here") == "here\n"
        finally:
            guest.end()


@pytest.mark.parametrize("name", ["run-a-device", "second-resets-first"] if LONG else ["run-a-device"])
def test_what_ends_it_is_told(name):
    guest = HostileSandbox()
    assert guest.ends_by(name) in ENDS[name]
