# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import gateway as gw  # noqa: E402


def missing():
    why = gw.bus_host.missing()
    if not why and not os.access(gw.GATEWAY, os.X_OK):
        why = f'not built: {gw.GATEWAY}'
    return why


def make_host(tmp_path_factory):
    """A bus that is not started yet."""
    why = missing()
    if why:
        pytest.skip(why)
    directory = tmp_path_factory.mktemp('bus')
    for d in (directory, directory.parent, directory.parent.parent):
        d.chmod(d.stat().st_mode | 0o055)
    # The user that the file names need not be there.
    policy = directory / 'gateway-policy.conf'
    policy.write_text((gw.TOP / 'gateway/org.cubed.Gateway1.conf').read_text().replace('"cube-gateway"', f'"{gw.UID}"'))
    return gw.bus_host.Host(directory, (gw.TOP / 'dbus/org.cubed.Cube1.conf', policy), guest_network=True)


def run_gateway(tmp_path_factory):
    host = make_host(tmp_path_factory)
    gateway = None
    try:
        host.start_bus()
        host.start_cubed()
        host.start_polkit()
        gw.allow(host)
        gateway = gw.Gateway(host, host.dir)
        gateway.start()
        yield gateway
        gateway.stop()
    finally:
        if gateway and gateway.process:
            gateway.process.kill()
            gateway.process.wait()
        host.end()


@pytest.fixture(scope='session')
def started(tmp_path_factory):
    yield from run_gateway(tmp_path_factory)


@pytest.fixture
def alone(tmp_path_factory):
    """On a bus of its own, where no cubed is."""
    host = make_host(tmp_path_factory)
    gateway = gw.Gateway(host, host.dir)
    try:
        host.start_bus()
        gateway.start()
        yield gateway
    finally:
        if gateway.process:
            gateway.process.kill()
            gateway.process.wait()
        host.end()


@pytest.fixture
def gateway(started):
    yield started
    assert started.process.poll() is None, started.log()
    assert started.host.cubed.poll() is None, started.host.log()
    for i in started.host.ids():
        started.host.ctl('kill', i)


@pytest.fixture
def client(gateway):
    return gateway.client()


@pytest.fixture
def configured(gateway):
    """Starts it anew with other lines of its configuration, for one test."""
    yield gateway.restart
    gateway.restart()
