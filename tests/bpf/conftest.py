# SPDX-License-Identifier: Apache-2.0
import contextlib
import os

import netlab
import pytest


def pytest_collection_modifyitems(items):
    missing = None
    if os.geteuid() != 0:
        missing = 'needs root'
    elif not (netlab.BUILD / 'net/cube-netd').exists():
        missing = f'not built: {netlab.BUILD}/net/cube-netd'
    if missing:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope='session', autouse=True)
def private():
    netlab.private_mounts()


@pytest.fixture
def make_host():
    hosts = []

    def make(start=True, **more):
        hosts.append(netlab.Host(**more))
        if start:
            hosts[-1].start()
        return hosts[-1]
    yield make
    for h in hosts:
        h.close()


@pytest.fixture
def host(make_host):
    """IPv4 and IPv6, default settings"""
    return make_host(net6='fd3c:cbed::/64')


@pytest.fixture
def lab(host):
    """A sandbox with cube-resolver and a DNS server in the world: lab(*rules, default=.., options=..)"""
    import dns  # here, since it imports tests, whose assertions pytest has to see first
    with contextlib.ExitStack() as stack:
        def make(*rules, **more):
            one = dns.Lab(host, *rules, **more)
            stack.callback(one.close)
            return one
        yield make
