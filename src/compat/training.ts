/** The two training loops of other systems, over a backend: supervised, and on the generated samples of a manager. */
import { type Schedule, scheduleFactor, schedules } from '../algorithms/schedule.ts'
import { checkCount, checkGiven, checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import { appendText } from '../base/files/files.ts'
import { deliverWeights, type Engine } from '../engines/engine.ts'
import { DataBuffer } from '../language/datasets/data-buffer.ts'
import type { RolloutBatch } from '../tables/episodes/rollout-batch.ts'
import { type SftTrainingOptions, trainOnExamples } from '../training/text/learn/sft-training.ts'
import type { AsyncRolloutManager } from './rollout-manager.ts'
import { type BatchBackend, EmptyBatchError } from './training-backend.ts'

/** Figures of a step, by name. */
export type TrainingStep = Readonly<Record<string, number>>

/** Receives the figures of each step. */
export interface MetricsLogger {
  log(metrics: TrainingStep, step: number): void
  finish?(): void
}

/** Options of both training loops. */
export interface TrainingLoopConfig {
  /** Number of steps: a whole number ≥ 0. */
  readonly numSteps: number
  /** Steps between logs; default 10, supervised 100. */
  readonly logEvery?: number
  /** Steps between checkpoints, with one after the last; 0: never. Default 100, supervised 500. */
  readonly checkpointEvery?: number
  /** The learning rate's schedule after its warm-up; default constant. */
  readonly schedule?: Schedule
  /** Fraction of the steps for warm-up; default 0. */
  readonly warmupFraction?: number
  /** Called for each checkpoint, for example to save a manager's `stateDict` beside it. */
  onCheckpoint?(path: string, step: number): void | Promise<void>
}

/** Options of `runSftTraining`. */
export interface SftTrainingConfig extends TrainingLoopConfig {
  /** Samples per step: a whole number ≥ 1. */
  readonly batchSize: number
  /** Keys the order of the samples in each epoch; default 1. */
  readonly seed?: number
}

/** Options of `runRlTraining`. */
export interface RlTrainingConfig extends TrainingLoopConfig {
  /** Steps between deliveries of weights to engines, with one after the last; default 10. */
  readonly syncEvery?: number
  /** Advantages are rewards minus this number; default: the loss's group advantages. */
  readonly baseline?: number
  /**
   * What happens after a batch without a token to learn from, like one of unknown rewards: `skip`, the default, counts
   * it in the step's `skipped` and makes no update; `stop` throws.
   */
  readonly onEmptyBatch?: 'skip' | 'stop'
}

/** Tokens to learn, with their mask. */
export interface SftSample {
  readonly tokens: ArrayLike<number>
  /** 1 for tokens to learn. */
  readonly lossMask: ArrayLike<number>
}

/** An engine that takes weights. */
export type WeightsEngine = Pick<Engine, 'id' | 'version' | 'setWeights'>
/** An engine that loads weights from a checkpoint's path. */
export interface CheckpointEngine {
  updateWeightsFromCheckpoint(path: string): Promise<{ readonly success: boolean; readonly message?: string }>
}
/** An engine that receives weights, or a checkpoint's path. */
export type SyncedEngine = WeightsEngine | CheckpointEngine

/** Logs one JSON line per call to a file. */
export class JsonlLogger implements MetricsLogger {
  readonly #path: string
  #isFinished = false

  /** `path` of the file to append to. */
  constructor(path: string) {
    if (typeof path !== 'string' || path === '') throw new InputError('path', show(path), 'the path of a file')
    this.#path = path
  }

  /** Adds a line. @throws InputError after `finish`, and if it cannot be written. */
  log(metrics: TrainingStep, step: number): void {
    if (this.#isFinished) throw new InputError('log', 'a line after finish()', 'none')
    appendText(this.#path, `${JSON.stringify({ step, ...metrics })}\n`)
  }

  finish(): void {
    this.#isFinished = true
  }
}

/** Advantages of rewards over the baseline; NaN for unknown rewards. @throws InputError for a bad baseline. */
export function computeAdvantages(
  rewards: readonly (number | null)[],
  options: { readonly baseline?: number } = {},
): number[] {
  checkGiven('rewards of computeAdvantages', rewards, 'a list')
  checkOptions('computeAdvantages', options, ['baseline'])
  const { baseline = 0 } = options
  if (!Number.isFinite(baseline)) throw new InputError('baseline', show(baseline), 'a finite number')
  return rewards.map((reward) => (reward === null ? Number.NaN : reward - baseline))
}

/** Lets engines load a checkpoint. Returns their answers in order. @throws InputError for a failed one. */
export async function syncWeightsToEngines(
  engines: readonly CheckpointEngine[],
  checkpointPath: string,
): Promise<{ readonly success: boolean }[]> {
  checkGiven('engines of syncWeightsToEngines', engines, 'a list')
  checkGiven('checkpointPath of syncWeightsToEngines', checkpointPath, 'a text')
  return Promise.all(
    engines.map(async (engine, i) => {
      const answer = await engine.updateWeightsFromCheckpoint(checkpointPath)
      if (answer?.success === true) return answer
      throw new InputError(`weights of engine ${i}`, show(answer), '{ success: true }')
    }),
  )
}

const LOOP_KEYS = ['numSteps', 'logEvery', 'checkpointEvery', 'schedule', 'warmupFraction', 'onCheckpoint']

/** Supervised training, `batchSize` samples per step. Returns each step's figures. @throws InputError */
export function runSftTraining(
  backend: BatchBackend,
  samples: readonly SftSample[],
  config: SftTrainingConfig,
  logger?: MetricsLogger,
): Promise<TrainingStep[]>
/**
 * Makes a model, trains it on examples, and returns the trainer, which has the model and saves checkpoints.
 * @throws InputError if there is no example, one is invalid, has nothing to learn or is longer than the context, or as
 * `createWorld` does.
 * @example const { world } = await runSftTraining({ policy: languageModel({ folder }), examples, settings: { steps: 200 } })
 */
export function runSftTraining(options: SftTrainingOptions): ReturnType<typeof trainOnExamples>
export function runSftTraining(
  first: BatchBackend | SftTrainingOptions,
  samples?: readonly SftSample[],
  config?: SftTrainingConfig,
  logger?: MetricsLogger,
): Promise<TrainingStep[]> | ReturnType<typeof trainOnExamples> {
  if (samples === undefined && config === undefined) return trainOnExamples(first as SftTrainingOptions)
  return learnByHeart(first as BatchBackend, samples!, config!, logger)
}

async function learnByHeart(
  backend: BatchBackend,
  samples: readonly SftSample[],
  config: SftTrainingConfig,
  logger: MetricsLogger | undefined,
): Promise<TrainingStep[]> {
  checkBackend(backend)
  checkLoop('runSftTraining', config, ['batchSize', 'seed'])
  const { batchSize, seed = 1, logEvery = 100, checkpointEvery = 500 } = config
  checkCount('batchSize', batchSize)
  if (!Array.isArray(samples) || samples.length === 0) throw new InputError('samples', show(samples), 'at least one')
  const deck = new DataBuffer(samples, seed)
  return loop(backend, { ...config, logEvery, checkpointEvery }, logger, async (rateFactor) => {
    const chosen = deck.getPrompts(batchSize).map(({ prompt }) => prompt)
    const batch = { tokens: chosen.map(({ tokens }) => tokens), lossMasks: chosen.map(({ lossMask }) => lossMask) }
    return step(backend, batch, rateFactor)
  })
}

/**
 * Trains on a manager's batches, one per step, and delivers weights to engines in between. Returns each step's figures;
 * an error has those of the steps before it as `steps`.
 * @throws InputError for a wrong config, a buffer that is not the manager's, and an engine that does not confirm its
 * weights; errors of generating or the backend.
 */
export async function runRlTraining<P>(
  backend: BatchBackend,
  buffer: DataBuffer<P>,
  manager: AsyncRolloutManager<P>,
  engines: readonly SyncedEngine[],
  config: RlTrainingConfig,
  logger?: MetricsLogger,
): Promise<TrainingStep[]> {
  checkBackend(backend)
  checkLoop('runRlTraining', config, ['syncEvery', 'baseline', 'onEmptyBatch'])
  const { numSteps, syncEvery = 10, baseline, onEmptyBatch = 'skip', logEvery = 10, checkpointEvery = 100 } = config
  checkCount('syncEvery', syncEvery)
  if (!['skip', 'stop'].includes(onEmptyBatch)) throw unknownWord('onEmptyBatch', onEmptyBatch, ['skip', 'stop'])
  if (manager?.buffer !== buffer)
    throw new InputError('buffer', 'another buffer than the manager’s', 'the buffer of the manager')
  let version = 0
  await giveWeights(backend, engines, version)
  return loop(backend, { ...config, logEvery, checkpointEvery }, logger, async (rateFactor, done) => {
    const batch = await manager.generateBatch()
    const advantages = baseline === undefined ? {} : { advantages: computeAdvantages(batch.rewards, { baseline }) }
    const figures = await step(backend, { samples: batch.samples, ...advantages }, rateFactor).catch((error) => {
      if (onEmptyBatch === 'skip' && error instanceof EmptyBatchError) return { skipped: 1 }
      throw error
    })
    version++
    if (version % syncEvery === 0 || done + 1 === numSteps) await giveWeights(backend, engines, version)
    return { ...figures, ...rewardOf(batch) }
  })
}

function rewardOf({ rewards }: RolloutBatch): TrainingStep {
  const known = rewards.filter((reward) => reward !== null)
  return known.length === 0 ? {} : { reward: known.reduce((sum, reward) => sum + reward, 0) / known.length }
}

/** Delivers weights to all engines at once: directly, or by a checkpoint that is saved once. */
async function giveWeights(backend: BatchBackend, engines: readonly SyncedEngine[], version: number): Promise<void> {
  const [byPath, direct]: [CheckpointEngine[], WeightsEngine[]] = [[], []]
  for (const engine of engines) {
    if ('updateWeightsFromCheckpoint' in engine) byPath.push(engine)
    else if (typeof engine?.setWeights === 'function') direct.push(engine)
    else
      throw new InputError(
        'engine',
        show(engine),
        'one with setWeights or updateWeightsFromCheckpoint, like `engines` of openTrainingBackend',
      )
  }
  if (direct.length > 0) {
    const delivery = await backend.getWeights(version)
    await Promise.all(direct.map((engine) => deliverWeights(engine as Engine, delivery)))
  }
  if (byPath.length > 0) await syncWeightsToEngines(byPath, await backend.saveCheckpoint(version))
}

/** A gradient and its step, requested together. */
async function step(
  backend: BatchBackend,
  batch: Parameters<BatchBackend['forwardBackward']>[0],
  rateFactor: number,
): Promise<TrainingStep> {
  const made = backend.forwardBackward(batch)
  const stepped = backend.optimStep(rateFactor)
  stepped.catch(() => {}) // A failed gradient is reported instead.
  return { ...(await made), ...(await stepped) }
}

async function loop(
  backend: BatchBackend,
  config: Required<Pick<TrainingLoopConfig, 'numSteps' | 'logEvery' | 'checkpointEvery'>> & TrainingLoopConfig,
  logger: MetricsLogger | undefined,
  advance: (rateFactor: number, done: number) => Promise<TrainingStep>,
): Promise<TrainingStep[]> {
  const { numSteps, logEvery, checkpointEvery, schedule = 'constant', warmupFraction = 0, onCheckpoint } = config
  const all: TrainingStep[] = []
  for (let done = 0; done < numSteps; done++) {
    const figures = await advance(scheduleFactor(schedule, warmupFraction, done, numSteps), done).catch((error) => {
      throw error instanceof Error ? Object.assign(error, { steps: all }) : error
    })
    all.push(figures)
    if ((done + 1) % logEvery === 0) logger?.log(figures, done + 1)
    const isDue = checkpointEvery > 0 && ((done + 1) % checkpointEvery === 0 || done + 1 === numSteps)
    if (!isDue) continue
    const path = await backend.saveCheckpoint(done + 1, figures)
    await onCheckpoint?.(path, done + 1)
  }
  logger?.finish?.()
  return all
}

function checkLoop(subject: string, config: TrainingLoopConfig, keys: readonly string[]): void {
  if (typeof config !== 'object' || config === null)
    throw new InputError(`${subject}, config`, show(config), 'an object')
  checkOptions(subject, config, [...LOOP_KEYS, ...keys])
  const { numSteps, logEvery = 1, checkpointEvery = 0, schedule = 'constant', warmupFraction = 0 } = config
  checkCount('numSteps', numSteps, 0)
  checkCount('logEvery', logEvery)
  checkCount('checkpointEvery', checkpointEvery, 0)
  if (!schedules.includes(schedule)) throw unknownWord('schedule', schedule, schedules)
  if (!(warmupFraction >= 0 && warmupFraction <= 1)) {
    throw new InputError('warmupFraction', show(warmupFraction), 'a number from 0 to 1')
  }
}

function checkBackend(backend: BatchBackend): void {
  for (const name of ['forwardBackward', 'optimStep', 'saveCheckpoint', 'getWeights'] as const) {
    if (typeof backend?.[name] === 'function') continue
    throw new InputError(`backend, ${name}`, show(backend?.[name]), 'a function, as of openTrainingBackend')
  }
}
