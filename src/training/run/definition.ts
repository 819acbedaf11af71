/** The definitions and settings of both kinds of run. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import type { SftDefinition } from '../../algorithms/tokens/sft.ts'
import { boolean, choice, integer, number, type Settings, type SettingValues, text } from '../../base/settings.ts'
import type { EngineDefinition } from '../../engines/engine.ts'
import { engineRunSettings } from '../../engines/find-engine.ts'
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
import { backendRunSettings } from '../backends/find-backend.ts'
import { learnSettings } from '../recorded/learn-options.ts'
import { fleetRunSettings } from './fleet-settings.ts'
import { sharedRunSettings } from './settings.ts'

/** A file of rollouts or whole episodes. */
export interface RecordedFile {
  /** SHA-256 of its columns, in hexadecimal. */
  readonly sha256: string
  readonly rows: number
  /** Its content; null before it is read, for example in a run that is opened without training. */
  readonly table: Table | null
}

/** Settings of a run besides its environment, policy and algorithm. */
export const episodeRunSettings = {
  ...sharedRunSettings,
  weights: text('', 'safetensors file with the initial weights; empty: random, by the seed'),
  from: text(
    '',
    'recorded data to learn from: an Arrow file of rollouts or episodes from colonnade export, episodes in JSON Lines, or the folder of a Minari dataset; empty: lanes collect data',
  ),
  epochs: learnSettings.epochs,
  totalSteps: integer(1_000_000, 'environment steps of the training', { min: 1 }),
  numLanes: integer(16, 'lanes: environments that run side by side', { min: 1 }),
  opponents: integer(
    0,
    'number of earlier versions of the policy that it plays against, in a game of several players; 0: none',
    {
      min: 0,
      max: 255,
    },
  ),
  opponentsEvery: integer(20, 'updates between replacements of the oldest of these versions by the current weights', {
    min: 1,
  }),
  opponentsFraction: number(0.5, 'fraction of the games that are against earlier versions', { above: 0, max: 1 }),
  stopWhenSolved: boolean(false, "stop once the mean of the last 100 returns reaches the environment's threshold"),
  rollouts: choice('last', ['last', 'all', 'none'], 'which rollouts to keep as Arrow files'),
  threads: integer(0, "number of threads; 0: as many as have enough work, up to the machine's cores", {
    min: 0,
    max: 64,
  }),
  actors: integer(
    1,
    'threads that collect while the others learn, if maxStaleness is above 0; with a fleet: number of parts into which a rollout is divided among actors',
    { min: 1, max: 63 },
  ),
  ...fleetRunSettings,
} satisfies Settings

export type EpisodeRunSettings = SettingValues<typeof episodeRunSettings>

/** A run of episodes: its definitions and settings. */
export interface EpisodeRunDefinition {
  readonly kind: 'episodes'
  readonly environment: EnvironmentDefinition
  readonly policy: PolicyDefinition
  readonly algorithm: AlgorithmDefinition
  /** Systems besides the four, in order. */
  readonly systems: readonly SystemDefinition[]
  readonly settings: EpisodeRunSettings
  /** The file of rollouts to learn from; null if lanes collect. */
  readonly recorded: RecordedFile | null
  readonly loggers: readonly LoggerDefinition[]
}

/** Settings of a language model's run besides its environment, model and algorithms. */
export const conversationRunSettings = {
  ...sharedRunSettings,
  mode: choice(
    'sft+rl',
    ['sft', 'rl', 'sft+rl'],
    'sft: training on given answers (supervised fine-tuning, or preferences, see sft.loss); rl: reinforcement learning; sft+rl: first sft, then rl',
  ),
  numLanes: integer(0, 'lanes: conversations that run side by side; 0: 64, or as many as fit in memory', { min: 0 }),
  tooLong: choice(
    'error',
    tooLongs,
    'what to do with an example longer than the context: end with an error before the training, skip it, or cut it',
  ),
  heldOutFraction: number(
    0,
    'fraction of the distinct prompts that are held out of the training and used to evaluate the model at its end',
    { min: 0, below: 1 },
  ),
  heldOutSeed: integer(0, 'seed of the choice of held-out questions', { min: 0 }),
  heldOutEpisodes: integer(200, 'conversations with held-out questions at the end of the training', { min: 1 }),
  cutTurn: choice(
    'end',
    cutTurns,
    'what follows a turn that the token budget or the context cuts off, if the environment has more turns: the conversation ends or continues',
  ),
  segmentation: choice(
    'interleaved',
    segmentations,
    'rows of a conversation: interleaved: one row as long as each prompt extends the last one; branching: one row per turn',
  ),
  rewardReduction: choice(
    'last',
    rewardReductions,
    'reward of a conversation from the rewards of its turns: the last, the sum or the mean',
  ),
  trajectories: choice('last', ['last', 'all', 'none'], 'which trajectories to keep as Arrow files'),
  threads: integer(0, 'threads; 0: one per core, up to 16', { min: 0, max: 64 }),
  actors: integer(1, "with a fleet: parts of an update's groups that are collected at once", { min: 1 }),
  ...fleetRunSettings,
  ...engineRunSettings,
  ...backendRunSettings,
  agent: text(
    '',
    "program that conducts each conversation with the model: a command, like 'python3 agent.py', or a module for Node, like agent.mjs; empty: the environment conducts them",
  ),
  agentSeconds: number(600, 'seconds after which an agent is stopped and its reward counts as unknown', {
    above: 0,
    max: 1_000_000,
  }),
  maxAgents: integer(32, 'maximum of agents that run at the same time', { min: 1 }),
  replySeconds: number(
    60,
    'seconds without a reply after which an environment counts as failed and its reward as unknown',
    {
      above: 0,
    },
  ),
  turnSeconds: number(300, 'seconds without a new token after which a turn counts as failed', {
    above: 0,
  }),
} satisfies Settings

/** The definition of a language model's run. */
export interface ConversationRunDefinition {
  readonly kind: 'conversations'
  readonly environment: TextEnvironmentDefinition
  readonly policy: LanguageModelDefinition
  readonly sft: SftDefinition | null
  readonly rl: RlDefinition | null
  readonly settings: SettingValues<typeof conversationRunSettings>
  /** The engine of the settings; null for this process. */
  readonly engine: EngineDefinition | null
  readonly backend: BackendDefinition
  readonly loggers: readonly LoggerDefinition[]
}

/** A run of episodes or of a language model. */
export type RunDefinition = EpisodeRunDefinition | ConversationRunDefinition
