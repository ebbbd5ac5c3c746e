# SPDX-License-Identifier: Apache-2.0
"""The steps of a build in a Linux guest, on another template."""

import pathlib

import pytest

import cubetest
from cubetest import ctl, wait_for

JOBS = pathlib.Path("/run/cubed/jobs")
BUS = ("org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager")


@pytest.fixture
def derived():
    yield "steps-done"
    ctl("template", "rm", "steps-done")


def property_of(job, name):
    out = cubetest.run("busctl", "get-property", "org.cubed.Cube1", job, "org.cubed.Cube1.Job", name, check=True).stdout
    return out.decode().split(" ", 1)[1].strip().strip('"')


def derive(name, source, steps, *options):
    words = [w for kind, *args in steps for w in (kind, str(len(args)), *args)]
    out = cubetest.run("busctl", "call", *BUS, "DeriveTemplate", "ssa{sv}", name, source, str(1 + len(options) // 3), *options,
                       "steps", "a(sas)", str(len(steps)), *words, check=True).stdout
    job = out.decode().split('"')[1]
    wait_for("the build", lambda: property_of(job, "State") != "running", timeout=900, interval=1)
    return property_of(job, "State"), (JOBS / f"{job.rsplit('/', 1)[1]}.log").read_text()


def test_steps_on_another_template(derived):
    state, log = derive(derived, "python", [("RUN", "echo below >/opt/below; echo root >/root/marker")])
    assert state == "done", log


def test_a_step_that_fails():
    state, log = derive("steps-failed", "python", [("RUN", "true"), ("RUN", "echo to stderr >&2; exit 7")])
    assert state == "failed" and "to stderr\n" in log and "step 2 of 2 (RUN) ended with exit status 7" in log, log
