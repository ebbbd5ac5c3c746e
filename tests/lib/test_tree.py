# SPDX-License-Identifier: Apache-2.0
"""The source tree itself: scripts pass shellcheck, nothing includes what it must not, merges are whole, and each test is run."""

import pathlib
import re
import subprocess
import sys

import pytest

TREE = pathlib.Path(__file__).parents[2]


def scripts():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=TREE, check=True, stdout=subprocess.PIPE).stdout.decode()
    for name in sorted(filter(None, listed.split("\0"))):
        path = TREE / name
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                first = file.readline(100)
            if first.startswith((b"#!/bin/sh", b"#!/bin/bash", b"# shellcheck shell=")):
                yield name


@pytest.mark.parametrize("script", scripts())
def test_shellcheck(script):
    result = subprocess.run(["shellcheck", "--color=never", script], cwd=TREE, stdout=subprocess.PIPE)
    assert result.returncode == 0, result.stdout.decode()


def test_layers():
    result = subprocess.run([sys.executable, TREE / "tests/lib/check-layers"], stdout=subprocess.PIPE)
    assert result.returncode == 0, result.stdout.decode()


def test_nothing_is_left_of_a_merge():
    result = subprocess.run(["git", "grep", "-nE", "^(<<<<<<<|>>>>>>>)( |$)"], cwd=TREE, stdout=subprocess.PIPE)
    assert (result.returncode, result.stdout) == (1, b"")


def test_claims_of_security_name_tests_that_are_there():
    claims = re.findall(r"`(tests/[^`]+)`", (TREE / "SECURITY.md").read_text())
    assert len(claims) > 50
    for claim in claims:
        name, _, function = claim.partition("::")
        text = (TREE / name).read_text()
        assert not function or f"def {function}(" in text, claim


@pytest.mark.parametrize("folder", ["tests/dbus", "tests/gateway"])
def test_each_file_of_tests_is_run(folder):
    """By meson, or by dev/test."""
    listed = (TREE / folder / "meson.build").read_text()
    named = (TREE / "dev/test").read_text()
    for path in (TREE / folder).glob("test_*.py"):
        assert f"'{path.stem.removeprefix('test_')}'" in listed or f"{folder}/{path.name}" in named, path.name
