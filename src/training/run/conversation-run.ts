/** Runs of language models: their settings, parts and files. */
import type { TokenLossFactory } from '../../algorithms/losses/define-token-loss.ts'
import { lossSettings } from '../../algorithms/losses/loss-settings.ts'
import { readsScores } from '../../algorithms/losses/losses.ts'
import { ownLoss, type RlDefinition, rl, rlSettings } from '../../algorithms/tokens/rl.ts'
import { type SftDefinition, sft, sftSettings } from '../../algorithms/tokens/sft.ts'
import { preferenceMetrics } from '../../algorithms/tokens/text-metrics.ts'
import { type DefinitionRecord, type ModuleOrigin, remake, revive } from '../../base/definition.ts'
import { byId, InputError, show } from '../../base/errors.ts'
import { isThere } from '../../base/files/files.ts'
import { join, resolve } from '../../base/files/path.ts'
import { resolveSettings, type Setting, type Settings, type SettingValue } from '../../base/settings.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import { engineOf, portableEngines } from '../../engines/find-engine.ts'
import { type TextTaskId, textEnvironments } from '../../environments/tasks/registry.ts'
import type { TextEnvironmentDefinition, TextEnvironmentFactory } from '../../environments/text.ts'
import { kernelBuildOf } from '../../kernels/bind.ts'
import { type LanguageModelDefinition, languageModel } from '../../language/language-model.ts'
import { saveTokenizer } from '../../language/tokenizers/tokenizer.ts'
import { saveTransformer } from '../../language/transformer/folder.ts'
import { saveLora } from '../../language/transformer/lora-folder.ts'
import { findLoggers, portableLoggers } from '../../telemetry/loggers/find-loggers.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import { createWorld } from '../../world/world.ts'
import { backendOf } from '../backends/find-backend.ts'
import { localBackend } from '../backends/local-backend.ts'
import { evaluationPoints, judgeMetrics } from '../evaluate/judge.ts'
import { recordFrom } from '../folder/run-folder.ts'
import { readConfig } from '../folder/run-record.ts'
import { createTrainer, type Trainer } from '../loop/trainer.ts'
import { openAgents } from '../text/collect/agents-of-run.ts'
import { dataset } from '../text/collect/dataset-environment.ts'
import { evaluateNow, type HeldOutResult, heldOutOf, judgeHeldOut } from '../text/evaluate/judged-run.ts'
import {
  lineMetrics,
  type MetricsLine,
  mean,
  metricsLine,
  rates,
  SUMMARY_GROUPS,
  total,
} from '../text/evaluate/metrics-lines.ts'
import { planTextRun, samplingOf, type TextRunPlan } from '../text/learn/plan.ts'
import { type ConversationRunDefinition, conversationRunSettings } from './definition.ts'
import { finderOf } from './find-parts.ts'
import { FLEET_RESUMED, fleetOf } from './fleet-settings.ts'
import { bare, givenOf, joinKeys, partsGiven, portable, readTexts, valuesOf } from './keys.ts'
import type { RunKind, SharedSummary } from './kind.ts'
import { reachedByTextPreset, textPresetOf } from './presets.ts'
import { SHARED_RESUMED } from './settings.ts'

/** The `summary.json` of a run. `algorithm` is the loss of reinforcement learning, or of the steps on given answers. */
export interface ConversationRunSummary extends SharedSummary {
  readonly numParameters: number
  /** Parameters of the adapter, or all without one. */
  readonly numTrained: number
  readonly sftSteps: number
  /** Conversations sampled; turns that were cut off; replies dropped because of that; and rows beyond one each. */
  readonly trajectories: number
  readonly cutTurns: number
  readonly droppedReplies: number
  readonly rewrites: number
  /** Examples longer than the context that were skipped or cut. */
  readonly tooLong: { readonly skipped: number; readonly cut: number }
  /** Tokens sampled and trained on per second of sampling and learning, over all updates. */
  readonly tokensPerSecond: { readonly rollout: number; readonly update: number } | null
  /** Mean reward of the first and last 100 groups; null without reinforcement learning. */
  readonly reward: { readonly first: number; readonly last: number } | null
  /** The result on held-out questions with the most probable tokens; null without any, or if interrupted. */
  readonly heldOut: HeldOutResult | null
}

type ConversationRunConfig = Readonly<Record<'environment' | 'policy', DefinitionRecord>> &
  Readonly<Record<'sft' | 'rl', DefinitionRecord | null>> &
  Pick<ConversationRunDefinition, 'settings'>

/** A text environment's factory by id or module path. @throws InputError with the nearest id, or the module's fault. */
export const findTextEnvironment = finderOf<TextEnvironmentFactory>('text environment', builtIn)

/** The ids of the text environments that a run finds: the tasks, and the one for your own prompts. */
export type TextEnvironmentId = TextTaskId | 'text/dataset'

const builtIns = [...textEnvironments, dataset] as unknown as readonly TextEnvironmentFactory[]

function builtIn(id: string): TextEnvironmentFactory {
  return byId('text environment', builtIns, id)
}

function remakeBuiltIn(record: DefinitionRecord, origin: ModuleOrigin): Promise<TextEnvironmentDefinition> {
  const factory = builtIn(record.id)
  return remake(factory, factory.settings, record, origin)
}

function keysOf(
  factory: TextEnvironmentFactory,
  given: Readonly<Record<string, string>>,
  loss: TokenLossFactory | undefined,
): ReadonlyMap<string, Setting> {
  const preset = textPresetOf(factory.id, given)
  return joinKeys([
    ['', conversationRunSettings, preset.run],
    ['sft.', sftSettings, preset.sft],
    ['rl.', rlSettings, preset.rl],
    loss === undefined ? ['loss.', lossSettings, preset.loss] : ['loss.', loss.settings],
    ['languageModel.', languageModel.settings, preset.model],
    ['environment.', factory.settings, preset.environment],
  ])
}

/** A run's definition. The loss's defaults are its preset's. Parts named by a module's path are imported. */
async function configure(
  factory: TextEnvironmentFactory,
  overrides: Readonly<Record<string, string>>,
): Promise<ConversationRunDefinition> {
  const rlParts = await partsGiven('rl.', rlSettings, overrides)
  const own = ownLoss(rlParts)
  const keys = keysOf(factory, overrides, own)
  const given = readTexts(keys, overrides)
  const part = (prefix: string) => valuesOf(prefix, keys, given)
  const told = resolveSettings('run', conversationRunSettings, part('') as never)
  const settings = { ...told, engine: portableEngines(told.engine), loggers: portableLoggers(told.loggers) }
  refuseUnused(settings.mode, [...given.keys()])
  const engine = await engineOf(settings, 'caller')
  const rewards = await partsGiven('environment.', factory.settings, overrides)
  const environment = factory(part('environment.') as never, rewards)
  const lossGiven = {
    maxLength: environment.maxTokens,
    ...(own === undefined ? textPresetOf(factory.id, overrides).loss : {}),
    ...givenOf('loss.', given),
  }
  const reinforced = settings.mode === 'sft' ? null : rl({ ...part('rl.'), lossSettings: lossGiven } as never, rlParts)
  const supervised =
    settings.mode === 'rl' ? null : sft(part('sft.') as never, await partsGiven('sft.', sftSettings, overrides))
  const readsValues = reinforced?.loss.settings.advantage === 'critic' || (supervised && readsScores(supervised.loss))
  const needsCritic = readsValues && !given.has('languageModel.critic')
  return {
    kind: 'conversations',
    environment,
    policy: languageModel({ ...part('languageModel.'), ...(needsCritic ? { critic: true } : {}) } as never),
    sft: supervised,
    rl: reinforced,
    settings,
    engine,
    backend: backendOf(settings),
    loggers: await findLoggers(settings.loggers, 'caller'),
  }
}

type Mode = (typeof conversationRunSettings)['mode']['default']

/** Whether a key belongs to a phase that the mode skips. */
function isUnused(mode: Mode, key: string): boolean {
  const prefixes = mode === 'rl' ? ['sft.'] : mode === 'sft' ? ['rl.', 'loss.', 'agent', 'maxAgents'] : []
  return prefixes.some((prefix) => key.startsWith(prefix))
}

function refuseUnused(mode: Mode, given: readonly string[]): void {
  const unused = given.find((key) => isUnused(mode, key))
  if (unused === undefined) return
  const wanted = mode === 'rl' ? 'sft or sft+rl' : 'rl or sft+rl'
  throw new InputError('mode', `${mode}, with ${unused}`, `${wanted}, or no such key`)
}

/** The folder or hub id of an adapter's model, if it is valid from any working directory. */
async function baseOf({ parameters }: LanguageModelDefinition): Promise<string | null> {
  const folder = parameters.folder as string
  if (folder === '') return null
  return (await isThere(folder)) ? resolve(folder) : folder
}

/** Settings that may change on resuming, since the run so far does not depend on them. */
const RESUMED = [
  ...SHARED_RESUMED,
  ...FLEET_RESUMED,
  ...([
    'trajectories',
    'replySeconds',
    'turnSeconds',
    'engine',
    'engineSettings',
    'backend',
    'backendSettings',
    'agent',
    'agentSeconds',
    'maxAgents',
  ] as const),
] as const

function resumedKeys({ sft: supervised, rl: reinforced }: ConversationRunDefinition): Map<string, Setting> {
  const keys = new Map<string, Setting>(RESUMED.map((key) => [key, (conversationRunSettings as Settings)[key]!]))
  if (supervised !== null) keys.set('sft.updates', sftSettings.updates)
  if (reinforced !== null) keys.set('rl.updates', rlSettings.updates)
  return keys
}

/** The definition with changed settings. The folder's modules were admitted when it was opened. */
async function overridden(
  definition: ConversationRunDefinition,
  given: ReadonlyMap<string, SettingValue>,
): Promise<ConversationRunDefinition> {
  const { sft: supervised, rl: reinforced } = definition
  const told = { ...definition.settings, ...givenOf('', given) } as ConversationRunDefinition['settings']
  const settings = { ...told, engine: portableEngines(told.engine), loggers: portableLoggers(told.loggers) }
  const isOther = given.has('engine') || given.has('engineSettings')
  return {
    ...definition,
    engine: isOther ? await engineOf(settings, 'caller') : definition.engine,
    backend: backendOf(settings),
    loggers: given.has('loggers') ? await findLoggers(settings.loggers, 'caller') : definition.loggers,
    sft: supervised && sft({ ...supervised.parameters, ...givenOf('sft.', given) } as never, supervised.parts),
    rl: reinforced && rl({ ...reinforced.parameters, ...givenOf('rl.', given) } as never, reinforced.parts),
    settings,
  }
}

/** The definition of a folder's language model run. @throws InputError if there is none, or it is not trusted. */
export async function openConversationRun(folder: string, trust: ModuleTrust = {}): Promise<ConversationRunDefinition> {
  return open(folder, await readConfig(folder), trust)
}

async function open(folder: string, given: object, trust: ModuleTrust): Promise<ConversationRunDefinition> {
  const path = join(folder, 'config.json')
  const config = given as ConversationRunConfig
  for (const key of ['environment', 'policy', 'settings'] as const) {
    if (typeof config[key] === 'object' && config[key] !== null) continue
    throw new InputError(path, `${key} ${show(config[key])}`, 'the config.json of a run of a language model')
  }
  for (const key of ['sft', 'rl'] as const) {
    if (config[key] === null || typeof config[key]?.parameters === 'object') continue
    throw new InputError(path, `${key} ${show(config[key])}`, 'the settings of its training, or null')
  }
  const { policy } = config
  const settings = resolveSettings('run', conversationRunSettings, config.settings)
  const environment = recordFrom(folder, config.environment)
  const origin = { ...trust, folder }
  return {
    kind: 'conversations',
    environment:
      environment.module === undefined
        ? await remakeBuiltIn(environment, origin)
        : await revive<TextEnvironmentDefinition>('text environment', environment, origin),
    policy: languageModel(policy.parameters as never),
    sft: config.sft === null ? null : await remake(sft, sftSettings, recordFrom(folder, config.sft), origin),
    rl: config.rl === null ? null : await remake(rl, rlSettings, recordFrom(folder, config.rl), origin),
    settings,
    engine: await engineOf(settings, origin),
    backend: backendOf(settings),
    loggers: await findLoggers(settings.loggers, origin),
  }
}

/** @throws InputError for settings that do not fit a fleet. */
function fleetOfConversations({ settings, rl, engine }: ConversationRunDefinition) {
  const { fleet, actors, mode, backend } = settings
  const refused = [
    [rl === null, 'mode', mode, 'rl or sft+rl, whose conversations actors collect'],
    [
      engine !== null,
      'engine',
      settings.engine.join(','),
      'local with a fleet, whose actors have engines of their own',
    ],
    [settings.agent !== '', 'agent', settings.agent, 'none with a fleet, whose actors ask the environment'],
    [
      backend !== localBackend.id,
      'backend',
      backend,
      `${localBackend.id} with a fleet, which sends the weights of this process`,
    ],
  ] as const
  for (const [isSo, key, got, expected] of fleet === '' ? [] : refused)
    if (isSo) throw new InputError(key, got, expected)
  return fleetOf(settings, { actors })
}

/** The rewards of an update's few conversations vary much. */
const SMOOTHING = 0.8

function phasesOf({ sft, rl }: ConversationRunDefinition): (SftDefinition | RlDefinition)[] {
  return [sft, rl].filter((phase) => phase !== null)
}

export const conversationRun: RunKind<
  ConversationRunDefinition,
  ConversationCohort,
  ConversationRunSummary,
  TextRunPlan
> = {
  async keys(factory, given) {
    const own = ownLoss(await partsGiven('rl.', rlSettings, given))
    return keysOf(factory as TextEnvironmentFactory, given, own)
  },
  async metrics(factory, given) {
    const keys = keysOf(factory as TextEnvironmentFactory, given, ownLoss(await partsGiven('rl.', rlSettings, given)))
    const { mode } = valuesOf('', keys, readTexts(keys, given))
    const judged = Number(given.evaluateEvery ?? 0) > 0 ? judgeMetrics : {}
    const { loss } = valuesOf('sft.', keys, readTexts(keys, given))
    const lessons = loss === sftSettings.loss.default ? sft.metrics : { ...sft.metrics, ...preferenceMetrics }
    return { ...lineMetrics, ...(mode === 'rl' ? {} : lessons), ...(mode === 'sft' ? {} : rl.metrics), ...judged }
  },
  refuses: ({ settings: { mode } }, key) => isUnused(mode, key),
  configure: async (factory, given) => configure(factory as TextEnvironmentFactory, given),
  records({ environment, policy, sft, rl }) {
    return {
      environment: portable(environment, builtIns),
      policy: bare(policy),
      sft: sft === null ? null : bare(sft),
      rl: rl === null ? null : bare(rl),
    }
  },
  open,
  resumedKeys,
  override: overridden,
  /** Plans the run, then makes its trainer. */
  async createTrainer(given, isDrawn, onPlan) {
    const plan = await planTextRun(given, !isDrawn)
    onPlan(plan)
    const { definition, threads } = plan
    const { environment, policy, rl, settings, engine, backend } = definition
    const { numLanes, seed, tooLong, cutTurn, segmentation, rewardReduction, replySeconds, turnSeconds } = settings
    const kernels = kernelBuildOf(settings.kernels)
    const { groupSize = 1 } = rl?.settings ?? {}
    const sampling = samplingOf(rl)
    const heldOut = heldOutOf(settings, 'training')
    const chosenBy = engine === null ? {} : { engine }
    const told = { tooLong, cutTurn, segmentation, rewardReduction, replySeconds, turnSeconds, ...heldOut, ...chosenBy }
    const { joined, hooks } = await fleetOfConversations(definition)
    const world = await createWorld({ environment, policy, numLanes, seed, kernels, groupSize, sampling, ...told })
    const agents = settings.agent === '' ? null : await openAgents(world, settings)
    const collector = joined?.collector ?? agents?.collector
    const options = { threads, profile: settings.profile, backend, ...(collector && { collector }) }
    let trainer: Trainer<ConversationCohort>
    try {
      trainer = createTrainer(world, phasesOf(definition), options)
    } catch (error) {
      await agents?.close()
      throw error
    }
    const isJudged = agents !== null && (settings.evaluateEvery > 0 || settings.heldOutFraction > 0)
    const notes = isJudged ? ['evaluations ask the model without the agent'] : []
    return {
      ...{ definition, trainer, choices: [], ...hooks },
      notes: [...world.cohort().notes, ...notes],
      ...(agents && { close: agents.close }),
    }
  },
  keepsBeginning: () => false,
  updates: (_, trainer, signal) => trainer.updates({ signal }),
  ended(definition, trainer) {
    const steps = phasesOf(definition).reduce((sum, { settings }) => {
      return sum + settings.updates
    }, 0)
    return trainer.update >= steps ? 'complete' : null
  },
  async judge(definition, trainer, seed) {
    const episodes = definition.settings.evaluateEpisodes
    const { reward } = await evaluateNow(definition, trainer, { episodes, seed })
    return { ...(reward ?? { mean: null, std: null, min: null, max: null }), episodes }
  },
  lineKey: 'checkpoint',
  line: (metrics, trainer) => ({ checkpoint: trainer.checkpointNumber, ...metricsLine(metrics) }),
  tables: 'trajectories',
  keeps: ({ settings }) => settings.trajectories,
  isTableFleeting: true, // The next update's conversations replace them.
  tableOf: ({ phase, step }) => (phase === 'rl' ? step : null),
  tableNumber: (trainer) => trainer.progress().rlUpdates,
  writeTable: (trainer, path) => trainer.writeTrajectories(path),
  /** Writes files that other programs can load during the run. */
  async writeBeside(folder, { policy }, trainer) {
    const { adapter } = trainer.world.cohort()
    if (adapter !== null) await saveLora(join(folder, 'adapter'), adapter.lora, adapter.weights, await baseOf(policy))
  },
  watch(trainer, onLate, tell) {
    const cohort = trainer.world.cohort()
    cohort.onLate = onLate
    cohort.onNotice = tell
    return () => {
      cohort.onLate = null
      cohort.onNotice = null
    }
  },
  async finish(folder, definition, trainer, all) {
    const { rl, settings } = definition
    const lines = all as unknown as MetricsLine[]
    const updates = lines.filter(({ phase }) => phase === 'rl')
    const groups = updates.flatMap(({ groupRewards }) => groupRewards)
    const { model, weights, adapter, tokenizer } = trainer.world.cohort()
    const { sftSteps, rlUpdates, tooLong } = trainer.progress()
    const files: Record<string, string> = {
      ...(adapter === null ? { model: join(folder, 'model') } : { adapter: join(folder, 'adapter') }),
      ...(settings.trajectories === 'none' || updates.length === 0
        ? {}
        : { trajectories: join(folder, 'trajectories') }),
    }
    if (adapter === null) {
      await saveTransformer(files.model!, model, weights)
      await saveTokenizer(files.model!, tokenizer)
    }
    return {
      files,
      summary: {
        algorithm: rl?.settings.loss ?? definition.sft!.settings.loss,
        numParameters: model.numParameters,
        numTrained: (adapter?.lora ?? model).numParameters,
        sftSteps,
        updates: rlUpdates,
        trajectories: total(updates, 'trajectories'),
        cutTurns: total(updates, 'cutTurns'),
        droppedReplies: total(updates, 'droppedReplies'),
        rewrites: total(updates, 'rewrites'),
        tooLong,
        tokensPerSecond: updates.length === 0 ? null : rates(updates),
        reward:
          groups.length === 0
            ? null
            : { first: mean(groups.slice(0, SUMMARY_GROUPS)), last: mean(groups.slice(-SUMMARY_GROUPS)) },
        heldOut: conversationRun.ended(definition, trainer) === null ? null : await judgeHeldOut(definition, trainer),
        presetReached: reachedByTextPreset(definition),
      },
    }
  },
  curve({ environment, sft, rl }, all) {
    const lines = all as unknown as MetricsLine[]
    const base = { smoothing: SMOOTHING, threshold: null }
    const supervised = {
      points: lines.filter(({ phase }) => phase === 'sft').map(({ step, loss }) => ({ x: step, y: loss })),
      labels: {
        x: `${rl === null ? `${environment.id}: ` : ''}supervised steps`,
        y: sft?.loss.id === 'sft' ? 'cross-entropy' : (sft?.loss.id ?? 'loss'),
      },
    }
    if (rl === null) return { ...base, ...supervised, evaluations: [], before: null }
    const updates = lines.filter(({ phase }) => phase === 'rl')
    const points = updates.flatMap(({ step, reward }) => (reward === null ? [] : [{ x: step, y: reward }]))
    const evaluations = evaluationPoints(
      all.filter(({ phase }) => phase === 'rl'),
      'step',
    )
    const before = supervised.points.length === 0 ? null : supervised
    return { ...base, points, evaluations, before, labels: { x: `${environment.id}: updates`, y: 'mean reward' } }
  },
}
