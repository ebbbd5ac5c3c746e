# SPDX-License-Identifier: Apache-2.0
"""A sandbox from its creation to its end, with a Linux of its own."""

import os

from lib import CommandExitException, Sandbox, TimeoutException, create, fails, go

SANDBOX = False


async def test_a_life():
    s = await go(create(timeout=3600, envs={"GREETING": "hello"}, metadata={"who": "test"}))
    assert await go(s.is_running())
    result = await go(s.commands.run("id -un; pwd; echo $GREETING $E2B_SANDBOX_ID; uname -n"))
    user, home, greeting, own_id, name = result.stdout.split()
    assert (user, home, greeting, own_id) == ("user", "/home/user", "hello", s.sandbox_id), result
    assert name != os.uname().nodename
    assert (await fails(CommandExitException, lambda: s.commands.run("exit 3"))).exit_code == 3
    data = os.urandom(3_000_000)
    assert (await go(s.files.write("d/f ü", data))).path == "/home/user/d/f ü"
    assert bytes(await go(s.files.read("d/f ü", format="bytes"))) == data
    assert [(one.name, one.owner) for one in await go(s.files.list("d"))] == [("f ü", "user")]
    sleeper = await go(s.commands.run("sleep 10000", background=True, timeout=0))
    await go(s.pause())
    assert not await go(s.is_running())
    again = await go(Sandbox.connect(s.sandbox_id, timeout=3600))
    assert sleeper.pid in [one.pid for one in await go(again.commands.list())]
    assert bytes(await go(again.files.read("d/f ü", format="bytes"))) == data
    assert (await go(again.get_info())).metadata == {"who": "test"}
    assert await go(again.kill()) is True and await go(s.kill()) is False and not await go(s.is_running())
    await fails(TimeoutException, lambda: s.commands.run("true"))
