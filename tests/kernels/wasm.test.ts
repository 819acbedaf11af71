/** The modules that are kept in src/kernels/wasm; `tests/outside/wasm.test.ts` builds them anew. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const root = new URL('../../', import.meta.url)
const { hashOfSources } = (await import(new URL('scripts/wasm.mjs', root).href)) as { hashOfSources(): string }
const read = (name: string) => readFileSync(new URL(`src/kernels/wasm/${name}`, root))
const hashes = JSON.parse(read('hashes.json').toString()) as Record<string, string>

test('the kernels in C have not changed since `npm run wasm` built them', () => {
  expect(hashes.sources, '`npm run wasm` builds them anew').toBe(hashOfSources())
})

test.each(['simd', 'relaxed', 'grids'])('the module %s is the one that was built', (build) => {
  expect(hashes[build]).toBe(
    createHash('sha256')
      .update(read(`${build}.wasm`))
      .digest('hex'),
  )
})
