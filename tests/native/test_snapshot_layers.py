# SPDX-License-Identifier: Apache-2.0
"""Chains of layers beneath memory and disk: grown, replaced, loaded and put back to. What is a layer is never written
again."""

import contextlib
import errno
import hashlib
import os
import random
import subprocess
import time

import pytest

import snapshot as s
import vmm as v
from snapguest import (RANDOM_POINTS, answer_to_claim, count, disks, goes_on, guest, refused, restore, resume_claimed,
                       second, soon, started, state)
from test_devices import Guest, disk_files, with_disks


def sector(guest, number=100):
    return guest.run('sector', 'vdb', str(number))[1].rstrip(b'\0').decode()


def put_sector(guest, word, number=100):
    assert guest.run('put-sector', 'vdb', str(number), word)[0] == 0


def digest(path):
    return hashlib.sha256(path.read_bytes()).digest()


def same_file(fd, path):
    a, b = os.fstat(fd), path.stat()
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def hello(peer):
    """State, descriptor of vdb's overlay or None, id of the uppermost memory layer or None."""
    m = peer.request(v.Op.HELLO)
    roles = [int.from_bytes(r, 'little') for r in m.all(v.Tag.FD)]
    assert len(roles) == len(m.fds)
    fds = dict(zip(roles, m.fds))
    assert fds.keys() <= {v.Role.CONSOLE, v.Role.DISK_OVERLAY}
    if v.Role.CONSOLE in fds:
        os.close(fds[v.Role.CONSOLE])
    return v.State(m.number(v.Tag.STATE)), fds.get(v.Role.DISK_OVERLAY), m.get(v.Tag.ID)


def assert_hello(peer, state_, overlay, ident):
    found, fd, top = hello(peer)
    assert (found, top) == (state_, ident)
    assert (fd is None) == (overlay is None)
    if overlay:
        assert same_file(fd, overlay)
        os.close(fd)


class Line:
    """A guest with disks, its chains, and a snapshot for each time it was frozen."""

    def __init__(self, disks, directory):
        self.guest, self.base, self.overlay, self.directory = disks.guest, disks.base, disks.overlay, directory
        self.layers, self.disk_layers = [], []
        self.snapshots, self.counts, self.digests = [], [], {}

    def new_overlay(self):
        return s.empty_overlay(self.directory / f'overlay-{len(os.listdir(self.directory))}', self.overlay)

    def save(self):
        """Of a paused guest; its overlay is one of the snapshot's layers, if nobody writes to it any more."""
        name = f'snapshot-{len(os.listdir(self.directory))}'
        snapshot = s.save(self.guest.vmm, self.guest.peer, self.directory / name, self.layers)
        snapshot.disk_layers = [*self.disk_layers, self.overlay]
        return snapshot

    def freeze(self, grow_memory=True):
        """Save, and on with new layers."""
        self.counts.append(count(self.guest))
        s.pause(self.guest.peer)
        snapshot = self.save()
        fresh = self.new_overlay()
        s.resume(self.guest.peer, snapshot.layers[-1] if grow_memory else None, overlay=fresh, frozen=self.overlay)
        self.froze(snapshot, fresh, snapshot.layers if grow_memory else self.layers)
        return snapshot

    def froze(self, snapshot, fresh, layers):
        self.digests[self.overlay] = digest(self.overlay)
        self.layers, self.disk_layers, self.overlay = layers, snapshot.disk_layers, fresh
        self.snapshots.append(snapshot)

    def check_layers(self):
        for path, before in self.digests.items():
            assert digest(path) == before, path


@pytest.fixture
def line(disks, tmp_path):
    directory = tmp_path / 'line'
    directory.mkdir()
    x = Line(disks, directory)
    yield x
    x.check_layers()


def writable(vmm, paths):
    """Those of the files that it could write to."""
    found = set()
    for name in os.listdir(f'/proc/{vmm.process.pid}/fd'):
        path = os.readlink(f'/proc/{vmm.process.pid}/fd/{name}')
        with open(f'/proc/{vmm.process.pid}/fdinfo/{name}') as f:
            flags = next(int(line.split()[1], 8) for line in f if line.startswith('flags:'))
        if flags & os.O_ACCMODE != os.O_RDONLY:
            found.add(path)
    return {path for path in paths if str(path) in found}


# Growing

def test_a_frozen_layer_can_not_be_written_to(line):
    """Not even by a VMM that its guest took over afterwards."""
    g = line.guest
    for i in range(3):
        put_sector(g, f'at {i}')
        line.freeze()
        assert writable(g.vmm, [*line.disk_layers, line.overlay]) == {line.overlay}
    put_sector(g, 'now')
    assert sector(g) == 'now'

    fresh = line.new_overlay()
    s.pause(g.peer)
    for frozen, text in ((line.disk_layers[-1], 'another file'), (fresh, 'another file')):
        refused(errno.EINVAL, text, s.resume, g.peer, overlay=fresh, frozen=frozen)
    refused(errno.EINVAL, 'without an overlay', s.resume, g.peer, frozen=line.overlay)
    s.resume(g.peer)
    assert sector(g) == 'now'


def test_clones_out_of_layers(line):
    """Loaded at every height, memory and disk are of one instant; the parent goes on."""
    g = line.guest
    for i in range(4):
        time.sleep(0.03)
        put_sector(g, f'at {i}')
        put_sector(g, f'only {i}', 120 + i * 16)
        line.freeze()
    put_sector(g, 'later')
    assert [len(x.disk_layers) for x in line.snapshots] == [1, 2, 3, 4]

    for i, snapshot in reversed(list(enumerate(line.snapshots))):
        with v.Vmm() as vmm:
            clone = restore(vmm, snapshot, base=line.base, overlay=line.new_overlay())
            assert line.counts[i] <= count(clone) < soon(line.counts[i])
            assert sector(clone) == f'at {i}'
            for k in range(4):
                assert sector(clone, 120 + k * 16) == (f'only {k}' if k <= i else '')
            put_sector(clone, 'spoilt')
            before = count(clone)
            goes_on(clone, before)
    assert sector(g) == 'later'
    goes_on(g, line.counts[-1])


def test_the_disk_alone(line):
    """Frozen without its memory: a machine boots from these layers."""
    put_sector(line.guest, 'kept')
    line.freeze(grow_memory=False)
    put_sector(line.guest, 'not kept')
    overlay = line.new_overlay()
    with v.Vmm() as vmm:
        g = started(vmm)
        with_disks(vmm, g.peer, line.base, overlay, '', layers=line.disk_layers)
        assert_hello(g.peer, v.State.BUILT, overlay, None)
        vmm.claim(g.peer)
        g.wait_ready()
        assert sector(g) == 'kept'
        assert sector(g, 5) == sector(line.guest, 5)
    assert sector(line.guest) == 'not kept'


def test_the_disk_of_a_clone_may_be_larger(line, second):
    put_sector(line.guest, 'kept', 255)
    snapshot = line.freeze()
    overlay = line.new_overlay()
    os.truncate(overlay, 1 << 20)
    clone = restore(second, snapshot, base=line.base, overlay=overlay)
    assert sector(clone, 255) == 'kept'
    assert sector(clone, 256) == ''
    assert count(clone) >= line.counts[0]


# Rollback

def test_rollback_to_the_second_last(line):
    g = line.guest
    for i in range(3):
        time.sleep(0.03)
        put_sector(g, str(i))
        line.freeze()
    put_sector(g, 'after')
    goes_on(g, line.counts[2])

    for number, at in enumerate((1, 1, 0, 2, 2)):
        s.pause(g.peer)
        overlay = line.new_overlay()
        snapshot = line.snapshots[at]
        s.rollback(g.peer, snapshot, overlay)
        assert_hello(g.peer, v.State.PAUSED, overlay, snapshot.parsed().id)
        resume_claimed(g, 100 + number)
        assert line.counts[at] <= count(g) < soon(line.counts[at])
        assert sector(g) == str(at)
        put_sector(g, 'spoilt')
        goes_on(g, line.counts[at])
        assert s.MEMORY > overlay.stat().st_blocks * 512 > 0


def test_back_to_where_it_was_paused(line):
    """What cubed does when a rollback fails later on: the present overlay, frozen by that, becomes a layer."""
    g = line.guest
    put_sector(g, 'old')
    old = line.freeze()
    put_sector(g, 'now')
    now = count(g)
    s.pause(g.peer)
    undo = line.save()
    s.rollback(g.peer, old, line.new_overlay())
    resume_claimed(g)
    assert sector(g) == 'old'
    s.pause(g.peer)
    s.rollback(g.peer, undo, line.new_overlay())
    resume_claimed(g, 8)
    assert sector(g) == 'now'
    assert now <= count(g) < soon(now)


# Replacing

def test_chains_are_replaced(line):
    g = line.guest
    for i in range(3):
        put_sector(g, str(i), 100 + i * 16)
        line.freeze()
    put_sector(g, 'last', 148)
    now = count(g)
    s.pause(g.peer)
    snapshot = line.save()
    flat = s.flatten(s.Snapshot(snapshot.state, line.layers), line.directory / 'flat').layers
    s.flatten_disk(line.disk_layers, line.directory / 'flat-disk')
    snapshot.layers = [*flat, snapshot.layers[-1]]
    snapshot.disk_layers = [line.directory / 'flat-disk', line.overlay]
    fresh = line.new_overlay()
    s.resume(g.peer, layers=snapshot.layers, overlay=fresh, disk_layers=snapshot.disk_layers)
    line.froze(snapshot, fresh, snapshot.layers)
    assert_hello(g.peer, v.State.RUNNING, fresh, snapshot.parsed().id)

    # On the short chain it grows again, and clones are of that.
    for guest_number in range(2):
        assert [sector(g, n) for n in (100, 116, 132, 148)] == ['0', '1', '2', 'last']
        assert count(g) >= now
        line.freeze()
    with v.Vmm() as vmm:
        last = line.snapshots[-1]
        assert (len(last.layers), len(last.disk_layers)) == (4, 4)
        clone = restore(vmm, last, base=line.base, overlay=line.new_overlay())
        assert line.counts[-1] <= count(clone) < soon(line.counts[-1])
        assert [sector(clone, n) for n in (100, 116, 132, 148)] == ['0', '1', '2', 'last']
    assert count(g) >= line.counts[-1]


def test_only_memory_is_replaced(vmm, guest, tmp_path):
    layers, counts = [], []
    for i in range(2):
        counts.append(count(guest))
        s.pause(guest.peer)
        snapshot = s.save(vmm, guest.peer, tmp_path / str(i), layers)
        layers = snapshot.layers
        s.resume(guest.peer, layers[-1])
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'last', layers)
    flat = s.flatten(s.Snapshot(snapshot.state, layers), tmp_path / 'flat').layers
    s.resume(guest.peer, layers=[*flat, snapshot.layers[-1]])
    assert count(guest) >= counts[-1]
    s.pause(guest.peer)
    _, runs = s.save_state(vmm, guest.peer, tmp_path / 'state')
    # Nothing is private but what was touched since.
    assert sum(size for _, size, _ in runs) < 4 << 20
    s.resume(guest.peer)
    assert count(guest) >= counts[-1]


def test_full_chains(line):
    g = line.guest
    for _ in range(s.DISK_LAYERS_MAX):
        put_sector(g, 'x')
        line.freeze(grow_memory=len(line.layers) < 7)
    s.pause(g.peer)
    snapshot = line.save()
    fresh = line.new_overlay()
    top = line.snapshots[6].parsed().id
    refused(errno.E2BIG, '8 layers', s.resume, g.peer, overlay=fresh)
    refused(errno.E2BIG, '7 layers', s.resume, g.peer, snapshot.layers[-1])
    refused(errno.E2BIG, 'at most 7', s.resume, g.peer, layers=snapshot.layers)
    refused(errno.E2BIG, 'at most 8', s.resume, g.peer, overlay=fresh, disk_layers=snapshot.disk_layers)
    refused(errno.E2BIG, 'at most 8', s.rollback, g.peer,
            s.Snapshot(snapshot.state, line.layers, None, snapshot.disk_layers), fresh)
    assert_hello(g.peer, v.State.PAUSED, line.overlay, top)

    flat = s.flatten(s.Snapshot(snapshot.state, line.layers), line.directory / 'flat').layers
    s.flatten_disk(line.disk_layers, line.directory / 'flat-disk')
    s.resume(g.peer, layers=[*flat, snapshot.layers[-1]], overlay=fresh,
             disk_layers=[line.directory / 'flat-disk', line.overlay])
    assert_hello(g.peer, v.State.RUNNING, fresh, snapshot.parsed().id)
    assert sector(g) == 'x'
    assert count(g) >= line.counts[-1]


# Refusing

def test_wrong_files_change_nothing(line):
    g = line.guest
    for i in range(3):
        put_sector(g, str(i))
        line.freeze()
    put_sector(g, 'now')
    s.pause(g.peer)
    stale = line.save()
    snapshot = line.save()
    top, fresh = line.snapshots[-1].parsed().id, line.new_overlay()
    a, b, c = line.layers
    last, stale_layer = snapshot.layers[-1], stale.layers[-1]
    flat = s.flatten(s.Snapshot(snapshot.state, line.layers), line.directory / 'flat').layers[0]
    low = s.flatten(s.Snapshot(snapshot.state, [a, b]), line.directory / 'low').layers[0]
    used = line.new_overlay()
    used.write_bytes(b'not empty')
    longer = line.new_overlay()
    os.truncate(longer, 1 << 30)
    d, present = line.disk_layers, line.overlay

    def try_one(error, text, **kwargs):
        refused(error, text, s.resume, g.peer, **kwargs)
        assert_hello(g.peer, v.State.PAUSED, present, top)

    bad, invalid = errno.EBADMSG, errno.EINVAL
    try_one(bad, 'saved last', layer=stale_layer, overlay=fresh)
    for chain in ([a, b, c, stale_layer], [a, c, last], [a, b, c], [last, flat], [low, last], [c, last], [flat, flat]):
        try_one(bad, '', layers=chain, overlay=fresh)
    # Sound in itself, but on top of something else.
    ident, other = snapshot.parsed().id, bytes(range(16))
    low, alone, over = (line.directory / x for x in ('other', 'alone', 'over'))
    s.write_layer(low, s.MEMORY, other, s.NO_ID, [])
    s.write_layer(alone, s.MEMORY, ident, s.NO_ID, [])
    s.write_layer(over, s.MEMORY, ident, other, [])
    try_one(bad, 'stands on another', layer=alone, overlay=fresh)
    try_one(bad, 'stands on another', layers=[low, over], overlay=fresh)
    for overlay, text in ((used, 'not empty'), (longer, 'only'), (present, 'in use'), (d[0], 'in use')):
        try_one(invalid, text, layer=last, overlay=overlay)
        try_one(invalid, '', layer=last, overlay=overlay, disk_layers=[*d, present])
    try_one(invalid, 'without an overlay', layer=last, disk_layers=[*d, present])
    for chain, text in ((d, 'end with'), ([present, d[0]], 'end with'), ([d[0], d[0], present], 'in use'),
                        ([longer, present], 'only')):
        try_one(invalid, text, layer=last, overlay=fresh, disk_layers=chain)

    def raw(*files):
        with s.opened(files) as fds:
            g.peer.request(v.Op.RESUME, s.roles(files), fds)

    refused(invalid, 'reading and writing', raw, (v.Role.DISK_OVERLAY, fresh, os.O_RDONLY))
    refused(invalid, 'read-only', raw, (v.Role.DISK_LAYER, present, os.O_RDWR), (v.Role.DISK_OVERLAY, fresh, os.O_RDWR))
    refused(invalid, 'one file', raw, (v.Role.DISK_OVERLAY, fresh, os.O_RDWR), (v.Role.DISK_OVERLAY, used, os.O_RDWR))
    refused(invalid, 'no use', raw, (v.Role.DISK_BASE, fresh, os.O_RDONLY))
    refused(invalid, 'no use', raw, (v.Role.STATE, snapshot.state, os.O_RDONLY))

    # All went on as before, and into the same file.
    before = os.stat(fresh).st_blocks
    s.resume(g.peer)
    put_sector(g, 'on')
    assert sector(g) == 'on'
    assert count(g) >= line.counts[-1]
    assert os.stat(fresh).st_blocks == before == 0
    assert b'on\0' in present.read_bytes()[100 * 512:101 * 512]


def test_wrong_files_for_a_rollback_change_nothing(line):
    g = line.guest
    put_sector(g, 'old')
    old = line.freeze()
    put_sector(g, 'now')
    s.pause(g.peer)
    fresh = line.new_overlay()
    top = old.parsed().id
    longer = line.new_overlay()
    os.truncate(longer, 1 << 30)
    for overlay, chain, text in ((longer, old.disk_layers, 'only'), (fresh, [longer], 'only'),
                                 (old.disk_layers[0], old.disk_layers, 'in use')):
        bad = s.Snapshot(old.state, old.layers, None, chain)
        refused(errno.EINVAL, text, s.rollback, g.peer, bad, overlay)
        assert_hello(g.peer, v.State.PAUSED, line.overlay, top)
    files = [(v.Role.STATE, old.state, os.O_RDONLY), (v.Role.LAYER, old.layers[0], os.O_RDONLY),
             (v.Role.DISK_LAYER, old.disk_layers[0], os.O_RDONLY)]
    with s.opened(files) as fds:
        refused(errno.EINVAL, 'without an overlay', g.peer.request, v.Op.ROLLBACK, s.roles(files), fds)
    s.resume(g.peer)
    assert sector(g) == 'now'


def test_layers_for_a_machine_that_can_not_take_them(line, vmm, second, tmp_path):
    snapshot = line.freeze()
    peer = second.connect()
    longer = s.empty_overlay(tmp_path / 'longer', line.overlay)
    os.truncate(longer, 1 << 30)
    for chain, overlay, error, text in (
            ([longer], line.new_overlay(), errno.EINVAL, 'disk layer 0'),
            (snapshot.disk_layers, snapshot.disk_layers[0], errno.EINVAL, 'in use'),
            (snapshot.disk_layers * 9, line.new_overlay(), errno.EINVAL, 'no use')):
        refused(error, text, s.load, second, peer, s.Snapshot(snapshot.state, snapshot.layers, None, chain), line.base,
                overlay)
        assert state(peer) == v.State.NEW
    peer.close()
    plain = Guest(second).wait_ready()
    s.pause(plain.peer)
    refused(errno.EINVAL, 'no disk', s.resume, plain.peer, overlay=line.new_overlay())
    s.resume(plain.peer)


@contextlib.contextmanager
def no_new_mappings(vmm):
    """Memory that is there can be used; none can be mapped."""
    def limit(value):
        subprocess.run(['prlimit', f'--pid={vmm.process.pid}', f'--data={value}:'], check=True, user=vmm.uid, group=vmm.uid,
                       extra_groups=[])

    limit(4096)
    yield
    limit('unlimited')


def test_a_mapping_that_fails(line):
    """Of a layer: the machine is torn, its disk is as it was, and a rollback leads out."""
    g = line.guest
    put_sector(g, 'old')
    old = line.freeze()
    put_sector(g, 'now')
    s.pause(g.peer)
    snapshot = line.save()
    fresh = line.new_overlay()
    with no_new_mappings(g.vmm):
        refused(errno.ENOMEM, 'mapping', s.resume, g.peer, snapshot.layers[-1], overlay=fresh)
    assert_hello(g.peer, v.State.TORN, line.overlay, old.parsed().id)
    refused(errno.EPROTO, 'RESUME', s.resume, g.peer)
    s.rollback(g.peer, old, fresh)
    resume_claimed(g)
    assert sector(g) == 'old'
    assert count(g) >= line.counts[0]


# Telling

def test_hello_tells_where_the_disk_and_the_memory_stand(line, vmm, second):
    peer = second.connect()
    assert_hello(peer, v.State.NEW, None, None)
    g = line.guest
    assert_hello(g.peer, v.State.RUNNING, line.overlay, None)
    s.pause(g.peer)
    assert_hello(g.peer, v.State.PAUSED, line.overlay, None)
    s.resume(g.peer)
    snapshot = line.freeze()
    assert_hello(g.peer, v.State.RUNNING, line.overlay, snapshot.parsed().id)
    # To whoever comes next.
    g.peer.close()
    g.peer = vmm.connect()
    assert_hello(g.peer, v.State.RUNNING, line.overlay, snapshot.parsed().id)

    overlay = line.new_overlay()
    s.load(second, peer, snapshot, base=line.base, overlay=overlay)
    assert_hello(peer, v.State.BUILT, overlay, snapshot.parsed().id)
    second.claim(peer)
    answer_to_claim(peer)
    assert_hello(peer, v.State.RUNNING, overlay, snapshot.parsed().id)
    with v.Vmm() as plain:
        base, _ = disk_files(line.directory)
        g = Guest(plain).wait_ready()
        assert_hello(g.peer, v.State.RUNNING, None, None)


def test_an_answer_that_waits_keeps_its_descriptors(line):
    """A peer that reads nothing for a while: what it gets then is what was true when it was answered."""
    g = line.guest
    line.freeze()
    s.pause(g.peer)
    line.save()
    old, fresh = line.overlay, line.new_overlay()
    for _ in range(330):
        g.peer.send(v.Op.STATISTICS)
    asked = g.peer.send(v.Op.HELLO)
    files = s.disk_files([*line.disk_layers, old], fresh)
    with s.opened(files) as fds:
        last = g.peer.send(v.Op.RESUME, s.roles(files), fds)
    time.sleep(0.2)
    answers = []
    while not answers or answers[-1].seq != last:
        answers.append(g.peer.receive())
    hello_, = [m for m in answers if m.seq == asked]
    assert [m.error for m in answers] == [0] * len(answers)
    assert [int.from_bytes(r, 'little') for r in hello_.all(v.Tag.FD)] == [v.Role.CONSOLE, v.Role.DISK_OVERLAY]
    assert os.fstat(hello_.fds[0]).st_ino == os.fstat(g.vmm.console).st_ino
    assert same_file(hello_.fds[1], old)
    for fd in hello_.fds:
        os.close(fd)
    assert_hello(g.peer, v.State.RUNNING, fresh, line.snapshots[0].parsed().id)


# Random points

def test_random_points(line, disks):
    """Saved at any moment; then it goes on over new layers, or is put back, or is loaded into a fresh VMM, in any
    order. Chains that are long are given flattened."""
    rng = random.Random(4711)
    last, done, pauses = 0, dict.fromkeys(('on', 'back', 'move'), 0), []
    for i in range(RANDOM_POINTS):
        g = line.guest
        time.sleep(rng.random() * 0.02)
        if rng.random() < 0.3:
            g.start('echo', 'x' * rng.randrange(100))
        if rng.random() < 0.3:
            put_sector(g, str(i), rng.randrange(24, 256))
        begin = time.monotonic()
        s.pause(g.peer)
        pauses.append(time.monotonic() - begin)
        snapshot = line.save()
        what = rng.choice(list(done))
        done[what] += 1
        flat, flat_disk = line.directory / f'flat-{i}', line.directory / f'flat-disk-{i}'
        fresh = line.new_overlay()
        long = rng.random() < 0.2 or len(snapshot.layers) > 6 or len(snapshot.disk_layers) > 7

        if what == 'on' and long and line.layers and line.disk_layers:
            below = s.flatten(s.Snapshot(snapshot.state, line.layers), flat).layers
            s.flatten_disk(line.disk_layers, flat_disk)
            snapshot.layers = [*below, snapshot.layers[-1]]
            snapshot.disk_layers = [flat_disk, line.overlay]
            s.resume(g.peer, layers=snapshot.layers, overlay=fresh, disk_layers=snapshot.disk_layers)
        elif what == 'on':
            s.resume(g.peer, snapshot.layers[-1], overlay=fresh)
        elif long:
            s.flatten_disk(snapshot.disk_layers, flat_disk)
            snapshot = s.flatten(snapshot, flat)
            snapshot.disk_layers = [flat_disk]
        if what == 'back':
            s.rollback(g.peer, snapshot, fresh)
            resume_claimed(g, 5000 + i)
        elif what == 'move':
            line.guest = restore(disks.other(), snapshot, base=line.base, overlay=fresh)
            g.vmm.__exit__()
        line.froze(snapshot, fresh, snapshot.layers)
        now = count(line.guest)
        assert now >= last
        last = now
    assert all(done.values())
    pauses.sort()
    middle, longest = pauses[len(pauses) // 2] * 1e3, pauses[-1] * 1e3
    print(f'{done}, counter at {last}, pause p50 {middle:.2f} ms, max {longest:.2f} ms')
