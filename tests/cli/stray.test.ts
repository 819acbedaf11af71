import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { describeStray } from '../../src/cli/words/stray.ts'
import { MAIN, SMALL, start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const BUILT = new URL('../../dist/src/index.js', import.meta.url).href

/** A module with an environment whose first step does something beside. */
const module = (beside: string) => `import { box, defineEnvironment, discrete } from '${BUILT}'
let isDone = false
export const stray = defineEnvironment({ id: 'Stray-v0', module: import.meta.url, settings: {}, state: () => ({}), make: () => ({
  observationSpace: box({ low: 0, high: 1 }), actionSpace: discrete(2), maxEpisodeSteps: 9, returnThreshold: null,
  reset({ observation }, rows, count) { for (let i = 0; i < count; i++) observation[rows[i]] = 0 },
  step({ observation, reward }, from, to) {
    observation.fill(0, from, to)
    reward.fill(1, from, to)
    if (!isDone) {
      isDone = true
      ${beside}
    }
  },
}) })`

test.each([
  [
    "setTimeout(() => { throw new RangeError('too late\\nfor anybody') })",
    'an error that nobody catches was thrown at stray.mjs:11:32: RangeError: too late',
  ],
  [
    "Promise.reject(new TypeError('no such field'))",
    'a promise that nobody awaits was rejected at stray.mjs:11:22: TypeError: no such field',
  ],
  ['Promise.reject(null)', 'a promise that nobody awaits was rejected: null'],
  ['throw null', 'environment Stray-v0: got null thrown by step, expected an Error as the exception'],
  [
    'process.exit(0)',
    'got an end of the process with code 0 at stray.mjs:11:15, expected none before the command is done',
  ],
])('%s in a module of a user ends a training with one line', async (beside, said) => {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'stray.mjs'), module(beside))
  const words = ['train', './stray.mjs', 'out=run', 'threads=1', ...SMALL]
  const { code, stderr } = await start(process.execPath, [MAIN, ...words, '--quiet'], { cwd: folder }).ended
  expect([code, stderr]).toEqual([1, `colonnade: ${said}\n`])
})

test('an error of ours keeps its stack, and what is no error is told as it is', () => {
  const { stack } = new Error('ours')
  const ours = Object.assign(new Error('ours'), {
    stack: `Error: ours\n    at step (${new URL('../../dist/src/systems/tick.js', import.meta.url).pathname}:3:4)`,
  })
  expect(describeStray(ours, 'uncaughtException')).toBe(ours.stack)
  expect(describeStray(Object.assign(new Error('ours'), { stack }), 'uncaughtException')).toMatch(
    /thrown at tests\/cli\/stray\.test\.ts:\d+:\d+: Error: ours$/,
  )
  expect(describeStray('gone', 'unhandledRejection')).toBe('a promise that nobody awaits was rejected: gone')
})

test.each([
  [
    'await new Promise(() => {})',
    'got an await of a promise that never settles, expected none before the command is done',
  ],
  ['throw null', 'environment module: got STRAY, expected a module that can be imported (null)'],
])('a module with %s at its end is refused with one line', async (end, said) => {
  const folder = await temporaryFolder()
  const path = join(folder, 'stray.mjs')
  await writeFile(path, `${module('')}\n${end}`)
  const { code, stderr } = await start(process.execPath, [MAIN, 'check', path]).ended
  expect([code, stderr]).toEqual([1, `colonnade: ${said.replace('STRAY', path)}\n`])
})
