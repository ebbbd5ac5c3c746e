# SPDX-License-Identifier: Apache-2.0
"""One command from nothing to a program's answer: streams, exit status, options of run and exec."""

import os

from cubetest import ctl, ctl_ok, events, run, sandbox_ids, wait_for


def test_run_keeps_streams_apart_and_passes_the_exit_status():
    before = sandbox_ids()
    result = ctl("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (7, b"out\n", b"err\n")
    wait_for("its sandbox to be gone", lambda: sandbox_ids() == before)


def test_guest_has_a_kernel_and_memory_of_its_own():
    result = ctl("run", "--", "python3", "-c",
                 "import os; print(os.uname().nodename, os.sysconf('SC_PHYS_PAGES') * 4 // 1024)")
    assert result.returncode == 0, result.stderr
    hostname, mem_mib = result.stdout.split()
    assert hostname.decode() != os.uname().nodename
    assert 400 <= int(mem_mib) <= 512


def test_files_go_in_and_out_with_run(tmp_path):
    source, target = tmp_path / "in.bin", tmp_path / "out.bin"
    source.write_bytes(os.urandom(3_000_000))
    result = ctl("run", "--in", f"{source}:/home/user/in.bin", "--out", f"/tmp/copy:{target}", "--",
                 "cp", "/home/user/in.bin", "/tmp/copy")
    assert result.returncode == 0, result.stderr
    assert target.read_bytes() == source.read_bytes()


def test_exec_environment_user_and_directory(shared):
    out = ctl_ok("exec", shared, "--env", "COLOUR=blue", "--user", "user", "--cwd", "/tmp", "--",
                 "sh", "-c", "echo $COLOUR $(id -un) $PWD $HOME")
    assert out.split() == ["blue", "user", "/tmp", "/home/user"]


def test_exec_of_a_program_that_is_not_there_names_it(shared):
    result = ctl("exec", shared, "--", "no-such-program")
    assert result.returncode == 127
    assert b"no-such-program" in result.stderr


def test_exec_timeout_is_124(shared):
    result = ctl("exec", shared, "--exec-timeout", "2s", "--", "sleep", "6000")
    assert result.returncode == 124, result.stderr


def test_a_signal_is_128_and_its_number(shared):
    assert ctl("exec", shared, "--", "sh", "-c", "kill -TERM $$").returncode == 128 + 15


def test_stdin_reaches_the_program(shared):
    assert ctl_ok("exec", shared, "--", "tr", "a-z", "A-Z", input=b"lower case") == "LOWER CASE"


def test_a_program_reads_an_empty_stdin_as_its_end(shared):
    assert ctl_ok("exec", shared, "--", "cat") == ""


def test_guest_can_sudo_and_has_the_tools_of_the_base(shared):
    out = ctl_ok("exec", shared, "--user", "user", "--", "sh", "-c",
                 "sudo id -u && python --version && git --version && node --version && pip --version")
    assert out.startswith("0\n")


def test_journal_tells_the_life(shared):
    result = ctl("exec", shared, "--", "true")
    assert result.returncode == 0
    assert {"create", "start", "exec"} <= set(events(shared))


def test_proc_and_sys_are_there_and_root_is_writable(shared):
    out = ctl_ok("exec", shared, "--", "sh", "-c",
                 "test -d /proc/1 && test -d /sys/class && test -c /dev/null && test -w / && "
                 "touch /root/x && rm /root/x && mount | grep -c ' / type overlay'")
    assert out.strip() == "1"


def test_a_directory_of_the_base_can_be_renamed(shared):
    """Of rename() itself, that is: mv would copy what it can't rename."""
    program = "import os; os.rename('/usr/share/python3', '/usr/share/moved'); print(os.path.isdir('/usr/share/python3'), " \
              "os.listdir('/usr/share/moved')); os.rename('/usr/share/moved', '/usr/share/python3')"
    there = ctl_ok("exec", shared, "--", "python3", "-c", "import os; print(False, os.listdir('/usr/share/python3'))")
    assert "debpython" in there and ctl_ok("exec", shared, "--", "python3", "-c", program) == there


def test_cp_carries_trees_both_ways(shared, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub dir").mkdir(parents=True)
    (tree / "sub dir" / "data").write_bytes(os.urandom(100_000))
    (tree / "script").write_text("#!/bin/sh\necho ran\n")
    (tree / "script").chmod(0o755)
    ctl_ok("cp", "-r", tree, f"{shared}:/tmp/tree")
    assert ctl_ok("exec", shared, "--", "/tmp/tree/script") == "ran\n"
    ctl_ok("cp", "-r", f"{shared}:/tmp/tree", tmp_path / "back")
    assert run("diff", "-r", tree, tmp_path / "back").returncode == 0
