// SPDX-License-Identifier: Apache-2.0
// For E2B's own tests: what they wait until a server of theirs in a sandbox is up takes longer by the factor, too. Not where the end
// of a sandbox's life is what they wait for, and not in the SDK.

const factor = Number(process.env.CUBE_FACTOR)
const plain = globalThis.setTimeout

globalThis.setTimeout = Object.assign((f, ms, ...more) => {
        const [, , caller = ''] = new Error().stack.split('\n')
        return plain(f, /\/tests\//.test(caller) && !new Error().stack.includes('/timeout.test.ts') ? ms * factor : ms, ...more)
}, plain)
