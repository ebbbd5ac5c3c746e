# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDK, unmodified, against the server: in its debug mode, in which it asks no control plane."""

import os

import pytest

import interpreter

pytestmark = pytest.mark.skipif("CUBE_E2B_SDK" not in os.environ,
                                reason="CUBE_E2B_SDK names no environment with e2b-code-interpreter; dev/test makes one")

START = "from e2b_code_interpreter import Sandbox\nsandbox = Sandbox.create()\n"


def test_print_and_results(server):
    interpreter.run_sdk(server, START + """
execution = sandbox.run_code("print(1)")
assert execution.logs.stdout == ["1\\n"] and execution.error is None, execution
execution = sandbox.run_code("x = 1; x")
assert execution.text == "1" and execution.execution_count >= 2, execution
execution = sandbox.run_code("import pandas as pd\\npd.DataFrame({'a': [1, 2, 3]})")
assert execution.results[0].data == {"a": [1, 2, 3]} and "<table" in execution.results[0].html
execution = sandbox.run_code("from IPython.display import display\\ndisplay({'text/latex': r'\\\\text{C}'}, raw=True)")
assert list(execution.results[0].formats()) == ["latex"], list(execution.results[0].formats())
""")


def test_a_picture_and_its_chart(server):
    interpreter.run_sdk(server, START + """
from e2b_code_interpreter.charts import LineChart
execution = sandbox.run_code("import matplotlib.pyplot as plt\\nplt.plot([1, 2], [3, 4])\\nplt.title('T')\\nplt.show()")
result = execution.results[0]
assert result.png and result.text and not result.extra
assert isinstance(result.chart, LineChart) and result.chart.title == "T"
assert result.chart.elements[0].points == [(1, 3), (2, 4)]
for code in ("plt.bar(['a'], [1])", "plt.pie([1])", "plt.scatter([1], [2])", "plt.boxplot([[1, 2]], patch_artist=True)",
             "plt.subplots(1, 2)[1][0].plot([1])", "plt.imshow([[1]])"):
    result = sandbox.run_code(code + "\\nplt.show()").results[-1]
    assert result.chart and result.chart.type.value, code
""")


def test_errors(server):
    interpreter.run_sdk(server, START + """
from e2b import InvalidArgumentException, NotFoundException, SandboxException
execution = sandbox.run_code("xyz")
assert (execution.error.name, execution.error.value) == ("NameError", "name 'xyz' is not defined")
assert "NameError" in execution.error.traceback
try:
    sandbox.run_code("1", language="java")
    raise SystemExit("java ran")
except SandboxException as e:
    assert "java" in str(e) and "python" in str(e)
context = sandbox.create_code_context()
sandbox.remove_code_context(context)
try:
    sandbox.run_code("1", context=context)
    raise SystemExit("ran in a context that is gone")
except NotFoundException:
    pass
""")


def test_contexts(server):
    interpreter.run_sdk(server, START + f"""
assert {{"python", "javascript"}} <= {{context.language for context in sandbox.list_code_contexts()}}
context = sandbox.create_code_context(language="python", cwd={server.inside(server.home)!r})
last = sandbox.list_code_contexts()[-1]
assert (last.id, last.language, last.cwd) == (context.id, "python", {server.inside(server.home)!r})
sandbox.run_code("x = 1", context=context)
assert sandbox.run_code("x", context=context).text == "1"
sandbox.restart_code_context(context.id)
assert sandbox.run_code("x", context=context).error.name == "NameError"
sandbox.remove_code_context(context.id)
assert context.id not in [one.id for one in sandbox.list_code_contexts()]
""")


def test_callbacks_and_streaming(server):
    interpreter.run_sdk(server, START + """
out, err, results, errors = [], [], [], []
sandbox.run_code("import sys\\nprint('o'); print('e', file=sys.stderr); display(1); xyz", on_stdout=out.append,
                 on_stderr=err.append, on_result=results.append, on_error=errors.append)
assert [one.line for one in out] == ["o\\n"] and [one.line for one in err] == ["e\\n"]
assert [one.text for one in results] == ["1"] and [one.name for one in errors] == ["NameError"]
""")


def test_languages_and_variables(server):
    interpreter.run_sdk(server, START + """
assert sandbox.run_code("console.log('Hello, World!')", language="js").logs.stdout == ["Hello, World!\\n"]
assert sandbox.run_code("import { readFileSync } from 'fs'\\nconsole.log(typeof readFileSync)",
                        language="js").logs.stdout == ["function\\n"]
assert sandbox.run_code("await Promise.resolve('Hello World!')", language="js").text == "Hello World!"
assert sandbox.run_code("const m: string = 'Hello'; console.log(m);", language="ts").logs.stdout == ["Hello\\n"]
assert "".join(sandbox.run_code("echo $A", language="bash", envs={"A": "b"}).logs.stdout) == "b\\n"
assert sandbox.run_code("import os; os.getenv('A')", envs={"A": "b"}).text == "b"
assert sandbox.run_code("import os; os.getenv('A')").text is None
""")


def test_a_timeout_of_the_client_blocks_nobody(server):
    interpreter.run_sdk(server, START + """
from e2b import TimeoutException
try:
    sandbox.run_code("import time; time.sleep(300)", timeout=1)
    raise SystemExit("it slept")
except TimeoutException:
    pass
assert sandbox.run_code("1 + 1", timeout=60).text == "2"
""")


def test_the_asynchronous_one(server):
    interpreter.run_sdk(server, """
import asyncio
from e2b_code_interpreter import AsyncSandbox
async def main():
    sandbox = await AsyncSandbox.create()
    context = await sandbox.create_code_context()
    results = await asyncio.gather(sandbox.run_code("1 + 1"), sandbox.run_code("2 + 2", context=context))
    assert [one.text for one in results] == ["2", "4"]
    await sandbox.remove_code_context(context)
asyncio.run(main())
""")
