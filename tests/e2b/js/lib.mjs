// SPDX-License-Identifier: Apache-2.0
// One sandbox for a file of tests, and a directory in it.

import { randomBytes } from 'node:crypto'
import { after } from 'node:test'
import { create, load } from './load.mjs'

export const { Sandbox, CommandExitError, InvalidArgumentError, NotFoundError, AuthenticationError, SandboxError, TimeoutError } = await load('e2b')
export const sandbox = await create(Sandbox, { timeoutMs: 3600000, envs: { GLOBAL: '1' } })
export const user = (await sandbox.commands.run('id -un')).stdout.trim()
export const work = `/tmp/e2b-${randomBytes(8).toString('hex')}`
await sandbox.files.makeDir(work)
after(async () => {
        await sandbox.files.remove(work)
        await sandbox.kill()
})

export * from './load.mjs'
