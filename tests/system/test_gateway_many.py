# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes over REST leave nothing, when their guests are Linux."""

import os

import pytest

import rest_creates
from cubetest import sandbox_ids


@pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="fifty guests take minutes here: --long")
def test_many_over_rest_leave_nothing():
    assert sandbox_ids() == []
    with rest_creates.key_without_limits() as key:
        rest_creates.leave_nothing(key, "python", sequence=20, at_once=5)
