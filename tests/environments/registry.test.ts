import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  type Autoreset,
  configureRun,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type EnvironmentId,
  environments,
  mlp,
  ppo,
  type World,
} from '../../dist/src/index.js'
import { isThorough } from '../support/tiers.ts'

const autoresets: Autoreset[] = ['same-step', 'next-step', 'disabled']
const policy = mlp({ hidden: [8] })
const NUM_LANES = 7
const NUM_STEPS = 250

const built = environments.map((factory) => factory())
/** One with kernels, one with chance in its steps, one with masks, one of a table; `contract.test.ts` has the lanes of all. */
const CHOSEN = ['CartPole-v1', 'Breakout-MinAtar', 'TicTacToe-v0', 'FrozenLake-v1']
const chosen = built.filter(({ id }) => CHOSEN.includes(id))
const cases = chosen.flatMap((environment) =>
  autoresets.map((autoreset) => [environment.id, autoreset, environment] as const),
)

/** A rollout of lanes `firstLane` on, as their trainer hands it over. */
async function rolloutOf(
  environment: EnvironmentDefinition,
  autoreset: Autoreset,
  firstLane: number,
  numLanes: number,
) {
  const world = await createWorld({ environment, policy, numLanes, firstLane, autoreset, seed: 11 })
  // A step so small that nothing is learnt; more minibatches than one would cost time only.
  const trainer = createTrainer(
    world,
    ppo({ numSteps: NUM_STEPS, learningRate: 1e-30, updateEpochs: 1, numMinibatches: 1 }),
  )
  for await (const _ of trainer.updates({ totalSteps: 1 })) break
  return world.cohorts[0]!.rollout
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) => Buffer.from(buffer, byteOffset, byteLength)

/** The bytes of every saved column. */
function savedBytes(world: World): Map<string, Uint8Array> {
  return new Map(
    world
      .columns()
      .filter(({ planned }) => planned.saved)
      .map(({ planned, column }) => [
        planned.name,
        Uint8Array.from(new Uint8Array(column.buffer, column.byteOffset, column.byteLength)),
      ]),
  )
}

/** Environments without presets. */
const UNTRIED = new Set(
  [
    'Ant',
    'HalfCheetah',
    'Hopper',
    'Humanoid',
    'InvertedDoublePendulum',
    'Pusher',
    'Reacher',
    'Swimmer',
    'Walker2d',
  ].map((name) => `${name}-v5`),
)

describe('every environment that comes with Colonnade', () => {
  test('has an id and a name of its own, and is made again elsewhere by its module', async () => {
    expect(new Set(built.map(({ id }) => id)).size).toBe(built.length)
    for (const { id, module, parameters } of built) {
      const exports: Record<string, unknown> = await import(module!)
      const factory = Object.values(exports).find(
        (each) => (each as { id?: string }).id === id,
      ) as (typeof environments)[0]
      expect(factory().parameters, id).toEqual(parameters)
    }
  })

  test('has presets that its settings take', async () => {
    for (const { id, presets } of built) {
      // Each is known to be learned, but for tasks of MuJoCo that take hours (docs/log.md).
      expect(presets.length > 0, id).toBe(!UNTRIED.has(id))
      for (const { policy, algorithm, run } of presets) {
        const definition = await configureRun(id as EnvironmentId, { policy: policy.id, algorithm: algorithm.id })
        expect(definition.settings, id).toMatchObject(run)
        expect(definition.policy.parameters, id).toMatchObject(policy.parameters)
        expect(definition.algorithm.parameters, id).toMatchObject(algorithm.parameters)
      }
    }
  })
  test.each(cases)(
    '%s (%s): a lane behaves the same alone and among others, bit for bit',
    async (_, autoreset, environment) => {
      const many = await rolloutOf(environment, autoreset, 40, NUM_LANES)
      for (const n of [0, 3, NUM_LANES - 1]) {
        const alone = await rolloutOf(environment, autoreset, 40 + n, 1)
        for (const name of [
          'observation',
          'actionMask',
          'action',
          'reward',
          'terminated',
          'truncated',
          'valid',
          'episode',
        ] as const) {
          const width = alone[name].length / NUM_STEPS
          for (let t = 0; t < NUM_STEPS; t++) {
            const row = t * NUM_LANES + n
            const lane = many[name].subarray(row * width, (row + 1) * width)
            const single = alone[name].subarray(t * width, (t + 1) * width)
            if (Buffer.compare(bytesOf(lane), bytesOf(single)) !== 0) expect(lane).toEqual(single)
          }
        }
      }
      if (autoreset !== 'disabled') expect(Math.max(...many.episode)).toBeGreaterThan(0)
    },
  )

  test.each(chosen.map((environment) => [environment.id, environment] as const))(
    '%s: split over threads, training comes to the same bits',
    async (_, environment) => {
      const outcomes = []
      for (const threads of [1, isThorough ? 3 : 2]) {
        const world = await createWorld({ environment, policy, numLanes: NUM_LANES, seed: 12 })
        const trainer = createTrainer(world, ppo({ numSteps: 64, learningRate: 1e-2 }), { threads })
        for await (const { update } of trainer.updates({ totalSteps: 1e6 })) if (update === 3) break
        outcomes.push(savedBytes(world))
        trainer.close()
      }
      expect(outcomes[0]!.size).toBeGreaterThan(5)
      expect(outcomes[1]).toEqual(outcomes[0])
    },
  )
})
