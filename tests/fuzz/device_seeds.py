# SPDX-License-Identifier: Apache-2.0
"""What the targets of the devices begin with: scripts as script.h reads them, and accesses as fuzz-pci.c does."""

import struct

VERSION_1 = 1 << 32
INDIRECT = 1 << 28
EVENT_IDX = 1 << 29
RAM = 4 << 20

# BAR
COMMON, ISR, DEVICE, NOTIFY, MSIX, PENDING = (i * 0x1000 for i in range(6))
GF_SELECT, GF, MSIX_CONFIG, STATUS, Q_SELECT, Q_SIZE, Q_MSIX, Q_ENABLE = 0x08, 0x0c, 0x10, 0x14, 0x16, 0x18, 0x1a, 0x1c
Q_DESC, Q_AVAIL, Q_USED = 0x20, 0x28, 0x30
COMMON_REGISTERS = {0x00: 4, 0x04: 4, 0x08: 4, 0x0c: 4, 0x10: 2, 0x12: 2, 0x14: 1, 0x15: 1, 0x16: 2, 0x18: 2, 0x1a: 2, 0x1c: 2,
                    0x1e: 2, 0x20: 4, 0x24: 4, 0x28: 4, 0x2c: 4, 0x30: 4, 0x34: 4}


class Part:
    """A part of a chain. gpa: the script finds it a place if there is none; flags: the descriptor's own, as they are."""

    def __init__(self, size, write=False, gpa=None, flags=None):
        self.data = bytes([write | (gpa is not None) << 1 | (size > 0xffff) << 2 | (flags is not None) << 3])
        self.data += struct.pack('<I' if size > 0xffff else '<H', size)
        if gpa is not None:
            self.data += struct.pack('<Q', gpa)
        if flags is not None:
            self.data += struct.pack('<H', flags)


def out(size, **more):
    return Part(size, write=True, **more)


class Script:
    def __init__(self, start=b''):
        self.data = start

    def step(self, kind, argument=0, data=b''):
        self.data += bytes([kind | argument << 4]) + data
        return self

    def bar_write(self, offset, size, value):
        return self.step(0, size.bit_length() - 1, struct.pack('<HQ', offset, value)[:2 + size])

    def bar_read(self, offset, size):
        return self.step(1, size.bit_length() - 1, struct.pack('<H', offset))

    def config_write(self, offset, size, value):
        return self.step(2, size.bit_length() - 1, struct.pack('<BI', offset, value)[:1 + size])

    def config_read(self, offset, size):
        return self.step(3, size.bit_length() - 1, bytes([offset]))

    def memory(self, offset, data, rings=False):
        return self.step(4, not rings, struct.pack('<HB', offset, len(data)) + data)

    def driver(self, features=2 ** 64 - 1, as_it_is=False, stop=False):
        return self.step(5, (not as_it_is) | stop << 1, struct.pack('<Q', features))

    def chain(self, queue, *parts, payload=b'', indirect=False, times=1, kick=True):
        flags = len(parts) - 1 | indirect << 3 | (times > 1) << 4 | (not kick) << 5 | bool(payload) << 6
        return self.step(6, queue, bytes([flags]) + (bytes([times - 1]) if times > 1 else b'') +
                         b''.join(p.data for p in parts) + (bytes([len(payload)]) + payload if payload else b''))

    def kick(self, queue):
        return self.step(7, queue)

    def rounds(self, n=3):
        return self.step(8, n - 1)

    def host(self, what, data=b''):
        return self.step(9, what, data)

    def take(self):
        return self.step(10)

    def reset(self):
        return self.step(11).rounds()

    def pause(self, load=True):
        return self.step(12, load)

    def offer(self, queue, index):
        return self.step(13, queue, struct.pack('<H', index))

    def interrupts(self, work):
        return self.step(14, not work)

    def time(self, power):
        return self.step(15, power)

    def done(self):
        return self.rounds().take().data


def registers(start):
    """Each register read and written, in any state of the driver."""
    for states in ((), (1,), (1, 3), (1, 3, 11), (1, 3, 11, 15), (1, 3, 11, 15, 0x8f), (1, 2), (0,), (3, 0, 0)):
        s = Script(start).bar_write(STATUS, 1, 1)
        for status in states:
            s.bar_write(GF_SELECT, 4, 1).bar_write(GF, 4, 1).bar_write(STATUS, 1, status)
        for offset, size in COMMON_REGISTERS.items():
            s.bar_read(offset, size).bar_write(offset, size, 1).bar_read(offset, 8).bar_read(offset, 1)
        yield s.bar_write(Q_DESC, 8, 0x10000).bar_read(Q_USED, 8).done()
    # a queue that can't be, and one behind the last
    s = Script(start).driver(stop=True).bar_write(STATUS, 1, 0).bar_write(STATUS, 1, 1).bar_write(STATUS, 1, 3)
    s.bar_write(GF_SELECT, 4, 1).bar_write(GF, 4, 1).bar_write(STATUS, 1, 11)
    for size, place in ((3, 0x10000), (512, 0x10000), (8, 0x10001), (8, RAM - 8), (8, 2 ** 63)):
        s.bar_write(Q_SIZE, 2, size).bar_write(Q_DESC, 8, place).bar_write(Q_AVAIL, 8, place).bar_write(Q_USED, 8, place)
        s.bar_write(Q_ENABLE, 2, 1).bar_write(Q_ENABLE, 2, 2)
    yield s.bar_write(Q_SELECT, 2, 9).bar_read(Q_SIZE, 2).bar_write(Q_SIZE, 2, 8).bar_write(STATUS, 1, 15).pause().done()
    # MSI-X: masked, pending, delivered, refused; the rest of the BAR
    s = Script(start).driver()
    for value in (0, 1):
        s.bar_write(MSIX + 12, 4, value).config_write(0x9a, 2, 0x8000).config_write(0x8a, 2, 0xc000 * value)
    s.bar_write(MSIX, 8, 2 ** 64 - 1).bar_write(MSIX + 8, 8, 1).bar_write(MSIX + 0x800, 8, 1).bar_read(PENDING, 8)
    s.interrupts(False).bar_read(MSIX + 8, 8).bar_read(MSIX + 4, 4).bar_read(PENDING + 8, 8).bar_read(MSIX, 1).interrupts(True)
    s.bar_read(ISR, 1).bar_read(ISR, 2).bar_read(0x7ff8, 8).bar_write(0x7ff8, 8, 0).bar_read(DEVICE + 0xff8, 8)
    yield s.bar_write(NOTIFY + 0x40, 2, 0).bar_write(DEVICE, 4, 0xffffffff).bar_read(DEVICE, 4).reset().done()
    # the window in configuration space, wherever it lies
    for at in range(0x70, 0x90, 4):
        s = Script(start).driver()
        for bar, offset, size in ((0, STATUS, 1), (0, NOTIFY, 4), (0, MSIX, 4), (1, 0, 4), (0, 3, 2), (0, 0x8000, 4), (0, 0, 3)):
            s.config_write(at + 4, 1, bar).config_write(at + 8, 4, offset).config_write(at + 12, 4, size)
            for width in (1, 2, 4):
                s.config_read(at + 16, width).config_write(at + 16, width, 0)
        yield s.done()
    s = Script(start).config_write(0x10, 4, 0xffffffff).config_read(0x10, 4).config_write(0x10, 4, 0xc0000000).config_read(0x12, 2)
    yield s.config_write(0x04, 2, 0xffff).config_read(0x3c, 4).config_write(0, 4, 0).pause().config_read(0xfc, 4).data


def rings(start, queue=0):
    """What is wrong with a chain, and what is odd but right."""
    features = (VERSION_1, VERSION_1 | EVENT_IDX, VERSION_1 | INDIRECT, VERSION_1 | INDIRECT | EVENT_IDX)
    odd = (
        [out(0), out(16)], [out(16), Part(16)], [out(16, gpa=RAM)], [out(16, gpa=RAM - 8)], [out(16, gpa=2 ** 64 - 8)],
        [Part(16, gpa=0xc0000000)], [out(2 ** 32 - 1, gpa=0)], [out(2 << 20)] * 8, [out(16, flags=3)], [out(16, flags=4)],
        [Part(17, flags=4)], [Part(0, flags=4)], [Part(32, flags=5)], [Part(8192, flags=4)], [Part(64, gpa=0x100000, flags=4)],
        [Part(16, flags=4, gpa=RAM - 8)], [Part(16, gpa=0x10000), out(512, gpa=0x10000)], [Part(0), out(0)],
    )
    for f in features:
        s = Script(start).driver(f, as_it_is=True)
        yield s.chain(queue, Part(16), out(512), out(1)).rounds().take().pause().chain(queue, out(64), times=80).rounds(8).done()
        yield Script(start).driver(f, as_it_is=True).chain(queue, Part(16), out(64), indirect=True).rounds().pause(False).done()
    for parts in odd:
        for indirect in (False, True):
            s = Script(start).driver().chain(queue, *parts, indirect=indirect).rounds().bar_read(STATUS, 1)
            yield s.reset().driver().chain(queue, out(16), times=3).pause().done()
    for index in (1, 2, 300, 0xffff):
        yield Script(start).driver().offer(queue, index).kick(queue).rounds().pause().done()
    # a head that is out of range, one that is in flight, a ring that lies over another
    for head in (b'\x01\x00\xff\xff', b'\x02\x00\x00\x00\x00\x00'):
        for size in (16, 64, 128, 256):
            yield Script(start).driver().memory(size * 16 + 2, head, rings=True).kick(queue).rounds().reset().done()
    yield Script(start).driver(VERSION_1).memory(0, struct.pack('<QIHH', 0x100000, 16, 3, 0), rings=True).offer(queue, 1).kick(queue).done()
    yield Script(start).driver(1, as_it_is=True).chain(queue, out(16)).done()
    yield Script(start).driver(stop=True).chain(queue, out(16)).rounds().bar_write(STATUS, 1, 15).done()
    yield Script(start).driver().interrupts(False).chain(queue, out(16)).rounds().driver().chain(queue, out(16)).done()


def common(start, queue=0):
    yield from registers(start)
    yield from rings(start, queue)


def blk():
    def request(kind, sector, *parts, **more):
        return s.chain(0, Part(16), *parts, payload=struct.pack('<IIQ', kind, 0, sector), **more)

    yield from common(b'\0')
    for start in (b'\0', b'\1'):
        for kind in (0, 1, 4, 8, 11):
            for sector in (0, 1, 7, 127, 255, 256, 257, 2 ** 55, 2 ** 64 - 1):
                s = Script(start).driver()
                data = Part(512) if kind == 1 else out(512)
                yield request(kind, sector, data, data, out(1)).rounds().take().data + request(kind, sector, data, data, out(1), indirect=True).done()
    # bytes that are no sectors, without a place for the status, a short header, the status in pieces
    for parts in ((out(511), out(1)), (out(512),), (), (Part(512),), (out(1),), (out(0), out(513)), (Part(100), out(1))):
        for kind in (0, 1, 8):
            s = Script(b'\0').driver()
            yield request(kind, 0, *parts).done()
    yield Script(b'\0').driver().chain(0, Part(8), out(1)).rounds().chain(0, Part(15), out(512), out(1)).done()
    # a large request in the middle of blocks, and behind the base
    for sector in (0, 1, 100, 130, 250):
        s = Script(b'\0').driver()
        request(1, sector, Part(512), Part(1024), Part(2560), out(1)).rounds()
        yield request(0, sector, out(4096), out(512), out(1)).rounds().pause().done()
    # files that fail
    for sector in (0, 9, 200):
        s = Script(b'\0').driver().host(0, b'\x00\x02')
        request(0, sector, out(4096), out(1)).rounds()
        request(1, sector, Part(512), out(1)).rounds()
        s.time(15).time(14)
        yield request(0, sector, out(4096), out(1)).done()
        s = Script(b'\0').driver()
        request(1, sector, Part(4096), out(1)).rounds().host(1)
        request(1, sector + 1, Part(512), out(1)).rounds()
        yield request(1, sector + 16, Part(4096), out(1)).rounds().host(4).done()
        s = Script(b'\0').driver().host(2, b'\1')
        request(1, sector, Part(512), out(1)).rounds()
        yield request(0, sector, out(512), out(1)).done()
    # layers
    s = Script(b'\0').driver()
    for i in range(5):
        request(1, i * 10, Part(4096), Part(512), out(1)).rounds().host(2, b'\0')
        request(4, 0, out(1)).rounds()
    yield request(0, 0, *[out(8192)] * 6, out(1)).rounds().host(3).done()
    s = Script(b'\0').driver()
    for i in range(3):
        request(1, i * 8, Part(4096), Part(512), out(1)).rounds().host(5)
        request(1, i * 8 + 1, Part(512), out(1)).rounds().host(2, b'\0')
    yield request(0, 0, *[out(4096)] * 5, out(1)).rounds().done() + Script(b'').host(5).host(5).data
    s = Script(b'\0').driver()
    for _ in range(20):
        s.host(2, b'\0')
    yield s.done()
    yield Script(b'\1').driver().host(2, b'\0').host(3).host(4).done()
    s = Script(b'\0').driver(VERSION_1 | EVENT_IDX)
    yield request(0, 0, out(4096), out(1), times=40, kick=False).kick(0).rounds(8).done()


def net():
    csum = struct.pack('<BBHHHHH', 1, 0, 0, 0, 34, 16, 0)
    tso = struct.pack('<BBHHHHH', 1, 1, 54, 1400, 34, 16, 0)
    headers = [bytes(12), csum, tso, tso[:1] + b'\4' + tso[2:], tso[:1] + b'\2' + tso[2:], tso[:4] + b'\0\0' + tso[6:],
               tso[:4] + b'\1\0' + tso[6:], tso[:8] + b'\x10\0' + tso[10:], b'\0' + tso[1:], csum[:6] + b'\xff\xff\xff\xff\0\0',
               csum[:6] + b'\4\0\0\0\0\0', tso[:2] + b'\xff\xff' + tso[4:]]
    features = (2 ** 64 - 1, VERSION_1, VERSION_1 | 1, VERSION_1 | 1 << 1, VERSION_1 | 1 << 15, VERSION_1 | 3 | 1 << 7 | 1 << 11)

    def send(flags=0, kind=0, size=64):
        return s.host(0, bytes([flags, kind]) + struct.pack('<H', size // 2))

    for start in (b'\0', b'\1'):
        yield from common(start)
        yield from rings(start, 1)
    for h in headers:
        for f in features:
            s = Script(b'\0').driver(f)
            yield s.chain(1, Part(12), Part(1514), payload=h).rounds().take().host(1).data + s.chain(1, Part(1500), payload=h).rounds().host(1).done()
    for size in (0, 11, 12, 20, 65550, 65700):
        yield Script(b'\0').driver().chain(1, Part(size)).rounds().host(1).done()
    # receiving: buffers of all kinds before and behind the frames
    for f in features:
        for size in (1526, 100, 4096, 12, 11, 65600):
            for frame in (64, 1526, 9000, 65550, 65552, 12, 14):
                s = Script(b'\0').driver(f).chain(0, out(size), times=20)
                send(size=frame)
                send(1, 1, frame)
                send(1, 4, frame)
                send(0, 3, frame)
                s.rounds(6).take()
                send(size=frame).rounds(2).chain(0, out(size), times=3).rounds(4)
                yield s.pause().rounds().host(5).done()
    s = Script(b'\0').driver()
    send(size=1526)
    send(size=1526).rounds().chain(0, out(64), times=256).rounds()
    yield send(size=30000).rounds().pause().rounds().reset().done()
    s = Script(b'\0').driver(VERSION_1)
    send(size=1526).chain(0, out(12), out(1500), times=4).rounds()
    yield send(1, size=1526).rounds().done()
    # a tap that is full, and is read again; one that goes; one that takes no offloads
    s = Script(b'\0').driver().host(4).chain(1, Part(12), Part(1514), times=60).rounds(4)
    yield s.host(1).host(1).rounds(3).host(1).host(1).rounds().pause().rounds().done()
    s = Script(b'\0').driver().host(4).chain(1, Part(65000), times=9).rounds(4)
    yield s.host(1).host(1).rounds(3).reset().done()
    yield Script(b'\0').driver().chain(0, out(1526)).host(2).rounds().chain(1, Part(100)).rounds().time(15).chain(1, Part(5)).done()
    yield Script(b'\0').driver().host(2).chain(1, Part(100), times=3).rounds().host(5).done()
    yield Script(b'\0').host(3).driver().rounds().chain(1, Part(100)).done()
    yield Script(b'\1').driver().chain(1, Part(100), times=70).chain(0, out(1526)).rounds(4).host(5).done()


def rng():
    yield from common(b'')
    for kind in (0, 1, 2):
        s = Script().driver().host(kind)
        yield s.chain(0, out(64), out(4096), times=3).rounds().take().chain(0, out(100000)).rounds().time(13).chain(0, out(8)).done()
    # its allowance: waits until time has gone by, also through a pause
    s = Script().driver().chain(0, out(70000), times=8).rounds(4).take().time(8).rounds(2).take()
    yield s.chain(0, out(70000), times=8).rounds(4).pause().time(9).rounds().host(2).done()
    yield Script().driver().chain(0, out(1), times=8, kick=False).chain(0, out(1), times=8).rounds(8).done()
    yield Script().driver().chain(0, out(70000), times=8).rounds(4).reset().time(10).rounds().done()


def balloon():
    def pages(*pfns):
        return struct.pack(f'<{len(pfns)}I', *pfns)

    for queue in range(5):
        yield from rings(b'', queue)
    yield from registers(b'')
    lists = [pages(0x200), pages(*range(0x200, 0x220)), pages(*range(0x220, 0x200, -1)), pages(0x200, 0x210, 0x208), pages(0x9f),
             pages(0xe0), pages(0), pages(0x3ff), pages(0x400), pages(0xffffffff), pages(0x200) + b'\0', pages(0x9e, 0x9f, 0x100)]
    for queue in (0, 1):
        for p in lists:
            yield Script().driver().host(0, b'\0\1\0\0').chain(queue, Part(len(p)), payload=p).rounds().bar_write(DEVICE + 4, 4, 1).host(1).done()
        yield Script().driver().chain(queue, Part(0x10001)).rounds().done()
        yield Script().driver().chain(queue, Part(1024), times=70).rounds(4).done()
        yield Script().driver().chain(queue, out(16)).done()
    for queue in (3, 4):
        for gpa, size in ((0x200000, 0x4000), (0x200800, 0x1000), (0x200001, 0x1fff), (0x9f000, 0x2000), (0, RAM), (0xe0000, 0x1000),
                          (0x10000, 0x5000), (0x100000, 0x300000)):
            yield Script().driver().chain(queue, out(size, gpa=gpa)).rounds().host(1).chain(queue, out(8192)).pause().done()
    stats = b''.join(struct.pack('<HQ', tag, tag * 1000) for tag in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99, 0xffff))
    s = Script().driver().chain(2, Part(len(stats)), payload=stats).rounds().host(1).rounds().take()
    yield s.chain(2, Part(5)).rounds().chain(2, Part(len(stats)), payload=stats, times=3).rounds().pause().host(1).done()
    yield Script().driver().chain(2, Part(10), times=100).rounds(4).reset().driver().host(1).done()
    yield Script().host(0, b'\0\0\1\0').driver().host(0, b'\1\0\0\0').host(0, b'\0\0\2\0').bar_write(DEVICE + 4, 4, 0x200).pause().reset().done()


def mem():
    def request(kind, gpa, n, **more):
        return s.chain(0, Part(24), out(10), payload=struct.pack('<HxxxxxxQHxxxxxx', kind, gpa, n), **more)

    region, block = 1 << 32, 2 << 20
    yield from common(b'')
    ranges = ((region, 1), (region, 64), (region, 65), (region + block, 0), (region + 1, 1), (region - block, 1), (region + 64 * block, 1),
              (0, 1), (2 ** 64 - block, 3), (region + 63 * block, 1), (region + 2 * block, 0xffff))
    for gpa, n in ranges:
        for kind in (0, 1, 2, 3, 4):
            s = Script().host(0, b'\x80\0').driver()
            request(0, region + 2 * block, 4).rounds()
            request(kind, gpa, n).rounds()
            request(3, region, 64).rounds()
            yield request(1, region + 2 * block, 4).rounds().pause().host(1).done()
    s = Script().host(0, b'\4\0').driver()
    request(0, region, 2).rounds()
    request(0, region + 2 * block, 1).rounds().host(0, b'\0\0')
    request(0, region + 2 * block, 1).rounds()
    yield request(2, 0, 0).rounds().host(0, b'\xff\xff').host(0, b'\3\0').done()
    for parts in ((Part(23), out(10)), (Part(24), out(9)), (Part(24),), (out(10),)):
        yield Script().driver().chain(0, *parts).done()
    s = Script().driver()
    yield request(3, region, 1, times=70).rounds(4).done()


# fuzz-pci.c

class Board:
    def __init__(self):
        self.data = b''

    def step(self, kind, argument=0, data=b''):
        self.data += bytes([kind | argument << 4]) + data
        return self

    def config(self, slot, offset, size, value=None):
        size = size.bit_length() - 1
        return self.at(0, slot, offset, size, value)

    def bar(self, slot, offset, size, value=None):
        return self.at(2, slot, offset, size.bit_length() - 1, value)

    def at(self, kind, slot, offset, size, value):
        data = struct.pack('<BH', size, offset)
        if value is None:
            return self.step(kind + 1, slot, data)
        return self.step(kind, slot, data + struct.pack('<Q', value)[:1 << size])

    def any(self, gpa, size, write):
        return self.step(4 if write else 5, 0, struct.pack('<QBQ', gpa, size, 1))

    def port(self, port, size, value=None):
        kind, data = (7, b'') if value is None else (6, struct.pack('<I', value)[:size])
        return self.step(kind, size.bit_length() - 1, struct.pack('<H', port) + data)

    def serial(self, register, value=None):
        return self.step(9, register) if value is None else self.step(8, register, bytes([value]))

    def rounds(self):
        return self.step(10, 3)

    def load(self):
        return self.step(11)


def pci():
    slots = range(9)
    for slot in slots:
        b = Board()
        for offset in range(0, 256, 4):
            b.config(slot, offset, 4)
        yield b.load().data
        b = Board().config(slot, 4, 2, 0x406)
        for offset in (0, 2, 4, 0x10, 0x14, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x7ff8):
            for size in (1, 2, 4, 8):
                b.bar(slot, offset, size).bar(slot, offset, size, 0x0101010101010101)
        yield b.rounds().load().data
        b = Board().config(slot, 4, 2, 2)
        for i in range(0x40, 0xc0, 4):
            b.config(slot, i, 4, 0xffffffff)
        yield b.config(slot, 0x1000, 4).config(slot, 0x100, 4).config(slot, 0x100, 4, 1).config(slot, 0, 8).load().data
        b = Board().config(slot, 4, 2, 2)
        for status in (1, 3):
            b.bar(slot, STATUS, 1, status)
        b.bar(slot, GF_SELECT, 4, 1).bar(slot, GF, 4, 1).bar(slot, STATUS, 1, 11).bar(slot, MSIX_CONFIG, 2, 0)
        for queue in range(5):
            b.bar(slot, Q_SELECT, 2, queue).bar(slot, Q_SIZE, 2, 8).bar(slot, Q_DESC, 8, 0x1000).bar(slot, Q_AVAIL, 8, 0x1800)
            b.bar(slot, Q_USED, 8, 0x2000).bar(slot, Q_MSIX, 2, 1).bar(slot, Q_ENABLE, 2, 1)
        b.step(12, 0, struct.pack('<HB', 0x1000, 32) + struct.pack('<QIHHQIHH', 0x3000, 16, 1, 1, 0x4000, 512, 2, 0))
        b.step(12, 0, struct.pack('<HB', 0x1800, 6) + b'\0\0\1\0\0\0').bar(slot, STATUS, 1, 15).rounds()
        yield b.bar(slot, NOTIFY, 2, 0).rounds().load().step(13, 0, b'\x20').step(14, 0, b'\x02').rounds().load().step(15).data
        yield b.bar(slot, STATUS, 1, 0).load().rounds().data
        yield b.bar(slot, STATUS, 1, 0x8f).load().bar(slot, STATUS, 1, 0).rounds().load().data
    b = Board()
    for gpa in (0, 0xc0000000, 0xc0108000, 0xc0900000, 0xdffffff8, 0xe0000000, 0xe00ffff8, 0xe0100000, 0xfee00000, 1 << 32, 2 ** 64 - 8):
        for size in (0, 1, 3, 4, 8, 9, 255):
            b.any(gpa, size, False).any(gpa, size, True).any(gpa + 1, size, False)
    yield b.data
    b = Board()
    for latch in (0, 0x80):
        for register in range(8):
            b.serial(3, latch).serial(register, 0x1f).serial(register).serial(4, 0x1f).serial(6).serial(2, 1).serial(2)
    yield b.load().data
    b = Board()
    for port in (0x3f8, 0x3ff, 0x400, 0x600, 0x601, 0x602, 0xcf8, 0xffff):
        for size in (1, 2, 4):
            b.port(port, size).port(port, size, 0x20).port(port, size, 6).port(port, size, 0x34)
    yield b.data
    yield Board().config(5, 4, 2, 2).bar(5, 0, 1, 1).bar(5, 0, 1).bar(5, 0, 1, 0xfc).bar(5, 1, 1, 1).bar(5, 0, 2).data


# fuzz-vsock.c

REQUEST, RESPONSE, RST, SHUTDOWN, RW, CREDIT_UPDATE, CREDIT_REQUEST = range(1, 8)
TAKE, SAVE, HOLD, LET_GO, COUNTERS = b'\5', b'\x85', b'\x14', b'\4', b'\x87'


def vsock():
    def packet(op, data=b'', control=False, flags=0, large=0):
        length = 199 + large if large else len(data)
        return bytes([6, op | flags << 4 | control << 6, length]) + data

    def raw(op, **fields):
        h = dict(src_cid=3, dst_cid=2, src_port=1000, dst_port=1024, size=0, type=1, op=op, flags=0, buf_alloc=65536, fwd_cnt=0) | fields
        return bytes([6, 0x80, 0]) + struct.pack('<QQIIIHHIII', *h.values())

    def frame(kind, body=b''):
        return struct.pack('<IHHI', len(body), kind, 0, 1) + body

    def opened(i):
        return bytes([i << 4])

    def host(i, data=b'', large=0):
        return bytes([1 | i << 4, 199 + large if large else len(data)]) + data

    def half_close(i):
        return bytes([0x81 | i << 4])

    def hang_up(i):
        return bytes([2 | i << 4])

    def seconds(power):
        return bytes([0x84 | power << 3])

    control = packet(REQUEST, control=True) + TAKE
    yield control + packet(RW, frame(16), control=True) + TAKE + b'\3' + TAKE + SAVE + TAKE + COUNTERS
    yield control + packet(RW, frame(16, bytes(40))[:30], control=True) + SAVE + packet(RW, bytes(22), control=True) + TAKE
    yield control + packet(RW, struct.pack('<IHHI', 1 << 31, 0, 0, 0), control=True) + TAKE
    yield control + b'\x83' * 20 + TAKE * 8 + SAVE + TAKE * 20
    yield control + HOLD + packet(RW, large=20, control=True) * 4 + SAVE + LET_GO + TAKE
    yield control + packet(SHUTDOWN, control=True, flags=3) + TAKE + control + packet(RST, control=True) + control + packet(9, control=True) + TAKE
    yield control + control + packet(REQUEST) + TAKE + packet(RW, b'x', control=True, flags=1) + packet(CREDIT_REQUEST, control=True) + TAKE
    up = opened(0) + TAKE + packet(RESPONSE) + TAKE
    stream = up + packet(RW, frame(1)) + TAKE
    yield stream + host(0, b'data') + TAKE + packet(RW, b'back') + host(0) + packet(CREDIT_REQUEST) + TAKE + half_close(0) + TAKE + packet(SHUTDOWN, flags=2) + TAKE + packet(RST)
    yield stream + packet(RW, large=30) * 8 + TAKE + host(0) * 9 + TAKE + packet(SHUTDOWN, flags=2) + host(0) * 4 + TAKE
    yield stream + packet(RW, large=30) * 3 + packet(SHUTDOWN, flags=3) + host(0) * 9 + TAKE
    yield stream + packet(RW, large=30) * 3 + hang_up(0) + TAKE + packet(RW, b'more') + packet(SHUTDOWN, flags=3) + TAKE
    yield stream + host(0, large=50) * 4 + TAKE * 30 + packet(CREDIT_UPDATE) + TAKE * 10
    yield stream + packet(SHUTDOWN, flags=1) + host(0, b'x') + TAKE + packet(RW, b'y') + hang_up(0) + TAKE
    yield stream + half_close(0) + TAKE + packet(RW, b'z') + hang_up(0) + TAKE + seconds(4) + TAKE
    yield stream + hang_up(0) + TAKE + seconds(5) + TAKE + TAKE
    yield stream + SAVE + TAKE + opened(1) + TAKE + packet(RESPONSE) + TAKE
    yield stream + raw(RW, src_port=1024, dst_port=0x40000000, buf_alloc=0) + host(0, b'no room') + TAKE + raw(CREDIT_UPDATE, src_port=1024, dst_port=0x40000000, fwd_cnt=2 ** 31) + TAKE
    yield up + packet(RW, frame(2, b'no')) + TAKE
    yield up + packet(RW, frame(1)[:5]) + packet(RW, frame(1)[5:] + b'and raw data behind') + TAKE + host(0)
    yield up + packet(SHUTDOWN, flags=2) + TAKE + up + seconds(7) + TAKE + seconds(7) + TAKE
    yield up + packet(RW, large=50) + TAKE + up + packet(RW, struct.pack('<IHHI', 40000, 1, 0, 1)) + TAKE
    yield opened(0) + seconds(5) + TAKE + opened(1) + TAKE + packet(RST) + opened(2) + TAKE + packet(RW, b'early') + TAKE + hang_up(2)
    yield opened(0) + opened(1) + opened(2) + opened(3) + TAKE + packet(RESPONSE) + TAKE + packet(RESPONSE) + SAVE + TAKE
    yield raw(REQUEST, dst_cid=7) + raw(REQUEST, src_cid=4) + raw(REQUEST, type=2) + raw(REQUEST, src_port=5000) + raw(RW, dst_port=1) + raw(RST) + TAKE
    yield raw(RW, size=5) + raw(RW, size=2 ** 32 - 1) + TAKE
    yield raw(REQUEST, src_port=5000) * 90 + TAKE * 30 + SAVE + TAKE


SEEDS = {'balloon': balloon, 'blk': blk, 'mem': mem, 'net': net, 'pci': pci, 'rng': rng, 'vsock': vsock}
