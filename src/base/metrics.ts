/**
 * Metrics are numbers of an update. Each is declared once: its unit, a sentence, and how an update's minibatches are
 * reduced. Updates, `metrics.jsonl`, help and checks use that declaration. A metric from `learn` that is missing or
 * undeclared is an error.
 */
import { InputError, show, unknownWord } from './errors.ts'

/** `rowMean`: mean over rows, from minibatches' sums; `minibatchMean`: over minibatches; `last`: the last one's. */
export const reductions = ['rowMean', 'minibatchMean', 'last'] as const

/** One of `reductions`. */
export type Reduction = (typeof reductions)[number]

/** The declaration of one metric. */
export interface Metric {
  /** Like `nats` or `s`; null for a plain number. */
  readonly unit: string | null
  readonly description: string
  readonly reduction: Reduction
}

/** Declares a metric; without a unit it is a plain number. */
export function metric(description: string, reduction: Reduction, unit: string | null = null): Metric {
  return { unit, description, reduction }
}

/** Declarations of metrics by name. */
export type Metrics = Readonly<Record<string, Metric>>

export type MetricValues<M extends Metrics> = { readonly [K in keyof M]: number }

/** Checks a declaration of metrics; `subject` is like `ppo metrics`. @throws InputError with the first invalid one. */
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

/** Checks values against their declaration. @throws InputError for a missing, undeclared or non-numeric one. */
export function checkMetricValues(subject: string, declared: Metrics, values: unknown): void {
  if (typeof values !== 'object' || values === null)
    throw new InputError(subject, show(values), 'an object with a number for each metric')
  for (const name of Object.keys(declared)) {
    const value = (values as Record<string, unknown>)[name]
    if (typeof value !== 'number') throw new InputError(`${subject} ${name}`, show(value), 'a number')
  }
  checkMetricNames(subject, declared, values)
}

/** The same for values of any type, or null if unknown. @throws InputError for a missing or undeclared one. */
export function checkMetricNames(subject: string, declared: Metrics, values: object): void {
  for (const name of Object.keys(declared)) {
    if ((values as Record<string, unknown>)[name] !== undefined) continue
    throw new InputError(`${subject} ${name}`, 'nothing', 'a value, or null if there is none')
  }
  for (const name of Object.keys(values)) {
    if (!Object.hasOwn(declared, name)) throw unknownWord(subject, name, Object.keys(declared))
  }
}

/** The metrics of an update, summed over its minibatches. */
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

  clear(): void {
    this.#totals.fill(0)
    this.#counts.fill(0)
  }

  /** Adds a minibatch's value; for `rowMean` a sum over `numRows` rows. @throws InputError for an undeclared metric. */
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

/** An integer with thousands separators: 1,234,567. `toLocaleString` would first load all locales: 15 ms and more. */
export function group(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',')
}

/** A number with three digits. */
export function short(value: number): string {
  return Math.abs(value) < 1e6 ? String(Number(value.toPrecision(3))) : value.toExponential(2)
}
