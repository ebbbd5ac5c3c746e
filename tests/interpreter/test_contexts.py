# SPDX-License-Identifier: Apache-2.0
"""Contexts: what is kept in them, and apart from each other."""

import pathlib
import re

import pytest

import interpreter


def test_the_defaults_are_there_from_the_start(server):
    status, contexts = server.call("GET", "/contexts")
    assert status == 200
    assert [(one["language"], one["cwd"]) for one in contexts[:2]] == \
        [("python", server.inside(server.home)), ("javascript", server.inside(server.home))]
    assert all(re.fullmatch(r"[0-9a-f-]{36}", one["id"]) for one in contexts)


def test_the_first_cell_of_a_server_starts_no_python():
    with interpreter.Server() as fresh:
        before = fresh.pids()
        execution = fresh.run("import sys\nprint(1, 'pandas' in sys.modules)")
        assert (execution.count, execution.stdout) == (1, "1 True\n")
        assert fresh.pids() == before
        assert fresh.run("[name for name in dir() if name[0] != '_']").main["text"] == \
            "['In', 'Out', 'exit', 'get_ipython', 'quit', 'sys']"


def test_they_know_nothing_of_each_other(server, python_context):
    server.run("only_here = 1", context_id=python_context)
    assert server.run("only_here", context_id=python_context).main["text"] == "1"
    assert server.run("only_here").error["name"] == "NameError"


def test_each_counts_by_itself(server, python_context):
    assert [server.run(code, context_id=python_context).count for code in ("1", "x", "1 +", "2")] == [1, 2, 3, 4]


@pytest.mark.parametrize("language, code", [("python", "import os; os.getcwd()"), ("js", "process.cwd()"),
                                            (" TS ", "process.cwd()"), ("R", "getwd()"), ("bash", "pwd")])
def test_directory(server, language, code):
    (server.home / "deep er").mkdir(exist_ok=True)
    cwd = server.inside(server.home / "deep er")
    status, context = server.call("POST", "/contexts", {"language": language, "cwd": cwd})
    assert status == 200 and context["cwd"] == cwd
    execution = server.run(code, context_id=context["id"])
    assert cwd in execution.stdout + "".join(one["text"] for one in execution.results)
    assert server.call("DELETE", f"/contexts/{context['id']}") == (200, None)


def test_a_context_needs_no_body(server):
    status, context = server.call("POST", "/contexts")
    assert status == 200 and context["language"] == "python"
    assert server.call("GET", "/contexts")[1][-1] == context
    assert server.call("DELETE", f"/contexts/{context['id']}") == (200, None)


def test_a_removed_one_is_gone(server):
    before = server.pids()
    context = server.context()
    [pid] = server.pids() - before
    assert pathlib.Path(f"/proc/{pid}").exists()
    assert server.call("DELETE", f"/contexts/{context}") == (200, None)
    assert server.pids() == before
    assert not pathlib.Path(f"/proc/{pid}").exists()
    for method, path, body in (("DELETE", f"/contexts/{context}", None), ("POST", f"/contexts/{context}/restart", ""),
                               ("POST", "/execute", {"code": "1", "context_id": context})):
        assert server.call(method, path, body) == (404, f"Context {context} not found")


def test_a_restart_loses_the_variables_and_keeps_the_directory(server):
    cwd = server.inside(server.home)
    context = server.context(cwd=cwd)
    server.run("x = 1; import os; os.chdir('/')", context_id=context)
    assert server.call("POST", f"/contexts/{context}/restart", "") == (200, None)
    execution = server.run("x", context_id=context)
    assert (execution.count, execution.error["value"]) == (1, "name 'x' is not defined")
    assert server.run("os = __import__('os'); os.getcwd()", context_id=context).main["text"] == cwd
    server.call("DELETE", f"/contexts/{context}")


def test_a_restart_ends_what_runs(server, python_context):
    response = server.open("print('on', flush=True); import time; time.sleep(1000)", context_id=python_context)
    interpreter.wait_for_output(response)
    assert server.call("POST", f"/contexts/{python_context}/restart", "") == (200, None)
    execution = interpreter.Execution(response.read())
    assert execution.error["name"] == "ContextRestarting"


def test_a_removal_ends_what_runs_and_what_waits(server):
    context = server.context()
    first = server.open("print('on', flush=True); import time; time.sleep(1000)", context_id=context)
    interpreter.wait_for_output(first)
    second = server.open("1", context_id=context)
    assert server.call("DELETE", f"/contexts/{context}") == (200, None)
    for response in (first, second):
        assert interpreter.Execution(response.read()).error["name"] == "UnexpectedEndOfExecution"


def test_a_default_that_was_removed_is_made_again(server):
    [old] = [one["id"] for one in server.call("GET", "/contexts")[1] if one["language"] == "typescript"] or \
        [server.run("1", language="ts") and next(one["id"] for one in server.call("GET", "/contexts")[1]
                                                if one["language"] == "typescript")]
    server.call("DELETE", f"/contexts/{old}")
    assert server.run("40 + 2", language="ts").main["text"] == "42"


@pytest.mark.parametrize("fields, message", [
    ({"language": "java"}, 'Language "java" is not supported; there are: python, javascript, typescript, r, bash'),
    ({"cwd": "/no/such"}, "The directory /no/such does not exist"),
])
def test_what_can_not_be_made(server, fields, message):
    status, text = server.call("POST", "/contexts", fields)
    assert status == 500 and message in text


def test_no_more_than_allowed():
    with interpreter.Server("--max-contexts", "2") as small:
        status, text = small.call("POST", "/contexts", {})
        assert status == 500 and "There are 2 contexts, and no more are allowed" in text
        [first, _] = small.call("GET", "/contexts")[1]
        small.call("DELETE", f"/contexts/{first['id']}")
        assert small.call("POST", "/contexts", {"language": "bash"})[0] == 200


# Environment variables.

READ = {"python": "import os; print(os.environ.get('CELL', 'none'))", "javascript": "console.log(process.env.CELL ?? 'none')",
        "bash": "echo \"${CELL-none}\"", "r": "cat(Sys.getenv('CELL', unset = 'none')); cat('\\n')"}
VALUE = "it's \"odd\" $HOME `x` \\ é𝄞\n2"


@pytest.mark.parametrize("language", READ)
def test_a_variable_holds_for_one_cell(server, language):
    assert server.run(READ[language], language=language, env_vars={"CELL": VALUE}).stdout == VALUE + "\n"
    assert server.run(READ[language], language=language).stdout == "none\n"


@pytest.mark.parametrize("language, own", [("python", "os.environ['CELL'] = 'own'"), ("javascript", "process.env.CELL = 'own'"),
                                           ("bash", "export CELL=own"), ("r", "Sys.setenv(CELL = 'own')")])
def test_what_it_covered_comes_back(server, language, own):
    context = server.context(language=language)
    server.run(f"import os; {own}" if language == "python" else own, context_id=context)
    assert server.run(READ[language], context_id=context, env_vars={"CELL": "covered"}).stdout == "covered\n"
    assert server.run(READ[language], context_id=context).stdout == "own\n"
    server.call("DELETE", f"/contexts/{context}")


def test_a_variable_is_gone_after_an_error(server):
    assert server.run("1 / 0", env_vars={"CELL": "x"}).error
    assert server.run(READ["python"]).stdout == "none\n"
