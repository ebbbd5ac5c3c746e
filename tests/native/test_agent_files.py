# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Requests about files, and files on their way in and out."""

import errno
import os
import stat
import threading
import time

from agentlib import (DATA, END, LIST_DIRECTORY, MKDIR, MORE, OK, PING, REMOVE, RENAME, S_READ, S_WRITE, SYMLINK, File, body,
                      parse, pattern, refused, sanitized, until)


def test_stat(agent, tmp_path):
    p = tmp_path / "file"
    p.write_bytes(b"12345")
    os.chown(p, 3, 4)
    p.chmod(0o4751)
    os.utime(p, ns=(0, 1234567890123456789))
    f = agent.stat(str(p))
    assert (f.name, f.size, f.mode, f.uid, f.gid, f.mtime, f.target) == \
        ("file", 5, stat.S_IFREG | 0o4751, 3, 4, 1234567890123456789, None)
    (tmp_path / "link").symlink_to("file")
    f = agent.stat(str(tmp_path / "link"))
    assert stat.S_ISLNK(f.mode) and f.target == "file"
    f = agent.stat(str(tmp_path / "link"), FOLLOW=1)
    assert stat.S_ISREG(f.mode) and f.size == 5
    assert stat.S_ISDIR(agent.stat("/").mode)
    with refused(errno.ENOENT, str(tmp_path / "none")):
        agent.stat(str(tmp_path / "none"))


def test_list_directory(agent, tmp_path):
    names = {f"file-{i}-{'x' * (i % 200)}" for i in range(5000)}
    for n in names:
        (tmp_path / n).touch()
    (tmp_path / "a link").symlink_to("/no/where")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    frames = agent.call_frames(LIST_DIRECTORY, PATH=str(tmp_path))
    assert len(frames) > 3, "comes in several frames"
    files = {f.name: f for f in (File(raw) for frame in frames for raw in frame.get("FILE", []))}
    assert set(files) == names | {"a link", "dir", "fifo"}
    assert files["a link"].target == "/no/where" and stat.S_ISFIFO(files["fifo"].mode)


def test_list_directory_errors(agent, tmp_path):
    assert agent.list(str(tmp_path)) == []
    with refused(errno.ENOTDIR):
        agent.list("/etc/passwd")
    with refused(errno.ENOENT, "/no/such"):
        agent.list("/no/such")


def test_other_requests_during_a_listing(agent, tmp_path):
    for i in range(5000):
        (tmp_path / f"{i:0200}").touch()
    agent.control.send(LIST_DIRECTORY, body(PATH=str(tmp_path)), 900001)
    agent.control.send(PING, b"", 900002)
    order, entries = [], 0
    while order.count(900001) == 0 or order.count(900002) == 0:
        t, flags, id, data = agent.control.recv()
        assert t == OK
        entries += len(parse(data).get("FILE", []))
        if not flags & MORE:
            order.append(id)
    assert order == [900002, 900001] and entries == 5000


def test_host_that_does_not_read_listings(fresh, tmp_path):
    a = fresh()
    for i in range(3000):
        (tmp_path / f"{i:0200}").touch()
    a.list(str(tmp_path))
    before = a.rss()
    for i in range(64):
        a.control.send(LIST_DIRECTORY, body(PATH=str(tmp_path)), i + 100)
    time.sleep(1)
    if not sanitized():
        # One listing is 750 kB: what waits is bounded, not 64 times that. Each has a directory open.
        assert a.rss() < before + 8192
    done, entries = set(), 0
    while len(done) < 64:
        t, flags, id, data = a.control.recv()
        assert t == OK
        entries += len(parse(data).get("FILE", []))
        if not flags & MORE:
            done.add(id)
    assert entries == 64 * 3000
    a.alive()


def test_remove(agent, tmp_path):
    (tmp_path / "f").touch()
    agent.call(REMOVE, PATH=str(tmp_path / "f"))
    assert not (tmp_path / "f").exists()
    (tmp_path / "d").mkdir()
    agent.call(REMOVE, PATH=str(tmp_path / "d") + "/")
    assert not (tmp_path / "d").exists()
    (tmp_path / "d" / "x").mkdir(parents=True)
    with refused(errno.ENOTEMPTY, str(tmp_path / "d")):
        agent.call(REMOVE, PATH=str(tmp_path / "d"))
    with refused(errno.ENOENT):
        agent.call(REMOVE, PATH=str(tmp_path / "none"), RECURSIVE=1)
    for path in "/", "//", f"{tmp_path}/d/.", f"{tmp_path}/d/..":
        with refused(errno.EINVAL):
            agent.call(REMOVE, PATH=path, RECURSIVE=1)
    assert (tmp_path / "d" / "x").exists()


def test_remove_tree_follows_no_link(agent, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    top = tmp_path / "top"
    for i in range(20):
        d = top / f"a{i}" / "b" / "c"
        d.mkdir(parents=True)
        for j in range(50):
            (d / f"f{j}").touch()
        (d / "dirlink").symlink_to(outside)
        (d / "filelink").symlink_to(outside / "precious")
        (d / "up").symlink_to("..")
    os.mkfifo(top / "fifo")
    (tmp_path / "toplink").symlink_to(top)
    agent.call(REMOVE, PATH=str(tmp_path / "toplink"), RECURSIVE=1)
    assert top.exists() and not (tmp_path / "toplink").is_symlink()
    agent.call(REMOVE, PATH=str(top), RECURSIVE=1)
    assert not top.exists()
    assert (outside / "precious").read_text() == "x"


def test_remove_deep_tree(agent, tmp_path):
    top = os.open(tmp_path, os.O_PATH)
    fd = os.dup(top)
    for _ in range(3000):
        os.mkdir("deeper-and-deeper", dir_fd=fd)
        n = os.open("deeper-and-deeper", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = n
    os.close(fd)
    agent.call(REMOVE, PATH=str(tmp_path / "deeper-and-deeper"), RECURSIVE=1)
    assert os.listdir(tmp_path) == []
    os.close(top)


def test_rename(agent, tmp_path):
    (tmp_path / "a").write_text("1")
    agent.call(RENAME, PATH=str(tmp_path / "a"), TARGET=str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "1"
    with refused(errno.ENOENT, f"{tmp_path}/a to {tmp_path}/c"):
        agent.call(RENAME, PATH=str(tmp_path / "a"), TARGET=str(tmp_path / "c"))


def test_symlink(agent, tmp_path):
    link = tmp_path / "link"
    agent.call(SYMLINK, PATH=str(link), LINK="../nowhere")
    assert os.readlink(link) == "../nowhere"
    agent.call(SYMLINK, PATH=str(link), LINK="elsewhere")
    assert os.readlink(link) == "elsewhere"
    (tmp_path / "file").write_text("1")
    agent.call(SYMLINK, PATH=str(tmp_path / "file"), LINK="elsewhere")
    assert os.readlink(tmp_path / "file") == "elsewhere"


def test_a_symlink_takes_the_place_of_no_directory(agent, tmp_path):
    (tmp_path / "full").mkdir()
    with refused(errno.EEXIST, "full"):
        agent.call(SYMLINK, PATH=str(tmp_path / "full"), LINK="elsewhere")
    assert (tmp_path / "full").is_dir()


def test_mkdir(agent, tmp_path):
    agent.call(MKDIR, PATH=str(tmp_path / "a"))
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755
    agent.call(MKDIR, PATH=str(tmp_path / "b"), MODE=0o1777)
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o1777
    with refused(errno.EEXIST):
        agent.call(MKDIR, PATH=str(tmp_path / "a"))
    with refused(errno.ENOENT):
        agent.call(MKDIR, PATH=str(tmp_path / "x/y/z"))
    agent.call(MKDIR, PATH=str(tmp_path / "x/y/z"), PARENTS=1, MODE=0o700)
    agent.call(MKDIR, PATH=str(tmp_path / "x/y/z"), PARENTS=1)
    assert (tmp_path / "x/y/z").stat().st_mode & 0o7777 == 0o700
    (tmp_path / "b").chmod(0o1777)
    for p in tmp_path.parents:
        if str(p).startswith("/tmp/"):
            p.chmod(p.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    agent.call(MKDIR, PATH=str(tmp_path / "b/of/nobody"), PARENTS=1, USER="nobody")
    assert (tmp_path / "b/of").stat().st_uid == 65534
    with refused(errno.EACCES, "/root/x"):
        agent.call(MKDIR, PATH="/root/x", USER="nobody")
    (tmp_path / "file").touch()
    with refused(errno.ENOTDIR):
        agent.call(MKDIR, PATH=str(tmp_path / "file"), PARENTS=1)


def test_read(agent, tmp_path):
    data = pattern(3_000_001)
    (tmp_path / "f").write_bytes(data)
    assert agent.get(str(tmp_path / "f")) == data
    (tmp_path / "empty").touch()
    assert agent.get(str(tmp_path / "empty")) == b""
    c = agent.stream(S_READ, PATH=str(tmp_path / "f"))
    assert File(c.answer["FILE"][0]).size == len(data)
    c.close()
    assert b"MemTotal" in agent.get("/proc/meminfo"), "a file that says its size is 0"
    with refused(errno.EISDIR):
        agent.get("/etc")
    with refused(errno.ENOENT, "/no/such"):
        agent.get("/no/such")
    with refused(errno.EACCES, "/etc/shadow"):
        agent.get("/etc/shadow", USER="nobody")
    with refused(errno.ENOENT, "user nosuch"):
        agent.get("/etc/passwd", USER="nosuch")
    assert agent.get("/etc/shadow"), "root's rights are back"


def test_read_endless_device_and_leave(agent):
    c = agent.stream(S_READ, PATH="/dev/zero")
    for _ in range(100):
        assert c.recv()[0] == DATA
    c.close()


def test_read_fifo(agent, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path / "fifo", os.O_RDWR)
    c = agent.stream(S_READ, PATH=str(tmp_path / "fifo"))
    agent.alive()
    os.write(fd, b"hello")
    t, _, _, data = c.recv()
    assert (t, data) == (DATA, b"hello")
    os.close(fd)
    t, _, _, data = c.recv()
    assert t == END and parse(data)["ERRNO"] == 0


def test_write(agent, tmp_path):
    data = pattern(3_000_001)
    p = tmp_path / "f"
    agent.put(str(p), data, SIZE=len(data))
    assert p.read_bytes() == data and p.stat().st_mode & 0o7777 == 0o644
    agent.put(str(p), b"", MODE=0o4750)
    assert p.read_bytes() == b"" and p.stat().st_mode & 0o7777 == 0o4750
    os.chown(p, 5, 6)
    p.chmod(0o611)
    agent.put(str(p), b"kept")
    st = p.stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777, p.read_bytes()) == (5, 6, 0o611, b"kept")
    assert os.listdir(tmp_path) == ["f"]


def test_write_as_user(agent, tmp_path):
    d = tmp_path / "d"
    d.mkdir()
    for p in tmp_path.parents:
        if str(p).startswith("/tmp/"):
            p.chmod(p.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    with refused(errno.EACCES, str(d / "f")):
        agent.put(str(d / "f"), b"x", USER="nobody")
    os.chown(d, 65534, 65534)
    agent.put(str(d / "f"), b"x", USER="nobody")
    assert (d / "f").stat().st_uid == 65534
    # A file that the user may write, in a directory that he may not.
    d2 = tmp_path / "d2"
    d2.mkdir()
    (d2 / "f").write_text("longer than that")
    (d2 / "f").chmod(0o666)
    agent.put(str(d2 / "f"), b"y", USER="nobody")
    assert (d2 / "f").read_bytes() == b"y"


def test_write_follows_links(agent, tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    agent.put(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
    (tmp_path / "dangling").symlink_to("made")
    agent.put(str(tmp_path / "dangling"), b"x")
    assert (tmp_path / "made").read_bytes() == b"x"


def test_write_to_what_is_no_file(agent, tmp_path):
    agent.put("/dev/null", b"x" * 200000)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with refused(errno.EISDIR):
        agent.put(str(tmp_path), b"x")
    with refused(errno.ENOENT):
        agent.put(str(tmp_path / "none/f"), b"x")
    with refused(errno.ENOTDIR):
        agent.put("/etc/passwd/x", b"x")
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK)
    data = pattern(1_000_000)
    got = bytearray()

    def drain():
        while len(got) < len(data):
            try:
                got.extend(os.read(fd, 65536))
            except BlockingIOError:
                time.sleep(0.001)

    t = threading.Thread(target=drain)
    t.start()
    agent.put(str(tmp_path / "fifo"), data)
    t.join()
    os.close(fd)
    assert bytes(got) == data
    value = open("/proc/sys/kernel/printk_ratelimit").read()
    agent.put("/proc/sys/kernel/printk_ratelimit", value.encode())


def test_write_is_atomic(agent, tmp_path):
    p = tmp_path / "f"
    p.write_text("old")
    c = agent.stream(S_WRITE, PATH=str(p))
    c.send(DATA, b"x" * 65536)
    until(lambda: len(os.listdir(tmp_path)) == 2)
    assert p.read_text() == "old"
    c.close()
    until(lambda: os.listdir(tmp_path) == ["f"])
    assert p.read_text() == "old"
    # The host failed halfway.
    c = agent.stream(S_WRITE, PATH=str(p))
    c.send(DATA, b"x")
    c.send(END, body(ERRNO=5, MESSAGE="no"))
    t, _, _, data = c.recv()
    assert t == END and parse(data)["ERRNO"] == errno.ECANCELED
    # Fewer bytes than announced.
    with refused(errno.EBADMSG):
        agent.put(str(p), b"123", SIZE=4)
    assert os.listdir(tmp_path) == ["f"] and p.read_text() == "old"


def test_write_no_space(agent, tmp_path):
    with refused(errno.ENOSPC):
        agent.put("/dev/full", b"x" * 3000000)
    with refused(errno.EFBIG):
        agent.put(str(tmp_path / "f"), b"", SIZE=(1 << 63) - 1)
    assert os.listdir(tmp_path) == []
