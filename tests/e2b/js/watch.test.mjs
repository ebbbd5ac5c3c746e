// SPDX-License-Identifier: Apache-2.0
// Watching directories.

import { NotFoundError, SandboxError } from './lib.mjs'
import { assert, fails, sandbox, test, until, work } from './lib.mjs'

const { files } = sandbox

async function watched(options, act, enough) {
        const events = []
        let ended
        const handle = await files.watchDir(work, (event) => { events.push(event) }, { ...options, onExit: (error) => { ended = error ?? 'ended' } })
        await act()
        await until(() => enough((type, name) => events.some((one) => one.type === type && one.name === name)))
        assert.equal(ended, undefined)
        await handle.stop()
        return events
}

test('a file that is made, written, moved and removed', async () => {
        await watched({}, async () => {
                await files.write(`${work}/f`, 'x')
                await files.rename(`${work}/f`, `${work}/g`)
                await files.remove(`${work}/g`)
        }, (has) => has('create', 'f') && has('write', 'f') && has('rename', 'f') && has('create', 'g') && has('remove', 'g'))
})

test('only what is in it, unless it is recursive', async () => {
        await files.makeDir(`${work}/below`)
        const events = await watched({}, async () => {
                await files.write(`${work}/below/f`, 'x')
                await files.write(`${work}/mark`, 'x')
        }, (has) => has('write', 'mark'))
        assert.ok(!events.some((one) => one.name === 'below/f'))
        await watched({ recursive: true }, () => files.write(`${work}/below/f`, 'y'), (has) => has('write', 'below/f'))
})

test('a directory that comes later is watched too', async () => {
        await watched({ recursive: true }, async () => {
                await files.makeDir(`${work}/later/deep`)
                await files.write(`${work}/later/deep/f`, 'x')
        }, (has) => has('create', 'later') && has('create', 'later/deep/f'))
        await watched({ recursive: true }, () => files.write(`${work}/later/deep/f`, 'y'), (has) => has('write', 'later/deep/f'))
})

test('what an entry is comes with the event', async () => {
        const events = await watched({ includeEntry: true }, () => files.write(`${work}/entry`, 'hello'), (has) => has('write', 'entry'))
        const written = events.findLast((one) => one.type === 'write' && one.name === 'entry')
        assert.deepEqual([written.entry.path, written.entry.type], [`${work}/entry`, 'file'])
})

test('what is no directory is refused', async () => {
        await fails(NotFoundError, () => files.watchDir(`${work}/none`, () => {}))
        await files.write(`${work}/file`, '')
        await fails(SandboxError, () => files.watchDir(`${work}/file`, () => {}), 'not a directory')
})
