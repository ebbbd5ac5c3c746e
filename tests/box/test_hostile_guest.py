# SPDX-License-Identifier: Apache-2.0
"""A guest that attacks its VMM (tests/hostile), as a sandbox of cubed: its neighbour, cubed and the journal notice little, and
what ends it is told. What has to come of each attack, tests/native/test_hostile_guest.py knows."""

import os

import pytest

from cubetest import make_root
from hostile_sandbox import ENDS, RACES, SOME, HostileSandbox, build_template
from snapshots import counting, goes_on


@pytest.fixture(scope="module", autouse=True)
def hostile_template(template, tmp_path_factory):
    build_template(make_root(tmp_path_factory.mktemp("hostile")))


def test_whatever_it_does_the_others_go_on(clean):
    with counting() as neighbour:
        guest = HostileSandbox()
        names = guest.all_attacks()
        assert len(names) > 60 and set(SOME) <= set(names)
        for name in names if os.environ.get("CUBE_LONG") == "1" else SOME:
            print(name, flush=True)
            out = guest.attack(name)
            assert name not in RACES or out == []
        goes_on(neighbour)
        guest.is_whole()
        guest.end()


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_it_is_told(clean, name):
    guest = HostileSandbox()
    assert guest.ends_by(name) in ENDS[name]
