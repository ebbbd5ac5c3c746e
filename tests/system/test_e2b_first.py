# SPDX-License-Identifier: Apache-2.0
"""docs/e2b.md: its five commands lead from nothing to the first sandbox. The names that they go to on the internet lead to what
this machine has: docker.io to an image of a shell, PyPI to a directory of wheels."""

import http.server
import os
import pathlib
import subprocess
import threading

import pytest

from cubetest import ctl, ctl_ok, run, sandbox_ids
from labhost import make_shell, remove_ingress
from ociimage import Layout

PAGE = pathlib.Path(__file__).parents[2] / "docs/e2b.md"
REGISTRIES = pathlib.Path("/etc/containers/registries.conf.d/50-test.conf")
LONG = os.environ.get("CUBE_LONG") == "1"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# What the page asks of an image besides: bash, and useradd with its files.
MORE = r"""
cd "$0"
for program in bash id useradd; do
    file=$(command -v $program)
    cp --parents -L $(ldd $file | grep -o '/lib[^ ]*') .
    cp -L $file bin/
done
mkdir -p etc/default etc/skel home tmp
cp /etc/login.defs etc/
cp /etc/default/useradd etc/default/
echo root:x:0: >etc/group
touch etc/shadow etc/gshadow etc/subuid etc/subgid
"""
MIRROR = """
[[registry]]
prefix = "docker.io"
location = "127.0.0.1:%d"
insecure = true
"""


def commands():
    section = PAGE.read_text().split("\n## From nothing to the first sandbox\n")[1]
    return section.split("```\n")[1].splitlines()


class Registry(http.server.BaseHTTPRequestHandler):
    """That of one image, whatever name is asked for. Its server has layout, and digest of the manifest."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        kind, name = self.path.rsplit("/", 2)[-2:]
        digest = name if name.startswith("sha256:") else self.server.digest
        file = self.server.layout / "blobs" / digest.replace(":", "/")
        body = b"{}" if kind == "v2" else file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", MANIFEST if kind == "manifests" else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        if kind == "manifests":
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(tmp_path):
    """Where docker.io is to be had, as an administrator tells skopeo."""
    shell, layout = tmp_path / "root", Layout(tmp_path / "layout")
    shell.mkdir()
    run("sh", "-ec", MORE, make_shell(shell), check=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        server.layout = layout.directory
        server.digest = layout.add_image([run("tar", "-C", shell, "--owner=0", "--group=0", "-c", ".", check=True).stdout], {})
        threading.Thread(target=server.serve_forever, daemon=True).start()
        REGISTRIES.write_text(MIRROR % server.server_port)
        yield
        REGISTRIES.unlink()
        server.shutdown()


@pytest.fixture
def nothing():
    """What was made of it is gone afterwards."""
    before = sandbox_ids()
    yield
    for sandbox_id in set(sandbox_ids()) - set(before):
        ctl("kill", sandbox_id)
    ctl("template", "rm", "base")
    remove_ingress()


@pytest.mark.timeout(3600 if LONG else 1200)
def test_five_commands_lead_to_the_first_sandbox(nothing, mirror, sdks, tmp_path):
    lines = commands()
    assert len(lines) == 5
    if not LONG:
        # an emulated machine takes minutes for what pip does, and that makes what dev/test has brought
        [install] = [line for line in lines if "pip install" in line]
        lines.remove(install)
        (tmp_path / "e2b").symlink_to(f"{sdks}/python-newest")
    assert ctl("template", "show", "base").returncode != 0
    env = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{sdks}/wheels"}
    result = subprocess.run(["bash", "-e"], input="\n".join(lines) + "\n", cwd=tmp_path, env=env, text=True, timeout=3500,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert result.returncode == 0, result.stderr
    assert "uid=1000(user) gid=1000(user)" in result.stdout, result.stdout
    assert "base" in ctl_ok("template", "list")
