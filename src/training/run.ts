/**
 * A run is a folder: `config.json` (all settings, resolved), `metrics.jsonl` (a line an update), `checkpoints/`,
 * `rollouts/` (Arrow files, never changed once written), and at the end `summary.json` and `learning-curve.svg`.
 */
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { AlgorithmDefinition, AlgorithmFactory } from '../algorithms/algorithm.ts'
import { algorithmFactory, algorithms } from '../algorithms/registry.ts'
import type { EpisodeCohort } from '../cohorts/episodes.ts'
import { type DefinitionRecord, findFactory, recordOf, revive } from '../definition.ts'
import type { EnvironmentDefinition, EnvironmentFactory } from '../environments/environment.ts'
import { environmentFactory, environments } from '../environments/registry.ts'
import { InputError, unknownWord } from '../errors.ts'
import { listFolder, writeWhole } from '../files.ts'
import { bestKernelBuild } from '../kernels/bind.ts'
import type { Metrics } from '../metrics.ts'
import { BLOCK_ROWS, type PolicyDefinition, type PolicyModel } from '../policies/policy.ts'
import { type PolicyFactory, policies, policyFactory } from '../policies/registry.ts'
import { loadWeights, weightsOf } from '../policies/weights.ts'
import {
  choice,
  parseSetting,
  resolveSettings,
  type Setting,
  type Settings,
  type SettingValue,
  type SettingValues,
  text,
  toggle,
  whole,
} from '../settings.ts'
import { writeArrow } from '../tables/arrow.ts'
import type { ModuleTrust } from '../trust.ts'
import { VERSION } from '../version.ts'
import { createWorld } from '../world.ts'
import { listCheckpoints, readCheckpoint } from './checkpoint.ts'
import type { EpisodeProgress } from './episodes.ts'
import { learningCurve } from './learning-curve.ts'
import { metricsLine, metricsOfRun, type UpdateMetrics } from './metrics.ts'
import { presetOf, type Reached, reachedByPreset } from './presets.ts'
import {
  type ResumeOptions,
  RunFolder,
  readConfig,
  readOverrides,
  recordFrom,
  recordIn,
  refuseOccupied,
} from './run-folder.ts'
import { createTrainer, type Trainer } from './trainer.ts'
import { watchSettings } from './watchdog.ts'

/** What a run is told beside its environment, policy and algorithm. */
export const runSettings = {
  seed: whole(1, 'keys every random number', { min: 0 }),
  weights: text('', 'safetensors file with the weights to begin with; empty: drawn by the seed'),
  totalSteps: whole(1_000_000, 'environment steps of the training', { min: 1 }),
  numLanes: whole(16, 'environments side by side', { min: 1 }),
  stopWhenSolved: toggle(false, "stop once the mean of the last 100 returns reaches the environment's threshold"),
  checkpointEvery: whole(50, 'updates between checkpoints; one is always written at the end', { min: 1 }),
  checkpointsKept: whole(3, 'how many checkpoints stay', { min: 1 }),
  rollouts: choice('last', ['last', 'all', 'none'], 'which rollouts are kept as Arrow files'),
  kernels: choice(
    'best',
    ['best', 'relaxed', 'simd', 'plain'],
    'which kernel bodies; best: the fastest that this runtime can run',
  ),
  threads: whole(0, 'threads; 0: as many as the machine has cores and a minibatch has blocks of 256 rows', {
    min: 0,
    max: 64,
  }),
  profile: toggle(false, "write trace.json, for Chrome's tracing view and Perfetto"),
  ...watchSettings,
} satisfies Settings

/** The values of `runSettings`. */
export type RunSettings = SettingValues<typeof runSettings>

/** Everything a run is made of. */
export interface RunDefinition {
  readonly environment: EnvironmentDefinition
  readonly policy: PolicyDefinition
  readonly algorithm: AlgorithmDefinition
  readonly settings: RunSettings
}

/** `config.json`. */
interface RunConfig {
  readonly colonnade: string
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly algorithm: DefinitionRecord
  readonly settings: RunSettings
}

/** `summary.json`. */
export interface RunSummary {
  /** `complete`: totalSteps are done. `solved`: stopped because it was solved. `interrupted`: `colonnade resume` goes on. */
  readonly status: 'complete' | 'solved' | 'interrupted'
  readonly folder: string
  readonly environment: string
  readonly algorithm: string
  readonly seed: number
  readonly numLanes: number
  /** Environment steps done. */
  readonly totalSteps: number
  readonly updates: number
  readonly episodes: number
  /** Seconds of rollouts and updates. */
  readonly seconds: number
  readonly stepsPerSecond: number
  readonly solvedAtStep: number | null
  readonly solvedAtSeconds: number | null
  readonly episodeReturnLast100: { readonly mean: number; readonly std: number }
  /** Of a run by a preset that not every seed succeeds with: how many did. Null elsewhere. */
  readonly presetReached: Reached | null
  readonly node: string
  readonly threads: number
  readonly kernels: string
  /** What the run wrote, by what it is. */
  readonly files: Readonly<Record<string, string>>
}

/** The keys that say which policy and which algorithm; their own keys hang on these. */
const [POLICY, ALGORITHM] = ['policy', 'algorithm']

/** Which policy and which algorithm a run has; the environment's usual ones where none is given. */
export interface RunParts {
  readonly policy?: PolicyFactory
  readonly algorithm?: AlgorithmFactory
}

/**
 * Every key that a run of this environment takes, with its default: `seed`, `policy`, `ppo.gamma`, `mlp.hidden`,
 * `environment.…`. Those of the policy and of the algorithm are of the given ones, or of the environment's usual ones.
 * @throws InputError where two of the three would have the same keys.
 */
export function runKeys(factory: EnvironmentFactory, parts: RunParts = {}): ReadonlyMap<string, Setting> {
  const { preset, policy, algorithm } = usualParts(factory, parts)
  const keys = new Map<string, Setting>()
  const add = (prefix: string, settings: Settings, tuned: Readonly<Record<string, SettingValue>> = {}): void => {
    for (const [key, setting] of Object.entries(settings)) {
      keys.set(prefix + key, key in tuned ? { ...setting, default: tuned[key]! } : setting)
    }
  }
  add('', runSettings, preset.run)
  keys.set(POLICY, partSetting(policy, policies))
  keys.set(ALGORITHM, partSetting(algorithm, algorithms))
  if (new Set(['environment', policy.id, algorithm.id]).size < 3) {
    const got = `${policy.id}, and the algorithm ${algorithm.id}`
    throw new InputError('policy', got, 'two ids, neither of them environment: what has a key begins with its id')
  }
  add(`${algorithm.id}.`, algorithm.settings, preset.algorithm.parameters)
  add(`${policy.id}.`, policy.settings, preset.policy.parameters)
  add('environment.', factory.settings)
  return keys
}

/** Everything that a line of a run's `metrics.jsonl` says, by name; the algorithm's own are of the given one, or of the environment's usual one. */
export function runMetrics(factory: EnvironmentFactory, parts: RunParts = {}): Metrics {
  return metricsOfRun(usualParts(factory, parts).algorithm.metrics)
}

/** The parts of a run, with the environment's usual ones where none are given, and what is known to work for them. */
function usualParts(factory: EnvironmentFactory, { policy, algorithm }: RunParts) {
  const preset = presetOf(factory.id, { policy: policy?.id, algorithm: algorithm?.id })
  return {
    preset,
    policy: policy ?? policyFactory(preset.policy.id),
    algorithm: algorithm ?? algorithmFactory(preset.algorithm.id),
  }
}

function partSetting({ id }: { id: string }, known: readonly { id: string }[]): Setting {
  return text(id, `${known.map((each) => each.id).join(', ')}, or the path of a module that exports one`)
}

/**
 * A run's definition from an environment's id (or the path of a module that exports one) and `key=value` texts.
 * @throws InputError for an unknown environment, policy, algorithm or key, which names the nearest, and for a bad value.
 */
export async function configureRun(
  environment: string,
  { [POLICY]: policyName, [ALGORITHM]: algorithmName, ...overrides }: Readonly<Record<string, string>>,
): Promise<RunDefinition> {
  const factory = await findEnvironment(environment)
  const { policy, algorithm } = usualParts(factory, {
    policy: policyName === undefined ? undefined : await findPolicy(policyName),
    algorithm: algorithmName === undefined ? undefined : await findAlgorithm(algorithmName),
  })
  const keys = runKeys(factory, { policy, algorithm })
  const values: Record<string, SettingValue> = {}
  for (const [key, setting] of keys) if (key !== POLICY && key !== ALGORITHM) values[key] = setting.default
  for (const [key, text] of Object.entries(overrides)) {
    const setting = keys.get(key)
    if (setting === undefined) throw unknownWord('key', key, [...keys.keys()])
    values[key] = parseSetting(key, setting, text)
  }
  const part = (prefix: string) =>
    Object.fromEntries(
      Object.entries(values)
        .filter(([key]) => (prefix === '' ? !key.includes('.') : key.startsWith(prefix)))
        .map(([key, value]) => [key.slice(prefix.length), value]),
    )
  return {
    environment: factory(part('environment.') as never),
    policy: policy(part(`${policy.id}.`) as never),
    algorithm: algorithm(part(`${algorithm.id}.`) as never),
    settings: resolveSettings('run', runSettings, part('') as never),
  }
}

/**
 * The factory of a built-in policy by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findPolicy(name: string): Promise<PolicyFactory> {
  if (/\.(mjs|js|ts)$/.test(name)) return findFactory<PolicyFactory>('policy', pathToFileURL(name).href, 'caller')
  return policyFactory(name)
}

/**
 * The factory of a built-in algorithm by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findAlgorithm(name: string): Promise<AlgorithmFactory> {
  if (/\.(mjs|js|ts)$/.test(name)) return findFactory<AlgorithmFactory>('algorithm', pathToFileURL(name).href, 'caller')
  return algorithmFactory(name)
}

/**
 * The factory of a built-in environment by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findEnvironment(name: string): Promise<EnvironmentFactory> {
  if (/\.(mjs|js|ts)$/.test(name)) {
    return findFactory<EnvironmentFactory>('environment', pathToFileURL(name).href, 'caller')
  }
  return environmentFactory(name)
}

/** Who watches a run, and who may stop it. */
export interface RunListeners {
  /** Called after each update, when its line is in `metrics.jsonl`. */
  onUpdate?(metrics: UpdateMetrics, progress: EpisodeProgress): void
  /** When aborted, the run finishes the update, writes a checkpoint and ends as `interrupted`. */
  signal?: AbortSignal
}

/** A training with its folder, which is this process's until the training has ended. */
export class Run {
  readonly definition: RunDefinition
  readonly trainer: Trainer<EpisodeCohort>
  /** What a user should be told: set when a resumed run differs in what decides its bits. */
  readonly warnings: readonly string[]
  readonly #files: RunFolder

  /** Use `startRun` or `resumeRun`. */
  constructor(
    files: RunFolder,
    definition: RunDefinition,
    trainer: Trainer<EpisodeCohort>,
    warnings: readonly string[] = [],
  ) {
    this.#files = files
    this.definition = definition
    this.trainer = trainer
    this.warnings = warnings
  }

  get folder(): string {
    return this.#files.path
  }

  /** Adds a line to the run's `run.log`, with the time. */
  log(line: string): void {
    this.#files.log(line)
  }

  /**
   * Trains to the end of the run, or until it is told to stop. Once: to go on, resume the run.
   * @throws InputError if something cannot be written; what was saved before stays.
   */
  train(listeners: RunListeners = {}): Promise<RunSummary> {
    return this.#files.during(() => this.#train(listeners).finally(() => this.trainer.close()))
  }

  async #train({ onUpdate, signal }: RunListeners): Promise<RunSummary> {
    const { trainer } = this
    const { totalSteps, stopWhenSolved, rollouts } = this.definition.settings
    const isSolved = () => stopWhenSolved && trainer.progress().solvedAtStep !== null
    if (isSolved() || trainer.steps >= totalSteps) {
      await this.#files.prune(this.definition.settings.checkpointsKept)
      return this.#finish(isSolved() ? 'solved' : 'complete')
    }
    let status: RunSummary['status']
    trainer.keepsState = true // An update in which a thread is stuck can be given up.
    const watched = { beats: trainer.beats, who: trainer.shares, giveUp: (reason: Error) => trainer.giveUp(reason) }
    const watch = await this.#files.watch(watched, this.definition.settings, signal)
    try {
      status = await this.#updates({ onUpdate, signal }, isSolved)
    } catch (error) {
      if (watch.stall === null) throw error
      await this.#checkpoint() // As it was before the update that was given up; its rollout is gone.
      if (!signal?.aborted) throw error
      return await this.#finish('interrupted')
    } finally {
      watch.close()
    }
    // The rollout first: if it cannot be written, the run is not at its end, and a resumed one will make it again.
    if (rollouts === 'last') await this.#writeRollout()
    await this.#checkpoint()
    return this.#finish(status)
  }

  /** Trains, and writes what each update leaves. */
  async #updates({ onUpdate, signal }: RunListeners, isSolved: () => boolean): Promise<RunSummary['status']> {
    const { trainer } = this
    const { totalSteps, checkpointEvery, rollouts } = this.definition.settings
    for await (const metrics of trainer.updates({ totalSteps })) {
      this.#files.note(metricsLine(metrics))
      if (rollouts === 'all') await this.#writeRollout()
      const isLast = isSolved() || trainer.steps >= totalSteps // Then the rollout comes first, below.
      if (metrics.update % checkpointEvery === 0 && !isLast) await this.#checkpoint()
      onUpdate?.(metrics, trainer.progress())
      if (isSolved()) return 'solved'
      if (signal?.aborted && trainer.steps < totalSteps) return 'interrupted'
    }
    return 'complete'
  }

  async #checkpoint(): Promise<void> {
    await this.#files.checkpoint(() => this.trainer.save(this.folder), this.definition.settings.checkpointsKept)
  }

  /** Writes this update's rollout; with `rollouts=last` older ones go. */
  async #writeRollout(): Promise<void> {
    const name = `${String(this.trainer.update).padStart(8, '0')}.arrow`
    await writeArrow(this.#files.file('rollouts', name), this.trainer.rollout.table)
    if (this.definition.settings.rollouts === 'last') await this.#files.keepOnly('rollouts', name)
  }

  async #finish(status: RunSummary['status']): Promise<RunSummary> {
    const { folder, trainer, definition } = this
    const { settings, environment, algorithm } = definition
    const progress = trainer.progress()
    const curve = join(folder, 'learning-curve.svg')
    const summary: RunSummary = {
      status,
      folder,
      environment: environment.id,
      algorithm: algorithm.id,
      seed: settings.seed,
      numLanes: settings.numLanes,
      totalSteps: trainer.steps,
      updates: trainer.update,
      episodes: progress.episodes,
      seconds: trainer.seconds,
      stepsPerSecond: trainer.steps / trainer.seconds,
      solvedAtStep: progress.solvedAtStep,
      solvedAtSeconds: progress.solvedAtSeconds,
      episodeReturnLast100: progress.episodeReturnLast100,
      presetReached: reachedByPreset(environment, definition.policy, { algorithm, settings }),
      node: process.version,
      threads: trainer.world.threads.count,
      kernels: trainer.world.kernelBuild,
      files: {
        config: join(folder, 'config.json'),
        metrics: join(folder, 'metrics.jsonl'),
        summary: join(folder, 'summary.json'),
        learningCurve: curve,
        checkpoints: join(folder, 'checkpoints'),
        ...(settings.profile ? { trace: join(folder, 'trace.json') } : {}),
        ...(settings.rollouts === 'none' ? {} : { rollouts: join(folder, 'rollouts') }),
      },
    }
    const points = ((await this.#files.lines()) as unknown as MetricsLine[]).flatMap(({ steps, episodeReturn }) =>
      episodeReturn === null ? [] : [{ x: steps, y: episodeReturn }],
    )
    const labels = { x: `${environment.id}: environment steps`, y: 'mean return of the last 100 episodes' }
    await writeWhole(curve, [learningCurve(points, labels, environment.returnThreshold)])
    if (settings.profile) await writeWhole(join(folder, 'trace.json'), [trainer.trace()])
    await writeWhole(summary.files.summary!, [`${JSON.stringify(summary, null, 2)}\n`])
    return summary
  }
}

/**
 * Begins a run in a new folder; `runs/<environment>-<n>` with the lowest free number if none is given.
 * @throws InputError if the settings do not fit, the folder holds anything, or it cannot be written.
 */
export async function startRun(definition: RunDefinition, out?: string): Promise<Run> {
  if (out !== undefined) await refuseOccupied(out)
  const trainer = await runTrainer(definition) // Before anything is written: settings may be refused here.
  const files = await RunFolder.claim(definition.environment.id, out)
  return files.unlessFails(async () => {
    // Before config.json makes it a run: one that is resumed need not find the file of weights again.
    if (definition.settings.weights !== '') await trainer.save(files.path)
    await files.writeConfig(configOf(files.path, definition))
    return new Run(files, definition, trainer)
  })
}

function configOf(folder: string, { environment, policy, algorithm, settings }: RunDefinition): RunConfig {
  return {
    colonnade: VERSION,
    environment: recordIn(folder, portable(environment)),
    policy: recordIn(folder, portable(policy)),
    algorithm: recordIn(folder, portable(algorithm)),
    settings,
  }
}

/** Settings that a run may be given anew when it is resumed: those on which what it did so far does not depend. */
const RESUMED = [
  'totalSteps',
  'stopWhenSolved',
  'checkpointEvery',
  'checkpointsKept',
  'rollouts',
  'threads',
  'profile',
  'stallSeconds',
  'onStall',
]

/**
 * Takes a run up at its newest checkpoint (at the start, if there is none), after dropping what is younger than it. Settings
 * that are given anew, like `totalSteps`, with which a complete run goes on, are written to its `config.json`.
 * @throws InputError if the folder holds no run, another process trains in it, its checkpoint is corrupt or of another
 * training, or a setting cannot be given anew.
 */
export async function resumeRun(
  folder: string,
  { from, settings: texts = {}, ...trust }: ResumeOptions = {},
): Promise<Run> {
  const given = readOverrides(new Map(RESUMED.map((key) => [key, (runSettings as Settings)[key]!])), texts)
  const former = await openRun(folder, trust)
  const settings = { ...former.settings, ...Object.fromEntries(given) } as RunSettings
  const definition = { ...former, settings }
  const files = await RunFolder.take(folder)
  return files.unlessFails(async () => {
    const hasCheckpoint = from !== undefined || (await listCheckpoints(folder)).length > 0
    const trainer = hasCheckpoint ? await drawnTrainer(definition) : await runTrainer(definition)
    const warnings = hasCheckpoint ? [...(await trainer.restore(folder, from)).warnings] : []
    if (settings.totalSteps !== former.settings.totalSteps) {
      const numbers = `${former.settings.totalSteps} and is ${settings.totalSteps}`
      warnings.push(`totalSteps was ${numbers}: what is scheduled until the end goes by the new number from now on`)
    }
    if (given.size > 0) await files.writeConfig(configOf(files.path, definition))
    const { update } = trainer
    const lines = { key: 'update', last: update, count: update }
    warnings.push(...(await files.dropYounger({ ...lines, checkpoint: update, tables: 'rollouts', update })))
    return new Run(files, definition, trainer, warnings)
  })
}

/**
 * The definition of the run in a folder. The modules that it names are programs: they are run where they lie under the
 * working directory and outside the folder, where the user has put them into the list of trusted ones, or where
 * `allowModule` says so.
 * @throws InputError if the folder holds no run, or was made with an environment, policy or algorithm that cannot be found
 * or may not be run.
 */
export async function openRun(folder: string, trust: ModuleTrust = {}): Promise<RunDefinition> {
  const path = join(folder, 'config.json')
  const config = await readConfig<RunConfig>(folder)
  for (const key of ['environment', 'policy', 'algorithm', 'settings'] as const) {
    if (typeof config?.[key] !== 'object' || config[key] === null)
      throw new InputError(path, `no ${key}`, 'the config.json of a run')
  }
  const { environment, policy, algorithm, settings } = config
  const origin = { ...trust, folder }
  return {
    environment: environment.module
      ? await revive<EnvironmentDefinition>('environment', recordFrom(folder, environment), origin)
      : environmentFactory(environment.id)(environment.parameters as never),
    policy: policy.module
      ? await revive<PolicyDefinition>('policy', recordFrom(folder, policy), origin)
      : policyFactory(policy.id)(policy.parameters as never),
    algorithm: algorithm.module
      ? await revive<AlgorithmDefinition>('algorithm', recordFrom(folder, algorithm), origin)
      : algorithmFactory(algorithm.id)(algorithm.parameters as never),
    settings: resolveSettings('run', runSettings, settings),
  }
}

/** The weights of a run's newest checkpoint (its path, and after how many updates), and the policy and environment that they belong to. */
export async function loadPolicy(
  folder: string,
  trust: ModuleTrust = {},
): Promise<RunDefinition & { readonly weights: Float32Array; readonly update: number; readonly checkpoint: string }> {
  const definition = await openRun(folder, trust)
  const { tensors, manifest, path } = await readCheckpoint(folder)
  const weights = weightsOf(`checkpoint ${path}`, tensors, modelOf(definition), `${definition.policy.id}.weights.`)
  return { ...definition, weights, update: manifest.update, checkpoint: path }
}

function modelOf({ environment, policy }: RunDefinition): PolicyModel {
  return policy.build(environment.observationSpace, environment.actionSpace)
}

/** The kept rollout files of a run, in the order of their updates. */
export async function listRollouts(folder: string): Promise<string[]> {
  return (await listFolder(join(folder, 'rollouts')))
    .filter((name) => /^\d+\.arrow$/.test(name))
    .sort()
    .map((name) => join(folder, 'rollouts', name))
}

/**
 * The trainer of a run as `startRun` makes it, without a folder: its world, kernels and threads as the settings say.
 * @throws InputError where the settings, or the weights that it is to begin with, do not fit.
 */
export async function runTrainer(definition: RunDefinition): Promise<Trainer<EpisodeCohort>> {
  const { weights } = definition.settings
  const initial = weights === '' ? undefined : await loadWeights(weights, modelOf(definition))
  const trainer = await drawnTrainer(definition)
  if (initial) trainer.world.cohorts[0]!.weights.set(initial)
  return trainer
}

/** The trainer of a run with weights that the seed has drawn, whatever the run is to begin with. */
async function drawnTrainer(definition: RunDefinition): Promise<Trainer<EpisodeCohort>> {
  const { environment, policy, algorithm, settings } = definition
  const { numLanes, seed, kernels, profile } = settings
  const build = kernels === 'best' ? bestKernelBuild() : kernels
  const threads = settings.threads || usefulThreads(definition)
  return createTrainer(await createWorld({ environment, policy, numLanes, seed, kernels: build }), algorithm, {
    threads,
    profile,
  })
}

/** How many threads can share the work: no more than cores, and than blocks of a minibatch; 1 where one could not be made. */
function usefulThreads({ environment, policy, algorithm, settings }: RunDefinition): number {
  if ([environment, policy, algorithm].some(({ module }) => module === undefined)) return 1
  if (policy.build(environment.observationSpace, environment.actionSpace).staysInThread) return 1
  const minibatchRows = (algorithm.numSteps * settings.numLanes) / (algorithm.numMinibatches ?? 1)
  return Math.min(availableParallelism(), Math.max(1, Math.ceil(minibatchRows / BLOCK_ROWS)))
}

/** A definition's record; built-ins are found by their id wherever Colonnade is installed. */
function portable(definition: DefinitionRecord): DefinitionRecord {
  const { id, parameters, module } = recordOf(definition)
  // By module too: somebody's own environment may be called as a built-in one is.
  const builtIn = [...algorithms, ...policies, ...environments].some(
    (factory) => factory.id === id && factory().module === module,
  )
  return { id, parameters, ...(builtIn || module === undefined ? {} : { module }) }
}

/** A line of `metrics.jsonl`, as far as the learning curve reads it. */
interface MetricsLine {
  readonly steps: number
  readonly episodeReturn: number | null
}
