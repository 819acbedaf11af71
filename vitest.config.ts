import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['tests/**/*.test.ts'],
    testTimeout: 120_000,
    hookTimeout: 300_000,
    // By itself vitest leaves one core idle: half of the two that most machines for tests have.
    maxWorkers: '100%',
  },
})
