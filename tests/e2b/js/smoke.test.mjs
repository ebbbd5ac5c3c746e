// SPDX-License-Identifier: Apache-2.0
// A little of everything, for versions whose every call the other files would be too long for.

import { CommandExitError, NotFoundError, TimeoutError } from './lib.mjs'
import { assert, fails, sandbox, test, until, work } from './lib.mjs'

const { commands, files, pty } = sandbox

test('a command', async () => {
        const result = await commands.run('echo out; echo err >&2; echo $OWN', { envs: { OWN: 'ü' }, cwd: work })
        assert.deepEqual([result.exitCode, result.stdout, result.stderr], [0, 'out\nü\n', 'err\n'])
})

test('a command that fails', async () => {
        const error = await fails(CommandExitError, () => commands.run('echo no >&2; exit 3'))
        assert.deepEqual([error.exitCode, error.stderr], [3, 'no\n'])
})

test('a command that takes too long', async () => {
        await fails(TimeoutError, () => commands.run('sleep 1000', { timeoutMs: 500 }))
})

test('one in the background with input, listed and killed', async () => {
        const cat = await commands.run('cat', { background: true, stdin: true })
        await commands.sendStdin(cat.pid, 'ä\n')
        await until(() => cat.stdout === 'ä\n')
        assert.ok((await commands.list()).some((one) => one.pid === cat.pid))
        assert.equal(await commands.kill(cat.pid), true)
        await fails(CommandExitError, () => cat.wait())
        assert.equal(await commands.kill(cat.pid), false)
})

test('a client that leaves and comes again', async () => {
        const handle = await commands.run(`until test -e ${work}/go; do sleep 0.1; done; echo later`, { background: true })
        await handle.disconnect()
        const again = await commands.connect(handle.pid)
        await files.write(`${work}/go`, '')
        assert.equal((await again.wait()).stdout, 'later\n')
})

test('files are written and read', async () => {
        const path = `${work}/d/f ü.txt`, data = new Uint8Array(1000000).fill(250)
        assert.equal((await files.write(path, 'hello')).path, path)
        assert.equal(await files.read(path), 'hello')
        await files.write(`${work}/large`, data.buffer)
        assert.deepEqual(await files.read(`${work}/large`, { format: 'bytes' }), data)
        assert.deepEqual((await files.write([{ path: `${work}/1`, data: '1' }, { path: `${work}/2`, data: '2' }])).map((one) => one.name), ['1', '2'])
        await fails(NotFoundError, () => files.read(`${work}/none`))
})

test('directories', async () => {
        assert.deepEqual([await files.makeDir(`${work}/new/deep`), await files.makeDir(`${work}/new/deep`)], [true, false])
        await files.write(`${work}/new/f`, 'x')
        assert.deepEqual((await files.list(`${work}/new`)).map((one) => [one.name, one.type]), [['deep', 'dir'], ['f', 'file']])
        assert.equal((await files.rename(`${work}/new/f`, `${work}/new/g`)).name, 'g')
        await files.remove(`${work}/new`)
        assert.equal(await files.exists(`${work}/new`), false)
})

test('watching', async () => {
        const events = []
        const handle = await files.watchDir(work, (event) => { events.push(`${event.type} ${event.name}`) })
        await files.write(`${work}/watched`, 'x')
        await until(() => events.includes('create watched') && events.includes('write watched'))
        await handle.stop()
})

test('a terminal', async () => {
        let text = ''
        const handle = await pty.create({ cols: 80, rows: 24, onData: (data) => { text += Buffer.from(data).toString() } })
        await pty.resize(handle.pid, { cols: 100, rows: 30 })
        await pty.sendInput(handle.pid, new TextEncoder().encode('stty size; exit\n'))
        assert.equal((await handle.wait()).exitCode, 0)
        assert.ok(text.includes('30 100'), text)
})

test('the sandbox is running', async () => {
        assert.equal(await sandbox.isRunning(), true)
})
