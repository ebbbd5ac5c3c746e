# SPDX-License-Identifier: Apache-2.0
"""Names of templates, what is freed of those that have none, and how they go from host to host."""

import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import tarfile

import pytest

import cubetest
from conftest import PAYLOAD
from templates import stored, stored_at_rest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "native"))
import snapshot  # noqa: E402

STORE = "/var/lib/cubed/templates"


def build(root, name, *options, warm=False):
    return cubetest.ctl_ok("template", "build", name, "--from", root, "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M",
                           *(() if warm else ("--no-warm",)), *options).strip()


def collect(*options):
    return {(g["kind"], g["name"]): g["size"] for g in json.loads(cubetest.ctl_ok("gc", "--json=short", *options))}


def test_what_has_no_name_goes(template, tmp_path):
    """Built three times: the first has an alias, the second a sandbox, of the third the name; a fourth moves that."""
    template()
    root = cubetest.make_root(tmp_path)
    cubetest.ctl_ok("gc")
    aliased = build(root, "again", "--no-cache", "--alias", "first")
    used = build(root, "again", "--no-cache")
    free = build(root, "again", "--no-cache")
    named = build(root, "again", "--no-cache")
    with cubetest.created("--template", used):
        assert {k for k in collect("--dry-run") if k[0] == "template"} == {("template", free)}
        freed = collect()
        assert freed[("template", free)] > 0 and not os.path.exists(f"{STORE}/{free}")
        stored_at_rest()
        # nobody has its files any more, and a new cubed knows of nothing that is gone
        cubetest.run("systemctl", "restart", "cubed.service", check=True)
        assert collect("--dry-run") == {}
        for i in (aliased, used, named):
            assert os.path.exists(f"{STORE}/{i}")
        cubetest.ctl_ok("template", "alias", "--remove", "first")
        assert {k[1] for k in collect() if k[0] == "template"} == {aliased}
    assert {k[1] for k in collect() if k[0] == "template"} == {used}
    assert cubetest.ctl_ok("template", "show", "again", "-p", "Id", "--value").strip() == named
    cubetest.ctl_ok("template", "rm", "again")


def value(name, key):
    return cubetest.ctl_ok("template", "show", name, "--value", "-p", key).strip()


@pytest.fixture(scope="module")
def pack(template, tmp_path_factory):
    """A template with a saved guest, exported."""
    directory = tmp_path_factory.mktemp("pack")
    build(cubetest.make_root(directory), "original", "--setup", "echo ready", "--allow", "example.com tcp:443", warm=True)
    cubetest.ctl_ok("template", "export", "original", str(directory / "original.cube"))
    yield directory / "original.cube"
    cubetest.ctl_ok("template", "rm", "original")


def test_what_was_exported_is_imported(pack):
    """The same files, policy and guest, under another id and name."""
    imported = cubetest.ctl_ok("template", "import", str(pack), "copy:1", "--alias", "same").strip()
    try:
        original = value("original", "Id")
        assert imported != original and value("copy:1", "Id") == value("same", "Id") == imported
        for key in ("Start", "Memory", "Disk", "CPUs", "NetworkPolicy", "KernelRelease", "Size"):
            assert value("copy:1", key) == value("original", key), key
        assert value("copy:1", "Start") == "restored"
        described = [json.load(open(f"{STORE}/{i}/template.json", encoding="utf-8"))["files"] for i in (original, imported)]
        assert described[0] == described[1]
        # one kernel for both, and what was in the way is readable to nobody else
        assert os.stat(f"{STORE}/{original}/vmlinux").st_ino == os.stat(f"{STORE}/{imported}/vmlinux").st_ino
        assert os.stat(f"{STORE}/{imported}/root.img").st_mode & 0o7777 == 0o400
        with cubetest.created("--template", "copy:1") as sandbox:
            assert cubetest.ctl_ok("show", sandbox, "-p", "Start", "--value").strip() == "restored"
            assert "hello" in cubetest.ctl_ok("exec", sandbox, "--", "echo", "hello")
        # a new cubed finds it whole
        cubetest.run("systemctl", "restart", "cubed.service", check=True)
        assert value("same", "Id") == imported and value("same", "Start") == "restored"
    finally:
        cubetest.ctl_ok("template", "rm", imported)


def test_by_a_stream_and_under_its_own_name(pack):
    before = value("original", "Id")
    with subprocess.Popen(["cubectl", "template", "export", "original", "-"], stdout=subprocess.PIPE) as out:
        imported = subprocess.run(["cubectl", "template", "import", "-"], stdin=out.stdout, check=True, stdout=subprocess.PIPE,
                                  text=True).stdout.strip()
    assert out.returncode == 0 and value("original", "Id") == imported != before
    cubetest.ctl_ok("template", "rm", before)


def unpacked(pack, path):
    """The pack without its compression, where each member begins, and what its description says."""
    subprocess.run(["zstd", "-q", "-d", "-o", path, pack], check=True)
    with tarfile.open(path) as tar:
        members = {m.name: (m.offset_data, m.size) for m in tar if not m.issparse()}
    at, size = members["pack.json"]
    with open(path, "rb") as f:
        f.seek(at)
        return members, f.read(size)


def patch(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def set_leaf_bit(state, function, register, bit):
    """register: offset in struct kvm_cpuid_entry2."""
    body = state.sections[snapshot.CPUID, 0]
    at = next(at for at in range(0, len(body), 40) if struct.unpack_from("<II", body, at) == (function, 0))
    value, = struct.unpack_from("<I", body, at + register)
    assert not value >> bit & 1, "chosen for being clear"
    struct.pack_into("<I", body, at + register, value | 1 << bit)


def features_of_another_cpu(path, members, text):
    """In the saved guest's state, with all checksums right."""
    at, size = members["guest/state"]
    with open(path, "rb") as f:
        f.seek(at)
        data = f.read(size)
    state = snapshot.StateFile(data)
    set_leaf_bit(state, 7, 16, 27)
    other = state.pack()
    assert len(other) == size
    patch(path, at, other)
    sums = [hashlib.sha256(d).hexdigest().encode() for d in (data, other)]
    assert text.count(sums[0]) == 1
    patch(path, members["pack.json"][0], text.replace(*sums))


def damage(path, members, text):
    at, size = members["root.img"]
    with open(path, "rb") as f:
        f.seek(at + size // 2)
        byte = f.read(1)[0]
    patch(path, at + size // 2, bytes([byte ^ 0x40]))


def another_version(path, members, text):
    patch(path, members["pack.json"][0], text.replace(b'"version":1', b'"version":7', 1))


def described_as(that, this):
    """The same length: what lies behind stays where it is."""
    assert len(that) == len(this)

    def change(path, members, text):
        assert text.count(that) == 1
        patch(path, members["pack.json"][0], text.replace(that, this))
    return change


@pytest.fixture
def before(pack):
    return stored_at_rest()


@pytest.mark.parametrize("change, words", [
    (described_as(b'"root_type":"squashfs"', b'"root_type":"squashfz"'), "the template in it is not right"),
    (described_as(b'"cmdline":""', b'"cmdlinf":""'), "the template in it is not right"),
    (described_as(b'"kind":"template"', b'"kind":"squirrel"'), "the saved guest in it is not right"),
    (described_as(b'"plug":', b'"pluh":'), "the saved guest in it is not right"),
    (damage, "the checksum of root.img is not the one"),
    (another_version, "version 7 of the format"),
    (features_of_another_cpu, "features of another CPU"),
])
def test_what_is_refused_leaves_nothing(pack, before, tmp_path, change, words):
    path = tmp_path / "changed.cube"
    change(path, *unpacked(pack, path))
    result = cubetest.ctl("template", "import", str(path), "bad")
    assert result.returncode == 1 and words in result.stderr.decode(), result.stderr
    assert cubetest.ctl("template", "show", "bad").returncode == 1
    cubetest.wait_for("nothing to be left", lambda: stored() == before)
    assert collect("--dry-run") == {}


@pytest.fixture
def half(pack):
    """An import of which half has come."""
    with subprocess.Popen(["cubectl", "template", "import", "-", "half"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        data = pack.read_bytes()
        process.stdin.write(data[:len(data) // 2])
        process.stdin.flush()
        assert b"unpacking" in process.stderr.readline()
        yield process


def test_an_import_that_is_cancelled_leaves_nothing(before, half):
    half.send_signal(signal.SIGINT)
    assert half.wait(timeout=60) == 1 and b"anceled" in half.stderr.read()
    cubetest.wait_for("nothing to be left", lambda: stored() == before)


def test_nor_does_one_whose_cubed_ends(before, half):
    # what is being made is no garbage
    assert collect("--dry-run") == {} and any(name.startswith("templates/.build-") for name in stored())
    cubetest.run("systemctl", "kill", "--signal=KILL", "cubed.service", check=True)
    assert half.wait(timeout=60) == 1
    cubetest.wait_for("nothing to be left", lambda: cubetest.ctl("list").returncode == 0 and stored() == before)
