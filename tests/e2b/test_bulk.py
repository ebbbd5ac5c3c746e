# SPDX-License-Identifier: Apache-2.0
"""Much data through E2B's SDK, and clients that vanish in the middle of it."""

import pathlib
import signal
import subprocess
import time

import pytest

import e2b_sdks
from agentlib import until

SIZE = 100_000_000
START = "import hashlib, os, sys, time\nfrom e2b import *\nsandbox = Sandbox.create()\nwork = sys.argv[1]\n"


def test_100_mb_up_and_down_by_python(envd, tmp_path):
    e2b_sdks.script("newest", START + f"""
data = os.urandom(1_000_000) * {SIZE // 1_000_000}
sandbox.files.write(work + "/large", data)
assert os.stat(work + "/large").st_size == {SIZE}
with open(work + "/large", "rb") as f:
    assert f.read() == data
got = hashlib.sha256()
for part in sandbox.files.read(work + "/large", format="stream"):
    got.update(part)
assert got.digest() == hashlib.sha256(data).digest()
""", e2b_sdks.debug(envd.port), tmp_path)


def test_100_mb_up_and_down_by_node(envd):
    e2b_sdks.node("newest", "bulk", e2b_sdks.debug(envd.port))


def settled(agent):
    """What it holds once nobody speaks to it any more."""
    sizes = []

    def still():
        sizes.append((agent.fds(), agent.rss()))
        time.sleep(0.1)
        return len(sizes) > 3 and len(set(sizes[-3:])) == 1
    until(still, 60)
    return sizes[-1]


ENDLESS = "sandbox.commands.run('echo $$ >' + work + '/pid; while :; do seq 100000; done', timeout=0, on_stdout=lambda _: open(work + '/seen', 'w').close())"
UPLOAD = """
class Slow:
    def read(self, size=-1):
        open(work + '/seen', 'w').close()
        time.sleep(0.01)
        return b'x' * 65536
sandbox.files.write(work + '/large', Slow())
"""
DOWNLOAD = """
os.system(f'truncate --size=10G {work}/large')
for part in sandbox.files.read(work + '/large', format='stream'):
    open(work + '/seen', 'w').close()
"""


@pytest.mark.parametrize("what", [ENDLESS, UPLOAD, DOWNLOAD], ids=["command", "upload", "download"])
def test_a_client_that_vanishes_leaves_nothing_behind(agent, envd, tmp_path, what):
    fds, rss = settled(agent)
    for _ in range(5):
        seen = tmp_path / "seen"
        seen.unlink(missing_ok=True)
        client = subprocess.Popen([e2b_sdks.directory("python-newest") / "bin/python", "-c", START + what, tmp_path],
                                  env=e2b_sdks.debug(envd.port))
        try:
            until(lambda: seen.exists() or client.poll() is not None, 300)
            assert client.poll() is None
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait()
        if what is ENDLESS:
            # it runs on
            [process] = envd.call("process.Process/List", {})[1]["processes"]
            assert pathlib.Path(tmp_path / "pid").read_text()
            envd.call("process.Process/SendSignal", {"process": {"pid": process["pid"]}, "signal": "SIGNAL_SIGKILL"})
            until(lambda: not envd.call("process.Process/List", {})[1]["processes"], 120)
    try:
        # of what ended, its end is kept for 30 s
        until(lambda: agent.fds() <= fds + 5 and agent.rss() <= rss + 4096, 120)
    except AssertionError as e:
        raise AssertionError(f"it had {fds} files and {rss} kB, and has {agent.fds()} and {agent.rss()}") from e
