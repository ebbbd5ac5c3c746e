# SPDX-License-Identifier: Apache-2.0
"""E2B's SDKs as dev/lib.sh installs them, and how files of tests in js/ and py/ are run with them.

CUBE_E2B_SDKS is the directory that e2b_sdks of dev/lib.sh prints.
"""

import os
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).parent
LONG = os.environ.get("CUBE_LONG") == "1"
KEY = "e2b_" + "0" * 40
JS = ["commands", "files", "watch", "pty", "git"]
PY = ["commands", "files", "watch", "terminals", "git"]


def directory(name):
    return pathlib.Path(os.environ["CUBE_E2B_SDKS"], name)


def debug(port):
    """What the SDK's debug mode needs, in which it asks no control plane: a sandbox is whatever is at that port."""
    return {"E2B_DEBUG": "true", "E2B_API_KEY": KEY, "E2B_SANDBOX_URL": f"http://127.0.0.1:{port}"}


def run(argv, env, timeout=500):
    own = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    return subprocess.run([str(one) for one in argv], env=own | {"PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"} | env, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def check(result):
    """That its tests passed, and that there were some."""
    print(result.stdout)
    assert re.search("^ok ", result.stdout, re.MULTILINE), result.stdout
    bad = re.search(r"^not ok .*", result.stdout, re.MULTILINE)
    assert result.returncode == 0 and not bad, result.stdout[bad.start() if bad else 0:]


def node(version, file, env, **limits):
    check(run([directory("node"), "--test-reporter=tap", HERE / f"js/{file}.test.mjs"],
              {"CUBE_SDK": str(directory("node-" + version))} | env, **limits))


def python(version, mode, file, env, **limits):
    check(run([directory("python-" + version) / "bin/python", HERE / "py/run.py", mode, f"{file}.py"], env, **limits))


def script(version, code, env, *arguments):
    """What a short program of Python printed. It leaves before threads of the SDK can abort an interpreter that ends."""
    result = run([directory("python-" + version) / "bin/python", "-c",
                  code + "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n", *arguments], env)
    assert result.returncode == 0, result.stdout
    return result.stdout
