/** What a run of either kind is made of: its definitions and its settings. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import type { SftDefinition } from '../../algorithms/tokens/sft.ts'
import { boolean, choice, integer, number, type Settings, type SettingValues, text } from '../../base/settings.ts'
import type { EngineDefinition } from '../../engines/engine.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import { rewardReductions, type TextEnvironmentDefinition } from '../../environments/text.ts'
import { tooLongs } from '../../language/examples.ts'
import type { LanguageModelDefinition } from '../../language/language-model.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import type { Table } from '../../tables/table.ts'
import type { LoggerDefinition } from '../../telemetry/loggers/logger.ts'
import { cutTurns, segmentations } from '../../world/conversations/cohort.ts'
import type { SystemDefinition } from '../../world/system.ts'
import type { BackendDefinition } from '../backends/backend.ts'
import { learnSettings } from '../recorded/learn-options.ts'
import { backendRunSettings } from './run-backends.ts'
import { engineRunSettings } from './run-engines.ts'
import { sharedRunSettings } from './settings.ts'

/** A file of rollouts, or of whole episodes. */
export interface RecordedFile {
  /** SHA-256 of its columns, in hexadecimal digits. */
  readonly sha256: string
  readonly rows: number
  /** What is in it; null before it is read, as where a run is opened that nobody trains. */
  readonly table: Table | null
}

/** What a run is told beside its environment, policy and algorithm. */
export const episodeRunSettings = {
  ...sharedRunSettings,
  weights: text('', 'safetensors file with the weights to begin with; empty: drawn by the seed'),
  from: text(
    '',
    'what to learn from: an Arrow file of rollouts or episodes, as colonnade export writes it, episodes in JSON Lines, or the folder of a dataset of Minari; empty: lanes collect them',
  ),
  epochs: learnSettings.epochs,
  totalSteps: integer(1_000_000, 'environment steps of the training', { min: 1 }),
  numLanes: integer(16, 'environments side by side', { min: 1 }),
  opponents: integer(0, 'earlier selves that the policy plays against, in a game of several agents; 0: none', {
    min: 0,
    max: 255,
  }),
  opponentsEvery: integer(20, 'updates after which the oldest of them becomes what the policy is then', { min: 1 }),
  opponentsFraction: number(0.5, 'part of the games that are against them', { above: 0, max: 1 }),
  stopWhenSolved: boolean(false, "stop once the mean of the last 100 returns reaches the environment's threshold"),
  rollouts: choice('last', ['last', 'all', 'none'], 'which rollouts are kept as Arrow files'),
  threads: integer(0, 'threads; 0: as many as have work enough, of those that the machine runs at once', {
    min: 0,
    max: 64,
  }),
  actors: integer(1, 'threads of these that collect while the others learn, where maxStaleness is above 0', {
    min: 1,
    max: 63,
  }),
} satisfies Settings

/** The values of `episodeRunSettings`. */
export type EpisodeRunSettings = SettingValues<typeof episodeRunSettings>

/** Everything such a run is made of. */
export interface EpisodeRunDefinition {
  readonly kind: 'episodes'
  readonly environment: EnvironmentDefinition
  readonly policy: PolicyDefinition
  readonly algorithm: AlgorithmDefinition
  /** What works beside the four systems, in order. */
  readonly systems: readonly SystemDefinition[]
  readonly settings: EpisodeRunSettings
  /** The file of rollouts that it learns from; null where its lanes collect. */
  readonly recorded: RecordedFile | null
  /** Who is told of each update, as the settings say. */
  readonly loggers: readonly LoggerDefinition[]
}

/** What a run of a language model is told beside its environment, model and algorithms. */
export const conversationRunSettings = {
  ...sharedRunSettings,
  mode: choice(
    'sft+rl',
    ['sft', 'rl', 'sft+rl'],
    'supervised fine-tuning, reinforcement learning, or one after the other',
  ),
  numLanes: integer(0, 'conversations side by side; 0: 64, or as many as there is memory for', { min: 0 }),
  tooLong: choice(
    'error',
    tooLongs,
    'what becomes of an example that is longer than the context: an error before the run begins, it is passed over, or cut',
  ),
  heldOutFraction: number(
    0,
    'part of the different questions (prompts) that the training never asks, and by which the model is judged at its end',
    { min: 0, below: 1 },
  ),
  heldOutSeed: integer(0, 'keys which questions are held out', { min: 0 }),
  heldOutEpisodes: integer(200, 'conversations about held-out questions at the end of the training', { min: 1 }),
  cutTurn: choice(
    'end',
    cutTurns,
    'what becomes of a conversation whose turn its budget or the context cut off, where the environment has more to say: it ends, or goes on',
  ),
  segmentation: choice(
    'interleaved',
    segmentations,
    'what becomes of the turns of a conversation: one row while each prompt begins with what stands, or a row for each turn',
  ),
  rewardReduction: choice(
    'last',
    rewardReductions,
    "what a conversation's reward is of its turns': that of the last, their sum or their mean",
  ),
  trajectories: choice('last', ['last', 'all', 'none'], 'which trajectories are kept as Arrow files'),
  threads: integer(0, 'threads; 0: as many as the machine has cores, up to 16', { min: 0, max: 64 }),
  ...engineRunSettings,
  ...backendRunSettings,
  replySeconds: number(60, "seconds after which an environment's reply counts as failed, and its reward as unknown", {
    above: 0,
  }),
  turnSeconds: number(300, 'seconds after which a turn to which the engine adds no token counts as failed', {
    above: 0,
  }),
} satisfies Settings

/** Everything a run of a language model is made of. */
export interface ConversationRunDefinition {
  readonly kind: 'conversations'
  readonly environment: TextEnvironmentDefinition
  readonly policy: LanguageModelDefinition
  readonly sft: SftDefinition | null
  readonly rl: RlDefinition | null
  readonly settings: SettingValues<typeof conversationRunSettings>
  /** Who chooses tokens, as the settings say; null is this process. */
  readonly engine: EngineDefinition | null
  /** Who learns. */
  readonly backend: BackendDefinition
  /** Who is told of each update, as the settings say. */
  readonly loggers: readonly LoggerDefinition[]
}

/** Everything a run is made of. */
export type RunDefinition = EpisodeRunDefinition | ConversationRunDefinition
