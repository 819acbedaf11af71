/** Judging a policy by episodes of another: against sums of products, against its own episodes, and what is refused. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { qNetwork } from '../../src/entries/algorithms.ts'
import { evaluateOffline } from '../../src/entries/data.ts'
import {
  box,
  cartPole,
  defineEnvironment,
  evaluate,
  loadPolicy,
  mlp,
  multiDiscrete,
  pendulum,
  recordEpisodes,
  type Space,
  startRun,
  type Table,
  ticTacToe,
  writeArrow,
} from '../../src/index.ts'
import { inProcess } from '../support/command.ts'
import { smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

const environment = cartPole({ maxEpisodeSteps: 12 })
/** Logits are a matrix times the observation: what a test can do again by hand. */
const policy = mlp({ hidden: [] })

/** Weights of which the actor's say something of its own. */
function weightsOf(seed: number, size: number): Float32Array {
  const random = new Random(seed)
  const { numParameters } = policy.build(environment.observationSpace, environment.actionSpace)
  return Float32Array.from({ length: numParameters }, (_, i) => {
    random.draw(Stream.initialize, 7, 0, i)
    return size * random.normal(0, 0)
  })
}

const [behavior, target] = [weightsOf(1, 0.5), weightsOf(2, 0.8)]
let table: Table
beforeAll(async () => {
  table = await recordEpisodes({ environment, policy, weights: behavior, episodes: 60, seed: 3 })
})

const columnOf = (name: string): Float32Array =>
  table.fields.find((field) => field.name === name)!.column as Float32Array

/** log π of an action in a row under these weights, by hand: W is 4 × 2, row-major, then b. */
function logprobOf(weights: Float32Array, row: number, action: number): number {
  const observation = columnOf('observation').subarray(4 * row, 4 * row + 4)
  const logits = [0, 1].map((j) => {
    let sum = weights[8 + j]!
    for (let k = 0; k < 4; k++) sum += observation[k]! * weights[2 * k + j]!
    return sum
  })
  return logits[action]! - Math.log(Math.exp(logits[0]!) + Math.exp(logits[1]!))
}

/** The rows of each episode. */
function episodesOf(): number[][] {
  const episodes: number[][] = [[]]
  for (let row = 0; row < table.numRows; row++) {
    episodes.at(-1)!.push(row)
    if (columnOf('terminated')[row]! + columnOf('truncated')[row]! > 0) episodes.push([])
  }
  return episodes.slice(0, -1)
}

test('is what the products of ratios come to, row by row', async () => {
  const gamma = 0.9
  const told = await evaluateOffline({ environment, policy, weights: target, table, gamma })
  const episodes = episodesOf()
  expect(episodes).toHaveLength(60)
  expect(new Set(episodes.map((rows) => rows.length)).size).toBeGreaterThan(2) // They end at different steps.
  const [action, reward, recorded] = [columnOf('action'), columnOf('reward'), columnOf('logprob')]
  const ratios = episodes.map((rows) => {
    let product = 1
    return rows.map((row) => (product *= Math.exp(logprobOf(target, row, action[row]!) - recorded[row]!)))
  })
  let perDecision = 0
  for (let t = 0; t < 12; t++) {
    const weights = ratios.map((ratio) => ratio[Math.min(t, ratio.length - 1)]!)
    const paid = episodes.map((rows) => (t < rows.length ? reward[rows[t]!]! : 0))
    perDecision +=
      (gamma ** t * paid.reduce((sum, r, i) => sum + r * weights[i]!, 0)) / weights.reduce((sum, w) => sum + w, 0)
  }
  expect(told.episodeReturn!.mean).toBeCloseTo(perDecision, 4)
  const returns = episodes.map((rows) => rows.reduce((sum, row, t) => sum + gamma ** t * reward[row]!, 0))
  const whole = ratios.map((ratio) => ratio.at(-1)!)
  const sum = whole.reduce((total, weight) => total + weight, 0)
  expect(told.episodeReturnByWhole).toBeCloseTo(whole.reduce((total, w, i) => total + w * returns[i]!, 0) / sum, 4)
  expect(told.effectiveEpisodes).toBeCloseTo(sum ** 2 / whole.reduce((total, w) => total + w ** 2, 0), 3)
  expect(told.effectiveEpisodes).toBeLessThan(55)
  expect(told.recordedReturn).toBeCloseTo(returns.reduce((total, r) => total + r, 0) / 60, 5)
  const logprobs = Array.from(action, (a, row) => logprobOf(target, row, a))
  expect(told.negativeLogLikelihood).toBeCloseTo(-logprobs.reduce((total, l) => total + l, 0) / table.numRows, 5)
  const same = Array.from(action, (a, row) => (logprobOf(target, row, a) > Math.log(0.5) ? 1 : 0) as number)
  expect(told.agreement).toBeCloseTo(same.reduce((total, s) => total + s, 0) / table.numRows, 6)
  expect(told.actionError).toBeNull()
  expect([told.episodes, told.rows, told.gamma]).toEqual([60, table.numRows, gamma])
})

test('is what was recorded, for the policy that played', async () => {
  const told = await evaluateOffline({ environment, policy, weights: behavior, table })
  expect(told.episodeReturn!.mean).toBeCloseTo(told.recordedReturn, 4)
  expect(told.effectiveEpisodes).toBeCloseTo(60, 3)
})

test('refuses log-probabilities that are not those of the policy that played, and takes them from another', async () => {
  const logprob = columnOf('logprob')
  const off = (by: number) => ({
    ...table,
    fields: table.fields.map((field) =>
      field.name === 'logprob'
        ? { ...field, column: logprob.map((each, row) => (row === 7 ? each + by : each)) }
        : field,
    ),
  })
  const judge = (weights: Float32Array, given: Table) => evaluateOffline({ environment, policy, weights, table: given })
  await expect(judge(behavior, off(-0.01))).rejects.toThrow(
    /^logprob of row 7: got -[\d.]+, expected -[\d.]+, as under the policy that recorded the episodes/,
  )
  expect((await judge(behavior, off(-0.0005))).episodes).toBe(60)
  expect((await judge(target, off(-0.01))).episodes).toBe(60)
  expect((await judge(behavior, table)).episodes).toBe(60)
})

test('is a number where weights are too large for one: only their ratios count', async () => {
  const fields = table.fields.map((field) =>
    field.name === 'logprob' ? { ...field, column: columnOf('logprob').map((value) => value - 100) } : field,
  )
  const { weights: _, ...metadata } = table.metadata // Else the policy would say that they are not its own.
  const told = await evaluateOffline({ environment, policy, weights: behavior, table: { ...table, fields, metadata } })
  // The longest of 12 steps weigh e^100 times as much as those of 11.
  expect(told.episodeReturnByWhole).toBeCloseTo(12, 6)
  const longest = episodesOf().filter((rows) => rows.length === 12).length
  expect(longest).toBeGreaterThan(3)
  expect(told.effectiveEpisodes! / longest).toBeCloseTo(1, 3)
})

test('holds what the policy really returns, in an interval that says so', async () => {
  let held = 0
  for (let seed = 0; seed < 12; seed++) {
    const played = await recordEpisodes({ environment, policy, weights: behavior, episodes: 200, seed: 10 + seed })
    const { episodeReturn } = await evaluateOffline({ environment, policy, weights: target, table: played, seed })
    const { mean } = (await evaluate({ environment, policy, weights: target, episodes: 2000, explore: true, seed: 99 }))
      .episodeReturn
    if (mean >= episodeReturn!.low && mean <= episodeReturn!.high) held++
    expect(episodeReturn!.low).toBeLessThan(episodeReturn!.mean)
    expect(episodeReturn!.high).toBeGreaterThan(episodeReturn!.mean)
  }
  expect(held).toBeGreaterThanOrEqual(9) // Of 12, where 95 of 100 are meant: fewer come once in 5,000 times.
})

test('has an interval as wide as the deviation of a mean, where all weights are alike, that its seed draws', async () => {
  const asked = { environment, policy, weights: behavior, table }
  const { mean, low, high } = (await evaluateOffline(asked)).episodeReturn!
  const reward = columnOf('reward')
  const returns = episodesOf().map((rows) => rows.reduce((sum, row) => sum + reward[row]!, 0))
  const variance = returns.reduce((sum, value) => sum + (value - mean) ** 2, 0) / returns.length
  const each = Math.sqrt(variance / returns.length)
  for (const side of [mean - low, high - mean]) expect(Math.abs(side / each - 1.96)).toBeLessThan(0.4)
  expect((await evaluateOffline({ ...asked, seed: 0 })).episodeReturn).toEqual({ mean, low, high })
  expect((await evaluateOffline({ ...asked, seed: 1 })).episodeReturn).not.toEqual({ mean, low, high })
})

test('knows what the mask of a row forbids', async () => {
  const [game, bare] = [ticTacToe(), mlp({ hidden: [] })]
  const [numActions, width] = [9, 18]
  const { numParameters } = bare.build(game.observationSpace, game.actionSpace)
  const random = new Random(5)
  const weights = Float32Array.from({ length: numParameters }, (_, i) => {
    random.draw(Stream.initialize, 7, 0, i)
    return random.normal(0, 0)
  })
  const still = new Float32Array(numParameters) // Any legal move.
  const played = await recordEpisodes({ environment: game, policy: bare, weights: still, episodes: 80, seed: 1 })
  const told = await evaluateOffline({ environment: game, policy: bare, weights, table: played })
  const [observation, mask, action] = ['observation', 'actionMask', 'action'].map(
    (name) => played.fields.find((field) => field.name === name)!.column as Float32Array,
  )
  expect(played.numRows).toBeGreaterThan(256) // More than a block.
  let [nats, same] = [0, 0]
  for (let row = 0; row < played.numRows; row++) {
    const legal = Array.from({ length: numActions }, (_, a) => a).filter((a) => mask![row * numActions + a] === 1)
    const logits = legal.map((a) => {
      let sum = weights[width * numActions + a]!
      for (let k = 0; k < width; k++) sum += observation![row * width + k]! * weights[k * numActions + a]!
      return sum
    })
    const chosen = legal.indexOf(action![row]!)
    nats += Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0)) - logits[chosen]!
    if (logits[chosen] === Math.max(...logits)) same++
  }
  expect(told.negativeLogLikelihood).toBeCloseTo(nats / played.numRows, 4)
  expect(told.agreement).toBeCloseTo(same / played.numRows, 6)
})

/** A game of three in which nothing happens. */
const three = (actionSpace: Space) =>
  defineEnvironment({
    id: 'Three-v0',
    settings: {},
    state: () => ({}),
    make: () => ({
      ...{
        observationSpace: box({ low: 0, high: 1 }),
        actionSpace,
        numPlayers: 3,
        maxEpisodeSteps: 5,
        returnThreshold: null,
      },
      reset({ observation }, rows, count) {
        for (const n of rows.subarray(0, count)) observation[n] = 0
      },
      step({ observation, reward, lane }, from, to) {
        for (let n = from; n < to; n++) {
          observation[n] = 0
          reward[n] = 1 + (lane[n]! % 3)
        }
      },
    }),
  })()

test.each([
  ['several choices', multiDiscrete([2, 3])],
  ['several numbers', box({ low: -9, high: 9, shape: [2] })],
])('takes games of three, and actions of %s', async (_, actionSpace) => {
  const [game, bare] = [three(actionSpace), mlp({ hidden: [] })]
  const still = new Float32Array(bare.build(game.observationSpace, game.actionSpace).numParameters)
  const episodes = await recordEpisodes({ environment: game, policy: bare, weights: still, episodes: 90, seed: 1 })
  const told = await evaluateOffline({ environment: game, policy: bare, weights: still, table: episodes })
  expect([told.episodes, told.rows]).toEqual([90, 450])
  expect(told.recordedReturn).toBeCloseTo(10, 5)
  const action = episodes.fields.find(({ name }) => name === 'action')!.column as Float32Array
  if (actionSpace.kind === 'box') {
    expect(told.actionError).toBeCloseTo(action.reduce((sum: number, a: number) => sum + a ** 2, 0) / 900, 5)
  } else {
    // Among choices that are equally probable it takes the first: of both numbers, or it is another action.
    const same = Array.from({ length: 450 }, (_, row) => action[2 * row] === 0 && action[2 * row + 1] === 0)
    expect(told.agreement).toBeCloseTo(same.filter(Boolean).length / 450, 6)
    expect(told.negativeLogLikelihood).toBeCloseTo(Math.log(6), 5)
  }
})

test('tells how far actions that are numbers are apart', async () => {
  const swing = pendulum({ maxEpisodeSteps: 10 })
  const wide = mlp({ hidden: [] })
  const { numParameters } = wide.build(swing.observationSpace, swing.actionSpace)
  const still = new Float32Array(numParameters)
  const episodes = await recordEpisodes({ environment: swing, policy: wide, weights: still, episodes: 30, seed: 1 })
  const told = await evaluateOffline({ environment: swing, policy: wide, weights: still, table: episodes })
  const actions = episodes.fields.find(({ name }) => name === 'action')!.column as Float32Array
  expect(told.agreement).toBeNull()
  expect(told.actionError).toBeCloseTo(actions.reduce((sum: number, a: number) => sum + a ** 2, 0) / actions.length, 5)
})

describe('refuses', () => {
  test.each([
    ['a discount above 1', () => ({ gamma: 2 }), 'gamma: got 2'],
    ['weights of another policy', () => ({ weights: new Float32Array(3) }), 'weights: got 3 numbers'],
    [
      'rows of another environment',
      () => ({
        environment: cartPole(),
        table: { ...table, metadata: { ...table.metadata, environment: 'Other-v0' } },
      }),
      'environment of the table',
    ],
    ['rollouts', () => ({ table: { ...table, metadata: {} } }), 'expected whole episodes'],
    [
      'values of actions',
      () => ({ policy: qNetwork({ hidden: [] }), weights: new Float32Array(11).fill(1) }),
      'a policy of action values',
    ],
    [
      'a memory',
      () => ({
        policy: { ...policy, build: (...spaces: [Space, Space]) => ({ ...policy.build(...spaces), memoryWidth: 2 }) },
      }),
      'a policy with a memory',
    ],
  ])('%s', async (_, change, message) => {
    await expect(
      evaluateOffline({ environment, policy, weights: target, table, ...change() } as never),
    ).rejects.toThrow(message)
  })
})

test('colonnade evaluate data=… says it of a run, and that nobody knows where log-probabilities are missing', async () => {
  const folder = await temporaryFolder()
  await (await startRun(await smallRun(), join(folder, 'run'))).train()
  const played = await recordEpisodes({ ...(await loadPolicy(join(folder, 'run'))), episodes: 5 })
  await writeArrow(join(folder, 'episodes.arrow'), played)
  const { stdout } = await inProcess(['evaluate', 'run', 'data=episodes.arrow', 'gamma=0.5'], folder)
  expect(stdout).toMatch(/by 5 episodes of episodes\.arrow/)
  expect(stdout).toMatch(/return of this policy \d/)
  await writeFile(
    join(folder, 'few.jsonl'),
    `${JSON.stringify({
      observations: [
        [0, 0, 0, 0],
        [0, 0, 0.1, 0],
      ],
      actions: [1],
      rewards: [1],
      terminated: false,
    })}\n`,
  )
  const bare = await inProcess(['evaluate', 'run', 'data=few.jsonl', '--json'], folder)
  expect(JSON.parse(bare.stdout)).toMatchObject({
    episodes: 1,
    rows: 1,
    episodeReturn: null,
    effectiveEpisodes: null,
    recordedReturn: 1,
  })
  expect((await inProcess(['evaluate', 'run', 'gamma=0.5'], folder)).stderr).toMatch(
    /gamma: got "0\.5", expected data= too/,
  )
  expect((await inProcess(['evaluate', 'run', 'data=few.jsonl', 'episodes=3'], folder)).stderr).toMatch(
    /episodes: got "3"/,
  )
})
