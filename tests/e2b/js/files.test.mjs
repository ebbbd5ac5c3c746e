// SPDX-License-Identifier: Apache-2.0
// Files: read, write, list, info, make, move, remove.

import { createHash, randomBytes } from 'node:crypto'
import { AuthenticationError, InvalidArgumentError, NotFoundError, since } from './lib.mjs'
import { assert, fails, sandbox, test, user, work } from './lib.mjs'

const { commands, files } = sandbox

async function drained(stream) {
        const parts = []
        for await (const part of stream)
                parts.push(part)
        return Buffer.concat(parts).toString()
}

test('a file is what was written', async () => {
        const path = `${work}/missing/f ü "漢".txt`
        const info = await files.write(path, 'hello')
        assert.deepEqual([info.name, info.path, info.type, info.metadata], ['f ü "漢".txt', path, 'file', undefined])
        assert.equal(await files.read(path), 'hello')
        assert.deepEqual(await files.read(path, { format: 'bytes' }), new Uint8Array(Buffer.from('hello')))
        assert.equal(await (await files.read(path, { format: 'blob' })).text(), 'hello')
        assert.equal(await drained(await files.read(path, { format: 'stream' })), 'hello')
        await files.write(path, 'again')
        assert.equal(await files.read(path), 'again')
})

test('each kind of data', async () => {
        const bytes = Uint8Array.from([0, 255, 10, 13])
        const stream = () => new Blob(['stream']).stream()
        await files.write(`${work}/buffer`, bytes.buffer)
        await files.write(`${work}/blob`, new Blob([bytes]))
        await files.write(`${work}/stream`, stream())
        for (const name of ['buffer', 'blob'])
                assert.deepEqual(await files.read(`${work}/${name}`, { format: 'bytes' }), bytes)
        assert.equal(await files.read(`${work}/stream`), 'stream')
        if (!since(2, 40))
                return
        for (const gzip of [false, true]) {
                await files.write(`${work}/octets`, stream(), { useOctetStream: true, gzip })
                assert.equal(await files.read(`${work}/octets`, { gzip }), 'stream')
        }
})

test('an empty file is empty in every format', async () => {
        await files.write(`${work}/empty`, '')
        assert.equal(await files.read(`${work}/empty`), '')
        assert.equal((await files.read(`${work}/empty`, { format: 'bytes' })).length, 0)
        assert.equal((await files.read(`${work}/empty`, { format: 'blob' })).size, 0)
        assert.equal(await drained(await files.read(`${work}/empty`, { format: 'stream' })), '')
})

test('many files in one request', async () => {
        assert.deepEqual(await files.write([]), [])
        const many = [...Array(20).keys()].map((i) => ({ path: `${work}/many/d${i}/ü${i}`, data: `${i}` }))
        assert.deepEqual((await files.write(many)).map((one) => one.path), many.map((one) => one.path))
        for (const one of many)
                assert.equal(await files.read(one.path), one.data)
})

test('5 MB arrive byte for byte', async () => {
        const data = randomBytes(5000000)
        await files.write(`${work}/large`, new Blob([data]))
        const hash = createHash('sha256').update(data).digest('hex')
        assert.equal((await commands.run(`sha256sum <${work}/large`)).stdout, `${hash}  -\n`)
        assert.equal(createHash('sha256').update(await files.read(`${work}/large`, { format: 'bytes' })).digest('hex'), hash)
})

test('what is no file is refused', async () => {
        await fails(NotFoundError, () => files.read(`${work}/none`), `path '${work}/none' does not exist`)
        await fails(NotFoundError, () => files.read(`${work}/none`, { format: 'stream' }))
        await fails(InvalidArgumentError, () => files.read(work), 'is a directory')
        await fails(InvalidArgumentError, () => files.write(work, 'x'), 'is a directory')
        await fails(AuthenticationError, () => files.write(`${work}/x`, 'x', { user: 'nobody-here' }))
        await fails(InvalidArgumentError, () => files.getInfo(`${work}/a\0b`))
})

test('a relative path is below the home of the user', async () => {
        const home = (await commands.run('echo ~')).stdout.trim()
        const name = work.slice(5)
        assert.equal((await files.write(name, 'x')).path, `${home}/${name}`)
        assert.equal(await files.read(`~/${name}`), 'x')
        await files.remove(name)
        assert.equal(await files.exists(`${home}/${name}`), false)
})

test('info', async () => {
        await files.write(`${work}/info`, 'hello')
        const info = await files.getInfo(`${work}/info`)
        assert.deepEqual([info.name, info.path, info.type, info.size, info.mode, info.permissions, info.owner, info.group],
                ['info', `${work}/info`, 'file', 5, 0o644, '-rw-r--r--', user, user])
        assert.ok(Math.abs(info.modifiedTime - Date.now()) < 600000)
        const dir = await files.getInfo(work)
        assert.deepEqual([dir.type, dir.mode, dir.permissions], ['dir', 0o755, 'drwxr-xr-x'])
        await commands.run('ln -s info link; ln -s nowhere broken', { cwd: work })
        const link = await files.getInfo(`${work}/link`)
        assert.deepEqual([link.type, link.symlinkTarget], ['file', `${work}/info`])
        await fails(NotFoundError, () => files.getInfo(`${work}/none`))
})

test('who writes is whose it is', async () => {
        await files.write(`${work}/daemons`, 'x', { user: 'daemon' })
        const info = await files.getInfo(`${work}/daemons`)
        assert.deepEqual([info.owner, info.group], ['daemon', 'daemon'])
})

test('a list is in order, as deep as was asked', async () => {
        const top = `${work}/list`
        await files.write([{ path: `${top}/b/c/d.txt`, data: '' }, { path: `${top}/b.txt`, data: '' }, { path: `${top}/a.txt`, data: '' }])
        const names = async (depth) => (await files.list(top, { depth })).map((one) => one.path.slice(top.length + 1))
        assert.deepEqual(await names(1), ['a.txt', 'b', 'b.txt'])
        assert.deepEqual(await names(2), ['a.txt', 'b', 'b/c', 'b.txt'])
        assert.deepEqual(await names(3), ['a.txt', 'b', 'b/c', 'b/c/d.txt', 'b.txt'])
        assert.deepEqual((await files.list(top)).map((one) => [one.name, one.type]), [['a.txt', 'file'], ['b', 'dir'], ['b.txt', 'file']])
        await fails(NotFoundError, () => files.list(`${work}/none`))
        await fails(InvalidArgumentError, () => files.list(`${top}/a.txt`), 'not a directory')
})

test('make, rename, remove, exists', async () => {
        assert.equal(await files.makeDir(`${work}/new/deep`), true)
        assert.equal(await files.makeDir(`${work}/new/deep`), false)
        await files.write(`${work}/new/f`, 'x')
        await fails(InvalidArgumentError, () => files.makeDir(`${work}/new/f`))
        const moved = await files.rename(`${work}/new/f`, `${work}/elsewhere/g`)
        assert.deepEqual([moved.path, moved.name, moved.type], [`${work}/elsewhere/g`, 'g', 'file'])
        assert.deepEqual([await files.exists(`${work}/new/f`), await files.exists(moved.path)], [false, true])
        await fails(NotFoundError, () => files.rename(`${work}/new/f`, `${work}/x`))
        await files.remove(`${work}/new`)
        await files.remove(`${work}/new`)
        assert.equal(await files.exists(`${work}/new/deep`), false)
})

test('metadata comes with a file and goes with the next one', async (t) => {
        if (!since(2, 40))
                return t.skip('this version has none')
        const path = `${work}/described`, metadata = { author: 'a b', purpose: 'x' }
        for (const useOctetStream of [false, true]) {
                assert.deepEqual((await files.write(path, 'x', { metadata, useOctetStream })).metadata, metadata)
                assert.deepEqual((await files.getInfo(path)).metadata, metadata)
        }
        assert.deepEqual((await files.list(work)).find((one) => one.path === path).metadata, metadata)
        assert.deepEqual((await files.rename(path, `${path}2`)).metadata, metadata)
        assert.equal((await files.write(`${path}2`, 'y')).metadata, undefined)
        assert.equal((await files.getInfo(`${path}2`)).metadata, undefined)
        for (const one of await files.writeFiles([{ path, data: '1' }, { path: `${path}3`, data: '3' }], { metadata }))
                assert.deepEqual((await files.getInfo(one.path)).metadata, metadata)
})
