/** How a language model does: whole conversations under fixed weights, and nothing is learned. */
import { checkCount, checkGiven } from '../../../base/errors.ts'
import type { TextEnvironmentDefinition } from '../../../environments/text.ts'
import { isOfModel, type Trajectory } from '../../../tables/trajectories/trajectory.ts'
import { type ConverseOptions, converse } from '../collect/converse.ts'

/** What `evaluateText` is told. The most probable tokens are taken; with `explore` they are drawn. */
export interface TextEvaluateOptions extends ConverseOptions {
  readonly environment: TextEnvironmentDefinition
  /** How many conversations: the first of the order that the seed gives to the examples. */
  readonly episodes: number
}

/** What came of it. */
export interface TextEvaluation {
  readonly episodes: number
  /** Different questions that conversations may be about, where questions are held out; else null. */
  readonly numQuestions: number | null
  /** Of the rewards that are known; null where none is. */
  readonly reward: { readonly mean: number; readonly std: number; readonly min: number; readonly max: number } | null
  /** What rewards are made of, by name: the mean over the conversations that tell it. */
  readonly components: Readonly<Record<string, number>>
  readonly numUnknown: number
  /** Why the first of those cannot be told; null where all are known. */
  readonly firstError: string | null
  /** Tokens that the model said, on average. */
  readonly completionLength: number
  readonly stopReasons: Readonly<Record<string, number>>
  /** The first few conversations in words: the prompt, and what followed. */
  readonly samples: readonly { readonly prompt: string; readonly completion: string; readonly reward: number | null }[]
}

const NUM_SAMPLES = 5

/**
 * Lets a language model have whole conversations.
 * @throws InputError where options, model and environment do not fit, as `createWorld` does.
 */
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

/** Tokens of a row that the model chose. */
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
