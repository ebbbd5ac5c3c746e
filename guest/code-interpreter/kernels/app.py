# SPDX-License-Identifier: Apache-2.0
"""What our kernels have in common: nothing that they send is dropped. Who sends faster than the server reads, waits."""

import json
import logging
from typing import Any

import zmq
from ipykernel.iostream import OutStream
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.jsonutil import json_default
from jupyter_client.session import json_packer
from traitlets.config import Config

# messages in each queue between a cell and the server, and characters of text before the first of them
MAX_MESSAGES = 64
MAX_TEXT = 1 << 20


def pack(message: Any) -> bytes:
    """In ASCII, for a string of Python or JavaScript may hold what UTF-8 can't say."""
    try:
        return json.dumps(message, default=json_default, allow_nan=False).encode("ascii")
    except (TypeError, ValueError):
        return json_packer(message)


class Stream(OutStream):
    _since_flush = 0

    def write(self, string):
        written = super().write(string)
        self._since_flush += len(string)
        if self._since_flush > MAX_TEXT:
            self._since_flush = 0
            self.flush()
        return written


class KernelApp(IPKernelApp):
    def init_iopub(self, context):
        self.session.pack = pack
        # Of this socket and of those by which threads hand it what is to be sent.
        context.setsockopt(zmq.SNDHWM, MAX_MESSAGES)
        context.setsockopt(zmq.RCVHWM, MAX_MESSAGES)
        context.setsockopt(zmq.XPUB_NODROP, 1)
        super().init_iopub(context)


def launch_app(kernel_class, config: Config | None = None) -> None:
    config = config or Config()
    config.Application.log_level = logging.ERROR
    config.IPKernelApp.outstream_class = "kernels.app.Stream"
    KernelApp.launch_instance(kernel_class=kernel_class, config=config)
