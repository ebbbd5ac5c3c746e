# SPDX-License-Identifier: Apache-2.0
"""The ordered steps of a build, and templates on other templates."""

import pathlib

import pytest

import cubetest
from cubetest import ctl, ctl_ok, wait_for
from conftest import PAYLOAD

JOBS = pathlib.Path("/run/cubed/jobs")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Whose guest wrote to its disk before it was saved."""
    root = cubetest.make_root(tmp_path_factory.mktemp("root"))
    ctl_ok("template", "build", "below", "--from", str(root), "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M",
           "--setup", "put-sector vdb 9 below")
    yield "below"
    for name in ("above", "below"):
        ctl("template", "rm", name)


class Job:
    def __init__(self, path):
        self.path = path
        wait_for("the build", lambda: self.get("State") != "running")
        self.log = (JOBS / f"{path.rsplit('/', 1)[1]}.log").read_text()

    def get(self, name):
        out = cubetest.run("busctl", "get-property", "org.cubed.Cube1", self.path, "org.cubed.Cube1.Job", name, check=True).stdout
        return out.decode().split(" ", 1)[1].strip().strip('"')


def derive(name, source, *steps):
    words = [w for kind, *args in steps for w in (kind, str(len(args)), *args)]
    out = cubetest.run("busctl", "call", "org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager", "DeriveTemplate",
                       "ssa{sv}", name, source, "1", "steps", "a(sas)", str(len(steps)), *words, check=True).stdout
    return Job(out.decode().split('"')[1])


def inode(name, file):
    i = ctl_ok("template", "show", name, "--value", "-p", "Id").strip()
    return pathlib.Path("/var/lib/cubed/templates", i, file).stat().st_ino


def test_each_step_has_what_those_before_it_left(base):
    job = derive("above", base,
                 ("RUN", "who-and-where"), ("USER", "app", "true"), ("WORKDIR", "/srv/app"), ("WORKDIR", "data"),
                 ("RUN", "who-and-where"), ("RUN", "who-and-where", "other"), ("RUN", "who-and-where"))
    assert (job.get("State"), job.get("BuildStep")) == ("done", "8"), job.log
    assert [line for line in job.log.splitlines() if not line.startswith("[")] == [
        "root /", "app /srv/app/data", "other /srv/app/data", "app /srv/app/data"]
    assert "[step 6 of 7 (RUN)]\n" in job.log
    # And so have the programs of its sandboxes.
    i = ctl_ok("create", "template:above").strip()
    assert ctl_ok("exec", i, "who-and-where").strip() == "app /srv/app/data"
    ctl_ok("kill", i)


def test_a_template_begins_with_what_the_guest_of_the_one_below_left(base):
    job = derive("above", base, ("RUN", "sector vdb 9"), ("RUN", "put-sector vdb 10 above"))
    assert job.get("State") == "done" and "below" in job.log, job.log
    for file, same in (("vmlinux", True), ("root.img", True), ("initramfs.cpio", True), ("disk.img", False)):
        assert (inode(base, file) == inode("above", file)) == same, file
    i, j = ctl_ok("create", "template:above").strip(), ctl_ok("create", f"template:{base}").strip()
    assert "below" in ctl_ok("exec", i, "sector", "vdb", "9") and "above" in ctl_ok("exec", i, "sector", "vdb", "10")
    assert "above" not in ctl_ok("exec", j, "sector", "vdb", "10")
    ctl_ok("kill", i)
    ctl_ok("kill", j)


def test_cubectl_builds_with_steps_on_another_template(base):
    def build(*options):
        return ctl("template", "build", "above", "--from", f"template:{base}", *options)

    built = build("--step", "USER --sudo app", "--step", "WORKDIR /srv/app", "--step", "RUN who-and-where",
                  "--step", "RUN --user=other who-and-where", "--step", "RUN sector vdb 9")
    assert built.returncode == 0, built.stderr.decode()
    log = [line for line in built.stderr.decode().splitlines() if "%]" not in line]
    assert log[:6] == ["[step 1 of 5 (USER)]", "[step 2 of 5 (WORKDIR)]", "[step 3 of 5 (RUN)]", "app /srv/app",
                       "[step 4 of 5 (RUN)]", "other /srv/app"] and "below" in log[7], log
    assert ctl_ok("template", "show", "above", "--value", "-p", "Id") == built.stdout.decode()
    failed = build("--step", "RUN true", "--step", "RUN exit 3")
    assert failed.returncode == 1 and b"step 2 of 2 (RUN) ended with exit status 3" in failed.stderr
    assert b"a USER is not the name of one" in build("--step", "USER a/b").stderr


@pytest.mark.parametrize("steps, at, words", [
    ((("RUN", "true"), ("RUN", "exit 3"), ("RUN", "true")), "2", "step 2 of 3 (RUN) ended with exit status 3"),
    ((("ENV", "A", "1"),), "1", "step 1 of 1 (ENV): the shell of this image did not print the values"),
    ((("RUN", "nosuch"),), "1", "step 1 of 1 (RUN) needs a shell"),
])
def test_a_step_that_fails_fails_the_build(base, clean, steps, at, words):
    job = derive("broken", base, *steps)
    assert (job.get("State"), job.get("BuildStep")) == ("failed", at)
    assert words in job.get("Error")
    assert ctl("template", "show", "broken").returncode == 1
