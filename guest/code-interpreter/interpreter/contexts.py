# SPDX-License-Identifier: Apache-2.0
"""The contexts: each is a kernel with the variables of what ran in it, under an id that outlives the kernel."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping

from . import results
from .execution import Execution
from .kernel import Kernel, KernelFailed
from .languages import Language, find
from .settings import Settings


class NoSuchContext(Exception):
    def __init__(self, context_id: str) -> None:
        super().__init__(f"Context {context_id} not found")


class TooManyContexts(Exception):
    pass


class Context:
    """Executions in it follow each other."""

    def __init__(self, language: Language, cwd: str, settings: Settings) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._settings = settings
        self._kernel = Kernel(language, cwd, settings)
        self._turn = asyncio.Lock()
        self._current: Execution | None = None
        self._removed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def describe(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language.name, "cwd": self.cwd}

    async def start(self, warm: bool = False) -> None:
        async with self._turn:
            await self._kernel.start(warm)

    async def restart(self) -> None:
        self._stop_current(results.error("ContextRestarting", "Context was restarted"))
        await self.start()

    async def remove(self) -> None:
        self._removed = True
        self._stop_current(results.error("UnexpectedEndOfExecution", "Context was removed"))
        async with self._turn:
            await self._kernel.stop()

    def _stop_current(self, why: results.Event) -> None:
        if self._current:
            self._current.put(why)
            self._current.stopped.set()

    def execute(self, code: str, env: Mapping[str, str]) -> Execution:
        execution = Execution(code, env, self._settings.max_output)
        task = asyncio.create_task(self._run(execution))
        # the loop itself holds no task that runs
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return execution

    async def _run(self, execution: Execution) -> None:
        try:
            async with self._turn:
                if self._removed:
                    execution.put(results.error("UnexpectedEndOfExecution", "Context was removed"))
                elif not execution.stopped.is_set():
                    await self._run_now(execution)
        finally:
            execution.end()

    async def _run_now(self, execution: Execution) -> None:
        self._current = execution
        try:
            if not self._kernel.alive:
                await self._kernel.start()
            await self._kernel.execute(execution)
        except KernelFailed as e:
            if not self._kernel.alive:
                execution.put(results.error("UnexpectedEndOfExecution", await self._replace_kernel(str(e))))
            else:
                execution.put(results.error("UnexpectedEndOfExecution", str(e)))
        finally:
            self._current = None

    async def _replace_kernel(self, why: str) -> str:
        try:
            await self._kernel.start()
        except KernelFailed as e:
            return f"The kernel of this context {why}, and another one could not be started: {e}"
        return f"The kernel of this context {why}; another one was started, without the variables of before"


class Contexts:
    """All of them, and which one an execution goes to that names a language or nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._contexts: dict[str, Context] = {}
        self._defaults: dict[str, str] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._n_starting = 0

    def __iter__(self) -> Iterator[Context]:
        return iter(self._contexts.values())

    def get(self, context_id: str) -> Context:
        try:
            return self._contexts[context_id]
        except KeyError:
            raise NoSuchContext(context_id) from None

    async def create(self, language: str | None, cwd: str | None, warm: bool = False) -> Context:
        if len(self._contexts) + self._n_starting >= self._settings.max_contexts:
            raise TooManyContexts(f"There are {self._settings.max_contexts} contexts, and no more are allowed; "
                                  "remove one")
        context = Context(find(language), cwd or self._settings.cwd, self._settings)
        self._n_starting += 1
        try:
            await context.start(warm)
        finally:
            self._n_starting -= 1
        self._contexts[context.id] = context
        return context

    async def default(self, language: str | None, warm: bool = False) -> Context:
        """That of the language, made when it is first asked for."""
        name = find(language).name
        async with self._starting.setdefault(name, asyncio.Lock()):
            context_id = self._defaults.get(name)
            if context_id not in self._contexts:
                context_id = self._defaults[name] = (await self.create(name, None, warm)).id
        return self._contexts[context_id]

    async def remove(self, context_id: str) -> None:
        context = self.get(context_id)
        del self._contexts[context_id]
        await context.remove()

    async def remove_all(self) -> None:
        await asyncio.gather(*(self.remove(context.id) for context in list(self)))
