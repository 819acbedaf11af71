/** Fitted Q evaluation where the truth is known: a process of three states whose values a linear system gives. */
import { expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { evaluateOffline } from '../../src/entries/data.ts'
import { box, defineEnvironment, discrete, mlp, recordEpisodes, type Table } from '../../src/index.ts'

const GAMMA = 0.8
/** By state and action: the mean reward, and the probabilities of each next state; the rest ends the episode. */
const REWARD = [
  [1, 0],
  [0, 2],
  [-1, 0.5],
] as const
const NEXT = [
  [
    [0.6, 0.2, 0.1],
    [0.1, 0.7, 0.1],
  ],
  [
    [0.3, 0.3, 0.3],
    [0.1, 0.1, 0.6],
  ],
  [
    [0.7, 0.1, 0.1],
    [0.2, 0.2, 0.4],
  ],
] as const

const threeStates = defineEnvironment({
  id: 'ThreeStates-v0',
  settings: {},
  state: () => ({ at: 'i32' }),
  make: () => ({
    observationSpace: box({ low: 0, high: 1, shape: [3] }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 30,
    returnThreshold: null,
    reset({ state, observation }, rows, count) {
      for (const n of rows.subarray(0, count)) {
        state.at[n] = 0
        observation.set([1, 0, 0], 3 * n)
      }
    },
    step({ state, observation, action, reward, terminated, lane, episode, step, random }, from, to) {
      for (let n = from; n < to; n++) {
        random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
        const [s, a] = [state.at[n] as 0 | 1 | 2, action[n] as 0 | 1]
        reward[n] = REWARD[s][a] + random.uniform(1, -0.5, 0.5)
        let [left, to] = [random.uniform(0), -1]
        for (const [next, p] of NEXT[s][a].entries()) {
          if (to < 0 && left < p) to = next
          left -= p
        }
        terminated[n] = to < 0 ? 1 : 0
        if (to >= 0) state.at[n] = to
        for (let k = 0; k < 3; k++) observation[3 * n + k] = state.at[n] === k ? 1 : 0
      }
    },
  }),
})

const environment = threeStates()
const policy = mlp({ hidden: [] })
const weightsOf = (seed: number) => {
  const random = new Random(seed)
  const { numParameters } = policy.build(environment.observationSpace, environment.actionSpace)
  return Float32Array.from({ length: numParameters }, (_, i) => {
    random.draw(Stream.initialize, 7, 0, i)
    return 1.5 * random.normal(0, 0)
  })
}
const [behavior, target] = [weightsOf(1), weightsOf(2)]

/** π(a | s): logits are a matrix of 3 × 2, row-major, at a state's row, plus b. */
function probability(weights: Float32Array, s: number, a: number): number {
  const [one, other] = [0, 1].map((k) => Math.exp(weights[2 * s + k]! + weights[6 + k]!))
  return (a === 0 ? one! : other!) / (one! + other!)
}

/** The exact value of state 0, by repeated backups to the fixed point. */
function exactValue(weights: Float32Array, gamma: number): number {
  let values = [0, 0, 0]
  for (let i = 0; i < 2000; i++) {
    values = REWARD.map((rewards, s) =>
      rewards.reduce((sum: number, reward, a) => {
        const next = NEXT[s as 0][a as 0].reduce((total: number, p, to) => total + p * values[to]!, 0)
        return sum + probability(weights, s, a) * (reward + gamma * next)
      }, 0),
    )
  }
  return values[0]!
}

const recorded = (episodes: number, seed: number) =>
  recordEpisodes({ environment, policy, weights: behavior, episodes, seed })

const judge = (table: Table, fittedSteps: number, weights = target, gamma = GAMMA) =>
  evaluateOffline({ environment, policy, weights, table, gamma, fittedSteps, seed: 4 })

test('is the exact value, of the behavior and of another policy, which differ', async () => {
  const table = await recorded(600, 3)
  const [own, other] = [exactValue(behavior, GAMMA), exactValue(target, GAMMA)]
  expect(Math.abs(own - other)).toBeGreaterThan(0.3)
  for (const [weights, truth] of [
    [behavior, own],
    [target, other],
  ] as const) {
    const { fittedReturn } = await judge(table, 1500, weights)
    expect(Math.abs(fittedReturn!.mean - truth)).toBeLessThan(0.1)
    expect(fittedReturn!.low).toBeLessThan(truth)
    expect(fittedReturn!.high).toBeGreaterThan(truth)
  }
  expect(await judge(table, 0)).toMatchObject({ fittedReturn: null })
})

test('intervals mostly contain the truth, even of 40 episodes, and narrow with more', async () => {
  const truth = exactValue(target, GAMMA)
  let [covered, width] = [0, 0]
  const RUNS = 8 // Of 24 such intervals 19 contain it.
  for (let run = 0; run < RUNS; run++) {
    const { fittedReturn } = await judge(await recorded(40, 100 + run), 800)
    if (fittedReturn!.low <= truth && truth <= fittedReturn!.high) covered++
    width += (fittedReturn!.high - fittedReturn!.low) / RUNS
  }
  expect(covered).toBeGreaterThanOrEqual(6)
  const { fittedReturn } = await judge(await recorded(640, 7), 800)
  expect(fittedReturn!.high - fittedReturn!.low).toBeLessThan(0.7 * width)
})

test('says what it cannot judge', async () => {
  const table = await recorded(300, 3)
  const truncated = table.fields.find(({ name }) => name === 'truncated')!.column as Uint8Array
  expect(truncated.includes(1)).toBe(true)
  await expect(judge(table, 10, target, 1)).rejects.toThrow('gamma: got 1, and truncated episodes, expected below 1')
  await expect(judge(table, 1.5)).rejects.toThrow('fittedSteps: got 1.5')
})
