# SPDX-License-Identifier: Apache-2.0
"""cubed, its helpers, the resolver, a VMM or a guest's agent is killed at a random moment of a random operation. Nothing
that was acknowledged is lost, nothing is left behind, and what has nothing to do with it goes on.

Seeds are others in each run, for what happens in which millisecond is another each time, too. CUBE_SEED=N begins there."""

import os
import random

import dbus
import pytest

from cubetest import at_rest, nothing_left_since, options, sandbox
from faults import UnluckyWorld
from test_sequences import PayloadGuest

STRIKES = 5
WORLDS = 100 if os.environ.get("CUBE_LONG") == "1" else 4
FIRST_SEED = int(os.environ.get("CUBE_SEED") or random.SystemRandom().randrange(1 << 32))


class DoomedGuest(PayloadGuest):
    @staticmethod
    def doom(sandbox_id, msec):
        try:
            sandbox(sandbox_id).Exec(["panic-in", str(msec)], options({}))
        except dbus.DBusException as e:
            assert "panic" in str(e), e  # before it could answer


@pytest.mark.parametrize("world", range(WORLDS))
def test_world(template, world):
    seed = FIRST_SEED + world
    print(f"CUBE_SEED={seed}")
    before = at_rest()
    guest = DoomedGuest(busy=seed % 4 == 0)
    w = UnluckyWorld(seed, guest)
    try:
        w.create()
        w.snapshot(w.create())
        for n in range(STRIKES):
            w.strike(w.VICTIMS[(seed * STRIKES + n) % len(w.VICTIMS)])
        w.check_snapshots()
    finally:
        guest.end()
        w.end()
    # those of another cubed process can't be compared
    nothing_left_since(before, but=["fds"])
