# SPDX-License-Identifier: Apache-2.0
"""The steps of a build in a Linux guest, on a template whose own guest has left something on its disk."""

import pathlib

import pytest

import cubetest
from cubetest import ctl, ctl_ok, wait_for

JOBS = pathlib.Path("/run/cubed/jobs")
BUS = ("org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager")


@pytest.fixture(scope="module")
def names():
    """Two templates, the second on the first, to be removed."""
    yield "steps-below", "steps-above"
    for name in ("steps-above", "steps-below"):
        ctl("template", "rm", name)


# As a client would send them, of COPY steps.
MAKE_ARCHIVES = r"""
set -e
mkdir -p /.cube-build context/app/sub
cd context
echo "print('copied')" >app/main.py
printf '#!/bin/sh\necho tool\n' >app/sub/tool
echo one >one.txt
tar -czf /.cube-build/1 app
tar -cf /.cube-build/2 one.txt
"""


def property_of(job, name):
    out = cubetest.run("busctl", "get-property", "org.cubed.Cube1", job, "org.cubed.Cube1.Job", name, check=True).stdout
    return out.decode().split(" ", 1)[1].strip().strip('"')


def derive(name, source, steps, *options):
    words = [w for kind, *args in steps for w in (kind, str(len(args)), *args)]
    out = cubetest.run("busctl", "call", *BUS, "DeriveTemplate", "ssa{sv}", name, source, str(1 + len(options) // 3), *options,
                       "steps", "a(sas)", str(len(steps)), *words, check=True).stdout
    job = out.decode().split('"')[1]
    wait_for("the build", lambda: property_of(job, "State") != "running", timeout=900, interval=1)
    end = " ".join(filter(None, (property_of(job, "State"), property_of(job, "Error"))))
    return end, (JOBS / f"{job.rsplit('/', 1)[1]}.log").read_text()


def build_with_files(name, tmp_path):
    """By cubectl, with files of this machine."""
    (tmp_path / "app/sub").mkdir(parents=True)
    (tmp_path / "app/sub/file").write_text("of a directory\n")
    (tmp_path / "one.txt").write_text("one\n")
    (tmp_path / "link").symlink_to("one.txt")
    built = ctl("template", "build", name, "--from", "template:python", "--step", "RUN echo below >/opt/below; echo root >/root/marker",
                "--step", f"COPY --chown=daemon --chmod=0750 {tmp_path}/app /opt/app", "--step", "WORKDIR /opt",
                "--step", f"COPY {tmp_path}/link data/", "--step", "WORKDIR /root",
                "--step", "RUN cd /opt; cat app/sub/file data/link; stat -c '%U:%G %a %n' app/sub/file data/link; ls -A /.cube-build",
                timeout=900)
    return built.returncode, "".join(line + "\n" for line in built.stderr.decode().splitlines() if "%]" not in line)


def test_steps_on_a_template_on_another_one(names, tmp_path):
    below, above = names
    status, log = build_with_files(below, tmp_path)
    assert status == 0, log
    assert "of a directory\none\ndaemon:daemon 750 app/sub/file\nroot:root 644 data/link\n[step 7 of 7 (RUN)]\n" in log, log
    end, log = derive(above, below, [
        ("RUN", "cat /opt/below; id -un; pwd"),
        ("RUN", MAKE_ARCHIVES),
        ("USER", "app", "true"),
        ("WORKDIR", "/srv/app"),
        ("ENV", "GREETING", "hello $HOME", "PATH", "/srv/app/sub:$PATH"),
        ("COPY", "/.cube-build/1", "app", "/srv/app", "", "0755"),
        ("COPY", "/.cube-build/2", "one.txt", "data/"),
        ("RUN", 'id -un; pwd; echo "$GREETING"; python3 main.py; stat -c "%U %a %n" main.py data/one.txt'),
        ("RUN", "id -un >/srv/app/by-root", "root"),
        ("RUN", "rm -r /.cube-build", "root"),
    ], "start", "s", "exec python3 -m http.server 8000", "ready", "s", "bash -c 'exec 3<>/dev/tcp/127.0.0.1/8000'",
        "ready-timeout", "t", str(600 * 1000 * 1000))
    assert end == "done", log
    assert "below\nroot\n/root\n" in log
    assert "app\n/srv/app\nhello /root\ncopied\napp 755 main.py\napp 644 data/one.txt\n" in log, log

    i = ctl_ok("create", f"template:{above}").strip()
    try:
        out = ctl_ok("exec", i, "--", "sh", "-c", "id -un; pwd; cat /opt/below by-root; sub/tool; ls -a /; "
                     "python3 -c 'import urllib.request; urllib.request.urlopen(\"http://127.0.0.1:8000/\")' && echo serves")
        assert out.startswith("app\n/srv/app\nbelow\nroot\ntool\n") and out.endswith("serves\n") and ".cube-build" not in out, out
    finally:
        ctl_ok("kill", i)


def test_a_step_that_fails(names):
    end, log = derive("steps-failed", "python", [("RUN", "true"), ("RUN", "echo to stderr >&2; exit 7")])
    assert end.startswith("failed Template steps-failed:latest could not be built: warm: step 2 of 2 (RUN) ended with exit status 7"), end
    assert "to stderr\n" in log and "step 2 of 2 (RUN) ended with exit status 7" in log, log
