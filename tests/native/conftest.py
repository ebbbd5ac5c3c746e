# SPDX-License-Identifier: Apache-2.0
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))

import agentlib  # noqa: E402
import vmm as vmm_module  # noqa: E402


def pytest_collection_modifyitems(items):
    missing = None
    if os.geteuid() != 0:
        missing = 'needs root'
    elif not os.access('/dev/kvm', os.R_OK | os.W_OK):
        missing = 'needs /dev/kvm'
    elif not os.path.exists(vmm_module.find_program()):
        missing = f'not built: {vmm_module.find_program()}'
    for item in items:
        if missing and {'vmm', 'hostile', 'doomed'} & set(item.fixturenames):
            item.add_marker(pytest.mark.skip(reason=missing))
        if os.geteuid() != 0 and {'fresh', 'shared'} & set(item.fixturenames):
            item.add_marker(pytest.mark.skip(reason='needs root: pid and mount namespaces, other users'))


@pytest.fixture
def vmm():
    with vmm_module.Vmm() as v:
        yield v


@pytest.fixture
def peer(vmm):
    p = vmm.connect()
    yield p
    p.close()


@pytest.fixture(scope='session')
def kernel():
    k = vmm_module.payload('exit')
    yield k
    os.unlink(k.path)


def check_end(agent):
    code, text = agent.stop()
    assert code == 0, text
    assert 'Sanitizer' not in text and 'runtime error' not in text, text


@pytest.fixture
def fresh(tmp_path_factory):
    """Starts agents, and looks at how they ended."""
    agents = []

    def start(**kwargs):
        agents.append(agentlib.Agent(tmp_path_factory.mktemp('agent'), **kwargs))
        return agents[-1]

    yield start
    for a in agents:
        check_end(a)


@pytest.fixture(scope='module')
def shared(tmp_path_factory):
    a = agentlib.Agent(tmp_path_factory.mktemp('agent'))
    yield a
    check_end(a)


@pytest.fixture
def agent(shared):
    """One agent for many tests: each must leave it well."""
    yield shared
    shared.alive()
