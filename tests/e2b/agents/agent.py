# SPDX-License-Identifier: Apache-2.0
"""agent.py KIND PERSISTENCE DIRECTORY: an agent of openai-agents whose sandbox is E2B's. Run by the Python that has it.

It executes commands, edits a file and reads it back; leaves its sandbox, and finds the file again: in the same one (pause),
or in another one that was given what DIRECTORY keeps (tar: the files; snapshot: the id of a snapshot).
"""

import asyncio
import os
import secrets
import shutil
import sys

from agents import RunConfig, Runner, set_default_openai_client, set_tracing_disabled
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.snapshot import LocalSnapshotSpec
from e2b import AsyncSandbox
from openai import AsyncOpenAI

import model
from model import call, patch, say

kind, persistence = sys.argv[1:3]
ROOT = f"/tmp/workspace-{secrets.token_hex(8)}"
FIRST = [
    (call("exec_command", cmd="mkdir src && printf 'one\\nlast\\n' > src/a.txt && echo $((6 * 7)) && pwd"), f"42\n{ROOT}"),
    (call("exec_command", cmd="echo no >&2; exit 3"), "3"),
    (call("exec_command", cmd="seq 100000 | tail -n 1; echo $GREETING"), "100000\nhello"),
    (patch("*** Update File: src/a.txt\n@@\n-one\n+two\n last\n"), "src/a.txt"),
    (patch("*** Add File: src/b ü.txt\n+three\n"), "src/b ü.txt"),
    (call("exec_command", cmd="cat src/a.txt 'src/b ü.txt'"), "two\nlast\nthree"),
    (say("done"), None),
]
SECOND = [
    (call("exec_command", cmd="cat src/a.txt 'src/b ü.txt'"), "two\nlast\nthree"),
    (say("found"), None),
]


async def turns_of(script, sandbox):
    server = model.Model(script)
    set_default_openai_client(AsyncOpenAI(base_url=server.url, api_key="none"), use_for_tracing=False)
    agent = SandboxAgent(name="scripted", model="scripted", instructions="Do what is written down.")
    result = await Runner.run(agent, "Go.", run_config=RunConfig(sandbox=sandbox), max_turns=20)
    assert not server.wrong, server.wrong
    assert server.taken == len(script), server.taken
    server.shutdown()
    return result.final_output


async def main():
    set_tracing_disabled(True)
    client = E2BSandboxClient()
    options = E2BSandboxClientOptions(sandbox_type=kind, template=os.environ.get("CUBE_TEMPLATE"), timeout=300,
                                      envs={"GREETING": "hello"}, pause_on_exit=persistence == "pause",
                                      workspace_persistence="snapshot" if persistence == "snapshot" else "tar")
    session = await client.create(manifest=Manifest(root=ROOT), options=options,
                                  snapshot=None if persistence == "pause" else LocalSnapshotSpec(base_path=sys.argv[3]))
    async with session:
        assert await turns_of(FIRST, SandboxRunConfig(session=session)) == "done"
        assert await session.running()
    first = session.state.sandbox_id
    if persistence != "pause":
        await client.delete(session)
    # where guests share our disk it would be there anyway
    shutil.rmtree(ROOT, ignore_errors=True) if persistence == "tar" else None
    again = await client.resume(session.state)
    async with again:
        assert await turns_of(SECOND, SandboxRunConfig(session=again)) == "found"
        assert (again.state.sandbox_id == first) == (persistence == "pause")
        await again.exec("rm", "-rf", ROOT)
    await client.delete(again)
    # which pauses it, where it is to be kept
    await AsyncSandbox.kill(again.state.sandbox_id)


asyncio.run(main())
print("ok", flush=True)
# Before threads of the SDK's pyqwest can abort an interpreter that ends.
os._exit(0)
