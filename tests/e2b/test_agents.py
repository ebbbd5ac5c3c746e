# SPDX-License-Identifier: Apache-2.0
"""openai-agents with its E2B sandbox, unmodified, against the gateway: a model on loopback says what is to be done, and sees
whether it was."""

import pytest

import e2b_sdks


# Natively all guests have one disk, which no snapshot keeps.
@pytest.mark.parametrize("kind, persistence", [("e2b", "pause"), ("e2b", "tar")] + (
    [("e2b_code_interpreter", "pause"), ("e2b_code_interpreter", "tar")] if e2b_sdks.LONG else []))
def test_a_scripted_agent_works_in_its_sandbox(env, tmp_path, kind, persistence):
    result = e2b_sdks.run([e2b_sdks.directory("agents") / "bin/python", e2b_sdks.HERE / "agents/agent.py", kind, persistence,
                           tmp_path], env)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stdout
