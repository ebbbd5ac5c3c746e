# SPDX-License-Identifier: Apache-2.0
"""Snapshots that releases have written (tests/data/release-N) are loaded by this one."""

import base64
import io
import json
import pathlib
import tarfile
import time

import pytest

import snapshot as s
import vmm as v
from snapguest import answer_to_claim, count, started
from test_snapshot_time import Clock

RELEASES = sorted((v.ROOT / 'tests/data').glob('release-*'))
# What the loader says when it is the host that differs, vmm/snapshot-vcpu.c and vmm/cpuid.c.
OF_THE_HOST = ['this host', 'features of another CPU']


def test_there_is_one():
    assert RELEASES


class Release:
    def __init__(self, source, directory):
        packed = base64.b64decode((source / 'snapshot.tar.xz.b64').read_bytes())
        with tarfile.open(fileobj=io.BytesIO(packed), mode='r:xz') as tar:
            tar.extractall(directory)
        self.facts = json.loads((source / 'facts.json').read_text())
        self.base = directory / 'base'
        self.overlay = directory / 'disk-1'
        layers = sorted(directory.glob('memory-*'))
        self.snapshot = s.Snapshot(directory / 'state', layers, disk_layers=[directory / 'disk-0'])

    def load(self, vmm, peer):
        try:
            s.load(vmm, peer, self.snapshot, base=self.base, overlay=self.overlay)
        except v.Refused as e:
            if any(text in e.message for text in OF_THE_HOST):
                pytest.skip(e.message)
            raise


@pytest.mark.parametrize('source', RELEASES, ids=lambda p: p.name)
def test_a_guest_of_that_release_goes_on(vmm, peer, source, tmp_path):
    release = Release(source, tmp_path)
    release.load(vmm, peer)
    vmm.claim(peer)
    answer_to_claim(peer)
    guest = started(vmm, peer)
    first = count(guest)
    assert first >= release.facts['count']
    time.sleep(0.05)
    assert count(guest) > first
    assert release.facts['monotonic'] < Clock(guest).monotonic < release.facts['monotonic'] + 60_000_000_000
    assert guest.run('sector', 'vdb', '100')[1].rstrip(b'\0') == b'release'
    # What it becomes is a snapshot of this release.
    s.pause(peer)
    again = s.save(vmm, peer, tmp_path / 'again', release.snapshot.layers, release.overlay)
    again.disk_layers = release.snapshot.disk_layers
    with v.Vmm() as other:
        peer = other.connect()
        s.load(other, peer, again, base=release.base, overlay=again.overlay)
        other.claim(peer)
        answer_to_claim(peer)
        assert count(started(other, peer)) > first
