# SPDX-License-Identifier: Apache-2.0
"""Terminals."""

from lib import CommandExitException, PtySize, Terminal, fails, go

SANDBOX = DIRECTORY = True


async def test_a_shell_in_a_terminal_that_is_resized(s, work):
    one = await Terminal.of(s, envs={"OWN": "2"}, cwd=work)
    await go(s.pty.resize(one.pid, PtySize(cols=100, rows=30)))
    await one.type("stty size; echo $TERM-$OWN; pwd; exit\n")
    assert (await one.wait()).exit_code == 0
    for text in (b"30 100", b"xterm-256color-2", work.encode()):
        assert text in one.text, one.text


async def test_its_exit_code_is_that_of_the_shell(s, work):
    one = await Terminal.of(s)
    await one.type("exit 5\n")
    assert (await fails(CommandExitException, one.wait)).exit_code == 5


async def test_kill_once(s, work):
    one = await Terminal.of(s)
    assert await go(s.pty.kill(one.pid)) is True
    await fails(CommandExitException, one.wait)
    assert await go(s.pty.kill(one.pid)) is False
