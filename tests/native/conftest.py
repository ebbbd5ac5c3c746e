# SPDX-License-Identifier: Apache-2.0
import os

import pytest

import vmm as vmm_module


def pytest_collection_modifyitems(items):
    missing = None
    if os.geteuid() != 0:
        missing = 'needs root'
    elif not os.access('/dev/kvm', os.R_OK | os.W_OK):
        missing = 'needs /dev/kvm'
    elif not os.path.exists(vmm_module.find_program()):
        missing = f'not built: {vmm_module.find_program()}'
    if missing:
        for item in items:
            if 'vmm' in item.fixturenames:
                item.add_marker(pytest.mark.skip(reason=missing))


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
