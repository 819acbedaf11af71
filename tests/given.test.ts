/** What the package says of values that nobody means. */
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { checkGiven } from '../src/base/errors.ts'
import { start } from './support/command.ts'
import { entries } from './support/entries.ts'
import { temporaryFolder } from './support/temporary.ts'

test('every exported function refuses null, a number, a text, a list and an empty object in a sentence', async () => {
  const program = fileURLToPath(new URL('support/given.mjs', import.meta.url))
  const modules = entries.map(({ module }) => new URL(`../${module}`, import.meta.url).href)
  const { stdout, stderr } = await start(process.execPath, [program, ...modules], {
    ...{ cwd: await temporaryFolder(), timeout: 110_000 },
    env: { ...process.env, COLONNADE_HUB: 'http://127.0.0.1:9', HF_ENDPOINT: 'http://127.0.0.1:9' },
  }).ended
  const lines = stdout.split('\n').filter((line) => /^[[{]/.test(line))
  const told = lines.pop()
  expect(lines, stderr).toEqual([])
  expect(JSON.parse(told!).calls).toBeGreaterThan(1500)
})

describe('what a caller gave', () => {
  test.each([
    [null, ['policy'], 'got null, expected an object with policy'],
    [{ policies: 1 }, ['policy'], 'got {"policies":1} without policy, expected an object with policy'],
    [42, [], 'got 42, expected an object'],
    [['a'], 'a text', 'got ["a"], expected a text'],
    ['a', 'a list', 'got "a", expected a list'],
    [{}, 'a function', 'got {}, expected a function'],
  ] as const)('%j is refused', (given, expected, message) => {
    expect(() => checkGiven('it', given as unknown as { policy: unknown }, expected)).toThrow(`it: ${message}`)
  })

  test('is taken where it is what was expected', () => {
    checkGiven('it', 'a', 'a text')
    checkGiven('it', new Float32Array(2), 'a list')
    checkGiven('it', [], 'a list')
    checkGiven('it', () => 1, 'a function')
    checkGiven('it', { a: null }, ['a'])
  })
})
