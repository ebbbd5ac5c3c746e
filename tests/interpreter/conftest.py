# SPDX-License-Identifier: Apache-2.0
import pytest

import interpreter


@pytest.fixture(scope="session")
def server():
    """One for all tests that leave its default contexts as they are to others: as they found them, or in use."""
    # a kernel that is told to stop and gets no CPU is not one that does not obey
    with interpreter.Server("--interrupt-timeout", "120") as s:
        yield s


@pytest.fixture
def python_context(server):
    context = server.context()
    yield context
    server.call("DELETE", f"/contexts/{context}")
