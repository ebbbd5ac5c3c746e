# SPDX-License-Identifier: Apache-2.0
"""E2B's SDKs for code, unmodified, against the code interpreter's server."""

import pytest

import e2b_sdks


def test_node(cells):
    e2b_sdks.node("newest", "code", e2b_sdks.debug(cells.port))


@pytest.mark.parametrize("mode", ["sync", "async"] if e2b_sdks.LONG else ["async"])
def test_python(cells, mode):
    e2b_sdks.python("newest", mode, "cells", e2b_sdks.debug(cells.port))
