# SPDX-License-Identifier: Apache-2.0
"""cube-resolver as a service: its user, its socket, and restarts of it and of cubed. What it does is tested in tests/bpf."""

import pathlib
import pwd
import re

from cubetest import active, run, wait_for

UNIT = "cube-resolver.service"


def output(*command):
    return run(*command, check=True).stdout.decode()


def pid():
    return int(output("systemctl", "show", "-P", "MainPID", UNIT))


def listening():
    """Sockets on the host's address in the sandbox network that cube-resolver has, too."""
    text = output("ss", "-Hlnptu")
    return re.findall(rf'^(udp|tcp) .* (\S+):(\d+) .*pid={pid()},', text, re.M)


def restarts():
    return int(output("systemctl", "show", "-P", "NRestarts", UNIT))


def test_it_comes_with_cubed_and_has_nothing_but_its_sockets():
    wait_for("it to run", lambda: active(UNIT))
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid()}/status").read_text().splitlines() if ":\t" in line)
    uid = str(pwd.getpwnam("cube-resolver").pw_uid)
    assert status["Uid"].split() == [uid] * 4
    assert {status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    wait_for("its sockets", listening)
    sockets = listening()
    assert {kind for kind, _, _ in sockets} == {"udp", "tcp"}
    assert len({port for _, _, port in sockets}) == 1
    host = output("ip", "-o", "-4", "address", "show", "dev", "cube-host")
    assert all(re.search(rf"\b{re.escape(address)}/", host) or ":" in address for _, address, _ in sockets)


def test_it_outlives_cubed_and_is_given_new_sockets():
    wait_for("its sockets", listening)
    mine, before = pid(), listening()
    output("systemctl", "restart", "cubed.service")
    wait_for("other sockets", lambda: listening() and listening() != before)
    assert pid() == mine


def test_it_is_started_again_when_it_is_killed():
    wait_for("its sockets", listening)
    mine, before, n = pid(), listening(), restarts()
    output("kill", "-9", str(mine))
    wait_for("another one", lambda: pid() not in (0, mine) and listening())
    # cube-netd had them all the time
    assert sorted(listening()) == sorted(before)
    assert restarts() == n + 1
