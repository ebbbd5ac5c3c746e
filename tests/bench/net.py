# SPDX-License-Identifier: Apache-2.0
"""What the network of a sandbox costs beside a plain veth pair and a tap, on this machine and in namespaces only: bytes and
packets a second, time that the filter's programs take for a packet, and how long a policy takes to be in force.

In a round each path carries the same loads, one after the other, so that a noisy machine is noisy for all. The other end is
always a process in the host's namespace."""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / 'tests/bpf'))

import figures  # noqa: E402
import netlab  # noqa: E402

HOST = '198.51.100.2'
PORT = 5201
PROGRAMS = ('from_sandbox', 'to_sandbox')
LOADS = {
    'TCP in': (), 'TCP out': ('-R',),
    'UDP in': ('-u', '-b', '0', '-l', '64'), 'UDP out': ('-R', '-u', '-b', '0', '-l', '64'),
}
RULES = (10, 1000, 4095)


def mac_of(netns, link):
    return json.loads(netns.run('ip', '-j', 'link', 'show', link).stdout)[0]['address']


class PlainVeth:
    """A namespace behind a veth pair, and nothing else."""
    name, near, pump, filtered = 'veth', '10.77.0.1', None, False

    def __init__(self, host):
        self.netns, self.address = netlab.Netns(), '10.77.0.2'
        host.netns.ip(f'link add plain0 type veth peer name eth0 netns {self.netns.path()}', 'link set plain0 up',
                      'address add 10.77.0.1/30 dev plain0')
        self.netns.ip('link set lo up', 'link set eth0 up', 'address add 10.77.0.2/30 dev eth0',
                      'route add default via 10.77.0.1')

    def close(self):
        self.netns.close()


class FilteredVeth:
    """A slot without its tap: the namespace's own stack behind the inner end of the veth. What is left is the filter and the
    nftables table."""
    name, near, pump, filtered = 'veth + filter', HOST, None, True

    def __init__(self, host):
        self.sandbox = host.sandbox(default='internet')
        self.netns, self.address = self.sandbox.netns, self.sandbox.address4
        self.link = f'cube{self.sandbox.slot}'
        self.netns.run('tc', 'qdisc', 'del', 'dev', 'eth0', 'clsact')
        self.netns.ip('link set lo up', f'address add {self.address}/32 dev eth0', 'route add default dev eth0',
                      f'neighbour replace {HOST} lladdr {mac_of(host.netns, self.link)} dev eth0')
        host.netns.ip(f'neighbour replace {self.address} lladdr {mac_of(self.netns, "eth0")} dev {self.link}')

    def close(self):
        pass


class UnfilteredVeth(FilteredVeth):
    """The same without the filter's programs: to its nftables table, another chain stands in for them."""
    name, filtered = 'veth + table', False

    def __init__(self, host):
        super().__init__(host)
        host.netns.run('tc', 'qdisc', 'del', 'dev', self.link, 'clsact')
        host.netns.run('nft', f'add table inet bench; add chain inet bench in {{ type filter hook prerouting priority -300; }};'
                              f' add rule inet bench in iifname {self.link} meta mark set {netlab.MARK}')


class PlainTap:
    """A guest behind a tap of the host's, with the offloads that ours has."""
    name, near, filtered = 'tap', netlab.GATEWAY4, False

    def __init__(self, host):
        self.tap = netlab.open_tap('plaintap')
        host.netns.ip('link set plaintap up', f'address add {netlab.GATEWAY4}/30 dev plaintap')
        self.guest = netlab.Guest(self.tap)
        self.guest.netns.ip(f'neighbour del {netlab.GATEWAY4} dev eth0')
        self.netns, self.address, self.pump = self.guest.netns, netlab.INNER4, self.guest.pump.pid

    def close(self):
        self.guest.close()
        os.close(self.tap)


class Slot:
    """All of it: tap, translation, veth, filter."""
    name, near, filtered = 'sandbox', HOST, True

    def __init__(self, host):
        self.sandbox = host.sandbox(default='internet')
        self.netns, self.address = self.sandbox.guest(), self.sandbox.address4
        self.link = f'cube{self.sandbox.slot}'
        self.pump = self.sandbox.guest_.pump.pid

    def close(self):
        pass


def cpu_seconds(pid):
    """That a process has used, the kernel's work for its packets included."""
    with open(f'/proc/{pid}/stat', encoding='ascii') as f:
        fields = f.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def iperf(host, path, load, seconds):
    """(rate, cost): bytes or packets that came in a second, and ns of CPU time for 1024 bytes or for a packet."""
    udp = '-u' in load
    receiver = host.netns if '-R' in load else path.netns
    server = path.netns.start('iperf3', '-s', '-1', '-p', str(PORT), stdout=subprocess.DEVNULL)
    wait_for_listener(path.netns)
    pump_before = cpu_seconds(path.pump) if path.pump else 0
    before, used = receiver.stat('UdpInDatagrams'), resource.getrusage(resource.RUSAGE_CHILDREN)
    # Times of children count once these have been waited for; nstat's, run twice, is nothing beside them.
    client = host.netns.run('iperf3', '-c', path.address, '-B', path.near, '-p', str(PORT), '-t', str(seconds), '-J', *load,
                            check=False)
    end = json.loads(client.stdout)
    if 'error' in end:
        server.kill()
    server.wait()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    came = receiver.stat('UdpInDatagrams') - before
    if 'error' in end:
        sys.exit(f'{path.name}: iperf3: {end["error"]}')
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    cpu += cpu_seconds(path.pump) - pump_before if path.pump else 0
    if udp:
        return came / seconds, cpu * 1e9 / max(1, came)
    total = end['end']['sum_received']
    return total['bits_per_second'] / 8, cpu * 1e9 / max(1, total['bytes'] / 1024)


def wait_for_listener(netns):
    end = time.monotonic() + 10
    while not netns.run('ss', '-Htln', 'sport', '=', str(PORT)).stdout:
        if time.monotonic() > end:
            sys.exit('iperf3 does not listen')
        time.sleep(0.01)


@contextlib.contextmanager
def program_times():
    """The kernel measures run times of BPF programs meanwhile: BPF_ENABLE_STATS."""
    attr = ctypes.create_string_buffer(struct.pack('=I', 0), 4)
    fd = netlab.check(netlab.libc.syscall(321, 32, attr, 4))
    try:
        yield
    finally:
        os.close(fd)


def program_runs(host, link):
    """name: (runs, ns) of the filter's programs on a link."""
    out = {}
    for program, side in zip(PROGRAMS, ('ingress', 'egress')):
        filters = json.loads(host.netns.run('tc', '-j', 'filter', 'show', 'dev', link, side).stdout)
        number = next(f['options']['prog']['id'] for f in filters if 'prog' in f.get('options', {}))
        shown = json.loads(subprocess.run(['bpftool', '-j', 'prog', 'show', 'id', str(number)], check=True,
                                          capture_output=True, text=True).stdout)
        out[program] = (shown.get('run_cnt', 0), shown.get('run_time_ns', 0))
    return out


def time_programs(host, path, seconds):
    """Of each load: what of the CPU time the filter took, in %, and ns for each run, both with the time that measuring takes."""
    rows = []
    for name, load in LOADS.items():
        before = program_runs(host, path.link)
        with program_times():
            rate, cost = iperf(host, path, load, seconds)
        after = program_runs(host, path.link)
        runs = {p: (after[p][0] - before[p][0], after[p][1] - before[p][1]) for p in PROGRAMS}
        total = sum(ns for _, ns in runs.values())
        units = rate * seconds / (1 if '-u' in load else 1024)
        rows.append({'path': path.name, 'load': name, 'share': total / max(1, units * cost) * 100,
                     **{p: ns / max(1, n) for p, (n, ns) in runs.items()}, **{f'{p} runs': n for p, (n, _) in runs.items()}})
    return rows


def time_policies(host, rounds):
    """Milliseconds from the request until the policy is in force, which is when the answer comes."""
    sandbox, rows = host.sandbox(), []
    for count in RULES:
        times = []
        for number in range(rounds):
            # A different one each time: a policy that is there already is only pointed at.
            rules = [f'allow 20.{number % 250}.{i >> 4}.{(i & 15) << 4}/28 tcp:{1000 + i % 4}' for i in range(count)]
            begin = time.monotonic()
            sandbox.policy(*rules)
            times.append((time.monotonic() - begin) * 1000)
        rows.append({'rules': count, 'p50': figures.percentile(times, 50), 'p99': figures.percentile(times, 99)})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument('--rounds', type=int, default=7)
    p.add_argument('--seconds', type=int, default=1, help='of each load')
    p.add_argument('--policy-rounds', type=int, default=50)
    p.add_argument('--json')
    args = p.parse_args()

    netlab.private_mounts()
    host = netlab.Host().start()
    paths = [kind(host) for kind in (PlainVeth, UnfilteredVeth, FilteredVeth, PlainTap, Slot)]
    results = {path.name: {load: [] for load in LOADS} for path in paths}
    try:
        for _ in range(args.rounds):
            for name, load in LOADS.items():
                for path in paths:
                    results[path.name][name].append(iperf(host, path, load, args.seconds))
        programs = [row for path in paths if path.filtered for row in time_programs(host, path, args.seconds)]
        policies = time_policies(host, args.policy_rounds)
    finally:
        for path in paths:
            path.close()
        host.close()

    report(results, programs, policies)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({
            'conditions': {'kernel': os.uname().release, 'cpus': os.cpu_count(), 'load': os.getloadavg(), **vars(args)},
            'paths': results, 'programs': programs, 'policies': policies}, indent=1), encoding='utf-8')


def report(results, programs, policies):
    rows = []
    for name, loads in results.items():
        for load, values in loads.items():
            scale = 1e6 if load.startswith('TCP') else 1e3
            rates, costs = [v[0] / scale for v in values], [v[1] for v in values]
            ratio = [figures.median([v[i] / p[i] for v, p in zip(values, results['veth'][load])]) * 100 for i in (0, 1)]
            rows.append([f'{name}, {load}', figures.median(rates), min(rates), max(rates), ratio[0], figures.median(costs),
                         ratio[1]])
    print('TCP in MB/s, UDP of 64 bytes in 1000 packets/s. Cost: ns of CPU time for 1024 bytes, or for a packet. % of veth: median '
          'of the rounds')
    print(figures.table(['path', 'median', 'least', 'most', '% of veth', 'cost', '% of veth'], rows))
    print('\nthe filter, while the kernel measures it: % of all CPU time for the load, and ns for a run')
    print(figures.table(['path', '% CPU', *PROGRAMS, *(f'{p} runs' for p in PROGRAMS)],
                        [[f'{r["path"]}, {r["load"]}', float(r['share']), *(float(r[p]) for p in PROGRAMS),
                          *(r[f'{p} runs'] for p in PROGRAMS)] for r in programs]))
    print('\na policy until it is in force, in ms')
    print(figures.table(['rules', 'p50', 'p99'], [[str(r['rules']), r['p50'], r['p99']] for r in policies]))


if __name__ == '__main__':
    main()
