/** The recordings of Gymnasium's environments are those of a Gymnasium that is installed, where one is. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const golden = new URL('../golden/', import.meta.url)
const FILES = {
  'record_gymnasium.py': [
    ...['cart-pole-v1.json', 'pendulum-v1.json', 'pendulum-v1-f64.json'],
    ...['mountain-car-v0.json', 'mountain-car-continuous-v0.json', 'acrobot-v1.json'],
  ],
  'record_toy_text.py': ['toy-text.json'],
}

let why: string | undefined
let folder: string

beforeAll(async () => {
  const found = await findInstalled('gymnasium, numpy')
  if ('why' in found) {
    why = `recording Gymnasium anew (${found.why})`
    console.warn(`SKIPPED: ${why}`)
    return
  }
  folder = await temporaryFolder()
  for (const script of Object.keys(FILES)) {
    const { code, stderr } = await attempt(found.python, [new URL(script, golden).pathname, folder])
    expect(code, stderr).toBe(0)
  }
}, PYTHON_MS)

/** Where two recordings differ first by more than the last bits, in which versions of NumPy and of the C library differ; or null. */
function firstDifference(ours: unknown, theirs: unknown, path: string): string | null {
  if (typeof ours === 'number' && typeof theirs === 'number') {
    return Math.abs(ours - theirs) / Math.max(1, Math.abs(theirs)) < 1e-6 ? null : `${path}: ${ours} and ${theirs}`
  }
  if (typeof ours !== 'object' || typeof theirs !== 'object' || ours === null || theirs === null) {
    return ours === theirs ? null : `${path}: ${ours} and ${theirs}`
  }
  const keys = Object.keys(ours)
  if (keys.join() !== Object.keys(theirs).join()) return `${path}: keys ${keys} and ${Object.keys(theirs)}`
  for (const key of keys) {
    const found = firstDifference(ours[key as never], theirs[key as never], `${path}.${key}`)
    if (found !== null) return found
  }
  return null
}

describe.each(Object.values(FILES).flat())('%s', (name) => {
  test('is what Gymnasium does', async ({ skip }) => {
    if (why !== undefined) skip(why)
    const read = async (file: string | URL) => {
      const { gymnasium: _, numpy: __, python: ___, ...rest } = JSON.parse(await readFile(file, 'utf8'))
      return rest
    }
    expect(firstDifference(await read(new URL(name, golden)), await read(join(folder, name)), name)).toBeNull()
  })
})
