import { defineConfig } from 'vitest/config'

const root = new URL('.', import.meta.url)

/** Threads run what is built, also where a test imports the source that starts them: Node runs no TypeScript. */
const builtWorkers = {
  name: 'built-workers',
  enforce: 'pre' as const,
  transform(code: string, id: string) {
    const folder = /\/src\/(.*\/)?[^/]+\.ts$/.exec(id)?.[1]
    if (folder === undefined || !id.startsWith(root.pathname)) return null
    return code.replaceAll(/new URL\('\.\/([\w-]+-worker\.js)', import\.meta\.url\)/g, (_, name) => {
      return `new URL('${new URL(`dist/src/${folder}${name}`, root).href}')`
    })
  },
}

export default defineConfig({
  plugins: [builtWorkers],
  test: {
    include: ['tests/**/*.test.ts'],
    testTimeout: 120_000,
    hookTimeout: 300_000,
    // By itself vitest leaves one core idle: half of the two that most machines for tests have.
    maxWorkers: '100%',
  },
})
