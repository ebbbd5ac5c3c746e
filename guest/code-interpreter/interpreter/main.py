# SPDX-License-Identifier: Apache-2.0
"""Options, and the server's life: the default kernels first, then the port. Who is answered finds them warm."""

import argparse
import asyncio
import os
import signal
import sys

from .contexts import Contexts
from .kernel import KernelFailed
from .server import serve
from .settings import Settings

DEFAULT_LANGUAGES = ("python", "javascript")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="code-interpreter", description="Runs code of E2B's SDKs in Jupyter kernels.")
    parser.add_argument("--host", default="", help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=49999, help="0 for any that is free")
    parser.add_argument("--cwd", default="/home/user", help="directory of contexts that name none")
    parser.add_argument("--runtime-dir", default="/run/code-interpreter")
    parser.add_argument("--envd", default="http://127.0.0.1:49983",
                        help="who knows the environment variables of the sandbox; empty for nobody")
    parser.add_argument("--start-timeout", type=float, default=600, metavar="SECONDS", help="for a kernel to start")
    parser.add_argument("--interrupt-timeout", type=float, default=10, metavar="SECONDS",
                        help="for what is interrupted to end, before its kernel is killed")
    parser.add_argument("--keepalive", type=float, default=5, metavar="SECONDS", help="between lines of a silent execution")
    parser.add_argument("--max-contexts", type=int, default=64)
    parser.add_argument("--max-output", type=int, default=64, metavar="MIB", help="that may wait for a client")
    parser.add_argument("--max-request", type=int, default=32, metavar="MIB", help="size of a request")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> None:
    os.makedirs(options.runtime_dir, mode=0o700, exist_ok=True)
    settings = Settings(
        runtime_dir=options.runtime_dir, cwd=options.cwd, envd=options.envd, start_timeout=options.start_timeout,
        interrupt_timeout=options.interrupt_timeout, keepalive=options.keepalive, max_contexts=options.max_contexts,
        max_output=options.max_output << 20, max_request=options.max_request << 20)
    contexts = Contexts(settings)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        for language in DEFAULT_LANGUAGES:
            await contexts.default(language, warm=True)
        server, port = serve(contexts, settings, options.host, options.port)
        print(f"listening on port {port}", flush=True)
        await stop.wait()
        server.stop()
    finally:
        await contexts.remove_all()


def main() -> None:
    try:
        asyncio.run(run(parse_options()))
    except (KernelFailed, OSError) as e:
        sys.exit(f"code-interpreter: {e}")
