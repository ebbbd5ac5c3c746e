# SPDX-License-Identifier: Apache-2.0
"""What lets one text of a test do for the SDK with and without asyncio."""

import asyncio
import inspect
import os
import time

import e2b
from e2b import (AuthenticationException, CommandExitException, InvalidArgumentException,  # noqa: F401
                 NotFoundException, SandboxException, TimeoutException)
from e2b.sandbox.commands.command_handle import PtySize  # noqa: F401

SYNC = os.environ["CUBE_SDK_MODE"] == "sync"
Sandbox = e2b.Sandbox if SYNC else e2b.AsyncSandbox
VERSION = tuple(int(part) for part in __import__("importlib.metadata").metadata.version("e2b").split(".")[:2])


async def go(value):
    """What a call gave, now or later."""
    return await value if inspect.isawaitable(value) else value


def create(kind=Sandbox, **options):
    """A sandbox of the template that CUBE_TEMPLATE names, or of the SDK's own."""
    return kind.create(os.environ.get("CUBE_TEMPLATE"), **options)


async def fails(kind, call, text=""):
    try:
        await go(call())
    except kind as e:
        assert text in str(e), e
        return e
    raise AssertionError(f"no {kind.__name__}")


async def until(condition):
    while not await go(condition()):
        time.sleep(0.02) if SYNC else await asyncio.sleep(0.02)


async def collected(parts):
    """The bytes of a stream."""
    if hasattr(parts, "__aiter__"):
        return b"".join([part async for part in parts])
    return b"".join(parts)


async def first_output(sandbox, command):
    """Starts a command, and returns its handle and what it printed first, while it runs."""
    if SYNC:
        handle = sandbox.commands.run(command, background=True)
        return handle, next(iter(handle))[0]
    seen = asyncio.Queue()
    handle = await sandbox.commands.run(command, background=True, on_stdout=seen.put_nowait)
    return handle, await seen.get()


class Watch:
    """Events of a directory, as (type, name)."""

    @classmethod
    async def of(cls, sandbox, path, **options):
        self = cls()
        self.events = []
        if SYNC:
            self.handle = sandbox.files.watch_dir(path, **options)
        else:
            self.handle = await sandbox.files.watch_dir(path, on_event=self.add, **options)
        return self

    def add(self, event):
        self.events.append((event.type.value, event.name))

    async def sees(self, *wanted):
        def look():
            if SYNC:
                for event in self.handle.get_new_events():
                    self.add(event)
            return set(wanted) <= set(self.events)
        await until(look)

    async def stop(self):
        await go(self.handle.stop())


class Terminal:
    """A shell in a terminal, with all that it printed once it has ended."""

    @classmethod
    async def of(cls, sandbox, cols=80, rows=24, **options):
        self = cls()
        self.sandbox, self.text = sandbox, b""
        size = PtySize(cols=cols, rows=rows)
        if SYNC:
            self.handle = sandbox.pty.create(size, **options)
        else:
            self.handle = await sandbox.pty.create(size, on_data=self.add, **options)
        self.pid = self.handle.pid
        return self

    def add(self, data):
        self.text += bytes(data)

    async def type(self, text):
        await go(self.sandbox.pty.send_stdin(self.pid, text.encode()))

    async def wait(self):
        return self.handle.wait(on_pty=self.add) if SYNC else await self.handle.wait()
