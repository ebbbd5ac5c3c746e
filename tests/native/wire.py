# SPDX-License-Identifier: Apache-2.0
"""A tap in a network namespace of its own, and the network's side of it: a packet socket that gives and takes frames
with their virtio_net_hdr, as a stack with offloads would."""

import array
import ctypes
import fcntl
import os
import socket
import struct
import subprocess

CLONE_NEWNET = 0x40000000
TUNSETIFF, TUNSETOFFLOAD, TUNGETVNETHDRSZ = 0x400454ca, 0x400454d0, 0x800454d7
IFF_TUN, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 1, 2, 0x1000, 0x4000
SOL_PACKET, PACKET_VNET_HDR = 263, 15
SO_RCVBUFFORCE = 33
HEADER = struct.Struct('<BBHHHH')
NEEDS_CSUM, TCPV4 = 1, 1
# For experiments (IEEE 802), so that nothing that a kernel says by itself is mistaken for ours.
ETHERTYPE = 0x88b5
GUEST = bytes.fromhex('02cbff000002')
HOST = bytes.fromhex('02cbff000001')


def make_tap(flags):
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH22x', b'tap0', flags))
    return fd


def _inside(channel, flags):
    """In the child: everything that has to be made in the namespace."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        os._exit(1)
    tap = make_tap(flags)
    # No neighbour discovery of the kernel's between our frames.
    with open('/proc/sys/net/ipv6/conf/tap0/disable_ipv6', 'w') as f:
        f.write('1')
    subprocess.run(['ip', 'link', 'set', 'tap0', 'up'], check=True)
    packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packet.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    # What comes while we do not get to read is kept.
    packet.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    socket.send_fds(channel, [b'x'], [tap, packet.fileno()])
    channel.recv(1)
    os._exit(0)


class Wire:
    def __init__(self, flags=IFF_TAP | IFF_NO_PI | IFF_VNET_HDR):
        ours, theirs = socket.socketpair()
        self.keeper = os.fork()
        if self.keeper == 0:
            ours.close()
            try:
                _inside(theirs, flags)
            finally:
                os._exit(1)
        theirs.close()
        _, fds, _, _ = socket.recv_fds(ours, 1, 2)
        self.channel = ours
        self.tap, packet = fds
        self.packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0, fileno=packet)
        self.packet.settimeout(60)

    def listen(self, ethertype=ETHERTYPE):
        self.packet.bind(('tap0', ethertype))
        return self

    def close(self):
        if self.tap >= 0:
            os.close(self.tap)
        self.tap = -1
        self.packet.close()
        self.channel.close()
        os.waitpid(self.keeper, 0)

    def ip(self, *args):
        subprocess.run(['nsenter', '-n', '-t', str(self.keeper), 'ip', *args], check=True)

    def header_bytes(self):
        data = array.array('i', [0])
        fcntl.ioctl(self.tap, TUNGETVNETHDRSZ, data)
        return data[0]

    def send(self, frame, header=bytes(HEADER.size)):
        self.packet.sendto(header + frame, ('tap0', 0))

    def receive(self):
        """(header, frame) of the next one that the guest sent; what we sent is seen by the socket, too."""
        while True:
            data, address = self.packet.recvfrom(70000)
            if address[2] != socket.PACKET_OUTGOING:
                return data[:HEADER.size], data[HEADER.size:]

    def nothing_more(self, seconds=0.3):
        self.packet.settimeout(seconds)
        try:
            self.receive()
            return False
        except TimeoutError:
            return True
        finally:
            self.packet.settimeout(60)


def frame(payload, to=GUEST, source=HOST, ethertype=ETHERTYPE):
    return to + source + struct.pack('>H', ethertype) + payload


def echoed(f):
    return f[6:12] + f[:6] + f[12:]


def checksum(data):
    total = sum(struct.unpack(f'>{len(data) // 2}H', data[:len(data) & ~1])) + (data[-1] << 8 if len(data) & 1 else 0)
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def tcp4(payload, mss):
    """A TCP segment as a stack hands it to a card that cuts it and makes its checksums: (header, frame)."""
    source, to = bytes([169, 254, 77, 1]), bytes([169, 254, 77, 2])
    total = 40 + len(payload)
    ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, total, 1, 0x4000, 64, 6, 0, source, to)
    ip = ip[:10] + struct.pack('>H', checksum(ip)) + ip[12:]
    pseudo = ~checksum(source + to + struct.pack('>HH', 6, total - 20)) & 0xffff
    tcp = struct.pack('>HHIIBBHHH', 1000, 2000, 1, 1, 0x50, 0x10, 65535, pseudo, 0)
    header = HEADER.pack(NEEDS_CSUM, TCPV4 if len(payload) > mss else 0, 54, mss if len(payload) > mss else 0, 34, 16)
    return header, frame(ip + tcp + payload, ethertype=0x0800)
