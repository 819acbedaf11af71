/**
 * Metrics are numbers that an update tells. Whoever makes one declares it once: its unit, a sentence, and how the values of
 * an update's minibatches become one. What an update tells, `metrics.jsonl`, the help and the checks all come from that
 * declaration.
 *
 * What `learn` returns is compared with the declaration: a metric that is missing, or that is not declared, is an error
 * with its name.
 */
import { InputError, show, unknownWord } from './errors.ts'

/**
 * How the values of an update's minibatches become one: `rowMean`, the mean over all rows, where each minibatch gives the sum
 * over its own; `minibatchMean`, the mean over minibatches; `last`, the last one.
 */
export const reductions = ['rowMean', 'minibatchMean', 'last'] as const

/** One of `reductions`. */
export type Reduction = (typeof reductions)[number]

/** One metric. */
export interface Metric {
  /** Like `nats` or `s`; null where it is a mere number. */
  readonly unit: string | null
  /** One sentence, or a phrase, that describes the metric. */
  readonly description: string
  readonly reduction: Reduction
}

/** Declares a metric; without a unit it is a mere number. */
export function metric(description: string, reduction: Reduction, unit: string | null = null): Metric {
  return { unit, description, reduction }
}

/** A declaration of metrics by name. */
export type Metrics = Readonly<Record<string, Metric>>

/** A number for each metric of a declaration. */
export type MetricValues<M extends Metrics> = { readonly [K in keyof M]: number }

/**
 * Checks a declaration of metrics; `subject` names the owner in errors (`ppo metrics`).
 * @throws InputError that names the first metric that is none.
 */
export function checkMetrics(subject: string, declared: Metrics): void {
  if (typeof declared !== 'object' || declared === null || Array.isArray(declared))
    throw new InputError(subject, show(declared), 'an object of metrics by name; {} where there are none')
  for (const [name, metric] of Object.entries(declared)) {
    const { unit, description, reduction, ...others } = metric ?? {}
    const isMetric =
      (unit === null || typeof unit === 'string') && typeof description === 'string' && description !== ''
    if (!isMetric) throw new InputError(`${subject} ${name}`, show(metric), '{ unit, description, reduction }')
    if (!reductions.includes(reduction)) throw unknownWord(`${subject} ${name}.reduction`, reduction, reductions)
    for (const key of Object.keys(others)) {
      throw unknownWord(`${subject} ${name}`, key, ['unit', 'description', 'reduction'])
    }
  }
}

/**
 * Refuses values that are not those that were declared; `subject` names the owner in errors (`ppo metrics`).
 * @throws InputError that names the first metric that is missing, is not declared, or is not a number (NaN is one).
 */
export function checkMetricValues(subject: string, declared: Metrics, values: unknown): void {
  if (typeof values !== 'object' || values === null)
    throw new InputError(subject, show(values), 'an object with a number for each metric')
  for (const name of Object.keys(declared)) {
    const value = (values as Record<string, unknown>)[name]
    if (typeof value !== 'number') throw new InputError(`${subject} ${name}`, show(value), 'a number')
  }
  checkMetricNames(subject, declared, values)
}

/**
 * The same of values that need not be numbers, like figures by name, or null for one that cannot be told.
 * @throws InputError that names the first metric that is missing, or is not declared.
 */
export function checkMetricNames(subject: string, declared: Metrics, values: object): void {
  for (const name of Object.keys(declared)) {
    if ((values as Record<string, unknown>)[name] !== undefined) continue
    throw new InputError(`${subject} ${name}`, 'nothing', 'a value, or null where there is none')
  }
  for (const name of Object.keys(values)) {
    if (!Object.hasOwn(declared, name)) throw unknownWord(subject, name, Object.keys(declared))
  }
}

/** The metrics of an update while its minibatches come in. */
export class MetricTotals<M extends Metrics> {
  readonly #declared: readonly (readonly [string, Reduction])[]
  readonly #places: ReadonlyMap<string, number>
  readonly #totals: Float64Array
  readonly #counts: Float64Array

  constructor(metrics: M) {
    this.#declared = Object.entries(metrics).map(([name, { reduction }]) => [name, reduction])
    this.#places = new Map(this.#declared.map(([name], place) => [name, place]))
    this.#totals = new Float64Array(this.#declared.length)
    this.#counts = new Float64Array(this.#declared.length)
  }

  /** Begins an update. */
  clear(): void {
    this.#totals.fill(0)
    this.#counts.fill(0)
  }

  /**
   * Takes in what a minibatch says of a metric. Of a `rowMean` that is the sum over its rows, and `numRows` says how many.
   * @throws InputError for a metric that is not declared.
   */
  add(name: keyof M & string, value: number, numRows = 1): void {
    const place = this.#places.get(name)
    if (place === undefined) throw unknownWord('metric', name, [...this.#places.keys()])
    const reduction = this.#declared[place]![1]
    if (reduction === 'last') {
      this.#totals[place] = value
      this.#counts[place] = 1
      return
    }
    this.#totals[place] = this.#totals[place]! + value
    this.#counts[place] = this.#counts[place]! + (reduction === 'rowMean' ? numRows : 1)
  }

  /** The metrics of the update; NaN for a metric without values. */
  values(): MetricValues<M> {
    return Object.fromEntries(
      this.#declared.map(([name], place) => [name, this.#totals[place]! / this.#counts[place]!]),
    ) as MetricValues<M>
  }
}

/** A whole number with commas between its thousands: 1,234,567. `toLocaleString` would first load every language's: 15 ms and more. */
export function group(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',')
}
