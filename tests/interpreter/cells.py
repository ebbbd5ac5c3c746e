# SPDX-License-Identifier: Apache-2.0
"""Cells and what is known to come of them. They run in the order given, in the default context of their language.

Each says what is to be the text of the main result, standard output, the error's name and value, or fields that a
result has. Where it says neither a text nor fields, there is to be no result.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    code: str
    language: str = "python"
    text: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    error: tuple[str, str] | None = None
    has: dict = field(default_factory=dict)  # of any one result: a field and what is in it, as text


def python(code, *args, **kwargs):
    return Cell(code, "python", *args, **kwargs)


def js(code, *args, **kwargs):
    return Cell(code, "javascript", *args, **kwargs)


def ts(code, *args, **kwargs):
    return Cell(code, "typescript", *args, **kwargs)


def bash(code, **kwargs):
    return Cell(code, "bash", **kwargs)


def r(code, **kwargs):
    return Cell(code, "r", **kwargs)


FRAME = "import pandas as pd\npd.DataFrame({'a': [1, 2], 't': pd.to_datetime(['2024-01-02', None])})"

CELLS = [
    python("print(1)", stdout="1\n"),
    python("x = 20; x + 22", "42"),
    python("x += 1\nx", "21"),
    python("'a string'", "a string"),
    python("'it''s'", "its"),
    python("None", stdout=""),
    python("print('é 𝄞 ☃', end='')", stdout="é 𝄞 ☃"),
    python("'é𝄞'", "é𝄞"),
    python("print('\\ud800')", stdout="\ud800\n"),
    python("import sys\nprint('e', file=sys.stderr)", stderr="e\n"),
    python("undefined_name", error=("NameError", "name 'undefined_name' is not defined")),
    python("1 / 0", error=("ZeroDivisionError", "division by zero")),
    python("def f(:", error=("SyntaxError", "invalid syntax (")),
    python("import sys; sys.exit(3)", error=("SystemExit", "3")),
    python("input()", error=("StdinNotImplementedError", "raw_input was called")),
    python("import asyncio\nawait asyncio.sleep(0, 'slept')", "slept"),
    python("!echo from a shell", stdout="from a shell\r\n"),
    python("import os\nos.system('echo from a child')", "0", stdout="from a child\n"),
    python("%%bash\necho $((6 * 7))", stdout="42\n"),
    python("[1, {'a': (2, 3)}]", "[1, {'a': (2, 3)}]", has={"json": "[1, {'a': [2, 3]}]"}),
    python("float('nan')", "nan"),
    python("[float('inf')]", "[inf]"),
    python("2 ** 200", str(2 ** 200)),
    python("b'\\x00\\xff'", r"b'\x00\xff'"),
    python(FRAME, has={"html": "<table", "data": "{'a': [1, 2], 't': ['2024-01-02T00:00:00', None]}"}),
    python("import numpy as np\nnp.arange(6).reshape(2, 3).sum(axis=0)", "array([3, 5, 7])"),
    python("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6])\nplt.show()",
           has={"png": "iVBORw0KGgo", "chart": "'type': 'line'"}),
    python("plt.bar(['a', 'b'], [1, 2])\nplt.show()", has={"chart": "'type': 'bar'"}),
    python("from scipy import integrate\nround(integrate.quad(lambda v: v ** 2, 0, 3)[0], 6)", "9.0"),
    python("from sklearn.linear_model import LinearRegression\n"
           "round(float(LinearRegression().fit([[0], [1]], [1, 3]).predict([[2]])[0]), 6)", "5.0"),
    python("import sympy\nsympy.integrate(sympy.Symbol('z') ** 2)", "z**3/3"),
    python("from bs4 import BeautifulSoup\nBeautifulSoup('<p>a<b>c</b></p>', 'html.parser').b.text", "c"),
    python("import requests\nrequests.Request('GET', 'http://a/', params={'q': 1}).prepare().url", "http://a/?q=1"),
    python("import openpyxl, io\nbook = openpyxl.Workbook()\nbook.active['A1'] = 7\nfile = io.BytesIO()\n"
           "book.save(file)\nopenpyxl.load_workbook(file).active['A1'].value", "7"),
    python("from PIL import Image\nImage.new('RGB', (2, 3)).size", "(2, 3)"),
    python("from IPython.display import HTML, Latex, Markdown, SVG, JSON, Javascript, display\n"
           "display(HTML('<i>h</i>'))", has={"html": "<i>h</i>"}),
    python("display(Markdown('*m*'))", has={"markdown": "*m*"}),
    python("display(Latex('$l$'))", has={"latex": "$l$"}),
    python("display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))", has={"svg": "<svg"}),
    python("display(Javascript('alert()'))", has={"javascript": "alert()"}),
    python("display({'text/x-own': 'o'}, raw=True)", has={"extra": "{'text/x-own': 'o'}"}),
    python("display({'application/pdf': 'cGRm'}, raw=True)", has={"pdf": "cGRm"}),
    js("console.log('Hello'); console.error('there')", stdout="Hello\n", stderr="there\n"),
    js("const a = 1; a + 1", "2"),
    js("const a = 5; let { b } = { b: a }; b", "5"),
    js("a", "5"),
    js("await Promise.resolve('Hello World!')", "Hello World!"),
    js("async function main() { return 6 * 7 }\nmain()", "42"),
    js("import { sep } from 'path'\nimport * as os from 'node:os'\nsep + typeof os.cpus", "/function"),
    js("sep", "/"),
    js("(await import('fs')).constants.R_OK", "4"),
    js("({ a: [1, 2] })", "{ a: [ 1, 2 ] }", has={"json": "{'a': [1, 2]}"}),
    js("null.x", error=("TypeError", "Cannot read properties of null")),
    js("throw 'text'", error=("Uncaught", "'text'")),
    js("if (", error=("SyntaxError", "Unexpected end of input")),
    js("undefined", stdout=""),
    js("display({ [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<b>' }) })", has={"html": "<b>"}),
    ts("const m: string = 'typed'; interface I { x: number }\nconsole.log(m)", stdout="typed\n"),
    ts("enum E { A, B }\nE.B as number", "1"),
    ts("x y: z", error=("SyntaxError", "")),
    bash("v=7; echo $v", stdout="7\n"),
    bash("f() { echo f$v; }; f; cd /; pwd", stdout="f7\n/\n"),
    bash("f; pwd; echo e >&2", stdout="f7\n/\n", stderr="e\n"),
    bash("ls /nowhere", error=("ExitStatus", "2")),
    bash("exit 3", error=("ProcessEnded", "the shell ended (exit status 3)")),
    bash("cat; echo [$v]", stdout="[]\n"),
    r("x <- c(1, 2); mean(x)", has={"text": "[1] 1.5"}),
    r("print(sum(x))", stdout="[1] 3\n"),
    r("stop('no')", error=("ERROR", "Error in eval")),
    r("plot(1:3)", has={"png": "iVBORw0KGgo"}),
    r("data.frame(a = 1:2)", has={"html": "<table"}),
]


def differences(cell, results, stdout, stderr, error):
    """What is not as it was to be; empty when all is."""
    wrong = []
    if cell.text is not None and [one.get("text") for one in results if one["is_main_result"]] != [cell.text]:
        wrong.append(f"text is not {cell.text!r}")
    if cell.text is None and not cell.has and results:
        wrong.append("there is a result")
    if cell.stdout is not None and stdout != cell.stdout:
        wrong.append(f"stdout is not {cell.stdout!r}")
    if cell.stderr is not None and stderr != cell.stderr:
        wrong.append(f"stderr is not {cell.stderr!r}")
    if (cell.error is None) != (error is None) or (
            error and (error["name"] != cell.error[0] or not error["value"].startswith(cell.error[1])
                       or not error["traceback"] and error["name"] != "ProcessEnded")):
        wrong.append(f"error is not {cell.error!r}")
    for name, part in cell.has.items():
        if not any(part in str(one.get(name)) for one in results):
            wrong.append(f"no result has {part!r} in {name!r}")
    return wrong
