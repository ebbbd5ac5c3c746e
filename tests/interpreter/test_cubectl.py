# SPDX-License-Identifier: Apache-2.0
"""cubectl code against the server: over the bus, through the agent's own code, to real kernels."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest
from PIL import Image

import interpreter

sys.path.append(str(pathlib.Path(__file__).parents[1] / "dbus"))
import bushost  # noqa: E402

PORT = 49999
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], 'r')\nplt.show()"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    why = bushost.missing()
    if why:
        pytest.skip(why)
    with bushost.started_host(tmp_path_factory.mktemp("bus"), own_network=True) as host:
        # where the guests of this host find it
        with interpreter.Server(network=f"/proc/{host.cubed.pid}/ns/net", port=PORT):
            yield host


@pytest.fixture
def sandbox(host):
    i = host.create("--template", "code-interpreter")
    yield i
    host.ctl("kill", i)


def code(host, text, *options, **kwargs):
    return host.ctl("code", *options, "-", input=text, **kwargs)


def test_a_new_sandbox(host):
    result = code(host, "print('é𝄞'); import sys; print('e', file=sys.stderr); 6 * 7")
    assert (result.stdout, result.stderr, result.returncode) == ("é𝄞\n42\n", "e\n", 0)
    assert host.ids() == []


@pytest.mark.parametrize("name, text, stdout", [
    ("a.py", "sum(range(10))", "45\n"), ("a.js", "[1, 2].map((x) => x * 2)", "[ 2, 4 ]\n"), ("a.ts", "const n: number = 3; n", "3\n"),
    ("a.sh", "echo $((6 * 7))", "42\n"), ("a.R", "print(mean(c(1, 2)))", "[1] 1.5\n"),
])
def test_languages(host, sandbox, tmp_path, name, text, stdout):
    (tmp_path / name).write_text(text)
    result = host.ctl("code", "--sandbox", sandbox, tmp_path / name)
    assert (result.stdout, result.stderr, result.returncode) == (stdout, "", 0)


def test_errors(host, sandbox):
    result = code(host, "def f():\n    return 1 / 0\nf()", "--sandbox", sandbox)
    assert result.returncode == 1 and result.stdout == ""
    assert "----> 3 f()" in result.stderr and result.stderr.endswith("ZeroDivisionError: division by zero\n")
    result = code(host, "ls /nowhere", "--sandbox", sandbox, "--language", "bash")
    assert result.returncode == 1 and "/nowhere" in result.stderr


def test_a_picture_is_a_file(host, sandbox, tmp_path):
    result = code(host, PLOT, "--sandbox", sandbox, cwd=tmp_path)
    assert result.stdout.startswith("<Figure") and result.stderr == "result-1.png\n"
    picture = Image.open(tmp_path / "result-1.png").convert("RGB")
    assert picture.size[0] > 300 and (255, 0, 0) in [colour for _, colour in picture.getcolors(1 << 20)]


def test_all_forms_of_a_table(host, sandbox, tmp_path):
    result = code(host, "import pandas\npandas.DataFrame({'a': [1, 2]})", "--sandbox", sandbox, "--output", tmp_path / "out")
    assert result.stdout.split() == ["a", "0", "1", "1", "2"] and result.returncode == 0
    assert "<table" in (tmp_path / "out/result-1.html").read_text()
    assert json.loads((tmp_path / "out/result-1.data.json").read_text()) == {"a": [1, 2]}


def test_contexts_are_apart(host, sandbox):
    code(host, "x = 'default'", "--sandbox", sandbox)
    made = code(host, "x = 'new'", "--sandbox", sandbox, "--context", "new")
    context = made.stderr.split()[1]
    assert made.stderr == f"Context {context}\n"
    assert code(host, "x", "--sandbox", sandbox, "--context", context).stdout == "new\n"
    assert code(host, "x", "--sandbox", sandbox).stdout == "default\n"
    result = code(host, "x", "--sandbox", sandbox, "--context", "no-such")
    assert result.returncode == 255 and "Context no-such not found" in result.stderr


def test_a_variable_holds_for_one_cell(host, sandbox):
    assert code(host, "import os; os.environ['V']", "--sandbox", sandbox, "-e", "V=it's").stdout == "it's\n"
    assert code(host, "os.environ.get('V')", "--sandbox", sandbox).stdout == ""


def test_ten_megabytes(host, sandbox):
    result = code(host, "for i in range(10): print('é' * 999_999)", "--sandbox", sandbox)
    assert result.stdout == ("é" * 999_999 + "\n") * 10


def test_who_is_ended_interrupts_the_cell(host, sandbox):
    code(host, "kept = 7", "--sandbox", sandbox)
    p = subprocess.Popen([bushost.CUBECTL, "code", "--sandbox", sandbox, "-"], env=host.env, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    p.stdin.write("print('on', flush=True)\nwhile True: pass")
    p.stdin.close()
    assert p.stdout.readline() == "on\n"
    p.send_signal(signal.SIGTERM)
    p.wait(300)
    assert code(host, "kept", "--sandbox", sandbox).stdout == "7\n"


def test_a_language_that_there_is_not(host, sandbox):
    result = code(host, "1", "--sandbox", sandbox, "--language", "java")
    assert result.returncode == 255 and 'Language "java" is not supported; there are: python' in result.stderr
