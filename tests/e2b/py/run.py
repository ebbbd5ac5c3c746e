# SPDX-License-Identifier: Apache-2.0
"""run.py sync|async FILE: the tests of a file of this directory with E2B's SDK for Python, in TAP. Run by the Python that
has the SDK, which knows no pytest. Each test of a file with SANDBOX gets the file's sandbox and, with DIRECTORY, the path of
a directory in it."""

import asyncio
import importlib
import os
import pathlib
import secrets
import sys
import traceback

mode, path = sys.argv[1:]
os.environ["CUBE_SDK_MODE"] = mode
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import lib  # noqa: E402

module = importlib.import_module(pathlib.Path(path).stem)


async def run(test, number, *arguments):
    name = test.__name__.removeprefix("test_").replace("_", " ")
    try:
        # a sync call that hangs is left to who started us
        await asyncio.wait_for(test(*arguments), float(os.environ.get("CUBE_TEST_SECONDS", 240)))
        print(f"ok {number} - {name}", flush=True)
        return True
    except Exception:
        print(f"not ok {number} - {name}")
        print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), flush=True)
        return False


async def main():
    tests = [one for name, one in vars(module).items() if name.startswith("test_")]
    print(f"TAP version 13\n1..{len(tests)}", flush=True)
    if not module.SANDBOX:
        return all([await run(test, i) for i, test in enumerate(tests, 1)])
    sandbox = await lib.go(lib.create(getattr(module, "Sandbox", lib.Sandbox), timeout=3600, envs={"GLOBAL": "1"}))
    work = f"/tmp/e2b-{secrets.token_hex(8)}"
    await lib.go(sandbox.files.make_dir(work)) if module.DIRECTORY else None
    passed = [await run(test, i, sandbox, work) for i, test in enumerate(tests, 1)]
    await lib.go(sandbox.files.remove(work)) if module.DIRECTORY else None
    await lib.go(sandbox.kill())
    return all(passed)


good = asyncio.run(main())
sys.stdout.flush()
# What happens after a script is the SDK's own affair: threads of its pyqwest that want the GIL of an interpreter that ends
# abort the process (Python before 3.14), now and then, on a machine that is busy.
os._exit(0 if good else 1)
