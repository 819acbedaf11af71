/**
 * How a run is judged while it trains: the weights as they stand play episodes (or have conversations) that the training never sees.
 * What came of them is in the metrics lines, so a run that is resumed knows it too. The best is kept as a checkpoint, and may be a
 * reason to stop. The training itself takes no notice: it has the same bits with and without.
 */
import { InputError, show } from '../../base/errors.ts'
import { type Metrics, metric } from '../../base/metrics.ts'
import { integer, optionalNumber, type Settings, type SettingValues } from '../../base/settings.ts'
import type { CurvePoint } from '../../telemetry/curves.ts'

/** How a run is judged while it trains. */
export const judgeSettings = {
  evaluateEvery: integer(
    0,
    'updates between evaluations of the current weights, on seeds that the training does not use; the best checkpoint is kept; 0: no evaluations',
    { min: 0 },
  ),
  evaluateEpisodes: integer(20, 'episodes or conversations per evaluation', { min: 1 }),
  stopAt: optionalNumber(
    null,
    "mean of an evaluation at which the training stops, such as the environment's threshold; null: none",
  ),
  patience: integer(0, 'number of evaluations in a row without a new best after which the training stops; 0: never', {
    min: 0,
  }),
} satisfies Settings

/** The values of `judgeSettings`. */
export type JudgeSettings = SettingValues<typeof judgeSettings>

/** What the metrics lines of a run that is judged say besides, where an evaluation is due. */
export const judgeMetrics = {
  evaluation: metric(
    'returns (of conversations: known rewards) under the weights as they stand: mean, std, min, max, episodes',
    'last',
  ),
} as const satisfies Metrics

/** What an evaluation came to: of returns, or of the rewards that are known. Null where none is. */
export interface Judgment {
  readonly mean: number | null
  readonly std: number | null
  readonly min: number | null
  readonly max: number | null
  readonly episodes: number
}

/** The best evaluation so far. */
export interface BestJudgment extends Judgment {
  /** The number of the checkpoint that has its weights. */
  readonly checkpoint: number
}

/** Seeds from here on, by the update, are those of evaluations. */
const FIRST_SEED = 1_000_000

/** The seed of the evaluation after an update: another one each time, the same for all runs but one whose own seed it would be. */
export function judgeSeed(update: number, runSeed: number): number {
  const seed = FIRST_SEED + update
  return seed === runSeed ? FIRST_SEED - update : seed
}

/** @throws InputError for a reason to stop that nothing would give. */
export function checkJudging({ evaluateEvery, stopAt, patience }: JudgeSettings): void {
  if (evaluateEvery > 0) return
  const expected = (value: string) => `${value}, where evaluateEvery is 0: nothing is evaluated`
  if (stopAt !== null) throw new InputError('stopAt', show(stopAt), expected('null'))
  if (patience > 0) throw new InputError('patience', show(patience), expected('0'))
}

/** Remembers how a run was judged. */
export class Judge {
  readonly #settings: JudgeSettings
  #best: BestJudgment | null = null
  #last: Judgment | null = null
  /** Evaluations since the best. */
  #since = 0

  /** `lines`: the metrics lines of the run so far; `key`: under which they have the number of a checkpoint. */
  constructor(settings: JudgeSettings, lines: readonly Readonly<Record<string, unknown>>[], key: string) {
    this.#settings = settings
    for (const { evaluation, [key]: number } of lines) {
      if (evaluation !== undefined) this.add(number as number, evaluation as Judgment)
    }
  }

  /** Whether an evaluation is due after an update; after the last one in any case. */
  isDue(update: number, isLast: boolean): boolean {
    const { evaluateEvery } = this.#settings
    return evaluateEvery > 0 && (isLast || update % evaluateEvery === 0)
  }

  /** Takes an evaluation in; `checkpoint`: the number that a checkpoint has now. True if none before was as good. */
  add(checkpoint: number, judgment: Judgment): boolean {
    this.#last = judgment
    const { mean } = judgment
    const isBest = mean !== null && mean > (this.#best?.mean ?? Number.NEGATIVE_INFINITY)
    if (isBest) this.#best = { checkpoint, ...judgment }
    this.#since = isBest ? 0 : this.#since + 1
    return isBest
  }

  /** The best evaluation, the first of those that are equal; null before there is one. */
  get best(): BestJudgment | null {
    return this.#best
  }

  /** The newest; null before the first. */
  get last(): Judgment | null {
    return this.#last
  }

  /** Why the training is over; null where it is not. */
  get ended(): 'solved' | 'plateau' | null {
    const { evaluateEvery, stopAt, patience } = this.#settings
    if (evaluateEvery === 0 || this.#last === null) return null
    if (stopAt !== null && this.#last.mean !== null && this.#last.mean >= stopAt) return 'solved'
    return patience > 0 && this.#since >= patience ? 'plateau' : null
  }
}

/** The means of the evaluations that metrics lines tell, over one of their other figures. */
export function evaluationPoints(
  lines: readonly { readonly evaluation?: Judgment; readonly [name: string]: unknown }[],
  over: string,
): CurvePoint[] {
  return lines.flatMap(({ evaluation, [over]: x }) =>
    typeof evaluation?.mean === 'number' && typeof x === 'number' ? [{ x, y: evaluation.mean }] : [],
  )
}
