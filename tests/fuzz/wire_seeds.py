# SPDX-License-Identifier: Apache-2.0
"""What the targets of protocols, files and settings begin with."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import struct
import tarfile
import zlib


def tlv(tag, data):
    return struct.pack('<HHI', tag, 0, len(data)) + data + bytes(-len(data) % 8)


def u32(tag, value):
    return tlv(tag, struct.pack('<I', value))


def u64(tag, value):
    return tlv(tag, struct.pack('<Q', value))


def frame(kind, body, ident=1):
    return struct.pack('<IHHI', len(body), kind, 0, ident) + body


def sized(data):
    return struct.pack('<H', len(data)) + data


# The agent: what a guest says (guest.h)

OK, ERROR, MORE = 0, 1, 2
ERRNO, MESSAGE, PID, FILE, EXIT_CODE, EXIT_SIGNAL, TIMED_OUT = 1, 2, 18, 25, 32, 33, 34


def step(kind, about, data=b''):
    return bytes([kind | about << 4]) + data


def queued(about):
    return step(0, about, sized(b''))


def reply(about, kind, body=b''):
    return step(2, about, bytes([kind]) + sized(body))


def event(about, kind, body=b''):
    return step(3, about, bytes([kind]) + sized(body))


def file_record(name, link=b'', mode=0o100644):
    return tlv(FILE, struct.pack('<QQIIII', 5, 10 ** 18, mode, 0, 0, len(name)) + name + (b'\0' + link if link else b''))


def agents():
    files = file_record(b'one') + file_record(b'two', b'../three', 0o120777) + file_record(b'\xff\n')
    error = u32(ERRNO, 2) + tlv(MESSAGE, b'no \x1b such file')
    asked = b''.join(queued(k) for k in range(4))
    # a directory is listed (3), a file looked at (2), one removed (1), a program started (0)
    listed = event(3, MORE, files) + event(3, OK, files[:40]) + event(2, OK, file_record(b'one')) + event(1, OK)
    started = asked + listed + event(0, OK, u32(PID, 7)) + reply(2, OK) + reply(1, OK) + reply(0, OK) + reply(0, OK)
    yield b'\0' + started + step(4, 2, sized(b'out')) + step(4, 1, sized(b'err')) + step(4, 0, sized(frame(98, u32(EXIT_CODE, 3)))) + step(5, 2) + step(5, 1)
    yield b'\0' + started + step(4, 0, sized(frame(98, u32(EXIT_SIGNAL, 9) + u32(TIMED_OUT, 1))[:9])) + step(5, 0) + step(7, 0)
    yield b'\0' + started + step(4, 0, sized(frame(99, b''))) + step(5, 2)
    yield b'\0' + asked + event(3, MORE, files) + event(3, ERROR, error) + event(2, OK, files) + event(1, ERROR, error) + event(0, OK, b'')
    yield b'\0' + asked + event(3, OK, tlv(FILE, bytes(20))) + event(2, OK, u32(PID, 1)) + event(1, OK, b'\1') + event(0, ERROR, u32(ERRNO, 5000))
    yield b'\0' + asked + event(0, OK, u32(PID, 7)) + reply(2, ERROR, error) + reply(1, OK) + step(1, 0, b'\5' + sized(tlv(2, b'broken')))
    yield b'\0' + step(1, 0, b'\x0b' + sized(b'')) + step(6, 0, sized(b'no packet'))
    end = frame(97, b'')
    for first in (b'\1', b'\5'):
        yield first + frame(96, b'contents') + frame(96, b'') + end
        yield first + frame(96, b'contents' * 3) + frame(97, u32(ERRNO, 28) + tlv(MESSAGE, b'full'))
    for first in (b'\2', b'\2\0'):
        for last in (end, frame(97, u32(ERRNO, 28) + tlv(MESSAGE, b'full')), frame(97, u32(ERRNO, 9999)), frame(97, tlv(MESSAGE, b'x') * 2), b'\1'):
            yield first + last
    for body in (u32(EXIT_CODE, 0), u32(EXIT_CODE, 256), u32(EXIT_SIGNAL, 9) + u32(TIMED_OUT, 1), u32(EXIT_CODE, 1) * 2, u32(9, 9), b''):
        yield b'\3' + body


def copies():
    def ask(kind, body):
        return b'\0' + struct.pack('<I', kind) + sized(body)

    def guest(data):
        return b'\3' + data

    error = u32(ERRNO, 13) + tlv(MESSAGE, b'not yours')
    mkdir, link, write = ask(41, tlv(22, b'/a')), ask(48, tlv(22, b'/a/l')), ask(67, tlv(22, b'/a/f'))
    yield b'\0' + mkdir + guest(queued(0)) + guest(event(0, OK)) + write + guest(reply(0, OK)) + link + guest(queued(0)) + guest(event(0, OK)) + b'\2'
    yield b'\0' + mkdir + guest(queued(0)) + guest(event(0, ERROR, error)) + write + guest(reply(0, ERROR, error)) + b'\2'
    yield b'\0' + write + write
    yield b'\0' + ask(33, b'') + b'\2'
    yield b'\0\1' + sized(b'abc')
    yield b'\0' + mkdir + guest(step(7, 0)) + b'\2'

    def answers(*parts, stream=b''):
        return b'\1' + b''.join(struct.pack('<BiB', flags, error, len(text)) + text for flags, error, text in parts).ljust(1024, b'\0') + stream

    yield answers((0, 0, b''), (1, 0, b''), stream=frame(97, b''))
    yield answers((0, 0, b''), (1, 0, b''), stream=frame(97, u32(ERRNO, 28) + tlv(MESSAGE, b'full')))
    yield answers((0, -13, b'not yours'))
    yield answers((0, 0, b''), (0, 0, b''))
    yield answers((0, 0, b''), (1, -5, b'broken'))
    yield answers((2, 0, b''))
    yield b'\1'


# The VMM's control socket

def controls():
    def packet(op, body=b'', flags=0, files=0):
        return bytes([op, flags, files]) + sized(body)

    def roles(*numbers):
        return b''.join(u32(1, n) for n in numbers)

    segment = tlv(9, struct.pack('<4Q', 0x100000, 0, 4096, 8192))
    disks = tlv(11, struct.pack('<IIQQ', 0, 0, 0, 1 << 20))
    shape = u64(4, 256 << 20) + u32(5, 1) + u32(6, 4) + tlv(7, b'console=ttyS0') + u64(8, 0x100000) + u64(18, 10 ** 7) + u32(20, 1) + u64(21, 128 << 20)
    build = roles(6, 0, 1, 3, 5) + shape + segment + disks
    load = roles(6, 0, 3, 5, 16, 17, 17, 18) + u32(5, 1) + disks
    claim = tlv(12, frame(32, tlv(7, b'host')))
    yield packet(1) + packet(2, build, files=5) + packet(1) + packet(7) + packet(6)
    yield packet(2, build.replace(disks, tlv(11, struct.pack('<IIQQ', 0, 1, 0, 1 << 20))), files=5)
    yield packet(2, build + u64(10, 5000), files=5) + packet(2, roles(6, 0, 1, 3, 5, 2) + shape + segment + disks + u64(10, 5000), files=6)
    yield packet(19, load, files=8) + packet(19, load + u64(4, 1), files=8) + packet(19, load, files=7)
    yield packet(3, claim) + packet(4, claim) + packet(5, claim + u32(1, 7), files=1) + packet(8, u64(13, 10 ** 6))
    yield packet(10, u64(22, 2 << 20)) + packet(11, u64(23, 4096)) + packet(16) + packet(17, claim + u32(1, 17), files=1)
    yield packet(18, roles(16, 18), files=2) + packet(20, roles(16, 17, 6, 19), files=4) + packet(20, roles(16, 16), files=2)
    yield packet(17, roles(*[19] * 9), files=9) + packet(17, roles(99), files=1) + packet(17, b'', files=1)
    yield packet(1, b'\1') + packet(1, flags=2) + packet(1, flags=8) + packet(1, flags=1)
    yield packet(4, claim * 2) + packet(8, u64(13, 1) * 2) + packet(10, u64(22, 1) + u64(23, 1)) + packet(4, u32(13, 1)) + packet(21)


# cube-netd and cube-resolver

def netds():
    def packet(op, body=b'', flags=0):
        return bytes([op, flags]) + sized(body)

    def rules(*texts):
        return b''.join(tlv({'+': 19, '-': 20, '<': 21}[t[0]], t[1:].encode()) for t in texts)

    setup = packet(2, tlv(2, b'10.209.0.0/16') + tlv(3, b'fd00:cb::/64') + u32(4, 0x1000) + u32(5, 33) + tlv(6, b'10.0.0.1') +
                   tlv(7, b'fd00::1') + u32(8, 60) + tlv(9, bytes(32)))
    policy = tlv(18, b'internet') + rules('+10.1.0.0/16 tcp:5432', '-8.8.8.0/24', '+*.example.com tcp:443,8000-8999', '<192.0.2.0/24 tcp',
                                          '+db.example.com in 10.0.0.0/8', '+192.0.2.7 tcp:22 host')
    slot = u32(12, 2)
    yield packet(1) + setup + setup + packet(3) + packet(3, slot) + packet(6, policy) + packet(8, slot + policy) + packet(8, slot + u32(15, 3)) + packet(7, u32(15, 3))
    yield setup + packet(3) + packet(9, slot + tlv(9, bytes(32))) + packet(9, slot) + packet(9, slot + tlv(9, b'x')) + packet(10, slot) + packet(11, slot) + packet(4, slot) + packet(5, slot) + packet(12)
    yield packet(3) + packet(99) + packet(1, flags=2) + packet(1, flags=4) + packet(1, b'abc', flags=1)
    yield packet(2) + packet(2, u32(4, 3)) + packet(2, u32(4, 4) + tlv(6, b'nowhere')) + packet(2, u32(4, 4) + tlv(2, b'10.0.0.0/99')) + packet(2, u32(4, 4) * 12 + u32(5, 1) * 12)
    yield setup + packet(6, tlv(18, b'maybe')) + packet(6, rules('+nonsense ftp')) + packet(6, rules('+1.2.3.4') + b'\1') + packet(10, u32(12, 1)) + packet(10, u32(12, 70000)) + packet(10, u32(12, 77)) + packet(7) + packet(11)


def resolver_links():
    def packet(op, body=b'', flags=0):
        return bytes([op, flags]) + sized(body)

    def name(text, below=0, inside=None):
        tag, bits, address = inside or (0, 0, b'')
        return tlv(7, struct.pack('<IIBBBBBB16s2x', 1, 0, below, inside is not None, inside is not None, 0, tag, bits, address) + text)

    start = packet(1, tlv(1, b'10.209.0.0/16') + tlv(2, b'fd00::/64') + u32(3, 60), 4)
    policy = packet(2, u32(4, 3) + u32(5, 0) + name(b'web.example', 1))
    yield start + policy + packet(2, u32(4, 3) + name(b'db.example', 0, (4, 8, b'\x0a')) + u32(6, 1)) + packet(3, u32(4, 5)) + packet(5) + packet(4, u32(4, 3)) + packet(6)
    yield start + packet(2, u32(4, 4) + u32(5, 1) + u32(6, 1)) + packet(5) + start + packet(5)
    yield start + policy + packet(2, u32(4, 4) + u32(6, 1))
    for wrong in (packet(2, u32(4, 3) + name(b'x')), packet(2, u32(5, 1)), packet(1, b'', 4), packet(1, tlv(1, b'10.0.0.0/8'), 12), packet(9), packet(5, b'', 2), packet(5, b'abc', 1),
                  packet(2, u32(4, 3) + u32(5, 0) + tlv(7, bytes(10))), packet(2, u32(4, 3) + u32(5, 0) + name(bytes(300))), packet(2, u32(4, 3) + u32(5, 0) + name(b'web.example', 1, (4, 200, b'\x0a')) + u32(6, 1))):
        yield start + wrong


def memory_file(runs, ident=b'\1' * 16, parent=bytes(16), data=b'\xaa' * 4096):
    """As base/snapshot-format.h has it; runs of (gpa, bytes, offset)."""
    header = struct.pack('<8sIIQ16s16sII', b'CUBEPAGE', 1, len(runs), 4 << 20, ident, parent, 0, 0)
    table = b''.join(struct.pack('<QQQ', *r) for r in runs)
    whole = header[:-8] + struct.pack('<II', zlib.crc32(header + table), 0) + table
    return whole + bytes(-len(whole) % 4096) + data


def storeds():
    def packet(op, body=b'', files=(), flags=0):
        return bytes([op, flags, len(files)]) + b''.join(sized(f) for f in files) + sized(body)

    root = packet(1, files=[b''], flags=8)
    layers = [b'', memory_file([(0, 4096, 4096)]), memory_file([(4096, 4096, 4096)], b'\2' * 16, b'\1' * 16)]
    runs = tlv(4, struct.pack('<QQQ', 0, 4096, 0x10000))
    yield root + root + packet(2, files=[b'x']) + packet(3, tlv(2, b'f') + tlv(3, b'a/g')) + packet(4, tlv(2, b'a'))
    yield root + b''.join(packet(4, tlv(2, p)) for p in (b'..', b'../kept', b'a/../../kept', b'a/out/kept', b'/etc', b'a/out', b'nothing', b'', b'.', b'a/'))
    yield root + b''.join(packet(3, tlv(2, a) + tlv(3, b)) for a, b in ((b'f', b'../kept'), (b'../kept', b'g'), (b'a/out/kept', b'h'), (b'f', b'a/out/i'), (b'f', b'a/b'), (b'a', b'a/b/c')))
    yield root + packet(5, runs + u64(5, 1 << 20) + tlv(6, b'\1' * 16) + tlv(7, bytes(16)), [b'', b''], 4)
    yield root + packet(5, runs + u64(5, 4096) + tlv(6, bytes(16)), [b'', b''], 4) + packet(5, tlv(4, b'x'), [b'', b''], 4) + packet(5, runs * 2)
    yield root + packet(6, u32(8, 0), layers) + packet(6, u32(8, 1), layers) + packet(6, u32(8, 9), layers) + packet(6, b'', layers[:1])
    yield root + packet(6, u32(8, 0), [b'', memory_file([(4096, 4096, 2 ** 64 - 1)]), layers[2]]) + packet(6, u32(8, 0), [b'', b'x' * 200, layers[2]])
    yield root + packet(7, b'', [b'', b'one' * 2000, b'two' * 3000]) + packet(7, b'', [b''])
    yield packet(2, files=[b'x']) + packet(1) + packet(1, files=[b'']) + packet(99) + packet(2, flags=2) + packet(2, b'abc', flags=1) + root + packet(2) + packet(3) + packet(4, b'\1')


def policies():
    texts = [
        '+10.1.0.0/16', '+8.8.8.8 udp:53', '+all', '-all', '+example.com', '+*.example.com tcp:443,8000-8999', '+db.example.com in 10.0.0.0/8 tcp:5432',
        '+192.0.2.7 tcp:5432 host', '-10.0.0.0/8', '-2001:db8::/32 any', '+::ffff:10.0.0.1', '+fd00::/8 tcp', '<192.0.2.0/24 tcp:22', '<all icmp',
        '-198.51.100.0/25 udp:1-65535', '+198.51.100.7', '+*.a.b in fd00::/8 udp', '+169.254.169.254 tcp:80', '-*.example', '+x.example in 8.8.8.0/24',
    ]
    for options in range(8):
        yield bytes([options]) + '\n'.join(texts[options::2]).encode()
    for text in texts:
        yield b'\1' + text.encode()
    yield b'\0' + '\n'.join(f'+10.{i}.0.0/16 tcp:{i}' for i in range(60)).encode()
    yield b'\1' + ('+1.2.3.4 tcp:' + ','.join(str(i * 2 + 1) for i in range(40))).encode()
    yield b'\2' + b'\n'.join([b'+', b'+ ', b'+1.2.3.4/33', b'+1.2.3.4 tcp:0', b'+1.2.3.4 tcp:9-8', b'+-x.example', b'+a..b', b'+1.2.3.4 in 1.0.0.0/8', b'+a.b host', b'<a.b', b'+' + b'a' * 64 + b'.example',
                              b'+1.2.3.4 tcp:70000', b'+1.2.3.4 sctp', b'+1.2.3.4 tcp udp'])


CONFIG = '''[Sandbox]
DefaultTemplate=python
DefaultMemory=512M
GrowMemory=4G
DefaultCPUs=2
DefaultDisk=4G
DefaultTimeout=5min
DefaultIdleTimeout=infinity
DefaultOnTimeout=pause
BootTimeout=60s
StopTimeout=10s
BuildTimeout=1h
[Limits]
MaxSandboxes=infinity
MaxSandboxesPerUser=100
MaxMemoryPerSandbox=
CheckpointsMax=16
CheckpointBytesMax=4G
UIDRange=0x70000000/65536
[Guest]
KernelPath=/boot/vmlinuz
KernelCommandLine=quiet  loglevel=3
CpuidHideXsave=auto
[Network]
Network4=10.209.0.0/16
Network6=fd00::/64
FreeSlots=16
Mark=0x1000
AuditIntervalSec=60
IngressUsers=root www-data
DefaultPolicy=internet
SpecialRangesUsers=root
BandwidthOut=10M
BandwidthIn=infinity
PacketsOut=1000
PacketsIn=1000
NewConnectionsPerSec=100
OpenConnections=1024
[Manager]
AuditArguments=no
StateDirectory=/var/lib/cubed
RuntimeDirectory=/run/cubed
'''


def configs():
    yield CONFIG.encode()
    for line in CONFIG.splitlines():
        if '=' in line:
            section = CONFIG[:CONFIG.index(line)].rsplit('[', 1)[1].split(']')[0]
            for value in (line.split('=')[1], '', '0', '-1', 'yes', '99999999999999999999', '1%', '/../x', 'a b', '0xffffffff/99'):
                yield f'[{section}]\n{line.split("=")[0]}={value}\n'.encode()
    yield b'# comment\n; another\n\nNoSection=1\n[Nope]\nX=1\n[Sandbox\nDefaultCPUs\n = 3\nDefaultCPUs = 3 \\\n 4\n' + bytes(5) + b'\xff\xfe\n' + b'x' * 5000


# Kernels

def elf(segments=((0x1000000, 0x300, 64, 4096), (0x1003000, 0x340, 0, 65536), (0x1001000, 0x380, 64, 8192)), entry=0x1000010, note_type=18):
    headers = len(segments) + 1
    note_at = 64 + 56 * headers
    note = struct.pack('<III4sQ', 4, 8, note_type, b'Xen\0', entry)
    out = struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\2\1\1', 2, 62, 1, 0, 64, 0, 0, 64, 56, headers, 0, 0, 0)
    for gpa, offset, file_bytes, mem_bytes in segments:
        out += struct.pack('<IIQQQQQQ', 1, 7, offset, gpa, gpa, file_bytes, mem_bytes, 4096)
    out += struct.pack('<IIQQQQQQ', 4, 4, note_at, 0, 0, len(note), len(note), 4)
    return (out + note + b'Linux version 6.1.0-test-amd64 (x)\0').ljust(0x400, b'\xaa')


def zstd_stored(data):
    return b'\x28\xb5\x2f\xfd\xa0' + struct.pack('<I', len(data)) + struct.pack('<I', len(data) << 3 | 1)[:3] + data


def lz4_legacy_stored(data):
    n = len(data) - 15
    block = b'\xf0' + b'\xff' * (n // 255) + bytes([n % 255]) + data
    return b'\x02\x21\x4c\x18' + struct.pack('<I', len(block)) + block


def bzimage(payload, version=0x20f):
    head = bytearray(1024)
    head[0x1f1] = 1
    head[0x1fe:0x200] = b'\x55\xaa'
    head[0x202:0x206] = b'HdrS'
    struct.pack_into('<H', head, 0x206, version)
    struct.pack_into('<H', head, 0x20e, 0x80)
    struct.pack_into('<II', head, 0x248, 0, len(payload))
    head[0x280:0x29c] = b'6.1.0-test-amd64 (somebody) '
    return bytes(head) + payload


def kernels():
    whole = elf()
    size = struct.pack('<I', len(whole))
    yield b'\0' + whole
    for payload in (gzip.compress(whole, mtime=0), bz2.compress(whole) + size, lzma.compress(whole) + size, lzma.compress(whole, lzma.FORMAT_ALONE) + size,
                    zstd_stored(whole) + size, lz4_legacy_stored(whole) + size, whole, b'unknown' * 20, gzip.compress(b'text', mtime=0)):
        yield b'\0' + bzimage(payload)
        yield b'\0' + bzimage(payload[:-9])
    yield b'\0' + bzimage(gzip.compress(whole, mtime=0), 0x207)
    yield b'\0' + bzimage(b'')
    for segments in (((0x1000000, 0, 0x1000, 64),), ((0x1000, 0, 64, 64),), ((2 ** 64 - 4096, 0, 64, 8192),), ((0x1000000, 2 ** 63, 64, 64),), ((0x1000000, 0, 64, 0xc0000000),),
                     ((0x1000000, 0, 64, 8192), (0x1001000, 0, 64, 64)), ((0x1000000, 0, 64, 64),) * 17, ((0x3ff0000, 0, 64, 0x10000),), ((0x1000000, 0, 64, 0x3000000),)):
        yield b'\0' + elf(segments)
        yield b'\1' + bytes([len(segments) - 1]) + struct.pack('<QQ', 0x1000010, 5000) + b''.join(struct.pack('<QQQQ', *s) for s in segments) + whole
    yield b'\1' + b'\0' + struct.pack('<QQ', 0x1000010, 2 ** 63) + struct.pack('<QQQQ', 0x1000000, 0, 64, 4096) + bytes(64)
    yield b'\1' + b'\0' + struct.pack('<QQ', 0x1000010, 6000) + struct.pack('<QQQQ', 0x1000000, 0, 64, 4096) + bytes(64)
    yield b'\0' + elf(entry=1)
    yield b'\0' + elf(note_type=3)
    for magic in (b'\x1f\x8b', b'hsqs', b'070701', b'MZ', b'#!/bin/sh', b'text', b''):
        yield b'\0' + magic


# Root file systems, modules, reports

def archive(mode='w', pax=True):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT) as tar:
        def add(name, kind=tarfile.REGTYPE, data=b'', **more):
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data)
            for key, value in more.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
        add('.', tarfile.DIRTYPE, mode=0o755)
        add('./bin', tarfile.SYMTYPE, linkname='usr/bin')
        add('usr/bin/true', data=b'#!/bin/sh\n', mode=0o4755, uid=1000)
        add('usr/bin/also', tarfile.LNKTYPE, linkname='usr/bin/true')
        add('dev/null', tarfile.CHRTYPE, devmajor=1, devminor=3)
        add('dev/sda', tarfile.BLKTYPE, devmajor=8)
        add('run/pipe', tarfile.FIFOTYPE)
        add('/etc/../etc/passwd', data=b'root')
        add('../outside', data=b'x')
        add('etc/' + 'long' * 40, data=b'y', mtime=2 ** 33, uid=2 ** 31, pax_headers={'SCHILY.xattr.user.a': 'b'} if pax else {})
    return out.getvalue()


def pack(members, manifest=None, names=None):
    """As cube-image pack writes it, but for holes. members: their content."""
    sums = {}
    for name, data in members.items():
        sums[name] = {'bytes': len(data), 'sha256': hashlib.sha256(data).hexdigest()}
        if name in ('disk.img', 'guest/memory', 'guest/disk'):
            blocks = [(i, data[i:i + 4096]) for i in range(0, len(data), 4096) if data[i:i + 4096].strip(b'\0')]
            sums[name]['sha256'] = hashlib.sha256(b''.join(struct.pack('<Q', i // 4096) + b for i, b in blocks)).hexdigest()
            sums[name]['runs_sha256'] = hashlib.sha256(struct.pack('<QQ', 0, len(data)) if data else b'').hexdigest()
    text = json.dumps({'format': 'cubed-template', 'version': 1, 'template': {}, 'members': sums, **(manifest or {})}).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as tar:
        for name, data in [('pack.json', text), *members.items()]:
            entry = tarfile.TarInfo((names or {}).get(name, name))
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def packs():
    cold = {name: name.encode() * 300 for name in ('vmlinux', 'initramfs.cpio', 'root.img', 'disk.img')}
    warm = {**cold, 'guest/state': b'state', 'guest/memory': bytes(4096) + b'x' * 4096, 'guest/disk': b''}
    yield pack(cold)
    yield pack(warm, {'guest': {}})
    yield pack(cold, {'version': 2})
    yield pack(cold, names={'root.img': '../root.img'})
    yield pack(cold, {'guest': {}})


def images():
    for data in (archive(), gzip.compress(archive(), mtime=0), archive('w:xz'), archive(pax=False), b'', b'no archive', b'\0' * 1024):
        yield b'\0' + data
    names = ['pvpanic-pci', 'virtio_pci', 'virtio_blk', 'vmw_vsock_virtio_transport', 'virtio-rng', 'squashfs', 'overlay', 'ext4', 'virtio']
    dep = ''.join(f'kernel/x/{n}.ko{".xz" if i % 2 else ""}: kernel/x/virtio.ko\n' for i, n in enumerate(names))
    for text in (dep, dep.replace('virtio.ko', 'nowhere.ko'), dep.replace('kernel/x/ext4', '../ext4'), dep.replace('\n', ' \n'), dep + 'x', 'a: b\nb: a\n' + dep,
                 ''.join(f'm{i}.ko: m{i + 1}.ko\n' for i in range(300)) + dep.replace('kernel/x/virtio.ko', 'm0.ko')):
        yield b'\1' + text.encode()
    yield b'\1' + dep.split('\n', 3)[3].encode() + b'\n-\n' + ''.join(f'kernel/x/{n}.ko\n' for n in names[:3]).encode()
    kernel = {'release': '6.1.0-1-amd64', 'entry': 0x1000010, 'file_bytes': 4096, 'floor_bytes': 1 << 26,
              'segments': [{'gpa': 0x1000000, 'file_offset': 0, 'file_bytes': 64, 'mem_bytes': 4096}]}
    for change in ({}, {'release': '../x'}, {'entry': 1}, {'segments': []}, {'segments': kernel['segments'] * 17}, {'floor_bytes': 0}, {'more': 1}, {'release': 'x' * 80}):
        yield b'\2' + json.dumps(kernel | change).encode()
    yield b'\2' + json.dumps(kernel).encode().replace(b'gpa', b'cpa')
    for magic, bytes_at in ((b'hsqs', 40), (b'', 1024)):
        data = bytearray(2048)
        data[:4] = magic.ljust(4, b'\0')
        struct.pack_into('<Q', data, bytes_at, 2000)
        if not magic:
            struct.pack_into('<I', data, 1024, 0xe0f5e1e2)
        yield b'\3' + bytes(data)


def upper_layer():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as tar:
        for name, kind, link in (('etc/.wh.passwd', tarfile.REGTYPE, ''), ('usr/.wh..wh..opq', tarfile.REGTYPE, ''),
                                 ('usr/bin/b', tarfile.LNKTYPE, 'etc/hostname'), ('lib', tarfile.SYMTYPE, 'usr/lib'),
                                 ('lib/x', tarfile.REGTYPE, ''), ('dev/null', tarfile.CHRTYPE, '')):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            tar.addfile(info)
    return out.getvalue()


def ocis():
    lower, upper = archive(pax=False), upper_layer()
    for layers in ([lower], [lower, upper], [gzip.compress(lower, mtime=0), gzip.compress(upper, mtime=0)], [b'', upper], [bytes(1024), upper]):
        yield b'\0' + b''.join(struct.pack('<H', len(data)) + data for data in layers)
    digest = 'sha256:' + '0' * 64
    entry = {'mediaType': 'application/vnd.oci.image.manifest.v1+json', 'digest': digest, 'size': 1}
    for change in ({}, {'platform': {'os': 'linux', 'architecture': 'amd64'}}, {'platform': {'os': 'linux', 'architecture': 'arm'}},
                   {'annotations': {'org.opencontainers.image.ref.name': 'a'}}, {'digest': 'sha512:0'}, {'size': -1},
                   {'mediaType': 'application/vnd.oci.image.index.v1+json'}):
        yield b'\1' + json.dumps({'manifests': [entry | change]}).encode()
        yield b'\1' + json.dumps({'manifests': [entry | change, entry]}).encode()
    config = {'architecture': 'amd64', 'os': 'linux', 'config': {
        'Env': ['PATH=/bin', 'x', 'A=b\n'], 'User': 'a:b', 'WorkingDir': 'srv', 'Entrypoint': ['a'], 'Cmd': ['b', ''], 'ExposedPorts': {'1/tcp': {}}},
        'rootfs': {'diff_ids': []}}
    for change in ({}, {'rootfs': {'diff_ids': [digest]}}, {'rootfs': None}, {'architecture': 'arm'}, {'config': None}, {'config': {'Env': {}}}, {'config': {'Env': ['A=b'] * 1100}}):
        yield b'\2' + json.dumps(config | change).encode()
    yield b'\2{}\n-\n' + json.dumps({'config': entry, 'layers': [entry]}).encode()
    yield bytes([3, 0, 0, 0, 8, 0, 1, 0, 5, 2, 6, 0, 2, 0, 8, 1, 9, 1, 0, 0, 13, 8, 0, 13, 0, 8, 0, 8, 0])
    yield bytes([3, 1, 0, 3, 1, 1, 0, 2, 8, 0, 1, 0, 2, 8, 1, 13, 0])


# Calls on the bus: see fuzz-options.c for the order of keys and kinds

KEYS = ['memory', 'cpus', 'disk', 'timeout', 'idle-timeout', 'on-timeout', 'checkpoint', 'cpu-quota', 'hostname', 'request-id',
        'labels', 'bind-client', 'network-policy', 'network-bandwidth-out', 'network-packets-in', 'network-new-connections',
        'default', 'allow', 'deny', 'inbound', 'env', 'cwd', 'user', 'rows', 'cols', 'mode', 'size', 'parents', 'u32', 'u64',
        'bool', 'string', 'strv', 'dict', 'fd', 'files', 'policy', 'name', 'either']
KINDS = ['u', 't', 'b', 's', 'as', 'a{ss}', 'h', 'a(hs)', 'a{sv}', 'v']


def option(key, kind, value=b''):
    name = bytes([KEYS.index(key)]) if key in KEYS else b'\xff' + text(key)
    return name + bytes([KINDS.index(kind)]) + value


def text(s):
    return bytes([len(s)]) + s.encode()


def number(n):
    return struct.pack('<Q', n)


def texts(*items):
    return bytes([len(items)]) + b''.join(text(i) for i in items)


def options():
    policy = b'\3' + option('default', 's', text('internet')) + option('allow', 'as', texts('10.0.0.0/8', 'a.example')) + option('inbound', 'as', texts('all'))
    everything = (option('memory', 't', number(1 << 29)) + option('cpus', 'u', number(2)) + option('disk', 't', number(1 << 32)) + option('timeout', 't', number(60 * 10 ** 6)) +
                  option('on-timeout', 's', text('pause')) + option('hostname', 's', text('a-host')) + option('request-id', 's', text('r1')) +
                  option('labels', 'a{ss}', b'\1' + text('key') + text('value')) + option('bind-client', 'b', b'\1') + option('network-policy', 'a{sv}', policy) +
                  option('network-bandwidth-out', 't', number(1000)) + option('network-packets-in', 'u', number(5)))
    create = b'\0' + text('template:python')
    yield create + everything
    for wrong in (option('memory', 't', number(0)), option('memory', 'u', number(1)), option('nonsense', 's', text('x')), everything[:10] * 2, option('hostname', 's', text('-x')),
                  option('hostname', 's', text('..')), option('request-id', 's', text('')), option('request-id', 's', text('x' * 200)), option('on-timeout', 's', text('explode')),
                  option('checkpoint', 's', text('exec')), option('checkpoint', 't', number(2 * 10 ** 6)), option('checkpoint', 't', number(5)), option('checkpoint', 's', text('x')),
                  option('labels', 'a{ss}', b'\1' + text('a b') + text('x')), option('network-policy', 'a{sv}', b'\1' + option('default', 's', text('x'))), option('memory', 'v')):
        yield create + wrong
    yield b'\0' + text('python') + everything
    yield b'\0' + text('snapshot:aaaa')
    for call in (1, 2):
        yield bytes([call]) + texts('/bin/true', '-x') + option('env', 'as', texts('A=1', 'B=')) + option('cwd', 's', text('/tmp')) + option('user', 's', text('root')) + (option('rows', 'u', number(24)) if call == 2 else b'')
        yield bytes([call]) + texts('/bin/true') + option('env', 'as', texts('=1'))
        yield bytes([call]) + texts('/bin/true') + option('cwd', 's', text('tmp'))
        yield bytes([call]) + texts() + option('timeout', 't', number(2 ** 64 - 1))
    for call in (3, 4, 5, 10):
        yield bytes([call]) + text('/a/file') + option('mode', 'u', number(0o644)) + option('user', 's', text('root'))
        yield bytes([call]) + text('a/file')
    yield b'\3' + text('/f') + option('mode', 'u', number(0o17777)) + option('size', 't', number(5))
    yield b'\x0b' + text('/a') + text('/b')
    yield b'\x09' + number(7)
    yield b'\6' + b''.join((option('u32', 'u', number(1)), option('u64', 't', number(1)), option('bool', 'b', b'\1'), option('string', 's', text('x')), option('strv', 'as', texts('a', 'b')),
                           option('dict', 'a{ss}', b'\1' + text('k') + text('v')), option('fd', 'h'), option('files', 'a(hs)', b'\2' + text('') + text('a') + text('') + text('b')),
                           option('policy', 'a{sv}', policy)))
    yield b'\6' + option('either', 's', text('x'))
    yield b'\6' + option('either', 'as', texts('x'))
    yield b'\6' + option('files', 'a(hs)', b'\x1f' + (text('') + text('a')) * 31)
    yield b'\7' + policy[1:]
    yield b'\x08' + option('allow', 'as', texts('all')) + option('deny', 'as', texts())
    yield b'\x08' + option('default', 's', text('deny'))


# HTTP that the agent is told: the size of the pieces, then the connection's bytes (http-parser.h)

def requests():
    for piece in (0, 3, 255):
        yield bytes([piece]) + (b'POST /files?path=a%2Fb+c&username=root HTTP/1.1\r\nHost: h\r\nX-Access-Token: t\r\n'
                                b'Transfer-Encoding: chunked\r\n\r\n3;e=1\r\nabc\r\n0\r\nT: r\r\n\r\n'
                                b'GET /health HTTP/1.1\r\nConnection: close\r\n\r\n')
        yield bytes([piece]) + b'POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n{}\n'
    yield b'\x01GET /?path={"a":[1,"%C3%A4"]} HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nA: b\r\n  c\r\n\r\n'


def envelopes():
    """The size of the pieces less one, then messages in their envelopes."""
    one = b'\0\0\0\0\x13{"data":{"input":{}}}'
    for piece in (0, 4, 255):
        yield bytes([piece]) + one + b'\0\0\0\0\0' + one[:-3]
        yield bytes([piece]) + one + b'\2\0\0\0\2{}'
        yield bytes([piece]) + b'\0\0\0\1\0' + one


def forms():
    for piece in (0, 2, 255):
        yield bytes([piece]) + (b'--b \r\nContent-Disposition: form-data; name="file"; filename="a \\"x"\r\n\r\ndata\r\n--\r\n--bb\r\n'
                                b'Content-Disposition: form-data; name=n\r\n\r\n\r\r\n--b--end')


def gateway_requests():
    targets = [b'/v2/sandboxes?metadata=k%2525201%3Dv%252526%25253D2&state=running,paused&limit=2&order=asc',
               b'/v2/sandboxes?startedAfter=2026-01-02T03:04:05.678Z&nextToken=1767323045678901_abcdefghijkl&template=base',
               b'/templates/tenant%2Fname%3Adefault', b'/sandboxes/abcdefghijkl-6532622b/connect']
    bodies = [{'templateID': 'tenant/base:v1', 'timeout': 61, 'secure': True, 'autoPause': True, 'autoPauseMemory': False,
               'autoResume': {'enabled': False}, 'envVars': {'A': 'b=c'}, 'metadata': {'a': 'b\u00fc'}},
              {'templateID': 'base', 'allow_internet_access': False,
               'network': {'allowOut': ['1.1.1.1', '*.example.com', '2001:db8::/32'], 'denyOut': ['0.0.0.0/0', '10.0.0.0/8'],
                           'allowPublicTraffic': True, 'maskRequestHost': 'localhost:${PORT}'}},
              {'allowOut': ['example.com'], 'denyOut': ['0.0.0.0/0'], 'timeout': 0},
              {'name': 'Name:v1', 'tags': ['a', 'v1'], 'cpuCount': 2, 'memoryMB': 1024, 'fromTemplate': 'base', 'startCmd': 's',
               'readyCmd': 'sleep 1', 'steps': [{'type': 'COPY', 'args': ['./a/../b/*.txt', 'x/', 'u:g', '0644'], 'filesHash': 'ab' * 32},
                                                {'type': 'RUN', 'args': ['x', 'root']}, {'type': 'ENV', 'args': ['A', '$B']}]}]
    for n, target in enumerate(targets):
        for body in bodies:
            yield bytes([n & 1, len(target)]) + target + json.dumps(body).encode()
    yield b'\2' + struct.pack('<10Q', 33, 2, 0, 5, 12, 900, 0, 0, 0, 0) + b'[    0.000000] Linux\r\n\x1b[31mred\n\xc3'
    yield b'\2' + struct.pack('<10Q', 1 << 40, 1 << 50, (1 << 40) - 3, 7, 1, 1, 2, 2, 3, 3) + b'cut off\n\nwhole\n'
    yield b'\0\0one\r\n[step 1 of 4 (USER)]\nhidden\n[step 2 of 4 (RUN)]\n\xff\0out\n[step 4 of 4 (RUN)]\n[all steps are done]\nserves'


SEEDS = {'agent': agents, 'config': configs, 'control': controls, 'copy': copies, 'envelope': envelopes, 'gateway': gateway_requests,
         'http': requests, 'image': images, 'kernel': kernels, 'multipart': forms, 'netd': netds, 'oci': ocis,
         'options': options, 'pack': packs,
         'policy': policies, 'resolver-link': resolver_links, 'stored': storeds}
