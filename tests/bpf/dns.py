# SPDX-License-Identifier: Apache-2.0
"""A DNS server of the world that answers what a test tells it to, and a stub resolver of a guest."""

import contextlib
import random
import shutil
import socket
import threading

import netlab
import test_verdict
from dnslib import A, AAAA, CNAME, HTTPS, MX, PTR, QTYPE, RCODE, RR, SOA, SRV, TXT, DNSHeader, DNSRecord

SERVER = '198.51.100.1'
KINDS = {'A': A, 'AAAA': AAAA, 'CNAME': CNAME, 'MX': MX, 'PTR': PTR, 'SRV': SRV, 'TXT': TXT, 'HTTPS': HTTPS}


class Server:
    """records: name -> [(type, data, ttl)]. odd: name -> f(query, records) for answers that are not as they should be,
    which gives the bytes to be sent, in so many packets."""

    def __init__(self, netns, address=SERVER):
        self.netns, self.address = netns, address
        self.records, self.odd, self.rcode = {}, {}, {}
        self.asked, self.by_tcp, self.ports, self.ids = [], [], [], []
        self.truncate = set()
        self.silent = False
        self.udp = netns.udp(address, 53)
        self.tcp = netns.listen(address, 53)
        self.udp.settimeout(None)
        self.tcp.settimeout(None)
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.serve_udp, self.serve_tcp)]
        for t in self.threads:
            t.start()

    def put(self, name, *data, kind='A', ttl=300):
        self.records.setdefault(name, [])
        self.records[name] += [(kind, d, ttl) for d in data]

    def answer(self, query):
        """The whole chain, as a server that resolves does it."""
        reply = query.reply(ra=1)
        name, kind = str(query.q.qname).rstrip('.'), QTYPE[query.q.qtype]
        known = name in self.records
        for _ in range(40):
            here = self.records.get(name, [])
            found = [r for r in here if r[0] == kind or kind == 'ANY']
            alias = [r for r in here if r[0] == 'CNAME']
            for k, data, ttl in found or alias:
                reply.add_answer(RR(name, getattr(QTYPE, k), ttl=ttl, rdata=KINDS[k](data)))
            if found or not alias:
                break
            name = alias[0][1]
        if not known:
            reply.header.rcode = RCODE.NXDOMAIN
            reply.add_auth(RR('example', QTYPE.SOA, ttl=60, rdata=SOA('ns.example', 'admin.example', (1, 2, 3, 4, 5))))
        return reply

    def answers(self, data):
        query = DNSRecord.parse(data)
        name = str(query.q.qname).rstrip('.')
        self.asked.append((name, QTYPE[query.q.qtype]))
        self.ids.append(query.header.id)
        if name in self.rcode:
            reply = query.reply()
            reply.header.rcode = self.rcode[name]
            return [reply.pack()]
        reply = self.answer(query)
        return self.odd[name](query, reply) if name in self.odd else [reply.pack()]

    def serve_udp(self):
        while True:
            try:
                data, peer = self.udp.recvfrom(65536)
            except OSError:
                return
            if not data:
                return
            self.ports.append(peer[1])
            name = str(DNSRecord.parse(data).q.qname).rstrip('.')
            if self.silent:
                self.asked.append((name, None))
                continue
            if name in self.truncate:
                reply = DNSRecord.parse(data).reply()
                reply.header.tc = 1
                self.udp.sendto(reply.pack(), peer)
                continue
            for one in self.answers(data):
                self.udp.sendto(one, peer)

    def serve_tcp(self):
        while True:
            try:
                peer, _ = self.tcp.accept()
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                size = int.from_bytes(peer.recv(2), 'big')
                data = peer.recv(size)
                self.by_tcp.append(str(DNSRecord.parse(data).q.qname).rstrip('.'))
                for one in self.answers(data):
                    peer.sendall(len(one).to_bytes(2, 'big') + one)

    def close(self):
        for s in (self.udp, self.tcp):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        for t in self.threads:
            t.join(netlab.PATIENT)
            assert not t.is_alive()
        self.udp.close()
        self.tcp.close()


class Answer:
    def __init__(self, data):
        self.size, self.record = len(data), DNSRecord.parse(data)
        self.rcode = RCODE[self.record.header.rcode]
        self.truncated = bool(self.record.header.tc)
        self.addresses = [str(r.rdata) for r in self.record.rr if r.rtype in (QTYPE.A, QTYPE.AAAA)]
        self.ttls = [r.ttl for r in self.record.rr]
        self.texts = [str(r.rdata) for r in self.record.rr]

    def __repr__(self):
        return f'{self.rcode} {self.texts}'


def question(name, kind='A', udp_size=None):
    q = DNSRecord.question(name, kind)
    q.header = DNSHeader(id=random.randrange(65536), rd=1, q=1)
    if udp_size:
        q.add_ar(RR('', QTYPE.OPT, rclass=udp_size, rdata=[]))
    return q


class Stub:
    """Asks the gateway from inside a guest."""

    def __init__(self, guest, gateway=netlab.GATEWAY4):
        self.guest, self.gateway = guest, gateway

    def ask(self, name, kind='A', tcp=False, timeout=netlab.PATIENT, udp_size=None):
        q = question(name, kind, udp_size)
        data = self.exchange(q.pack(), tcp, timeout)
        answer = Answer(data)
        assert answer.record.header.id == q.header.id and answer.record.header.qr == 1
        assert answer.record.q.qname == q.q.qname and answer.record.q.qtype == q.q.qtype
        return answer

    def exchange(self, data, tcp=False, timeout=netlab.PATIENT):
        if tcp:
            with self.guest.connect(self.gateway, 53, timeout) as s:
                s.sendall(len(data).to_bytes(2, 'big') + data)
                return receive_tcp(s)
        with self.guest.udp(family=netlab.family_of(self.gateway)) as s:
            s.settimeout(timeout)
            s.connect((self.gateway, 53))
            s.send(data)
            return s.recv(65536)


def receive_tcp(s):
    def exactly(n):
        data = b''
        while len(data) < n:
            more = s.recv(n - len(data))
            assert more, 'the connection ended'
            data += more
        return data
    return exactly(int.from_bytes(exactly(2), 'big'))


class Resolver:
    """cube-resolver of a host, as the user that it has there."""

    def __init__(self, host, *options):
        self.host, self.options = host, options
        self.conf = host.runtime / 'resolv.conf'
        if not self.conf.exists():
            self.conf.write_text(f'nameserver {SERVER}\n', encoding='ascii')
        # the build may lie where only root gets
        self.program = shutil.copy(netlab.BUILD / 'net/cube-resolver', host.runtime)
        self.process = None
        self.start()

    def start(self):
        self.process = self.host.netns.start(self.program, f'--socket={self.host.runtime}/resolver', f'--resolv-conf={self.conf}',
                                             *self.options, user=netlab.RESOLVER_UID, group=netlab.RESOLVER_UID, extra_groups=[])
        self.host.processes.append(self.process)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(netlab.PATIENT) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


class Lab:
    """One sandbox, its resolver and the world's."""

    def __init__(self, host, *rules, default='deny', options=()):
        self.host = host
        self.server = Server(host.world)
        self.resolver = Resolver(host, *options)
        self.sandbox = host.sandbox(*rules, default=default)
        self.guest = self.sandbox.guest()
        self.stub = Stub(self.guest)
        self.ask = self.stub.ask

    def reaches(self, address, port=80):
        return test_verdict.reaches(self.guest, self.host.world, address, port)

    def denied(self):
        """Names that cubed has been told of."""
        self.host.netd.call(netlab.PING)
        return [(e['reason'], e['name'], e['address'], e['count']) for kind, e in self.host.netd.events
                if kind == netlab.EVENT_NAME_DENIED and e['slot'] == self.sandbox.slot]

    def close(self):
        if self.resolver.process.poll() is None:
            self.resolver.stop()
        self.server.close()
