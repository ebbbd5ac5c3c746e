# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Its envd: the file system, and who watches it."""

import os
import pwd
import shutil

import pytest

from agentlib import CLAIM, until
from envdlib import Envd, StreamError

FS = "filesystem.Filesystem/"
FILE, DIRECTORY = "FILE_TYPE_FILE", "FILE_TYPE_DIRECTORY"


@pytest.fixture(scope="module")
def envd(shared):
    return Envd(shared, "secret", USER="root")


@pytest.fixture
def work(tmp_path):
    os.chmod(tmp_path, 0o755)
    return tmp_path


def call(envd, method, user=None, **message):
    return envd.call(FS + method, {k: str(v) if isinstance(v, os.PathLike) else v for k, v in message.items()}, user=user)


def done(answer):
    status, message = answer
    assert status == 200, answer
    return message


def stat(envd, path):
    return done(call(envd, "Stat", path=path))["entry"]


def fails(answer, status, code, message):
    assert answer == (status, {"code": code, "message": message})


# Stat

def test_a_file(envd, work):
    path = work / "f ü"
    path.write_bytes(b"hello")
    os.chmod(path, 0o644)
    os.utime(path, ns=(0, 1234567890123456789))
    assert stat(envd, path) == {
        "name": "f ü", "type": FILE, "path": str(path), "size": "5", "mode": 0o644, "permissions": "-rw-r--r--",
        "owner": "root", "group": "root", "modifiedTime": "2009-02-13T23:31:30.123456789Z"}
    os.utime(path, ns=(0, 10**9))
    assert stat(envd, path)["modifiedTime"] == "1970-01-01T00:00:01Z"
    os.chown(path, 54321, 54322)
    assert (stat(envd, path)["owner"], stat(envd, path)["group"]) == ("54321", "54322")


def test_a_directory_and_special_files(envd, work):
    os.mkfifo(work / "fifo")
    os.chmod(work / "fifo", 0o600)
    entry = stat(envd, work)
    assert (entry["type"], entry["mode"], entry["permissions"]) == (DIRECTORY, 0o755, "drwxr-xr-x")
    assert "type" not in stat(envd, work / "fifo") and stat(envd, work / "fifo")["permissions"] == "prw-------"
    assert stat(envd, "/dev/null")["permissions"] == "Dcrw-rw-rw-"
    assert stat(envd, "/tmp")["permissions"] == "dtrwxrwxrwx" and stat(envd, "/tmp")["mode"] == 0o777


def test_links(envd, work):
    (work / "f").write_bytes(b"hello")
    os.chmod(work / "f", 0o640)
    (work / "link").symlink_to("f")
    (work / "dir").symlink_to(".")
    (work / "broken").symlink_to("none")
    (work / "cycle").symlink_to("cycle")
    entry = stat(envd, work / "link")
    assert (entry["type"], entry["mode"], entry["permissions"], entry["size"], entry["symlinkTarget"]) == (
        FILE, 0o640, "Lrwxrwxrwx", "1", str(work / "f"))
    assert stat(envd, work / "dir")["type"] == DIRECTORY
    for name in ("broken", "cycle"):
        entry = stat(envd, work / name)
        assert "type" not in entry and entry["symlinkTarget"] == str(work / name)


def test_metadata(envd, work):
    (work / "f").write_bytes(b"")
    try:
        os.setxattr(work / "f", "user.e2b.author", b"me")
    except OSError:
        pytest.skip("no extended attributes here")
    os.setxattr(work / "f", "user.other", b"x")
    assert stat(envd, work / "f")["metadata"] == {"author": "me"}
    done(call(envd, "Move", source=work / "f", destination=work / "g"))
    assert stat(envd, work / "g")["metadata"] == {"author": "me"}


def test_names_that_are_no_text(envd, work):
    with open(os.path.join(os.fsencode(work), b"\xff.txt"), "w"):
        pass
    assert [e["name"] for e in done(call(envd, "ListDir", path=work))["entries"]] == ["�.txt"]


def test_what_is_not_there(envd, work):
    fails(call(envd, "Stat", path=work / "none"), 404, "not_found", f"file not found: {work}/none")
    fails(call(envd, "Stat", path="~daemon"), 400, "invalid_argument", "cannot expand user-specific home dir")
    fails(call(envd, "Stat", path=1), 400, "invalid_argument", "path is not a path")


def test_relative_paths(fresh):
    envd = Envd(fresh(), USER="root", CWD="/usr/lib")
    assert stat(envd, "")["path"] == "/usr/lib"
    assert stat(envd, ".")["path"] == stat(envd, "~")["path"] == "/root"
    assert stat(envd, "../etc/./passwd")["path"] == "/etc/passwd"
    assert stat(envd, "../../../..")["path"] == "/"
    assert stat(envd, "/etc/../etc/passwd")["path"] == "/etc/../etc/passwd"


# ListDir

def test_order_and_depth(envd, work):
    for name in ("b", "a", "sub2", "sub1"):
        (work / name).mkdir() if "sub" in name else (work / name).write_bytes(b"")
    (work / "sub1/deeper").mkdir()
    (work / "sub1/deeper/f").write_bytes(b"")
    (work / "sub1/a").write_bytes(b"")
    (work / "zlink").symlink_to("sub1")

    def paths(**kwargs):
        return [os.path.relpath(e["path"], work) for e in done(call(envd, "ListDir", path=work, **kwargs))["entries"]]

    top = ["a", "b", "sub1", "sub2", "zlink"]
    assert paths() == paths(depth=0) == paths(depth=1) == top
    assert paths(depth=2) == ["a", "b", "sub1", "sub1/a", "sub1/deeper", "sub2", "zlink"]
    assert paths(depth=3) == paths(depth=4294967295) == [
        "a", "b", "sub1", "sub1/a", "sub1/deeper", "sub1/deeper/f", "sub2", "zlink"]
    entries = done(call(envd, "ListDir", path=work / "zlink"))["entries"]
    assert [e["path"] for e in entries] == [f"{work}/zlink/a", f"{work}/zlink/deeper"]
    assert done(call(envd, "ListDir", path=work / "sub2")) == {"entries": []}
    assert "/proc" in [e["path"] for e in done(call(envd, "ListDir", path="/"))["entries"]]


def test_lists_that_are_none(envd, work):
    (work / "f").write_bytes(b"")
    (work / "cycle").symlink_to("cycle")
    fails(call(envd, "ListDir", path=work / "none"), 404, "not_found", f"path not found: {work}/none")
    fails(call(envd, "ListDir", path=work / "f"), 400, "invalid_argument", f"path is not a directory: {work}/f")
    status, answer = call(envd, "ListDir", path=work / "cycle")
    assert (status, answer["code"]) == (400, "failed_precondition")
    assert call(envd, "ListDir", path=work, depth=-1)[0] == 400


def test_a_large_directory_and_who_leaves_in_the_middle(envd, work):
    for i in range(3000):
        (work / f"file-{i:04}").write_bytes(b"")
    entries = done(call(envd, "ListDir", path=work))["entries"]
    assert [e["name"] for e in entries] == [f"file-{i:04}" for i in range(3000)]
    before = envd.agent.fds()
    for _ in range(5):
        c = envd.connect()
        c.request("POST", f"/{FS}ListDir", '{"path":"/","depth":100}', {**envd.headers(), "Content-Type": "application/json"})
        assert c.getresponse().read(100).startswith(b'{"entries":[{')
        c.close()
    until(lambda: envd.agent.fds() <= before)


# MakeDir, Move, Remove

def test_directories_are_made_with_those_above(envd, work):
    path = work / "a/b/c"
    entry = done(call(envd, "MakeDir", user="daemon", path=path))["entry"]
    assert (entry["type"], entry["path"], entry["owner"], entry["permissions"]) == (DIRECTORY, str(path), "daemon", "drwxr-xr-x")
    assert all(p.stat().st_uid == pwd.getpwnam("daemon").pw_uid for p in (path, path.parent, work / "a"))
    assert work.stat().st_uid == 0
    fails(call(envd, "MakeDir", path=path), 409, "already_exists", f"directory already exists: {path}")
    (work / "f").write_bytes(b"")
    fails(call(envd, "MakeDir", path=work / "f"), 400, "invalid_argument",
          f"path already exists but it is not a directory: {work}/f")
    assert call(envd, "MakeDir", path=work / "f/below")[1]["code"] == "invalid_argument"


def test_moves(envd, work):
    (work / "f").write_bytes(b"new")
    (work / "there").write_bytes(b"old")
    assert done(call(envd, "Move", source=work / "f", destination=work / "there"))["entry"]["path"] == str(work / "there")
    assert (work / "there").read_bytes() == b"new" and not (work / "f").exists()
    done(call(envd, "Move", source=work / "there", destination=work / "made/for/it"))
    assert (work / "made/for/it").read_bytes() == b"new"
    done(call(envd, "Move", source=work / "made", destination=work / "moved"))
    assert (work / "moved/for/it").exists()
    fails(call(envd, "Move", source=work / "none", destination=work / "x"), 404, "not_found", f"source file not found: {work}/none")
    status, answer = call(envd, "Move", source=work / "moved", destination=work / "moved/for/me")
    assert status == 500 and answer["message"].startswith("error renaming: ")


def test_removal(envd, work):
    for i in range(10):
        (work / f"tree/{i}/below").mkdir(parents=True)
        for k in range(100):
            (work / f"tree/{i}/below/{k}").write_bytes(b"")
    outside = work / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"")
    (work / "tree/link").symlink_to(outside)
    (work / "link").symlink_to(outside)
    assert done(call(envd, "Remove", path=f"{work}/tree/")) == {}
    assert not (work / "tree").exists() and (outside / "f").exists()
    assert done(call(envd, "Remove", path=work / "link")) == {}
    assert (outside / "f").exists() and not (work / "link").is_symlink()
    assert done(call(envd, "Remove", path=outside / "f")) == done(call(envd, "Remove", path=outside / "f")) == {}
    assert done(call(envd, "Remove", path=work / "none/below")) == {}
    for path in ("/", "/..", f"{work}/."):
        assert call(envd, "Remove", path=path)[1]["code"] == "invalid_argument"


# Watching

class Watched:
    """Events of a watcher or a stream, as (type, name)."""

    def __init__(self, envd, path, polled, **wish):
        self.envd, self.polled, self.pending = envd, polled, []
        if polled:
            self.id = done(call(envd, "CreateWatcher", path=path, **wish))["watcherId"]
        else:
            self.stream = envd.stream(FS + "WatchDir", {"path": str(path), **wish})
            assert self.stream.message() == {"start": {}}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.polled:
            done(call(self.envd, "RemoveWatcher", watcherId=self.id))
        else:
            self.stream.close()

    def next(self):
        while not self.pending:
            if self.polled:
                self.pending += done(call(self.envd, "GetWatcherEvents", watcherId=self.id))["events"]
            else:
                self.pending.append(self.stream.message()["filesystem"])
        return self.pending.pop(0)

    def until(self, kind, name):
        """All up to this one."""
        seen = []
        while (kind, name) not in seen:
            e = self.next()
            seen.append((e["type"].removeprefix("EVENT_TYPE_"), e["name"]))
        return seen


@pytest.fixture(params=[True, False], ids=["polled", "stream"])
def watch(request, envd):
    return lambda path, **wish: Watched(envd, path, request.param, **wish)


def test_what_happens_to_files(watch, work):
    with watch(work) as w:
        with open(work / "f", "w") as f:
            assert w.until("CREATE", "f") == [("CREATE", "f")]
            f.write("x")
        assert w.until("WRITE", "f") == [("WRITE", "f")]
        os.chmod(work / "f", 0o600)
        assert w.until("CHMOD", "f") == [("CHMOD", "f")]
        os.rename(work / "f", work / "g")
        assert w.until("CREATE", "g") == [("RENAME", "f"), ("CREATE", "g")]
        os.unlink(work / "g")
        assert w.until("REMOVE", "g") == [("REMOVE", "g")]
        # Not below.
        (work / "sub").mkdir()
        (work / "sub/f").write_bytes(b"x")
        (work / "end").write_bytes(b"")
        assert w.until("CREATE", "end") == [("CREATE", "sub"), ("CREATE", "end")]


def test_the_directory_itself(watch, work):
    (work / "d").mkdir()
    with watch(work / "d") as w:
        os.chmod(work / "d", 0o700)
        assert w.until("CHMOD", ".") == [("CHMOD", ".")]
        os.rmdir(work / "d")
        assert w.until("REMOVE", ".")[-1] == ("REMOVE", ".")


def test_below_and_in_what_comes_later(watch, work):
    (work / "old/deep").mkdir(parents=True)
    elsewhere = work.parent / f"{work.name}-elsewhere"
    elsewhere.mkdir()
    try:
        with watch(work, recursive=True) as w:
            (work / "old/deep/f").write_bytes(b"x")
            assert w.until("WRITE", "old/deep/f") == [("CREATE", "old/deep/f"), ("WRITE", "old/deep/f")]
            (work / "new").mkdir()
            w.until("CREATE", "new")
            (work / "new/f").write_bytes(b"x")
            assert w.until("WRITE", "new/f")[0] == ("CREATE", "new/f")
            # Whole trees at once: whatever was there before it was watched is told too.
            (work / "many/levels/of").mkdir(parents=True)
            (work / "many/levels/of/f").write_bytes(b"x")
            w.until("CREATE", "many/levels/of/f")
            # What moved away is not below any more, what comes back is.
            os.rename(work / "new", elsewhere / "new")
            assert w.until("RENAME", "new")[-1] == ("RENAME", "new")
            (elsewhere / "new/unseen").write_bytes(b"x")
            os.rename(elsewhere / "new", work / "back")
            seen = w.until("CREATE", "back/unseen")
            assert not [name for _, name in seen if name.startswith("new")]
            (work / "back/f").write_bytes(b"y")
            w.until("WRITE", "back/f")
            shutil.rmtree(work / "back")
            w.until("REMOVE", "back")
    finally:
        shutil.rmtree(elsewhere)


def test_entries_of_what_is_there(watch, work):
    with watch(work, includeEntry=True) as w:
        (work / "f").write_bytes(b"hello")
        event = w.next()
        while event["type"] != "EVENT_TYPE_WRITE":
            event = w.next()
        assert event["entry"]["path"] == str(work / "f") and event["entry"]["size"] == "5"
        os.unlink(work / "f")
        event = w.next()
        while event["type"] != "EVENT_TYPE_REMOVE":
            event = w.next()
        assert "entry" not in event
    with watch(work) as w:
        (work / "f").write_bytes(b"")
        assert "entry" not in w.next()


def test_an_upload_is_seen(envd, watch, work):
    with watch(work) as w:
        for _ in range(2):
            status, _ = envd.json("POST", f"/files?path={work}/f", b"data", headers={"Content-Type": "application/octet-stream"})
            assert status == 200
            w.until("CHMOD", "f")
            w.until("WRITE", "f")


def test_watches_that_are_refused(envd, work):
    (work / "f").write_bytes(b"")

    def refuse(path, code, message, **wish):
        status, answer = call(envd, "CreateWatcher", path=path, **wish)
        assert answer["code"] == code and answer["message"].startswith(message)
        with pytest.raises(StreamError) as e:
            envd.stream(FS + "WatchDir", {"path": str(path), **wish}).message()
        assert e.value.code == code and e.value.message.startswith(message)

    refuse(work / "none", "not_found", f"path {work}/none not found: ")
    refuse(work / "f", "invalid_argument", f"path {work}/f not a directory: ")
    refuse(work, "invalid_argument", "the request is no message", recursive=1)
    for method in ("GetWatcherEvents", "RemoveWatcher"):
        fails(call(envd, method, watcherId="none"), 404, "not_found", "watcher with id none not found")


def test_watchers_stay_until_they_are_removed(fresh, work):
    agent = fresh()
    envd = Envd(agent)
    before = agent.fds()
    ids = [done(call(envd, "CreateWatcher", path=work))["watcherId"] for _ in range(3)]
    assert len(set(ids)) == 3 and all(len(i) == 21 and i[0] == "w" for i in ids)
    agent.call(CLAIM)
    (work / "f").write_bytes(b"")
    for i in ids:
        events = []
        until(lambda: events.extend(done(call(envd, "GetWatcherEvents", watcherId=i))["events"]) or events)
        assert events[0] == {"name": "f", "type": "EVENT_TYPE_CREATE"}
    assert done(call(envd, "GetWatcherEvents", watcherId=ids[0])) == {"events": []}
    for i in ids[1:]:
        assert done(call(envd, "RemoveWatcher", watcherId=i)) == {}
    assert call(envd, "GetWatcherEvents", watcherId=ids[1])[0] == 404
    until(lambda: agent.fds() <= before + 1)


def test_more_than_a_watcher_keeps(envd, work):
    watcher = done(call(envd, "CreateWatcher", path=work))["watcherId"]
    for i in range(6000):
        with open(work / "f", "w"):
            pass
        os.rename(work / "f", work / "g")
        os.chmod(work / "g", 0o600 + i % 2)
    until(lambda: call(envd, "GetWatcherEvents", watcherId=watcher)[0] == 500)
    status, answer = call(envd, "GetWatcherEvents", watcherId=watcher)
    assert (status, answer["code"]) == (500, "internal") and "more happened than was kept" in answer["message"]
    done(call(envd, "RemoveWatcher", watcherId=watcher))


def test_as_many_watchers_as_there_may_be(envd, work):
    ids = []
    status, answer = 200, None
    while status == 200:
        status, answer = call(envd, "CreateWatcher", path=work)
        if status == 200:
            ids.append(answer["watcherId"])
    assert (status, answer["code"]) == (429, "resource_exhausted") and len(ids) <= 100
    for i in ids:
        done(call(envd, "RemoveWatcher", watcherId=i))


def test_a_watch_ends_at_its_deadline(envd, work):
    with envd.stream(FS + "WatchDir", {"path": str(work)}, **{"Connect-Timeout-Ms": "200"}) as s:
        assert s.message() == {"start": {}}
        with pytest.raises(StreamError, match="deadline_exceeded"):
            s.message()
    with envd.stream(FS + "WatchDir", {"path": str(work)}, **{"Keepalive-Ping-Interval": "1"}) as s:
        assert s.message() == {"start": {}}
        assert s.message() == {"keepalive": {}}
