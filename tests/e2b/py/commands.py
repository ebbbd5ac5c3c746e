# SPDX-License-Identifier: Apache-2.0
"""Commands: run, wait, kill, input, connect, list; and how they may end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from lib import (SYNC, VERSION, AuthenticationException, CommandExitException, InvalidArgumentException, SandboxException,
                 TimeoutException, fails, first_output, go, until)

SANDBOX = DIRECTORY = True


async def test_a_command_gives_its_output_and_its_exit_code(s, work):
    assert await go(s.is_running())
    result = await go(s.commands.run("echo out; echo err >&2"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "out\n", "err\n") and not result.error, result


async def test_special_characters_and_several_lines_arrive_as_they_are(s, work):
    text = "!@#$%^&*()_+{}|:<>?~`-=[];,./ \"äöü\" 漢字 🦊 \\n"
    assert (await go(s.commands.run(f"cat <<'END'\n{text}\nsecond\nEND"))).stdout == text + "\nsecond\n"
    assert (await go(s.commands.run('echo "$A"', envs={"A": 'ü 漢\n"'}))).stdout == 'ü 漢\n"\n'


async def test_variables_are_those_of_one_command(s, work):
    assert (await go(s.commands.run("echo $OWN", envs={"OWN": "1"}))).stdout == "1\n"
    assert (await go(s.commands.run("echo $OWN"))).stdout == "\n"
    assert (await go(s.commands.run("echo $E2B_SANDBOX $GLOBAL"))).stdout == "true 1\n"


async def test_cwd_is_where_it_runs(s, work):
    home = (await go(s.commands.run("echo ~"))).stdout
    await go(s.files.make_dir(work + "/ü b"))
    assert (await go(s.commands.run("pwd", cwd=work + "/ü b"))).stdout == work + "/ü b\n"
    assert (await go(s.commands.run("pwd", cwd="~"))).stdout == home
    await fails(InvalidArgumentException, lambda: s.commands.run("true", cwd=work + "/none"), f"cwd '{work}/none' does not exist")


async def test_user_is_whose_it_is(s, work):
    assert (await go(s.commands.run("id -un", user="daemon"))).stdout == "daemon\n"
    await fails(AuthenticationException, lambda: s.commands.run("true", user="nobody-here"), "invalid username: 'nobody-here'")


async def test_an_exit_code_that_is_not_0_is_an_error_that_has_the_output(s, work):
    e = await fails(CommandExitException, lambda: s.commands.run("echo out; echo no >&2; exit 3"))
    assert (e.exit_code, e.stdout, e.stderr) == (3, "out\n", "no\n")
    e = await fails(CommandExitException, lambda: s.commands.run("no-such-command"))
    assert e.exit_code == 127 and "command not found" in e.stderr
    e = await fails(CommandExitException, lambda: s.commands.run("kill -TERM $$"))
    assert (e.exit_code, e.error) == (-1, "signal: terminated")


async def test_its_timeout_ends_it_and_the_sandbox_goes_on(s, work):
    await fails(TimeoutException, lambda: s.commands.run(f"echo $$ >{work}/timed; exec sleep 1000", timeout=5))
    pid = (await go(s.files.read(work + "/timed"))).strip()

    async def gone():
        return (await go(s.commands.run(f"test -e /proc/{pid} || echo gone"))).stdout == "gone\n"
    await until(gone)
    assert (await go(s.commands.run("echo on", timeout=0))).stdout == "on\n"


async def test_output_is_there_while_it_runs(s, work):
    handle, text = await first_output(s, f"echo first; until test -e {work}/go; do sleep 0.1; done; echo last")
    assert text == "first\n"
    await go(s.files.write(work + "/go", ""))
    assert (await go(handle.wait())).stdout == "first\nlast\n"


async def test_each_stream_has_its_callback(s, work):
    out, err = [], []
    await go(s.commands.run("seq 3; seq 4 6 >&2", on_stdout=out.append, on_stderr=err.append))
    assert ("".join(out), "".join(err)) == ("1\n2\n3\n", "4\n5\n6\n")


async def test_much_output_is_whole(s, work):
    result = await go(s.commands.run("head -c 5000000 /dev/zero | tr '\\0' x; echo end"))
    assert len(result.stdout) == 5000004 and result.stdout.endswith("xxend\n")


async def test_bytes_that_are_no_utf8_are_replaced_and_a_split_character_is_not(s, work):
    assert (await go(s.commands.run(r"printf '\xff\xc3ok'"))).stdout == "\ufffd\ufffdok"
    assert (await go(s.commands.run(r"printf '\xc3'; sleep 0.3; printf '\xa4'"))).stdout == "ä"


async def test_input_comes_as_a_stream(s, work):
    if not hasattr(s.commands, "stream_input"):
        assert VERSION <= (2, 37)
        return
    handle = await go(s.commands.run("cat", background=True, stdin=True))
    if SYNC:
        s.commands.stream_input(handle.pid, ["a", b"b", "ä\n"])
    else:
        async with s.commands.stream_input(handle.pid) as stream:
            for part in ("a", b"b", "ä\n"):
                await stream.send(part)
    await go(s.commands.close_stdin(handle.pid))
    assert (await go(handle.wait())).stdout == "abä\n"


async def test_one_in_the_background_is_listed_and_killed_once(s, work):
    handle = await go(s.commands.run("sleep 1000", background=True, envs={"MARK": "1"}, cwd=work))
    [listed] = [one for one in await go(s.commands.list()) if one.pid == handle.pid]
    assert (listed.cmd, listed.args, listed.envs, listed.cwd) == ("/bin/bash", ["-l", "-c", "sleep 1000"], {"MARK": "1"}, work)
    assert await go(s.commands.kill(handle.pid)) is True
    e = await fails(CommandExitException, handle.wait)
    assert (e.exit_code, e.error) == (-1, "signal: killed")
    assert await go(s.commands.kill(handle.pid)) is False and await go(s.commands.kill(999999)) is False
    assert handle.pid not in [one.pid for one in await go(s.commands.list())]


async def test_a_client_that_leaves_ends_nothing_and_another_one_can_come(s, work):
    handle = await go(s.commands.run(f"until test -e {work}/again; do sleep 0.1; done; echo later", background=True))
    await go(handle.disconnect())
    again = await go(s.commands.connect(handle.pid))
    assert again.pid == handle.pid
    await go(s.files.write(work + "/again", ""))
    assert (await go(again.wait())).stdout == "later\n"
    assert (await go((await go(s.commands.connect(handle.pid))).wait())).exit_code == 0
    await fails(SandboxException, lambda: s.commands.connect(999999), "not found")


async def test_input_arrives_and_its_end(s, work):
    handle = await go(s.commands.run("cat", background=True, stdin=True))
    for text in ("aä\n", "", "漢\n"):
        await go(s.commands.send_stdin(handle.pid, text))
    await go(s.commands.close_stdin(handle.pid))
    assert (await go(handle.wait())).stdout == "aä\n漢\n"
    handle = await go(s.commands.run("sleep 1000", background=True, stdin=False))
    await fails(SandboxException, lambda: s.commands.send_stdin(handle.pid, "x"), "stdin not enabled or closed")
    assert await go(handle.kill()) is True


async def test_twenty_at_a_time(s, work):
    commands = [f"sleep 0.1; echo {i}" for i in range(20)]
    if SYNC:
        with ThreadPoolExecutor(20) as pool:
            results = list(pool.map(s.commands.run, commands))
    else:
        results = await asyncio.gather(*(s.commands.run(one) for one in commands))
    assert [one.stdout for one in results] == [f"{i}\n" for i in range(20)]
