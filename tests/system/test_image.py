# SPDX-License-Identifier: Apache-2.0
"""A container image becomes a template of a Linux guest, which goes to another host as a file. With --long it has 50 MB."""

import os

import pytest

from cubetest import created, ctl, ctl_ok, prop, run
from labhost import make_shell
from ociimage import Layout, layer

SIZE = 50_000_000 if os.environ.get("CUBE_LONG") == "1" else 1_000_000
CONFIG = {"Env": ["COLOUR=blue"], "WorkingDir": "/srv"}


@pytest.fixture(scope="module")
def data():
    return os.urandom(SIZE // 2).hex()


@pytest.fixture(scope="module")
def image(host, data, tmp_path_factory):
    shell = make_shell(tmp_path_factory.mktemp("image-shell"))
    layout = Layout(tmp_path_factory.mktemp("image") / "layout")
    layout.add_image([run("tar", "-C", shell, "--owner=0", "--group=0", "-c", ".", check=True).stdout,
                      layer(("f", "srv/data", data, 0o600, 0, {}), ("f", "srv/old", "", 0o644, 0, {})),
                      layer(("f", "srv/.wh.old", "", 0o644, 0, {}), ("f", "srv/su", "", 0o4755, 7, {}))], CONFIG)
    ctl_ok("template", "build", "image", "--from", f"oci:{layout.directory}:latest", timeout=900)
    yield "image"
    ctl("template", "rm", "image")


def check(template, data, tmp_path):
    """What is in a sandbox of it, and that it was not booted for it."""
    with created("--template", template) as sandbox_id:
        assert prop(sandbox_id, "Start") == "restored"
        out = ctl_ok("exec", sandbox_id, "--", "sh", "-c", "echo $COLOUR $PWD *; test -u su && echo set-user-id")
        assert out == "blue /srv data su\nset-user-id\n"
        ctl_ok("cp", f"{sandbox_id}:/srv/data", tmp_path / "data")
        assert (tmp_path / "data").read_text() == data


def test_its_files_and_its_environment_are_there(image, data, tmp_path):
    check(image, data, tmp_path)


def test_it_goes_to_another_host_as_a_file(image, data, tmp_path):
    ctl_ok("template", "export", image, tmp_path / "pack", timeout=900)
    ctl_ok("template", "import", tmp_path / "pack", "imported", timeout=900)
    try:
        check("imported", data, tmp_path)
    finally:
        ctl("template", "rm", "imported")
