#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the operations of a sandbox cost: times, and everything that can be counted.

Runs as root next to a running cubed, with a template of each kind: one whose sandboxes boot, one whose sandboxes are
restored. Prints tables and, with --json, all figures. Times come from rounds in which nothing is counted, since counting
costs time; counts and memory from rounds of their own, up to when cubed and the VMMs are at rest again.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import time

import dbus

import counters
import figures
import smaps
from cubetest import ctl, ctl_ok, journal, make_root, manager, manager_prop, prop, remove_snapshot, wait_for
from guest import Guest, Linux, Payload, create, wait_at_rest
from operations import OperationFailed, Round, kill_all, stored_bytes, stored_names

# One whose sandboxes boot, one whose sandboxes are restored.
TEMPLATES = {"bench-cold": ["--no-warm"], "bench-warm": []}


def memory_of(pid):
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as f:
        return smaps.parse(f.read())


def page_tables(pid):
    """In KiB."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmPTE:"))


class Times:
    """A round of which only the clock is looked at."""

    def measure(self, step):
        begin = time.monotonic()
        guests = step.call()
        answered = time.monotonic()
        values = {"msec": (answered - begin) * 1e3}
        for guest in guests[:1]:
            guest.exec("true")
            values["first_exec_msec"] = (time.monotonic() - begin) * 1e3
        return guests, values

    def close(self):
        pass


class Counts:
    """A round in which everything is counted, and nothing else asked of cubed meanwhile."""

    def __init__(self):
        self.counter = counters.Counter()

    def measure(self, step):
        vmm = [step.vmm.pid] if step.vmm else []
        wait_at_rest(self.counter.read)
        stored, begin = stored_names(), self.look(vmm)
        memory = [memory_of(pid) for pid in vmm]
        guests = step.call()
        wait_at_rest(self.counter.read)
        end = self.look(vmm)
        values = dataclasses.asdict(end["counts"] - begin["counts"])
        values |= {key: end[key] - begin[key] for key in ("cubed_faults", "written_kib")}
        pids = vmm if step.vmm in guests or not guests else [guest.pid for guest in guests]
        values |= self.of_vmms(pids, memory if pids == vmm and not step.renews else [])
        values["vmm_faults"] -= begin["vmm_faults"] if pids == vmm else 0
        if step.stores:
            values |= self.of_snapshot(stored_names() - stored)
        return guests, values

    def look(self, vmm):
        service = counters.service_pids()
        return {"counts": self.counter.read(), "cubed_faults": counters.sum_of(counters.minor_faults, service),
                "vmm_faults": counters.sum_of(counters.minor_faults, vmm),
                "written_kib": counters.sum_of(counters.written, service + vmm) // 1024}

    @staticmethod
    def of_vmms(pids, before):
        """Of all that took part. Pages are those that came to be in this operation."""
        now = [memory_of(pid) for pid in pids]

        def total(key, memories=now):
            return sum(getattr(memory, key) for memory in memories)
        return {"vmm_faults": counters.sum_of(counters.minor_faults, pids),
                "copied_pages": (total("guest_copied") - total("guest_copied", before)) // 4,
                "zeroed_pages": (total("guest_zeroed") - total("guest_zeroed", before)) // 4,
                "guest_private_kib": total("guest_private"), "own_private_kib": total("own_private"),
                "page_table_kib": counters.sum_of(page_tables, pids)}

    @staticmethod
    def of_snapshot(names):
        files = {}
        for name in names:
            for file, size in stored_bytes(name).items():
                files[file] = files.get(file, 0) + size
        return {f"{file}_kib": files.get(file, 0) // 1024 for file in ("state", "memory", "disk")}

    def close(self):
        self.counter.close()


def run_round(place, meter, samples, failures):
    """samples[operation][value] get one more each."""
    try:
        for name, start in place.steps():
            step = start()
            try:
                guests, values = meter.measure(next(step))
            except OperationFailed as e:
                failures.append({name: e.args[0]})
                continue
            with contextlib.suppress(StopIteration):
                step.send(guests)
            for key, value in values.items():
                samples.setdefault(name, {}).setdefault(key, []).append(value)
    finally:
        place.clean()


def idle_memory(warm):
    """A sandbox that was restored and did nothing, and what its VMM has for itself by mapping."""
    guest = create(warm)
    pid = guest.pid
    last = []

    def settled():
        last.append(counters.minor_faults(pid))
        return len(last) > 5 and last[-1] == last[-6]
    wait_for("its guest to be at rest", settled, timeout=60, interval=0.5)
    memory = memory_of(pid)
    values = {key: value for key, value in dataclasses.asdict(memory).items()} | {"page_table_kib": page_tables(pid)}
    scope = os.path.join(counters.cgroup_root(), "cube.slice", prop(guest.id, "Scope"))
    with contextlib.suppress(FileNotFoundError), open(os.path.join(scope, "memory.stat"), encoding="ascii") as f:
        values["cgroup_kib"] = {key: int(value) // 1024 for key, value in map(str.split, f)
                                if key in ("anon", "file", "kernel", "kernel_stack", "pagetables", "sec_pagetables", "percpu",
                                           "slab", "sock", "shmem", "vmalloc")}
    kill_all([guest])
    return values


def pauses(warm, kind, rounds):
    """What a busy guest saw, in microseconds, and what cubed says of it."""
    guest = create(warm)
    inside = kind(guest)
    snapshots = []

    def take():
        snapshots.append(str(guest.call("Snapshot")[0]))
    try:
        seen = {"undisturbed": [inside.gap_usec(10, lambda: time.sleep(0.05)) for _ in range(rounds)],
                "snapshot, nothing dirty": [inside.gap_usec(0, take) for _ in range(rounds)],
                "snapshot, 10 MiB dirty": [inside.gap_usec(10, take) for _ in range(rounds)]}
    finally:
        kill_all([guest])
        for snapshot in reversed(snapshots):
            remove_snapshot(snapshot)
    said = [int(entry["CUBE_PAUSE_USEC"]) for entry in journal(guest.id) if "CUBE_PAUSE_USEC" in entry]
    return seen | {"snapshot, 10 MiB dirty, by cubed's clock": said[rounds:]}


def longest_dispatches(warm, rounds):
    """The longest dispatch of cubed's loop while 20 create at once and are ended, in microseconds, without what others had
    the CPU for."""
    values = []
    for _ in range(rounds):
        manager().ResetLoopMax()
        jobs = [subprocess.Popen(["cubectl", "create", warm, "--timeout", "1h"], stdout=subprocess.PIPE) for _ in range(20)]
        for sandbox_id in [job.communicate()[0].decode().strip() for job in jobs]:
            ctl_ok("kill", sandbox_id)
        values.append(int(manager_prop("LoopMaxUSec")))
    return values


def calibration():
    """What this machine takes for something that everybody knows, in microseconds: a program that does nothing."""
    values = []
    for _ in range(50):
        begin = time.monotonic()
        subprocess.run(["/bin/true"], check=True)
        values.append((time.monotonic() - begin) * 1e6)
    return figures.median(values)


def conditions(arguments):
    with open("/proc/loadavg", encoding="ascii") as f:
        load = float(f.read().split()[0])
    return {"place": arguments.place, "kernel": os.uname().release, "cpus": os.cpu_count(), "load": load,
            "rounds": arguments.rounds, "count_rounds": arguments.count_rounds, "guest": "payload" if arguments.payload else "Linux"}


def print_tables(result):
    operations = result["operations"]

    def column(values, key, share=50):
        return figures.percentile(values[key], share) if key in values else None
    print("Times, in milliseconds\n")
    print(figures.table(
        ["operation", "rounds", "p50", "p99", "first exec p50", "p99"],
        [[name, len(v["msec"]), *(column(v, key, share) for key in ("msec", "first_exec_msec") for share in (50, 99))]
         for name, v in operations.items() if "msec" in v]))
    keys = {"cubed_syscalls": "cubed sys", "cubed_ioctls": "ioctl", "helper_syscalls": "helpers sys", "vmm_syscalls": "VMM sys",
            "vmm_ioctls": "ioctl", "vmm_runs": "KVM_RUN", "cubed_faults": "service flt", "vmm_faults": "VMM flt",
            "copied_pages": "CoW", "zeroed_pages": "zero", "guest_private_kib": "guest KiB", "own_private_kib": "own KiB",
            "page_table_kib": "PT KiB", "written_kib": "written KiB", "state_kib": "state", "memory_kib": "memory",
            "disk_kib": "disk"}
    print("\nCounts and memory, medians\n")
    print(figures.table(["operation", *keys.values()],
                        [[name, *(column(v, key) for key in keys)] for name, v in operations.items() if "cubed_syscalls" in v]))
    for failure in result["failures"]:
        print(f"failed: {failure}")
    print("\nLargest gap that a busy guest saw between two looks at its clock, in milliseconds\n")
    print(figures.table(["meanwhile", "rounds", "p50", "p99"],
                        [[name, len(values), *(figures.percentile(values, share) / 1e3 for share in (50, 99))]
                         for name, values in result["pauses_usec"].items()]))
    if values := result["longest_dispatches_usec"]:
        print("\nThe longest dispatch of cubed's loop while 20 create at once, in milliseconds\n")
        print(figures.table(["rounds", "p50", "p99"], [[len(values), *(figures.percentile(values, share) / 1e3 for share in (50, 99))]]))
    print("\nAn idle restored sandbox, in KiB\n" + json.dumps(result["idle"], indent=1))
    print("\n" + json.dumps(result["conditions"]))


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--payload", metavar="ELF", help="measure with the payload guest")
    what.add_argument("--rootfs", metavar="FILE", help="measure with Linux and this root file system, which has python3")
    p.add_argument("--rounds", type=int, default=100, help="for times")
    p.add_argument("--count-rounds", type=int, default=5)
    p.add_argument("--pause-rounds", type=int, default=20)
    p.add_argument("--loop-rounds", type=int, default=10)
    p.add_argument("--place", default=os.environ.get("CUBE_PLACE", "host"))
    p.add_argument("--json", metavar="FILE")
    return p.parse_args()


def templates(arguments):
    if arguments.payload:
        options = ["--kernel", arguments.payload, "--memory", "64M", "--disk", "64M"]
    else:
        options = ["--memory", "256M"]
    with tempfile.TemporaryDirectory() as directory:
        root = make_root(pathlib.Path(directory))
        for name, how in TEMPLATES.items():
            ctl_ok("template", "build", name, "--from", arguments.rootfs or root, *options, *how, timeout=900)


def measure(arguments, result):
    """Into result, as it comes."""
    cold, warm = (f"template:{name}" for name in TEMPLATES)
    # what a first sandbox leaves with cubed for good is nobody's cost
    kill_all([create(cold), create(warm)])
    for meter, rounds in ((Times, arguments.rounds), (Counts, arguments.count_rounds)):
        for _ in range(rounds):
            with contextlib.closing(meter()) as m:
                run_round(Round(cold, warm), m, result["operations"], result["failures"])
    result["idle"] = idle_memory(warm)
    result["pauses_usec"] = pauses(warm, Payload if arguments.payload else Linux, arguments.pause_rounds)
    result["longest_dispatches_usec"] = longest_dispatches(warm, arguments.loop_rounds)
    result["conditions"]["load_at_end"] = os.getloadavg()[0]


def main():
    arguments = parse_arguments()
    Guest.connection = dbus.SystemBus(private=True)
    result = {"conditions": conditions(arguments), "fork_exec_wait_usec": calibration(), "operations": {}, "failures": []}
    try:
        templates(arguments)
        measure(arguments, result)
    finally:
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as f:
                json.dump(result, f, indent=1)
        for name in TEMPLATES:
            ctl("template", "rm", name)
    print_tables(result)


if __name__ == "__main__":
    main()
