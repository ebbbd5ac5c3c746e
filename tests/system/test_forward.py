# SPDX-License-Identifier: Apache-2.0
"""A port of the guest, reached from the host: also of a server that listens on loopback only."""

import subprocess
import urllib.request

from cubetest import ctl, ctl_ok, wait_for


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return answer.read()
    except OSError:
        return None


def test_forward_reaches_a_server_on_loopback(shared):
    ctl_ok("exec", shared, "--", "sh", "-c", "mkdir -p /tmp/www && echo hello from the guest > /tmp/www/index.html")
    server = ["cubectl", "exec", shared, "--", "python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory",
              "/tmp/www", "8000"]
    with subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as guest, \
            subprocess.Popen(["cubectl", "forward", shared, "18000:8000"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL) as forward:
        try:
            page = wait_for("the server", lambda: get("http://127.0.0.1:18000/"), interval=0.5)
            assert page == b"hello from the guest\n"
        finally:
            forward.terminate()
            guest.terminate()


def test_a_port_nobody_listens_on_is_refused(shared):
    result = ctl("exec", shared, "--", "python3", "-c",
                 "import socket; socket.create_connection(('127.0.0.1', 9))")
    assert result.returncode == 1 and b"refused" in result.stderr
