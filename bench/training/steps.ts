/** Training and rollout steps, by default on CartPole: separate tanh networks, 4 epochs of minibatches. */
import {
  cartPole,
  collect,
  createTrainer,
  createWorld,
  type EpisodeCohort,
  mlp,
  ppo,
  type Trainer,
} from '../../src/index.ts'
import { secondsOf } from '../measure.ts'

export const NUM_STEPS = 32

export interface TrainingOptions {
  readonly numLanes?: number
  readonly hidden?: readonly number[]
  readonly threads?: number
  readonly numSteps?: number
  readonly numMinibatches?: number
  readonly learningRate?: number
}

/** What is timed of one training. */
export interface TrainingRunner {
  /** Steps of one update. */
  readonly steps: number
  /** Wall-clock seconds of `updates` updates, rollouts included, after those before. */
  train(updates: number): Promise<number>
  /** Mean return of the last 100 episodes. */
  episodeReturn(): number
  close(): void
}

export async function trainingRunner(options: TrainingOptions = {}): Promise<TrainingRunner> {
  const { numLanes = 256, hidden = [64, 64], threads = 1, numSteps = NUM_STEPS } = options
  const { numMinibatches = 8, learningRate = 2e-3 } = options
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden }), numLanes, seed: 1 })
  const settings = {
    numSteps,
    numMinibatches,
    updateEpochs: 4,
    learningRate,
    learningRateSchedule: 'constant',
  } as const
  return runnerOf(createTrainer(world, ppo(settings), { threads }), numLanes * numSteps)
}

/** A trainer as what is timed; `steps` of one update. */
export function runnerOf(trainer: Trainer<EpisodeCohort>, steps: number): TrainingRunner {
  const updates = trainer.updates({ totalSteps: Number.MAX_SAFE_INTEGER })
  return {
    steps,
    async train(count) {
      const start = performance.now()
      for (let i = 0; i < count; i++) await updates.next()
      return (performance.now() - start) / 1000
    },
    episodeReturn: () => trainer.progress().episodeReturnLast100.mean,
    close: () => trainer.close(),
  }
}

/** Seconds of a rollout of one thread, without learning. */
export async function rolloutRunner({
  numLanes = 256,
  hidden = [64, 64],
}: TrainingOptions = {}): Promise<() => number> {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden }), numLanes, seed: 1 })
  createTrainer(world, ppo({ numSteps: NUM_STEPS }))
  return () => secondsOf(() => collect(world, NUM_STEPS))
}
