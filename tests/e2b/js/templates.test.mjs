// SPDX-License-Identifier: Apache-2.0
// Templates: a build with all kinds of steps, its files and log, names, tags, and what fails.

import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert, fails, load, test } from './load.mjs'

const { Sandbox, Template, BuildError } = await load('e2b')
const context = await mkdtemp(join(tmpdir(), 'e2b-'))
await mkdir(join(context, 'app'))
await writeFile(join(context, 'app', 'main.js'), 'x'.repeat(300000))
await writeFile(join(context, 'one.txt'), 'one\n')
const base = () => Template({ fileContextPath: context }).fromTemplate(process.env.CUBE_TEMPLATE)

test('all kinds of steps', async () => {
        const lines = []
        const template = base().copy('app', '/srv/app').copy('one.txt', 'one.txt', { user: 'root', mode: 0o640 })
                .setEnvs({ A: '1' }).setWorkdir('/srv/app').setUser('app').runCmd('make all').runCmd('as root', { user: 'root' })
                .setStartCmd('serve', 'is-ready')
        const info = await Template.build(template, 'mine:v1', {
                tags: ['stable'], cpuCount: 2, memoryMB: 1024, onBuildLogs: (entry) => lines.push(entry.message),
        })
        assert.equal(info.buildId.length, 36)
        for (const wanted of ['[1/7] COPY', '/.cube-build/1 app /srv/app', 'one.txt root 0640', 'A 1', '[5/7] USER', 'make all',
                'as root root', 'start serve', 'ready is-ready', '2 CPUs, 1024 MiB'])
                assert.ok(lines.some((line) => line.includes(wanted)), `${wanted}: ${lines.join('\n')}`)
        assert.equal((await Template.getBuildStatus(info)).status, 'ready')
})

test('names and tags', async () => {
        const info = await Template.build(base().runCmd('true'), 'named')
        assert.equal(await Template.exists('named'), true)
        assert.equal(await Template.exists('nosuch'), false)
        assert.equal((await Template.assignTags('named', ['a', 'b'])).buildId, info.buildId)
        const newer = await Template.build(Template().fromTemplate('named').runCmd('true'), 'named')
        assert.equal(newer.templateId, info.templateId)
        await Template.removeTags('named', 'b')
        const tags = Object.fromEntries((await Template.getTags('named')).map((one) => [one.tag, one.buildId]))
        assert.deepEqual(tags, { default: newer.buildId, a: info.buildId })
        const sandbox = await Sandbox.create('named:a')
        assert.equal((await sandbox.getInfo()).templateId, info.templateId)
        assert.equal(await sandbox.kill(), true)
})

// Of a registry with a password, of the image's name and the registry's user.
const login = () => ({ username: process.env.CUBE_IMAGE_USER, password: process.env.CUBE_IMAGE_PASSWORD })
test('an image that is fetched', { skip: !process.env.CUBE_IMAGE }, async () => {
        const lines = []
        const of = (credentials) => Template().fromImage(process.env.CUBE_IMAGE, credentials).runCmd('make all')
        await Template.build(of(login()), 'imaged', { onBuildLogs: (entry) => lines.push(entry.message) })
        for (const wanted of [`Fetching ${process.env.CUBE_IMAGE}`, 'Copying blob', '[1/1] RUN'])
                assert.ok(lines.some((line) => line.includes(wanted)), `${wanted}: ${lines.join('\n')}`)
        const sandbox = await Sandbox.create('imaged')
        assert.equal(await sandbox.kill(), true)
        await fails(BuildError, () => Template.build(of({ ...login(), password: 'no' }), 'bad'), 'could not be fetched')
        await fails(BuildError, () => Template.build(of(), 'bad'), 'could not be fetched')
})

test('builds that fail', async () => {
        await fails(BuildError, () => Template.build(base().runCmd('true').runCmd('exit 1'), 'bad'), 'exit status 1')
        await fails(BuildError, () => Template.build(Template().fromTemplate('nosuch'), 'bad'), "template 'nosuch' not found")
        await fails(BuildError, () => Template.build(Template().fromImage('elsewhere.invalid/nosuch:1'), 'bad'),
                'fetches no images from elsewhere.invalid')
        assert.equal(await Template.exists('bad'), false)
})
