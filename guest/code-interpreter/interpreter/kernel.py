# SPDX-License-Identifier: Apache-2.0
"""One Jupyter kernel: a process, the sockets to it, and the execution that it is at.

Belongs to a context, which lets one execution at a time in. What the kernel sends is always read, whether or not
somebody waits for it: it would be lost otherwise. A kernel that ended is known by its pidfd; nothing polls.
"""

import asyncio
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from . import results
from .execution import Execution
from .languages import R_RESTORE_ENV, Language, r_set_env
from .settings import Settings


IDLE_SECONDS = 2.0
INTERRUPTS = 3
MAX_MESSAGES = 64


class KernelFailed(Exception):
    """It did not start, or is no more."""


class Specs(KernelSpecManager):
    """Ours alone: what kernels the image has besides is none of our business."""

    def __init__(self, language: Language) -> None:
        super().__init__()
        self._spec = KernelSpec(argv=language.argv, language=language.name, display_name=language.name)

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return self._spec


class Request:
    """An execute_request under way: done when the kernel is idle again and has replied."""

    def __init__(self, msg_id: str, sink: Execution | None) -> None:
        self.msg_id = msg_id
        self.sink = sink
        self.done = asyncio.Event()
        self.error: results.Event | None = None
        self._idle = self._replied = False
        self._heard = 0.0

    def put(self, event: results.Event) -> None:
        if event["type"] == "error":
            # The broadcast and the reply say the same.
            if self.error:
                return
            self.error = event
        if self.sink:
            self.sink.put(event)

    def on_message(self, message: Mapping[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        self._heard = time.monotonic()
        if kind == "execute_input":
            self.put(results.count(content["execution_count"]))
        elif kind == "stream":
            self.put(results.stream(content["name"], content["text"], message["header"]["date"].isoformat()))
        elif kind in ("execute_result", "display_data", "update_display_data"):
            self.put(results.result(content["data"], kind == "execute_result"))
        elif kind == "error":
            self.put(results.kernel_error(content))
        elif kind == "status" and content["execution_state"] == "idle":
            self._idle = True
        elif kind == "execute_reply":
            if content["status"] == "error":
                self.put(results.kernel_error(content))
            elif content["status"] == "aborted":
                self.put(results.error("ExecutionAborted", "Execution was aborted"))
            self._replied = True
            self._expect_idle()
        if self._idle and self._replied:
            self.done.set()

    def _expect_idle(self) -> None:
        """R's kernel drops broadcasts when it sends too many at once, that it is idle among them."""
        if time.monotonic() - self._heard >= IDLE_SECONDS:
            self.done.set()
        elif not self.done.is_set():
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._expect_idle)


class Kernel:
    def __init__(self, language: Language, cwd: str, settings: Settings) -> None:
        self.language = language
        self.cwd = cwd
        self._settings = settings
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._manager: AsyncKernelManager | None = None
        self._client: Any = None
        self._readers: list[asyncio.Task[None]] = []
        self._process: Any = None
        self._pid = -1
        self._pidfd = -1
        self._ended = asyncio.Event()
        self._request: Request | None = None

    @property
    def alive(self) -> bool:
        return self._manager is not None and not self._ended.is_set()

    async def start(self, warm: bool = False) -> None:
        """Anew, whatever was before. Warm: what cells often begin with is loaded too."""
        await self.stop()
        if not os.path.isdir(self.cwd):
            raise KernelFailed(f"The directory {self.cwd} does not exist")
        self._directory = tempfile.TemporaryDirectory(prefix="kernel-", dir=self._settings.runtime_dir)
        self._manager = AsyncKernelManager(
            kernel_spec_manager=Specs(self.language), transport=self.language.transport,
            connection_file=os.path.join(self._directory.name, "connection.json"))
        # What R's kernel sends while we are busy has to wait here, for there it would be dropped.
        self._manager.context.setsockopt(zmq.RCVHWM, MAX_MESSAGES if self.language.own else 0)
        try:
            await self._manager.start_kernel(cwd=self.cwd, env=self._settings.kernel_env())
            self._process = self._manager.provisioner.process  # type: ignore[union-attr]
            self._watch(self._process.pid)
            await self._connect()
            if warm and self.language.warm_up:
                await self._silently(self.language.warm_up)
        except (KernelFailed, RuntimeError, OSError) as e:
            await self.stop()
            raise KernelFailed(f"The {self.language.name} kernel did not start: {e}") from e

    def _watch(self, pid: int) -> None:
        self._pid = pid
        self._ended.clear()
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)
        self._pid_file.parent.mkdir(exist_ok=True)
        self._pid_file.touch()

    @property
    def _pid_file(self) -> pathlib.Path:
        """By which a copy of this machine finds the kernels that are to be seeded anew."""
        return pathlib.Path(self._settings.runtime_dir, "pids", str(self._pid))

    def _on_end(self) -> None:
        self._unwatch()
        self._ended.set()

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
            self._pid_file.unlink(missing_ok=True)

    async def _connect(self) -> None:
        assert self._manager
        client: Any = self._manager.client()
        self._client = client
        client.start_channels(stdin=False, hb=False, control=False)
        await client.wait_for_ready(timeout=self._settings.start_timeout)
        self._readers = [asyncio.create_task(self._read(get)) for get in (client.get_iopub_msg, client.get_shell_msg)]

    async def _read(self, get: Any) -> None:
        while True:
            try:
                message = await get()
                request = self._request
                if request and message["parent_header"].get("msg_id") == request.msg_id:
                    request.on_message(message)
            except Exception as e:
                # What runs in the kernel can send what it likes: some things are no messages.
                print(f"{self.language.name} kernel: {type(e).__name__}: {e}"[:500], file=sys.stderr)

    async def stop(self) -> None:
        """Whatever it is at, and all that it has started."""
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._readers = []
        if self._client:
            self._client.stop_channels()
            self._client = None
        if self._manager and self._pid > 0:
            self._signal(signal.SIGKILL)
            await self._manager.shutdown_kernel(now=True)
        self._unwatch()
        self._ended.set()
        self._manager = None
        self._pid = -1
        if self._directory:
            self._directory.cleanup()
            self._directory = None

    def _signal(self, number: int) -> None:
        # The kernel leads a process group.
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            pass

    async def execute(self, execution: Execution) -> None:
        """Returns when the kernel is ready for the next one. KernelFailed: it is no more."""
        env = execution.env
        if env and not self.language.own:
            await self._silently(r_set_env(env))
            await self._run(execution.code, execution, {})
            await self._silently(R_RESTORE_ENV)
        else:
            await self._run(execution.code, execution, env)

    async def _silently(self, code: str) -> None:
        error = (await self._run(code, None, {})).error
        if error:
            raise KernelFailed(f'{error["name"]}: {error["value"]}')

    async def _run(self, code: str, execution: Execution | None, env: Mapping[str, str]) -> Request:
        assert self._client
        session = self._client.session
        message = session.msg("execute_request", {
            "code": code,
            "silent": execution is None,
            "store_history": execution is not None,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }, metadata={"env": dict(env)})
        request = self._request = Request(message["header"]["msg_id"], execution)
        try:
            self._client.shell_channel.send(message)
            await self._first_of(request.done, self._ended, *([execution.stopped] if execution else []))
            if not request.done.is_set() and not self._ended.is_set():
                await self._interrupt(request)
            if not request.done.is_set():
                raise KernelFailed(self._how_it_ended())
        finally:
            self._request = None
        return request

    async def _interrupt(self, request: Request) -> None:
        """It has some seconds to obey. More than once, for some places in a program swallow the exception."""
        for _ in range(INTERRUPTS):
            self._signal(signal.SIGINT)
            await self._first_of(request.done, self._ended, timeout=self._settings.interrupt_timeout / INTERRUPTS)
            if request.done.is_set() or self._ended.is_set():
                return
        self._signal(signal.SIGKILL)
        await self._ended.wait()

    @staticmethod
    async def _first_of(*events: asyncio.Event, timeout: float | None = None) -> None:
        waits = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _how_it_ended(self) -> str:
        status = self._process.poll()
        if status is None:
            return "is gone"
        if status >= 0:
            return f"ended with exit status {status}"
        name = signal.Signals(-status).name if -status in iter(signal.Signals) else str(-status)
        return f"ended by signal {name}" + (" (was it out of memory?)" if status == -signal.SIGKILL else "")
