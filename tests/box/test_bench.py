# SPDX-License-Identifier: Apache-2.0
"""The bench runs and finds something to count in each operation. No figure is judged here."""

import json
import os
import sys

import cubetest
from conftest import HERE, PAYLOAD

OPERATIONS = ["create booted", "create restored", "exec", "snapshot", "snapshot, 10 MiB dirty", "rollback", "fork 1", "fork 5",
              "pause", "resume", "kill"]


def test_what_rest_adds_to_a_create_is_measured(clean, tmp_path):
    result = tmp_path / "result.json"
    bare = os.path.join(os.environ["CUBE_TEST_BUILD"], "tests", "bench", "bare-http")
    text = cubetest.run(sys.executable, os.path.join(HERE, "..", "bench", "rest.py"), "--payload", PAYLOAD, "--bare", bare, "--rounds", 2,
                        "--json", result, check=True).stdout.decode()
    measured = json.loads(result.read_text())
    assert {name: len(values) for name, values in measured["msec"].items()} == {
        "D-Bus create": 2, "D-Bus create, served": 2, "REST create": 2, "empty D-Bus call": 2, "bare reply": 20}
    assert all(msec > 0 for values in measured["msec"].values() for msec in values)
    assert "REST adds to a D-Bus create, served: " in text


def test_one_round_measures_each_operation(clean, tmp_path):
    result = tmp_path / "result.json"
    text = cubetest.run(sys.executable, os.path.join(HERE, "..", "bench", "bench.py"), "--payload", PAYLOAD, "--rounds", 1,
                        "--count-rounds", 1, "--pause-rounds", 1, "--json", result, check=True).stdout.decode()
    measured = json.loads(result.read_text())
    assert list(measured["operations"]) == OPERATIONS
    assert measured["failures"] == []
    for name, values in measured["operations"].items():
        assert values["msec"][0] > 0 and values["cubed_syscalls"][0] > 0, name
        assert name in text
    assert measured["operations"]["snapshot, 10 MiB dirty"]["memory_kib"][0] >= 10 << 10
    assert measured["operations"]["create restored"]["vmm_ioctls"][0] > 0
    assert measured["idle"]["own_private"] > 0
    assert measured["pauses_usec"]["snapshot, 10 MiB dirty, by cubed's clock"][0] > 0
