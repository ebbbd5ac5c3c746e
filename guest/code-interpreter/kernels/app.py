# SPDX-License-Identifier: Apache-2.0
"""What our kernels have in common: one sends as much as it likes, and nothing is dropped on the way."""

import json
import logging
from typing import Any

import zmq
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.jsonutil import json_default
from jupyter_client.session import json_packer
from traitlets.config import Config


def pack(message: Any) -> bytes:
    """In ASCII, for a string of Python or JavaScript may hold what UTF-8 can't say."""
    try:
        return json.dumps(message, default=json_default, allow_nan=False).encode("ascii")
    except (TypeError, ValueError):
        return json_packer(message)


class KernelApp(IPKernelApp):
    def init_iopub(self, context):
        self.session.pack = pack
        # The server reads all the time. Beyond a limit a message would be dropped without a word.
        context.setsockopt(zmq.SNDHWM, 0)
        super().init_iopub(context)


def launch_app(kernel_class, config: Config | None = None) -> None:
    config = config or Config()
    config.Application.log_level = logging.ERROR
    KernelApp.launch_instance(kernel_class=kernel_class, config=config)
