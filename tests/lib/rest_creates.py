# SPDX-License-Identifier: Apache-2.0
"""Many sandboxes over REST, one after another and at once: no error, and nothing is left of them, in cubed as in the gateway."""

import concurrent.futures
import contextlib
import json
import os
import pathlib

from cubetest import cubed_pid, run, sandbox_ids, wait_for
from gatewayhost import SOCKET, UNIT, Connection, output, show

CONFIG = pathlib.Path("/etc/cubed/gateway.conf")
DROP_IN = pathlib.Path("/etc/cubed/cubed.conf.d/70-many.conf")
# What a heap may come to be larger by in whatever order it was used; a kilobyte for each create would be found in the long form.
GROWTH = 768 << 10


class Client:
    """One connection that is kept."""

    def __init__(self, key):
        self.key = key
        self.connection = Connection("gateway")

    def call(self, method, path, status, body=None):
        self.connection.request(method, path, body and json.dumps(body), {"X-API-Key": self.key})
        response = self.connection.getresponse()
        text = response.read()
        assert response.status == status, (method, path, response.status, text)
        return json.loads(text) if text else None

    def create(self, template):
        return self.call("POST", "/v2/sandboxes", 201, {"templateID": template, "metadata": {"a": "b"}})["sandboxID"]

    def kill(self, sandbox_id):
        self.call("DELETE", f"/sandboxes/{sandbox_id}", 204)


@contextlib.contextmanager
def key_without_limits():
    CONFIG.write_text("[Gateway]\nRequestsPerSecond=100000\nRequestsBurst=1000000\n")
    DROP_IN.write_text("[Limits]\nMaxSandboxesPerUser=100\n")
    output("systemctl", "reload", "cubed.service")
    output("systemctl", "restart", SOCKET)
    try:
        yield output("cubectl", "--quiet", "apikey", "create", "many").strip()
    finally:
        for sandbox_id in sandbox_ids():
            run("cubectl", "kill", sandbox_id)
        CONFIG.unlink()
        DROP_IN.unlink()
        output("systemctl", "reload", "cubed.service")
        output("systemctl", "stop", SOCKET, UNIT)


def create_at_once(key, template, number):
    """So many creates under way at the same time, and all of them killed at the same time."""
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        clients = [Client(key) for _ in range(number)]
        ids = list(pool.map(lambda c: c.create(template), clients))
        assert len(set(ids)) == number and set(ids) == set(sandbox_ids())
        list(pool.map(lambda c, i: c.kill(i), clients, ids))
        for c in clients:
            c.connection.close()


def create_in_sequence(client, template, number):
    for _ in range(number):
        client.kill(client.create(template))


def resident(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Anonymous:")) << 10


def used():
    """{program: (bytes of its own memory, open files)}"""
    pids = {"cubed": cubed_pid(), "cube-gateway": int(show(UNIT, "MainPID"))}
    return {name: (resident(pid), len(os.listdir(f"/proc/{pid}/fd"))) for name, pid in pids.items()}


def leave_nothing(key, template, sequence, at_once):
    client = Client(key)
    # What each keeps of its busiest moment is there before it is looked at.
    create_at_once(key, template, at_once)
    create_in_sequence(client, template, min(sequence, 20))
    before = used()

    create_in_sequence(client, template, sequence)
    create_at_once(key, template, at_once)

    assert client.call("GET", "/v2/sandboxes", 200) == [] and sandbox_ids() == []
    run("journalctl", "--sync")
    assert output("journalctl", "-u", UNIT, "-p", "warning", "--no-pager", "-q", f"_PID={show(UNIT, 'MainPID')}") == ""
    # free places of the network have some of cubed's, whose number changes
    wait_for("the gateway to close what its clients have closed", lambda: used()["cube-gateway"][1] <= before["cube-gateway"][1])
    after = used()
    print(f"{sequence} in sequence and {at_once} at once; memory and files before and after: {before} {after}")
    for program, (memory, _) in after.items():
        assert memory - before[program][0] < GROWTH, (program, before, after)
