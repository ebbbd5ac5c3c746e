# SPDX-License-Identifier: Apache-2.0
"""The memory of a VMM by what it is for, from the text of /proc/PID/smaps.

The guest's RAM, and nothing else that a VMM can write to, is kept out of core dumps: its mappings are those
with the flag "dd". Private is what is anonymous: Private_Dirty counts pages of a file that was written lately as well.
"""

import dataclasses
import re

HEAD = re.compile(r"[0-9a-f]+-[0-9a-f]+ (....) [0-9a-f]+ [0-9a-f:]+ (\d+) *(.*)")


@dataclasses.dataclass
class Memory:
    """In KiB."""
    guest_copied: int = 0  # private copies of pages of a memory file
    guest_zeroed: int = 0  # pages of anonymous memory
    guest_shared: int = 0  # pages of a memory file, as all see them
    own_private: int = 0
    own_shared: int = 0
    mappings: int = 0
    own: dict = dataclasses.field(default_factory=dict)  # private, by the mapping's name

    @property
    def guest_private(self):
        return self.guest_copied + self.guest_zeroed


def mappings(text):
    """(name, is a file, {field: KiB}, flags) of each."""
    found = []
    for line in text.splitlines():
        head = HEAD.fullmatch(line)
        if head:
            found.append((head[3] or "anonymous", head[2] != "0", {}, set()))
            continue
        key, _, value = line.partition(":")
        if key == "VmFlags":
            found[-1][3].update(value.split())
        elif value.endswith(" kB"):
            found[-1][2][key] = int(value.split()[0])
    return found


def parse(text):
    m = Memory()
    for name, is_file, field, flags in mappings(text):
        m.mappings += 1
        private, shared = field["Anonymous"] + field.get("Swap", 0), field["Rss"] - field["Anonymous"]
        if "dd" in flags and not name.startswith("[v"):
            if is_file:
                m.guest_copied += private
                m.guest_shared += shared
            else:
                m.guest_zeroed += private
        else:
            m.own_private += private
            m.own_shared += shared
            if private:
                m.own[name] = m.own.get(name, 0) + private
    return m
