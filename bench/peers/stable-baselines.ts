/**
 * Whole trainings by Stable-Baselines3 and by us in turns, with the same settings on both sides: PPO by those of our own bench and by
 * RL Zoo's, DQN and SAC by RL Zoo's. One row compares unlike settings, and says so: our PPO as we run it beside theirs as its users do.
 */
import { availableParallelism } from 'node:os'
import { dqn, qNetwork, sac, sacNetwork } from '../../src/entries/algorithms.ts'
import { cartPole, createTrainer, createWorld, mlp, pendulum, ppo } from '../../src/index.ts'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, interleave, rates, ratio } from '../measure.ts'
import { peerSource } from './python.ts'

const REPEATS = 3

/** One training that both run. */
interface Training {
  readonly name: string
  /** The peer's words: `CONFIGS` in stable_baselines3.py has the same settings as `ours`. */
  readonly algorithm: 'ppo' | 'dqn' | 'sac'
  readonly config: 'own' | 'zoo'
  readonly totalSteps: number
  readonly threads: number
  /** Mean return of the last episodes that a policy reaches which has learned something. */
  readonly learned: number
}

const OWN = { algorithm: 'ppo', config: 'own', totalSteps: 81_920, learned: 50 } as const
const ZOO = { algorithm: 'ppo', config: 'zoo', totalSteps: 20_480, learned: 60 } as const
const TRAININGS: readonly Training[] = [
  { name: 'CartPole-v1, PPO, 256 lanes × 32 steps, our settings', threads: 1, ...OWN },
  { name: 'CartPole-v1, PPO, 256 lanes × 32 steps, our settings', threads: 2, ...OWN },
  { name: "CartPole-v1, PPO, 8 lanes × 32 steps, RL Zoo's settings", threads: 1, ...ZOO },
  {
    ...{ name: "CartPole-v1, DQN, one lane, RL Zoo's settings", algorithm: 'dqn', config: 'zoo' },
    ...{ totalSteps: 8192, threads: 1, learned: 30 },
  },
  {
    ...{ name: "Pendulum-v1, SAC, one lane, RL Zoo's settings", algorithm: 'sac', config: 'zoo' },
    ...{ totalSteps: 5000, threads: 1, learned: -1100 }, // Actions at random return about -1,200, as do the first fifteen episodes.
  },
]

interface Trained {
  readonly seconds: number
  readonly steps: number
  readonly meanReturn: number
}

/** What both sides are told. The seed counts up, as the peer's does. */
async function definitionOf({ algorithm, config }: Training, seed: number) {
  const learningRateSchedule = 'constant'
  if (algorithm === 'dqn') {
    const world = await createWorld({
      ...{ environment: cartPole(), policy: qNetwork({ hidden: [256, 256] }), numLanes: 1, seed },
    })
    const learner = dqn({
      ...{ numSteps: 256, gradientSteps: 128, batchSize: 64, replayRows: 100_000, learningStarts: 1000 },
      // Stable-Baselines3 copies its target once in a rollout of 256 steps, since no gradient step lies between two copies there.
      ...{ targetInterval: 128, double: false, huberDelta: 1, maxGradNorm: 10, gamma: 0.99 },
      ...{ learningRate: 2.3e-3, learningRateSchedule, explorationFraction: 0.16, explorationFinal: 0.04 },
    })
    return { world, learner }
  }
  if (algorithm === 'sac') {
    const world = await createWorld({ environment: pendulum(), policy: sacNetwork(), numLanes: 1, seed })
    const learner = sac({
      ...{ numSteps: 1, gradientSteps: 1, batchSize: 256, replayRows: 1_000_000, learningStarts: 100 },
      ...{ targetRate: 0.005, targetInterval: 1, learningRate: 1e-3, learningRateSchedule, gamma: 0.99 },
    })
    return { world, learner }
  }
  const isOwn = config === 'own'
  const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: isOwn ? 256 : 8, seed })
  const shared = { numSteps: 32, valueCoef: 0.5, entropyCoef: 0, maxGradNorm: 0.5, clipCoef: 0.2 }
  const learner = isOwn
    ? ppo({
        ...{ ...shared, numMinibatches: 8, updateEpochs: 4, learningRate: 2e-3, learningRateSchedule },
        ...{ gamma: 0.99, gaeLambda: 0.95 },
      })
    : ppo({
        ...{ ...shared, numMinibatches: 1, updateEpochs: 20, learningRate: 1e-3, learningRateSchedule: 'linear' },
        ...{ clipCoefSchedule: 'linear', gamma: 0.98, gaeLambda: 0.8 },
      })
  return { world, learner }
}

/** A training of ours: the seconds of rollouts and updates alone. */
async function trainOurs(training: Training, seed: number): Promise<Trained> {
  const { world, learner } = await definitionOf(training, seed)
  const trainer = createTrainer(world, learner, { threads: training.threads })
  const start = performance.now()
  for await (const _ of trainer.updates({ totalSteps: training.totalSteps }));
  const seconds = (performance.now() - start) / 1000
  const { steps } = trainer
  const meanReturn = trainer.progress().episodeReturnLast100.mean
  trainer.close()
  world.close()
  return { seconds, steps, meanReturn }
}

/** All trainings, and our fastest PPO beside theirs as RL Zoo's users run it. */
export async function stableBaselinesFigures(python: string): Promise<Figure[]> {
  const figures: Figure[] = []
  const perStep = new Map<Training, { readonly ours: number[]; readonly theirs: number[] }>()
  let version = ''
  for (const training of TRAININGS.filter(({ threads }) => threads <= availableParallelism())) {
    const { name, algorithm, config, threads, learned } = training
    const words = ['--algorithm', algorithm, '--config', config, '--threads', String(threads)]
    const peer = new Companion(python, [peerSource('stable_baselines3.py'), ...words])
    let seed = 0
    try {
      const runOf = (who: string, train: () => Promise<Trained>) => async () => {
        const { seconds, steps, meanReturn } = await train()
        check(steps === training.totalSteps, `${name}: ${who} takes ${training.totalSteps} steps, not ${steps}`)
        check(meanReturn > learned, `${name}: ${who} returns more than ${learned}, not ${meanReturn}`)
        return seconds / steps
      }
      const theirs = runOf('Stable-Baselines3', async () => {
        const answer = await peer.ask<Trained & { readonly version: string }>('train')
        version = answer.version
        return answer
      })
      const ours = runOf('Colonnade', () => trainOurs(training, ++seed))
      const taken = await interleave({ theirs, ours }, { repeats: REPEATS })
      perStep.set(training, taken)
      const what = `${name}, ${threads} ${threads === 1 ? 'thread' : 'threads'}`
      figures.push(figure(`${what}, Stable-Baselines3 ${version}`, 'steps/s', rates(1, taken.theirs)))
      figures.push({
        ...figure(`${what}, Colonnade`, 'steps/s', rates(1, taken.ours)),
        ratios: [ratio('Stable-Baselines3 with the same settings', taken.theirs, taken.ours)],
      })
    } finally {
      peer.close()
    }
  }
  const [fastest] = [...perStep].filter(([{ config }]) => config === 'own').toReversed()
  const [zoo] = [...perStep].filter(([{ algorithm, config }]) => algorithm === 'ppo' && config === 'zoo')
  figures.push({
    ...figure('CartPole-v1, PPO, each as its users run it: not alike', 'steps/s', rates(1, fastest![1].ours)),
    ratios: [ratio("Stable-Baselines3 with RL Zoo's settings", zoo![1].theirs, fastest![1].ours)],
  })
  return figures
}
