# SPDX-License-Identifier: Apache-2.0
"""The ordered steps of a build, and templates on other templates."""

import json
import pathlib

import pytest

import cubetest
from cubetest import ctl, ctl_ok, wait_for
from conftest import PAYLOAD
from templates import stored_at_rest

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
        wait_for("the build", lambda: self.get("State") != "running", timeout=300)
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


def template_of(job):
    return job.get("Template")


def rebuilt(name, source, *steps):
    """How many steps were taken from an earlier build, and which were run."""
    job = derive(name, source, *steps)
    assert job.get("State") == "done", job.log + job.get("Error")
    return int(job.get("CachedSteps")), [line for line in job.log.splitlines() if line.startswith("[step")], job


def test_what_has_not_changed_is_there_at_once(base, clean):
    steps = ("RUN", "put-sector vdb 11 one"), ("USER", "app", "true"), ("RUN", "who-and-where")
    cached, ran, first = rebuilt("again", base, *steps)
    assert (cached, len(ran)) == (0, 3)
    cached, ran, again = rebuilt("again", base, *steps)
    assert (cached, ran, again.get("BuildStep")) == (3, [], "4")
    assert template_of(again) == template_of(first) and "nothing has changed" in again.log
    # under another name it is one of its own, of the same steps: to remove it takes the other name from nobody
    cached, ran, other = rebuilt("once-more", base, *steps)
    assert (cached, ran) == (3, []) and template_of(other) != template_of(first)
    ctl_ok("template", "rm", "once-more")
    assert ctl_ok("template", "show", "again", "--value", "-p", "Id").strip() == template_of(first)
    ctl_ok("template", "rm", "again")


def test_a_changed_last_step_begins_where_the_others_ended(base):
    same = ("RUN", "put-sector vdb 11 one"), ("USER", "app", "true"), ("WORKDIR", "/srv/app")
    rebuilt("stepped", base, *same, ("RUN", "put-sector vdb 12 two"))
    cached, ran, job = rebuilt("stepped", base, *same, ("RUN", "put-sector vdb 13 three"), ("RUN", "who-and-where"))
    assert cached == 3 and ran == ["[step 4 of 5 (RUN)]", "[step 5 of 5 (RUN)]"]
    # with the state that these came to, and all that they had written, and nothing of what was changed
    assert "app /srv/app" in job.log.splitlines()
    i = ctl_ok("create", "template:stepped").strip()
    assert "one" in ctl_ok("exec", i, "sector", "vdb", "11") and "three" in ctl_ok("exec", i, "sector", "vdb", "13")
    assert "below" in ctl_ok("exec", i, "sector", "vdb", "9") and "two" not in ctl_ok("exec", i, "sector", "vdb", "12")
    ctl_ok("kill", i)
    ctl_ok("template", "rm", "stepped")


def test_what_a_build_that_failed_has_done_is_not_done_again(base, clean):
    job = derive("failing", base, ("RUN", "put-sector vdb 11 before"), ("RUN", "exit 3"))
    assert (job.get("State"), job.get("CachedSteps")) == ("failed", "0")
    cached, ran, job = rebuilt("failing", base, ("RUN", "put-sector vdb 11 before"), ("RUN", "true"))
    assert cached == 1 and ran == ["[step 2 of 2 (RUN)]"]
    ctl_ok("template", "rm", "failing")


def test_it_survives_the_death_of_cubed_amid_a_build(base, clean_again):
    words = [w for kind, *args in (("RUN", "put-sector vdb 11 killed"), ("RUN", "sleep 1000")) for w in (kind, str(len(args)), *args)]
    out = cubetest.run("busctl", "call", "org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager", "DeriveTemplate",
                       "ssa{sv}", "killed", base, "1", "steps", "a(sas)", "2", *words, check=True).stdout.decode().split('"')[1]
    log = JOBS / f"{out.rsplit('/', 1)[1]}.log"
    wait_for("the second step", lambda: "[step 2" in log.read_text())
    # what is being built is no garbage
    assert not [g for g in ctl_ok("gc", "--dry-run").splitlines() if g.startswith("leftover")]
    cubetest.run("systemctl", "kill", "--signal=KILL", "cubed.service", check=True)
    wait_for("cubed", lambda: ctl("list").returncode == 0)
    store = pathlib.Path("/var/lib/cubed/templates")
    wait_for("nothing to be left of the build", lambda: not list(store.glob(".build-*")))
    cached, ran, job = rebuilt("killed", base, ("RUN", "put-sector vdb 11 killed"), ("RUN", "true"))
    assert cached == 1 and ran == ["[step 2 of 2 (RUN)]"]
    i = ctl_ok("create", "template:killed").strip()
    assert "killed" in ctl_ok("exec", i, "sector", "vdb", "11")
    ctl_ok("kill", i)
    ctl_ok("template", "rm", "killed")


def disk_used():
    """By the files of the store, each counted once."""
    seen = {}
    for path in pathlib.Path("/var/lib/cubed").rglob("*"):
        st = path.lstat()
        seen[st.st_ino] = st.st_blocks * 512
    return sum(seen.values())


def test_gc_frees_what_it_says(base):
    ctl_ok("gc")
    rebuilt("going", base, ("RUN", "put-sector vdb 11 one"), ("RUN", "put-sector vdb 12 two"))
    rebuilt("going", base, ("RUN", "put-sector vdb 11 one"), ("RUN", "put-sector vdb 12 three"))
    stored_at_rest()
    rows = json.loads(ctl_ok("gc", "--dry-run", "--json=short"))
    assert {"template", "layer"} <= {row["kind"] for row in rows}
    before, promised = disk_used(), sum(row["size"] for row in rows)
    assert json.loads(ctl_ok("gc", "--json=short")) == rows
    stored_at_rest()
    # but for directories and descriptions, a block or two each
    assert abs(before - disk_used() - promised) <= 16 * 4096, (before, disk_used(), rows)
    assert ctl_ok("gc", "--dry-run", "--json=short").strip() == "[]"
    # what is left still is what the next build begins with
    assert rebuilt("going", base, ("RUN", "put-sector vdb 11 one"), ("RUN", "put-sector vdb 12 four"))[0] == 1
    ctl_ok("template", "rm", "going")
