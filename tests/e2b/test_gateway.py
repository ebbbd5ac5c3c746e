# SPDX-License-Identifier: Apache-2.0
"""E2B's SDKs, unmodified, against cube-gateway and the guests that it has made: agents of this machine behind the real bus
front, reached by E2B's routing headers."""

import pytest

import e2b_sdks
from e2b_sdks import JS, LONG, PY


# What only envd is asked for is asked without a gateway too (test_envd.py).
@pytest.mark.parametrize("file", ["control", "templates", *(JS if LONG else ["smoke"])])
def test_newest_of_node(env, file):
    e2b_sdks.node("newest", file, env)


@pytest.mark.parametrize("mode, file", [(mode, file) for mode in ("sync", "async")
                                        for file in ("control", "templates", *(PY if LONG else ["smoke"]))])
def test_newest_of_python(env, mode, file):
    e2b_sdks.python("newest", mode, file, env)


@pytest.mark.parametrize("file", ["control", "templates"])
@pytest.mark.parametrize("version", ["2.45", "2.38"])
def test_older_ones_of_node(env, version, file):
    e2b_sdks.node(version, file, env)


@pytest.mark.parametrize("file", ["control", "templates"])
@pytest.mark.parametrize("version, mode", [("2.37", "async"), ("2.31", "sync")])
def test_older_ones_of_python(env, version, mode, file):
    e2b_sdks.python(version, mode, file, env)
