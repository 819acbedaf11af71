// Vitest for mutation runs: the tests of one room, as scripts/mutate/main.mjs names them.
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: JSON.parse(process.env.MUTATE_TESTS ?? '[]'),
    exclude: JSON.parse(process.env.MUTATE_WITHOUT ?? '[]'),
    testTimeout: 120_000,
    hookTimeout: 300_000,
  },
})
