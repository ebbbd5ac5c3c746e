# SPDX-License-Identifier: Apache-2.0
"""Random sequences of snapshot, fork, rollback, checkpoint, pause and resume of Linux guests that are busy: after each of
them memory, disk and processes are what they must be, and at the end nothing is left. What fails is run again by its seed."""

import os

import pytest

from cubetest import at_rest, nothing_left_since
from sequences import Record, World

SEQUENCES = 200 if os.environ.get("CUBE_LONG") == "1" else 6  # these have each step in them
STEPS = 5


@pytest.fixture(scope="module")
def record():
    return Record()


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_sequence(checkers, record, seed):
    guest = checkers(1 + seed // 2 % 2)
    before = at_rest()
    world = World(seed, guest, sandboxes_max=3)
    try:
        world.create(checkpoint="exec")
        world.run(STEPS)
    finally:
        world.end()
    nothing_left_since(before)
    record.add(world)


def test_all_was_done_and_the_service_did_not_grow(record):
    record.check()
