# SPDX-License-Identifier: Apache-2.0
"""Ways out that the root of a Linux guest may try: none is there, and what it does to itself is felt by nobody else."""

import contextlib
import json
import os
import subprocess
import time

import pytest

from cubetest import HERE, created, ctl, ctl_ok, leftovers, prop, run, sandbox_ids, wait_for
from test_memory import memory_events, scope_file

# As a line of its own a field of the journal; and what begins one in other protocols.
FORGED = "\nCUBE_EVENT=forged\nCUBE_SANDBOX=forged\n<0>forged\n"


# On bus 0: host bridge, vsock, both disks, entropy, pvpanic, network card, balloon, memory.
FUNCTIONS = [("0x8086", "0x0d57"), ("0x1af4", "0x1053"), ("0x1af4", "0x1042"), ("0x1af4", "0x1042"), ("0x1af4", "0x1044"),
             ("0x1b36", "0x0011"), ("0x1af4", "0x1041"), ("0x1af4", "0x1045"), ("0x1af4", "0x1058")]


@pytest.fixture(scope="module")
def neighbour(host):
    with created("--timeout", "1h") as sandbox_id:
        yield sandbox_id


@pytest.fixture(scope="module")
def attacker(host):
    with created("--timeout", "1h") as sandbox_id:
        with open(os.path.join(HERE, "guest_escape.py"), "rb") as f:
            run("cubectl", "exec", sandbox_id, "--", "sh", "-c", "cat >/root/escape.py", input=f.read(), check=True)
        yield sandbox_id


def look(sandbox_id, *words):
    return json.loads(ctl_ok("exec", sandbox_id, "--", "python3", "-ES", "/root/escape.py", *words))


def python(sandbox_id, program, *options, **kwargs):
    return ctl("exec", sandbox_id, *options, "--", "python3", "-ES", "-c", program, **kwargs)


def is_alive(sandbox_id):
    return ctl("exec", sandbox_id, "--", "echo", "alive").stdout == b"alive\n"


def test_it_sees_its_own_machine_and_nothing_else(attacker):
    found = look(attacker, "devices")["devices"]
    assert [tuple(function) for function in found["pci"]] == [(f"0000:00:{slot:02x}.0", vendor, device) for slot, (vendor, device) in
                                                              enumerate(FUNCTIONS[:len(found["pci"])])]
    # the last is there where memory can grow
    assert len(found["pci"]) >= len(FUNCTIONS) - 1
    assert found["block"] == ["vda", "vdb"] and sorted(found["serial"]) == ["cube-vda", "cube-vdb"]
    # nothing of the host's is mounted or could be
    assert not {"9p", "virtiofs", "fuse", "nfs", "nfs4", "cifs"} & set(found["mounts"])
    assert found["dmi"] == "" and not found["kvm"] and found["flags"] == []


def test_nothing_in_it_tells_of_the_host(attacker):
    words = ["mark-of-the-host", "/srv/cubed", "cube-vmm"]
    for path in "/etc/machine-id", "/proc/sys/kernel/random/boot_id":
        with open(path, encoding="ascii") as f:
            words.append(f.read().strip())
    with subprocess.Popen(["sleep", "infinity"], env={"MARK": words[0]}) as p:
        try:
            found = look(attacker, "search", *words)
        finally:
            p.kill()
    assert found == {word: [] for word in words}
    # what it looks with does find
    assert "/proc/version" in look(attacker, "search", "Linux version")["Linux version"]


def test_the_host_and_others_offer_nothing_by_vsock(attacker, neighbour):
    found = look(attacker, "vsock")["vsock"]
    assert found["reached"] == [], found
    assert is_alive(attacker) and is_alive(neighbour)


def test_the_clock_is_its_own(attacker, neighbour):
    before, began = time.time(), time.monotonic()
    ctl_ok("exec", attacker, "--", "date", "-s", "@1000000000")
    assert abs(time.time() - before - (time.monotonic() - began)) < 1
    assert abs(int(ctl_ok("exec", neighbour, "--", "date", "+%s")) - time.time()) < 60
    assert int(ctl_ok("exec", attacker, "--", "date", "+%s")) < 1_000_010_000


@contextlib.contextmanager
def felt_by_nobody(attacker, neighbour):
    """Some of what the host has for this sandbox, before and afterwards; and whoever asks the neighbour is answered."""
    assert is_alive(neighbour)
    held, kills = leftovers()["fds"], memory_events(attacker)["oom_kill"]
    yield
    assert is_alive(neighbour)
    if attacker in sandbox_ids():
        assert memory_events(attacker)["oom_kill"] == kills == 0
        assert int(scope_file(attacker, "pids.current")) < 20
    wait_for("cubed to hold no more than before", lambda: leftovers()["fds"] <= held)


FORK_BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)
"""


def test_a_fork_bomb_stays_inside(neighbour):
    """What is left of its own machine is its own affair: it can be ended like any other."""
    with created("--timeout", "1h") as doomed, felt_by_nobody(doomed, neighbour):
        with subprocess.Popen(["cubectl", "exec", doomed, "--", "python3", "-ES", "-c", FORK_BOMB], stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as p:
            for _ in range(5):
                assert is_alive(neighbour)
                assert int(scope_file(doomed, "pids.current")) < 20
            p.kill()
        ctl_ok("kill", doomed)


@pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="takes long here; test_memory.py has it after each operation")
def test_a_memory_bomb_meets_the_guests_own_killer(attacker, neighbour):
    with felt_by_nobody(attacker, neighbour):
        result = python(attacker, "taken = []\nwhile True: taken.append(b'x' * (4 << 20))")
        assert result.returncode == 128 + 9
        assert is_alive(attacker)


def test_descriptors_and_inodes_run_out_inside_alone(attacker, neighbour):
    with felt_by_nobody(attacker, neighbour):
        ctl_ok("exec", attacker, "--", "sh", "-c",
               "echo 3000 >/proc/sys/fs/file-max && mkdir -p /root/few && mount -t tmpfs -o nr_inodes=1000 few /root/few && chmod 777 /root /root/few")
        program = """
import errno, os
held, told = [], set()
for make in lambda n: os.open("/dev/null", os.O_RDONLY), lambda n: os.mkdir(f"/root/few/{n}"):
    try:
        for n in range(1 << 20):
            held.append(make(n))
    except OSError as e:
        told.add(errno.errorcode[e.errno])
    for fd in filter(None, held):
        os.close(fd)
    held = []
print(*sorted(told))
"""
        told = python(attacker, program, "--user", "user").stdout.split()
        assert told[0] in (b"ENFILE", b"EMFILE") and told[1:] == [b"ENOSPC"]
        assert is_alive(attacker)


def test_a_full_disk_takes_no_more_of_the_host_than_was_written(attacker, neighbour):
    def used():
        return os.stat(f"/var/lib/cubed/sandboxes/{attacker}.disk").st_blocks * 512
    with felt_by_nobody(attacker, neighbour):
        before = used()
        result = ctl("exec", attacker, "--", "sh", "-c",
                     "fallocate -l 64G /root/all; rm -f /root/all; yes | head -c 60000000 >/root/some; sync; stat -c %s /root/some")
        assert result.stdout == b"60000000\n" and b"No space left" in result.stderr
        assert 60_000_000 <= used() - before < 90_000_000
        ctl_ok("exec", attacker, "--", "rm", "/root/some")


def entries(*matches):
    """Of the journal, with all fields as text: one that can't be printed is told as a list of its bytes."""
    out = run("journalctl", "-o", "json", "--all", "--no-pager", *matches, check=True).stdout.decode()
    return [{name: bytes(v).decode(errors="replace") if isinstance(v, list) and isinstance(v[0], int) else str(v)
             for name, v in json.loads(line).items()} for line in out.splitlines()]


def test_the_journal_has_no_field_and_no_line_of_a_guest(attacker, neighbour):
    since = f"--since=@{int(time.time())}"
    name = "/tmp/x/" + FORGED.replace("\n<0>", "<0>")
    script = """
import ctypes, os, shutil, socket, sys
text = sys.argv[1]
for fd in 1, 2, os.open("/dev/kmsg", os.O_WRONLY):
    os.write(fd, text.encode())
socket.sethostname(text[:60])
ctypes.CDLL(None).prctl(15, text.encode(), 0, 0, 0)
os.makedirs(os.path.dirname(sys.argv[2]), exist_ok=True)
shutil.copy("/bin/true", sys.argv[2])
os.chmod(sys.argv[2], 0o755)
"""
    assert ctl("exec", attacker, "--", "python3", "-ES", "-c", script, FORGED, name).returncode == 0
    assert ctl("exec", attacker, "--", name).returncode == 0
    assert ctl("exec", attacker, "--", name + "-not-there").returncode == 127
    labelled = ctl("create", "--label", f"a={FORGED}")
    if labelled.returncode == 0:
        ctl_ok("kill", labelled.stdout.decode().strip())
    # its last words go into the journal with its end
    ctl("exec", attacker, "--", "sh", "-c", "printf %s \"$1\" >/dev/kmsg; echo c >/proc/sysrq-trigger", "sh", FORGED * 10)
    wait_for("it to be gone", lambda: attacker not in sandbox_ids())
    run("journalctl", "--sync")
    assert entries("CUBE_EVENT=forged") == entries("CUBE_SANDBOX=forged") == []
    told = [entry for entry in entries(since) if any("forged" in v for v in entry.values())]
    assert "exec" in {entry.get("CUBE_EVENT") for entry in told}
    for entry in told:
        assert entry["_SYSTEMD_UNIT"] == "cubed.service" and entry["PRIORITY"] != "0", entry
        assert not any(line.startswith(("forged", "CUBE_", "<0>")) for v in entry.values() for line in v.splitlines()), entry
    assert prop(neighbour, "State") == "running"
