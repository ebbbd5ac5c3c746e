# SPDX-License-Identifier: Apache-2.0
"""Bytes between a client and the guest: whole, in order, held back when nobody reads, never
through cubed."""

import hashlib
import random
import subprocess
import threading

from cubetest import created, ctl, cubed_pid, prop

SIZE, PIECE = 200_000_000, 1 << 20


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


def feed(stream, result):
    """SIZE bytes into it, which are closed with their checksum."""
    generator, digest = random.Random(200), hashlib.sha256()
    for at in range(0, SIZE, PIECE):
        data = generator.randbytes(min(PIECE, SIZE - at))
        digest.update(data)
        stream.write(data)
    stream.close()
    result.append(digest.hexdigest())


def test_200_mb_through_cat_and_back(shared):
    """Through stdin into the guest and back out by stdout; what comes back is what went in."""
    before, sent, came = cubed_io(), [], hashlib.sha256()
    with subprocess.Popen(["cubectl", "exec", shared, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        feeder = threading.Thread(target=feed, args=(p.stdin, sent))
        feeder.start()
        while data := p.stdout.read(PIECE):
            came.update(data)
        feeder.join()
        assert p.wait(60) == 0
    assert sent == [came.hexdigest()]
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
