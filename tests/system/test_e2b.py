# SPDX-License-Identifier: Apache-2.0
"""E2B's SDKs, unmodified, from a client's environment to a program in a Linux guest: cube-gateway, haproxy, network and envd.
The newest by TLS and by names below localhost, which libnss-myhostname leads here; the oldest by headers and plain HTTP."""

import os
import sys

import pytest

from cubetest import ctl_ok, sandbox_ids, wait_for
from labhost import ingress

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2b"))
import e2b_sdks  # noqa: E402

long = pytest.mark.skipif(not e2b_sdks.LONG, reason="each file takes a minute or more here: --long")
HOUR = 3600
# Of each language the SDK's version, the mode, how it is called, and files of tests.
NODE = [("newest", "domain", file) for file in ("names", "control", *e2b_sdks.JS)]
NODE += [("2.38", "headers", file) for file in ("life", "control", *e2b_sdks.JS)]
NODE += [("2.45", "domain", "smoke")]
PYTHON = [("newest", "domain", "async", file) for file in ("life", "names", "control", *e2b_sdks.PY)]
PYTHON += [("newest", "domain", "sync", "life")]
PYTHON += [("2.31", "headers", "sync", file) for file in ("life", "control", *e2b_sdks.PY)]
PYTHON += [("2.37", "headers", "async", "smoke")]


@pytest.fixture(scope="module")
def modes(sdks):
    """What a client's environment has, by headers and with a domain."""
    with pytest.MonkeyPatch.context() as patch, ingress("--domain", "cube.localhost") as environment:
        patch.setenv("CUBE_E2B_SDKS", sdks)
        both = {"E2B_API_KEY": ctl_ok("--quiet", "apikey", "create", "lab").strip(), "CUBE_TEMPLATE": "python",
                "CUBE_TEST_SECONDS": "1000"}
        yield {"headers": environment("--headers") | both, "domain": environment() | both}


@pytest.fixture(autouse=True)
def no_sandbox_is_left():
    before = set(sandbox_ids())
    yield
    wait_for("those that it killed to be gone", lambda: set(sandbox_ids()) <= before)


def test_a_life_with_the_newest_of_node_by_names(modes):
    e2b_sdks.node("newest", "life", modes["domain"], timeout=1100)


@long
@pytest.mark.timeout(HOUR)
@pytest.mark.parametrize("version, mode, file", NODE)
def test_node(modes, version, mode, file):
    e2b_sdks.node(version, file, modes[mode], timeout=HOUR)


@long
@pytest.mark.timeout(HOUR)
@pytest.mark.parametrize("version, mode, how, file", PYTHON)
def test_python(modes, version, mode, how, file):
    e2b_sdks.python(version, how, file, modes[mode], timeout=HOUR)


@long
@pytest.mark.timeout(2 * HOUR)
def test_the_code_interpreters(modes, interpreter_template):
    template = {"CUBE_TEMPLATE": interpreter_template}
    e2b_sdks.node("newest", "code", modes["domain"] | template, timeout=HOUR)
    e2b_sdks.python("newest", "sync", "cells", modes["headers"] | template, timeout=HOUR)
