# SPDX-License-Identifier: Apache-2.0
"""E2B's `network` of a sandbox, with packets: what a program written for E2B expects to reach is reached, and nothing else.

policy_of() is what the gateway has to do (docs/ARCHITECTURE.md); tests/unit/test-e2b-policy.c has more cases of the order."""

import ipaddress

import pytest

from test_verdict import asks, reaches

ALL_TRAFFIC = '0.0.0.0/0'
# What E2B denies whatever the user says, and with what else is special here.
SPECIAL = [ipaddress.ip_network(n) for n in (
    '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16 198.18.0.0/15'
    ' 224.0.0.0/4 240.0.0.0/4 ::1/128 fc00::/7 fe80::/10 ff00::/8').split()]

A, B, DNS8, PRIVATE, METADATA = '203.0.113.10', '203.0.113.20', '8.8.8.8', '10.66.0.5', '169.254.169.254'
A6, B6, PRIVATE6 = '2001:db8:1::10', '2001:db8:1::20', 'fd00:66::5'
PLACES = (A, B, DNS8, PRIVATE, METADATA, A6, B6, PRIVATE6)
INTERNET = {A, B, DNS8, A6, B6}


def is_special(text):
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return any(network.version == s.version and network.subnet_of(s) for s in SPECIAL)


def policy_of(allow_out=(), deny_out=(), allow_internet_access=True):
    """(rules, default)"""
    everything = not allow_internet_access or ALL_TRAFFIC in deny_out
    rules = [f'allow {a}' for a in allow_out if not is_special(a)]
    rules += [f'deny {d}' for d in deny_out if not everything]
    return rules, 'deny' if everything else 'internet'


CASES = [
    # what the user says, and what is reached
    ({}, INTERNET),
    ({'allow_internet_access': False}, set()),
    ({'deny_out': [ALL_TRAFFIC]}, set()),
    ({'deny_out': [DNS8, '203.0.113.16/28']}, {A, A6, B6}),
    ({'allow_out': [A]}, INTERNET),
    ({'allow_out': [A, B6], 'deny_out': [ALL_TRAFFIC]}, {A, B6}),
    ({'allow_out': [A], 'allow_internet_access': False}, {A}),
    # allow wins, whichever is the smaller one
    ({'allow_out': [A], 'deny_out': ['203.0.113.0/24']}, {A, DNS8, A6, B6}),
    ({'allow_out': ['203.0.113.0/24'], 'deny_out': [A]}, INTERNET),
    ({'allow_out': ['8.0.0.0/8'], 'deny_out': ['8.8.8.8/32', ALL_TRAFFIC]}, {DNS8}),
    ({'allow_out': [ALL_TRAFFIC], 'deny_out': [ALL_TRAFFIC]}, {A, B, DNS8}),
    ({'allow_out': [A6], 'deny_out': ['2001:db8:1::/48']}, {A, B, DNS8, A6}),
    # no rule of a user's opens these
    ({'allow_out': [PRIVATE, METADATA, PRIVATE6, '10.0.0.0/8', '169.254.0.0/16', 'fc00::/7']}, INTERNET),
    ({'allow_out': [PRIVATE, METADATA, A], 'deny_out': [ALL_TRAFFIC]}, {A}),
    # a name opens what it resolves to, and here nothing has been resolved
    ({'allow_out': ['example.com', '*.example.com'], 'deny_out': [ALL_TRAFFIC]}, set()),
    ({'allow_out': ['example.com', B], 'deny_out': [ALL_TRAFFIC]}, {B}),
]


def reached(guest, world):
    return {place for place in PLACES if reaches(guest, world, place, 443)}


@pytest.mark.parametrize('network, expected', CASES, ids=[str(n) for n, _ in CASES])
def test_what_is_reached(host, network, expected):
    rules, default = policy_of(**network)
    sandbox = host.sandbox(*rules, default=default)
    assert reached(sandbox.guest(), host.world) == expected


def test_a_new_network_replaces_the_old_one(host):
    """PUT /sandboxes/ID/network: what is left out is cleared, and {} opens everything."""
    sandbox = host.sandbox()
    guest = sandbox.guest()
    for network, expected in [({'allow_out': [A], 'deny_out': [ALL_TRAFFIC]}, {A}), ({'deny_out': [A]}, INTERNET - {A}),
                              ({}, INTERNET)]:
        rules, default = policy_of(**network)
        sandbox.policy(*rules, default=default)
        assert reached(guest, host.world) == expected


def test_every_protocol_alike(host):
    rules, default = policy_of(allow_out=[A], deny_out=[ALL_TRAFFIC])
    guest = host.sandbox(*rules, default=default).guest()
    assert asks(guest, host.world, A) and not asks(guest, host.world, DNS8)
    assert guest.ping(A) and not guest.ping(B, timeout=0.3)
