# SPDX-License-Identifier: Apache-2.0
"""System tests: Linux guests on real KVM, in the lab."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cubetest  # noqa: E402
from labhost import PLACE, build_recipe, build_template, e2b_sdks, prepare  # noqa: E402
from linuxguest import LinuxGuest, life, put_all, start_checker  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def host():
    prepare()
    build_template("python612", "--kernel", f"{PLACE}/kernel-trixie/vmlinuz", "--modules", f"{PLACE}/kernel-trixie/modules")


@pytest.fixture(scope="session")
def interpreter_template(host):
    """Of the code interpreter, which takes many minutes here."""
    build_recipe("code-interpreter")
    yield "code-interpreter"
    cubetest.ctl("template", "rm", "code-interpreter")


@pytest.fixture(scope="session")
def sdks():
    with e2b_sdks() as directory:
        yield directory


@pytest.fixture(scope="session")
def shared():
    """One sandbox for all tests that leave it as they found it: a boot costs most of a minute here. Nobody knows how long all
    of them take."""
    with cubetest.created("--memory", "512M", "--timeout", "infinity") as sandbox_id:
        yield sandbox_id


@pytest.fixture(scope="session")
def checkers(host):
    """checkers(CPUS): what sandboxes with a checker in them start from. It outlives the one that it was taken of."""
    made = {}

    def make(cpus=1):
        if cpus not in made:
            with cubetest.created("--cpus", cpus, "--timeout", "1h") as sandbox_id:
                start_checker(sandbox_id)
                found = put_all(sandbox_id, "first")
                assert found["cpus"] == cpus
                made[cpus] = LinuxGuest(cubetest.snapshot(sandbox_id), life(found))
        return made[cpus]

    yield make
    for guest in made.values():
        cubetest.remove_snapshot(guest.base)


@pytest.fixture(scope="session")
def met():
    """Those cubeds, by pid, that have had a sandbox."""
    return set()


@pytest.fixture
def clean(met):
    """Nothing may be left of what the test made. A first sandbox gives a cubed what it keeps: its clocks."""
    if cubetest.cubed_pid() not in met:
        cubetest.ctl_ok("kill", cubetest.ctl_ok("create").strip())
        met.add(cubetest.cubed_pid())
    before = cubetest.at_rest()
    yield
    cubetest.nothing_left_since(before)
