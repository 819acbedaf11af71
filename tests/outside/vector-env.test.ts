/**
 * Gymnasium from PyPI, on both sides: its environments here, and Colonnade's in it. `npm run test:vector-env` alone asks it.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { checkEnvironment, fromGymnasium } from '../../dist/src/entries/environments.js'
import { type BoxSpace, Random, Stream } from '../../dist/src/index.js'
import { MAIN } from '../support/command.ts'
import { expectSameBits, recorded, support, useFarama } from '../support/farama.ts'
import { attempt } from '../support/python.ts'

const farama = useFarama(import.meta.env.MODE === 'vector-env' ? '' : 'Gymnasium (npm run test:vector-env asks it)')

beforeEach(() => void vi.restoreAllMocks())

describe('fromGymnasium', () => {
  test('has of each step what the environment says that Python steps by itself', async () => {
    const rollout = await recorded(fromGymnasium({ id: 'CartPole-v1', python: farama.python })(), 4, 60)
    const random = new Random(3)
    for (let n = 0; n < 4; n++) {
      random.draw(Stream.reset, n, 0, 0)
      const actions = Array.from({ length: 60 }, (_, t) => rollout.action[4 * t + n])
      const request = JSON.stringify({ id: 'CartPole-v1', seed: random.words[0], actions })
      const { stdout } = await attempt(farama.python, [join(support, 'gymnasium_steps.py'), request])
      const steps = JSON.parse(stdout) as { observation: number[]; reward: number; ended: boolean }[]
      expect(steps.length).toBeGreaterThan(7)
      for (const [t, { observation, reward, ended }] of steps.entries()) {
        const row = 4 * t + n
        expect([...rollout.observation.subarray(4 * row, 4 * row + 4)]).toEqual(observation)
        expect([rollout.reward[row], rollout.terminated[row]]).toEqual([reward, ended ? 1 : 0])
      }
    }
  })

  test('comes to the same bits in threads and after a resume, and keeps the contract', async () => {
    const module = new URL('../support/gymnasium-cart.mjs', import.meta.url).href
    process.env.COLONNADE_TEST_PYTHON = farama.python
    const { cart } = await import(module)
    await expectSameBits(cart, 6, 16)
    const { checks } = checkEnvironment(cart(), { numLanes: 8, steps: 40 })
    expect(checks.filter(({ status }) => status === 'failed')).toEqual([])
  })

  test('gives a space of several choices, nested or not, what each head chose', async () => {
    const environment = fromGymnasium({ id: 'gymnasium_faults:Choices-v0', python: farama.python })()
    expect(environment.actionSpace).toEqual({ kind: 'multi-discrete', sizes: [2, 2, 2, 3, 2, 3, 4, 2] })
    const { action, reward, observation } = await recorded(environment, 3, 20)
    // What Gymnasium flattens keeps its names: a place, two choices, two lamps and a room of which the second choice follows.
    const { parts } = environment.observationSpace as BoxSpace
    expect(parts!.map(({ name, from, width, space }) => [name, from, width, space.kind])).toEqual([
      ['inner.0', 0, 2, 'box'],
      ['inner.1', 2, 5, 'multi-discrete'],
      ['lamps', 7, 2, 'box'],
      ['room', 9, 4, 'discrete'],
    ])
    for (let row = 0; row < 60; row++) {
      const seen = [...observation.subarray(13 * row, 13 * row + 13)]
      const room = seen.indexOf(1, 9) - 9
      expect([seen.slice(2, 4).includes(1), seen.indexOf(1, 4) - 4]).toEqual([true, room % 3])
      expect(seen.slice(2).every((x) => x === 0 || x === 1)).toBe(true)
    }
    expect(new Set(action)).toEqual(new Set([0, 1, 2, 3]))
    for (const [row, given] of reward.entries()) {
      const digits = [...action.subarray(8 * row, 8 * row + 8)]
      expect(given).toBe(digits.reduce((sum, digit, k) => sum + digit * 4 ** k, 0))
    }
  })

  const faulty = (fault: string, timeoutSeconds = 60, onFault?: 'end-episode') =>
    fromGymnasium({
      ...{ id: 'gymnasium_faults:Fault-v0', python: farama.python, kwargs: { fault }, timeoutSeconds },
      ...(onFault === undefined ? {} : { onFault }),
    })()

  test.each([
    ['raises', /lane \d \(episode 0, step \d+\) raised in Python: .*RuntimeError: the wheel came off$/s],
    ['exits', /its Python process ended/],
    ['hangs', /its Python process ended: .*Timeout \(0:00:01\).*step/s],
    ['nan', /got NaN in observation\[3\] of lane \d \(episode 0, step \d+\) from step, expected finite numbers/],
  ])('an environment that %s is told, and leaves nothing behind', async (fault, message) => {
    const left = () => readdirSync('/dev/shm').filter((name) => name.startsWith('colonnade-'))
    const before = left()
    const environment = faulty(fault, 1)
    expect(environment.observationSpace).toMatchObject({ shape: [5] }) // Three places as one of three, and two speeds.
    expect(environment.actionSpace).toEqual({ kind: 'discrete', n: 2 })
    await expect(recorded(environment, 3, 20)).rejects.toThrow(message)
    expect(left()).toEqual(before)
  })

  test.each([
    [
      'raises',
      /lane \d \(episode \d, step \d+\) raised in Python: .*RuntimeError: the wheel came off: its episode is truncated/s,
    ],
    [
      'nan',
      /lane \d \(episode \d, step \d+\), observation\[3\]: got NaN, expected a finite number: its episode is truncated/,
    ],
  ])('a step that %s takes its own lane out where the user says so', async (fault, message) => {
    const told = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const rollout = await recorded(faulty(fault, 60, 'end-episode'), 3, 12)
    const well = await recorded(faulty('none'), 3, 12)
    expect(told.mock.calls[0]![0]).toMatch(message)
    let faults = 0
    for (let n = 0; n < 3; n++) {
      let isWell = true
      for (let row = n; row < 36; row += 3) {
        if (rollout.valid[row] === 0) continue
        const isFault = rollout.action[row] === 1
        faults += Number(isFault)
        expect([rollout.reward[row], rollout.terminated[row], rollout.truncated[row]]).toEqual(
          isFault ? [0, 0, 1] : [0.5, 0, 0],
        )
        isWell &&= !isFault
        // Until its first fault a lane goes as if no lane had one.
        const seen = (from: typeof rollout) => from.observation.subarray(5 * row + 15, 5 * row + 20)
        if (isWell && row + 3 < 36) expect(seen(rollout)).toEqual(seen(well))
      }
    }
    expect(faults).toBeGreaterThan(6)
    expect(told.mock.calls.length).toBe(10 + Number(faults >= 16)) // Of more than ten the 16th
  })

  test.each([
    ['exits', /its Python process ended: .*its episode is truncated/s],
    ['hangs', /its Python process ended: .*Timeout \(0:00:01\).*its episode is truncated/s],
  ])(
    'a process that %s takes its lanes out where the user says so, and the next begins with their episodes',
    async (fault, message) => {
      const told = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      const rollout = await recorded(faulty(fault, 1, 'end-episode'), 2, 6)
      expect(told.mock.calls[0]![0]).toMatch(message)
      let ends = 0
      for (let t = 0; t < 6; t++) {
        const rows = [2 * t, 2 * t + 1].filter((row) => rollout.valid[row] === 1)
        const isGone = rows.some((row) => rollout.action[row] === 1)
        ends += Number(isGone)
        for (const row of rows) {
          expect([rollout.reward[row], rollout.terminated[row], rollout.truncated[row]]).toEqual(
            isGone ? [0, 0, 1] : [0.5, 0, 0],
          )
        }
      }
      expect(ends).toBeGreaterThan(1)
      expect(told.mock.calls.length).toBe(ends)
    },
  )

  test('what Gymnasium does not make is told with its words', () => {
    expect(() => fromGymnasium({ id: 'Nope-v0', python: farama.python })()).toThrow("Environment `Nope` doesn't exist")
  })
})

test('ColonnadeVectorEnv is a vector environment of Gymnasium', async () => {
  const folder = fileURLToPath(new URL('../../python', import.meta.url))
  const words = [join(support, 'vector_env.py'), folder, process.execPath, MAIN]
  const { code, stdout, stderr } = await attempt(farama.python, words)
  expect(code, stderr).toBe(0)
  const found = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  expect(found).toMatchObject({
    'next-step': { finals: 0, same: true },
    'same-step': { dead: 0, same: true },
    mask: [2, 9],
    refused: expect.stringContaining('got 99 in action[0] of lane 0'),
    gone: expect.stringContaining("Colonnade's process is gone"),
    recordable: [3, 3],
  })
  expect(found['next-step'].ends).toBeGreaterThan(20)
  expect(found['next-step'].dead).toBeGreaterThanOrEqual(found['next-step'].ends - 6)
  expect(found['same-step'].finals).toBe(found['same-step'].ends)
})
