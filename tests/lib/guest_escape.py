# SPDX-License-Identifier: Apache-2.0
"""Run as root in a Linux guest: looks for all that is not the guest's own, and prints what it finds as JSON.

What it looks at is named by its arguments; "search WORD..." looks for words in what the guest can read of its machine.
"""

import concurrent.futures
import glob
import json
import os
import socket
import sys

VSOCK_PORTS = (*range(1, 32), 53, 80, 111, 443, *range(1000, 1040), 2375, 8080, 9999, 49983, 1 << 30, (1 << 30) + 1, (1 << 32) - 2)


def read(path, size=1 << 20):
    try:
        with open(path, "rb") as f:
            return f.read(size)
    except OSError:
        return b""


def devices():
    """The machine: PCI functions, block devices, what is mounted, and what shares of a host's would be in here."""
    return {
        "pci": sorted((os.path.basename(d), read(f"{d}/vendor").decode().strip(), read(f"{d}/device").decode().strip())
                      for d in glob.glob("/sys/bus/pci/devices/*")),
        "block": sorted(name for name in os.listdir("/sys/block") if not name.startswith(("loop", "ram", "zram"))),
        "serial": [read(path).decode().strip() for path in glob.glob("/sys/block/vd*/serial")],
        "mounts": sorted({line.split()[2] for line in read("/proc/mounts").decode().splitlines()}),
        "dmi": read("/sys/class/dmi/id/sys_vendor").decode() + read("/sys/firmware/dmi/tables/DMI").hex(),
        "kvm": os.path.exists("/dev/kvm"),
        "flags": sorted({"vmx", "svm"} & set(read("/proc/cpuinfo").decode().split())),
        "cmdline": read("/proc/cmdline").decode(),
    }


def connect(cid, port, bound=None):
    """None when it is open, else what it was told."""
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as s:
        try:
            if bound:
                s.bind((socket.VMADDR_CID_ANY, bound))
            s.connect((cid, port))
        except OSError as e:
            return os.strerror(e.errno)
    return None


def vsock():
    """Whom it reaches by vsock: of the host, also from a port that only root has, and of others."""
    tried = [(2, port) for port in VSOCK_PORTS] + [(2, 1024, 1000), (2, 1024, 1023)]
    tried += [(cid, port) for cid in (0, 4, 5, 6, 100, 1 << 31) for port in (1, 1024, 49983)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        told = list(pool.map(lambda t: connect(*t), tried))
    return {"reached": [t for t, error in zip(tried, told) if error is None], "told": sorted(set(map(str, told)))}


def search(*words):
    """Where words of the host's stand, of all that tells of processes, devices and tables in here."""
    paths = (glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ") + glob.glob("/sys/firmware/acpi/tables/*") +
             glob.glob("/proc/*") + glob.glob("/sys/bus/pci/devices/*/config") + glob.glob("/sys/devices/virtual/dmi/id/*"))
    found = {word: [] for word in words}
    for path in paths:
        if os.path.isfile(path) and not path.startswith((f"/proc/{os.getpid()}/", "/proc/kcore", "/proc/kmsg", "/proc/kpage")):
            text = read(path)
            for word in words:
                if word.encode() in text:
                    found[word].append(path)
    return found


def main():
    known = {f.__name__: f for f in (devices, vsock)}
    words = sys.argv[1:]
    if words[0] == "search":
        print(json.dumps(search(*words[1:])))
    else:
        print(json.dumps({word: known[word]() for word in words}))


if __name__ == "__main__":
    main()
