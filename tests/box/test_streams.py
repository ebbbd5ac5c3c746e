# SPDX-License-Identifier: Apache-2.0
"""Bytes between a client and the guest: whole, in order, held back when nobody reads, never
through cubed."""

import subprocess

from cubetest import created, ctl, cubed_pid, prop, run

SIZE = 200_000_000


def cubed_io():
    with open(f"/proc/{cubed_pid()}/io", encoding="ascii") as f:
        fields = dict(line.split(": ") for line in f.read().splitlines())
    return int(fields["rchar"]) + int(fields["wchar"])


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def test_200_mb_through_cat_and_back(shared):
    """Through stdin into the guest and back out by stdout; what comes back is what went in."""
    before = cubed_io()
    script = (f"head -c {SIZE} /dev/urandom | tee >(sha256sum >/tmp/in.sum) | cubectl exec {shared} -- cat | "
              "sha256sum >/tmp/out.sum; exit ${PIPESTATUS[1]}")
    assert run("bash", "-c", script, timeout=500).returncode == 0
    with open("/tmp/in.sum", encoding="ascii") as a, open("/tmp/out.sum", encoding="ascii") as b:
        assert a.read() == b.read()
    assert cubed_io() - before < 1_000_000


def test_a_client_that_does_not_read_grows_nothing():
    with created("--timeout", "1h") as sandbox_id:
        vmm = prop(sandbox_id, "VMMPID")
        with subprocess.Popen(["cubectl", "exec", sandbox_id, "--", "yes"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE) as p:
            p.stdout.read(1 << 20)
            before = rss(vmm)
            # Other streams go on meanwhile; each makes sure that the flood had its time.
            for _ in range(20):
                assert ctl("exec", sandbox_id, "--", "true").returncode == 0
            assert rss(vmm) - before < 4 << 20
            p.kill()
