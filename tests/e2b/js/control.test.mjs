// SPDX-License-Identifier: Apache-2.0
// The control plane: a sandbox from its creation to its end, pauses, snapshots, forks, lists, and what is refused.

import { randomBytes } from 'node:crypto'
import { after } from 'node:test'
import { assert, create, fails, load, since, test } from './load.mjs'

const { Sandbox, AuthenticationError, NotFoundError, SandboxError, Template } = await load('e2b')
const mark = randomBytes(8).toString('hex')
const made = []
const make = async (options) => {
        const sandbox = await create(Sandbox, options)
        made.push(sandbox)
        return sandbox
}
after(() => Promise.all(made.map((one) => one.kill())))

async function all(paginator) {
        const items = []
        while (paginator.hasNext)
                items.push(...await paginator.nextItems())
        return items
}
const ids = (list) => list.map((one) => one.sandboxId)

test('create, info, time-out, kill', async () => {
        const metadata = { mark, 'k 1': 'v&=2', 'ü': 'x' }
        const sandbox = await make({ metadata, timeoutMs: 60000, envs: { GREETING: 'hi' } })
        assert.equal(await sandbox.isRunning(), true)
        assert.equal((await sandbox.commands.run('echo $GREETING $E2B_SANDBOX_ID')).stdout, `hi ${sandbox.sandboxId}\n`)
        const info = await sandbox.getInfo()
        assert.deepEqual([info.sandboxId, info.state, info.metadata], [sandbox.sandboxId, 'running', metadata])
        assert.ok(info.startedAt instanceof Date && info.endAt - Date.now() <= 61000)
        assert.ok(info.cpuCount >= 1 && info.memoryMB >= 1 && info.envdVersion)
        await sandbox.setTimeout(600000)
        assert.ok((await Sandbox.getInfo(sandbox.sandboxId)).endAt - Date.now() > 300000)
        assert.equal(await sandbox.kill(), true)
        assert.equal(await sandbox.kill(), false)
        assert.equal(await sandbox.isRunning(), false)
        await fails(NotFoundError, () => Sandbox.getInfo(sandbox.sandboxId))
        await fails(SandboxError, () => sandbox.commands.run('true'))
        assert.equal(await Sandbox.kill('nonexistingsandbox'), false)
})

test('connect does not shorten its time, and may lengthen it', async () => {
        const sandbox = await make({ timeoutMs: 300000 })
        const { endAt } = await sandbox.getInfo()
        const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10000 })
        assert.equal((await again.getInfo()).endAt.getTime(), endAt.getTime())
        await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 900000 })
        assert.ok((await again.getInfo()).endAt > endAt)
        assert.equal((await again.commands.run('echo same')).stdout, 'same\n')
        await fails(NotFoundError, () => Sandbox.connect('nonexistingsandbox'))
})

test('a list has pages, an order and filters', async () => {
        const metadata = { list: mark }
        const first = await make({ metadata }), second = await make({ metadata }), third = await make({ metadata })
        const query = { metadata, state: ['running'] }
        assert.deepEqual(ids(await all(Sandbox.list({ query }))), ids([third, second, first]))
        const pages = Sandbox.list({ query, limit: 2 })
        assert.deepEqual([ids(await pages.nextItems()), pages.hasNext], [ids([third, second]), true])
        assert.deepEqual([ids(await pages.nextItems()), pages.hasNext], [ids([first]), false])
        await second.pause()
        assert.deepEqual(ids(await all(Sandbox.list({ query }))), ids([third, first]))
        assert.deepEqual(ids(await all(Sandbox.list({ query: { metadata, state: ['paused'] } }))), [second.sandboxId])
        assert.deepEqual(ids(await all(Sandbox.list({ query: { metadata }, limit: 1 }))), ids([third, second, first]))
        assert.deepEqual(await all(Sandbox.list({ query: { metadata: { list: 'other' } } })), [])
})

test('pause and resume keep files, variables and programs', async () => {
        const sandbox = await make({ envs: { KEPT: 'yes' } })
        const path = `/tmp/e2b-${mark}`
        await sandbox.files.write(path, 'kept')
        const sleeper = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
        assert.equal(await sandbox.pause(), true)
        assert.equal(await sandbox.pause(), false)
        assert.equal((await sandbox.getInfo()).state, 'paused')
        assert.equal(await sandbox.isRunning(), false)
        await fails(SandboxError, () => sandbox.setTimeout(1000))
        const again = await Sandbox.connect(sandbox.sandboxId)
        assert.equal((await again.commands.run('echo $KEPT')).stdout, 'yes\n')
        assert.equal(await again.files.read(path), 'kept')
        assert.ok((await again.commands.list()).some((one) => one.pid === sleeper.pid))
        // who has the first one still gets in
        assert.equal((await sandbox.commands.run('echo same')).stdout, 'same\n')
        await again.files.remove(path)
        await Promise.all([again.pause()])
        const many = await Promise.all([...Array(5)].map(() => Sandbox.connect(sandbox.sandboxId)))
        for (const one of many)
                assert.equal((await one.commands.run('echo one')).stdout, 'one\n')
        await fails(NotFoundError, () => Sandbox.pause('nonexistingsandbox'))
})

test('snapshots make sandboxes until they are deleted', async () => {
        const sandbox = await make()
        const snapshot = await sandbox.createSnapshot()
        assert.ok((await all(Sandbox.listSnapshots())).some((one) => one.snapshotId === snapshot.snapshotId))
        assert.ok((await all(sandbox.listSnapshots())).some((one) => one.snapshotId === snapshot.snapshotId))
        const copy = await Sandbox.create(snapshot.snapshotId)
        made.push(copy)
        assert.notEqual(copy.sandboxId, sandbox.sandboxId)
        assert.equal((await copy.commands.run('echo $E2B_SANDBOX_ID')).stdout, `${copy.sandboxId}\n`)
        await copy.kill()
        assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
        assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
        await fails(Error, () => Sandbox.create(snapshot.snapshotId), '404')
})

test('forks', async (t) => {
        if (!since(2, 46))
                return t.skip('this version has none')
        const sandbox = await make()
        const forks = await sandbox.fork({ count: 2 })
        made.push(...forks)
        assert.equal(new Set(ids([sandbox, ...forks])).size, 3)
        for (const one of forks)
                assert.equal((await one.commands.run('echo $E2B_SANDBOX_ID')).stdout, `${one.sandboxId}\n`)
        await sandbox.kill()
        await fails(NotFoundError, () => Sandbox.fork(sandbox.sandboxId))
})

test('the network can be changed while it runs', async (t) => {
        if (!since(2, 45))
                return t.skip('this version can not')
        const sandbox = await make({ network: { allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'] } })
        await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] })
        await sandbox.updateNetwork({})
        await fails(Error, () => create(Sandbox, { network: { allowOut: ['10.1.2.3'] } }), '400')
})

test('addresses of ports and files', async () => {
        const sandbox = await make()
        assert.match(sandbox.getHost(3000), new RegExp(`^3000-${sandbox.sandboxId}\\.`))
        const url = new URL(await sandbox.downloadUrl('/etc/hostname'))
        assert.equal(url.pathname, '/files')
        assert.match(url.searchParams.get('signature'), /^v1_/)
})

test('metrics', async () => {
        const sandbox = await make()
        const [one] = await sandbox.getMetrics()
        assert.ok(one.cpuCount >= 1 && one.memTotal > one.memUsed && one.memUsed > 0 && one.diskTotal > 0, JSON.stringify(one))
        assert.ok(Math.abs(one.timestamp - Date.now()) < 600000)
        await fails(NotFoundError, () => Sandbox.getMetrics('nonexistingsandbox'))
})

test('which templates there are', async () => {
        assert.equal(await Template.exists(process.env.CUBE_TEMPLATE ?? 'base'), true)
        assert.equal(await Template.exists('no-such-template'), false)
})

test('what is refused, and how', async () => {
        await fails(Error, () => Sandbox.create('no-such-template'), "404: template 'no-such-template' not found")
        await fails(Error, () => create(Sandbox, { timeoutMs: 10 ** 9 }), '400: Timeout cannot be greater than')
        await fails(Error, () => create(Sandbox, { envs: { 'A-B': '1' } }), '400')
        await fails(AuthenticationError, () => create(Sandbox, { apiKey: `e2b_${'0'.repeat(40)}` }))
        await fails(NotFoundError, () => Sandbox.setTimeout('nonexistingsandbox', 1000))
})
