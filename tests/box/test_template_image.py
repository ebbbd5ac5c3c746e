# SPDX-License-Identifier: Apache-2.0
"""A template of a container image: what the image says of its programs holds in all sandboxes of it."""

import pytest

import cubetest
from cubetest import ctl, ctl_ok, wait_for
from conftest import PAYLOAD
from ociimage import Layout, layer
from snapshots import count

CONFIG = {"Env": ["PATH=/opt/bin", "MODE=image"], "User": "app:web", "WorkingDir": "/srv/app",
          "Entrypoint": ["echo", "the image's own"], "Cmd": ["&&"]}


@pytest.fixture(scope="module")
def build(host, tmp_path_factory):
    """build(config, option...): cubectl's result; the template is "image" until the next one."""
    def make(config, *options, change=lambda directory: None):
        layout = Layout(tmp_path_factory.mktemp("image") / "layout")
        layout.add_image([layer(("f", "etc/hostname", "x", 0o644, 0, {})), layer(("f", "opt/bin/su", "", 0o4755, 0, {}))], config)
        change(layout.directory)
        ctl("template", "rm", "image")
        return ctl("template", "build", "image", "--from", f"oci:{layout.directory}:latest", "--kernel", PAYLOAD,
                   "--memory", "64M", "--disk", "64M", *options)
    yield make
    ctl("template", "rm", "image")


@pytest.fixture(scope="module")
def log(build):
    result = build(CONFIG, "--setup", "env", "--setup", "who-and-where", "--env", "MODE=build")
    assert result.returncode == 0, result.stderr.decode()
    return result.stderr.decode()


def test_the_image_is_known_to_what_is_run_while_it_is_built(log):
    assert "PATH=/opt/bin\n" in log and "MODE=build\n" in log and "MODE=image" not in log
    assert "app:web /srv/app\n" in log


def test_the_image_is_known_to_what_is_run_in_a_sandbox(log):
    show = ctl_ok("template", "show", "image")
    assert "User=app:web\n" in show and "WorkingDirectory=/srv/app\n" in show and "MODE" not in show
    assert sorted(ctl_ok("run", "--template", "image", "--", "env").split()) == ["MODE=image", "PATH=/opt/bin"]
    assert ctl_ok("run", "--template", "image", "--", "who-and-where").split() == ["app:web", "/srv/app"]


def test_who_says_otherwise_is_right(log):
    said = ctl_ok("run", "--template", "image", "-e", "MODE=mine", "-e", "OWN=1", "--", "env").split()
    assert sorted(said) == ["MODE=mine", "OWN=1", "PATH=/opt/bin"]
    assert ctl_ok("run", "--template", "image", "-u", "root", "-C", "/tmp", "--", "who-and-where").split() == ["root", "/tmp"]


def test_a_copy_and_a_restarted_cubed_know_it_too(log):
    sandbox = ctl_ok("create", "--template", "image").strip()
    try:
        ctl_ok("pause", sandbox)
        cubetest.run("systemctl", "restart", "cubed.service", check=True)
        ctl_ok("resume", sandbox)
        assert ctl_ok("exec", sandbox, "--", "who-and-where").split() == ["app:web", "/srv/app"]
        copy = ctl_ok("fork", sandbox).strip()
        assert "MODE=image" in ctl_ok("exec", copy, "--", "env")
        ctl_ok("kill", copy)
    finally:
        ctl_ok("kill", sandbox)


def test_the_program_of_an_image_without_ports_is_not_started(log):
    assert "the image's own" not in log


def test_the_program_of_an_image_with_ports_is_started(build):
    served = {**CONFIG, "ExposedPorts": {"80/tcp": {}}}
    ended = build(served, "--ready", "false").stderr.decode()
    # Without a shell: each word is one.
    assert ended.index("[starting the image's own program]\n") < ended.index("the image's own &&\n")
    assert "the image's own program (ENTRYPOINT and CMD; see --no-start) ended with exit status 0, but it is to stay" in ended
    for options in (["--no-start"], ["--start", "hang"], ["--no-warm"]):
        other = build(served, *options)
        assert other.returncode == 0 and b"the image's own" not in other.stderr, other.stderr.decode()
    stays = build({"Cmd": ["counter", "calmly"], "ExposedPorts": {"80/tcp": {}}})
    assert stays.returncode == 0, stays.stderr.decode()
    with cubetest.created("--template", "image") as sandbox_id:
        wait_for("it to count", lambda: count(sandbox_id) > 0)


def test_an_image_that_was_changed_is_refused(build):
    def change(directory):
        blob = next(p for p in (directory / "blobs/sha256").iterdir() if b"amd64" in p.read_bytes())
        blob.write_bytes(blob.read_bytes().replace(b"amd64", b"arm64"))
    assert b"wrong checksum" in build({}, change=change).stderr
