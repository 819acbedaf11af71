/** Python is asked for environments here by a program that stands for it; `tests/outside/vector-env.test.ts` asks Python itself. */
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { checkEnvironment, fromGymnasium } from '../../src/entries/environments.ts'
import { collect, createWorld, type EnvironmentDefinition, type EpisodeCohort, mlp } from '../../src/index.ts'
import { isThorough, thorough } from '../support/tiers.ts'

test.each([
  [{ id: '' }, 'fromGymnasium id: got "", expected a name'],
  [{ id: 'A-v0', timeoutSeconds: 0 }, 'A-v0 timeoutSeconds: got 0, expected seconds, more than 0'],
  [{ id: 'A-v0', onFault: 'ignore' }, 'A-v0 onFault: got "ignore", expected'],
  [{ id: 'A-v0', pyhton: 'python3' }, 'option of fromGymnasium: got "pyhton"'],
])('an option that is wrong is refused', (options, message) => {
  expect(() => fromGymnasium(options as never)).toThrow(message)
})

test('a Python that is not there, or cannot make it, is told when the environment is made', () => {
  const missing = fromGymnasium({ id: 'CartPole-v1', python: 'no-such-python' })
  expect(() => missing()).toThrow('environment CartPole-v1, python no-such-python: got spawnSync no-such-python ENOENT')
  const mute = fromGymnasium({ id: 'CartPole-v1', python: 'false' })
  expect(() => mute()).toThrow('python false: got nothing said, expected a Python with numpy and gymnasium')
  const other = fromGymnasium({ id: 'CartPole-v1', python: 'echo' })
  expect(() => other()).toThrow(/python echo: got .*colonnade\.py .*, expected a Python with numpy and gymnasium/)
})

describe('a served walk', () => {
  const python = fileURLToPath(new URL('../support/gymnasium-server.mjs', import.meta.url))
  type Options = Partial<Parameters<typeof fromGymnasium>[0]>
  const walk = (kwargs: object = {}, options: Options = {}) =>
    fromGymnasium({ id: 'Walk-v0', python, kwargs: { steps: 9, ...kwargs }, ...options })()
  /** What lanes of a world see, do and get. */
  async function recorded(environment: EnvironmentDefinition, numLanes = 3, numSteps = 30) {
    const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes, seed: 3 })
    world.reserve(world.draft(), { numSteps, learner: {} })
    try {
      await collect(world, numSteps)
      return (world.cohort() as EpisodeCohort).rollout
    } finally {
      world.close()
    }
  }

  test('is told of by its spaces, its limit and what it is solved by', () => {
    const told = walk()
    const [low, high] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]
    expect(told.observationSpace).toEqual({ kind: 'box', shape: [2], low: [low, low], high: [high, high] })
    expect(told).toMatchObject({ actionSpace: { kind: 'discrete', n: 3 }, maxEpisodeSteps: 9, returnThreshold: 6 })
    expect(walk({ size: 4 }, { maxEpisodeSteps: 7 })).toMatchObject({ maxEpisodeSteps: 7, returnThreshold: 4 })
    expect(walk({ actions: 'two' }).actionSpace).toEqual({ kind: 'multi-discrete', sizes: [3, 2] })
    expect(walk({ actions: 'box' }).actionSpace).toEqual({ kind: 'box', shape: [1], low: [low], high: [2.5] })
    for (const steps of [null, 0, 1.5])
      expect(() => walk({ steps })).toThrow(`Walk-v0 maxEpisodeSteps: got ${steps}, expected a whole number ≥ 1`)
  })

  test.each(['discrete', 'two', 'box'])('is stepped as its lanes act, episode after episode: %s', async (actions) => {
    const rollout = await recorded(walk({ actions }))
    const width = actions === 'two' ? 2 : 1
    const random = new Random(3)
    let ends = 0
    for (let n = 0; n < 3; n++) {
      let [at, steps, episode] = [Number.NaN, 0, 0]
      for (let row = n; row < 90; row += 3) {
        if (steps === 0) {
          random.draw(Stream.reset, n, episode, 0)
          at = random.words[0]! % 4
        }
        expect([...rollout.observation.subarray(2 * row, 2 * row + 2)]).toEqual([at, Math.fround(steps / 100)])
        const [first, second] = [rollout.action[width * row]!, rollout.action[width * row + 1]!]
        const move = Math.sign(first - (actions === 'box' ? 0 : 1)) * (width === 2 ? 1 + second : 1)
        at += move
        steps++
        const [isOver, isCut] = [at >= 6 ? 1 : 0, at <= -6 || steps === 9 ? 1 : 0]
        expect([rollout.reward[row], rollout.terminated[row], rollout.truncated[row]]).toEqual([
          move + at / 8,
          isOver,
          isCut,
        ])
        if (isOver + isCut === 0) continue
        ends++
        episode++
        steps = 0
      }
    }
    expect(ends).toBeGreaterThan(5)
  })

  test('keeps the contract', () => {
    const { checks, holds } = checkEnvironment(walk({ actions: 'two' }), { numLanes: isThorough ? 6 : 2, steps: 30 })
    expect(checks.filter(({ status }) => status === 'failed')).toEqual([])
    expect([holds, checks.find(({ name }) => name === 'allocation')!.status]).toEqual([true, 'unasked'])
  })

  thorough('that begins otherwise each time cannot be led anywhere, and does not keep the contract', () => {
    expect(() => checkEnvironment(walk({ fault: 'other' }), { numLanes: 4, steps: 30 })).not.toThrow()
    expect(checkEnvironment(walk({ fault: 'other' }), { numLanes: 4, steps: 30 }).holds).toBe(false)
  })

  test.each([
    ['raises', /^environment Walk-v0, step in lane \d \(episode 0, step \d\) raised in Python: the wheel came off$/],
    ['exits', /^environment Walk-v0: its Python process ended: last words after 7 s$/],
    ['nan', /got NaN in observation\[1\] of lane \d \(episode 0, step \d\) from step/],
    ['nan reward', /got NaN in reward\[0\] of lane \d \(episode 0, step \d\) from step/],
  ])('that goes wrong ends who asks: %s', async (fault, message) => {
    await expect(recorded(walk({ fault }, { timeoutSeconds: 7 }))).rejects.toThrow(message)
  })

  test.each([
    ['raises', 'raised in Python: the wheel came off'],
    ['nan', 'observation[1]: got NaN, expected a finite number'],
    ['nan reward', 'reward: got NaN, expected a finite number'],
  ])('that goes wrong takes its own lane out where that was chosen: %s', async (fault, message) => {
    const told = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => void told.mockRestore())
    const rollout = await recorded(walk({ fault }, { onFault: 'end-episode' }))
    expect(told.mock.calls[0]![0]).toContain(message)
    let faults = 0
    for (let row = 0; row < 87; row++) {
      const move = rollout.action[row]! - 1
      const ended = [rollout.terminated[row], rollout.truncated[row]]
      if (move < 0) {
        faults++
        expect([rollout.reward[row], ...ended]).toEqual([0, 0, 1])
        expect(rollout.observation[2 * (row + 3) + 1]).toBe(0) // Another episode.
      } else if (ended[0] === 0 && ended[1] === 0) {
        const [before, after] = [rollout.observation[2 * row]!, rollout.observation[2 * (row + 3)]!]
        expect([rollout.reward[row], after]).toEqual([move + after / 8, before + move])
      }
    }
    expect(faults).toBeGreaterThan(3)
  })

  test('whose process is gone begins in another where that was chosen', async () => {
    const told = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => void told.mockRestore())
    const rollout = await recorded(walk({ fault: 'exits' }, { onFault: 'end-episode' }), 2, 12)
    expect(told.mock.calls[0]![0]).toContain('its Python process ended: last words after 60 s')
    const cut = Array.from({ length: 12 }, (_, t) => [rollout.action[2 * t]!, rollout.action[2 * t + 1]!].includes(0))
    expect(cut).toContain(true)
    for (const [t, isGone] of cut.entries())
      if (isGone) expect([...rollout.truncated.subarray(2 * t, 2 * t + 2)]).toEqual([1, 1])
  })

  test('of another protocol is refused', async () => {
    await expect(recorded(walk({ version: 2 }))).rejects.toThrow(
      'environment Walk-v0, protocol of Python: got colonnade-columns 2, expected colonnade-columns 1',
    )
  })
})
