# SPDX-License-Identifier: Apache-2.0
"""E2B's SDK, unmodified, from a client's environment to a program in a Linux guest: cube-gateway, haproxy, network and envd."""

import os
import pathlib
import subprocess

import pytest

from cubetest import run, sandbox_ids
from labhost import PLACE

SDK = pathlib.Path(PLACE, "e2b-sdk")

LIFE = """
import os, sys
from e2b import CommandExitException, Sandbox, TimeoutException
with Sandbox.create("python", timeout=1200, envs={"GREETING": "hello"}, metadata={"who": "test"}) as sandbox:
    print(sandbox.sandbox_id, flush=True)
    assert sandbox.is_running()
    result = sandbox.commands.run("id -un; pwd; echo $GREETING $E2B_SANDBOX_ID; uname -n")
    user, home, greeting, own_id, name = result.stdout.split()
    assert (user, home, greeting, own_id) == ("user", "/home/user", "hello", sandbox.sandbox_id), result
    assert name != os.uname().nodename
    try:
        sandbox.commands.run("exit 3")
        raise SystemExit("did not fail")
    except CommandExitException as e:
        assert e.exit_code == 3
    data = os.urandom(3_000_000)
    assert sandbox.files.write("d/f ü", data).path == "/home/user/d/f ü"
    assert bytes(sandbox.files.read("d/f ü", format="bytes")) == data
    assert [(one.name, one.owner) for one in sandbox.files.list("d")] == [("f ü", "user")]
    sleeper = sandbox.commands.run("sleep 10000", background=True, timeout=0)
    sandbox.pause()
    assert not sandbox.is_running()
    again = Sandbox.connect(sandbox.sandbox_id, timeout=1200)
    assert sleeper.pid in [one.pid for one in again.commands.list()]
    assert bytes(again.files.read("d/f ü", format="bytes")) == data
    assert again.get_info().metadata == {"who": "test"}
assert not sandbox.is_running() and sandbox.kill() is False
try:
    sandbox.commands.run("true")
    raise SystemExit("a killed one ran")
except TimeoutException:
    pass
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def environment():
    if not (SDK / "bin/python").exists():
        pytest.skip(f"{SDK} has no E2B SDK; dev/test brings it")
    if subprocess.run([SDK / "bin/python", "-c", "import e2b"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("the E2B SDK that was brought is for another Python")
    run("cubectl", "--quiet", "ingress", "setup", check=True)
    text = run("cubectl", "ingress", "env", "--headers", check=True).stdout.decode()
    key = run("cubectl", "--quiet", "apikey", "create", "lab", check=True).stdout.decode().strip()
    # the SDK wants some authority to trust, by plain HTTP too, and the lab has none
    [trusted] = SDK.glob("lib/python3*/site-packages/certifi/cacert.pem")
    yield dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines()) | {
        "E2B_API_KEY": key, "SSL_CERT_FILE": str(trusted)}
    run("cubectl", "ingress", "remove", check=True)
    run("systemctl", "disable", "--quiet", "--now", "cube-gateway.socket", "cube-gateway.service", check=True)


def test_a_life_in_header_mode(environment):
    before = sandbox_ids()
    result = subprocess.run([SDK / "bin/python", "-c", LIFE], env=os.environ | environment, text=True, timeout=900,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout
    assert result.stdout.strip() not in sandbox_ids() and sandbox_ids() == before
