# SPDX-License-Identifier: Apache-2.0
"""Prints the ten organisations with most address blocks in IEEE's list, and on what machine it ran."""

import collections
import csv
import os
import sys

with open(sys.argv[1], encoding="utf-8", newline="") as f:
    blocks = collections.Counter(row["Organization Name"] for row in csv.DictReader(f))

for name, number in sorted(blocks.items(), key=lambda item: (-item[1], item[0]))[:10]:
    print(f"{number:6}  {name}")

memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
print(f"kernel: {os.uname().release}")
print(f"guest memory: {memory} MiB")
