/** Evaluates a language model: whole conversations with fixed weights. */
import { checkCount, checkGiven } from '../../../base/errors.ts'
import type { TextEnvironmentDefinition } from '../../../environments/text.ts'
import { isOfModel, type Trajectory } from '../../../tables/trajectories/trajectory.ts'
import { type ConverseOptions, converse } from '../collect/converse.ts'

/** Options of `evaluateText`. Takes the most probable tokens; `explore` samples. */
export interface TextEvaluateOptions extends ConverseOptions {
  readonly environment: TextEnvironmentDefinition
  /** Number of conversations, from the start of the examples' seeded order. */
  readonly episodes: number
}

/** The result of `evaluateText`. */
export interface TextEvaluation {
  readonly episodes: number
  /** Number of distinct questions if some are held out; otherwise null. */
  readonly numQuestions: number | null
  /** Statistics of the known rewards; null without any. */
  readonly reward: { readonly mean: number; readonly std: number; readonly min: number; readonly max: number } | null
  /** Means of reward components, by name, over the conversations that have them. */
  readonly components: Readonly<Record<string, number>>
  readonly numUnknown: number
  /** The error of the first unknown reward; null if all are known. */
  readonly firstError: string | null
  /** Mean number of the model's tokens. */
  readonly completionLength: number
  readonly stopReasons: Readonly<Record<string, number>>
  /** The first few conversations as text: the prompt, and what followed. */
  readonly samples: readonly { readonly prompt: string; readonly completion: string; readonly reward: number | null }[]
}

const NUM_SAMPLES = 5

/** Evaluates a language model by whole conversations. @throws InputError as `createWorld` does. */
export async function evaluateText(options: TextEvaluateOptions): Promise<TextEvaluation> {
  checkGiven('options of evaluateText', options, ['environment', 'episodes', 'policy'])
  const { episodes } = options
  checkCount('episodes', episodes)
  const { tokenizer, conversed, numQuestions } = await converse({ seed: 10_000, explore: false, ...options })
  const last = conversed.map(({ rows }) => rows.at(-1)!)
  const rewards = last.flatMap(({ reward }) => (reward === null ? [] : [reward]))
  const mean = rewards.reduce((sum, value) => sum + value, 0) / rewards.length
  const said = conversed.flatMap(({ rows }) => rows).reduce((sum, row) => sum + countOfModel(row), 0)
  const reasons: Record<string, number> = {}
  for (const { stopReason } of last) reasons[stopReason] = (reasons[stopReason] ?? 0) + 1
  return {
    episodes,
    numQuestions,
    reward:
      rewards.length === 0
        ? null
        : {
            mean,
            std: Math.sqrt(rewards.reduce((sum, value) => sum + (value - mean) ** 2, 0) / rewards.length),
            min: rewards.reduce((least, value) => Math.min(least, value)),
            max: rewards.reduce((most, value) => Math.max(most, value)),
          },
    components: meanComponents(last),
    numUnknown: last.length - rewards.length,
    firstError: last.find(({ error }) => error !== null)?.error ?? null,
    completionLength: said / last.length,
    stopReasons: reasons,
    samples: conversed.slice(0, NUM_SAMPLES).map(({ rows, promptIds, completion }) => ({
      prompt: tokenizer.decode(promptIds),
      completion,
      reward: rows[0]!.reward,
    })),
  }
}

/** Number of a row's tokens that the model chose. */
function countOfModel({ token, lossMask, version }: Trajectory): number {
  let count = 0
  for (let t = 0; t < token.length; t++) if (isOfModel(lossMask, version, t)) count++
  return count
}

function meanComponents(conversations: readonly Trajectory[]): Record<string, number> {
  const names = [...new Set(conversations.flatMap(({ components }) => Object.keys(components)))]
  const means: Record<string, number> = {}
  for (const name of names) {
    const values = conversations.flatMap(({ components }) => components[name] ?? [])
    if (values.length > 0) means[name] = values.reduce((sum, value) => sum + value, 0) / values.length
  }
  return means
}
