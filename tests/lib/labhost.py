# SPDX-License-Identifier: Apache-2.0
"""The lab as a host of Linux guests. dev/test has handed in what templates are made of."""

import contextlib
import os

import cubetest

PLACE = "/srv/cubed"


def build_template(name, *options):
    if cubetest.ctl("template", "show", name).returncode != 0:
        cubetest.ctl_ok("template", "build", name, "--from", f"{PLACE}/python.squashfs", *options, timeout=1500)


SHELL = """
mkdir "$0/bin" "$0/etc"
cp --parents -L $(ldd /bin/dash /bin/sleep | grep -o '/lib[^ ]*' | sort -u) "$0"
cp -L /bin/sleep "$0/bin"
cp -L /bin/dash "$0/bin/sh"
echo root:x:0:0::/:/bin/sh >"$0/etc/passwd"
"""


def make_shell(directory):
    """A root file system of a shell, sleep, and what they are linked with: templates of it are made quickly."""
    cubetest.run("sh", "-ec", SHELL, directory, check=True)
    return directory


def build_recipe(recipe, name=None, *options):
    """Of guest/recipes, with its own options. An emulated machine takes its time."""
    name = name or recipe
    if cubetest.ctl("template", "show", name).returncode == 0:
        return
    with open(f"{PLACE}/{recipe}.options", encoding="utf-8") as f:
        own = f.read().split("\0")[:-1]
    if "--ready-timeout" in own:
        own[own.index("--ready-timeout") + 1] = "40min"
    cubetest.ctl_ok("template", "build", name, "--from", f"{PLACE}/{recipe}.squashfs", *own, *options, timeout=3000)


@contextlib.contextmanager
def e2b_sdks():
    """The directory of E2B's SDKs, which dev/test hands in as one file."""
    directory = f"{PLACE}/e2b-sdks"
    os.makedirs(directory, exist_ok=True)
    cubetest.run("mount", "-o", "loop,ro", f"{directory}.squashfs", directory, check=True)
    try:
        yield directory
    finally:
        cubetest.run("umount", directory, check=True)


@contextlib.contextmanager
def ingress(*options):
    """haproxy and the gateway, as a user sets them up. Gives a function for what a client's environment has by the options of
    cubectl ingress env."""
    cubetest.ctl_ok("--quiet", "ingress", "setup", *options)

    def environment(*mode):
        lines = cubetest.ctl_ok("ingress", "env", *mode).splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)
    try:
        yield environment
    finally:
        remove_ingress()


def remove_ingress():
    cubetest.ctl_ok("ingress", "remove")
    cubetest.run("systemctl", "disable", "--quiet", "--now", "cube-gateway.socket", "cube-gateway.service", check=True)


def prepare():
    """KVM that is missing here is a failure, never a skip. A boot takes its time in an emulated machine, ten minutes of it when
    that gets a tenth of a CPU."""
    assert os.path.exists("/dev/kvm"), "/dev/kvm is missing in the lab"
    os.makedirs("/etc/cubed/cubed.conf.d", exist_ok=True)
    with open("/etc/cubed/cubed.conf.d/50-test.conf", "w", encoding="utf-8") as f:
        f.write("[Sandbox]\nBootTimeout=9min\nStopTimeout=5min\nDefaultTimeout=2h\n")
    cubetest.run("systemctl", "restart", "cubed.service", check=True)
    cubetest.wait_for("its network", lambda: cubetest.manager_prop("Network4"))
    build_template("python")
