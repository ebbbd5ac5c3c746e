// SPDX-License-Identifier: Apache-2.0
// Terminals.

import { CommandExitError, SandboxError } from './lib.mjs'
import { assert, fails, sandbox, test, until, work } from './lib.mjs'

const { commands, pty } = sandbox
const encode = (text) => new TextEncoder().encode(text)

async function open(options = {}) {
        const one = { text: '' }
        const decoder = new TextDecoder()
        one.onData = (data) => { one.text += decoder.decode(data, { stream: true }) }
        one.handle = await pty.create({ cols: 80, rows: 24, onData: one.onData, ...options })
        one.pid = one.handle.pid
        return one
}

test('a shell in a terminal of a size, with variables and a directory', async () => {
        const one = await open({ envs: { OWN: '2' }, cwd: work })
        await pty.sendInput(one.pid, encode('stty size; echo $TERM-$OWN; pwd; exit\n'))
        assert.equal((await one.handle.wait()).exitCode, 0)
        for (const text of ['24 80', 'xterm-256color-2', work])
                assert.ok(one.text.includes(text), one.text)
})

test('it can be resized', async () => {
        const one = await open()
        await pty.resize(one.pid, { cols: 100, rows: 30 })
        await pty.sendInput(one.pid, encode('stty size; exit\n'))
        await one.handle.wait()
        assert.ok(one.text.includes('30 100'), one.text)
})

test('its exit code is that of the shell', async () => {
        const one = await open()
        await pty.sendInput(one.pid, encode('exit 5\n'))
        assert.equal((await fails(CommandExitError, () => one.handle.wait())).exitCode, 5)
})

test('kill, once', async () => {
        const one = await open()
        assert.equal(await pty.kill(one.pid), true)
        await fails(CommandExitError, () => one.handle.wait())
        assert.equal(await pty.kill(one.pid), false)
})

test('a client that leaves does not hang up, and another one goes on', async () => {
        const one = await open()
        await pty.sendInput(one.pid, encode('echo be""fore\n'))
        await until(() => one.text.includes('before'))
        await one.handle.disconnect()
        let later = ''
        const again = await pty.connect(one.pid, { onData: (data) => { later += Buffer.from(data).toString() } })
        await pty.sendInput(one.pid, encode('echo aft""er; exit\n'))
        assert.equal((await again.wait()).exitCode, 0)
        assert.ok(later.includes('after'), later)
})

test('a command is no terminal', async () => {
        const handle = await commands.run('sleep 1000', { background: true })
        await fails(SandboxError, () => pty.resize(handle.pid, { cols: 1, rows: 1 }), 'tty not assigned')
        await fails(SandboxError, () => pty.sendInput(handle.pid, encode('x')), 'tty not assigned')
        await handle.kill()
})
