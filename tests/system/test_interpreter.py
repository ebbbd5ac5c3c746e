# SPDX-License-Identifier: Apache-2.0
"""The code interpreter in Linux guests, from the template of its recipe, by HTTP at the sandbox's address. tests/interpreter
has the rest of it natively."""

import http.client
import json
import os
import sys

import pytest

from cubetest import created, prop

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interpreter"))
from cells import FRAME, bash, differences, js, python  # noqa: E402
from interpreter import Execution  # noqa: E402

pytestmark = [pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="its template takes minutes here: --long"),
              pytest.mark.timeout(3600)]

CELLS = [
    python("print('é 𝄞 ☃', end='')", stdout="é 𝄞 ☃"),
    python("x = 20; x + 22", "42"),
    python("1 / 0", error=("ZeroDivisionError", "division by zero")),
    python(FRAME, has={"html": "<table", "data": "{'a': [1, 2], 't': ['2024-01-02T00:00:00', None]}"}),
    python("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6])\nplt.show()",
           has={"png": "iVBORw0KGgo", "chart": "'type': 'line'"}),
    js("[1, 2].map((x) => x * 2)", "[ 2, 4 ]"),
    bash("v=7; echo $((6 * v))", stdout="42\n"),
]
# The process that a cell runs in, which is another one when an interpreter was started for it.
WHO = "import os; print(os.getpid(), open('/proc/self/stat').read().split()[21])"


@pytest.fixture(scope="module")
def sandbox(interpreter_template):
    with created("--template", interpreter_template, "--timeout", "2h") as sandbox_id:
        yield sandbox_id


def post(sandbox_id, path, **body):
    connection = http.client.HTTPConnection(str(prop(sandbox_id, "NetworkAddress")), 49999, timeout=900)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        return text
    finally:
        connection.close()


def execute(sandbox_id, code, **fields):
    return Execution(post(sandbox_id, "/execute", code=code, **fields))


def printed(sandbox_id, code, **fields):
    execution = execute(sandbox_id, code, **fields)
    assert execution.error is None and execution.stderr == "", execution.lines
    return execution.stdout


def test_the_first_cell_starts_no_interpreter(interpreter_template, sandbox):
    """Whoever comes first meets the same process: it ran before the template was saved, and has pandas loaded."""
    with created("--template", interpreter_template, "--timeout", "1h") as other:
        assert printed(sandbox, WHO) == printed(other, WHO)
    assert printed(sandbox, "import sys; print('pandas' in sys.modules)") == "True\n"


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.language}-{cell.code.splitlines()[0][:40]}")
def test_cell(sandbox, cell):
    execution = execute(sandbox, cell.code, language=cell.language)
    wrong = differences(cell, execution.results, execution.stdout, execution.stderr, execution.error)
    assert not wrong, execution.lines
