# SPDX-License-Identifier: Apache-2.0
"""The end of the service: `cube-netd --remove` takes everything away, unless a sandbox still runs."""

import os
import subprocess

import netlab
import pytest
from test_lifecycle import SERVER, links, tables
from test_verdict import reaches


def state(host):
    return (tables(host), 'cube-host' in host.netns.run('ip', '-o', 'link').stdout, sorted(os.listdir(host.directory)),
            *(host.netns.sysctl(key) for key in ('ipv4/conf/up0/forwarding', 'ipv6/conf/all/forwarding')))


def test_nothing_is_left(make_host):
    host = make_host(start=False, net6='fd3c:cbed::/64')
    before = state(host)
    host.start()
    host.netns.run('nft', 'add table inet other')
    assert state(host) != before
    host.netd.stop()
    assert host.remove() == (0, '')
    host.netns.run('nft', 'delete table inet other')
    assert state(host) == before
    assert host.remove() == (0, ''), 'there is nothing to be removed'


def test_settings_that_were_there_before_stay(make_host):
    host = make_host(start=False, net6='fd3c:cbed::/64')
    for key in ('ipv4/conf/up0/forwarding', 'ipv6/conf/all/forwarding'):
        host.netns.sysctl(key, 1)
    before = state(host)
    host.start()
    host.netd.stop()
    assert host.remove() == (0, '')
    assert state(host) == before


def test_a_sandbox_that_runs_keeps_what_it_leans_on(host):
    s = host.sandbox('allow 203.0.113.0/24')
    policy = s.policy('allow 203.0.113.0/24')['policy']
    s.claim(policy, owner=1000)
    guest = s.guest()
    host.netd.stop()
    before = state(host)
    status, said = host.remove()
    assert (status, 'sandboxes run on' in said) == (0, True)
    assert state(host) == before
    assert reaches(guest, host.world, SERVER)
    assert not reaches(guest, host.world, '8.8.8.8')


def test_free_slots_are_waited_for(host):
    """They end with cubed, a moment after it."""
    s = host.sandbox()
    host.netd.stop()
    with host.start_removal() as p:
        with pytest.raises(subprocess.TimeoutExpired):
            p.wait(0.3)
        s.close()
        assert p.wait(netlab.PATIENT) == 0
    assert not links(host) and 'cubed' not in tables(host) and not any(name.isdigit() for name in os.listdir(host.directory))


def test_without_the_bpf_file_system_there_is_nothing_to_be_removed(host, tmp_path):
    host.netd.stop()
    assert host.remove(tmp_path / 'none') == (0, '')
    assert 'cubed' not in tables(host)


def test_what_is_in_the_way_is_named_and_the_rest_goes(host):
    host.netd.stop()
    (host.pins() / 'theirs').mkdir()
    status, said = host.remove()
    assert status == 1 and f"Can't remove the maps in {host.directory}: Is a directory; 'cube-netd --remove'" in said
    assert 'cubed' not in tables(host) and 'cube-host' not in host.netns.run('ip', '-o', 'link').stdout
    assert os.listdir(host.pins()) == ['theirs']
    (host.pins() / 'theirs').rmdir()
    assert host.remove() == (0, '')


def test_nothing_goes_while_nobody_can_tell_what_runs(host):
    host.netd.stop()
    pinned = host.pins() / 'sandboxes'
    pinned.unlink()
    pinned.mkdir()
    before = state(host)
    status, said = host.remove()
    assert status == 1 and f'Can\'t open the map "sandboxes" in {host.directory}: ' in said
    assert state(host) == before
    pinned.rmdir()
    assert host.remove() == (0, '')
