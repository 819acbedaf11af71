/** Runs of episodes: their settings, parts and files. */
import { algorithms } from '../../algorithms/registry.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { listFolder, within } from '../../base/files/files.ts'
import { join, resolve } from '../../base/files/path.ts'
import { tensorValues } from '../../base/files/safetensors.ts'
import { resolveSettings, type Setting, type Settings } from '../../base/settings.ts'
import { numCores } from '../../base/threads/cores.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import type { EnvironmentDefinition, EnvironmentFactory } from '../../environments/environment.ts'
import { environments } from '../../environments/registry.ts'
import { type WrapperFactory, wrap } from '../../environments/wrapper.ts'
import { wrappers } from '../../environments/wrappers.ts'
import { kernelBuildOf } from '../../kernels/bind.ts'
import { BLOCK_ROWS, type PolicyModel } from '../../policies/policy.ts'
import { policies } from '../../policies/registry.ts'
import { loadWeights, weightsOf } from '../../policies/weights.ts'
import { ownSystems } from '../../systems/registry.ts'
import { writeArrow } from '../../tables/arrow.ts'
import { findLoggers, portableLoggers } from '../../telemetry/loggers/find-loggers.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { madeInThreads } from '../../world/episodes/draft.ts'
import { checkSystems, type SystemDefinition, type SystemFactory } from '../../world/system.ts'
import { createWorld } from '../../world/world.ts'
import { evaluate, requireTimeLimit, type SharedColumns, sharedColumns } from '../evaluate/evaluate.ts'
import { judgeMetrics } from '../evaluate/judge.ts'
import { type LoadOptions, readCheckpoint } from '../folder/checkpoint.ts'
import { readConfig } from '../folder/run-record.ts'
import { metricsLine, metricsOfRun } from '../loop/metrics.ts'
import { createTrainer, type Trainer } from '../loop/trainer.ts'
import { untold } from '../recorded/recorded-checks.ts'
import { RecordedRollouts } from '../recorded/recorded-rollouts.ts'
import {
  checkRecorded,
  correctionOf,
  fileOfRecord,
  lanesOf,
  lengthOf,
  OF_COLLECTING,
  readRecorded,
  recordedUpdates,
  recordOfFile,
} from '../recorded/recorded-run.ts'
import type { CrewDefinition } from '../threads/crew.ts'
import { chooseThreads, type ThreadChoice } from '../threads/threads.ts'
import { type EpisodeRunDefinition, type EpisodeRunSettings, episodeRunSettings } from './definition.ts'
import { type EpisodeLine, lossCurve, returnCurve } from './episode-curves.ts'
import { partKeys, partsOf, reviveParts, usualParts, withoutParts } from './find-parts.ts'
import { FLEET_RESUMED, fleetOf } from './fleet-settings.ts'
import { joinKeys, type KeyPart, partsGiven, portable, readTexts, valuesOf } from './keys.ts'
import type { RunKind, SharedSummary } from './kind.ts'
import { reachedByPreset } from './presets.ts'
import { SHARED_RESUMED } from './settings.ts'

/** The `summary.json` of a run of episodes. */
export interface EpisodeRunSummary extends SharedSummary {
  /** The file of rollouts it learned from, whose rows are not its steps; null if lanes collected. */
  readonly from: string | null
  readonly totalSteps: number
  readonly episodes: number
  /** NaN before the first update. */
  readonly stepsPerSecond: number
  readonly solvedAtStep: number | null
  readonly solvedAtSeconds: number | null
  readonly episodeReturnLast100: { readonly mean: number; readonly std: number }
}

/** Every key of an environment's run, with defaults. @throws InputError if two parts have the same keys. */
function keysOf(
  factory: EnvironmentFactory,
  { preset, policy, algorithm, systems, wrappers }: ReturnType<typeof usualParts>,
): ReadonlyMap<string, Setting> {
  const further = [...systems, ...wrappers] as readonly (SystemFactory | WrapperFactory)[]
  const ids = ['environment', policy.id, algorithm.id, ...further.map(({ id }) => id)]
  const twice = ids.find((id, i) => ids.indexOf(id) < i)
  if (twice !== undefined) {
    const expected = 'ids that differ, since each part has keys that begin with its id'
    throw new InputError('parts of the run', `${twice} twice, of ${ids.join(', ')}`, expected)
  }
  return joinKeys([
    ['', { ...episodeRunSettings, ...partKeys(policy, algorithm) }, preset.run],
    [`${algorithm.id}.`, algorithm.settings, preset.algorithm.parameters],
    [`${policy.id}.`, policy.settings, preset.policy.parameters],
    ['environment.', factory.settings, preset.environment],
    ...further.map(({ id, settings }): KeyPart => [`${id}.`, settings]),
  ])
}

async function configure(
  factory: EnvironmentFactory,
  given: Readonly<Record<string, string>>,
): Promise<EpisodeRunDefinition> {
  const texts = withoutParts(given)
  const parts = usualParts(factory, await partsOf(given))
  const { policy, algorithm, systems, wrappers } = parts
  const keys = keysOf(factory, parts)
  const values = readTexts(keys, texts)
  const own = withoutParts(valuesOf('', keys, values))
  const settings = resolveSettings('run', episodeRunSettings, own as never)
  const from = settings.from === '' ? '' : resolve(settings.from) // Valid in any working directory.
  const inside = factory(valuesOf('environment.', keys, values) as never)
  const environment = wrap(
    inside,
    ...wrappers.map((wrapper) => wrapper(valuesOf(`${wrapper.id}.`, keys, values) as never)),
  )
  const recorded = from === '' ? null : await readRecorded(from, environment)
  const learning = {
    ...valuesOf(`${algorithm.id}.`, keys, values),
    ...(recorded === null ? {} : lengthOf(recorded, algorithm, values)),
  }
  const learner = algorithm(learning as never, await partsGiven(`${algorithm.id}.`, algorithm.settings, texts))
  checkRecorded(learner, settings, values, recorded, systems.length)
  checkOpponents(settings, environment)
  const lanes = recorded === null || values.has('numLanes') ? undefined : lanesOf(recorded, from)
  return {
    kind: 'episodes',
    environment,
    policy: policy(valuesOf(`${policy.id}.`, keys, values) as never),
    algorithm: learner,
    systems: checkSystems(
      systems.map((system) => system(valuesOf(`${system.id}.`, keys, values) as never)),
      environment,
    ),
    settings: { ...settings, from, numLanes: lanes ?? settings.numLanes, loggers: portableLoggers(settings.loggers) },
    recorded,
    loggers: await findLoggers(settings.loggers, 'caller'),
  }
}

/** @throws InputError for opponents in single-player environments, and for their settings without opponents. */
function checkOpponents(settings: EpisodeRunSettings, { id, numPlayers = 1 }: EnvironmentDefinition): void {
  const { opponents } = settings
  if (opponents > 0 && numPlayers === 1) {
    throw new InputError(
      'opponents',
      `${opponents} in ${id}, a single-player environment`,
      '0, or a game of several players',
    )
  }
  if (opponents > 0) return
  for (const name of ['opponentsEvery', 'opponentsFraction'] as const) {
    const usual = episodeRunSettings[name].default
    if (settings[name] !== usual) throw new InputError(name, show(settings[name]), `${usual}, since opponents is 0`)
  }
}

/** Settings that may change on resuming, since the run so far does not depend on them. */
const RESUMED = [...[...SHARED_RESUMED, ...FLEET_RESUMED, 'totalSteps', 'stopWhenSolved', 'rollouts']] as const

async function open(folder: string, config: object, trust: ModuleTrust): Promise<EpisodeRunDefinition> {
  const path = join(folder, 'config.json')
  const parts = config as Readonly<Record<'environment' | 'policy' | 'algorithm', DefinitionRecord>> & {
    readonly settings: EpisodeRunSettings
    readonly systems?: readonly DefinitionRecord[]
    readonly recorded?: DefinitionRecord | null
  }
  for (const key of ['environment', 'policy', 'algorithm', 'settings'] as const) {
    if (typeof parts[key] !== 'object' || parts[key] === null) {
      throw new InputError(path, `no ${key}`, 'the config.json of a run')
    }
  }
  const { environment, policy, algorithm, systems = [], settings, recorded } = parts
  if (!Array.isArray(systems)) throw new InputError(`${path} systems`, show(systems), 'a list')
  const origin = { ...trust, folder }
  const resolved = resolveSettings('run', episodeRunSettings, settings)
  return {
    kind: 'episodes',
    ...(await reviveParts({ environment, policy, algorithm, systems }, folder, trust)),
    settings: resolved,
    recorded: fileOfRecord(path, recorded),
    loggers: await findLoggers(resolved.loggers, origin),
  }
}

/** The definition of a run of episodes. @throws InputError as `openRun` does, and for the run of a language model. */
async function openEpisodeRun(folder: string, trust: ModuleTrust): Promise<EpisodeRunDefinition> {
  const config = await readConfig(folder)
  if (Object.hasOwn(config, 'sft')) {
    throw new InputError('run', `${folder}, a run of a language model`, 'a run of episodes')
  }
  return open(folder, config, trust)
}

/** The policy of a run's checkpoint (default: the newest), for `evaluate` and `recordEpisodes`. */
export async function loadPolicy(
  folder: string,
  { from, ...trust }: LoadOptions = {},
): Promise<
  EpisodeRunDefinition & {
    readonly weights: Float32Array
    /** The systems' columns of the whole cohort. */
    readonly shared: SharedColumns
    readonly update: number
    readonly checkpoint: string
  }
> {
  checkGiven('folder of loadPolicy', folder, 'a text')
  const definition = await openEpisodeRun(folder, trust)
  const { tensors, manifest, path } = await readCheckpoint(folder, from)
  const { policy, systems } = definition
  const subject = `checkpoint ${path}`
  const weights = weightsOf(subject, tensors, modelOf(definition), `${policy.id}.weights.`)
  const sharedOf = ({ id, columns }: SystemDefinition) =>
    Object.keys(columns.shared).map((name) => {
      const tensor = tensors.get(`${policy.id}.systems.${id}.shared.${name}`)
      if (tensor === undefined) throw new InputError(subject, `no column ${name} of system ${id}`, 'that column')
      return [name, tensorValues(tensor)]
    })
  const shared = Object.fromEntries(systems.map((system) => [system.id, Object.fromEntries(sharedOf(system))]))
  return { ...definition, weights, shared, update: manifest.update, checkpoint: path }
}

export function modelOf({ environment, policy }: EpisodeRunDefinition): PolicyModel {
  return policy.build(environment.observationSpace, environment.actionSpace)
}

/** A run's rollout files, in the order of updates. */
export async function listRollouts(folder: string): Promise<string[]> {
  const names = (await listFolder(await within(folder, 'rollouts'))).filter((name) => /^\d+\.arrow$/.test(name))
  return Promise.all(names.sort().map((name) => within(folder, 'rollouts', name)))
}

/** The trainer of a run with random weights, whatever its initial weights are. */
async function drawnTrainer(
  definition: EpisodeRunDefinition,
  threads: number,
  crew: CrewDefinition | undefined,
): Promise<Trainer<EpisodeCohort>> {
  const { environment, policy, algorithm, systems, settings } = definition
  const { numLanes, seed, kernels, profile, opponents, opponentsEvery, opponentsFraction } = settings
  const actors = actorsOf(definition)
  const build = kernelBuildOf(kernels)
  const world = await createWorld({
    ...{ environment, policy, systems, numLanes, seed, kernels: build },
    ...(opponents > 0 && { selfPlay: { opponents, every: opponentsEvery, share: opponentsFraction } }),
  })
  return createTrainer(world, algorithm, {
    threads,
    actors,
    profile,
    stallSeconds: 0, // Runs are watched as a whole, with their own setting.
    ...(crew === undefined ? {} : { crew }),
  })
}

export function actorsOf({ algorithm, settings }: EpisodeRunDefinition): number {
  return settings.fleet !== '' || (algorithm.staleness?.maxStaleness ?? 0) > 0 ? settings.actors : 0
}

/** @throws InputError for settings of a fleet that do not fit. */
function fleetOfEpisodes({ settings, recorded }: EpisodeRunDefinition) {
  const { fleet } = settings
  if (fleet !== '' && recorded !== null) {
    throw new InputError('fleet', show(fleet), "'' beside from, which trains on recorded rollouts")
  }
  return fleetOf(settings, {})
}

/** Threads of a world, with its actors. */
const THREADS_MAX = 64

/** The default number of threads; 1 if other threads could not recreate the definitions. */
export function threadsOf(definition: EpisodeRunDefinition): ThreadChoice {
  const { policy, algorithm, settings } = definition
  for (const [noun, { id, module }] of [...madeInThreads(definition), ['algorithm', algorithm] as const]) {
    if (module === undefined)
      return { threads: 1, reason: `the ${noun} ${id} has no module for other threads to import` }
  }
  const { numParameters, staysInThread, blockRows = BLOCK_ROWS } = modelOf(definition)
  if (staysInThread) return { threads: 1, reason: `the device of ${policy.id} serves one thread only` }
  const { numSteps, numMinibatches = 1 } = algorithm
  const { numLanes } = settings
  const actors = actorsOf(definition)
  if (settings.learners !== '1') return { threads: 1 + actors, reason: 'helpers of the fleet learn too' }
  const cores = Math.max(1, numCores() - (settings.fleet === '' ? actors : 0))
  const { threads, reason } = chooseThreads({ numLanes, numSteps, numMinibatches, numParameters, blockRows, cores })
  if (actors === 0) return { threads, reason }
  const collects = settings.fleet === '' ? `${actors} to collect` : `${actors} parts, which the fleet collects`
  const learn = Math.min(threads, THREADS_MAX - actors)
  return { threads: learn + actors, reason: `${collects}, and ${learn} to learn: ${reason}` }
}

const builtIns = [...algorithms, ...policies, ...environments, ...ownSystems, ...wrappers] as unknown as Parameters<
  typeof portable
>[1]

export const episodeRun: RunKind<EpisodeRunDefinition, EpisodeCohort, EpisodeRunSummary, never> = {
  async keys(factory, given) {
    return keysOf(factory as EnvironmentFactory, usualParts(factory as EnvironmentFactory, await partsOf(given)))
  },
  async metrics(factory, given) {
    const { preset, algorithm } = usualParts(factory as EnvironmentFactory, await partsOf(given))
    const isSelfPlay = Number(given.opponents ?? preset.run.opponents ?? 0) > 0
    const judged = Number(given.evaluateEvery ?? 0) > 0 ? judgeMetrics : {}
    const maxStaleness = Number(given[`${algorithm.id}.maxStaleness`] ?? 0)
    return { ...metricsOfRun(algorithm.metrics, maxStaleness, isSelfPlay), ...judged }
  },
  configure: (factory, given) => configure(factory as EnvironmentFactory, given),
  refuses: ({ recorded }, key) => (recorded === null ? ['epochs'] : (OF_COLLECTING as readonly string[])).includes(key),
  records({ environment, policy, algorithm, systems, recorded }) {
    return {
      environment: portable(environment, builtIns),
      policy: portable(policy, builtIns),
      algorithm: portable(algorithm, builtIns),
      ...(systems.length === 0 ? {} : { systems: systems.map((system) => portable(system, builtIns)) }),
      ...(recorded === null ? {} : { recorded: recordOfFile(recorded) }),
    }
  },
  open,
  resumedKeys({ recorded }) {
    const own = recorded === null ? RESUMED : ([...SHARED_RESUMED, 'epochs'] as const)
    return new Map(own.map((key) => [key, (episodeRunSettings as Settings)[key]!]))
  },
  async override(definition, given) {
    const told = { ...definition.settings, ...Object.fromEntries(given) } as EpisodeRunSettings
    const loggers = given.has('loggers') ? await findLoggers(told.loggers, 'caller') : definition.loggers
    return { ...definition, settings: { ...told, loggers: portableLoggers(told.loggers) }, loggers }
  },
  async createTrainer(given, isDrawn) {
    const { weights, from, evaluateEvery } = given.settings
    if (evaluateEvery > 0) requireTimeLimit(given.environment)
    const recorded = given.recorded === null ? null : await readRecorded(from, given.environment, given.recorded)
    const definition = { ...given, recorded }
    const initial = weights === '' || isDrawn ? undefined : await loadWeights(weights, modelOf(definition))
    const { threads, reason } =
      definition.settings.threads === 0 ? threadsOf(definition) : { ...definition.settings, reason: '' }
    const { joined, hooks } = await fleetOfEpisodes(definition)
    const trainer = await drawnTrainer(definition, threads, joined)
    const { weights: own, league } = trainer.world.cohort()
    if (initial) for (const each of league?.weights ?? [own]) each.set(initial)
    // Refuses misfits before the run has a folder.
    const { notes } = recorded === null ? { notes: [] } : new RecordedRollouts(recorded.table!, trainer.world.cohort())
    const choices = reason === '' ? [] : [`${threads} ${threads === 1 ? 'thread' : 'threads'}: ${reason}`]
    return { definition, trainer, notes: untold(recorded?.table ?? {}, notes), choices, ...hooks }
  },
  keepsBeginning: ({ settings }) => settings.weights !== '',
  updates({ algorithm, settings, recorded }, trainer, signal) {
    const { totalSteps, epochs } = settings
    if (recorded === null) return trainer.updates({ totalSteps, signal })
    return trainer.learn(recorded.table!, { epochs, done: trainer.update, signal, ...correctionOf(algorithm) })
  },
  ended(definition, trainer) {
    const { settings, recorded } = definition
    if (recorded !== null) return trainer.update >= recordedUpdates(definition) ? 'complete' : null
    if (settings.stopWhenSolved && trainer.progress().solvedAtStep !== null) return 'solved'
    return trainer.steps >= settings.totalSteps ? 'complete' : null
  },
  async judge({ environment, policy, systems, settings }, { world }, seed) {
    const cohort = world.cohort()
    const { weights } = cohort
    const episodes = settings.evaluateEpisodes
    const { episodeReturn } = await evaluate({
      environment,
      policy,
      systems,
      weights,
      shared: sharedColumns(cohort),
      episodes,
      seed,
      kernels: world.kernelBuild,
    })
    return { ...episodeReturn, episodes }
  },
  lineKey: 'update',
  line: metricsLine,
  tables: 'rollouts',
  keeps: ({ settings, recorded }) => (recorded === null ? settings.rollouts : 'none'),
  isTableFleeting: false,
  tableOf: ({ update }) => update,
  tableNumber: ({ update }) => update,
  writeTable: (trainer, path) => writeArrow(path, trainer.rollout.table),
  async writeBeside() {},
  watch: () => () => {},
  async finish(folder, definition, trainer) {
    const { algorithm, settings, recorded } = definition
    const { episodes, solvedAtStep, solvedAtSeconds, episodeReturnLast100 } = trainer.progress()
    const files: Record<string, string> =
      recorded === null && settings.rollouts !== 'none' ? { rollouts: join(folder, 'rollouts') } : {}
    return {
      files,
      summary: {
        algorithm: algorithm.id,
        from: recorded === null ? null : settings.from,
        updates: trainer.update,
        totalSteps: trainer.steps,
        ...{
          episodes,
          stepsPerSecond: trainer.steps / trainer.seconds,
          solvedAtStep,
          solvedAtSeconds,
          episodeReturnLast100,
        },
        presetReached: recorded === null ? reachedByPreset(definition) : null,
      },
    }
  },
  curve({ environment, algorithm, recorded }, lines) {
    const own = { id: environment.id, lines: lines as readonly EpisodeLine[] }
    const base = { smoothing: 0, before: null }
    if (recorded === null) return { ...base, ...returnCurve(own), threshold: environment.returnThreshold }
    return { ...base, ...lossCurve(own, Object.keys(algorithm.metrics)[0]), threshold: null }
  },
}
