// SPDX-License-Identifier: Apache-2.0
// 100 MB up and down, byte for byte.

import { createHash, randomBytes } from 'node:crypto'
import { assert, sandbox, test, work } from './lib.mjs'

const part = randomBytes(1000000)
const parts = Array(100).fill(part)
const digest = (data) => data.reduce((hash, one) => hash.update(one), createHash('sha256')).digest('hex')

test('100 MB as they are', async () => {
        const { commands, files } = sandbox
        await files.write(`${work}/large`, new Blob(parts))
        assert.equal((await commands.run(`sha256sum <${work}/large`)).stdout, `${digest(parts)}  -\n`)
        const got = []
        for await (const one of await files.read(`${work}/large`, { format: 'stream' }))
                got.push(one)
        assert.equal(digest(got), digest(parts))
})
