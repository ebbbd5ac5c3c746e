# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("native", "interpreter", "gateway"))]
import agentlib  # noqa: E402
import envdlib  # noqa: E402
import interpreter  # noqa: E402

spec = importlib.util.spec_from_file_location("gateway_conftest", HERE.parent / "gateway/conftest.py")
gateway_conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gateway_conftest)
from fetching import imaged  # noqa: E402
from router import routed  # noqa: E402

# The gateway on a bus of its own.
started = gateway_conftest.started


def missing():
    if "CUBE_E2B_SDKS" not in os.environ:
        return "CUBE_E2B_SDKS names no directory with E2B's SDKs; dev/test makes one"
    if os.geteuid() != 0:
        return "needs root: pid and mount namespaces, other users"
    return None


def running_agent(directory):
    """One for the time of a fixture, which has to end well."""
    one = agentlib.Agent(directory)
    yield one
    code, text = one.stop()
    assert code == 0 and "Sanitizer" not in text, text


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    yield from running_agent(tmp_path_factory.mktemp("agent"))


@pytest.fixture(scope="module")
def envd(agent):
    """One that asks nobody for a token, as the SDK's debug mode wants it."""
    return envdlib.Envd(agent, USER="root", ENV=["GLOBAL=1"])


@pytest.fixture
def secure(tmp_path):
    """One that asks for a token."""
    for one in running_agent(tmp_path):
        yield envdlib.Envd(one, USER="root", token="a token of its own")


@pytest.fixture(scope="module")
def cells():
    """The code interpreter's server."""
    with interpreter.Server() as server:
        yield server


@pytest.fixture(scope="module")
def env(started, tmp_path_factory):
    """Of a client of the gateway, who reaches guests by E2B's routing headers, and has an image in a registry."""
    with imaged(started, tmp_path_factory.mktemp) as (config, image), started.on_loopback(config) as url, \
            routed(started.host) as guests:
        yield {"E2B_API_URL": url, "E2B_SANDBOX_URL": guests, "E2B_API_KEY": started.key(), "CUBE_TEMPLATE": "python", **image}
        assert started.host.ids() == []


@pytest.fixture(scope="session", autouse=True)
def sdks():
    if missing():
        pytest.skip(missing())
