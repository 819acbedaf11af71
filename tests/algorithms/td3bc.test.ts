/** TD3 with behavior cloning: its actor's gradient beside differences of the loss, and what it learns of recorded rows. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { td3bc, td3Network } from '../../dist/src/entries/algorithms.js'
import {
  createTrainer,
  createWorld,
  evaluate,
  loadPolicy,
  pendulum,
  readArrow,
  recordEpisodes,
  writeArrow,
} from '../../dist/src/index.js'
import { Random } from '../../src/base/random.ts'
import { takeArena } from '../../src/components/arena.ts'
import { type Columns, column, type Plan } from '../../src/components/column.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import type { DeterministicPolicy } from '../../src/policies/policy.ts'
import { td3Network as network } from '../../src/policies/td3-network.ts'
import { Numbers } from '../kernels/calls.ts'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

test("the actor's gradient is that of −scale Q + the mean squared distance to recorded actions", () => {
  const { observationSpace } = pendulum()
  const actionSpace = { kind: 'box', shape: [2], low: [-2, -2], high: [2, 2] } as never
  const model = network({ hidden: [5] }).build(observationSpace as never, actionSpace)
  const { numParameters } = model
  const plan = {
    weights: column('f32', numParameters),
    gradient: column('f32', numParameters),
    workspace: model.workspace(),
  }
  const { arena, columns } = takeArena(plan)
  columns.weights.set(new Numbers(7).floats(numParameters, -0.8, 0.8))
  const kernels = createKernels(arena.memory, 'plain')
  const policy = model.bind(
    columns.weights,
    columns.workspace as Columns<Plan>,
    kernels,
    new Random(1),
  ) as DeterministicPolicy
  const count = 6
  const observation = new Numbers(3).floats(3 * count, -1, 1)
  const recorded = new Numbers(5).floats(2 * count, -1, 1)
  const [factor, scale] = [0.7, 1 / count]
  const loss = () => {
    const unit = policy.act(observation, 0, count).slice(0, 2 * count)
    policy.judge(observation, 0, unit, count)
    const values = policy.criticValues[0].slice(0, count)
    const distance = unit.reduce((sum, value, i) => sum + (value - recorded[i]!) ** 2 / 2, 0)
    return scale * (distance - factor * values.reduce((sum, value) => sum + value, 0))
  }
  loss()
  policy.differentiateActor(observation, 0, scale * factor, count, policy.view(columns.gradient), { recorded, scale })
  const { from, to } = model.deterministic!.actor
  expect(to - from).toBeGreaterThan(20)
  for (let i = from; i < to; i++) {
    const own = columns.weights[i]!
    const at = (value: number) => {
      columns.weights[i] = value
      return loss()
    }
    const difference = (at(own + 1e-2) - at(own - 1e-2)) / 2e-2
    columns.weights[i] = own
    expect(columns.gradient[i]!).toBeCloseTo(difference, 2)
  }
})

test('learns of recorded rows by a trainer and on the command line, and td3 goes on with its weights', async () => {
  const here = await temporaryFolder()
  const file = join(here, 'expert.arrow')
  const environment = pendulum()
  const policy = td3Network({ hidden: [32, 32] })
  const world = await createWorld({ environment, policy, numLanes: 20, seed: 1 })
  const settings = { numSteps: 200, gradientSteps: 200, batchSize: 64, replayRows: 4000, learningRate: 1e-3 }
  const trainer = createTrainer(world, td3bc(settings))
  const initial = world.cohort().weights.slice()
  const expert = await loadPolicy(new URL('../../zoo/Pendulum-v1', import.meta.url).pathname)
  await writeArrow(file, await recordEpisodes({ ...expert, episodes: 20, seed: 3, explore: true }))
  await expect(trainer.updates({ totalSteps: 1 }).next()).rejects.toThrow('td3bc, which learns from tables')
  let last: Readonly<Record<string, number>> = {}
  for await (const metrics of trainer.learn(await readArrow(file), { epochs: 6 })) last = metrics as never
  expect(last.drawableRows).toBeGreaterThan(3900)
  const judged = async (weights: Float32Array) =>
    (await evaluate({ environment, policy, weights, episodes: 20, seed: 9 })).episodeReturn.mean
  const { weights } = world.cohort()
  expect(await judged(weights)).toBeGreaterThan((await judged(initial)) + 300)
  const of = async (alpha: number) => {
    const other = await createWorld({ environment, policy, numLanes: 20, seed: 1 })
    const learner = createTrainer(other, td3bc({ ...settings, gradientSteps: 10, alpha }))
    for await (const _ of learner.learn(await readArrow(file)));
    return other.cohort().weights.slice()
  }
  expect(await of(0)).not.toEqual(await of(2.5))
  expect(await of(0)).toEqual(await of(0))
  const words = ['algorithm=td3bc', `from=${file}`, 'epochs=2', 'td3Network.hidden=8', 'numLanes=20', '--quiet']
  const own = ['td3bc.numSteps=200', 'td3bc.gradientSteps=5', 'td3bc.replayRows=4000', 'td3bc.batchSize=16']
  const offline = await inProcess(['train', 'Pendulum-v1', 'out=offline', ...words, ...own], here)
  expect(offline.stderr).toBe('')
  expect((await inProcess(['export', 'offline', 'out=weights.safetensors'], here)).code).toBe(0)
  const further = [
    'algorithm=td3',
    'weights=weights.safetensors',
    'td3Network.hidden=8',
    'totalSteps=64',
    'numLanes=4',
    '--quiet',
  ]
  const online = await inProcess(['train', 'Pendulum-v1', 'out=online', ...further], here)
  expect(online.stderr).toBe('')
})
