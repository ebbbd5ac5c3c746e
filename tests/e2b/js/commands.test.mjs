// SPDX-License-Identifier: Apache-2.0
// Commands: run, wait, kill, input, connect, list; and how they may end.

import { AuthenticationError, CommandExitError, InvalidArgumentError, SandboxError, TimeoutError } from './lib.mjs'
import { assert, fails, sandbox, test, until, work } from './lib.mjs'

const { commands, files } = sandbox

test('a command gives its output and its exit code', async () => {
        const result = await commands.run('echo out; echo err >&2')
        assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.error], [0, 'out\n', 'err\n', undefined])
})

test('the sandbox is running', async () => {
        assert.equal(await sandbox.isRunning(), true)
})

test('special characters, several lines and other scripts arrive as they are', async () => {
        const text = '!@#$%^&*()_+{}|:<>?~`-=[];,./ "äöü" 漢字 🦊 \\n'
        assert.equal((await commands.run(`cat <<'END'\n${text}\nsecond\nEND`)).stdout, `${text}\nsecond\n`)
        assert.equal((await commands.run('echo "$Ä"', { envs: { 'Ä': 'ü 漢' } })).stdout, '$Ä\n')
        assert.equal((await commands.run('echo "$A"', { envs: { A: 'ü 漢\n"' } })).stdout, 'ü 漢\n"\n')
})

test('variables are those of one command', async () => {
        assert.equal((await commands.run('echo $OWN', { envs: { OWN: '1' } })).stdout, '1\n')
        assert.equal((await commands.run('echo $OWN')).stdout, '\n')
        assert.equal((await commands.run('echo $E2B_SANDBOX $GLOBAL')).stdout, 'true 1\n')
})

test('cwd is where it runs', async () => {
        const home = (await commands.run('echo ~')).stdout.trim()
        await files.makeDir(`${work}/ü b`)
        assert.equal((await commands.run('pwd', { cwd: `${work}/ü b` })).stdout, `${work}/ü b\n`)
        assert.equal((await commands.run('pwd', { cwd: '~' })).stdout, `${home}\n`)
        assert.equal((await commands.run('pwd', { cwd: '.' })).stdout, `${home}\n`)
        await fails(InvalidArgumentError, () => commands.run('true', { cwd: `${work}/none` }), `cwd '${work}/none' does not exist`)
})

test('user is whose it is', async () => {
        assert.equal((await commands.run('id -un', { user: 'daemon' })).stdout, 'daemon\n')
        assert.equal((await commands.run('id -u; echo $HOME $USER', { user: 'root' })).stdout, '0\n/root root\n')
        await fails(AuthenticationError, () => commands.run('true', { user: 'nobody-here' }), "invalid username: 'nobody-here'")
})

test('an exit code that is not 0 is an error that has the output', async () => {
        const error = await fails(CommandExitError, () => commands.run('echo out; echo no >&2; exit 3'))
        assert.deepEqual([error.exitCode, error.stdout, error.stderr, error.error], [3, 'out\n', 'no\n', 'exit status 3'])
})

test('a program that is not there is exit code 127', async () => {
        const error = await fails(CommandExitError, () => commands.run('no-such-command'))
        assert.equal(error.exitCode, 127)
        assert.match(error.stderr, /command not found/)
})

test('one that a signal ended says which', async () => {
        const error = await fails(CommandExitError, () => commands.run('kill -TERM $$'))
        assert.deepEqual([error.exitCode, error.error], [-1, 'signal: terminated'])
})

test('its time-out ends it, and the sandbox goes on', async () => {
        await fails(TimeoutError, () => commands.run(`echo $$ >${work}/timed; exec sleep 1000`, { timeoutMs: 5000 }))
        const pid = (await files.read(`${work}/timed`)).trim()
        await until(async () => (await commands.run(`test -e /proc/${pid} || echo gone`)).stdout === 'gone\n')
        assert.equal((await commands.run('echo on', { timeoutMs: 0 })).stdout, 'on\n')
})

test('output is there while it runs, and first before it ends', async () => {
        let release
        const seen = new Promise((resolve) => (release = resolve))
        const handle = await commands.run(`echo first; until test -e ${work}/go; do sleep 0.1; done; echo last`,
                { background: true, onStdout: (data) => release(data) })
        assert.equal(await seen, 'first\n')
        await files.write(`${work}/go`, '')
        assert.equal((await handle.wait()).stdout, 'first\nlast\n')
})

test('each stream has its callback', async () => {
        const out = [], err = []
        await commands.run('seq 3; seq 4 6 >&2', { onStdout: (d) => out.push(d), onStderr: (d) => err.push(d) })
        assert.deepEqual([out.join(''), err.join('')], ['1\n2\n3\n', '4\n5\n6\n'])
})

test('20 MB of output are whole', async () => {
        let bytes = 0
        const result = await commands.run('head -c 20000000 /dev/zero | tr "\\0" x; echo end', { onStdout: (d) => { bytes += d.length } })
        assert.equal(bytes, 20000004)
        assert.ok(result.stdout.endsWith('xxend\n'))
})

test('bytes that are no UTF-8 are replaced, and a character that is split is not', async () => {
        assert.equal((await commands.run("printf '\\xff\\xc3ok'")).stdout, '\ufffd\ufffdok')
        assert.equal((await commands.run("printf '\\xc3'; sleep 0.3; printf '\\xa4'")).stdout, 'ä')
})

test('a command in the background is listed, killed once, and then not found', async () => {
        const handle = await commands.run('sleep 1000', { background: true, envs: { MARK: '1' }, cwd: work })
        const listed = (await commands.list()).find((one) => one.pid === handle.pid)
        assert.deepEqual([listed.cmd, listed.args, listed.envs.MARK, listed.cwd], ['/bin/bash', ['-l', '-c', 'sleep 1000'], '1', work])
        assert.equal((await commands.run(`kill -0 ${handle.pid}`)).exitCode, 0)
        assert.equal(await commands.kill(handle.pid), true)
        const error = await fails(CommandExitError, () => handle.wait())
        assert.deepEqual([error.exitCode, error.error], [-1, 'signal: killed'])
        assert.equal(await commands.kill(handle.pid), false)
        assert.equal(await commands.kill(999999), false)
        assert.equal((await commands.list()).some((one) => one.pid === handle.pid), false)
})

test('a client that leaves ends nothing, and another one can come', async () => {
        const handle = await commands.run(`until test -e ${work}/again; do sleep 0.1; done; echo later`, { background: true })
        await handle.disconnect()
        const again = await commands.connect(handle.pid)
        assert.equal(again.pid, handle.pid)
        await files.write(`${work}/again`, '')
        assert.equal((await again.wait()).stdout, 'later\n')
        // for half a minute its end can be asked for
        assert.equal((await (await commands.connect(handle.pid)).wait()).exitCode, 0)
        await fails(SandboxError, () => commands.connect(999999), 'not found')
})

test('two clients get the same output', async () => {
        const first = await commands.run(`until test -e ${work}/both; do sleep 0.1; done; echo both`, { background: true })
        const second = await commands.connect(first.pid)
        await files.write(`${work}/both`, '')
        assert.deepEqual((await Promise.all([first.wait(), second.wait()])).map((one) => one.stdout), ['both\n', 'both\n'])
})

test('input arrives, and its end', async () => {
        const handle = await commands.run('cat', { background: true, stdin: true })
        await commands.sendStdin(handle.pid, 'aä\n"!@#$%^&*()\n')
        await commands.sendStdin(handle.pid, '')
        await commands.closeStdin(handle.pid)
        assert.equal((await handle.wait()).stdout, 'aä\n"!@#$%^&*()\n')
})

test('input to one that has none is an error', async () => {
        const handle = await commands.run('sleep 1000', { background: true, stdin: false })
        await fails(SandboxError, () => commands.sendStdin(handle.pid, 'x'), 'stdin not enabled or closed')
        await handle.kill()
})

test('a child that keeps the output open keeps the command open', async () => {
        const handle = await commands.run(`(until test -e ${work}/child; do sleep 0.1; done; echo child) & echo parent`, { background: true })
        await until(() => handle.stdout === 'parent\n')
        assert.equal(handle.exitCode, undefined)
        await files.write(`${work}/child`, '')
        assert.equal((await handle.wait()).stdout, 'parent\nchild\n')
})

test('30 commands at a time', async () => {
        const results = await Promise.all([...Array(30).keys()].map((i) => commands.run(`sleep 0.1; echo ${i}`)))
        assert.deepEqual(results.map((one) => one.stdout), [...Array(30).keys()].map((i) => `${i}\n`))
})

test('a NUL in a command is refused', async () => {
        await fails(InvalidArgumentError, () => commands.run('echo a\0b'))
})
