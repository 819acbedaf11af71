/**
 * Observations of bytes (`observationType: 'u8'`). The oracle is the same environment with observations of f32: what learns from one
 * learns the same bits from the other.
 */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Stream } from '../../src/base/random.ts'
import { type BoxType, spaceToJson } from '../../src/base/space.ts'
import { dqn, qNetwork, replayTable, sac, sacNetwork } from '../../src/entries/algorithms.ts'
import { evaluateOffline } from '../../src/entries/data.ts'
import {
  checkEnvironment,
  columnStep,
  frameStack,
  fromObjects,
  gridPicture,
  wrap,
} from '../../src/entries/environments.ts'
import {
  type AlgorithmDefinition,
  box,
  convolutional,
  createTrainer,
  createWorld,
  defineEnvironment,
  discrete,
  type EnvironmentDefinition,
  type EpisodeCohort,
  mlp,
  type PolicyDefinition,
  ppo,
  readArrow,
  recordEpisodes,
  recurrent,
  type Table,
  tick,
  writeArrow,
} from '../../src/index.ts'
import { fromArrow } from '../../src/tables/read-arrow.ts'
import { restoreTensors } from '../../src/training/folder/restore-tensors.ts'
import { savedTensors } from '../../src/training/folder/snapshot.ts'
import { temporaryFolder } from '../support/temporary.ts'

const [SIDE, CHANNELS] = [4, 3]
const WIDTH = SIDE * SIDE * CHANNELS
/** Cells on, by action: right, down, left, up. */
const WAYS = [1, SIDE, SIDE * SIDE - 1, SIDE * (SIDE - 1)]

/** A point walks on a torus of 4 × 4 cells to a goal. Channels: the point, the goal, and a brightness of the cell that the step draws. */
function walk(type: BoxType, hasBoxActions = false, brightest = 200): EnvironmentDefinition {
  return defineEnvironment({
    id: 'Walk',
    settings: {},
    observationType: type,
    state: () => ({ place: 'u8', goal: 'u8' }),
    make: () => {
      const draw = (seen: Float32Array | Uint8Array, n: number, place: number, goal: number, light: number) => {
        seen.fill(0, n * WIDTH, (n + 1) * WIDTH)
        seen[n * WIDTH + place * CHANNELS] = 1
        seen[n * WIDTH + goal * CHANNELS + 1] = 1
        seen[n * WIDTH + place * CHANNELS + 2] = Math.floor(light * (brightest + 1))
      }
      return {
        observationSpace: box({ low: 0, high: 200, shape: [SIDE, SIDE, CHANNELS] }),
        actionSpace: hasBoxActions ? box({ low: -1, high: 1 }) : discrete(4),
        maxEpisodeSteps: 9,
        returnThreshold: null,
        reset({ state, observation, lane, episode, random }, rows, count) {
          for (const n of rows.subarray(0, count)) {
            random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
            state.place[n] = Math.floor(random.uniform(0) * SIDE * SIDE)
            state.goal[n] = Math.floor(random.uniform(1) * SIDE * SIDE)
            draw(observation, n, state.place[n]!, state.goal[n]!, 0)
          }
        },
        step({ state, observation, action, reward, terminated, lane, episode, step, random }, from, to) {
          for (let n = from; n < to; n++) {
            const way = hasBoxActions ? Math.floor((action[n]! + 1) * 1.99) : action[n]!
            state.place[n] = (state.place[n]! + WAYS[way]!) % (SIDE * SIDE)
            terminated[n] = state.place[n] === state.goal[n] ? 1 : 0
            reward[n] = terminated[n]!
            random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
            draw(observation, n, state.place[n]!, state.goal[n]!, random.uniform(0))
          }
        },
      }
    },
  })()
}

interface Given {
  readonly policy: PolicyDefinition
  readonly algorithm: AlgorithmDefinition
  readonly wrapped?: boolean
  readonly hasBoxActions?: boolean
  readonly numLanes?: number
}

async function trainerOf(type: BoxType, given: Given) {
  const { policy, algorithm, wrapped = false, hasBoxActions = false, numLanes = 5 } = given
  const bare = walk(type, hasBoxActions)
  const environment = wrapped ? wrap(bare, frameStack({ frames: 2 })) : bare
  const world = await createWorld({ environment, policy, numLanes, seed: 3 })
  return { world, trainer: createTrainer(world, algorithm) }
}

const onPolicy = ppo({ numSteps: 12, numMinibatches: 3, updateEpochs: 2, learningRate: 0.01 })
const hidden = [8]
const replayed = { numSteps: 4, batchSize: 32, learningStarts: 40, gradientSteps: 2 }
const cases: Readonly<Record<string, Given>> = {
  'a perceptron': { policy: mlp({ hidden }), algorithm: onPolicy },
  'a shared trunk': { policy: mlp({ hidden, sharedTrunk: true }), algorithm: onPolicy },
  'a convolution': { policy: convolutional({ filters: [4], hidden }), algorithm: onPolicy },
  'normalized observations': { policy: mlp({ hidden, normalizeObservations: true }), algorithm: onPolicy },
  'normalized observations of more lanes than a block has rows': {
    policy: mlp({ hidden, normalizeObservations: true }),
    algorithm: ppo({ numSteps: 4, numMinibatches: 2 }),
    numLanes: 300,
  },
  'a memory with burn-in': {
    policy: recurrent({ hidden, units: 8, sequenceLength: 4, burnIn: 2 }),
    algorithm: onPolicy,
  },
  'stacked frames': { policy: convolutional({ filters: [4], hidden }), algorithm: onPolicy, wrapped: true },
  'action values from a replay': { policy: qNetwork({ hidden }), algorithm: dqn({ ...replayed, nStep: 2 }) },
  'two critics and a replay': { policy: sacNetwork({ hidden }), algorithm: sac(replayed), hasBoxActions: true },
}

/** Trains for a while. */
async function trained(type: BoxType, given: Given) {
  const { world, trainer } = await trainerOf(type, given)
  for await (const _ of trainer.updates({ totalSteps: 72 * (given.numLanes ?? 5) }));
  const cohort = world.cohort() as EpisodeCohort
  return { world, trainer, cohort, weights: cohort.weights.slice() }
}

const numbersOf = ({ fields }: Table, name: string) => [...fields.find((field) => field.name === name)!.column]

describe('what learns from bytes learns the bits of what learns from floats', () => {
  test.each(Object.entries(cases))('%s', async (_, given) => {
    const [floats, bytes] = [await trained('f32', given), await trained('u8', given)]
    expect(bytes.cohort.observation.current).toBeInstanceOf(Uint8Array)
    expect(bytes.weights).toEqual(floats.weights)
    const untrained = (await trainerOf('u8', given)).world.cohort() as EpisodeCohort
    expect(bytes.weights).not.toEqual(untrained.weights)
  })

  test('a replay keeps them as bytes, of which it has the same', async () => {
    const given = cases['action values from a replay']!
    const [floats, bytes] = [await trained('f32', given), await trained('u8', given)]
    const [ours, theirs] = [replayTable(bytes.cohort), replayTable(floats.cohort)]
    for (const name of ['observation', 'finalObservation']) {
      expect(ours.fields.find((field) => field.name === name)!.column).toBeInstanceOf(Uint8Array)
      expect(numbersOf(ours, name)).toEqual(numbersOf(theirs, name))
      expect(new Set(numbersOf(ours, name)).size).toBeGreaterThan(3)
    }
  })

  test('a checkpoint with observations of f32 goes on as one of bytes, unless a number is none', async () => {
    const given = cases['action values from a replay']!
    const floats = await trained('f32', given)
    const saved = new Map(savedTensors(floats.world).map((tensor) => [tensor.name, structuredClone(tensor)]))
    const { world } = await trainerOf('u8', given)
    restoreTensors('checkpoint', world, saved)
    const cohort = world.cohort() as EpisodeCohort
    expect(numbersOf(replayTable(cohort), 'observation')).toEqual(
      numbersOf(replayTable(floats.cohort as EpisodeCohort), 'observation'),
    )
    const name = [...saved.keys()].find((each) => each.endsWith('replay.rows.observation'))!
    const { bytes } = saved.get(name)!
    new Float32Array(bytes.buffer, bytes.byteOffset, 1)[0] = 0.5
    expect(() => restoreTensors('checkpoint', world, saved)).toThrow(`${name}: got F32 of shape`)
  })
})

describe('tables', () => {
  const given = cases['a perceptron']!

  test('a file has lists of uint8, and tables of either type are learned from with the same bits', async () => {
    const [floats, bytes] = [await trained('f32', given), await trained('u8', given)]
    const path = join(await temporaryFolder(), 'rollout.arrow')
    await writeArrow(path, bytes.trainer.rollout.table)
    const arrow = await readArrow(path)
    expect(String(arrow.schema.fields.find(({ name }) => name === 'observation')!.type)).toContain('Uint8')
    expect(String(arrow.schema.fields.find(({ name }) => name === 'finalObservation')!.type)).toContain('Uint8')
    const ours = fromArrow(arrow)
    const theirs = floats.trainer.rollout.table
    for (const name of ['observation', 'finalObservation', 'action', 'reward']) {
      expect(numbersOf(ours, name)).toEqual(numbersOf(theirs, name))
    }
    const learned = async (type: BoxType, table: Table) => {
      const { world, trainer } = await trainerOf(type, given)
      for await (const _ of trainer.learn(table));
      return (world.cohort() as EpisodeCohort).weights.slice()
    }
    const expected = await learned('f32', theirs)
    expect(await learned('u8', theirs)).toEqual(expected)
    expect(await learned('u8', ours)).toEqual(expected)
    expect(await learned('f32', ours)).toEqual(expected)
  })

  test('a number in a table that is no byte is an error with its row', async () => {
    const { trainer } = await trained('f32', given)
    const { table } = trainer.rollout
    const fields = table.fields.map((field) => ({ ...field, column: field.column.slice() }))
    fields.find(({ name }) => name === 'observation')!.column[7 * WIDTH + 2] = 0.5
    const other = (await trainerOf('u8', given)).trainer
    const learn = async () => {
      for await (const _ of other.learn({ ...table, fields }));
    }
    await expect(learn).rejects.toThrow(
      'observation of row 7: got 0.5, expected a whole number from 0 to 255, as in the observation space',
    )
  })

  test('recorded episodes have bytes, whole', async () => {
    const { cohort } = await trained('u8', given)
    const table = await recordEpisodes({
      ...{ environment: walk('u8'), policy: given.policy, weights: cohort.weights },
      ...{ episodes: 3, seed: 5 },
    })
    expect(table.fields.find(({ name }) => name === 'observation')!.column).toBeInstanceOf(Uint8Array)
    expect(table.fields.find(({ name }) => name === 'finalObservation')!.column).toBeInstanceOf(Uint8Array)
  })

  test('a policy is judged by recorded episodes of either type with the same numbers', async () => {
    const { policy } = given
    const { weights } = (await trained('f32', given)).cohort
    const recorded = (type: BoxType) =>
      recordEpisodes({ environment: walk(type), policy, weights, episodes: 12, seed: 5 })
    const [floats, bytes] = [await recorded('f32'), await recorded('u8')]
    const judged = (type: BoxType, table: Table) =>
      evaluateOffline({ environment: walk(type), policy, weights, table, gamma: 0.9, fittedSteps: 5 })
    const expected = await judged('f32', floats)
    expect(expected.fittedReturn).not.toBeNull()
    expect(await judged('u8', bytes)).toEqual(expected)
    expect(await judged('u8', floats)).toEqual(expected)
    expect(await judged('f32', bytes)).toEqual(expected)
  })
})

describe('declaration and checks', () => {
  test('bounds of bytes are whole numbers from 0 to 255', () => {
    expect(() => box({ low: -1, high: 1, type: 'u8' })).toThrow(
      'low -1 and high 1, expected low ≤ high, whole numbers from 0 to 255, as bytes',
    )
    expect(() => box({ low: 0, high: 256, type: 'u8' })).toThrow('whole numbers from 0 to 255')
    expect(() => box({ low: 0, high: 0.5, type: 'u8' })).toThrow('whole numbers from 0 to 255')
    expect(() => box({ low: 0, high: 1, type: 'i8' as 'u8' })).toThrow('box type: got "i8", expected f32 or u8')
    expect(spaceToJson(box({ low: 0, high: 1, type: 'u8' }))).toBe(spaceToJson(box({ low: 0, high: 1 })))
  })

  test('an environment declares bytes for its observations, and for no goals and actions', () => {
    const define = (model: object, observationType?: 'u8') =>
      defineEnvironment({
        ...{ id: 'Bytes', settings: {}, ...(observationType && { observationType }), state: () => ({}) },
        make: () => ({
          observationSpace: box({ low: 0, high: 1, shape: [4] }),
          ...{ actionSpace: discrete(2), maxEpisodeSteps: null, returnThreshold: null, reset() {}, step() {} },
          ...model,
        }),
      })()
    expect(define({}, 'u8').observationSpace).toEqual(box({ low: 0, high: 1, shape: [4], type: 'u8' }))
    const bytes = box({ low: 0, high: 1, type: 'u8' })
    const expected =
      "got a box of bytes (type: 'u8'), expected a box of f32, or observationType: 'u8' of defineEnvironment"
    expect(() => define({ observationSpace: bytes })).toThrow(expected)
    const sizes = { actionSpace: discrete(2), maxEpisodeSteps: 9 }
    expect(() => fromObjects(() => ({}) as never, { id: 'Objects', observationSpace: bytes, ...sizes })()).toThrow(
      expected,
    )
    expect(() => define({ actionSpace: bytes })).toThrow('expected a box of f32, or choices')
    expect(() => define({ observationSpace: box({ low: -1, high: 1 }) }, 'u8')).toThrow('whole numbers from 0 to 255')
    const goal = { achieved: 0, desired: 1, width: 1, tolerance: 0, ends: true }
    expect(() => define({ goal }, 'u8')).toThrow('got in observations of bytes, expected observations of f32')
  })

  test('a byte beyond its bounds is an error, from reset and from step', async () => {
    const world = await createWorld({ environment: walk('u8', false, 255), policy: mlp({ hidden }), numLanes: 5 })
    const trainer = createTrainer(world, onPolicy)
    const learn = async () => {
      for await (const _ of trainer.updates({ totalSteps: 600 }));
    }
    await expect(learn).rejects.toThrow(/got 2\d\d in observation\[\d+\] of lane \d.* from step, expected 0 to 200/)
  })

  test('the checks of environments, and of a training, see a byte that is not written', async () => {
    const few = { numLanes: 16, steps: 8 }
    expect(checkEnvironment(walk('u8'), few).checks.filter(({ status }) => status === 'failed')).toEqual([])
    const whole = walk('u8')
    const forgetful: EnvironmentDefinition = {
      ...whole,
      step(lanes, from, to) {
        const kept = lanes.observation[from * WIDTH + 5]!
        whole.step(lanes, from, to)
        lanes.observation[from * WIDTH + 5] = kept
      },
    }
    expect(JSON.stringify(checkEnvironment(forgetful, few).checks)).toContain('nothing in observation[5]')
    const trainer = createTrainer(
      await createWorld({ environment: forgetful, policy: mlp({ hidden }), numLanes: 5 }),
      onPolicy,
    )
    await expect(trainer.updates({ totalSteps: 600 }).next()).rejects.toThrow('nothing in observation[5]')
  })

  test('a step of column arithmetic writes bytes', async () => {
    const state = { count: 'i32' } as const
    const counter = defineEnvironment({
      ...{ id: 'Counter', settings: {}, observationType: 'u8' as const, state: () => state },
      make: () => ({
        ...{ observationSpace: box({ low: 0, high: 255, shape: [2] }), actionSpace: discrete(2) },
        ...{ maxEpisodeSteps: 50, returnThreshold: null },
        reset({ state, observation }, rows, count) {
          for (const n of rows.subarray(0, count)) state.count[n] = observation[2 * n] = observation[2 * n + 1] = 0
        },
        step: columnStep(state, ({ state: { count } }) => {
          const next = count.plus(1)
          return { state: { count: next }, observation: [next, next.times(3)], reward: 1 }
        }),
      }),
    })()
    const world = await createWorld({ environment: counter, policy: mlp({ hidden: [1] }), numLanes: 3 })
    for (let t = 0; t < 7; t++) await tick(world)
    expect([...(world.cohort() as EpisodeCohort).observation.next]).toEqual([7, 21, 7, 21, 7, 21])
  })

  test('a grid of bytes is drawn as one of floats', () => {
    const { observationSpace } = walk('u8')
    const seen = Float32Array.from({ length: WIDTH }, (_, k) => (k % 7 === 0 ? 1 : 0))
    expect(gridPicture(observationSpace, Uint8Array.from(seen))).toEqual(gridPicture(observationSpace, seen))
  })
})
