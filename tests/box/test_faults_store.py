# SPDX-License-Identifier: Apache-2.0
"""There is no room left: where cubed keeps what it has to keep, or where it keeps what is of this boot. Whatever is done then
either succeeds or is refused by that name; nothing that was there is lost, and with room again all goes on."""

import concurrent.futures
import contextlib
import os
import signal

import dbus

from conftest import PAYLOAD
from cubetest import (ERROR, another_helper, bus, crash, created_from, ctl, ctl_ok, cubed_pid, helper_pid, make_root, manager, options, prop,
                      remove_snapshot, run, sandbox, snapshot, wait_for)
from faults import Journal, at_rest, snapshots, states
from snapshots import counting, goes_on, put, sector
from test_pause import pause, resume

STORE, RUN = "/var/lib/cubed", "/run/cubed"


@contextlib.contextmanager
def small(path, limits):
    """A file system with little room there, in which the template is built anew."""
    run("systemctl", "stop", "cubed.service", check=True)
    run("mount", "-t", "tmpfs", "-o", limits, "tmpfs", path, check=True)
    run("systemctl", "start", "cubed.service", check=True)
    try:
        yield
    finally:
        for sandbox_id in states():
            ctl("kill", sandbox_id)
        run("systemctl", "stop", "cubed.service", check=True)
        run("umount", path, check=True)
        run("systemctl", "start", "cubed.service", check=True)


@contextlib.contextmanager
def small_store(root, limits):
    with small(STORE, limits):
        ctl_ok("template", "build", "payload", "--from", make_root(root), "--kernel", PAYLOAD, "--memory", "64M", "--disk", "64M", "--no-warm")
        yield


class Filler:
    """Takes what room there is, bytes or files."""

    def __init__(self, path):
        self.directory = f"{path}/filler"
        self.path = path
        os.mkdir(self.directory)

    def fill(self, left):
        self.empty()
        st = os.statvfs(self.path)
        with open(f"{self.directory}/0", "wb") as f:
            f.write(bytes(max(0, st.f_bavail * st.f_bsize - left)))

    def fill_files(self, left):
        self.empty()
        for n in range(max(0, os.statvfs(self.path).f_ffree - left)):
            with open(f"{self.directory}/{n}", "wb"):
                pass

    def empty(self):
        for name in os.listdir(self.directory):
            os.unlink(f"{self.directory}/{name}")


def refused_or_done(told, call):
    """Its result, or None when it was refused for want of room, which the journal says, too."""
    try:
        return call()
    except dbus.DBusException as e:
        assert e.get_dbus_name() == ERROR + "NoResources" and "o space left" in str(e), e
        told.says("o space left")
        return None


class Company:
    """A running sandbox, a paused one and a snapshot, each with a word. The paused one may be resumed."""

    def __init__(self, running):
        self.running = running
        put(running, 5, "running")
        self.saved = snapshot(running)
        self.paused = ctl_ok("create", "--timeout", "1h").strip()
        put(self.paused, 5, "paused")
        pause(self.paused)

    def check(self):
        """All of it is there; whatever came on top is not."""
        wait_for("all to come to rest", lambda: at_rest([]))
        now = states()
        assert set(now) == {self.running, self.paused}
        assert now[self.running] == "running"
        if now[self.paused] == "running":
            assert sector(self.paused, 5) == "paused"
        assert self.saved in snapshots()
        goes_on(self.running)
        assert sector(self.running, 5) == "running"

    def check_all(self):
        self.check()
        resume(self.paused)
        assert sector(self.paused, 5) == "paused"
        pause(self.paused)
        with created_from(self.saved) as child:
            assert sector(child, 5) == "running"
        remove_snapshot(snapshot(self.running))
        pause(self.running)
        resume(self.running)
        goes_on(self.running)

    def end(self):
        ctl("kill", self.paused)
        ctl("kill", self.running)
        remove_snapshot(self.saved)


def try_everything(c, told):
    """What takes room: each is done, or refused and comes to nothing."""
    made = refused_or_done(told, lambda: manager().CreateSandbox("template:payload", options({}), timeout=60)[0])
    if made:
        ctl_ok("kill", made)
    for call in snapshot, lambda i: sandbox(i).Fork(dbus.UInt32(1), options({}), timeout=60):
        made = refused_or_done(told, lambda call=call: call(c.running))
        if isinstance(made, str):
            remove_snapshot(made)
        for ok, child, *why in made if isinstance(made, list) else []:
            assert ok or "o space left" in str(why), why
            if ok:
                ctl_ok("kill", child)
    refused_or_done(told, lambda: sandbox(c.running).Rollback(c.saved, options({}), timeout=60))
    if refused_or_done(told, lambda: [sandbox(c.paused).Resume(options({}), timeout=60)]):
        pause_or_run_on(c.paused, told)
    pause_or_run_on(c.running, told)
    wait_for("all to come to rest", lambda: at_rest([]))
    if states()[c.running] == "paused":
        assert refused_or_done(told, lambda: [sandbox(c.running).Resume(options({}), timeout=60)])


def pause_or_run_on(sandbox_id, told):
    done = refused_or_done(told, lambda: [sandbox(sandbox_id).Pause(options({}), timeout=60)])
    assert prop(sandbox_id, "State") == ("paused" if done else "running")


LEFT = [("fill", 0), ("fill_files", 1)]
if os.environ.get("CUBE_LONG") == "1":
    LEFT += [("fill", n << 12) for n in (1, 4, 12, 80, 400)] + [("fill_files", n) for n in (0, 2, 3, 5)]


def everything_without_room(filler):
    """Company in a place that is filled up, in which everything is tried; then cubed dies, and there is room again."""
    with counting() as running:
        company = Company(running)
        try:
            for how, left in LEFT:
                print(how, left, flush=True)
                getattr(filler, how)(left)
                told = Journal()
                try_everything(company, told)
                company.check()
                crash()
                company.check()
                filler.empty()
                company.check_all()
        finally:
            filler.empty()
            company.end()


def test_a_store_without_room(clean_again, tmp_path):
    with small_store(tmp_path, "size=48m,nr_inodes=512"):
        everything_without_room(Filler(STORE))


def test_a_runtime_directory_without_room(clean_again):
    with small(RUN, "size=1m,nr_inodes=256,mode=0711"):
        everything_without_room(Filler(RUN))


def test_what_a_guest_writes_to_a_full_store_is_refused_to_it(clean_again, tmp_path):
    """It goes on, and writes again as soon as it can; nobody else notices."""
    with small_store(tmp_path, "size=48m"), counting() as sandbox_id, counting() as other:
        put(sandbox_id, 5, "before")
        filler = Filler(STORE)
        filler.fill(0)
        # a sector in a block that is not there yet
        assert ctl("exec", sandbox_id, "--", "put-sector", "vdb", 4096, "lost").returncode != 0
        assert sector(sandbox_id, 5) == "before"
        assert sector(sandbox_id, 4096) == ""
        goes_on(other)
        filler.empty()
        put(sandbox_id, 4096, "after")
        assert (sector(sandbox_id, 5), sector(sandbox_id, 4096)) == ("before", "after")


def test_what_is_removed_from_a_full_store_makes_room(clean_again, tmp_path):
    with small_store(tmp_path, "size=48m"):
        sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
        put(sandbox_id, 5, "word")
        saved = snapshot(sandbox_id)
        paused = ctl_ok("create", "--timeout", "1h").strip()
        pause(paused)
        Filler(STORE).fill(0)
        before = os.statvfs(STORE).f_bavail
        for victim in paused, sandbox_id:
            ctl_ok("kill", victim)
        remove_snapshot(saved)
        wait_for("all of it to be gone", lambda: not os.listdir(f"{STORE}/snapshots") and not os.listdir(f"{STORE}/sandboxes"))
        assert os.statvfs(STORE).f_bavail > before


def test_what_is_acknowledged_while_it_can_not_be_saved_is_saved_later(clean_again):
    with small(RUN, "size=1m,mode=0711"), counting() as sandbox_id:
        other, mine = ctl_ok("create", "--timeout", "1h").strip(), cubed_pid()
        filler = Filler(RUN)
        filler.fill(0)
        told = Journal()
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(7200_000_000))
        sandbox(sandbox_id).SetIdleTimeout(dbus.UInt64(3600_000_000))
        sandbox(sandbox_id).SetLimits(options({"cpu-quota": dbus.UInt64(500000)}), timeout=60)
        sandbox(sandbox_id).SetNetworkPolicy(options({"default": "internet"}), timeout=60)
        told.says(f"Sandbox {sandbox_id}: failed to save its state")
        before = {name: prop(sandbox_id, name) for name in ("IdleTimeoutUSec", "CPUQuotaPerSecUSec", "NetworkPolicy")}
        deadline = int(prop(sandbox_id, "Deadline"))
        # of one that ends before that nothing is owed any more
        sandbox(other).SetTimeout(dbus.UInt64(7200_000_000))
        ctl_ok("kill", other)
        wait_for("it to be gone", lambda: other not in states())
        filler.empty()
        told.says(f"Sandbox {sandbox_id}: its state is saved")
        assert cubed_pid() == mine
        crash()
        assert {name: prop(sandbox_id, name) for name in before} == before
        assert abs(int(prop(sandbox_id, "Deadline")) - deadline) < 2_000_000
        goes_on(sandbox_id)


# cube-stored dies with what it was asked to remove

@contextlib.contextmanager
def stored_that_dies():
    """It does nothing any more, and is killed at the end."""
    pid = helper_pid("cube-stored")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
    another_helper("cube-stored", pid)


def test_the_disk_of_a_removed_sandbox_goes_without_cube_stored(clean):
    sandbox_id = ctl_ok("create", "--timeout", "1h").strip()
    with stored_that_dies():
        ctl_ok("kill", sandbox_id)
        wait_for("it to be gone", lambda: sandbox_id not in states())


def test_a_removed_snapshot_goes_with_the_next_cube_stored(clean):
    """Nobody finds it any more: that is what is acknowledged."""
    with counting() as sandbox_id:
        saved = snapshot(sandbox_id)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        connection = bus()
        with stored_that_dies():
            job = pool.submit(lambda: manager(connection).RemoveSnapshot(saved, timeout=60))
            wait_for("it to be gone", lambda: saved not in snapshots())
        job.result()


def removals_of(snapshot_id):
    """How often its removal was asked for."""
    run("journalctl", "--sync", check=True)
    return run("journalctl", "-q", "-o", "cat", "CUBE_EVENT=snapshot-remove", f"CUBE_SNAPSHOT={snapshot_id}").stdout.count(b"\n")


def test_a_snapshot_that_others_need_is_not_removed_by_halves(clean):
    with counting() as sandbox_id:
        saved = snapshot(sandbox_id)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            connection = bus()
            with stored_that_dies():
                job = pool.submit(lambda: manager(connection).RemoveSnapshot(saved, timeout=60))
                wait_for("it to be asked", lambda: removals_of(saved) == 1)
                snapshots()  # and what cubed asked for then is on its way
            assert job.exception().get_dbus_name() == ERROR + "Internal" and saved in str(job.exception())
        with created_from(saved) as child:
            goes_on(child)
        remove_snapshot(saved)
