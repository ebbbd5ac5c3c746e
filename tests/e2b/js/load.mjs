// SPDX-License-Identifier: Apache-2.0
// E2B's SDK as npm installed it in CUBE_SDK, and how tests ask it things. The SDK reads the rest of its environment itself.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test as nodeTest } from 'node:test'

const about = (name) => JSON.parse(readFileSync(`${process.env.CUBE_SDK}/node_modules/${name}/package.json`))

export const load = (name) => import(`${process.env.CUBE_SDK}/node_modules/${name}/${about(name).module}`)

// A sandbox of the template that CUBE_TEMPLATE names, or of the SDK's own.
export function create(Sandbox, options) {
        const template = process.env.CUBE_TEMPLATE
        return template ? Sandbox.create(template, options) : Sandbox.create(options)
}

// What a version has that those before it have not.
const [major, minor] = about('e2b').version.split('.').map(Number)
export const since = (a, b) => major > a || (major === a && minor >= b)

// With a time-out, so that one that hangs says which.
const seconds = Number(process.env.CUBE_TEST_SECONDS ?? 240)
export const test = (name, run) => nodeTest(name, { timeout: seconds * 1000 }, run)

// An error of a kind, whose text has the given one.
export async function fails(kind, call, text = '') {
        let error
        try {
                await call()
        } catch (e) {
                error = e
        }
        assert.ok(error, `no ${kind.name}`)
        assert.ok(error instanceof kind, `${error.constructor.name}: ${error.message}`)
        assert.ok(error.message.includes(text), error.message)
        return error
}

export async function until(condition) {
        while (!(await condition()))
                await new Promise((resolve) => setTimeout(resolve, 20))
}

export { assert }
