// SPDX-License-Identifier: Apache-2.0
// Who has no token gets nothing, and signed addresses of files do for one file.
// CUBE_TOKEN is that of the envd at E2B_SANDBOX_URL; there is no control plane.

import { randomBytes } from 'node:crypto'
import { after } from 'node:test'
import { assert, fails, load, test } from './load.mjs'

const { Sandbox, AuthenticationError } = await load('e2b')
const open = (envdAccessToken) => new Sandbox({ sandboxId: 'secure', envdVersion: '0.6.13', envdAccessToken })
const sandbox = open(process.env.CUBE_TOKEN)
const work = `/tmp/e2b-${randomBytes(8).toString('hex')}`
await sandbox.files.makeDir(work)
after(() => sandbox.files.remove(work))

// As somebody has it who was given an address and nothing else.
const fetched = async (url, options) => {
        const response = await fetch(url, options)
        return [response.status, response.headers.get('content-type')?.startsWith('application/json') ? await response.json() : await response.text()]
}

function form(text, name) {
        const body = new FormData()
        body.append('file', name ? new File([text], name) : text)
        return { method: 'POST', body }
}

test('with the token all is well', async () => {
        assert.equal((await sandbox.commands.run('echo hello')).stdout, 'hello\n')
        await sandbox.files.write(`${work}/f`, 'x')
        assert.equal(await sandbox.files.read(`${work}/f`), 'x')
})

test('without it, or with another, nothing is given but that it is there', async () => {
        for (const other of [open(undefined), open('wrong')]) {
                await fails(AuthenticationError, () => other.commands.run('true'))
                await fails(AuthenticationError, () => other.commands.list())
                await fails(AuthenticationError, () => other.files.list('/'))
                await fails(AuthenticationError, () => other.files.read(`${work}/f`))
                await fails(AuthenticationError, () => other.files.write(`${work}/f`, 'y'))
                assert.equal(await other.isRunning(), true)
        }
        assert.equal(await sandbox.files.read(`${work}/f`), 'x')
})

test('a signed address gives one file', async () => {
        await sandbox.files.write(`${work}/s ü+/`.slice(0, -1), 'signed')
        const url = await sandbox.downloadUrl(`${work}/s ü+`, { useSignatureExpiration: 10000 })
        assert.deepEqual(await fetched(url), [200, 'signed'])
        assert.equal((await fetched(url.replace('%C3%BC', 'u')))[0], 401)
        assert.equal((await fetched(await sandbox.downloadUrl(`${work}/s ü+`)))[0], 200)
        for (const user of ['root', 'daemon'])
                assert.equal((await fetched(await sandbox.downloadUrl(`${work}/f`, { user })))[0], 200)
})

test('one that is over is refused', async () => {
        const url = await sandbox.downloadUrl(`${work}/f`, { useSignatureExpiration: -120 })
        assert.deepEqual(await fetched(url), [401, { code: 401, message: 'signature is already expired' }])
        const up = await sandbox.uploadUrl(`${work}/f`, { useSignatureExpiration: -120 })
        assert.deepEqual(await fetched(up, form('y', 'f')), [401, { code: 401, message: 'signature is already expired' }])
})

test('a signed address takes one file, of a form with and without a name', async () => {
        const path = `${work}/up`
        const url = await sandbox.uploadUrl(path, { useSignatureExpiration: 10000 })
        assert.deepEqual(await fetched(url, form('one', 'whatever')), [200, [{ path, name: 'up', type: 'file' }]])
        assert.equal(await sandbox.files.read(path), 'one')
        assert.deepEqual(await fetched(url, form('two')), [200, [{ path, name: 'up', type: 'file' }]])
        assert.equal(await sandbox.files.read(path), 'two')
        assert.equal((await fetched(url))[0], 401)
})
