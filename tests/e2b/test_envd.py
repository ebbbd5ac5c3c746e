# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDKs, unmodified, against the agent's envd as an ordinary process: the SDK's debug mode asks no control plane."""

import pytest

import e2b_sdks
from agentlib import until
from e2b_sdks import JS, LONG, PY


@pytest.mark.parametrize("file", JS)
def test_newest_of_node(envd, file):
    e2b_sdks.node("newest", file, e2b_sdks.debug(envd.port))


@pytest.mark.parametrize("mode, file", [(mode, file) for mode in ("sync", "async") for file in PY
                                        if LONG or (mode, file) != ("async", "git")])
def test_newest_of_python(envd, mode, file):
    e2b_sdks.python("newest", mode, file, e2b_sdks.debug(envd.port))


@pytest.mark.parametrize("file", JS if LONG else ["smoke"])
@pytest.mark.parametrize("version", ["2.45", "2.38"])
def test_older_ones_of_node(envd, version, file):
    e2b_sdks.node(version, file, e2b_sdks.debug(envd.port))


@pytest.mark.parametrize("file", PY if LONG else ["smoke"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("version", ["2.37", "2.31"])
def test_older_ones_of_python(envd, version, mode, file):
    e2b_sdks.python(version, mode, file, e2b_sdks.debug(envd.port))


def test_nothing_runs_on(envd):
    # the last ones were killed, and that is done when they got a CPU
    until(lambda: envd.call("process.Process/List", {}) == (200, {"processes": []}), 120)


def test_tokens_and_signed_addresses(secure):
    env = {name: value for name, value in e2b_sdks.debug(secure.port).items() if name != "E2B_DEBUG"}
    e2b_sdks.node("newest", "secure", env | {"CUBE_TOKEN": secure.token})
