# SPDX-License-Identifier: Apache-2.0
"""What the bench makes of the kernel's texts and of its own numbers. Runs anywhere."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import figures  # noqa: E402
import smaps  # noqa: E402


def mapping(head, rss, anonymous, flags, private_dirty=0):
    return (f"{head}\nRss:{rss:16} kB\nPrivate_Dirty:{private_dirty:6} kB\nAnonymous:{anonymous:10} kB\nSwap:{0:15} kB\n"
            f"VmFlags: {flags}\n")


LAYER = "7f0000000000-7f0000100000 rw-p 00002000 08:01 77   /var/lib/cubed/snapshots/abc/memory"
ANONYMOUS = "7f0000100000-7f0004000000 rw-p 00000000 00:00 0 "
CODE = "560000000000-560000010000 r-xp 00000000 08:01 12    /usr/lib/cubed/cube-vmm"
HEAP = "560000020000-560000050000 rw-p 00000000 00:00 0     [heap]"
VDSO = "7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0     [vdso]"


def test_a_guests_memory_is_told_from_the_vmms():
    m = smaps.parse(mapping(LAYER, 100, 40, "rd wr mr mw me ac dd nh") + mapping(ANONYMOUS, 12, 12, "rd wr dd") +
                    mapping(CODE, 64, 0, "rd ex mr") + mapping(HEAP, 160, 160, "rd wr"))
    assert (m.guest_copied, m.guest_shared, m.guest_zeroed, m.guest_private) == (40, 60, 12, 52)
    assert (m.own_private, m.own_shared) == (160, 64)
    assert m.own == {"[heap]": 160}
    assert m.mappings == 4


def test_what_the_kernel_maps_is_not_the_guests():
    assert smaps.parse(mapping(VDSO, 8, 0, "rd ex mr mw me de dd")).guest_shared == 0


def test_pages_of_a_file_are_nobodys_own_though_they_be_dirty():
    assert smaps.parse(mapping(CODE, 64, 4, "rd ex", private_dirty=64)).own_private == 4


def test_a_text_that_is_no_smaps_is_refused():
    with pytest.raises(IndexError):
        smaps.parse("Rss: 4 kB\n")


@pytest.mark.parametrize("values, share, expected", [
    ([7], 50, 7), ([7], 99, 7), ([3, 1, 2], 50, 2), ([4, 1, 3, 2], 50, 2), (list(range(1, 101)), 99, 99),
    (list(range(1, 11)), 99, 10)])
def test_a_percentile_is_one_of_the_values(values, share, expected):
    assert figures.percentile(values, share) == expected


def test_a_table_has_its_columns_beneath_each_other():
    assert figures.table(["what", "n"], [["one", 1], ["some", 12.34], ["none", None]]).splitlines() == [
        "what     n", "----  ----", "one      1", "some  12.3", "none     -"]
