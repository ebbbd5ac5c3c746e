# SPDX-License-Identifier: Apache-2.0
"""A Linux guest with guest_checker.py in it, as the host sees it."""

import copy
import json
import os
import socket
import time
import urllib.request

import dbus

from cubetest import ctl_ok, run, sandbox, wait_for
from network import address
from sequences import Life

PORT = 7000
PLACES = ("variable", "memory", "tmpfs", "disk", "unlinked", "queue", "process")
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest_checker.py")


def start_checker(sandbox_id):
    """It listens when this is back; it belongs to no connection."""
    with open(PROGRAM, "rb") as f:
        run("cubectl", "exec", sandbox_id, "--", "sh", "-c", "cat >/root/checker.py", input=f.read(), check=True)
    ctl_ok("exec", sandbox_id, "--", "sh", "-c",
           "setsid python3 -ES /root/checker.py </dev/null >/root/checker.log 2>&1 &")
    wait_for("the checker to listen", lambda: asked(sandbox_id, {}))


def asked(sandbox_id, request):
    """What it answers, None where nothing listens."""
    try:
        fd = sandbox(sandbox_id).Connect(dbus.UInt16(PORT)).take()
    except dbus.DBusException as e:
        if e.get_dbus_name() != "System.Error.ECONNREFUSED":
            raise
        return None
    with socket.socket(fileno=fd) as s, s.makefile("rw", encoding="utf-8") as stream:
        try:
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            line = stream.readline()
        except OSError:
            return None
    return json.loads(line) if line else None


def ask(sandbox_id, put=None, **request):
    """What the checker has, behind what it is told to put. All of it is as the guest had left it, and it goes on."""
    found = asked(sandbox_id, {"put": put or {}} | request)
    assert found, ctl_ok("exec", sandbox_id, "--", "cat", "/root/checker.log")
    assert found["bad"] == 0 and found["goes_on"], found
    return found


def ask_with_time(sandbox_id, put=None):
    """And its clock shows the host's time to within a second."""
    before = time.time()
    found = ask(sandbox_id, put)
    assert before - 1 <= found["time"] <= time.time() + 1
    return found


def put_all(sandbox_id, word):
    return ask_with_time(sandbox_id, {place: word for place in PLACES})


def has_all(sandbox_id, word):
    found = ask_with_time(sandbox_id)
    assert found["words"] == {place: word for place in PLACES}
    return found


SERVER_PORT = 8080
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
http.server.ThreadingHTTPServer(('0.0.0.0', {SERVER_PORT}), Handler).serve_forever()
"""


def begin_server(sandbox_id):
    """A web server, which listens when this is back. Its pid there."""
    run("cubectl", "exec", sandbox_id, "--", "sh", "-c", "cat >/root/server.py", input=SERVER.encode(), check=True)
    pid = ctl_ok("exec", sandbox_id, "--", "sh", "-c", "setsid python3 /root/server.py </dev/null >/root/server.log 2>&1 & echo $!").strip()
    wait_for("the server to listen", lambda: server_answers(sandbox_id))
    return pid


def server_get(sandbox_id):
    """The guest's time, and how far that is from ours."""
    before = time.time()
    with urllib.request.urlopen(f"http://{address(sandbox_id)}:{SERVER_PORT}/", timeout=300) as response:
        told = float(response.read())
    return told, max(before - told, told - time.time())


def server_answers(sandbox_id):
    try:
        return server_get(sandbox_id)
    except OSError:
        return None


class LinuxGuest:
    """For sequences: each sandbox goes on from a snapshot in which the checker is, and is busy."""

    places = PLACES
    executes = False

    def __init__(self, base, base_life):
        self.base, self.base_life = base, base_life
        self.source = f"snapshot:{base}"

    def begin(self, sandbox_id):
        ask(sandbox_id, busy=True)
        return copy.deepcopy(self.base_life)

    def put(self, sandbox_id, place, word):
        ask(sandbox_id, {place: word})

    def look(self, sandbox_id):
        return self.seen(ask(sandbox_id))

    @staticmethod
    def seen(found):
        return found["count"], found["words"], (found["processes"], found["cpus"])


def life(found):
    count, words, processes = LinuxGuest.seen(found)
    return Life(words, count, processes)
