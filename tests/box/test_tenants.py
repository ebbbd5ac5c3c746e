# SPDX-License-Identifier: Apache-2.0
"""Two tenants of the gateway, which cubed keeps apart: as it comes, with the configuration that it comes with."""

import concurrent.futures
import ctypes
import errno
import json
import os
import pathlib
import pwd

import pytest

from cubetest import as_user, ctl_ok, journal, prop, remove_snapshots, run, wait_for
from gatewayhost import SOCKET, UNIT, Connection, call, output

DROP_IN = pathlib.Path("/etc/cubed/cubed.conf.d/71-tenants.conf")
PR_SCHED_CORE, PR_SCHED_CORE_GET = 62, 0


class Client:
    def __init__(self, tenant):
        self.tenant = tenant
        self.key = output("cubectl", "--quiet", "apikey", "create", "box", f"--tenant={tenant}").strip()

    def call(self, method, path, status, body=None):
        answered, value = call(method, path, self.key, body)
        assert answered == status, value
        return value

    def create(self, source):
        return self.call("POST", "/v2/sandboxes", 201, {"templateID": source})["sandboxID"]

    def ids(self):
        return {s["sandboxID"] for s in self.call("GET", "/v2/sandboxes", 200)}


def snapshots():
    lines = output("cubectl", "snapshot", "list", "--no-legend", "--kind=snapshot").splitlines()
    return [line.split()[0] for line in lines]


@pytest.fixture
def acme_and_evil(template):
    before = snapshots()
    DROP_IN.write_text("[Limits]\nMaxSandboxesPerTenant=2\nMaxSnapshotsPerTenant=2\n")
    output("systemctl", "reload", "cubed.service")
    output("systemctl", "start", SOCKET)
    yield Client("acme"), Client("evil")
    for i in output("cubectl", "list", "--no-legend").splitlines():
        run("cubectl", "kill", i.split()[0])
    remove_snapshots(set(snapshots()) - set(before))
    DROP_IN.unlink()
    output("systemctl", "reload", "cubed.service")
    output("systemctl", "stop", SOCKET, UNIT)


def cookie(pid):
    """Of core scheduling."""
    value = ctypes.c_ulong()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SCHED_CORE, PR_SCHED_CORE_GET, pid, 0, ctypes.byref(value)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value.value


@pytest.fixture
def core_scheduling():
    """What we may know of ourselves tells whether there is any."""
    try:
        cookie(0)
    except OSError as e:
        without = {errno.EINVAL: "this kernel has no core scheduling (CONFIG_SCHED_CORE)", errno.ENODEV: "this host has no hardware threads"}
        if e.errno not in without:
            raise
        pytest.skip(without[e.errno])


def as_gateway(*words):
    """As its user, who may name any tenant."""
    return as_user("cube-gateway", "busctl", "call", "org.cubed.Cube1", *words)


def test_they_are_apart(acme_and_evil, template):
    acme, evil = acme_and_evil
    first, second, theirs = acme.create(template()), acme.create(template()), evil.create(template())
    assert acme.ids() == {first, second} and evil.ids() == {theirs}
    assert {i: prop(i, "Tenant") for i in (first, second, theirs)} == {first: "acme", second: "acme", theirs: "evil"}
    assert {prop(i, "Owner") for i in (first, theirs)} == {pwd.getpwnam("cube-gateway").pw_uid}
    listed = ctl_ok("list", "--no-legend", "--tenant=acme")
    assert first in listed and second in listed and theirs not in listed
    assert any(e.get("CUBE_TENANT") == "evil" and e.get("CUBE_EVENT") == "create" for e in journal(theirs))

    # Each has a quota of its own.
    assert "MaxSandboxesPerTenant=" in acme.call("POST", "/v2/sandboxes", 429, {"templateID": template()})["message"]
    c = Connection("gateway")
    c.request("POST", "/v2/sandboxes", json.dumps({"templateID": template()}), {"X-API-Key": acme.key})
    assert c.getresponse().headers["Should-Retry"] == "false"
    c.close()
    evil.create(template())


def test_hardware_threads_of_one_core_never_run_both(core_scheduling, acme_and_evil, template):
    acme, evil = acme_and_evil
    first, second, theirs = (cookie(prop(i, "VMMPID")) for i in (acme.create(template()), acme.create(template()), evil.create(template())))
    assert first == second != theirs and 0 not in (first, theirs)


def test_a_snapshot_is_used_by_its_tenant_alone(acme_and_evil, template):
    acme, evil = acme_and_evil
    i = acme.create(template())
    taken = acme.call("POST", f"/sandboxes/{i}/snapshots", 201, {"name": "base"})
    snapshot = taken["snapshotID"].split(":")[0]
    evil.call("POST", f"/sandboxes/{i}/snapshots", 404, {})
    for name in (snapshot, "base", taken["snapshotID"]):
        evil.call("POST", "/v2/sandboxes", 404, {"templateID": name})
    # Nor does cubed let it, whatever the gateway looks at.
    refused = as_gateway("/org/cubed/Cube1", "org.cubed.Cube1.Manager", "CreateSandbox", "sa{sv}", f"snapshot:{snapshot}", "1",
                         "tenant", "s", "evil")
    assert b"No snapshot" in refused.stderr
    refused = as_gateway(f"/org/cubed/Cube1/sandbox/{i}", "org.cubed.Cube1.Sandbox", "Fork", "ua{sv}", "1", "1", "tenant", "s", "evil")
    assert b"Tenant evil has no sandbox" in refused.stderr
    refused = run("busctl", "call", "org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager", "CreateSandbox", "sa{sv}",
                  f"template:{template()}", "1", "tenant", "s", "acme")
    assert b"DelegateTo=" in refused.stderr
    copy = acme.create("base")
    assert prop(copy, "Tenant") == "acme"


def test_it_outlives_cubed_and_a_pause(acme_and_evil, template):
    acme, evil = acme_and_evil
    running, paused = acme.create(template()), evil.create(template())
    taken = evil.call("POST", f"/sandboxes/{paused}/snapshots", 201, {})
    evil.call("POST", f"/sandboxes/{paused}/pause", 204, {})
    output("systemctl", "restart", "cubed.service")
    wait_for("cubed to answer", lambda: run("cubectl", "list").returncode == 0)
    assert acme.ids() == {running} and evil.ids() == {paused}
    assert evil.call("GET", "/snapshots", 200) == [taken] and acme.call("GET", "/snapshots", 200) == []
    evil.call("POST", f"/sandboxes/{paused}/connect", 201, {"timeout": 60})
    assert (prop(running, "Tenant"), prop(paused, "Tenant")) == ("acme", "evil")


def test_each_may_keep_so_many_snapshots(acme_and_evil, template):
    """However many are asked for at once."""
    acme, evil = acme_and_evil
    first, second, theirs = acme.create(template()), acme.create(template()), evil.create(template())
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(call, "POST", f"/sandboxes/{i}/snapshots", acme.key, {}) for i in (first, second) * 3]
        answers = [a.result() for a in asked]
    assert sorted(status for status, _ in answers) == [201, 201, 429, 429, 429, 429], answers
    assert all("MaxSnapshotsPerTenant=" in answer["message"] for status, answer in answers if status == 429)
    evil.call("POST", f"/sandboxes/{theirs}/snapshots", 201, {})
    # Both may be of one sandbox, and then the older goes behind the newer alone; which of them was answered first says nothing.
    taken = [answer["snapshotID"] for status, answer in answers if status == 201]
    assert any(call("DELETE", f"/templates/{name.replace(':', '%3A')}", acme.key)[0] == 204 for name in taken)
    acme.call("POST", f"/sandboxes/{first}/snapshots", 201, {})
    acme.call("POST", f"/sandboxes/{first}/snapshots", 429, {})
