# SPDX-License-Identifier: Apache-2.0
"""Bash: one shell that lives as long as the context, and reads a file for each cell.

It is an interactive one, for only such a shell comes back to its input when a SIGINT ends what it is at. What it
says by itself (prompts, that there is no terminal) is empty, or thrown away before the first cell.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping

from .app import launch_app
from .child import PREFIX, Child, ChildKernel


class BashKernel(ChildKernel):
    language = "bash"
    language_info = {"name": "bash", "mimetype": "text/x-sh", "file_extension": ".sh"}
    child_words = "the shell"

    def start_child(self) -> Child:
        ours, self._control = os.pipe()
        environment = os.environ | {"PS1": "", "PS2": ""}
        environment.pop("PROMPT_COMMAND", None)
        try:
            process = subprocess.Popen(
                [*PREFIX, "bash", "--noprofile", "--norc", "--noediting", "-i"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, pass_fds=(self._control,), env=environment)
        finally:
            os.close(self._control)
        child = Child(process, ours)
        self._tell(child, "export -n PS1 PS2", f"echo >&{self._control}")
        child.run(lambda name, text: None, lambda line: True)
        return child

    @staticmethod
    def _tell(child: Child, *lines: str) -> None:
        # Few and short ones: a pipe takes them all, whatever the shell is at.
        assert child.process.stdin
        child.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        child.process.stdin.flush()

    def _source(self, name: str, text: str) -> str:
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write(text)
        return f"source {shlex.quote(path)}"

    def send_cell(self, child: Child, code: str, env: Mapping[str, str]) -> None:
        save = "".join(f"__cube_{name}=$(declare -p {name} 2>/dev/null)\nexport {name}={shlex.quote(value)}\n"
                       for name, value in env.items())
        restore = "".join(f'unset {name}\neval "$__cube_{name}"\nunset __cube_{name}\n' for name in env)
        # Each on a line of its own: after a SIGINT the shell goes on with the next one.
        self._tell(child, self._source("before", save),
                   f"{self._source('cell', code)} </dev/null {self._control}>&-",
                   f"builtin echo $? >&{self._control}",
                   self._source("after", restore),
                   f"builtin echo done >&{self._control}")

    def on_line(self, line: bytes) -> bool:
        if line == b"done":
            return True
        if line != b"0":
            status = line.decode()
            self.fail("ExitStatus", status, f"the last command ended with exit status {status}")
        return False


def launch() -> None:
    launch_app(BashKernel)
