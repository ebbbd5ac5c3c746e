# SPDX-License-Identifier: Apache-2.0
"""Names of templates, and what is freed of those that have none."""

import json
import os

import cubetest
from conftest import PAYLOAD

STORE = "/var/lib/cubed/templates"


def build(root, name, *options):
    return cubetest.ctl_ok("template", "build", name, "--rootfs", root, "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M",
                           "--no-warm", *options).strip()


def collect(*options):
    return {(g["kind"], g["name"]): g["size"] for g in json.loads(cubetest.ctl_ok("gc", "--json=short", *options))}


def test_what_has_no_name_goes(template, tmp_path):
    """Built three times: the first has an alias, the second a sandbox, of the third the name; a fourth moves that."""
    template()
    root = cubetest.make_root(tmp_path)
    cubetest.ctl_ok("gc")
    aliased = build(root, "again", "--alias", "first")
    used = build(root, "again")
    free = build(root, "again")
    named = build(root, "again")
    with cubetest.created("--template", used):
        assert {k for k in collect("--dry-run") if k[0] == "template"} == {("template", free)}
        freed = collect()
        assert freed[("template", free)] > 0 and not os.path.exists(f"{STORE}/{free}")
        # nobody has its files any more, and a new cubed knows of nothing that is gone
        cubetest.run("systemctl", "restart", "cubed.service", check=True)
        assert collect("--dry-run") == {}
        for i in (aliased, used, named):
            assert os.path.exists(f"{STORE}/{i}")
        cubetest.ctl_ok("template", "alias", "--remove", "first")
        assert {k[1] for k in collect() if k[0] == "template"} == {aliased}
    assert {k[1] for k in collect() if k[0] == "template"} == {used}
    assert cubetest.ctl_ok("template", "show", "again", "-p", "Id", "--value").strip() == named
    cubetest.ctl_ok("template", "rm", "again")
