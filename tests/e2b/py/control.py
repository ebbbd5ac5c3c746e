# SPDX-License-Identifier: Apache-2.0
"""The control plane: a sandbox from its creation to its end, pauses, snapshots, forks, lists, and what is refused."""

import os
import secrets
from datetime import datetime, timezone

import e2b
from e2b import SandboxQuery, SandboxState
from lib import (AuthenticationException, NotFoundException, Sandbox, SandboxException, SYNC, TimeoutException,
                 VERSION, create, fails, go)

SANDBOX = False


def left(info):
    return (info.end_at - datetime.now(timezone.utc)).total_seconds()


async def test_create_info_timeout_kill():
    metadata = {"k 1": "v&=2", "ü": "x"}
    s = await go(create(metadata=metadata, timeout=60, envs={"GREETING": "hi"}))
    assert await go(s.is_running())
    assert (await go(s.commands.run("echo $GREETING $E2B_SANDBOX_ID"))).stdout == f"hi {s.sandbox_id}\n"
    info = await go(s.get_info())
    assert (info.sandbox_id, info.state, info.metadata) == (s.sandbox_id, SandboxState.RUNNING, metadata), info
    assert left(info) <= 61 and info.cpu_count >= 1 and info.memory_mb >= 1
    await go(s.set_timeout(600))
    assert left(await go(Sandbox.get_info(s.sandbox_id))) > 300
    again = await go(Sandbox.connect(s.sandbox_id, timeout=10))
    assert left(await go(again.get_info())) > 300
    assert (await go(again.commands.run("echo same"))).stdout == "same\n"
    assert await go(s.kill()) is True and await go(s.kill()) is False and not await go(s.is_running())
    await fails(NotFoundException, lambda: Sandbox.get_info(s.sandbox_id))
    await fails(TimeoutException, lambda: s.commands.run("true"))
    assert await go(Sandbox.kill("nonexistingsandbox")) is False


async def test_a_list_has_pages_an_order_and_filters():
    metadata = {"list": secrets.token_hex(8)}
    first, second, third = [await go(create(metadata=metadata)) for _ in range(3)]

    async def listed(limit=None, **query):
        pages, items = Sandbox.list(query=SandboxQuery(metadata=metadata, **query), limit=limit), []
        while pages.has_next:
            items += [one.sandbox_id for one in await go(pages.next_items())]
        return items
    every = [one.sandbox_id for one in (third, second, first)]
    assert await listed() == await listed(limit=1) == every
    await go(second.pause())
    assert await listed(state=[SandboxState.RUNNING]) == [third.sandbox_id, first.sandbox_id]
    assert await listed(state=[SandboxState.PAUSED]) == [second.sandbox_id]
    for one in (first, second, third):
        assert await go(one.kill()) is True
    assert await listed() == []


async def test_pause_and_resume_keep_programs():
    s = await go(create(envs={"KEPT": "yes"}))
    sleeper = await go(s.commands.run("sleep 1000", background=True, timeout=0))
    await go(s.pause())
    assert (await go(s.get_info())).state == SandboxState.PAUSED and not await go(s.is_running())
    again = await go(Sandbox.connect(s.sandbox_id))
    assert (await go(again.commands.run("echo $KEPT"))).stdout == "yes\n"
    assert sleeper.pid in [one.pid for one in await go(again.commands.list())]
    assert (await go(s.commands.run("echo same"))).stdout == "same\n"
    assert await go(s.kill()) is True


async def test_snapshots_make_sandboxes_until_they_are_deleted():
    s = await go(create())
    snapshot = await go(s.create_snapshot())
    assert snapshot.snapshot_id in [one.snapshot_id for one in await go(Sandbox.list_snapshots().next_items())]
    copy = await go(Sandbox.create(snapshot.snapshot_id))
    assert (await go(copy.commands.run("echo $E2B_SANDBOX_ID"))).stdout == copy.sandbox_id + "\n"
    assert await go(copy.kill()) and await go(s.kill())
    assert await go(Sandbox.delete_snapshot(snapshot.snapshot_id)) is True
    assert await go(Sandbox.delete_snapshot(snapshot.snapshot_id)) is False


async def test_forks():
    if VERSION < (2, 46):
        return
    s = await go(create())
    forks = await go(s.fork(count=2))
    assert len({one.sandbox_id for one in [s, *forks]}) == 3
    for one in forks:
        assert (await go(one.commands.run("echo $E2B_SANDBOX_ID"))).stdout == one.sandbox_id + "\n"
        assert await go(one.kill()) is True
    assert await go(s.kill()) is True


async def test_metrics():
    s = await go(create())
    one = (await go(s.get_metrics()))[0]
    assert one.cpu_count >= 1 and one.mem_total > one.mem_used > 0 and one.disk_total > 0, one
    assert await go(s.kill()) is True


async def test_which_templates_there_are():
    kind = e2b.Template if SYNC else e2b.AsyncTemplate
    assert await go(kind.exists(os.environ.get("CUBE_TEMPLATE", "base"))) is True
    assert await go(kind.exists("no-such-template")) is False


async def test_what_is_refused_and_how():
    await fails(SandboxException, lambda: Sandbox.create("no-such-template"), "404: template 'no-such-template' not found")
    await fails(SandboxException, lambda: create(timeout=10**6), "400: Timeout cannot be greater than")
    await fails(AuthenticationException, lambda: create(api_key="e2b_" + "0" * 40))
    await fails(NotFoundException, lambda: Sandbox.connect("nonexistingsandbox"))
    await fails(NotFoundException, lambda: Sandbox.set_timeout("nonexistingsandbox", 10))
