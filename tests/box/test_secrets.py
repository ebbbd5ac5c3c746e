# SPDX-License-Identifier: Apache-2.0
"""A secret given to a program by environment, standard input or a file is seen nowhere."""

import glob
import os

from cubetest import ctl, run

CANARY = "canary-5f1c0d7e9a"


def host_titles():
    for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                yield path, f.read()
        except OSError:
            continue


def files_with(text, *places):
    """Below these, of what is still there when it is to be read."""
    found = run("grep", "-rla", "-e", text, *places)
    odd = [line for line in found.stderr.decode().splitlines() if not line.endswith(": No such file or directory")]
    assert not odd, odd
    return found.stdout.decode().splitlines()


def test_a_canary_is_found_nowhere(shared, tmp_path):
    env = dict(os.environ, SECRET=CANARY + "-env")
    result = ctl("exec", shared, "--env", "SECRET", "--", "env", env=env)
    assert result.returncode == 0 and (CANARY + "-env").encode() in result.stdout
    assert ctl("exec", shared, "--", "cat", input=(CANARY + "-stdin").encode()).stdout.decode() == CANARY + "-stdin"
    assert ctl("exec", shared, "--", "echo", CANARY + "-argument").returncode == 0

    run("journalctl", "--sync")
    journal = run("journalctl", "-o", "export", "--no-pager", "-b").stdout
    assert CANARY.encode() not in journal
    assert files_with(CANARY, "/run/cubed") == []
    own = {f"/proc/{os.getpid()}/{name}" for name in ("cmdline", "environ")}
    assert not [path for path, text in host_titles() if CANARY.encode() in text and path not in own]
    tree = run("busctl", "call", "org.cubed.Cube1", "/org/cubed/Cube1", "org.freedesktop.DBus.ObjectManager",
               "GetManagedObjects").stdout
    assert CANARY.encode() not in tree
