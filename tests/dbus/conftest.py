# SPDX-License-Identifier: Apache-2.0
"""One host for all tests of a file."""

import pytest

from bushost import missing, started_host, wait_for


@pytest.fixture(scope='session')
def started(tmp_path_factory):
    why = missing()
    if why:
        pytest.skip(why)
    with started_host(tmp_path_factory.mktemp('bus')) as host:
        yield host


@pytest.fixture
def host(started):
    yield started
    assert started.cubed.poll() is None, started.log()
    for i in started.ids():
        started.ctl('kill', i)


@pytest.fixture
def polkit(host):
    process = host.start_polkit()
    yield host
    process.terminate()
    process.wait()
    host.processes.remove(process)
    wait_for('polkit to be gone', lambda: 'org.freedesktop.PolicyKit1' not in host.busctl('list').stdout)


@pytest.fixture
def impatient(tmp_path_factory):
    """Another host with polkit, whose cubed waits for no answer for longer than three seconds."""
    why = missing()
    if why:
        pytest.skip(why)
    with started_host(tmp_path_factory.mktemp('bus'), patience='3s') as host:
        host.start_polkit()
        yield host


@pytest.fixture
def guest(host):
    return host.create()
