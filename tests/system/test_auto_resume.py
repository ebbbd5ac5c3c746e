# SPDX-License-Identifier: Apache-2.0
"""A web server in a Linux guest that is paused answers whoever asks it."""

import concurrent.futures
import time
import urllib.request

import pytest

from cubetest import ctl_ok, events, options, prop, run, sandbox, wait_for
from network import address

PORT = 8080
SERVER = f"""
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(time.time()).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer.request_queue_size = 64
http.server.ThreadingHTTPServer(('0.0.0.0', {PORT}), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def server(shared):
    """Resumed by who asks it."""
    run("cubectl", "exec", shared, "--", "sh", "-c", "cat >/root/server.py", input=SERVER.encode(), check=True)
    pid = ctl_ok("exec", shared, "--", "sh", "-c", "setsid python3 /root/server.py </dev/null >/root/server.log 2>&1 & echo $!").strip()
    wait_for("the server to listen", lambda: answers(shared), timeout=120)
    sandbox(shared).SetAutoResume(True)
    yield shared
    sandbox(shared).SetAutoResume(False)
    ctl_ok("exec", shared, "--", "kill", pid)


def get(sandbox_id):
    """The guest's time, and how far that is from ours."""
    before = time.time()
    with urllib.request.urlopen(f"http://{address(sandbox_id)}:{PORT}/", timeout=300) as response:
        told = float(response.read())
    return told, max(before - told, told - time.time())


def answers(sandbox_id):
    try:
        return get(sandbox_id)
    except OSError:
        return None


def pause(sandbox_id):
    sandbox(sandbox_id).Pause(options({}), timeout=300)
    assert prop(sandbox_id, "State") == "paused" and prop(sandbox_id, "Parked")


def test_a_request_is_answered_by_the_guest_that_it_resumes(server):
    before = events(server).count("resumed")
    pause(server)
    # Its clock is right when it hears of the request.
    assert get(server)[1] < 1
    assert prop(server, "State") == "running"
    assert events(server).count("resumed") == before + 1


def test_twenty_requests_at_once_resume_it_once(server):
    before = events(server).count("resumed")
    pause(server)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert all(off < 1 for _, off in pool.map(lambda _: get(server), range(20)))
    assert events(server).count("resumed") == before + 1
