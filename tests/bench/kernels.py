#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The small and the stock guest kernel beside each other: boot, memory, pages that a restored guest comes to have for
itself, and what a template takes on disk.

Runs as root next to a running cubed that has the small kernel installed. Both are measured in turns, under the same load.
"""

import argparse
import contextlib
import json
import os
import statistics
import time

from bench import memory_of
from cubetest import created, ctl, ctl_ok, prop
from operations import stored_bytes, stored_names

KERNELS = ("stock", "small")
TEMPLATE_MIB, BOOTED_MIB = 256, 192  # less than its template was saved with is booted


def template(kernel):
    return f"bench-kernel-{kernel}"


def meminfo(sandbox_id):
    """In KiB."""
    lines = ctl_ok("exec", sandbox_id, "--", "cat", "/proc/meminfo").splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {"total": values["MemTotal"], "used": values["MemTotal"] - values["MemAvailable"], "slab": values["Slab"]}


def boot(kernel):
    begin = time.monotonic()
    with created("--template", template(kernel), "--memory", f"{BOOTED_MIB}M") as sandbox_id:
        seconds = time.monotonic() - begin
        assert prop(sandbox_id, "Start") == "booted"
        private = memory_of(prop(sandbox_id, "VMMPID")).guest_private
        inside = meminfo(sandbox_id)
        # what the kernel kept for itself before it counted
        return {"seconds": seconds, "private_kib": private, "kept_kib": BOOTED_MIB * 1024 - inside["total"],
                "used_kib": inside["used"], "slab_kib": inside["slab"],
                "release": ctl_ok("exec", sandbox_id, "--", "uname", "-r").strip()}


def guest_private(sandbox_id):
    return memory_of(prop(sandbox_id, "VMMPID")).guest_private


def idle_and_first_exec(kernels, seconds):
    """Pages that each guest has for itself: restored, a quiet while later, and after its first exec."""
    with contextlib.ExitStack() as stack:
        ids = {k: stack.enter_context(created("--template", template(k))) for k in kernels}
        assert all(prop(i, "Start") == "restored" for i in ids.values())
        steps = [{k: guest_private(i) for k, i in ids.items()}]
        time.sleep(seconds)
        steps.append({k: guest_private(i) for k, i in ids.items()})
        for i in ids.values():
            ctl_ok("exec", i, "--", "true")
        steps.append({k: guest_private(i) for k, i in ids.items()})
    restored, idle, used = steps
    return {k: {"restored_pages": restored[k] // 4, "idle_pages": (idle[k] - restored[k]) // 4,
                "first_exec_pages": (used[k] - idle[k]) // 4} for k in kernels}


def build(kernel, rootfs):
    """What the files of the new template take on disk, in KiB; what was saved of its guest is a snapshot."""
    before = stored_names()
    ctl_ok("template", "build", template(kernel), "--from", rootfs, "--memory", f"{TEMPLATE_MIB}M", "--kernel", kernel, timeout=900)
    saved, = stored_names() - before
    template_id = json.loads(ctl_ok("template", "show", template(kernel), "--json=short"))[0]["Id"]
    where = f"/var/lib/cubed/templates/{template_id}"
    sizes = {name: os.stat(f"{where}/{name}").st_blocks * 512 for name in os.listdir(where)}
    sizes |= {f"saved {name}": size for name, size in stored_bytes(saved).items()}
    return {name: size // 1024 for name, size in sorted(sizes.items())}


def measure(arguments):
    result = {k: {"boots": []} for k in KERNELS}
    for k in KERNELS:
        result[k]["stored_kib"] = build(k, arguments.rootfs)
    for _ in range(arguments.rounds):
        for k in KERNELS:
            result[k]["boots"].append(boot(k))
    result["ratios"] = [b["seconds"] / a["seconds"] for a, b in zip(*(result[k]["boots"] for k in KERNELS))]
    result["boot_ratio"] = statistics.median(result["ratios"])
    for k, pages in idle_and_first_exec(KERNELS, arguments.idle).items():
        result[k].update(pages)
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rootfs", required=True)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--idle", type=int, default=60, metavar="SECONDS")
    p.add_argument("--json", metavar="FILE")
    arguments = p.parse_args()
    try:
        result = {"load": os.getloadavg()[0], **measure(arguments)}
    finally:
        for k in KERNELS:
            ctl("template", "rm", template(k))
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            f.write(text)


if __name__ == "__main__":
    main()
