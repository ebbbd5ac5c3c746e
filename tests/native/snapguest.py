# SPDX-License-Identifier: Apache-2.0
"""Guests that are saved and go on elsewhere, with tests/payload in them: its program "counter" checks all the time
that memory and disk are what it left there."""

import os
import time

import pytest

import snapshot as s
import vmm as v
from test_devices import OK, Guest, disk_files, parse_frame, with_disks

RANDOM_POINTS = 200 if os.environ.get('CUBE_LONG') == '1' else 40
HOSTILE_FILES = 2000 if os.environ.get('CUBE_LONG') == '1' else 300
# How far "counter" can come in a second, and between what is asked of it and what is done on a host that is busy.
SOON = 10_000


def state(peer):
    return v.State(peer.request(v.Op.HELLO).number(v.Tag.STATE))


def refused(error, text, call, *args, **kwargs):
    with pytest.raises(v.Refused) as info:
        call(*args, **kwargs)
    assert info.value.errno == error, info.value
    assert text in info.value.message, info.value.message


def started(vmm, peer=None):
    g = Guest.__new__(Guest)
    g.vmm, g.peer, g.number = vmm, peer or vmm.connect(), 1000
    return g


def answer_to_claim(peer, number=1):
    kind, ident, _ = parse_frame(peer.event(v.Op.EVENT_AGENT).get(v.Tag.FRAME))
    assert (kind, ident) == (OK, number)


def restore(vmm, snapshot, **kwargs):
    """A second guest out of a snapshot, running."""
    g = started(vmm)
    s.load(vmm, g.peer, snapshot, **kwargs)
    vmm.claim(g.peer)
    answer_to_claim(g.peer)
    return g


class Count(int):
    """How far it was, and when it was asked."""


def count(guest):
    """How far "counter" is; fails when it found anything that was not as it had left it."""
    asked = time.monotonic()
    status, out, _ = guest.run('count')
    value, bad = out.split()
    assert (status, bad) == (0, b'0')
    found = Count(value)
    found.asked = asked
    return found


def soon(value):
    """How far it can be by now: whoever asks may have had no CPU between the two, and the guest one."""
    return value + SOON * (1 + time.monotonic() - value.asked)


def goes_on(guest, value):
    """Its "counter" gets beyond that."""
    s.wait_until(lambda: count(guest) > value)


def resume_claimed(guest, number=7):
    s.resume(guest.peer, claim=number)
    answer_to_claim(guest.peer, number)


@pytest.fixture
def guest(vmm):
    g = Guest(vmm).wait_ready()
    g.start('counter')
    return g


@pytest.fixture
def second():
    with v.Vmm() as vmm:
        yield vmm


class Disks:
    """A guest with vda and vdb, and the files behind them."""

    def __init__(self, vmm, tmp_path):
        self.base, self.overlay = disk_files(tmp_path)
        self.others = []
        self.guest = started(vmm)
        with_disks(vmm, self.guest.peer, self.base, self.overlay, '')
        vmm.claim(self.guest.peer)
        self.guest.wait_ready()
        self.guest.start('counter')

    def other(self):
        self.others.append(v.Vmm())
        return self.others[-1]


@pytest.fixture
def disks(vmm, tmp_path):
    d = Disks(vmm, tmp_path)
    yield d
    for other in d.others:
        if other.process.poll() is None:
            other.__exit__()


def differing(a, b):
    assert a.sections.keys() == b.sections.keys()
    return {k for k in a.sections if a.sections[k] != b.sections[k]}


class Loader:
    """LOADs one file after another, in one VMM as long as that refuses them."""

    def __init__(self):
        self.vmm = None
        self.taken = 0

    def open(self):
        self.vmm = v.Vmm()
        self.peer = self.vmm.connect()
        assert state(self.peer) == v.State.NEW
        self.fds = len(os.listdir(f'/proc/{self.vmm.process.pid}/fd'))

    def close(self):
        if self.vmm:
            self.vmm.__exit__()
        self.vmm = None

    def try_file(self, snapshot):
        if not self.vmm:
            self.open()
        try:
            s.load(self.vmm, self.peer, snapshot)
        except v.Refused as e:
            assert e.message
            assert state(self.peer) == v.State.NEW
            assert len(os.listdir(f'/proc/{self.vmm.process.pid}/fd')) == self.fds
            return False
        assert state(self.peer) == v.State.BUILT
        self.taken += 1
        self.close()
        return True


@pytest.fixture
def loader():
    x = Loader()
    yield x
    x.close()
