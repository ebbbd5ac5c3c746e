# SPDX-License-Identifier: Apache-2.0
"""JavaScript: node, in which javascript/main.js runs the cells. Both sides send lines of JSON."""

import json
import os
import pathlib
import socket
import subprocess
from collections.abc import Mapping

from .app import launch_app
from .child import PREFIX, Child, ChildKernel

MAIN = pathlib.Path(__file__).with_name("javascript") / "main.js"


class JavaScriptKernel(ChildKernel):
    language = "javascript"
    language_info = {"name": "javascript", "mimetype": "text/javascript", "file_extension": ".js"}
    child_words = "node"
    cell_language = "javascript"

    def start_child(self) -> Child:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = subprocess.Popen([*PREFIX, "node", "--no-warnings", str(MAIN), str(theirs.fileno())],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       pass_fds=(theirs.fileno(),))
            return Child(process, ours.detach())

    def send_cell(self, child: Child, code: str, env: Mapping[str, str]) -> None:
        data = json.dumps({"code": code, "env": dict(env), "language": self.cell_language}).encode() + b"\n"
        with socket.socket(fileno=os.dup(child.control)) as control:
            control.setblocking(True)
            control.sendall(data)
            control.setblocking(False)

    def on_line(self, line: bytes) -> bool:
        message = json.loads(line)
        kind = message["is"]
        if kind == "result":
            self.publish("execute_result", {"data": message["data"], "metadata": {},
                                            "execution_count": self.execution_count})
        elif kind == "display":
            self.publish("display_data", {"data": message["data"], "metadata": {}, "transient": {}})
        elif kind == "error":
            self.fail(message["name"], message["value"], message["traceback"])
        return kind == "done"


def launch() -> None:
    launch_app(JavaScriptKernel)
