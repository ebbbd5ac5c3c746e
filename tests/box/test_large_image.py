# SPDX-License-Identifier: Apache-2.0
"""A container image of 500 MB becomes a template, natively. With --long, for its bytes alone take a minute to make."""

import hashlib
import os
import pathlib
import pty
import re
import subprocess
import threading
import time

import pytest

import cubetest
from cubetest import ctl, ctl_ok
from conftest import PAYLOAD
from ociimage import Layout, layer

pytestmark = [pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="500 MB: --long"), pytest.mark.timeout(1800)]

LAYERS, FILES, SIZE = 5, 400, 250_000
MERGER_MAX = 32 << 20
LINE = re.compile(r"\[ *(\d+)%\] ([^\r\n\x1b]+)")


@pytest.fixture(scope="module")
def image(host, tmp_path_factory):
    """Its layout, and what its files are. Half of each byte is random, as programs may be."""
    sums, tars = {}, []
    for n in range(LAYERS):
        data = [os.urandom(SIZE // 2).hex() for _ in range(FILES)]
        sums |= {f"srv/{n}/{i}": hashlib.sha256(text.encode()).hexdigest() for i, text in enumerate(data)}
        tars.append(layer(*(("f", f"srv/{n}/{i}", text, 0o644, 0, {}) for i, text in enumerate(data))))
    layout = Layout(tmp_path_factory.mktemp("image") / "layout")
    layout.add_image(tars, {}, level=1)
    return layout, sums


class Peak(threading.Thread):
    """The most memory that the cube-image which merges an image has had, as the kernel counts it."""

    def __init__(self):
        super().__init__()
        self.bytes, self.done = 0, False

    def run(self):
        while not self.done:
            for path in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if (path / "cmdline").read_bytes().split(b"\0")[1:2] == [b"image"] and (path / "comm").read_text() == "cube-image\n":
                        peak = re.search(r"VmHWM:\s+(\d+) kB", (path / "status").read_text())
                        self.bytes = max(self.bytes, int(peak[1]) << 10 if peak else 0)
                except OSError:
                    pass  # it has ended
            time.sleep(0.05)


def build(layout):
    """What a terminal is shown of it."""
    master, slave = pty.openpty()
    p = subprocess.Popen(["cubectl", "template", "build", "large", "--from", f"oci:{layout.directory}:latest", "--kernel", PAYLOAD,
                          "--memory", "64M", "--disk", "64M", "--no-warm"], stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:
        pass  # nobody has it open any more
    os.close(master)
    assert p.wait(60) == 0, shown.decode()
    return shown.decode()


def test_a_large_image_becomes_a_template(image, tmp_path):
    layout, sums = image
    packed = sum(f.stat().st_size for f in (layout.directory / "blobs/sha256").iterdir())
    peak = Peak()
    peak.start()
    started = time.monotonic()
    try:
        shown = build(layout)
    finally:
        peak.done = True
        peak.join()
    took = time.monotonic() - started
    steps = LINE.findall(shown)
    told = [int(percent) for percent, step in steps if step == "making the root image"]
    root = pathlib.Path("/var/lib/cubed/templates", ctl_ok("template", "show", "large", "--value", "-p", "Id").strip(), "root.img")
    print(f"{packed} bytes packed, {LAYERS * FILES * SIZE} of files, {root.stat().st_size} of the root image: {took:.1f} s, "
          f"{len(told)} times told, the merger's peak {peak.bytes >> 20} MiB")
    try:
        assert len(set(told)) >= 5 and told == sorted(told) and told[-1] > told[0], steps
        assert 0 < peak.bytes < MERGER_MAX, peak.bytes
        cubetest.run("unsquashfs", "-no-progress", "-quiet", "-dest", tmp_path / "root", root, check=True)
        assert {str(f.relative_to(tmp_path / "root")): hashlib.sha256(f.read_bytes()).hexdigest()
                for f in (tmp_path / "root").rglob("*") if f.is_file()} == sums
    finally:
        ctl("template", "rm", "large")
