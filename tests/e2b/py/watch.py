# SPDX-License-Identifier: Apache-2.0
"""Watching directories."""

from lib import NotFoundException, SandboxException, Watch, fails, go

SANDBOX = DIRECTORY = True


async def test_a_file_that_is_made_written_moved_and_removed(s, work):
    watch = await Watch.of(s, work)
    await go(s.files.write(work + "/f", "x"))
    await go(s.files.rename(work + "/f", work + "/g"))
    await go(s.files.remove(work + "/g"))
    await watch.sees(("create", "f"), ("write", "f"), ("rename", "f"), ("create", "g"), ("remove", "g"))
    await watch.stop()


async def test_a_directory_that_comes_later_is_watched_too(s, work):
    watch = await Watch.of(s, work, recursive=True)
    await go(s.files.make_dir(work + "/later/deep"))
    await watch.sees(("create", "later"))
    await go(s.files.write(work + "/later/deep/f", "x"))
    await watch.sees(("create", "later/deep/f"))
    await watch.stop()


async def test_what_is_no_directory_is_refused(s, work):
    def watch(path):
        return lambda: Watch.of(s, path)
    await fails(NotFoundException, watch(work + "/none"))
    await go(s.files.write(work + "/file", ""))
    await fails(SandboxException, watch(work + "/file"), "not a directory")
