# SPDX-License-Identifier: Apache-2.0
"""The code interpreter as an ordinary process, and a client that sees each line of its answers.

CUBE_INTERPRETER_ROOT names a root file system of the recipe code-interpreter, unpacked, to take it from; else it
is the one in this tree, with Debian's packages on this machine.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

TREE = pathlib.Path(__file__).parents[2]
SOURCE = TREE / "guest/code-interpreter"
INSTALLED = "/usr/lib/cube/code-interpreter/code-interpreter"
# Mounts that go with the process.
ENTER = 'mount --rbind /proc "$1/proc"; mount --rbind /dev "$1/dev"; exec chroot "$@"'


def wait_for(what, condition, timeout=120):
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        time.sleep(0.02)


def wait_for_output(response):
    """The line of an execution in which it first prints something."""
    for line in iter(response.readline, b""):
        line = json.loads(line)
        if line["type"] == "stdout":
            return line
    raise AssertionError("it ended and printed nothing")


def go_away(response):
    response.close()
    response.client.close()


class Server:
    def __init__(self, *options, env=None, network=None, port=0):
        """network: the file of a network namespace to listen in."""
        root = os.environ.get("CUBE_INTERPRETER_ROOT")
        self.root = pathlib.Path(root or "/")
        self._scratch = tempfile.TemporaryDirectory(prefix="interpreter-", dir=self.root / "tmp")
        self.runtime_dir = pathlib.Path(self._scratch.name, "run")
        self.home = pathlib.Path(self._scratch.name, "home")
        self.home.mkdir()
        argv = ["/usr/bin/python3", str(SOURCE / "code-interpreter")]
        if root:
            argv = ["unshare", "--mount", "sh", "-ec", ENTER, "sh", root, INSTALLED]
        if network:
            argv = ["nsenter", f"--net={network}", *argv]
        self.process = subprocess.Popen(
            [*argv, "--host", "127.0.0.1", "--port", str(port), "--envd", "", "--runtime-dir", self.inside(self.runtime_dir),
             "--cwd", self.inside(self.home), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": self.inside(self.home), "LANG": "C.UTF-8",
                 "PYTHONDONTWRITEBYTECODE": "1"} | (env or {}))

    def inside(self, path):
        """As the server calls it."""
        return "/" + str(pathlib.Path(path).relative_to(self.root))

    def __enter__(self):
        line = self.process.stdout.readline()
        match = re.fullmatch(r"listening on port (\d+)\n", line)
        if not match:
            self._kill()
            raise AssertionError(f"the server said {line!r} and {self.process.communicate()[1]}")
        self.port = int(match[1])
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.stderr = self.process.communicate(timeout=120)[1]
        finally:
            self._kill()
            with contextlib.suppress(FileNotFoundError):
                self._scratch.cleanup()

    def _kill(self):
        """And whoever is left of its group: it leads a session of its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def pids(self):
        """Of its kernels."""
        return {int(path.name) for path in (self.runtime_dir / "pids").iterdir()}

    def request(self, method, path, body=None, headers=None):
        """The response, whose body is still to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
        response = connection.getresponse()
        response.client = connection
        return response

    def call(self, method, path, body=None):
        """Status, and the body: JSON, or text."""
        response = self.request(method, path, body)
        text = response.read().decode()
        json_sent = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if json_sent else text

    def open(self, code, **fields):
        """An execution that has begun. Closing the response's client goes away from it."""
        return self.request("POST", "/execute", {"code": code} | fields)

    def run(self, code, **fields):
        response = self.open(code, **fields)
        text = response.read()
        assert response.status == 200, text
        return Execution(text)

    def context(self, **fields):
        status, context = self.call("POST", "/contexts", fields)
        assert status == 200, context
        return context["id"]

    def leave(self, code, **fields):
        """Goes away from an execution once it has printed something."""
        response = self.open(code, **fields)
        wait_for_output(response)
        go_away(response)


class Execution:
    """All lines of one, by kind."""

    def __init__(self, text):
        assert text.isascii() and text.endswith(b"\n")
        self.lines = [json.loads(line, parse_constant=self._constant) for line in text.splitlines()]
        self.kinds = [line["type"] for line in self.lines if line["type"] != "keepalive"]
        assert self.kinds[-1] == "end_of_execution" and self.kinds.count("end_of_execution") == 1
        self.results = [line for line in self.lines if line["type"] == "result"]
        self.stdout = self._text("stdout")
        self.stderr = self._text("stderr")
        errors = [line for line in self.lines if line["type"] == "error"]
        assert len(errors) <= 1, errors
        self.error = errors[0] if errors else None
        counts = [line["execution_count"] for line in self.lines if line["type"] == "number_of_executions"]
        self.count = counts[0] if counts else None

    @staticmethod
    def _constant(name):
        raise AssertionError(f"{name} is no JSON")

    def _text(self, kind):
        return "".join(line["text"] for line in self.lines if line["type"] == kind)

    @property
    def main(self):
        [result] = [result for result in self.results if result["is_main_result"]]
        return result


def sdk_python():
    """Of an environment that has the SDK: dev/lib.sh makes it."""
    return os.environ["CUBE_E2B_SDK"] + "/bin/python"


# What happens after a script is the SDK's own affair: threads of its pyqwest that want the GIL of an interpreter that ends
# abort the process (Python before 3.14), now and then, on a machine that is busy.
LEAVE = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"


def run_sdk(server, script):
    result = subprocess.run([sdk_python(), "-c", script + LEAVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            timeout=400, env=os.environ | {
                                "E2B_DEBUG": "true", "E2B_API_KEY": "e2b_" + "0" * 40,
                                "E2B_SANDBOX_URL": f"http://127.0.0.1:{server.port}"})
    assert result.returncode == 0, f"{result.returncode}: {result.stdout}{result.stderr}"
    return result.stdout
