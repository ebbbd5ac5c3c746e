# SPDX-License-Identifier: Apache-2.0
"""A template that a client of cube-gateway has built, by the service itself: files, steps in a guest, tags, removal."""

import io
import os
import tarfile

import pytest

from cubetest import as_user, bus, wait_for
from gatewayhost import UNIT, Connection, call, output
from snapshots import count
from test_gateway import key, listening  # noqa: F401

HASH = "ab" * 32


def archive():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        entry = tarfile.TarInfo("app/file")
        entry.size = 5000
        tar.addfile(entry, io.BytesIO(os.urandom(5000)))
    return out.getvalue()


def upload(url):
    c = Connection("gateway")
    c.request("PUT", url[len("http://gateway"):], archive())
    status = c.getresponse().status
    c.close()
    return status


def end_of_build(key, path):  # noqa: F811
    """Its last status."""
    return wait_for("the build", lambda: (s := call("GET", f"{path}/status", key)[1])["status"] in ("ready", "error") and s, timeout=300)


def begin(key, source, name, steps):  # noqa: F811
    status, made = call("POST", "/v3/templates", key, {"name": name, "tags": ["v1"]})
    assert status == 202, made
    status, files = call("GET", f"/templates/{made['templateID']}/files/{HASH}", key)
    assert status == 201 and (files["present"] or upload(files["url"]) == 200)
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
    status, answer = call("POST", f"/v2{path}", key, {"fromTemplate": source, "steps": steps})
    assert status == 202, answer
    return made, path


def build(key, source, name, steps):  # noqa: F811
    made, path = begin(key, source, name, steps)
    return made, end_of_build(key, path)


def test_a_template_is_built_and_used_and_removed(key, template):  # noqa: F811
    source = template().split(":")[0]
    made, end = build(key, source, "boxed", [
        {"type": "COPY", "args": ["app", "/srv", "", ""], "filesHash": HASH},
        {"type": "USER", "args": ["app"]}, {"type": "WORKDIR", "args": ["/srv"]}, {"type": "RUN", "args": ["who-and-where"]}])
    assert end["status"] == "ready", end
    assert "app /srv" in [e["message"] for e in end["logEntries"] if e["step"] == "4"], end["logEntries"]
    assert os.listdir("/var/lib/cube-gateway/builds") == []
    assert f"boxed:{made['buildID']}" in output("cubectl", "template", "list")
    assert {t["tag"]: t["buildID"] for t in call("GET", "/templates/boxed/tags", key)[1]} == {"v1": made["buildID"]}

    status, sandbox = call("POST", "/v2/sandboxes", key, {"templateID": "boxed:v1"})
    assert status == 201 and sandbox["templateID"] == made["templateID"], sandbox
    assert output("cubectl", "exec", sandbox["sandboxID"], "who-and-where").strip() == "app /srv"
    assert call("DELETE", "/templates/boxed", key)[0] == 400
    assert call("DELETE", f"/sandboxes/{sandbox['sandboxID']}", key)[0] == 204
    assert call("POST", "/templates/tags", key, {"target": "boxed:v1", "tags": ["default", "x"]})[0] == 201
    assert call("DELETE", "/templates/tags", key, {"name": "boxed", "tags": ["x"]})[0] == 204
    assert sorted(t["tag"] for t in call("GET", "/templates/boxed/tags", key)[1]) == ["default", "v1"]
    wait_for("its removal", lambda: call("DELETE", "/templates/boxed", key)[0] == 204)
    assert call("GET", "/templates/aliases/boxed", key)[0] == 404


def jobs():
    """What each says of itself, by its path."""
    objects = bus().get_object("org.cubed.Cube1", "/org/cubed/Cube1", introspect=False).GetManagedObjects(
        dbus_interface="org.freedesktop.DBus.ObjectManager")
    return {path: i["org.cubed.Cube1.Job"] for path, i in objects.items() if "org.cubed.Cube1.Job" in i}


def test_a_build_has_its_files_when_the_gateway_is_started_anew(key, template):  # noqa: F811
    """As long as cubed goes on with it."""
    made, _ = begin(key, template().split(":")[0], "outlives", [
        {"type": "COPY", "args": ["app", "/srv", "", ""], "filesHash": HASH}, {"type": "RUN", "args": ["hang"]}])
    output("systemctl", "restart", UNIT)
    assert os.listdir(f"/var/lib/cube-gateway/builds/{made['buildID']}") == ["1"]
    path, = [path for path, job in jobs().items() if made["buildID"] in job["Subject"]]
    bus().get_object("org.cubed.Cube1", path, introspect=False).Cancel(dbus_interface="org.cubed.Cube1.Job")

    def swept():
        output("systemctl", "restart", UNIT)
        return os.listdir("/var/lib/cube-gateway/builds") == []
    wait_for("its files to go", swept)


def stored():
    return {name for name in os.listdir("/var/lib/cubed/templates") if name != "names" and not name.startswith(".")}


def test_a_name_that_is_built_again_leaves_the_one_before(key, template):  # noqa: F811
    source = template().split(":")[0]
    before = stored()
    for i in range(3):
        made, end = build(key, source, "again", [{"type": "WORKDIR", "args": [f"/srv/{i}"]}])
        assert end["status"] == "ready", end
    wait_for("the end of the first", lambda: len(stored() - before) == 2)
    assert f"again:{made['buildID']}" in output("cubectl", "template", "list")
    assert call("DELETE", "/templates/again", key)[0] == 204
    wait_for("its removal", lambda: stored() == before)


def test_what_a_template_below_has_started_runs_in_those_on_it(key, template):  # noqa: F811
    source = template().split(":")[0]
    for name, below, more in (("below", source, {"startCmd": "counter calmly", "readyCmd": "true"}), ("above", "below", {})):
        _, made = call("POST", "/v3/templates", key, {"name": name})
        path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
        assert call("POST", f"/v2{path}", key, {"fromTemplate": below, "steps": [], **more})[0] == 202
        end = end_of_build(key, path)
        assert end["status"] == "ready", end
    status, sandbox = call("POST", "/v2/sandboxes", key, {"templateID": "above"})
    assert status == 201, sandbox
    wait_for("it to count", lambda: count(sandbox["sandboxID"]) > 0)
    assert call("DELETE", f"/sandboxes/{sandbox['sandboxID']}", key)[0] == 204
    for name in ("above", "below"):
        wait_for("its removal", lambda: call("DELETE", f"/templates/{name}", key)[0] == 204)


def test_a_step_that_fails(key, template):  # noqa: F811
    made, end = build(key, template().split(":")[0], "failing", [{"type": "RUN", "args": ["true"]}, {"type": "RUN", "args": ["exit 3"]}])
    assert end["status"] == "error" and end["reason"]["step"] == "2", end
    assert end["reason"]["message"].startswith("step 2 of 2 (RUN) ended with exit status 3")
    assert call("GET", "/templates/aliases/failing:v1", key)[0] == 404


@pytest.mark.parametrize("method, arguments", [
    ("RemoveTemplate", ["s", "{}"]),
    ("AliasTemplate", ["ss", "seized:v1", "{}"]),
    ("AliasTemplate", ["ss", "{}", ""]),
])
def test_what_others_built_is_none_of_its_business(key, template, method, arguments):  # noqa: F811
    name = template()
    refused = as_user("cube-gateway", "busctl", "call", "org.cubed.Cube1", "/org/cubed/Cube1", "org.cubed.Cube1.Manager", method,
                      *(a.format(name) for a in arguments))
    assert b"Access denied" in refused.stderr, refused
    assert name in output("cubectl", "template", "list") and "seized" not in output("cubectl", "template", "list")


def test_nor_are_their_jobs(key, template):  # noqa: F811
    template()
    paths = [path for path, job in jobs().items() if job["Owner"] == 0]
    assert paths
    refused = as_user("cube-gateway", "busctl", "call", "org.cubed.Cube1", paths[0], "org.cubed.Cube1.Job", "OpenLog")
    assert b"Access denied" in refused.stderr, refused
