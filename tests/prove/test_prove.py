# SPDX-License-Identifier: Apache-2.0
"""Each proof of tests/prove holds, and does not hold for its mutants. `dev/prove` runs them one at a time."""

import pathlib
import subprocess

import pytest

PROVE = pathlib.Path(__file__).parents[2] / "dev/prove"


def names(*options):
    return subprocess.run([PROVE, *options, "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def prove(name):
    result = subprocess.run([PROVE, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", names())
def test_holds(name):
    prove(name)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", names("--mutants"))
def test_a_mutant_is_caught(name):
    prove(name)
