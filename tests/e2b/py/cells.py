# SPDX-License-Identifier: Apache-2.0
"""The code interpreter: cells, their results and errors, languages, contexts. The server may be all that is there."""

import asyncio
import threading

import e2b_code_interpreter
from lib import SYNC, NotFoundException, TimeoutException, fails, go

SANDBOX, DIRECTORY = True, False
Sandbox = e2b_code_interpreter.Sandbox if SYNC else e2b_code_interpreter.AsyncSandbox


async def test_what_a_cell_prints_and_what_it_is(s, _):
    execution = await go(s.run_code('x = 1; print("ä 🦊"); x'))
    assert (execution.text, execution.logs.stdout, execution.error) == ("1", ["ä 🦊\n"], None), execution
    assert (await go(s.run_code("x += 1; x"))).execution_count == execution.execution_count + 1
    execution = await go(s.run_code("nothing"))
    assert (execution.error.name, execution.error.value) == ("NameError", "name 'nothing' is not defined")


async def test_callbacks_come_in_their_kinds(s, _):
    out, err, results, errors = [], [], [], []
    await go(s.run_code("import sys\nprint('o'); print('e', file=sys.stderr); display(1); nothing", on_stdout=out.append,
                        on_stderr=err.append, on_result=results.append, on_error=errors.append))
    assert [one.line for one in out] == ["o\n"] and [one.line for one in err] == ["e\n"]
    assert [one.text for one in results] == ["1"] and [one.name for one in errors] == ["NameError"]


async def test_output_is_there_while_the_cell_runs(s, _):
    context = await go(s.create_code_context(language="python"))
    code = ("import os, tempfile, time\nd = tempfile.mkdtemp()\nprint(d, flush=True)\n"
            "while not os.path.exists(d + '/go'): time.sleep(0.1)\n'went'")

    def release(path):
        return f"open({path.line.strip() + '/go'!r}, 'w').close()"
    if SYNC:
        execution = s.run_code(code, context=context, on_stdout=lambda path: threading.Thread(
            target=s.run_code, args=[release(path)]).start())
    else:
        execution = await s.run_code(code, context=context, on_stdout=lambda path: asyncio.ensure_future(
            s.run_code(release(path))))
    assert execution.text == "went"
    await go(s.remove_code_context(context))


async def test_contexts(s, _):
    assert {"python", "javascript"} <= {one.language for one in await go(s.list_code_contexts())}
    context = await go(s.create_code_context(language="python", cwd="/tmp"))
    assert (await go(s.run_code("y = 5\nimport os; os.getcwd()", context=context))).text == "/tmp"
    assert (await go(s.run_code("y", context=context))).text == "5"
    await go(s.restart_code_context(context))
    assert (await go(s.run_code("y", context=context))).error.name == "NameError"
    await go(s.remove_code_context(context))
    await fails(NotFoundException, lambda: s.run_code("1", context=context))


async def test_languages_and_variables(s, _):
    assert (await go(s.run_code("console.log('Hello')", language="js"))).logs.stdout == ["Hello\n"]
    assert "".join((await go(s.run_code("echo $A", language="bash", envs={"A": "b"}))).logs.stdout) == "b\n"
    assert (await go(s.run_code("import os; os.getenv('A')", envs={"A": "b"}))).text == "b"


async def test_a_client_that_gives_up_blocks_nobody(s, _):
    await fails(TimeoutException, lambda: s.run_code("import time; time.sleep(300)", timeout=1))
    assert (await go(s.run_code("1 + 1"))).text == "2"
