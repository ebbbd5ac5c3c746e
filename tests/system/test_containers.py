# SPDX-License-Identifier: Apache-2.0
"""Containers in a sandbox: Debian's podman, from the template of its recipe, with either kernel. It takes an image of its
own, makes layers on it and has the kernel keep limits."""

import os

import pytest

from cubetest import created, created_from, ctl, ctl_ok, remove_snapshot, snapshot
from labhost import build_recipe

pytestmark = [pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="its templates take minutes here: --long"),
              pytest.mark.timeout(1800)]

# An image that is a shell, two programs, and what they are linked with.
IMPORT = """
mkdir -p /root/image/bin
cp --parents -L $(ldd /bin/dash /bin/sleep /bin/cat | grep -o '/lib[^ ]*' | sort -u) /root/image
cp -L /bin/sleep /bin/cat /root/image/bin
cp -L /bin/dash /root/image/bin/sh
tar -C /root/image -c . | podman import --quiet - box
"""


@pytest.fixture(scope="module", params=["stock", "small"])
def kernel(request):
    return request.param


@pytest.fixture(scope="module")
def sandbox(host, kernel):
    name = f"containers-{kernel}"
    build_recipe("containers", name, "--kernel", kernel)
    with created("--template", name, "--timeout", "2h") as sandbox_id:
        sh(sandbox_id, IMPORT)
        yield sandbox_id
    ctl("template", "rm", name)


def sh(sandbox_id, script):
    return ctl_ok("exec", sandbox_id, "--", "sh", "-ec", script, timeout=900)


def podman(sandbox_id, *argv):
    return ctl_ok("exec", sandbox_id, "--", "podman", *argv, timeout=900)


def test_a_container_has_namespaces_files_and_a_limit_of_its_own(sandbox):
    out = podman(sandbox, "run", "--rm", "--network", "none", "--memory", "64m", "--hostname", "inner", "box", "sh", "-c",
                 "read limit </sys/fs/cgroup/memory.max; read name </proc/sys/kernel/hostname; echo $$ $limit $name; "
                 "test -e /root/image || echo alone")
    assert out == f"1 {64 << 20} inner\nalone\n"


def test_it_meets_its_limit_and_the_sandbox_goes_on(sandbox):
    result = ctl("exec", sandbox, "--", "podman", "run", "--rm", "--network", "none", "--memory", "32m", "box", "sh", "-c",
                 "x=xxxxxxxx; while :; do x=$x$x; done", timeout=900)
    assert result.returncode == 137
    assert sh(sandbox, "cat /proc/self/comm") == "cat\n"


def test_layers(sandbox):
    podman(sandbox, "run", "--name", "first", "--network", "host", "box", "sh", "-c", "echo kept >/file")
    podman(sandbox, "commit", "--quiet", "first", "second")
    assert podman(sandbox, "run", "--rm", "--network", "host", "second", "sh", "-c", "read x </file; echo $x") == "kept\n"


def test_one_that_runs_goes_on_in_a_copy(sandbox):
    podman(sandbox, "run", "--detach", "--name", "running", "--network", "host", "box", "sh", "-c",
           "echo kept >/dev/shm/state; exec sleep infinity")
    base = snapshot(sandbox)
    try:
        with created_from(base) as copy:
            assert podman(copy, "exec", "running", "cat", "/dev/shm/state") == "kept\n"
    finally:
        remove_snapshot(base)
        podman(sandbox, "rm", "--force", "--time", "0", "running")


def test_a_network_of_its_own(sandbox, kernel):
    """With addresses and filters, for which the small kernel has everything, and the stock one none of its modules."""
    argv = ["run", "--rm", "box", "sh", "-c", "while read line; do echo $line; done </proc/net/dev"]
    if kernel == "stock":
        assert ctl("exec", sandbox, "--", "podman", *argv, timeout=900).returncode == 126
    else:
        assert "\neth0: " in podman(sandbox, *argv)
