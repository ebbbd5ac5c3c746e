# SPDX-License-Identifier: Apache-2.0
"""What tests in the box and in the lab share: cubectl, the bus, waiting for things to become true.

Runs inside the box or the lab as root, next to a running cubed. Nothing in here sleeps for a fixed
time: wait_for() polls a condition and says what it waited for when it gives up.
"""

import contextlib
import functools
import json
import os
import re
import subprocess
import time

import dbus

NAME = "org.cubed.Cube1"
ROOT = "/org/cubed/Cube1"
MANAGER = NAME + ".Manager"
SANDBOX = NAME + ".Sandbox"
ERROR = NAME + ".Error."
# For what hangs; a machine may have a tenth of its usual speed. In the lab pytest gives a test a little more.
PATIENCE = 1100

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*argv, check=False, timeout=PATIENCE, **kwargs):
    """A command's result with both streams as bytes."""
    kwargs.setdefault("stdin", subprocess.DEVNULL if "input" not in kwargs else None)
    if kwargs["stdin"] is None:
        del kwargs["stdin"]
    result = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=timeout, **kwargs)
    if check and result.returncode != 0:
        raise AssertionError(f"{argv} exited {result.returncode}: {result.stderr.decode(errors='replace')}")
    return result


def ctl(*argv, **kwargs):
    return run("cubectl", *argv, **kwargs)


def ctl_ok(*argv, **kwargs):
    """cubectl's standard output as text; it must succeed."""
    return ctl(*argv, check=True, **kwargs).stdout.decode()


def as_user(user, *argv, **kwargs):
    return run("runuser", "-u", user, "--", *argv, **kwargs)


def wait_for(what, condition, timeout=300, interval=0.05):
    """condition()'s first true value. The time is for what never comes; nothing is said by it about how soon that has to be."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up after {timeout} s waiting for {what}")
        time.sleep(interval)


def bus():
    return dbus.SystemBus(private=True)


class Patient(dbus.Interface):
    """Its calls wait for their answers as cubectl does: libdbus would give up after 25 s."""

    def __getattr__(self, member):
        return functools.partial(super().__getattr__(member), timeout=PATIENCE)


def manager(connection=None):
    connection = connection or bus()
    return Patient(connection.get_object(NAME, ROOT, introspect=False), MANAGER)


def options(values):
    """a{sv} of the bus."""
    return dbus.Dictionary(values, signature="sv")


def sandbox(sandbox_id, connection=None):
    connection = connection or bus()
    obj = connection.get_object(NAME, f"{ROOT}/sandbox/{sandbox_id}", introspect=False)
    return Patient(obj, SANDBOX)


def prop(sandbox_id, name):
    obj = bus().get_object(NAME, f"{ROOT}/sandbox/{sandbox_id}", introspect=False)
    return obj.Get(SANDBOX, name, dbus_interface="org.freedesktop.DBus.Properties", timeout=PATIENCE)


def manager_prop(name):
    obj = bus().get_object(NAME, ROOT, introspect=False)
    return obj.Get(MANAGER, name, dbus_interface="org.freedesktop.DBus.Properties", timeout=PATIENCE)


def loop_is_free():
    """No dispatch of cubed's loop was held up since ResetLoopMax(): whoever makes it wait, or has it do without end what it
    does by portions, takes it far more than this. What dispatches do take, and depends on the machine, is the bench's."""
    longest = int(manager_prop("LoopMaxUSec"))
    print("the longest dispatch:", longest, "us")
    assert longest < 500_000, f"a dispatch took {longest} us"


def sandbox_ids():
    listed = json.loads(ctl_ok("list", "--json=short") or "[]")
    return [entry["id"] for entry in listed]


@contextlib.contextmanager
def created(*options):
    """A sandbox that is gone afterwards, whatever happened."""
    sandbox_id = ctl_ok("create", *options).strip()
    try:
        yield sandbox_id
    finally:
        ctl("kill", sandbox_id)


def snapshot(sandbox_id, connection=None, **values):
    """The id of a new snapshot of it."""
    return str(sandbox(sandbox_id, connection).Snapshot(options(values))[0])


@contextlib.contextmanager
def created_from(snapshot_id, **values):
    """A sandbox that goes on where the snapshot was taken."""
    sandbox_id, _ = manager().CreateSandbox(f"snapshot:{snapshot_id}", options({"timeout": dbus.UInt64(3600_000_000)} | values))
    try:
        yield str(sandbox_id)
    finally:
        ctl("kill", sandbox_id)


def remove_snapshot(snapshot_id):
    manager().RemoveSnapshot(snapshot_id)


def remove_snapshots(ids):
    """All that are still there of them, in an order that is not known: what others stand on goes behind these."""
    left = set(ids) & snapshot_dirs()
    while left:
        in_use = {i for i in sorted(left) if not removed(i)}
        assert in_use < left, f"something else stands on {left}"
        left = in_use


def removed(snapshot_id):
    """False if something stands on it. It may be a mere layer already."""
    try:
        remove_snapshot(snapshot_id)
    except dbus.DBusException as e:
        assert e.get_dbus_name() in (ERROR + "SnapshotInUse", ERROR + "NoSuchSnapshot"), e
        return not e.get_dbus_name().endswith("InUse")
    return True


def snapshot_dirs():
    return {name for name in os.listdir("/var/lib/cubed/snapshots") if name[0] != "."}


def journal(sandbox_id, *matches):
    """The journal entries of a sandbox, oldest first."""
    run("journalctl", "--sync")
    out = run("journalctl", "-o", "json", "--no-pager", f"CUBE_SANDBOX={sandbox_id}", *matches).stdout.decode()
    return [json.loads(line) for line in out.splitlines()]


def events(sandbox_id):
    return [entry.get("CUBE_EVENT") for entry in journal(sandbox_id)]


def end_of(sandbox_id):
    """What `cubectl show` says of one that is gone: it has it from the journal."""
    run("journalctl", "--sync", check=True)
    return ctl_ok("show", sandbox_id)


def reason_of(sandbox_id):
    """Of its end."""
    run("journalctl", "--sync", check=True)
    return ctl_ok("show", "-p", "Reason", "--value", sandbox_id).strip()


def cubed_pid():
    return int(run("systemctl", "show", "-P", "MainPID", "cubed.service", check=True).stdout)


def make_root(directory):
    """The root file system of a guest that needs none: one without any file is refused."""
    (directory / "file").touch()
    return directory


def crash():
    """Kills cubed; systemd has started another one when it returns."""
    pid = cubed_pid()
    run("systemctl", "reset-failed", "cubed.service")
    run("kill", "-9", pid, check=True)
    wait_for("another cubed", lambda: cubed_pid() not in (0, pid) and ctl("list").returncode == 0)


def find_helper(name):
    """The pid of cube-stored or cube-netd. None: it has ended, or another one is just being started."""
    def ended(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                return f.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True
    found = [pid for pid in map(int, run("pgrep", "-x", "-P", cubed_pid(), name).stdout.split()) if not ended(pid)]
    return found[0] if found else None


def helper_pid(name):
    return wait_for(name, lambda: find_helper(name))


def another_helper(name, pid):
    """Waits for the one that cubed starts in the place of that."""
    wait_for(f"another {name}", lambda: find_helper(name) not in (None, pid))


def descriptors(pid):
    """{number: what it leads to}, without those that are closed meanwhile."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    return found


def service_memory():
    """Bytes that cubed and its helpers have for themselves."""
    total = 0
    for pid in cubed_pid(), helper_pid("cube-stored"), helper_pid("cube-netd"):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))
    return total << 10


def active(unit):
    return run("systemctl", "is-active", unit).stdout.decode().strip() == "active"


def at_rest():
    """leftovers() of a moment in which nothing is on its way, to be compared with later: what there is belongs to a sandbox
    that is listed, no removal is under way, cubed has a network, with a place for each VMM, and a second look finds the same."""
    now, strays = {}, []

    def settled():
        nonlocal now, strays
        before, now, ids = now, leftovers(), set(sandbox_ids())
        strays = [name for key in ("scopes", "run", "disks") for name in now[key]
                  if name.removeprefix("cube-").split(".")[0] not in ids]
        strays += [name for name in now["snapshots"] if name.startswith(".gone-")]
        # twice the same: some of it goes without a sandbox to be named after
        return not strays and now == before and now["slots"] == len(now["vmms"]) == len(now["scopes"]) and manager_prop("Network4")
    try:
        wait_for("nothing to be on its way", settled)
    except AssertionError as e:
        raise AssertionError(f"not at rest: {strays} belong to no sandbox, or are going; {now}") from e
    return now


def nothing_left_since(before, but=()):
    """Waits until leftovers() are those of before, which at_rest() told; says what is different if they don't get there."""
    def differences():
        now = leftovers()
        return {key: (before[key], now[key]) for key in before if key not in but and now[key] != before[key]}
    try:
        wait_for("everything to be as before", lambda: not differences())
    except AssertionError as e:
        raise AssertionError(f"left behind (before, after): {differences()}") from e


def without_free_places(vmms):
    """Links of places in the network, and descriptors of cubed, without those of free places: each has a link, with a number
    that is not given twice, and two descriptors. Waits for a moment in which cubed has a network and none is being made or
    going, which is one with as many links as VMMs; a number that stays different is told as it is."""
    deadline = time.monotonic() + 10
    while True:
        free = int(manager_prop("NetworkFreeSlots"))
        slots = sum(1 for name in os.listdir("/sys/class/net") if re.fullmatch(r"cube\d+", name)) - free
        fds = len(os.listdir(f"/proc/{cubed_pid()}/fd")) - 2 * free
        settled = manager_prop("Network4") and slots == vmms and free == int(manager_prop("NetworkFreeSlots"))
        if settled or time.monotonic() > deadline:
            return slots, fds
        time.sleep(0.05)


def leftovers():
    """Everything that a sandbox may leave behind, as a comparable snapshot."""
    scopes = run("systemctl", "list-units", "--all", "--plain", "--no-legend", "cube-*.scope").stdout.decode()
    vmms = run("pgrep", "-x", "cube-vmm").stdout.decode().split()
    run_dir = "/run/cubed/sandbox"
    slots, fds = without_free_places(len(vmms))
    return {
        "scopes": sorted(line.split()[0] for line in scopes.splitlines() if line.strip()),
        "vmms": sorted(vmms),
        "run": sorted(os.listdir(run_dir)) if os.path.isdir(run_dir) else [],
        "disks": sorted(os.listdir("/var/lib/cubed/sandboxes"))
        if os.path.isdir("/var/lib/cubed/sandboxes") else [],
        "snapshots": sorted(os.listdir("/var/lib/cubed/snapshots"))
        if os.path.isdir("/var/lib/cubed/snapshots") else [],
        "fds": fds,
        "slots": slots,
        "links": sorted(name for name in os.listdir("/sys/class/net") if not re.fullmatch(r"cube\d+", name)),
        "mounts": sum(1 for _ in open("/proc/self/mounts", encoding="utf-8")),
    }
