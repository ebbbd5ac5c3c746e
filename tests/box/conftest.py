# SPDX-License-Identifier: Apache-2.0
"""Box tests: the whole control path with the payload guest, under a real systemd, at native speed.

The payload guest (tests/payload/) is a tiny agent. What it does besides is chosen by its command
line, so each behaviour is a template of its own, made on first use.
"""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import cubetest  # noqa: E402

PAYLOAD = os.path.join(os.environ["CUBE_TEST_BUILD"], "tests", "payload", "payload.elf")


@pytest.fixture(scope="session", autouse=True)
def host():
    os.makedirs("/etc/cubed/cubed.conf.d", exist_ok=True)
    with open("/etc/cubed/cubed.conf.d/50-test.conf", "w", encoding="utf-8") as f:
        f.write("[Sandbox]\nDefaultTemplate=payload\nDefaultMemory=64M\nDefaultDisk=64M\nBootTimeout=20s\n"
                "StopTimeout=10s\n[Limits]\nMaxSandboxesPerUser=5\n")
    cubetest.run("systemctl", "restart", "cubed.service", check=True)
    cubetest.wait_for("cubed to know its KVM", lambda: b"still being tried" not in cubetest.ctl("check").stdout)


@pytest.fixture(scope="session")
def template(host, tmp_path_factory):
    """template("panic"): the name of a template whose payload was told so on its command line."""
    root = cubetest.make_root(tmp_path_factory.mktemp("root"))
    made = {}

    def make(words=""):
        name = "payload" + ("-" + words.replace(" ", "-").replace("=", "-") if words else "")
        if name not in made:
            cubetest.ctl_ok("template", "build", name, "--from", root, "--kernel", PAYLOAD, "--memory", "64M",
                            "--disk", "64M", "--no-warm", *(["--cmdline", words] if words else []))
            made[name] = True
        return name

    make()
    return make


@pytest.fixture
def clean(template):
    """Nothing may be left of what the test made. A first sandbox has given this cubed what it keeps: its clocks."""
    cubetest.ctl_ok("kill", cubetest.ctl_ok("create").strip())
    before = cubetest.at_rest()
    yield
    cubetest.nothing_left_since(before)


@pytest.fixture
def clean_again(template):
    """As clean, but the descriptors of another cubed process can't be compared."""
    before = cubetest.at_rest()
    yield
    cubetest.nothing_left_since(before, but=["fds"])


@pytest.fixture(scope="module")
def shared(template):
    """One for all tests of a file that leave it as they found it."""
    with cubetest.created("--timeout", "1h") as sandbox_id:
        yield sandbox_id
