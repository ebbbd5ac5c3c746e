# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes over REST leave nothing; the fixture looks after what the host has of them."""

import os

import rest_creates

LONG = os.environ.get("CUBE_LONG") == "1"


def test_many_over_rest_leave_nothing(clean, template):
    with rest_creates.key_without_limits() as key:
        rest_creates.leave_nothing(key, template(), sequence=1000 if LONG else 40, at_once=50 if LONG else 10)
