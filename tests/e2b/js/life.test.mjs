// SPDX-License-Identifier: Apache-2.0
// A sandbox from its creation to its end, with a Linux of its own.

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { assert, create, fails, load, test } from './load.mjs'

const { Sandbox, CommandExitError, SandboxError } = await load('e2b')
const timeoutMs = 3600000

test('a life', async () => {
        const sandbox = await create(Sandbox, { timeoutMs, envs: { GREETING: 'hello' }, metadata: { who: 'test' } })
        const { commands, files, sandboxId } = sandbox
        assert.equal(await sandbox.isRunning(), true)
        const { stdout } = await commands.run('id -un; pwd; echo $GREETING $E2B_SANDBOX_ID; uname -n')
        const [user, home, greeting, id, name] = stdout.trim().split(/\s+/)
        assert.deepEqual([user, home, greeting, id], ['user', '/home/user', 'hello', sandboxId])
        assert.notEqual(name, hostname())
        assert.equal((await fails(CommandExitError, () => commands.run('exit 3'))).exitCode, 3)
        const data = randomBytes(3000000)
        assert.equal((await files.write('d/f ü', new Blob([data]))).path, '/home/user/d/f ü')
        assert.ok(data.equals(await files.read('d/f ü', { format: 'bytes' })))
        assert.deepEqual((await files.list('d')).map((one) => [one.name, one.owner]), [['f ü', 'user']])
        const sleeper = await commands.run('sleep 10000', { background: true, timeoutMs: 0 })
        assert.equal(await sandbox.pause(), true)
        assert.equal(await sandbox.isRunning(), false)
        const again = await Sandbox.connect(sandboxId, { timeoutMs })
        assert.ok((await again.commands.list()).some((one) => one.pid === sleeper.pid))
        assert.ok(data.equals(await again.files.read('d/f ü', { format: 'bytes' })))
        assert.deepEqual((await again.getInfo()).metadata, { who: 'test' })
        assert.deepEqual([await again.kill(), await sandbox.kill(), await sandbox.isRunning()], [true, false, false])
        await fails(SandboxError, () => commands.run('true'))
})
