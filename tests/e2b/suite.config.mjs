// SPDX-License-Identifier: Apache-2.0
// For E2B's own tests: one file after the other, for many sandboxes at a time tell more of a machine than of a server.

import { defineConfig } from 'vitest/config'

export default defineConfig({ test: {
        include: ['tests/**/*.test.ts'], isolate: true, fileParallelism: false, environment: 'node',
        testTimeout: @LIMIT@, hookTimeout: @LIMIT@, setupFiles: ['./suite.waits.mjs'@SETUP@],
} })
