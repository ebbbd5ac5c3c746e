# SPDX-License-Identifier: Apache-2.0
"""Python: ipykernel with our formats, and with variables of the environment for one cell."""

from ipykernel.ipkernel import IPythonKernel
from traitlets.config import Config

from . import formats, pictures, reseed
from .app import launch_app
from .environment import temporary_environment


class PythonKernel(IPythonKernel):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        formats.register(self.shell.display_formatter)
        pictures.install()
        reseed.install()

    async def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, *,
                         cell_id=None):
        with temporary_environment(self.get_parent("shell").get("metadata", {}).get("env", {})):
            return await super().do_execute(code, silent, store_history, user_expressions, allow_stdin,
                                            cell_id=cell_id)


def launch() -> None:
    config = Config()
    config.InteractiveShell.colors = "NoColor"
    # Nobody looks back, and a database would be written for it in each sandbox.
    config.HistoryManager.enabled = False
    config.PlainTextFormatter.max_seq_length = 0
    launch_app(PythonKernel, config)
