// SPDX-License-Identifier: Apache-2.0
// The helpers for git, which are commands.

import { assert, fails, sandbox, test, work } from './lib.mjs'

const { files, git } = sandbox
const repo = `${work}/repo`, bare = `${work}/bare`

test('a repository from its first commit to its clone', async () => {
        await git.init(repo, { initialBranch: 'main' })
        await git.setConfig('user.name', 'A ü', { scope: 'local', path: repo })
        await git.setConfig('user.email', 'a@example.org', { scope: 'local', path: repo })
        assert.equal(await git.getConfig('user.name', { scope: 'local', path: repo }), 'A ü')
        await files.write(`${repo}/f.txt`, 'one\n')
        let status = await git.status(repo)
        assert.deepEqual([status.currentBranch, status.isClean, status.hasUntracked], ['main', false, true])
        await git.add(repo)
        await git.commit(repo, 'first: "quoted" ü')
        assert.equal((await git.status(repo)).isClean, true)

        await git.createBranch(repo, 'side')
        assert.deepEqual((await git.branches(repo)).branches.sort(), ['main', 'side'])
        await git.checkoutBranch(repo, 'main')
        await git.deleteBranch(repo, 'side')
        assert.deepEqual((await git.branches(repo)).branches, ['main'])

        await files.write(`${repo}/f.txt`, 'two\n')
        await git.add(repo, { files: ['f.txt'] })
        assert.equal((await git.status(repo)).hasStaged, true)
        await git.restore(repo, { paths: ['f.txt'], staged: true, worktree: true })
        assert.equal(await files.read(`${repo}/f.txt`), 'one\n')
        await files.write(`${repo}/f.txt`, 'three\n')
        await git.reset(repo, { mode: 'hard' })
        assert.equal(await files.read(`${repo}/f.txt`), 'one\n')

        await git.init(bare, { bare: true, initialBranch: 'main' })
        await git.remoteAdd(repo, 'origin', bare)
        assert.equal(await git.remoteGet(repo, 'origin'), bare)
        await git.push(repo, { remote: 'origin', branch: 'main', setUpstream: true })
        await git.clone(bare, { path: `${work}/clone`, branch: 'main' })
        assert.equal(await files.read(`${work}/clone/f.txt`), 'one\n')
        await files.write(`${repo}/f.txt`, 'four\n')
        await git.commit(repo, 'nothing yet', { allowEmpty: true })
        await git.add(repo, { all: true })
        await git.commit(repo, 'second')
        await git.push(repo)
        await git.pull(`${work}/clone`)
        assert.equal(await files.read(`${work}/clone/f.txt`), 'four\n')
})

test('what git refuses is an error', async () => {
        await fails(Error, () => git.status(`${work}/none`))
        await fails(Error, () => git.checkoutBranch(repo, 'nosuch'))
})
