// SPDX-License-Identifier: Apache-2.0
// What a sandbox's names lead to, in domain mode: servers in it, and its files.

import { assert, create, load, test, until } from './load.mjs'

const { Sandbox } = await load('e2b')
const timeoutMs = 3600000

// Of an answer to somebody who has an address, and trusts whom the SDK trusts.
async function fetched(url, headers) {
        const response = await fetch(url, { headers })
        const text = await response.text()
        return response.ok ? [response.status, text] : response.status
}

test('names lead to servers and files', async () => {
        const sandbox = await create(Sandbox, { timeoutMs, network: { allowPublicTraffic: false } })
        await sandbox.files.write('index.html', 'served')
        await sandbox.commands.run('python3 -m http.server 8000', { background: true, timeoutMs: 0 })
        const url = `https://${sandbox.getHost(8000)}/`
        assert.equal(url, `https://8000-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}/`)
        const token = { 'E2b-Traffic-Access-Token': sandbox.trafficAccessToken }
        await until(async () => (await fetched(url, token)) !== 502)
        assert.deepEqual([await fetched(url, token), await fetched(url)], [[200, 'served'], 403])
        const link = await sandbox.downloadUrl('index.html')
        assert.deepEqual([await fetched(link), await fetched(link.replace('index', 'other'))], [[200, 'served'], 401])
        assert.deepEqual([await sandbox.kill(), await fetched(url, token)], [true, 502])
})
