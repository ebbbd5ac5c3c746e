# SPDX-License-Identifier: Apache-2.0
"""The HTTP side: /execute, /contexts and /health, as E2B's SDKs expect them."""

import json
import re
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from . import envd, results
from .contexts import Context, Contexts, NoSuchContext, TooManyContexts
from .execution import Execution
from .kernel import KernelFailed
from .languages import UnknownLanguage
from .settings import Settings

# Longer than any proxy before us keeps a connection that is idle.
IDLE_SECONDS = 660
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadRequest(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Handler(RequestHandler):
    def initialize(self, contexts: Contexts, settings: Settings) -> None:
        self.contexts = contexts
        self.config = settings

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None))[1]
        self.answer_text(status_code, str(error) if status_code >= 500 and error else self._reason)

    def answer_text(self, status: int, text: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(text)

    def answer_json(self, value: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    def body(self, **fields: type) -> dict[str, Any]:
        """The fields of a JSON object; what is null counts as absent, what is not named here is not looked at."""
        # A page in a browser in the guest can send anybody any other type without asking.
        kind_sent = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind_sent != "application/json":
            raise BadRequest(422, f'The body is not JSON: its Content-Type is "{kind_sent}"; send "application/json"')
        try:
            body = json.loads(self.request.body)
        except (ValueError, RecursionError) as e:
            raise BadRequest(422, f"The body is not JSON: {e}") from None
        if not isinstance(body, dict):
            raise BadRequest(422, "The body is not a JSON object")
        for name, kind in fields.items():
            if body.get(name) is not None and not isinstance(body[name], kind):
                raise BadRequest(422, f'"{name}" must be {"an object" if kind is dict else "a string"}')
        return {name: body.get(name) for name in fields}

    def answer_failure(self, error: Exception) -> None:
        if isinstance(error, BadRequest):
            status = error.status
        else:
            status = 404 if isinstance(error, NoSuchContext) else 500
        self.answer_text(status, str(error))


FAILURES = (BadRequest, NoSuchContext, TooManyContexts, KernelFailed, UnknownLanguage)


class HealthHandler(Handler):
    def get(self) -> None:
        self.answer_json("OK")


class ContextsHandler(Handler):
    def get(self) -> None:
        self.answer_json([context.describe() for context in self.contexts])

    async def post(self) -> None:
        try:
            wanted = self.body(language=str, cwd=str) if self.request.body else {"language": None, "cwd": None}
            context = await self.contexts.create(wanted["language"], wanted["cwd"])
        except FAILURES as e:
            self.answer_failure(e)
        else:
            self.answer_json(context.describe())


class ContextHandler(Handler):
    async def delete(self, context_id: str) -> None:
        try:
            await self.contexts.remove(context_id)
        except FAILURES as e:
            self.answer_failure(e)
        else:
            self.answer_json(None)


class RestartHandler(Handler):
    async def post(self, context_id: str) -> None:
        try:
            await self.contexts.get(context_id).restart()
        except FAILURES as e:
            self.answer_failure(e)
        else:
            self.answer_json(None)


class ExecuteHandler(Handler):
    execution: Execution | None = None
    gone = False

    async def post(self) -> None:
        try:
            wanted = self.body(code=str, context_id=str, language=str, env_vars=dict)
            if wanted["code"] is None:
                raise BadRequest(422, '"code" is missing')
            env = self.checked_env(wanted["env_vars"] or {})
            context = await self.context(wanted["context_id"], wanted["language"])
        except FAILURES as e:
            self.answer_failure(e)
            return
        token = self.request.headers.get("X-Access-Token")
        sandbox_env = {name: value for name, value in
                       (await envd.sandbox_env(self.config.envd, token)).items() if VARIABLE.fullmatch(name)}
        await self.stream(context, wanted["code"], sandbox_env | env)

    def checked_env(self, env: dict[str, Any]) -> dict[str, str]:
        for name, value in env.items():
            if not VARIABLE.fullmatch(name):
                raise BadRequest(400, f"{name!r} is no name of an environment variable")
            if not isinstance(value, str) or "\0" in value:
                raise BadRequest(400, f'The value of the environment variable "{name}" must be a string without NUL')
        return env

    async def context(self, context_id: str | None, language: str | None) -> Context:
        if context_id and language:
            raise BadRequest(400, "Only one of context_id or language can be provided")
        if context_id:
            return self.contexts.get(context_id)
        return await self.contexts.default(language)

    async def stream(self, context: Context, code: str, env: dict[str, str]) -> None:
        self.set_header("Content-Type", "application/x-ndjson")
        self.execution = context.execute(code, env)
        if self.gone:
            self.execution.abandon()
        try:
            while (line := await self.execution.next_line(self.config.keepalive)) is not None:
                self.write(line)
                await self.flush()
            self.write(results.line(results.END))
            await self.finish()
        except StreamClosedError:
            self.execution.abandon()

    def on_connection_close(self) -> None:
        self.gone = True
        if self.execution:
            self.execution.abandon()


def serve(contexts: Contexts, settings: Settings, host: str, port: int) -> tuple[HTTPServer, int]:
    """And the port that it listens on."""
    shared = {"contexts": contexts, "settings": settings}
    application = Application([
        (r"/health", HealthHandler, shared),
        (r"/execute", ExecuteHandler, shared),
        (r"/contexts", ContextsHandler, shared),
        (r"/contexts/([^/]+)", ContextHandler, shared),
        (r"/contexts/([^/]+)/restart", RestartHandler, shared),
    ], log_function=lambda handler: None)
    server = HTTPServer(application, idle_connection_timeout=IDLE_SECONDS, max_body_size=settings.max_request)
    sockets = bind_sockets(port, host or None)
    server.add_sockets(sockets)
    return server, sockets[0].getsockname()[1]
