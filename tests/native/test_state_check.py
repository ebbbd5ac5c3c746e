# SPDX-License-Identifier: Apache-2.0
"""cube-state-check: what an import asks before it takes a saved guest from another host."""

import os
import pathlib
import struct
import subprocess

import pytest

import snapshot as s
from snapguest import guest
from test_snapshot_files import set_leaf_bit
from test_snapshot_time import power_leaf, with_tsc

CHECK = pathlib.Path(os.environ.get('CUBE_BUILD', pathlib.Path(__file__).parents[2] / 'build')) / 'vmm/cube-state-check'


@pytest.fixture
def saved(vmm, guest, tmp_path):
    s.pause(guest.peer)
    return s.save(vmm, guest.peer, tmp_path / 'saved')


def check(path):
    kvm = os.open('/dev/kvm', os.O_RDWR)
    try:
        with open(path, 'rb') as state:
            return subprocess.run([CHECK], stdin=state, stderr=subprocess.PIPE, text=True, timeout=60, pass_fds=(4,),
                                  preexec_fn=lambda: os.dup2(kvm, 4))
    finally:
        os.close(kvm)


def refused(path, words):
    result = check(path)
    assert result.returncode == 1 and words in result.stderr, result
    assert result.stderr.startswith('cube-state-check: ') and result.stderr.count('\n') == 1


def test_what_was_saved_here_goes_on_here(saved):
    result = check(saved.state)
    assert (result.returncode, result.stderr) == (0, '')


def test_features_that_are_not_here(saved, tmp_path):
    parsed = saved.parsed()
    set_leaf_bit(parsed, 7, 16, 27)
    refused(saved.with_state(tmp_path / 'other', parsed.pack()).state, 'features of another CPU: leaf 0x7.0, eax 0x0 ebx 0x8000000')


def change(parsed, function, index, register, value):
    """register: offset in struct kvm_cpuid_entry2."""
    body = parsed.sections[s.CPUID, 0]
    for at in range(0, len(body), 40):
        if struct.unpack_from('<II', body, at) == (function, index):
            old, = struct.unpack_from('<I', body, at + register)
            struct.pack_into('<I', body, at + register, value(old))
            return old
    return 0


def test_what_no_feature_tells(saved, tmp_path):
    parsed = saved.parsed()
    assert change(parsed, 0, 0, 16, lambda old: old ^ 1)
    refused(saved.with_state(tmp_path / 'vendor', parsed.pack()).state, 'a CPU of another vendor')

    parsed = saved.parsed()
    bits = change(parsed, 0x80000008, 0, 12, lambda old: old + 1) & 0xff
    refused(saved.with_state(tmp_path / 'bits', parsed.pack()).state, f'physical addresses of {bits + 1} bits, this CPU has {bits}')
    change(parsed, 0x80000008, 0, 12, lambda old: old - 2)
    assert check(saved.with_state(tmp_path / 'fewer', parsed.pack()).state).returncode == 0

    parsed = saved.parsed()
    if not change(parsed, 0xd, 2, 16, lambda old: old + 64):
        pytest.skip('no guest is given AVX here')
    change(parsed, 0xd, 0, 20, lambda old: max(old, 576 + 64 + 256))
    refused(saved.with_state(tmp_path / 'xsave', parsed.pack()).state, 'XSAVE component 2 lies elsewhere')


def test_another_frequency(saved, tmp_path):
    if power_leaf(saved.parsed()) is None:
        pytest.skip('this host tells no guest about its TSC')
    refused(with_tsc(saved, tmp_path / 'other', 1.5, True).state, 'TSC')
    assert check(with_tsc(saved, tmp_path / 'carried', 1.5, False).state).returncode == 0


def test_what_is_no_state_file(saved, tmp_path):
    data = saved.state.read_bytes()
    for damaged in (b'', b'x' * 5000, data[:-1], data[:100] + b'!' + data[101:], data + bytes(5 << 20)):
        (tmp_path / 'damaged').write_bytes(damaged)
        refused(tmp_path / 'damaged', '')
