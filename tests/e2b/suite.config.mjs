// SPDX-License-Identifier: Apache-2.0
// For E2B's own tests: one file after the other, for many sandboxes at a time tell more of a machine than of a server.

import { defineConfig } from 'vitest/config'

const common = { isolate: true, environment: 'node', setupFiles: ['./suite.waits.mjs'@SETUP@] }
const limits = (ms) => ({ testTimeout: ms * @FACTOR@, hookTimeout: ms * @FACTOR@ })

export default defineConfig({ test: { fileParallelism: false, projects: [
        { test: { ...common, ...limits(30_000), name: 'unit', include: ['tests/**/*.test.ts'], exclude: ['tests/template/**'] } },
        { test: { ...common, ...limits(180_000), name: 'template', include: ['tests/template/**/*.test.ts'] } },
] } })
