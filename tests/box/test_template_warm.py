# SPDX-License-Identifier: Apache-2.0
"""A template's first guest: what is run in it, what comes of a failure, and that nobody else sees it."""

import os
import signal
import subprocess

import pytest

import cubetest
from cubetest import ctl, ctl_ok, wait_for
from conftest import PAYLOAD
from snapshots import count
from templates import stored, stored_at_rest


def arguments(root, name, *options, words=""):
    return ["template", "build", name, "--from", str(root), "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M",
            *(["--cmdline", words] if words else []), *options]


def wait_stored(before):
    wait_for(f"{stored()} to be {before}", lambda: stored() == before)


def value(name, key):
    return ctl_ok("template", "show", name, "--value", "-p", key).strip()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return cubetest.make_root(tmp_path_factory.mktemp("root"))


@pytest.fixture
def fails(root, clean):
    """fails(option...): the message of a build that fails and leaves nothing."""
    def check(*options, words=""):
        before = stored_at_rest()
        result = ctl(*arguments(root, "broken", *options, words=words))
        assert result.returncode == 1
        assert ctl("template", "show", "broken").returncode == 1
        wait_stored(before)
        return result.stderr.decode()
    return check


@pytest.fixture
def built(root):
    """built(name, option...): cubectl's result; the template goes at the end."""
    names = []

    def make(name, *options):
        names.append(name)
        return cubetest.run("cubectl", *arguments(root, name, *options), check=True)
    yield make
    for name in names:
        ctl("template", "rm", name)


@pytest.fixture
def hanging(root, template):
    """hanging(option...): a build that has come to a setup command without end; its cubectl, and the builder's id."""
    started = []
    at_first = cubetest.at_rest()

    def start(*options):
        before = set(cubetest.leftovers()["run"])
        process = subprocess.Popen(["cubectl", *arguments(root, "broken", "--setup", "hang", *options)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        text = b""
        while b"[setup command 1 of 1]" not in text:
            line = process.stderr.readline()
            assert line, text
            text += line
        (builder,) = set(cubetest.leftovers()["run"]) - before
        return process, builder
    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    # A cubed that was started anew has other descriptors.
    cubetest.nothing_left_since(at_first, but=["fds"])


def test_setup_commands_run_in_order_and_print_into_the_log(built):
    log = built("warm", "--setup", "echo first", "--setup", "err second", "--setup", "env", "--env", "A=B").stderr.decode()
    assert [log.index(text) for text in ("first\n", "second\n", "A=B\n")] == sorted(
        log.index(text) for text in ("first\n", "second\n", "A=B\n"))
    assert "running setup command 3 of 3" in log


@pytest.fixture
def tree(tmp_path):
    """A directory to be copied."""
    top = tmp_path / "app"
    (top / "below").mkdir(parents=True)
    (top / "main.py").write_bytes(os.urandom(300000))
    (top / "below" / "empty").touch()
    (top / "below" / "link").symlink_to("../main.py")
    return top


def test_files_are_copied_before_setup_runs(fails, tree):
    message = fails("--copy", f"{tree}:/srv/app", "--copy", f"{tree}/main.py:/opt/", "--setup", "false")
    assert message.index("[copy 2 of 2, to /opt/main.py]") < message.index("[setup command 1 of 1]")
    console = message[message.index("The console's last lines"):]
    for line in ("made directory /srv\n", "made directory /srv/app\n", "made directory /srv/app/below\n",
                 "wrote file /srv/app/main.py\n", "wrote file /srv/app/below/empty\n", "made link /srv/app/below/link\n",
                 "made directory /opt\n", "wrote file /opt/main.py\n"):
        assert line in console


def test_a_template_with_copies_is_saved(built, tree):
    built("warm", "--copy", f"{tree}:/srv/app")
    assert value("warm", "Start") == "restored"


def test_a_copy_that_fails_is_named(fails, tree):
    assert "copy 2 of 2, to /full: cube-image: /full: No space in the payload" in fails(
        "--copy", f"{tree}:/srv/app", "--copy", f"{tree}/main.py:/full")
    os.mkfifo(tree / "below" / "pipe")
    assert "copy 1 of 1, to /srv/app: cube-image: below/pipe: neither a file" in fails("--copy", f"{tree}:/srv/app")


def test_a_build_ends_amid_a_copy(fails, tree):
    with open(tree / "large", "wb") as f:
        f.truncate(64 << 30)
    message = fails("--copy", f"{tree}:/srv/app", "--setup", "true", "--timeout", "15s")
    assert "the build took longer than it may" in message
    assert "[copy 1 of 1, to /srv/app]" in message and "[setup command" not in message


def test_a_template_says_how_its_sandboxes_start(built):
    built("warm")
    built("cold", "--no-warm")
    assert (value("warm", "Start"), value("cold", "Start")) == ("restored", "booted")


def test_a_program_is_started_and_waited_for(built):
    log = built("warm", "--start", "echo up", "--start", "hang", "--ready", "tries 3").stderr.decode()
    assert "waiting until it is ready" in log


def test_what_was_started_runs_in_each_sandbox(built):
    built("warm", "--start", "counter calmly", "--memory", "64M")
    for _ in range(2):
        with cubetest.created("--template", "warm") as sandbox_id:
            assert cubetest.prop(sandbox_id, "Start") == "restored"
            wait_for("it to count", lambda i=sandbox_id: count(i) > 0)
            assert b"counter" in cubetest.run("busctl", "call", cubetest.NAME, f"{cubetest.ROOT}/sandbox/{sandbox_id}",
                                              cubetest.SANDBOX, "ListProcesses").stdout


def test_a_template_with_sandboxes_or_snapshots_stays(built):
    built("warm")
    with cubetest.created("--template", "warm") as sandbox_id:
        assert sandbox_id.encode() in ctl("template", "rm", "warm").stderr
        snapshot = cubetest.snapshot(sandbox_id)
    wait_for("it to be gone", lambda: sandbox_id not in cubetest.sandbox_ids())
    assert snapshot.encode() in ctl("template", "rm", "warm").stderr
    cubetest.manager().RemoveSnapshot(snapshot, timeout=60)
    ctl_ok("template", "rm", "warm")


@pytest.mark.parametrize("options, what", [
    (("--setup", "true", "--setup", "exit 3"), "setup command 2 of 2 ended with exit status 3"),
    (("--start", "exit 4", "--ready", "false"), "the program of --start ended with exit status 4"),
    (("--start", "true", "--ready", "false"), "the program of --start ended with exit status 0"),
    (("--ready", "false", "--ready-timeout", "1s"), "it was not ready within 1s"),
    (("--setup", "panic"), "the guest ended (panic"),
    (("--setup", "hang", "--timeout", "3s"), "the build took longer than it may"),
], ids=lambda p: p[0].strip("-") if isinstance(p, tuple) else "")
def test_a_failure_is_named_and_leaves_nothing(fails, options, what):
    assert what in fails(*options)


def test_a_command_that_prints_without_end_fills_its_log_and_no_more(fails):
    message = fails("--setup", "yes", "--timeout", "15s")
    assert "[the log is full" in message and "the build took longer than it may" in message
    assert len(message) < 2 << 20


def test_a_guest_that_does_not_boot_fails_the_build_with_its_console(fails):
    assert "last lines" in fails(words="reset")


def test_a_shell_that_is_missing_is_said_plainly(fails):
    assert 'no "sh"' in fails("--setup", "true", words="no-shell")


def test_what_else_may_be_missing_is_said_in_the_guests_words(fails):
    assert 'No such program in the payload (it is run by "sh"' in fails("--setup", "true", "--user", "me", words="no-shell")


def test_an_image_without_a_shell_is_warmed_all_the_same(root):
    ctl_ok(*arguments(root, "bare", words="no-shell"))
    ctl_ok("template", "rm", "bare")


def test_a_cancel_leaves_nothing(hanging):
    before = stored_at_rest()
    process, _ = hanging()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 1
    wait_stored(before)


def test_a_cubed_that_ends_takes_the_build_with_it(hanging):
    before = stored_at_rest()
    _, builder = hanging()
    cubetest.run("systemctl", "restart", "cubed.service", check=True)
    wait_for("the builder to be gone", lambda: builder not in cubetest.leftovers()["run"])
    assert ctl("template", "show", "broken").returncode == 1
    wait_stored(before)


def test_a_cubed_that_is_killed_leaves_a_builder_that_the_next_one_ends(hanging):
    before = stored_at_rest()
    _, builder = hanging()
    cubetest.crash()
    wait_for("the builder to be gone", lambda: builder not in cubetest.leftovers()["run"])
    assert builder not in cubetest.sandbox_ids()
    wait_stored(before)


def test_a_builder_is_nobodys_sandbox(hanging):
    process, builder = hanging()
    assert builder not in cubetest.sandbox_ids()
    assert cubetest.manager_prop("NSandboxes") == len(cubetest.sandbox_ids())
    assert f"No sandbox '{builder}'".encode() in ctl("kill", builder).stderr
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert cubetest.events(builder) == []


def test_a_name_stays_with_what_works(built, root):
    built("warm")
    first = value("warm", "Id")
    assert ctl(*arguments(root, "warm", "--setup", "false")).returncode == 1
    assert value("warm", "Id") == first


def test_a_template_takes_its_snapshot_along(root):
    before = set(stored_at_rest())
    ctl_ok(*arguments(root, "warm"))
    new = set(stored_at_rest()) - before
    assert sorted(name.rpartition("/")[0] for name in new) == ["snapshots", "templates", "templates/names/0"]
    ctl_ok("template", "rm", "warm")
    wait_for(f"{new} to be gone", lambda: not new & set(stored()))


def test_commands_without_a_guest_are_refused(root):
    assert b"--no-warm" in ctl(*arguments(root, "cold", "--no-warm", "--setup", "true")).stderr
