# SPDX-License-Identifier: Apache-2.0
"""Templates of images that clients of cube-gateway name: fetched by the real services of this host, built by cubed, and used."""

import os
import pathlib
import pwd
import socket

import pytest

import cubetest
from conftest import PAYLOAD
from cubetest import wait_for
from layoutserver import LayoutServer
from ociimage import Layout, layer
from registry import PASSWORD, USER
from gatewayhost import call, output, show
from test_gateway import key, listening  # noqa: F401
from test_gateway_builds import end_of_build

CONFIG = {"Env": ["MODE=image"], "User": "app", "WorkingDir": "/srv", "Entrypoint": ["echo", "the image's own"],
          "ExposedPorts": {"80/tcp": {}}}
LOGIN = {"type": "registry", "username": USER, "password": PASSWORD}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pathlib.Path(path).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def registry(host, tmp_path_factory):
    """Of an image with a guest's root file system; its name."""
    top = tmp_path_factory.mktemp("registry")
    image = Layout(top / "layout")
    image.add_image([layer(("f", "etc/hostname", "x", 0o644, 0, {}))], CONFIG)
    server = LayoutServer(top, image, "DNS:registry.test")
    name = f"registry.test:{server.port}"
    hosts = pathlib.Path("/etc/hosts").read_text(encoding="utf-8")
    write("/etc/hosts", f"{hosts}127.0.0.1 registry.test\n")
    write(f"/etc/containers/certs.d/{name}/ca.crt", (top / "certs/ca.crt").read_text())
    write("/etc/cubed/gateway.conf.d/50-images.conf", f"[Gateway]\nImageRegistries={name}\nImageNetworks=127.0.0.1\n")
    # The payload is a guest's kernel that does as a program of the image would.
    write("/etc/cubed/cubed.conf.d/60-images.conf", f"[Guest]\nKernelPath={PAYLOAD}\n")
    output("systemctl", "restart", "cubed.service")
    yield name
    server.stop()
    write("/etc/hosts", hosts)
    for path in ("/etc/cubed/gateway.conf.d/50-images.conf", "/etc/cubed/cubed.conf.d/60-images.conf"):
        os.unlink(path)
    output("systemctl", "restart", "cubed.service")


def start(key, name, image, **more):  # noqa: F811
    status, made = call("POST", "/v3/templates", key, {"name": name, "memoryMB": 128})
    assert status == 202, made
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
    status, answer = call("POST", f"/v2{path}", key, {"fromImage": image, **more})
    assert status == 202, answer
    return made, path


def build(key, name, image, **more):  # noqa: F811
    made, path = start(key, name, image, **more)
    end = end_of_build(key, path)
    return made, end, "\n".join(e["message"] for e in end["logEntries"])


def units():
    return output("systemctl", "list-units", "--plain", "--no-legend", "--all", "cube-fetch*@*").split()


def test_an_image_is_fetched_and_built_and_used(registry, key):  # noqa: F811
    made, end, log = build(key, "imaged", f"{registry}/team/app:1", fromImageRegistry=LOGIN,
                           steps=[{"type": "RUN", "args": ["who-and-where"]}])
    assert end["status"] == "ready", log
    assert "Copying blob" in log and "user /home/user" in log and "the image's own" not in log
    wait_for("its services to end", lambda: units() == [])
    status, sandbox = call("POST", "/v2/sandboxes", key, {"templateID": "imaged"})
    assert status == 201, sandbox
    assert output("cubectl", "exec", sandbox["sandboxID"], "who-and-where").strip() == "user /home/user"
    assert "MODE=image" in output("cubectl", "exec", sandbox["sandboxID"], "env")
    assert call("DELETE", f"/sandboxes/{sandbox['sandboxID']}", key)[0] == 204
    wait_for("its removal", lambda: call("DELETE", "/templates/imaged", key)[0] == 204)


def test_a_password_is_nowhere_and_nothing_is_left(registry, key):  # noqa: F811
    _, end, log = build(key, "refused", f"{registry}/team/app:1", fromImageRegistry={**LOGIN, "password": "a wrong password"})
    assert end["status"] == "error" and end["reason"]["step"] == "base" and "could not be fetched" in end["reason"]["message"], log
    assert "authentication" in log or "unauthorized" in log, log
    wait_for("its services to end", lambda: units() == [])
    cubetest.run("journalctl", "--sync")
    journal = output("journalctl", "-o", "export")
    assert PASSWORD not in journal and "a wrong password" not in journal
    # PID 1 empties their directories beside its other work.
    wait_for("what they had on disk to go", lambda: not [n for n in os.listdir("/var/tmp") if "cube-fetch" in n])


def test_the_hosts_own_addresses_are_not_reached(registry, key):  # noqa: F811
    write("/etc/cubed/gateway.conf.d/60-closed.conf", "[Gateway]\nImageNetworks=\n")
    output("systemctl", "try-restart", "cube-gateway.service")
    try:
        _, end, log = build(key, "closed", f"{registry}/team/app:1", fromImageRegistry=LOGIN)
    finally:
        os.unlink("/etc/cubed/gateway.conf.d/60-closed.conf")
    assert end["status"] == "error" and "not allowed by ruleset" in log, log
    wait_for("the journal", lambda: "was not connected to" in output("journalctl", "-u", "cube-fetch-relay@*"))


def fetchers():
    return [u for u in units() if u.startswith("cube-fetch@")]


def seen(process, path):
    """What lies there for a process of that one's user, in its namespaces."""
    own = os.readlink(f"/proc/{process}/ns/user") == os.readlink("/proc/self/ns/user")
    result = cubetest.run("nsenter", f"--target={process}", "--mount", "--net", *([] if own else ["--user"]),
                          "setpriv", "--reuid=cube-fetch", "--regid=cube-fetch", "--keep-groups", "find", path, "-name", "auth.json")
    return result.stdout.decode().split()


def test_a_tenants_password_and_image_are_not_seen_from_where_anothers_is_fetched(registry, key):  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        name = f"registry.test:{silent.getsockname()[1]}"
        write("/etc/cubed/gateway.conf.d/60-silent.conf", f"[Gateway]\nImageRegistries={name}\n")
        output("systemctl", "try-restart", "cube-gateway.service")
        try:
            for tenant in (key, output("cubectl", "--quiet", "apikey", "create", "other").strip()):
                start(tenant, "slow", f"{name}/a", fromImageRegistry=LOGIN)
            held = [silent.accept() for _ in range(2)]
            one, other = wait_for("both", lambda: len(fetchers()) == 2 and [show(u, "MainPID") for u in fetchers()])
            assert len(seen(one, "/var/tmp")) == len(seen(other, "/var/tmp")) == 1
            assert seen(one, f"/proc/{other}/root/var/tmp") == seen(other, f"/proc/{one}/root/var/tmp") == []
            for connection, _ in held:
                connection.close()
        finally:
            os.unlink("/etc/cubed/gateway.conf.d/60-silent.conf")
            output("systemctl", "try-restart", "cube-gateway.service")
    wait_for("their end", lambda: units() == [])


def test_only_the_gateway_asks(listening):  # noqa: F811
    output("systemctl", "start", "cube-gateway.service")
    for path in ("/run/cubed/fetch", "/run/cubed/fetch-relay"):
        st = os.stat(path)
        assert (st.st_mode & 0o777, st.st_uid) == (0o600, pwd.getpwnam("cube-gateway").pw_uid)
    assert show("cube-fetch.socket", "ActiveState") == "active"


def test_it_listens_however_often_it_is_asked(listening):  # noqa: F811
    """Clients of several tenants make the gateway ask as fast as they send what can't be fetched."""
    output("systemctl", "start", "cube-gateway.service")
    for path in ("/run/cubed/fetch", "/run/cubed/fetch-relay"):
        for _ in range(400):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(path)
    wait_for("their end", lambda: units() == [], timeout=300)
    assert [show(u, "ActiveState") for u in ("cube-fetch.socket", "cube-fetch-relay.socket")] == ["active"] * 2
