# SPDX-License-Identifier: Apache-2.0
"""standin.py [--interpreter] COMMAND..: runs it with the environment of a client of a gateway whose guests are agents of this
machine; with --interpreter there is also a code interpreter in each.

Each guest has the user that E2B's templates have, and a /home of its own; all else of the disk is this machine's.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gateway")]
spec = importlib.util.spec_from_file_location("gateway_conftest", HERE.parent / "gateway/conftest.py")
gateway_conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gateway_conftest)
from router import routed  # noqa: E402

# In the guest's own mount namespace, in front of its agent.
GUEST = r"""#!/bin/sh
set -e
mount -t tmpfs -o mode=0755 guest /home
mkdir -m 0755 /home/user /home/.etc
chown 4242:4242 /home/user
for file in passwd group; do cp /etc/$file /home/.etc/; done
grep -q '^user:' /etc/passwd || echo 'user:x:4242:4242::/home/user:/bin/bash' >>/home/.etc/passwd
grep -q '^user:' /etc/group || echo 'user:x:4242:' >>/home/.etc/group
for file in passwd group; do mount --bind /home/.etc/$file /etc/$file; done
if [ -n "$INTERPRETER" ]; then
    mkdir /home/.root
    HOME=/home/.root "$INTERPRETER" --runtime-dir /home/.code-interpreter >/dev/null 2>/home/.code-interpreter.log &
    until curl --fail --silent --output /dev/null http://127.0.0.1:49999/health; do sleep 0.1; done
fi
exec "$HARNESS" "$@"
"""


class Directories:
    """What the fixture asks pytest for."""

    def __init__(self, top):
        self.top = pathlib.Path(top)

    def mktemp(self, name):
        directory = self.top / "standin" / name
        directory.mkdir(parents=True)
        return directory


def main(argv):
    bus_host = gateway_conftest.gw.bus_host
    with tempfile.TemporaryDirectory(prefix="e2b-") as top:
        os.chmod(top, 0o755)
        os.environ["HARNESS"] = str(bus_host.AGENT_HARNESS)
        os.environ["INTERPRETER"] = ""
        if argv[0] == "--interpreter":
            argv = argv[1:]
            os.environ["INTERPRETER"] = str(HERE.parents[1] / "guest/code-interpreter/code-interpreter")
        bus_host.AGENT_HARNESS = pathlib.Path(top, "guest")
        bus_host.AGENT_HARNESS.write_text(GUEST)
        bus_host.AGENT_HARNESS.chmod(0o755)
        gateway = gateway_conftest.run_gateway(Directories(top))
        started = next(gateway)
        try:
            for name in ("base", "ubuntu:22.04", "code-interpreter-v1"):
                result = started.host.busctl("call", "org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager",
                                             "AliasTemplate", "ss", name, "python")
                assert result.returncode == 0, result.stderr
            with started.on_loopback() as url, routed(started.host) as guests:
                env = {"E2B_API_URL": url, "E2B_SANDBOX_URL": guests, "E2B_API_KEY": started.key(), "CUBE_TEMPLATE": "base"}
                return subprocess.run(argv, env=os.environ | env).returncode
        finally:
            for i in started.host.ids():
                started.host.ctl("kill", i)
            next(gateway, None)


sys.exit(main(sys.argv[1:]))
