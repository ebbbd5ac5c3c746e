# SPDX-License-Identifier: Apache-2.0
"""The helpers for git, which are commands."""

from lib import fails, go

SANDBOX = DIRECTORY = True


async def test_a_repository_from_its_first_commit_to_its_clone(s, work):
    git, repo, bare = s.git, work + "/repo", work + "/bare"
    await go(git.init(repo, initial_branch="main"))
    await go(git.set_config("user.name", "A ü", scope="local", path=repo))
    await go(git.set_config("user.email", "a@example.org", scope="local", path=repo))
    assert await go(git.get_config("user.name", scope="local", path=repo)) == "A ü"
    await go(s.files.write(repo + "/f.txt", "one\n"))
    status = await go(git.status(repo))
    assert status.current_branch == "main" and not status.is_clean and status.has_untracked
    await go(git.add(repo))
    await go(git.commit(repo, 'first: "quoted" ü'))
    assert (await go(git.status(repo))).is_clean
    await go(git.create_branch(repo, "side"))
    assert sorted((await go(git.branches(repo))).branches) == ["main", "side"]
    await go(git.checkout_branch(repo, "main"))
    await go(git.init(bare, bare=True, initial_branch="main"))
    await go(git.remote_add(repo, "origin", bare))
    await go(git.push(repo, remote="origin", branch="main", set_upstream=True))
    await go(git.clone(bare, path=work + "/clone", branch="main"))
    assert await go(s.files.read(work + "/clone/f.txt")) == "one\n"
    await go(s.files.write(repo + "/f.txt", "two\n"))
    await go(git.reset(repo, mode="hard"))
    assert await go(s.files.read(repo + "/f.txt")) == "one\n"
    await fails(Exception, lambda: git.status(work + "/none"))
