/**
 * Evaluates a run while it trains: the current weights play episodes (or have conversations) on seeds that the training
 * never uses. Results are written to the metrics lines, so that resumed runs know them. The best weights are kept as a
 * checkpoint, and results may stop the training. The training's bits do not depend on evaluations.
 */
import { InputError, show } from '../../base/errors.ts'
import { type Formula, readFormula } from '../../base/expressions/formula.ts'
import { type Metrics, metric } from '../../base/metrics.ts'
import { integer, optionalNumber, type Settings, type SettingValues, text } from '../../base/settings.ts'
import type { CurvePoint } from '../../telemetry/curves.ts'
import { figureIn } from '../../telemetry/metrics-lines.ts'

export const judgeSettings = {
  evaluateEvery: integer(
    0,
    'updates between evaluations of the current weights, on seeds that the training does not use; the best checkpoint is kept; 0: no evaluations',
    { min: 0 },
  ),
  evaluateEpisodes: integer(20, 'episodes or conversations per evaluation', { min: 1 }),
  stopAt: optionalNumber(
    null,
    "mean return or reward of an evaluation that ends the training, such as the environment's threshold; null: none",
  ),
  stop: text(
    '',
    'condition on the metrics of an update that ends the training, like `episodeReturn >= 475 and approxKl < 0.05`; write a dot before a field of a metric: evaluation.mean; empty: none',
  ),
  patience: integer(0, 'number of evaluations in a row without a new best that end the training; 0: never', {
    min: 0,
  }),
} satisfies Settings

export type JudgeSettings = SettingValues<typeof judgeSettings>

/** Additional metrics of a run with evaluations, when one is due. */
export const judgeMetrics = {
  evaluation: metric(
    'returns (for conversations: known rewards) under the current weights: mean, std, min, max, episodes',
    'last',
  ),
} as const satisfies Metrics

/** Statistics of an evaluation's returns, or known rewards. Null without any. */
export interface Judgment {
  readonly mean: number | null
  readonly std: number | null
  readonly min: number | null
  readonly max: number | null
  readonly episodes: number
}

export interface BestJudgment extends Judgment {
  readonly checkpoint: number
}

/** Evaluations use seeds from here on, by update. */
const FIRST_SEED = 1_000_000

/** The seed of the evaluation after an update. It differs each time and from the run's seed. */
export function judgeSeed(update: number, runSeed: number): number {
  const seed = FIRST_SEED + update
  return seed === runSeed ? FIRST_SEED - update : seed
}

/** @throws InputError for a stop condition without evaluations. */
export function checkJudging({ evaluateEvery, stopAt, patience }: JudgeSettings): void {
  if (evaluateEvery > 0) return
  const expected = (value: string) => `${value} with evaluateEvery 0: no evaluations`
  if (stopAt !== null) throw new InputError('stopAt', show(stopAt), expected('null'))
  if (patience > 0) throw new InputError('patience', show(patience), expected('0'))
}

/** The names of metrics that a formula may have: of evaluations, their figures. */
function figuresOf(metrics: readonly string[]): string[] {
  const parts = ['mean', 'std', 'min', 'max', 'episodes'] satisfies (keyof Judgment)[]
  return metrics.flatMap((name) => (name === 'evaluation' ? parts.map((part) => `evaluation.${part}`) : [name]))
}

/** Whether a name is a figure of a line, or of a metric that the line lacks. */
function mayBeFigure(line: Readonly<Record<string, unknown>>, name: string): boolean {
  const [first, ...parts] = name.split('.')
  let value = line[first!] ?? null
  for (const part of parts) {
    if (value === null) return true
    if (typeof value !== 'object' || !Object.hasOwn(value, part)) return false
    value = (value as Readonly<Record<string, unknown>>)[part] ?? null
  }
  return typeof value !== 'object' || value === null
}

export class Judge {
  readonly #settings: JudgeSettings
  /** The best evaluation, the first of equals; null without any. */
  best: BestJudgment | null = null
  /** The newest; null before the first. */
  last: Judgment | null = null
  #since = 0
  readonly #stop: Formula | null
  #isStopped = false
  #isWarned = false

  /**
   * `lines`: the run's metrics lines so far; `key`: their field with the checkpoint number; `metrics`: the names of all that lines may have.
   * @throws InputError for a formula of other metrics.
   */
  constructor(
    settings: JudgeSettings,
    lines: readonly Readonly<Record<string, unknown>>[],
    key: string,
    metrics: readonly string[],
  ) {
    this.#settings = settings
    this.#stop = settings.stop === '' ? null : readFormula('stop', settings.stop, figuresOf(metrics))
    if (this.#stop?.names.length === 0)
      throw new InputError('stop', show(settings.stop), 'a formula with a metric, like episodeReturn >= 475')
    for (const line of lines) {
      const { evaluation, [key]: number } = line
      if (evaluation !== undefined) this.add(number as number, evaluation as Judgment)
      this.see(line)
    }
  }

  /**
   * Sees the metrics of an update. What one says of the end holds until the next. Returns a warning about the first name of the formula
   * that is no figure of its metric; null without one.
   */
  see(line: Readonly<Record<string, unknown>>): string | null {
    if (this.#stop === null) return null
    const value = this.#stop((name) => figureIn(line, name.replaceAll('.', '/')))
    this.#isStopped = value !== 0 && !Number.isNaN(value)
    const wrong = this.#isWarned ? undefined : this.#stop.names.find((name) => !mayBeFigure(line, name))
    if (wrong === undefined) return null
    this.#isWarned = true
    return `stop: ${wrong} is no figure of this update, so that no comparison with it is true; the metrics are in metrics.jsonl`
  }

  /** Whether an evaluation is due after an update; always after the last. */
  isDue(update: number, isLast: boolean): boolean {
    const { evaluateEvery } = this.#settings
    return evaluateEvery > 0 && (isLast || update % evaluateEvery === 0)
  }

  /** Adds an evaluation; `checkpoint` is the number of one written now. Returns true for the best so far. */
  add(checkpoint: number, judgment: Judgment): boolean {
    this.last = judgment
    const { mean } = judgment
    const isBest = mean !== null && mean > (this.best?.mean ?? Number.NEGATIVE_INFINITY)
    if (isBest) this.best = { checkpoint, ...judgment }
    this.#since = isBest ? 0 : this.#since + 1
    return isBest
  }

  /** Why the training should stop; null if it should not. */
  get ended(): 'solved' | 'plateau' | 'stopped' | null {
    if (this.#isStopped) return 'stopped'
    const { evaluateEvery, stopAt, patience } = this.#settings
    if (evaluateEvery === 0 || this.last === null) return null
    if (stopAt !== null && this.last.mean !== null && this.last.mean >= stopAt) return 'solved'
    return patience > 0 && this.#since >= patience ? 'plateau' : null
  }
}

/** The means of the evaluations in metrics lines, over another of their fields. */
export function evaluationPoints(
  lines: readonly { readonly evaluation?: Judgment; readonly [name: string]: unknown }[],
  over: string,
): CurvePoint[] {
  return lines.flatMap(({ evaluation, [over]: x }) =>
    typeof evaluation?.mean === 'number' && typeof x === 'number' ? [{ x, y: evaluation.mean }] : [],
  )
}
