/**
 * A run of a language model is a folder too: `config.json`, `metrics.jsonl` (a line a step), `checkpoints/`, `trajectories/`
 * (Arrow files, one an update), and at its end `model/`, `summary.json` and `learning-curve.svg`. With an adapter there is
 * `adapter/` instead of `model/`, as it was at the newest checkpoint.
 */
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { lossSettings } from '../../algorithms/losses.ts'
import { type RlDefinition, rl, rlSettings } from '../../algorithms/rl.ts'
import { type SftDefinition, sft, sftSettings } from '../../algorithms/sft.ts'
import { type ConversationCohort, cutTurns } from '../../cohorts/conversations.ts'
import { type DefinitionRecord, findFactory, recordOf, revive } from '../../definition.ts'
import { textEnvironments } from '../../environments/tasks/registry.ts'
import {
  rewardReductions,
  type TextEnvironmentDefinition,
  type TextEnvironmentFactory,
} from '../../environments/text.ts'
import { InputError, show, unknownWord } from '../../errors.ts'
import { isThere, readText, writeWhole } from '../../files.ts'
import { bestKernelBuild } from '../../kernels/bind.ts'
import { saveTransformer } from '../../policies/transformer/folder.ts'
import { saveLora } from '../../policies/transformer/lora-folder.ts'
import {
  choice,
  number,
  parseSetting,
  resolveSettings,
  type Setting,
  type Settings,
  type SettingValue,
  type SettingValues,
  whole,
} from '../../settings.ts'
import { tooLongs } from '../../text/examples.ts'
import { type LanguageModelDefinition, languageModel } from '../../text/language-model.ts'
import { saveTokenizer } from '../../text/tokenizer.ts'
import type { ModuleTrust } from '../../trust.ts'
import { VERSION } from '../../version.ts'
import { createWorld } from '../../world.ts'
import { listCheckpoints } from '../checkpoint.ts'
import { learningCurve } from '../learning-curve.ts'
import {
  type ResumeOptions,
  RunFolder,
  readConfig,
  readOverrides,
  recordFrom,
  recordIn,
  refuseOccupied,
} from '../run-folder.ts'
import { createTrainer, type Trainer } from '../trainer.ts'
import { watchSettings } from '../watchdog.ts'
import { dataset } from './dataset-environment.ts'
import type { TextMetrics } from './metrics.ts'
import { planTextRun, type TextRunPlan } from './plan.ts'
import { textPresetOf } from './presets.ts'

/** What a run of a language model is told beside its environment, model and algorithms. */
export const textRunSettings = {
  seed: whole(1, 'keys every random number', { min: 0 }),
  mode: choice(
    'sft+rl',
    ['sft', 'rl', 'sft+rl'],
    'supervised fine-tuning, reinforcement learning, or one after the other',
  ),
  numLanes: whole(0, 'conversations side by side; 0: 64, or as many as there is memory for', { min: 0 }),
  checkpointEvery: whole(50, 'steps and updates between checkpoints; one is always written at the end', { min: 1 }),
  checkpointsKept: whole(3, 'how many checkpoints stay', { min: 1 }),
  tooLong: choice(
    'error',
    tooLongs,
    'what becomes of an example that is longer than the context: an error before the run begins, it is passed over, or cut',
  ),
  cutTurn: choice(
    'end',
    cutTurns,
    'what becomes of a conversation whose turn its budget or the context cut off, where the environment has more to say: it ends, or goes on',
  ),
  rewardReduction: choice(
    'last',
    rewardReductions,
    "what a conversation's reward is of its turns': that of the last, their sum or their mean",
  ),
  trajectories: choice('last', ['last', 'all', 'none'], 'which trajectories are kept as Arrow files'),
  kernels: choice(
    'best',
    ['best', 'relaxed', 'simd', 'plain'],
    'which kernel bodies; best: the fastest that this runtime can run',
  ),
  threads: whole(0, 'threads; 0: as many as the machine has cores, up to 16', { min: 0, max: 64 }),
  replySeconds: number(60, "seconds after which an environment's reply counts as failed, and its reward as unknown", {
    above: 0,
  }),
  ...watchSettings,
} satisfies Settings

/** Everything a run of a language model is made of. */
export interface TextRunDefinition {
  readonly environment: TextEnvironmentDefinition
  readonly policy: LanguageModelDefinition
  readonly sft: SftDefinition | null
  readonly rl: RlDefinition | null
  readonly settings: SettingValues<typeof textRunSettings>
}

/** `config.json`. */
interface TextRunConfig {
  readonly colonnade: string
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly sft: DefinitionRecord | null
  readonly rl: DefinitionRecord | null
  readonly settings: SettingValues<typeof textRunSettings>
}

/** `summary.json`. */
export interface TextRunSummary {
  /** `interrupted`: `colonnade resume` goes on. */
  readonly status: 'complete' | 'interrupted'
  readonly folder: string
  readonly environment: string
  /** The loss of the reinforcement learning, or sft. */
  readonly algorithm: string
  readonly seed: number
  readonly numLanes: number
  readonly numParameters: number
  /** Of the adapter, where there is one; else all. */
  readonly numTrained: number
  readonly sftSteps: number
  readonly updates: number
  /** Conversations sampled; turns of them that were cut off, replies that were not heard for it, and rows more than one each. */
  readonly trajectories: number
  readonly cutTurns: number
  readonly unheard: number
  readonly rewrites: number
  /** Examples that are longer than the context, and were passed over or cut. */
  readonly tooLong: { readonly skipped: number; readonly cut: number }
  readonly seconds: number
  /** Tokens sampled a second while sampling, and tokens trained on a second while learning, over all updates. */
  readonly tokensPerSecond: { readonly rollout: number; readonly update: number } | null
  /** Mean reward of the first and of the last 100 groups; null where there was no reinforcement learning. */
  readonly reward: { readonly first: number; readonly last: number } | null
  readonly node: string
  readonly threads: number
  readonly kernels: string
  /** What the run wrote, by what it is. */
  readonly files: Readonly<Record<string, string>>
}

/** Groups over which the summary's rewards are averaged. */
const SUMMARY_GROUPS = 100

/** Who watches a run, and who may stop it. */
export interface TextRunListeners {
  /** Called after each step, when its line is in `metrics.jsonl`. */
  onStep?(metrics: TextMetrics): void
  /** When aborted, the run ends after the next tick with a checkpoint, as `interrupted`. */
  signal?: AbortSignal
}

/**
 * True if this is a text environment: by its id, or as the module at this path exports it.
 * @throws InputError if the module cannot be imported, or exports no environment.
 */
export async function isTextEnvironment(name: string): Promise<boolean> {
  if (!isModulePath(name)) return name.startsWith('text/')
  const factory = await findFactory<TextEnvironmentFactory>('environment', pathToFileURL(name).href, 'caller')
  return factory().kind === 'text'
}

/**
 * The factory of a built-in text environment by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findTextEnvironment(name: string): Promise<TextEnvironmentFactory> {
  if (!isModulePath(name)) return builtIn(name)
  return findFactory<TextEnvironmentFactory>('text environment', pathToFileURL(name).href, 'caller')
}

/** Those that a run finds by their id: the tasks, and the one of prompts of one's own. */
const builtIns = [...textEnvironments, dataset] as unknown as readonly TextEnvironmentFactory[]

function builtIn(id: string): TextEnvironmentFactory {
  const factory = builtIns.find((candidate) => candidate.id === id)
  if (factory !== undefined) return factory
  const ids = builtIns.map((candidate) => candidate.id)
  throw unknownWord('text environment', id, ids)
}

function isModulePath(name: string): boolean {
  return /\.(mjs|js|ts)$/.test(name)
}

/** Every key that a run of this text environment takes, with its default for a user who has given these `key=value` texts. */
export function textRunKeys(
  factory: TextEnvironmentFactory,
  given: Readonly<Record<string, string>> = {},
): ReadonlyMap<string, Setting> {
  const preset = textPresetOf(factory.id, given)
  const keys = new Map<string, Setting>()
  const add = (prefix: string, settings: Settings, tuned: Readonly<Record<string, SettingValue>> = {}): void => {
    for (const [key, setting] of Object.entries(settings)) {
      keys.set(prefix + key, key in tuned ? { ...setting, default: tuned[key]! } : setting)
    }
  }
  add('', textRunSettings, preset.run)
  add('sft.', sftSettings, preset.sft)
  add('rl.', rlSettings, preset.rl)
  add('loss.', lossSettings, preset.loss)
  add('languageModel.', languageModel.settings, preset.model)
  add('environment.', factory.settings, preset.environment)
  return keys
}

/**
 * A run's definition from a text environment's id (or the path of a module that exports one) and `key=value` texts. Settings
 * of the loss that are not given are its preset's.
 * @throws InputError for an unknown environment or key, which names the nearest, and for a bad value.
 */
export async function configureTextRun(
  id: string,
  overrides: Readonly<Record<string, string>>,
): Promise<TextRunDefinition> {
  const factory = await findTextEnvironment(id)
  const keys = textRunKeys(factory, overrides)
  const given = new Map<string, SettingValue>()
  for (const [key, text] of Object.entries(overrides)) {
    const setting = keys.get(key)
    if (setting === undefined) throw unknownWord('key', key, [...keys.keys()])
    given.set(key, parseSetting(key, setting, text))
  }
  const part = (prefix: string, onlyGiven = false): Record<string, SettingValue> =>
    Object.fromEntries(
      [...keys]
        .filter(([key]) => (prefix === '' ? !key.includes('.') : key.startsWith(prefix)))
        .filter(([key]) => !onlyGiven || given.has(key))
        .map(([key, setting]) => [key.slice(prefix.length), given.has(key) ? given.get(key)! : setting.default]),
    )
  const settings = resolveSettings('run', textRunSettings, part('') as never)
  refuseUnused(settings.mode, [...given.keys()])
  const environment = factory(part('environment.') as never)
  const lossGiven = {
    maxLength: environment.maxTokens,
    ...textPresetOf(factory.id, overrides).loss,
    ...part('loss.', true),
  }
  const reinforced = settings.mode === 'sft' ? null : rl({ ...part('rl.'), lossSettings: lossGiven } as never)
  const needsCritic = reinforced?.loss.settings.advantage === 'critic' && !given.has('languageModel.critic')
  return {
    environment,
    policy: languageModel({ ...part('languageModel.'), ...(needsCritic ? { critic: true } : {}) } as never),
    sft: settings.mode === 'rl' ? null : sft(part('sft.') as never),
    rl: reinforced,
    settings,
  }
}

/** Refuses keys of a phase that the mode leaves out. */
function refuseUnused(mode: (typeof textRunSettings)['mode']['default'], given: readonly string[]): void {
  const prefixes = mode === 'rl' ? ['sft.'] : mode === 'sft' ? ['rl.', 'loss.'] : []
  const unused = given.find((key) => prefixes.some((prefix) => key.startsWith(prefix)))
  if (unused === undefined) return
  const wanted = mode === 'rl' ? 'sft or sft+rl' : 'rl or sft+rl'
  throw new InputError('mode', `${mode}, with ${unused}`, `${wanted}, or no such key`)
}

/** A training of a language model with its folder, which is this process's until the training has ended. */
export class TextRun {
  readonly definition: TextRunDefinition
  readonly trainer: Trainer<ConversationCohort>
  /** What a user should be told: what of a model's files was left out, and where a resumed run differs in what decides its bits. */
  readonly warnings: readonly string[]
  readonly #files: RunFolder

  /** Use `startTextRun` or `resumeTextRun`. */
  constructor(
    files: RunFolder,
    definition: TextRunDefinition,
    trainer: Trainer<ConversationCohort>,
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

  /** Steps of both phases together, when it is complete. */
  get totalSteps(): number {
    const { sft, rl } = this.definition
    return (sft?.settings.steps ?? 0) + (rl?.settings.updates ?? 0)
  }

  /**
   * Trains to the end of the run, or until it is told to stop. Once: to go on, resume the run.
   * @throws InputError if something cannot be written; what was saved before stays.
   */
  train(listeners: TextRunListeners = {}): Promise<TextRunSummary> {
    return this.#files.during(() => this.#train(listeners).finally(() => this.trainer.close()))
  }

  async #train({ onStep, signal: asked }: TextRunListeners): Promise<TextRunSummary> {
    const { trainer } = this
    const { settings } = this.definition
    const stop = new AbortController()
    const signal = asked === undefined ? stop.signal : AbortSignal.any([asked, stop.signal])
    const watched = { beats: trainer.beats, who: trainer.shares, giveUp: (reason: Error) => stop.abort(reason) }
    const watch = await this.#files.watch(watched, settings, asked)
    const cohort = trainer.world.cohort()
    cohort.onLate = (message) => {
      this.#files.tell(message)
      if (settings.onStall === 'stop') stop.abort(new Error(message))
      return settings.onStall === 'stop' ? 'stop' : 'continue'
    }
    try {
      await this.#steps(onStep, signal)
    } finally {
      watch.close()
      cohort.onLate = null
    }
    const isComplete = trainer.update >= this.totalSteps
    await this.#checkpoint()
    if (stop.signal.aborted && !isComplete) throw stop.signal.reason
    return this.#finish(isComplete ? 'complete' : 'interrupted')
  }

  /** Goes through both phases, and writes what each step leaves. */
  async #steps(onStep: TextRunListeners['onStep'], signal: AbortSignal): Promise<void> {
    const { trainer } = this
    for await (const metrics of trainer.updates({ signal })) {
      if (metrics.phase === 'rl') await this.#writeTrajectories()
      await this.#note(metrics)
      onStep?.(metrics)
    }
  }

  /** What a policy elsewhere can load while the run goes on. */
  get #adapterFolder(): string {
    return this.#files.file('adapter')
  }

  async #note(metrics: TextMetrics): Promise<void> {
    const { rl, ...top } = metrics
    this.#files.note({ move: this.trainer.moves, ...top, ...(rl ?? {}) })
    if (this.trainer.update % this.definition.settings.checkpointEvery === 0) await this.#checkpoint()
  }

  async #checkpoint(): Promise<void> {
    const save = async () => {
      await this.trainer.save(this.folder)
      const { adapter } = this.trainer.world.cohort()
      if (adapter !== null)
        await saveLora(this.#adapterFolder, adapter.lora, adapter.weights, await baseOf(this.definition.policy))
    }
    await this.#files.checkpoint(save, this.definition.settings.checkpointsKept)
  }

  /** Writes this update's trajectories; with `trajectories=last` older ones go. */
  async #writeTrajectories(): Promise<void> {
    const { trajectories } = this.definition.settings
    if (trajectories === 'none') return
    const name = `${String(this.trainer.progress().rlUpdates).padStart(8, '0')}.arrow`
    await this.trainer.writeTrajectories(this.#files.file('trajectories', name))
    if (trajectories === 'last') await this.#files.keepOnly('trajectories', name)
  }

  async #finish(status: TextRunSummary['status']): Promise<TextRunSummary> {
    const { folder, trainer, definition } = this
    const { settings, environment, rl: reinforced } = definition
    const lines = (await this.#files.lines()) as unknown as MetricsLine[]
    const updates = lines.filter(({ phase }) => phase === 'rl')
    const groups = updates.flatMap(({ groupRewards }) => groupRewards)
    const { model, weights, adapter, tokenizer } = trainer.world.cohort()
    const { sftSteps, rlUpdates, tooLong } = trainer.progress()
    const curve = join(folder, 'learning-curve.svg')
    const files: Record<string, string> = {
      config: join(folder, 'config.json'),
      metrics: join(folder, 'metrics.jsonl'),
      summary: join(folder, 'summary.json'),
      learningCurve: curve,
      checkpoints: join(folder, 'checkpoints'),
      ...(adapter === null ? { model: join(folder, 'model') } : { adapter: this.#adapterFolder }),
      ...(settings.trajectories === 'none' || updates.length === 0
        ? {}
        : { trajectories: join(folder, 'trajectories') }),
    }
    const summary: TextRunSummary = {
      status,
      folder,
      environment: environment.id,
      algorithm: reinforced?.settings.loss ?? 'sft',
      seed: settings.seed,
      numLanes: settings.numLanes,
      numParameters: model.numParameters,
      numTrained: (adapter?.lora ?? model).numParameters,
      sftSteps,
      updates: rlUpdates,
      trajectories: total(updates, 'trajectories'),
      cutTurns: total(updates, 'cutTurns'),
      unheard: total(updates, 'unheard'),
      rewrites: total(updates, 'rewrites'),
      tooLong,
      seconds: trainer.seconds,
      tokensPerSecond: updates.length === 0 ? null : rates(updates),
      reward:
        groups.length === 0
          ? null
          : { first: mean(groups.slice(0, SUMMARY_GROUPS)), last: mean(groups.slice(-SUMMARY_GROUPS)) },
      node: process.version,
      threads: trainer.world.threads.count,
      kernels: trainer.world.kernelBuild,
      files,
    }
    if (adapter === null) {
      await saveTransformer(files.model!, model, weights)
      await saveTokenizer(files.model!, tokenizer)
    }
    const points = updates.flatMap(({ step, reward }) => (reward === null ? [] : [{ x: step, y: reward }]))
    const losses = lines.filter(({ phase }) => phase === 'sft').map(({ step, loss }) => ({ x: step, y: loss }))
    const picture =
      reinforced === null
        ? learningCurve(losses, { x: `${environment.id}: supervised steps`, y: 'cross-entropy' }, null)
        : learningCurve(points, { x: `${environment.id}: updates`, y: 'mean reward' }, null)
    await writeWhole(curve, [picture])
    await writeWhole(files.summary!, [`${JSON.stringify(summary, null, 2)}\n`])
    return summary
  }
}

/** A line of `metrics.jsonl`, as far as summaries read it. */
interface MetricsLine {
  readonly move: number
  readonly phase: 'sft' | 'rl'
  readonly step: number
  readonly loss: number
  readonly reward: number | null
  readonly groupRewards: readonly number[]
  readonly trajectories: number
  readonly cutTurns: number
  readonly unheard: number
  readonly rewrites: number
  readonly sampledTokens: number
  readonly rolloutSeconds: number
  readonly trainedTokens: number
  readonly updateSeconds: number
}

/** Where an adapter's model is, if it is anywhere: a folder wherever one looks from, or an id of the hub. */
async function baseOf({ parameters }: LanguageModelDefinition): Promise<string | null> {
  const folder = parameters.folder as string
  if (folder === '') return null
  return (await isThere(folder)) ? resolve(folder) : folder
}

function total(updates: readonly MetricsLine[], name: 'trajectories' | 'cutTurns' | 'unheard' | 'rewrites'): number {
  return updates.reduce((sum, line) => sum + (line[name] ?? 0), 0) // Older lines lack some.
}

function rates(updates: readonly MetricsLine[]): { rollout: number; update: number } {
  const sum = (of: (line: MetricsLine) => number) => updates.reduce((total, line) => total + of(line), 0)
  return {
    rollout: sum(({ sampledTokens }) => sampledTokens) / sum(({ rolloutSeconds }) => rolloutSeconds),
    update: sum(({ trainedTokens }) => trainedTokens) / sum(({ updateSeconds }) => updateSeconds),
  }
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

/**
 * Begins a run in a new folder; `runs/<environment>-<n>` with the lowest free number if none is given. What the settings leave
 * open is chosen as `planTextRun` says, and told to `onPlan` before any weight is read.
 * @throws InputError if the settings do not fit, the folder holds anything, or it cannot be written.
 */
export async function startTextRun(
  given: TextRunDefinition,
  out?: string,
  onPlan: (plan: TextRunPlan) => void = () => {},
): Promise<TextRun> {
  if (out !== undefined) await refuseOccupied(out)
  // Before anything is written: settings may be refused here, and sizes before weights are read.
  const { definition, trainer } = await textRunTrainer(given, onPlan)
  const files = await RunFolder.claim(definition.environment.id.replaceAll('/', '-'), out)
  return files.unlessFails(async () => {
    await files.writeConfig(configOf(files.path, definition))
    return new TextRun(files, definition, trainer, trainer.world.cohort().notes)
  })
}

function configOf(folder: string, { environment, policy, sft, rl, settings }: TextRunDefinition): TextRunConfig {
  return {
    colonnade: VERSION,
    environment: recordIn(folder, portable(environment)),
    policy: recordIn(folder, portable(policy)),
    sft: sft === null ? null : recordIn(folder, portable(sft)),
    rl: rl === null ? null : recordIn(folder, portable(rl)),
    settings,
  }
}

/** Settings that a run may be given anew when it is resumed: those on which what it did so far does not depend. */
const RESUMED = [
  'checkpointEvery',
  'checkpointsKept',
  'trajectories',
  'threads',
  'replySeconds',
  'stallSeconds',
  'onStall',
]

/** The settings that a run of this definition may be given anew. */
function resumedKeys({ sft: supervised, rl: reinforced }: TextRunDefinition): Map<string, Setting> {
  const keys = new Map(RESUMED.map((key) => [key, (textRunSettings as Settings)[key]!]))
  if (supervised !== null) keys.set('sft.steps', sftSettings.steps)
  if (reinforced !== null) keys.set('rl.updates', rlSettings.updates)
  return keys
}

/** The definition with settings given anew. */
function overridden(definition: TextRunDefinition, given: ReadonlyMap<string, SettingValue>): TextRunDefinition {
  const part = (prefix: string) =>
    Object.fromEntries(
      [...given].filter(([key]) => key.startsWith(prefix)).map(([key, value]) => [key.slice(prefix.length), value]),
    )
  const { sft: supervised, rl: reinforced } = definition
  const own = Object.fromEntries([...given].filter(([key]) => !key.includes('.')))
  return {
    ...definition,
    sft: supervised && sft({ ...supervised.parameters, ...part('sft.') } as never),
    rl: reinforced && rl({ ...reinforced.parameters, ...part('rl.') } as never),
    settings: { ...definition.settings, ...own } as TextRunDefinition['settings'],
  }
}

/**
 * Takes a run up at its newest checkpoint (at the start, if there is none), after dropping what is younger than it. Settings
 * that are given anew, like `rl.updates`, with which a complete run goes on, are written to its `config.json`.
 * @throws InputError if the folder holds no run of a language model, another process trains in it, its checkpoint is corrupt or
 * of another training, or a setting cannot be given anew.
 */
export async function resumeTextRun(
  folder: string,
  { from, settings: texts = {}, ...trust }: ResumeOptions = {},
  onPlan: (plan: TextRunPlan) => void = () => {},
): Promise<TextRun> {
  const former = await openTextRun(folder, trust)
  const given = readOverrides(resumedKeys(former), texts)
  const asked = overridden(former, given)
  const files = await RunFolder.take(folder)
  return files.unlessFails(async () => {
    const { definition, trainer } = await textRunTrainer(asked, onPlan)
    const hasCheckpoint = from !== undefined || (await listCheckpoints(folder)).length > 0
    const restored = hasCheckpoint ? (await trainer.restore(folder, from)).warnings : []
    const warnings = [...trainer.world.cohort().notes, ...restored]
    if (given.size > 0) await files.writeConfig(configOf(files.path, asked))
    const { moves, update } = trainer
    const { rlUpdates } = trainer.progress()
    const lines = { key: 'move', last: moves, count: update }
    const younger = { ...lines, checkpoint: moves, tables: 'trajectories', update: rlUpdates }
    warnings.push(...(await files.dropYounger(younger)))
    return new TextRun(files, definition, trainer, warnings)
  })
}

/** True if the folder holds a run of a language model. */
export async function isTextRun(folder: string): Promise<boolean> {
  const text = await readText(join(folder, 'config.json'))
  if (text === '') return false
  const config = await readConfig<unknown>(folder)
  if (typeof config === 'object' && config !== null) return Object.hasOwn(config, 'sft')
  throw new InputError('run', `${folder} (it holds ${show(config)})`, 'a run folder with a config.json')
}

/**
 * The definition of the run of a language model in a folder. What module it may name is as with `openRun`.
 * @throws InputError if there is none, or it was made with an environment that cannot be found or may not be run.
 */
export async function openTextRun(folder: string, trust: ModuleTrust = {}): Promise<TextRunDefinition> {
  const path = join(folder, 'config.json')
  const config = await readConfig<TextRunConfig>(folder)
  for (const key of ['environment', 'policy', 'settings'] as const) {
    if (typeof config?.[key] === 'object' && config[key] !== null) continue
    throw new InputError(path, `${key} ${show(config?.[key])}`, 'the config.json of a run of a language model')
  }
  for (const key of ['sft', 'rl'] as const) {
    if (config[key] === null || typeof config[key]?.parameters === 'object') continue
    throw new InputError(path, `${key} ${show(config[key])}`, 'what it was trained with, or null')
  }
  const { environment, policy, settings } = config
  return {
    environment: environment.module
      ? await revive<TextEnvironmentDefinition>('text environment', recordFrom(folder, environment), {
          ...trust,
          folder,
        })
      : builtIn(environment.id)(environment.parameters as never),
    policy: languageModel(policy.parameters as never),
    sft: config.sft === null ? null : sft(config.sft.parameters as never),
    rl: config.rl === null ? null : rl(config.rl.parameters as never),
    settings: resolveSettings('run', textRunSettings, settings),
  }
}

/** What a run learns by, in this order. */
function phasesOf({ sft, rl }: TextRunDefinition): (SftDefinition | RlDefinition)[] {
  return [sft, rl].filter((phase) => phase !== null)
}

/** Plans a run, and then makes its trainer. */
async function textRunTrainer(
  given: TextRunDefinition,
  onPlan: (plan: TextRunPlan) => void,
): Promise<{ definition: TextRunDefinition; trainer: Trainer<ConversationCohort> }> {
  const plan = await planTextRun(given)
  onPlan(plan)
  const { definition, threads } = plan
  const { environment, policy, rl, settings } = definition
  const { numLanes, seed, tooLong, cutTurn, rewardReduction, replySeconds } = settings
  const kernels = settings.kernels === 'best' ? bestKernelBuild() : settings.kernels
  const { groupSize = 1, temperature = 1, topK = 0, topP = 1, minP = 0 } = rl?.settings ?? {}
  const sampling = { temperature, topK, topP, minP }
  const world = await createWorld({
    environment,
    policy,
    numLanes,
    seed,
    kernels,
    groupSize,
    sampling,
    tooLong,
    cutTurn,
    rewardReduction,
    replySeconds,
  })
  return { definition, trainer: createTrainer(world, phasesOf(definition), { threads }) }
}

/** A definition's record; built-ins are found by their id wherever Colonnade is installed. */
function portable(definition: DefinitionRecord): DefinitionRecord {
  const { id, parameters, module } = recordOf(definition)
  const isBuiltIn =
    ['sft', 'rl', 'languageModel'].includes(id) ||
    builtIns.some((factory) => factory.id === id && factory().module === module)
  return { id, parameters, ...(isBuiltIn || module === undefined ? {} : { module }) }
}
