# SPDX-License-Identifier: Apache-2.0
"""The hook that runs in each copy of a machine: warm kernels must not draw the same numbers in all of them."""

import os
import signal
import subprocess

import pytest

import interpreter

HOOK = interpreter.SOURCE / "fork.d/50-code-interpreter"
SEED = "import random, numpy\nrandom.seed(1); numpy.random.seed(1)"
DRAW = "(random.random(), numpy.random.random())"
FIRST = "(0.13436424411240122, 0.417022004702574)"


def hook(directory):
    subprocess.run([HOOK, directory], check=True, timeout=120)


@pytest.mark.parametrize("code, same", [("True", True), ("False", False)], ids=["without-it", "with-it"])
def test_what_was_seeded_is_seeded_anew(server, code, same):
    server.run(SEED)
    if not same:
        hook(server.runtime_dir)
    assert (server.run(DRAW).main["text"] == FIRST) == same


def test_a_cell_that_runs_sees_it_too(server):
    fifo = server.home / "copied"
    os.mkfifo(fifo)
    response = server.open(f"{SEED}\nprint('on', flush=True)\nopen({server.inside(fifo)!r}).read()\n{DRAW}")
    interpreter.wait_for_output(response)
    hook(server.runtime_dir)
    fifo.write_text("")
    lines = [interpreter.json.loads(line) for line in response.read().splitlines()]
    [result] = [line for line in lines if line["type"] == "result"]
    assert result["text"] != FIRST


def test_no_process_without_a_handler_is_ended(tmp_path):
    (tmp_path / "pids").mkdir()
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        (tmp_path / "pids" / str(bystander.pid)).touch()
        hook(tmp_path)
        assert bystander.poll() is None
        bystander.send_signal(signal.SIGTERM)
        assert bystander.wait(120) == -signal.SIGTERM


def test_nobody_there(tmp_path):
    hook(tmp_path)
    (tmp_path / "pids").mkdir()
    hook(tmp_path)
    (tmp_path / "pids" / "999999999").touch()
    hook(tmp_path)


@pytest.mark.parametrize("language, code", [("javascript", "Math.random()"), ("bash", "echo $RANDOM")])
def test_what_can_not_be_seeded_starts_with_the_first_cell(language, code):
    with interpreter.Server() as fresh:
        if language != "javascript":
            fresh.context(language=language)
        children = subprocess.run(["pgrep", "-g", ",".join(map(str, fresh.pids()))], stdout=subprocess.PIPE, check=True)
        assert {int(pid) for pid in children.stdout.split()} == fresh.pids()
        assert fresh.run(code, language=language).error is None
