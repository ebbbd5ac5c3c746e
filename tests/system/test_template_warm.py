# SPDX-License-Identifier: Apache-2.0
"""Templates whose guest was set up, started and saved: with a real root file system and its shell.

One build has everything in it that can be right, for each takes a boot; those that fail share nothing, and have no more than
a shell in them.
"""

import hashlib
import os
import signal
import subprocess

import pytest

import cubetest
from cubetest import ctl, ctl_ok, wait_for
from labhost import PLACE, make_shell

SERVER = "import http.server; http.server.HTTPServer(('127.0.0.1', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()"
ASK = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000/mark').read().decode())"


def arguments(name, source, *options):
    return ["template", "build", name, "--from", source, *options]


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """A tree to be copied, with what a copy can get wrong."""
    top = tmp_path_factory.mktemp("copied") / "app"
    (top / "bin").mkdir(parents=True)
    (top / "bin" / "hello").write_text("#!/bin/sh\necho hello from $0\n")
    (top / "bin" / "hello").chmod(0o755)
    (top / "bin" / "alias").symlink_to("hello")
    (top / "private").write_text("1")
    (top / "private").chmod(0o600)
    (top / "blob").write_bytes(bytes(range(256)) * 8192)
    return top


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    return make_shell(tmp_path_factory.mktemp("shell"))


@pytest.fixture(scope="module")
def warm(app):
    """Its log. A server in the directory of user, which gets a file in time and says so."""
    log = cubetest.run("cubectl", *arguments(
        "warm", f"{PLACE}/python.squashfs", "--user", "user", "--cwd", "/home/user", "--env", "COLOUR=blue",
        "--copy", f"{app}:/opt/deep/app", "--copy", f"{app}/blob:/usr/share/",
        "--setup", "echo $COLOUR $(id -un) $PWD",
        "--setup", "/opt/deep/app/bin/alias; cat /opt/deep/app/private || echo it-is-private",
        "--setup", "echo it-is-me >mark; (sleep 0.2; echo late) & echo early",
        "--start", f'exec python3 -c "{SERVER}"',
        "--ready", f'python3 -c "{ASK}"', "--ready-timeout", "10min"), check=True, timeout=900).stderr.decode()
    yield log
    ctl("template", "rm", "warm")


def test_setup_has_user_directory_and_environment(warm):
    assert "blue user /home/user\n" in warm


def test_what_was_copied_is_there_for_setup(warm):
    assert "hello from /opt/deep/app/bin/alias\n" in warm and "it-is-private\n" in warm


def test_what_was_copied_is_in_each_sandbox(warm, app):
    with cubetest.created("--template", "warm") as sandbox_id:
        same = hashlib.sha256((app / "blob").read_bytes()).hexdigest()
        sums = ctl_ok("exec", sandbox_id, "--", "sha256sum", "/opt/deep/app/blob", "/usr/share/blob")
        assert [line.split()[0] for line in sums.splitlines()] == [same, same]
        listed = ctl_ok("exec", sandbox_id, "--", "stat", "-c", "%a %U %n", "/opt/deep/app/bin/hello", "/opt/deep/app/private")
        assert listed.splitlines() == ["755 root /opt/deep/app/bin/hello", "600 root /opt/deep/app/private"]


def test_what_a_command_leaves_behind_still_prints(warm):
    assert "early\n" in warm and "late\n" in warm


def test_a_sandbox_goes_on_where_the_build_was(warm):
    assert ctl_ok("template", "show", "warm", "--value", "-p", "Start").strip() == "restored"
    with cubetest.created("--template", "warm") as sandbox_id:
        assert cubetest.prop(sandbox_id, "Start") == "restored"
        assert ctl_ok("exec", sandbox_id, "--", "python3", "-c", ASK).strip() == "it-is-me"
        assert ctl_ok("exec", sandbox_id, "--", "hostname").strip() == sandbox_id
        assert ctl("exec", sandbox_id, "--", "test", "-e", "/.cube-warm").returncode == 1


FAILURES = {
    "signal": (("--setup", "kill -KILL $$"), "setup command 1 of 1 ended by signal 9"),
    "user": (("--setup", "true", "--user", "nobody-of-that-name"), "nobody-of-that-name"),
    "ready": (("--start", "sleep 600", "--ready", "false", "--ready-timeout", "5s"), "it was not ready within 5s"),
    "panic": (("--setup", "echo c >/proc/sysrq-trigger"), "the guest ended"),
}
if os.environ.get("CUBE_LONG") == "1":  # the box has them too
    FAILURES |= {
        "exit": (("--setup", "echo so far; echo no >&2; exit 3"), "setup command 1 of 1 ended with exit status 3"),
        "start": (("--start", "sleep 1; exit 4", "--ready", "false"), "the program of --start ended with exit status 4"),
    }


@pytest.mark.parametrize("options, what", FAILURES.values(), ids=FAILURES)
def test_a_failure_is_named_and_leaves_nothing(shell, options, what):
    before = cubetest.at_rest()
    result = ctl(*arguments("broken", shell, *options), timeout=900)
    assert result.returncode == 1
    assert what in result.stderr.decode()
    assert ctl("template", "show", "broken").returncode == 1
    cubetest.nothing_left_since(before, but=["fds"])


def test_a_cancel_in_the_guest_leaves_nothing(shell):
    before = cubetest.at_rest()
    with subprocess.Popen(["cubectl", *arguments("broken", shell, "--setup", "sleep 6000")], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        text = b""
        while b"[setup command 1 of 1]" not in text:
            line = process.stderr.readline()
            assert line, text
            text += line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=cubetest.PATIENCE)
        assert process.returncode == 1
    wait_for("its name to be free", lambda: ctl("template", "show", "broken").returncode == 1)
    cubetest.nothing_left_since(before, but=["fds"])
