# SPDX-License-Identifier: Apache-2.0
"""A little of everything, for versions whose every call the other files would be too long for."""

from lib import CommandExitException, NotFoundException, Terminal, TimeoutException, Watch, fails, go

SANDBOX = DIRECTORY = True


async def test_a_command(s, work):
    result = await go(s.commands.run("echo out; echo err >&2; echo $OWN", envs={"OWN": "ü"}, cwd=work))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "out\nü\n", "err\n"), result


async def test_a_command_that_fails(s, work):
    e = await fails(CommandExitException, lambda: s.commands.run("echo no >&2; exit 3"))
    assert (e.exit_code, e.stderr) == (3, "no\n")


async def test_a_command_that_takes_too_long(s, work):
    await fails(TimeoutException, lambda: s.commands.run("sleep 1000", timeout=0.5))


async def test_one_in_the_background_with_input_listed_and_killed(s, work):
    handle = await go(s.commands.run("cat", background=True, stdin=True))
    await go(s.commands.send_stdin(handle.pid, "ä\n"))
    assert handle.pid in [one.pid for one in await go(s.commands.list())]
    assert await go(s.commands.kill(handle.pid)) is True
    await fails(CommandExitException, handle.wait)
    assert await go(s.commands.kill(handle.pid)) is False


async def test_a_client_that_leaves_and_comes_again(s, work):
    handle = await go(s.commands.run(f"until test -e {work}/go; do sleep 0.1; done; echo later", background=True))
    await go(handle.disconnect())
    again = await go(s.commands.connect(handle.pid))
    await go(s.files.write(work + "/go", ""))
    assert (await go(again.wait())).stdout == "later\n"


async def test_files_are_written_and_read(s, work):
    path = work + "/d/f ü.txt"
    assert (await go(s.files.write(path, "hello"))).path == path
    assert await go(s.files.read(path)) == "hello"
    await go(s.files.write(work + "/large", b"\xfa" * 1000000))
    assert bytes(await go(s.files.read(work + "/large", format="bytes"))) == b"\xfa" * 1000000
    many = await go(s.files.write_files([{"path": work + "/1", "data": "1"}, {"path": work + "/2", "data": b"\xff"}]))
    assert [one.name for one in many] == ["1", "2"]
    await fails(NotFoundException, lambda: s.files.read(work + "/none"))


async def test_directories(s, work):
    assert await go(s.files.make_dir(work + "/new/deep")) is True and await go(s.files.make_dir(work + "/new/deep")) is False
    await go(s.files.write(work + "/new/f", "x"))
    assert [(one.name, one.type.value) for one in await go(s.files.list(work + "/new"))] == [("deep", "dir"), ("f", "file")]
    assert (await go(s.files.rename(work + "/new/f", work + "/new/g"))).name == "g"
    await go(s.files.remove(work + "/new"))
    assert not await go(s.files.exists(work + "/new"))


async def test_watching(s, work):
    watch = await Watch.of(s, work)
    await go(s.files.write(work + "/watched", "x"))
    await watch.sees(("create", "watched"), ("write", "watched"))
    await watch.stop()


async def test_a_terminal(s, work):
    one = await Terminal.of(s)
    await one.type("stty size; exit\n")
    assert (await one.wait()).exit_code == 0 and b"24 80" in one.text, one.text


async def test_the_sandbox_is_running(s, work):
    assert await go(s.is_running())
