// Vitest for mutation runs: the tests of one room, as scripts/mutate/main.mjs names them.
import { defineConfig } from 'vitest/config'
import suite from '../../vitest.config.ts'

export default defineConfig({
  plugins: suite.plugins,
  test: {
    include: JSON.parse(process.env.MUTATE_TESTS ?? '[]'),
    exclude: JSON.parse(process.env.MUTATE_WITHOUT ?? '[]'),
    testTimeout: 120_000,
    // Properties over whole kernels: a few cases each, since they run once for each fault.
    env: { LAW_RUNS: '6' },
    hookTimeout: 300_000,
  },
})
