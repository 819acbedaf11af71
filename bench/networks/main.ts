/**
 * `npm run bench -- networks`: whole trainings of a convolutional policy on Breakout-MinAtar and of recurrent ones on
 * CartPole-P-v1, by their presets' sizes, beside twins by JAX and by torch. Needs Python 3.11 or newer and PyPI at the first visit.
 */
import { availableParallelism } from 'node:os'
import {
  breakout,
  cartPolePosition,
  convolutional,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type PolicyDefinition,
  ppo,
  recurrent,
} from '../../src/index.ts'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, interleave, rates, ratio } from '../measure.ts'
import { peerPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'
import { runnerOf } from '../training/steps.ts'

/** A training that all have. After `checked` updates, the last of which are timed, each has to have learnt: a mean return above `learnt`. */
interface Training {
  readonly name: string
  readonly environment: () => EnvironmentDefinition
  readonly policy: () => PolicyDefinition
  readonly numLanes: number
  readonly settings: Parameters<typeof ppo>[0] & { readonly numSteps: number }
  readonly checked: number
  readonly learnt: number
  /** Updates of one timed run. */
  readonly updates: number
}

/** The sizes of both recurrent trainings. */
const MEMORIES: Omit<Training, 'name' | 'environment' | 'policy'> = {
  numLanes: 32,
  settings: {
    ...{ numSteps: 128, numMinibatches: 16, updateEpochs: 3, learningRate: 4e-3, learningRateSchedule: 'constant' },
    gamma: 0.98,
  },
  checked: 12,
  learnt: 30, // Actions at random return 22.
  updates: 2,
}

const TRAININGS: Readonly<Record<'convolutional' | 'recurrent' | 'lstm', Training>> = {
  convolutional: {
    name: 'Breakout-MinAtar, training, 64 × 32, a convolution of 16 filters and 64 units',
    environment: () => breakout(),
    policy: () => convolutional({ filters: [16], hidden: [64] }),
    numLanes: 64,
    settings: {
      ...{ numSteps: 32, numMinibatches: 8, updateEpochs: 3, learningRate: 6e-3, learningRateSchedule: 'constant' },
      ...{ clipCoef: 0.1, gamma: 0.98, entropyCoef: 0.01 },
    },
    checked: 20,
    learnt: 1, // Actions at random return 0.38.
    updates: 4,
  },
  recurrent: {
    name: 'CartPole-P-v1, training, 32 × 128, two nets of 32, 32 and a GRU of 32',
    environment: () => cartPolePosition(),
    policy: () => recurrent({ units: 32, hidden: [32, 32], activation: 'relu', sequenceLength: 32 }),
    ...MEMORIES,
  },
  lstm: {
    name: 'CartPole-P-v1, training, 32 × 128, two nets of 32, 32 and an LSTM of 32',
    environment: () => cartPolePosition(),
    policy: () => recurrent({ cell: 'lstm', units: 32, hidden: [32, 32], activation: 'relu', sequenceLength: 32 }),
    ...MEMORIES,
  },
}
const REPEATS = 7

interface Answer {
  readonly seconds: number
  readonly meanReturn: number
  readonly version: string
}

/** A twin that has learnt, on so many threads. */
async function twinOf(python: string, library: string, policy: keyof typeof TRAININGS, threads: number) {
  const { checked, learnt, updates } = TRAININGS[policy]
  const words = [peerSource('network_twins.py'), '--library', library, '--policy', policy, '--threads', `${threads}`]
  const peer = new Companion(python, words)
  const run = () => peer.ask<Answer>(`train ${updates}`)
  let answer = await run() // JAX compiles here.
  for (let done = updates; done < checked; done += updates) answer = await run()
  check(answer.meanReturn > learnt, `the mean return by ${library} is above ${learnt}, not ${answer.meanReturn}`)
  const name = `${library === 'jax' ? 'JAX' : 'torch'} twin, ${threads} thread${threads === 1 ? '' : 's'}`
  return { name, version: answer.version, run, close: () => peer.close() }
}

/** Our training on so many threads, once it has learnt. */
async function oursOf(policy: keyof typeof TRAININGS, threads: number) {
  const { settings, numLanes, checked, learnt, ...made } = TRAININGS[policy]
  const world = await createWorld({ environment: made.environment(), policy: made.policy(), numLanes, seed: 1 })
  const ours = runnerOf(createTrainer(world, ppo(settings), { threads }), numLanes * settings.numSteps)
  await ours.train(checked)
  check(ours.episodeReturn() > learnt, `our mean return is above ${learnt}, not ${ours.episodeReturn()}`)
  return { name: `Colonnade, ${threads} thread${threads === 1 ? '' : 's'}`, ...ours }
}

async function figuresOf(python: string, policy: keyof typeof TRAININGS): Promise<Figure[]> {
  const { name, settings, numLanes, updates } = TRAININGS[policy]
  const steps = numLanes * settings.numSteps
  const counts = [...new Set([1, availableParallelism()])]
  const ours: Awaited<ReturnType<typeof oursOf>>[] = []
  const twins: Awaited<ReturnType<typeof twinOf>>[] = []
  try {
    for (const threads of counts) ours.push(await oursOf(policy, threads))
    for (const library of ['jax', 'torch']) {
      for (const threads of counts) twins.push(await twinOf(python, library, policy, threads))
    }
    const runners = twins.map((twin) => [twin.name, async () => (await twin.run()).seconds] as const)
    const seconds = await interleave(
      {
        ...Object.fromEntries(ours.map((own) => [own.name, () => own.train(updates)] as const)),
        ...Object.fromEntries(runners),
      } as Record<string, () => Promise<number>>,
      { repeats: REPEATS },
    )
    const told = (who: string, taken: number[]) => figure(`${name}, ${who}`, 'steps/s', rates(updates * steps, taken))
    return [
      ...twins.map((twin) => told(twin.name.replace(' twin', ` ${twin.version} twin`), seconds[twin.name]!)),
      ...ours.map((own) => ({
        ...told(own.name, seconds[own.name]!),
        ratios: twins.map((twin) => ratio(twin.name, seconds[twin.name]!, seconds[own.name]!)),
      })),
    ]
  } finally {
    for (const each of [...twins, ...ours]) each.close()
  }
}

const python = peerPython()
const figures: Figure[] = []
for (const policy of ['convolutional', 'recurrent', 'lstm'] as const) figures.push(...(await figuresOf(python, policy)))
reportRoom('networks', figures)
