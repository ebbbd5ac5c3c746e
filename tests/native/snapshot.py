# SPDX-License-Identifier: Apache-2.0
"""Snapshots as cubed and cube-stored make them (base/snapshot-format.h): the state file that the VMM writes,
and memory files with the pages copied out of it."""

import contextlib
import os
import pathlib
import shutil
import struct
import time
import zlib

import vmm as v

PAGE = 4096
LAYER_HEADER = struct.Struct('<8sIIQ16s16sII')
RUN = struct.Struct('<QQQ')
STATE_HEADER = struct.Struct('<8sIIQ16s16sII')
SECTION = struct.Struct('<IIIIQQ')
RUN_ZERO = 0xffffffffffffffff
NO_ID = bytes(16)

CONFIG, MEMMAP, CPUID, VCPU, CLOCK, SERIAL, PCI, VIRTIO, VSOCK, AGENT, MEM = range(1, 12)
VERSIONS = {VIRTIO: 2}

MEMORY = 64 << 20
DISK_LAYERS_MAX = 8


def write_layer(path, memory, ident, parent, runs):
    """runs: (gpa, data); pages of zeros take no place."""
    table = []
    pages = bytearray()
    for gpa, data in runs:
        for at in range(0, len(data), PAGE):
            page = data[at:at + PAGE]
            zero = not page.strip(b'\0')
            offset = RUN_ZERO if zero else len(pages)
            if not zero:
                pages += page
            last = table[-1] if table else None
            if last and last[0] + last[1] == gpa + at and (
                    last[2] == offset == RUN_ZERO or
                    RUN_ZERO not in (last[2], offset) and last[2] + last[1] == offset):
                last[1] += PAGE
            else:
                table.append([gpa + at, PAGE, offset])
    start = LAYER_HEADER.size + len(table) * RUN.size
    start += -start % PAGE
    packed = b''.join(RUN.pack(g, n, o if o == RUN_ZERO else o + start) for g, n, o in table)
    seal_layer(path, memory, ident, parent, len(table), packed)
    with open(path, 'r+b') as f:
        f.seek(start)
        f.write(pages)
        f.truncate(start + len(pages))
    return len(pages)


def seal_layer(path, memory, ident, parent, n_runs, packed):
    def header(crc):
        return LAYER_HEADER.pack(b'CUBEPAGE', 1, n_runs, memory, ident, parent, crc, 0)
    with open(path, 'wb') as f:
        f.write(header(zlib.crc32(packed, zlib.crc32(header(0)))) + packed)


def layer_pages(path):
    """{gpa: page} of a memory file."""
    pages = {}
    data = path.read_bytes()
    n = LAYER_HEADER.unpack_from(data)[2]
    for i in range(n):
        gpa, size, offset = RUN.unpack_from(data, LAYER_HEADER.size + i * RUN.size)
        for at in range(0, size, PAGE):
            pages[gpa + at] = bytes(PAGE) if offset == RUN_ZERO else data[offset + at:offset + at + PAGE]
    return pages


def flatten(snapshot, path):
    """The same snapshot with one memory file, as the store makes of a long chain."""
    pages = {}
    for layer in snapshot.layers:
        pages |= layer_pages(layer)
    _, _, _, memory, ident, _, _, _ = LAYER_HEADER.unpack_from(snapshot.layers[-1].read_bytes())
    write_layer(path, memory, ident, NO_ID, sorted(pages.items()))
    return Snapshot(snapshot.state, [path], snapshot.overlay, snapshot.disk_layers)


def flatten_disk(layers, path):
    """One layer with the content of several, the lowest first."""
    shutil.copyfile('/dev/null', path)
    with open(path, 'r+b') as b:
        for layer in layers:
            overlay_into(layer, b)


class StateFile:
    """The sections of a state file, and the file again when they have been changed."""

    def __init__(self, data):
        magic, version, arch, total, self.id, self.parent, n, _ = STATE_HEADER.unpack_from(data)
        assert (magic, version, arch, total) == (b'CUBESTAT', 1, 1, len(data))
        self.sections = {}
        for i in range(n):
            kind, index, version, crc, offset, size = SECTION.unpack_from(data, STATE_HEADER.size + i * SECTION.size)
            body = data[offset:offset + size]
            assert version == VERSIONS.get(kind, 1) and zlib.crc32(body) == crc
            self.sections[kind, index] = bytearray(body)

    def pack(self):
        table = bytearray()
        body = bytearray()
        front = STATE_HEADER.size + len(self.sections) * SECTION.size
        for (kind, index), data in self.sections.items():
            body += bytes(-len(body) % 8)
            table += SECTION.pack(kind, index, VERSIONS.get(kind, 1), zlib.crc32(data), front + len(body), len(data))
            body += data

        def header(crc):
            return STATE_HEADER.pack(b'CUBESTAT', 1, 1, front + len(body), self.id, self.parent,
                                     len(self.sections), crc)
        return header(zlib.crc32(table, zlib.crc32(header(0)))) + table + body


class Snapshot:
    """state: the file; layers: memory files, the lowest first; overlay: a copy of that of vdb, or None;
    disk_layers: those of vdb beneath it."""

    def __init__(self, state, layers, overlay=None, disk_layers=()):
        self.state, self.layers, self.overlay, self.disk_layers = state, layers, overlay, list(disk_layers)

    def parsed(self):
        return StateFile(self.state.read_bytes())

    def with_state(self, path, data):
        path.write_bytes(data)
        return Snapshot(path, self.layers, self.overlay, self.disk_layers)


@contextlib.contextmanager
def opened(files):
    """(role, path or descriptor, flags) -> descriptors, closed afterwards."""
    fds = [os.dup(f) if isinstance(f, int) else os.open(f, flags, 0o600) for _, f, flags in files]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def roles(files):
    return b''.join(v.u32(v.Tag.FD, role) for role, _, _ in files)


def save_state(vmm, peer, path):
    """SAVE alone: (id, [(gpa, bytes, hva)])."""
    files = [(v.Role.STATE, path, os.O_RDWR | os.O_CREAT),
             (v.Role.PAGEMAP, f'/proc/{vmm.process.pid}/pagemap', os.O_RDONLY)]
    with opened(files) as fds:
        m = peer.request(v.Op.SAVE, roles(files), fds)
    runs = m.get(v.Tag.RUNS)
    return m.get(v.Tag.ID), [RUN.unpack_from(runs, at) for at in range(0, len(runs), RUN.size)]


def copy_runs(vmm, runs):
    with open(f'/proc/{vmm.process.pid}/mem', 'rb', buffering=0) as f:
        for gpa, size, hva in runs:
            data = bytearray()
            while len(data) < size:
                f.seek(hva + len(data))
                data += f.read(size - len(data))
            yield gpa, bytes(data)


def save(vmm, peer, directory, layers=(), overlay=None, memory=MEMORY):
    """A snapshot of a paused machine whose memory stands on layers."""
    directory.mkdir()
    state = directory / 'state'
    ident, runs = save_state(vmm, peer, state)
    parsed = StateFile(state.read_bytes())
    assert parsed.id == ident
    layer = directory / 'memory'
    write_layer(layer, memory, ident, parsed.parent, copy_runs(vmm, runs))
    copy = None
    if overlay:
        copy = directory / 'overlay'
        copy_overlay(overlay, copy)
    return Snapshot(state, [*layers, layer], copy)


def copy_overlay(source, target):
    """Holes stay holes."""
    shutil.copyfile('/dev/null', target)
    with open(target, 'r+b') as b:
        overlay_into(source, b)


def overlay_into(source, b):
    with open(source, 'rb') as a:
        size = os.fstat(a.fileno()).st_size
        b.truncate(max(size, os.fstat(b.fileno()).st_size))
        at = 0
        while at < size:
            try:
                at = os.lseek(a.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(a.fileno(), at, os.SEEK_HOLE)
            os.pwrite(b.fileno(), os.pread(a.fileno(), end - at, at), at)
            at = end


def pause(peer):
    peer.request(v.Op.PAUSE)


def empty_overlay(path, like):
    """A new file for vdb to write to, as large as another one."""
    with open(path, 'xb') as f:
        f.truncate(like.stat().st_size)
    return path


def disk_files(disk_layers, overlay):
    files = [(v.Role.DISK_LAYER, layer, os.O_RDONLY) for layer in disk_layers]
    return files + ([(v.Role.DISK_OVERLAY, overlay, os.O_RDWR)] if overlay else [])


def resume(peer, layer=None, claim=None, layers=(), overlay=None, disk_layers=(), frozen=None):
    """layer or layers: memory files, the one that was saved last or a whole chain. overlay: what vdb writes to from
    now on; frozen: what it wrote to before."""
    layers = [layer] if layer else layers
    files = [(v.Role.LAYER, x, os.O_RDONLY) for x in layers] + disk_files(disk_layers, overlay)
    files += [(v.Role.DISK_FROZEN, frozen, os.O_RDONLY)] if frozen else []
    with opened(files) as fds:
        peer.request(v.Op.RESUME, roles(files) + (v.claim_record(claim) if claim else b''), fds)


def load(vmm, peer, snapshot, base=None, overlay=None, cpus=None, extra=b'', tap=None):
    """LOAD; with base: vda read-only and vdb writable over it, as test_devices.with_disks() has them."""
    files = [(v.Role.KVM, '/dev/kvm', os.O_RDWR), (v.Role.EXIT, vmm.exit_path, os.O_WRONLY | os.O_CREAT),
             (v.Role.CONSOLE, vmm.console, 0), (v.Role.STATE, snapshot.state, os.O_RDONLY)]
    files += [(v.Role.LAYER, layer, os.O_RDONLY) for layer in snapshot.layers]
    if tap is not None:
        files.append((v.Role.TAP, tap, 0))
    records = b''
    if base:
        files += [(v.Role.DISK_BASE, base, os.O_RDONLY)] * 2 + disk_files(snapshot.disk_layers, overlay)
        size = base.stat().st_size
        records += (v.tlv(v.Tag.DISK, struct.pack('<IIQQ', 0, 1, size, size)) +
                    v.tlv(v.Tag.DISK, struct.pack('<IIQQ', 1, 0, size, overlay.stat().st_size)))
    if cpus:
        records += v.u32(v.Tag.CPUS, cpus)
    with opened(files) as fds:
        return peer.request(v.Op.LOAD, roles(files) + records + extra, fds)


def rollback(peer, snapshot, overlay=None):
    files = [(v.Role.STATE, snapshot.state, os.O_RDONLY)]
    files += [(v.Role.LAYER, layer, os.O_RDONLY) for layer in snapshot.layers]
    if overlay:
        files += disk_files(snapshot.disk_layers, overlay)
    with opened(files) as fds:
        peer.request(v.Op.ROLLBACK, roles(files), fds)


def wait_until(condition, timeout=60):
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def small_file(directory, name, data):
    path = pathlib.Path(directory) / name
    path.write_bytes(data)
    return path
