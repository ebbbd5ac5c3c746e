# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files of snapshots: refused by name, or harmless."""

import errno
import random
import struct
import time

import pytest

import snapshot as s
import vmm as v
from snapguest import HOSTILE_FILES, guest, loader, refused, resume_claimed
from test_devices import STDIN


@pytest.fixture
def good(vmm, guest, tmp_path):
    stdin = guest.process_stream(guest.start('cat'), STDIN)
    s.pause(guest.peer)
    snapshot = s.save(vmm, guest.peer, tmp_path / 'good')
    stdin.close()
    return snapshot


def test_truncated_files(good, loader, tmp_path):
    data = good.state.read_bytes()
    rng = random.Random(1)
    for size in [0, 1, 7, 8, 63, 64, 65, 95, 96, len(data) - 1, *(rng.randrange(len(data)) for _ in range(30))]:
        assert not loader.try_file(good.with_state(tmp_path / 'cut', data[:size]))
    assert not loader.try_file(good.with_state(tmp_path / 'longer', data + bytes(8)))
    assert not loader.try_file(good.with_state(tmp_path / 'huge', bytes(5 << 20)))
    # Sections cut short, or grown, with everything else in order.
    for key in good.parsed().sections:
        for cut in (-1, 1, 8):
            parsed = good.parsed()
            body = parsed.sections[key]
            parsed.sections[key] = body[:-1] if cut < 0 else body + bytes(cut)
            if key != (s.CPUID, 0) or cut < 0:
                assert not loader.try_file(good.with_state(tmp_path / 'section', parsed.pack())), key
        parsed = good.parsed()
        del parsed.sections[key]
        assert not loader.try_file(good.with_state(tmp_path / 'missing', parsed.pack())), key
    assert loader.try_file(good)


def same_sections(a, b):
    try:
        return s.StateFile(bytes(a)).sections == s.StateFile(b).sections and a[:64] == b[:64]
    except AssertionError:
        return False


def test_flipped_bits_are_seen(good, loader, tmp_path):
    data = good.state.read_bytes()
    rng = random.Random(2)
    for _ in range(HOSTILE_FILES // 3):
        damaged = bytearray(data)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        # Padding between sections is nobody's.
        if same_sections(damaged, data):
            continue
        assert not loader.try_file(good.with_state(tmp_path / 'bit', bytes(damaged)))


def test_hostile_contents(good, loader, tmp_path):
    """Files with right checksums and wrong contents: refused by name, or harmless. A guest that was made of one
    may do what it wants, the VMM stays up."""
    rng = random.Random(3)
    values = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, (1 << 63) - 1, (1 << 64) - 1]
    for _ in range(HOSTILE_FILES):
        parsed = good.parsed()
        key = rng.choice(list(parsed.sections))
        body = parsed.sections[key]
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            size = rng.choice((1, 2, 4, 8))
            if len(body) < size:
                continue
            at = rng.randrange(len(body) - size + 1)
            value = rng.choice(values) & ((1 << 8 * size) - 1) if rng.random() < 0.7 else rng.getrandbits(8 * size)
            body[at:at + size] = value.to_bytes(size, 'little')
        loader.try_file(good.with_state(tmp_path / 'hostile', parsed.pack()))
    print(f'{loader.taken} of {HOSTILE_FILES} were taken')


def test_hostile_guests_run(good, tmp_path):
    """What was taken also runs, or ends, and is saved, without harm to the VMM."""
    rng = random.Random(4)
    for i in range(20):
        parsed = good.parsed()
        key = rng.choice([k for k in parsed.sections if k[0] in (s.VCPU, s.VIRTIO, s.VSOCK, s.PCI)])
        body = parsed.sections[key]
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        with v.Vmm() as vmm:
            peer = vmm.connect()
            try:
                s.load(vmm, peer, good.with_state(tmp_path / 'one', parsed.pack()))
            except v.Refused:
                continue
            try:
                vmm.claim(peer)
                time.sleep(0.02)
                s.pause(peer)
                s.save_state(vmm, peer, tmp_path / f'state-{i}')
                s.resume(peer)
                peer.request(v.Op.KILL)
            except (v.ProtocolError, BrokenPipeError):
                pass
            status, record = vmm.wait()
            assert status == 0 and record[0] in (v.Reason.KILLED, v.Reason.INTERNAL_ERROR, v.Reason.TRIPLE_FAULT,
                                                 v.Reason.RESET, v.Reason.POWEROFF, v.Reason.PANIC)


def test_hostile_memory_files(good, loader, tmp_path):
    data = good.layers[0].read_bytes()
    header = s.LAYER_HEADER.unpack_from(data)
    n, memory, ident = header[2], header[3], header[4]
    runs = [list(s.RUN.unpack_from(data, s.LAYER_HEADER.size + i * s.RUN.size)) for i in range(n)]
    path = tmp_path / 'layer'

    def attempt(change, **kwargs):
        changed = [list(r) for r in runs]
        change(changed)
        packed = b''.join(s.RUN.pack(*r) for r in changed)
        s.seal_layer(path, kwargs.get('memory', memory), kwargs.get('ident', ident), kwargs.get('parent', s.NO_ID),
                     kwargs.get('n', len(changed)), packed)
        with open(path, 'r+b') as f:
            f.truncate(len(data))
            f.seek(max(4096, s.LAYER_HEADER.size + len(packed)))
            f.write(data[f.tell():])
        return loader.try_file(s.Snapshot(good.state, [path]))

    def put(index, field, value):
        def change(x):
            x[index][field] = value
        return change

    last = next(r for r in reversed(runs) if r[2] != s.RUN_ZERO)
    at = runs.index(last)
    for change in (put(0, 0, 1), put(0, 0, 1 << 63), put(-1, 0, memory), put(-1, 1, 0), put(-1, 1, 4097),
                   put(-1, 1, (1 << 64) - 4096), put(-1, 1, memory), put(at, 2, 1), put(at, 2, len(data)),
                   put(at, 2, 1 << 62), put(at, 2, (1 << 64) - 4096), lambda x: x.append(list(x[-1])),
                   lambda x: x.reverse(), put(at, 1, 1 << 40)):
        assert not attempt(change)
    nothing = lambda x: None
    assert not attempt(nothing, memory=memory * 2)
    assert not attempt(nothing, ident=bytes(range(16)))
    assert not attempt(nothing, parent=bytes(range(16)))
    assert not attempt(nothing, n=5000)
    assert not attempt(nothing, n=0xffffffff)
    for size in (0, 10, 63, 64, s.LAYER_HEADER.size + 5, 4096):
        assert not loader.try_file(s.Snapshot(good.state, [s.small_file(tmp_path, 'cut', data[:size])]))
    damaged = bytearray(data)
    damaged[70] ^= 1
    assert not loader.try_file(s.Snapshot(good.state, [s.small_file(tmp_path, 'bit', damaged)]))
    assert not loader.try_file(s.Snapshot(good.state, []))
    assert not loader.try_file(s.Snapshot(good.state, good.layers * 2))
    assert attempt(nothing)


@pytest.mark.parametrize('what, error, text', [
    ('version', errno.EPROTONOSUPPORT, 'version 2'), ('architecture', errno.EPROTONOSUPPORT, 'architecture'),
    ('type', errno.EPROTONOSUPPORT, 'unknown type'),
    ('cpuid', errno.EOPNOTSUPP, 'another CPU'), ('svm', errno.EBADMSG, 'no guest is given'),
    ('msr', errno.EBADMSG, 'MSR 0x10'), ('disk', errno.EXDEV, 'disk 0')])
def test_what_another_version_or_host_made_is_refused_by_name(good, loader, tmp_path, what, error, text):
    parsed = good.parsed()
    data = None
    if what in ('cpuid', 'svm'):
        set_leaf_bit(parsed, *((7, 16, 27) if what == 'cpuid' else (0x80000001, 20, 2)))
    elif what == 'msr':
        body = parsed.sections[s.VCPU, 0]
        _, n, xsave, _ = struct.unpack_from('<IIII', body)
        struct.pack_into('<I', body, len(body) - n * 16 - xsave, 0x10)
    elif what == 'disk':
        struct.pack_into('<I', parsed.sections[s.CONFIG, 0], 24, 1)
    else:
        data = bytearray(good.state.read_bytes())
        struct.pack_into('<I', data, {'version': 8, 'architecture': 12, 'type': 64}[what], 99 if what == 'type' else 2)
        seal(data)
    path = tmp_path / 'other'
    with pytest.raises(v.Refused) as info:
        with v.Vmm() as vmm:
            s.load(vmm, vmm.connect(), good.with_state(path, bytes(data or parsed.pack())))
    assert info.value.errno == error and text in info.value.message, info.value


def test_a_rollback_to_another_cpu_is_refused(vmm, guest, good, tmp_path):
    """CPUID can't be changed under a guest that has run."""
    parsed = good.parsed()
    set_leaf_bit(parsed, 7, 16, 27)
    refused(errno.EOPNOTSUPP, 'another CPU', s.rollback, guest.peer, good.with_state(tmp_path / 'other', parsed.pack()))
    s.rollback(guest.peer, good)
    resume_claimed(guest)


def set_leaf_bit(parsed, function, register, bit):
    """register: offset in struct kvm_cpuid_entry2."""
    body = parsed.sections[s.CPUID, 0]
    for at in range(0, len(body), 40):
        found, index = struct.unpack_from('<II', body, at)
        if (found, index) == (function, 0):
            value, = struct.unpack_from('<I', body, at + register)
            assert not value >> bit & 1, 'chosen for being clear'
            struct.pack_into('<I', body, at + register, value | 1 << bit)
            return
    raise AssertionError('no such leaf')


def seal(data):
    n, = struct.unpack_from('<I', data, 56)
    struct.pack_into('<I', data, 60, 0)
    struct.pack_into('<I', data, 60, s.zlib.crc32(data[:64 + n * 32]))
