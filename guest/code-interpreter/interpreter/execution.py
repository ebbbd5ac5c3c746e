# SPDX-License-Identifier: Apache-2.0
"""One execution: what is to be run, and the lines on their way to the client.

The kernel's reader puts lines in, the HTTP request takes them out; it ends when the kernel is done with it, or is
stopped when the client went away or lets more than `limit` bytes wait.
"""

import asyncio
from collections import deque
from collections.abc import Mapping

from . import results


class Execution:
    def __init__(self, code: str, env: Mapping[str, str], limit: int) -> None:
        self.code = code
        self.env = env
        self.stopped = asyncio.Event()
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, event: results.Event) -> None:
        if self.stopped.is_set() or self._ended:
            return
        line = results.line(event)
        if self._waiting + len(line) > self._limit:
            line = results.line(results.error(
                "OutputLimit", f"more than {self._limit >> 20} MiB of output are waiting for the client; "
                "the execution was interrupted"))
            self.stopped.set()
        self._lines.append(line)
        self._waiting += len(line)
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    def abandon(self) -> None:
        """Nobody is there any more to read."""
        self.stopped.set()
        self._lines.clear()
        self.end()

    async def next_line(self, patience: float) -> bytes | None:
        """None: that was all. A keepalive when there is nothing for that many seconds."""
        if not self._lines and not self._ended:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), patience)
            except asyncio.TimeoutError:
                return results.line(results.KEEPALIVE)
        if not self._lines:
            return None
        line = self._lines.popleft()
        self._waiting -= len(line)
        return line
