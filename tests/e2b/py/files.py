# SPDX-License-Identifier: Apache-2.0
"""Files: read, write, list, info, make, move, remove."""

import hashlib
import io
import os

from e2b import FileType
from lib import (AuthenticationException, InvalidArgumentException, NotFoundException, VERSION, collected, fails, go)

SANDBOX = DIRECTORY = True


async def test_a_file_is_what_was_written(s, work):
    path = work + '/missing/f ü "漢".txt'
    info = await go(s.files.write(path, "hello"))
    assert (info.path, info.name, info.type) == (path, 'f ü "漢".txt', FileType.FILE), info
    assert await go(s.files.read(path)) == "hello"
    assert bytes(await go(s.files.read(path, format="bytes"))) == b"hello"
    assert await collected(await go(s.files.read(path, format="stream"))) == b"hello"
    await go(s.files.write(path, b"\xff\0"))
    assert bytes(await go(s.files.read(path, format="bytes"))) == b"\xff\0"
    await go(s.files.write(path, io.BytesIO(b"stream")))
    assert await go(s.files.read(path)) == "stream"
    await go(s.files.write(path, ""))
    assert await go(s.files.read(path)) == ""


async def test_many_files_in_one_request(s, work):
    assert await go(s.files.write_files([])) == []
    many = [{"path": f"{work}/many/d{i}/ü{i}", "data": str(i)} for i in range(20)]
    assert [one.path for one in await go(s.files.write_files(many))] == [one["path"] for one in many]
    for one in many[::5]:
        assert await go(s.files.read(one["path"])) == one["data"]


async def test_5_mb_arrive_byte_for_byte(s, work):
    data = os.urandom(5_000_000)
    await go(s.files.write(work + "/large", data))
    assert (await go(s.commands.run(f"sha256sum <{work}/large"))).stdout == hashlib.sha256(data).hexdigest() + "  -\n"
    assert bytes(await go(s.files.read(work + "/large", format="bytes"))) == data


async def test_what_is_no_file_is_refused(s, work):
    await fails(NotFoundException, lambda: s.files.read(work + "/none"), f"path '{work}/none' does not exist")
    await fails(InvalidArgumentException, lambda: s.files.read(work), "is a directory")
    await fails(InvalidArgumentException, lambda: s.files.write(work, "x"), "is a directory")
    await fails(AuthenticationException, lambda: s.files.write(work + "/x", "x", user="nobody-here"))
    await fails(InvalidArgumentException, lambda: s.files.get_info(work + "/a\0b"))


async def test_a_relative_path_is_below_the_home_of_the_user(s, work):
    home, name = (await go(s.commands.run("echo ~"))).stdout.strip(), work[5:]
    assert (await go(s.files.write(name, "x"))).path == f"{home}/{name}"
    assert await go(s.files.read("~/" + name)) == "x"
    await go(s.files.remove(name))
    assert not await go(s.files.exists(f"{home}/{name}"))


async def test_info(s, work):
    user = (await go(s.commands.run("id -un"))).stdout.strip()
    await go(s.files.write(work + "/info", "hello"))
    info = await go(s.files.get_info(work + "/info"))
    assert (info.name, info.size, info.mode, info.permissions, info.owner, info.group, info.type) == (
        "info", 5, 0o644, "-rw-r--r--", user, user, FileType.FILE), info
    info = await go(s.files.get_info(work))
    assert (info.mode, info.permissions, info.type) == (0o755, "drwxr-xr-x", FileType.DIR), info
    await go(s.commands.run("ln -s info link", cwd=work))
    assert (await go(s.files.get_info(work + "/link"))).symlink_target == work + "/info"
    await fails(NotFoundException, lambda: s.files.get_info(work + "/none"))
    await go(s.files.write(work + "/daemons", "x", user="daemon"))
    assert (await go(s.files.get_info(work + "/daemons"))).owner == "daemon"


async def test_a_list_is_in_order_as_deep_as_was_asked(s, work):
    top = work + "/list"
    await go(s.files.write_files([{"path": f"{top}/{name}", "data": ""} for name in ("b/c/d.txt", "b.txt", "a.txt")]))

    async def names(depth):
        return [one.path[len(top) + 1:] for one in await go(s.files.list(top, depth=depth))]
    assert await names(1) == ["a.txt", "b", "b.txt"]
    assert await names(2) == ["a.txt", "b", "b/c", "b.txt"]
    assert await names(3) == ["a.txt", "b", "b/c", "b/c/d.txt", "b.txt"]
    await fails(NotFoundException, lambda: s.files.list(work + "/none"))
    await fails(InvalidArgumentException, lambda: s.files.list(top + "/a.txt"), "not a directory")


async def test_make_rename_remove_exists(s, work):
    assert await go(s.files.make_dir(work + "/new/deep")) is True and await go(s.files.make_dir(work + "/new/deep")) is False
    await go(s.files.write(work + "/new/f", "x"))
    assert (await go(s.files.rename(work + "/new/f", work + "/elsewhere/g"))).path == work + "/elsewhere/g"
    assert not await go(s.files.exists(work + "/new/f")) and await go(s.files.exists(work + "/elsewhere/g"))
    await fails(NotFoundException, lambda: s.files.rename(work + "/new/f", work + "/x"))
    await go(s.files.remove(work + "/new"))
    await go(s.files.remove(work + "/new"))
    assert not await go(s.files.exists(work + "/new"))


async def test_metadata_comes_with_a_file_and_goes_with_the_next_one(s, work):
    if VERSION < (2, 40):
        return
    path, metadata = work + "/described", {"author": "a b", "purpose": "x"}
    assert (await go(s.files.write(path, "x", metadata=metadata))).metadata == metadata
    assert (await go(s.files.get_info(path))).metadata == metadata
    assert (await go(s.files.rename(path, path + "2"))).metadata == metadata
    assert not (await go(s.files.write(path + "2", "y"))).metadata
    assert not (await go(s.files.get_info(path + "2"))).metadata
