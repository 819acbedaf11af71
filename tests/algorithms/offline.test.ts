/** IQL, CQL and AWR on recorded rows: the bits of any number of threads, what they learn, and that they go on online. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  awr,
  cql,
  discreteCql,
  iql,
  iqlNetwork,
  qNetwork,
  sacNetwork,
  td3bc,
  td3Network,
} from '../../dist/src/entries/algorithms.js'
import { defineWrapper, wrap } from '../../dist/src/entries/environments.js'
import {
  bc,
  cartPole,
  createTrainer,
  createWorld,
  evaluate,
  loadPolicy,
  mlp,
  pendulum,
  readArrow,
  recordEpisodes,
  writeArrow,
} from '../../dist/src/index.js'
import { inProcess } from '../support/command.ts'
import { drift } from '../support/drift.ts'
import { temporaryFolder } from '../support/temporary.ts'

const zoo = (id: string) => loadPolicy(new URL(`../../zoo/${id}`, import.meta.url).pathname)

const recorded = async (id: string, episodes: number) =>
  recordEpisodes({ ...(await zoo(id)), episodes, seed: 3, explore: true })

const pendulumTable = recorded('Pendulum-v1', 20)
const cartPoleTable = recorded('CartPole-v1', 20)

const cases = [
  { algorithm: td3bc, policy: td3Network, environment: pendulum(), table: pendulumTable, gain: 300 },
  { algorithm: iql, policy: iqlNetwork, environment: pendulum(), table: pendulumTable, gain: 300 },
  { algorithm: cql, policy: sacNetwork, environment: pendulum(), table: pendulumTable },
  { algorithm: discreteCql, policy: qNetwork, environment: cartPole(), table: cartPoleTable, gain: 100 },
] as const

const lanesOf = (environment: { readonly id: string }) => (environment.id === 'CartPole-v1' ? 10 : 20)

/** Learns of the whole table in one rollout. */
async function learn({ algorithm, policy, environment, table }: (typeof cases)[number], given: object, threads = 1) {
  const { numRows } = await table
  const numLanes = lanesOf(environment)
  const network = policy({ hidden: [32, 32] })
  const world = await createWorld({ environment: environment as never, policy: network, numLanes, seed: 1 })
  const numSteps = Math.floor(numRows / numLanes)
  const settings = { numSteps, replayRows: numRows, learningStarts: 0, learningRate: 1e-3, ...given }
  const trainer = createTrainer(world, (algorithm as unknown as (settings: object) => never)(settings), { threads })
  const before = world.cohort().weights.slice()
  const told: unknown[] = []
  for await (const metrics of trainer.learn(await table)) {
    told.push(Object.keys(algorithm.metrics).map((name) => (metrics as never)[name]))
  }
  const after = world.cohort().weights.slice()
  trainer.close()
  const judged = async (weights: Float32Array) =>
    (await evaluate({ environment, policy: network, weights, episodes: 20, seed: 9 } as never)).episodeReturn.mean
  return { told, before, after, judged }
}

test.each(cases)('$algorithm.id: threads leave the same bits', async (each) => {
  const given = { gradientSteps: 4, batchSize: 200, ...(each.algorithm === cql ? { actionSamples: 2 } : {}) }
  const one = await learn(each, given)
  const three = await learn(each, given, 3)
  expect(one.told.flat()).not.toContain(Number.NaN)
  expect(three.told).toEqual(one.told)
  expect(three.after).toEqual(one.after)
  expect(one.after).not.toEqual(one.before)
})

test.each(cases.filter((each) => 'gain' in each))(
  '$algorithm.id: becomes better by recorded rows alone',
  async (each) => {
    const { before, after, judged } = await learn(each, { gradientSteps: 1500, batchSize: 64 })
    expect(await judged(after)).toBeGreaterThan((await judged(before)) + (each as { readonly gain: number }).gain)
  },
)

test('cql holds the values of actions that were not recorded down to those of recorded ones', async () => {
  const [, , conservative] = cases
  const gapOf = async (conservativeWeight: number) => {
    const given = { gradientSteps: 300, batchSize: 64, actionSamples: 2, conservativeWeight }
    const { told } = await learn(conservative, given)
    return (told.at(-1) as number[])[Object.keys(cql.metrics).indexOf('conservativeGap')]!
  }
  expect(await gapOf(50)).toBeLessThan((await gapOf(0)) - 0.1)
})

test('settings act: each changes the weights', async () => {
  const of = async (each: (typeof cases)[number], given: object) =>
    (await learn(each, { gradientSteps: 3, batchSize: 70, ...given })).after
  const [, implicit, conservative, discrete] = cases
  for (const [each, own] of [
    [implicit, { expectile: 0.9 }],
    [implicit, { beta: 0.1 }],
    [implicit, { beta: 0.1, weightMax: 0.5 }],
    [conservative, { conservativeWeight: 0 }],
    [conservative, { actionSamples: 2 }],
    [discrete, { conservativeWeight: 0 }],
  ] as const) {
    expect(await of(each, own), JSON.stringify(own)).not.toEqual(await of(each, {}))
  }
})

test('discreteCql leaves the values of illegal actions alone', async () => {
  const withoutThird = defineWrapper({
    id: 'withoutThird',
    settings: {},
    make: (_, environment) => ({
      maxEpisodeSteps: 1000, // Episodes are not truncated: a table has no masks after truncated rows.
      reset({ outer, inner }, rows, count) {
        environment.reset(inner, rows, count)
        for (let i = 0; i < count; i++) outer.actionMask[3 * rows[i]! + 2] = 0
      },
      step({ outer, inner }, from, to) {
        environment.step(inner, from, to)
        for (let n = from; n < to; n++) outer.actionMask.set([1, 1, 0], 3 * n)
      },
    }),
  })
  const environment = wrap(drift({ kind: 'masks' }) as never, withoutThird())
  const policy = mlp({ hidden: [2] })
  const { weights } = (await createWorld({ environment, policy, numLanes: 1 })).cohort()
  const table = await recordEpisodes({ environment, policy, weights, episodes: 20, seed: 1, explore: true })
  const world = await createWorld({ environment, policy: qNetwork({ hidden: [4] }) as never, numLanes: 1, seed: 1 })
  const given = { numSteps: table.numRows, replayRows: 200, learningStarts: 0, gradientSteps: 3, batchSize: 32 }
  const trainer = createTrainer(world, discreteCql(given) as never)
  const { weights: learned, model } = world.cohort()
  const third = model.parameters.findLast(({ name }) => name.endsWith('.bias'))!.offset + 2
  learned[third] = 50
  const gaps: number[] = []
  for await (const metrics of trainer.learn(table)) {
    gaps.push((metrics as unknown as { conservativeGap: number }).conservativeGap)
  }
  expect(gaps.length).toBe(1)
  expect(gaps[0]).toBeLessThan(5)
  expect([learned[third], learned[third - 1] === 0]).toEqual([50, false])
})

test('awr is the advantage-weighted imitation of bc with its own λ and temperature', async () => {
  const of = async (algorithm: unknown) => {
    const world = await createWorld({ environment: pendulum(), policy: mlp({ hidden: [8] }), numLanes: 20, seed: 1 })
    const trainer = createTrainer(world, algorithm as never)
    for await (const _ of trainer.learn(await pendulumTable));
    return world.cohort().weights.slice()
  }
  const weights = await of(awr({ numSteps: 200, temperature: 0.5 }))
  expect(weights).toEqual(await of(bc({ numSteps: 200, beta: 2, gaeLambda: 0.95 })))
  expect(weights).not.toEqual(await of(awr({ numSteps: 200 })))
})

test('what was learned offline goes on online, on the command line', async () => {
  const here = await temporaryFolder()
  const file = join(here, 'expert.arrow')
  await writeArrow(file, await pendulumTable)
  const run = async (...words: string[]) => {
    const { stderr, code } = await inProcess([...words, '--quiet'], here)
    expect([stderr, code]).toEqual(['', 0])
  }
  const goesOn = async (offline: string, online: string, network: string, own: readonly string[]) => {
    const hidden = `${network}.hidden=8`
    const rows = ['numSteps=200', 'gradientSteps=5', 'replayRows=4000', 'batchSize=16'].map((it) => `${offline}.${it}`)
    await run(
      'train',
      'Pendulum-v1',
      `algorithm=${offline}`,
      `from=${file}`,
      'numLanes=20',
      hidden,
      ...rows,
      `out=${offline}`,
    )
    await inProcess(['export', offline, `out=${offline}.safetensors`], here)
    const weights = `weights=${offline}.safetensors`
    await run(
      'train',
      'Pendulum-v1',
      `algorithm=${online}`,
      weights,
      hidden,
      'totalSteps=64',
      'numLanes=4',
      ...own,
      `out=${offline}-on`,
    )
  }
  await goesOn('iql', 'iql', 'iqlNetwork', ['iql.gradientSteps=1', 'iql.learningStarts=8'])
  await goesOn('cql', 'sac', 'sacNetwork', ['sac.learningStarts=8'])
  expect((await readArrow(file)).numRows).toBe(4000)
})

test('what they cannot learn is refused', async () => {
  const begin = async (algorithm: unknown, policy: unknown) =>
    createTrainer(await createWorld({ environment: pendulum(), numLanes: 2, policy } as never), algorithm as never)
  await expect(begin(iql(), td3Network())).rejects.toThrow('iql policy: got a policy without a critic of states')
  await expect(begin(cql(), td3Network())).rejects.toThrow('cql policy: got a policy without action critics')
  await expect(begin(discreteCql(), mlp())).rejects.toThrow('discreteCql policy: got a policy without action values')
  const trainer = await begin(cql(), sacNetwork())
  await expect(trainer.updates({ totalSteps: 1 }).next()).rejects.toThrow('cql, which learns from tables')
})
