# SPDX-License-Identifier: Apache-2.0
"""How an execution comes: in order, as it happens, all of it; and how it ends when somebody or something goes away."""

import json
import os
import pathlib
import re
import signal
import threading

import pytest

import interpreter
from interpreter import wait_for


def test_the_order(server):
    execution = server.run("import sys\nprint('a'); display(1); print('b'); print('c', file=sys.stderr); 2")
    assert execution.kinds[0] == "number_of_executions"
    assert execution.kinds.index("result") > execution.kinds.index("stdout")
    assert [one["text"] for one in execution.results] == ["1", "2"]
    assert execution.stdout == "a\nb\n" and execution.stderr == "c\n"


@pytest.mark.parametrize("language, code", [
    ("python", "import sys\nfor i in range(2):\n    print(i); sys.stdout.flush(); open({fifo!r}).read()"),
    ("javascript", "for (let i = 0; i < 2; i++) {{ console.log(i); require('fs').readFileSync({fifo!r}); }}"),
    ("bash", "for i in 0 1; do echo $i; cat {fifo!r}; done"),
    ("r", "for (i in 0:1) {{ cat(i, '\\n', sep = ''); flush.console(); readLines({fifo!r}) }}"),
])
def test_output_comes_as_it_is_made(server, tmp_path, language, code):
    fifo = server.home / f"fifo-{language}"
    os.mkfifo(fifo)
    response = server.open(code.format(fifo=server.inside(fifo)), language=language)
    for i in range(2):
        assert interpreter.wait_for_output(response)["text"] == f"{i}\n"
        fifo.write_text("")
    interpreter.Execution(response.read())


def test_ten_megabytes(server):
    execution = server.run("for i in range(10):\n    print('é' * 999_999)\nprint('end')")
    assert len(execution.stdout) == 10_000_004 and execution.stdout.endswith("é\nend\n")


@pytest.mark.parametrize("language, code", [
    ("python", "for i in range(20000): print(i)"),
    ("javascript", "for (let i = 0; i < 20000; i++) console.log(i)"),
    ("bash", "for ((i = 0; i < 20000; i++)); do echo $i; done"),
])
def test_many_small_pieces(server, language, code):
    assert server.run(code, language=language).stdout == "".join(f"{i}\n" for i in range(20000))


def test_many_results(server):
    execution = server.run("for i in range(3000): display(i)")
    assert [one["text"] for one in execution.results] == [str(i) for i in range(3000)]


def test_a_kernel_that_drops_that_it_is_idle_ends_all_the_same(server):
    assert server.run("for (i in 1:20000) print(i)", language="r").stdout.startswith("[1] 1\n")
    assert server.run("1", language="r").results[0]["text"] == "[1] 1"


def test_too_much_for_a_client_that_does_not_read():
    with interpreter.Server("--max-output", "1") as small:
        execution = small.run("x = 1; 'x' * (2 << 20)")
        assert execution.error["name"] == "OutputLimit" and "1 MiB" in execution.error["value"]
        response = small.open("while True: print('y' * 100_000)")
        # Only the end shows that it was stopped: what nobody reads, fills the sockets first.
        wait_for("the loop to end", lambda: small.run("x").main["text"] == "1")
        assert interpreter.Execution(response.read()).error["name"] == "OutputLimit"


def test_who_prints_faster_than_it_is_read_waits(server, python_context):
    """600 MB, which a kernel that does not wait would keep: more than a small guest has."""
    pid = server.run("import os; os.getpid()", context_id=python_context).main["text"]
    response = server.open("for i in range(6000): print('y' * 100_000)", context_id=python_context)
    received = sum(len(chunk) for chunk in iter(lambda: response.read(1 << 20), b""))
    assert received > 600_000_000
    # a chroot has the pids of its host
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) < 300_000


def test_a_silent_execution_says_that_it_is_there():
    with interpreter.Server("--keepalive", "0.2") as quick:
        response = quick.open("input_is_awaited = True; import time; time.sleep(1000)")
        # its kernel may take its time, too
        while json.loads(response.readline())["type"] != "number_of_executions":
            pass
        assert [json.loads(response.readline())["type"] for _ in range(3)] == ["keepalive"] * 3
        interpreter.go_away(response)
        assert quick.run("input_is_awaited").main["text"] == "True"


LOOPS = [
    ("python", "print('on', flush=True)\nwhile True: pass"),
    ("python", "print('on', flush=True)\nimport time; time.sleep(1000)"),
    ("python", "print('on', flush=True)\n!sleep 1000"),
    ("javascript", "console.log('on'); for (;;);"),
    ("javascript", "console.log('on'); await new Promise(() => setInterval(() => {}, 1000))"),
    ("javascript", "console.log('on'); require('child_process').execSync('sleep 1000')"),
    ("bash", "echo on; while :; do :; done"),
    ("bash", "echo on; f() { sleep 1000; }; for i in 1 2; do f; done; echo no"),
    ("r", "cat('on\\n'); flush.console(); repeat {}"),
    ("r", "cat('on\\n'); flush.console(); Sys.sleep(1000)"),
]
KEEP = {"python": "kept = 7", "javascript": "kept = 7", "bash": "kept=7", "r": "kept <- 7"}
SHOW = {"python": "print(kept)", "javascript": "console.log(kept)", "bash": "echo $kept", "r": "cat(kept, '\\n', sep = '')"}


@pytest.mark.parametrize("language, code", LOOPS)
def test_who_goes_away_interrupts(server, language, code):
    server.run(KEEP[language], language=language)
    server.leave(code, language=language)
    assert server.run(SHOW[language], language=language).stdout == "7\n"


def test_who_goes_away_while_waiting_runs_nothing(server, python_context):
    turn = server.home / "turn"
    os.mkfifo(turn)
    first = server.open(f"print('on', flush=True); n = 0; open({server.inside(turn)!r}).read()", context_id=python_context)
    interpreter.wait_for_output(first)
    waiting = server.open("n += 1", context_id=python_context)
    interpreter.go_away(waiting)
    # an answer to somebody who came later: the server knows of what was before
    assert server.call("GET", "/health") == (200, "OK")
    turn.write_text("")
    interpreter.Execution(first.read())
    assert server.run("n", context_id=python_context).main["text"] == "0"


def test_what_does_not_obey_is_killed():
    with interpreter.Server("--interrupt-timeout", "0.5") as strict:
        strict.leave("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                     "print('on', flush=True)\nwhile True: time.sleep(1)")
        assert strict.run("1 + 1").main["text"] == "2"


def test_others_do_not_wait(server, python_context):
    response = server.open("print('on', flush=True); import time; time.sleep(1000)", context_id=python_context)
    assert server.run("1 + 1").main["text"] == "2"
    interpreter.go_away(response)


def test_executions_of_a_context_follow_each_other(server, python_context):
    server.run("order = []", context_id=python_context)
    executions = [server.open(f"import time; order.append({i}); time.sleep(0.05); order.append({i})",
                              context_id=python_context) for i in range(5)]
    counts = [interpreter.Execution(one.read()).count for one in executions]
    order = server.run("print(order)", context_id=python_context).stdout
    pairs = json.loads(order)
    assert pairs[::2] == pairs[1::2] and sorted(pairs[::2]) == list(range(5)) and sorted(counts) == list(range(2, 7))


def test_many_clients(server):
    answers = {}

    def client(i):
        answers[i] = server.run(f"{i} * 2").main["text"]
    threads = [threading.Thread(target=client, args=(i,)) for i in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert answers == {i: str(2 * i) for i in range(50)}


@pytest.mark.parametrize("code, how", [
    ("import os; os._exit(3)", "ended with exit status 3"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by signal SIGSEGV"),
])
def test_a_kernel_that_ends_is_replaced(server, python_context, code, how):
    server.run("x = 1", context_id=python_context)
    execution = server.run(code, context_id=python_context)
    assert execution.error["name"] == "UnexpectedEndOfExecution"
    assert how in execution.error["value"] and "another one was started" in execution.error["value"]
    execution = server.run("x", context_id=python_context)
    assert (execution.count, execution.error["name"]) == (1, "NameError")


def test_a_kernel_that_ended_between_two_executions_is_replaced(server):
    before = server.pids()
    context = server.context()
    [pid] = server.pids() - before
    os.kill(pid, signal.SIGKILL)
    wait_for("its end to be seen", lambda: server.pids() == before)
    assert server.run("1 + 1", context_id=context).main["text"] == "2"
    server.call("DELETE", f"/contexts/{context}")


@pytest.mark.parametrize("language, code, how", [
    ("javascript", "process.exit(3)", "node ended (exit status 3)"),
    ("javascript", "process.abort()", "node ended (signal 6)"),
    ("bash", "kill -KILL $$", "the shell ended (signal 9)"),
])
def test_a_child_that_ends_is_replaced(server, language, code, how):
    assert how in server.run(code, language=language).error["value"]
    assert server.run({"javascript": "1 + 1", "bash": "echo $((1 + 1))"}[language], language=language).error is None


def test_an_uncaught_error_of_a_timer_ends_nothing(server):
    server.run("""here = 1; now = false
fired = new Promise((resolve) => {
    const timer = setInterval(() => { if (now) { clearInterval(timer); resolve(2); throw new Error('late') } }, 10)
}); 0""", language="js")
    execution = server.run("now = true; await fired; await new Promise((resolve) => setTimeout(resolve, 1)); here", language="js")
    assert execution.main["text"] == "1" and "late" in execution.stderr


def test_the_end_of_the_server_ends_its_kernels(tmp_path):
    with interpreter.Server() as short:
        pids = short.pids()
        assert len(pids) == 2
    assert short.process.returncode == 0 and short.stderr == ""
    assert not any(alive(pid) for pid in pids)


def test_a_server_that_is_killed_leaves_no_kernel():
    with interpreter.Server() as short:
        node = int(short.run("process.pid", language="js").main["text"])
        interpreter.wait_for_output(short.open(
            "console.log(1); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", language="js"))
        pids = short.pids() | {node}
        assert all(alive(pid) for pid in pids)
        short.process.send_signal(signal.SIGKILL)
        wait_for("its kernels to end", lambda: not any(alive(pid) for pid in pids))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
