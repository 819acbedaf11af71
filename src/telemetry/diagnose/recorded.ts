/** A run as its folder records it, for checks: settings by key, and the figures of its updates. */
import type { SettingValue } from '../../base/settings.ts'
import { createEnvironment, listEnvironments } from '../../environments/registry.ts'
import { figureIn } from '../metrics-lines.ts'

/** Stretches into which the updates of a run are divided. */
export const STRETCHES = 8

/** A figure over consecutive updates. */
export interface Stretch {
  readonly metric: string
  /** The first and last update, from 1. */
  readonly first: number
  readonly last: number
  readonly mean: number
  /** Standard deviation between the updates. */
  readonly std: number
}

/** A setting of a run, with its key on the command line. */
export interface KnownSetting {
  readonly key: string
  readonly value: SettingValue
}

type Line = Readonly<Record<string, unknown>>
type Part = { readonly id?: string; readonly parameters?: Readonly<Record<string, SettingValue | Line>> }

/** How the return (for conversations the reward) of a run went. */
export interface Progress {
  readonly first: Stretch
  /** The stretch with the highest mean. */
  readonly best: Stretch
  readonly last: Stretch
  /**
   * Whether the best is clearly above the first: by 5 % of the way to the threshold. Without a threshold by a tenth of
   * its size, or a twentieth for rewards of conversations, which are means of many more.
   */
  readonly hasRisen: boolean
  /** Whether the end is as good as the environment is known to allow. */
  readonly isAtTop: boolean
}

/** What a check reads. */
export class RecordedRun {
  readonly kind: 'episodes' | 'conversations'
  readonly environment: string
  /** Like `ppo`, or `grpo`, the loss of a language model. */
  readonly algorithm: string
  /** Whether it began with trained weights, so that it need not become better. */
  readonly beganTrained: boolean
  /** The return at which the environment counts as solved; null if that is not known. */
  readonly threshold: number | null
  /** Updates with a line; for a language model those of reinforcement learning. */
  readonly updates: number
  readonly #lines: readonly Line[]
  readonly #key: string
  readonly #parameters: ReadonlyMap<string, SettingValue>

  constructor(config: Line, lines: readonly Line[]) {
    const part = (name: string) => (config[name] ?? {}) as Part
    this.kind = Object.hasOwn(config, 'sft') ? 'conversations' : 'episodes'
    const learner = part(this.kind === 'episodes' ? 'algorithm' : 'rl')
    const { lossSettings, ...parameters } = learner.parameters ?? {}
    const prefix = learner.id ?? 'algorithm'
    const keyed = (prefix: string, values: object) =>
      Object.entries(values).map(([name, value]) => [`${prefix}.${name}`, value] as [string, SettingValue])
    this.#parameters = new Map([...keyed(prefix, parameters), ...keyed('loss', Object(lossSettings))])
    this.environment = part('environment').id ?? 'unknown'
    this.algorithm = this.kind === 'episodes' ? prefix : String(parameters.loss ?? 'sft')
    const { weights = '', from = '' } = (config.settings ?? {}) as { weights?: string; from?: string }
    const { folder = '' } = part('policy').parameters ?? {}
    this.beganTrained = weights !== '' || from !== '' || folder !== ''
    this.threshold = thresholdOf(config.environment as Part & { module?: unknown; wrappers?: unknown })
    this.#lines = this.kind === 'episodes' ? lines : lines.filter(({ phase }) => phase === 'rl')
    this.#key = this.kind === 'episodes' ? 'update' : 'step'
    this.updates = this.#lines.length
  }

  /** A setting of the algorithm or its loss by its name alone, like `learningRate`; null if it has none. */
  setting(name: string): KnownSetting | null {
    const found = [...this.#parameters].find(([key]) => key.endsWith(`.${name}`))
    return found === undefined ? null : { key: found[0], value: found[1] }
  }

  /** The metric that learning should raise. */
  get goal(): 'episodeReturn' | 'reward' {
    return this.kind === 'episodes' ? 'episodeReturn' : 'reward'
  }

  /** The known values of a metric, like `entropy` or `components/exact`, and their updates. */
  values(metric: string): { readonly update: number; readonly value: number }[] {
    return this.#lines.flatMap((line) => {
      const value = figureIn(line, metric)
      return value === undefined ? [] : [{ update: Number(line[this.#key]), value }]
    })
  }

  /** The means of a metric over eighths of the updates that have it, in order; fewer if fewer have it. */
  stretches(metric: string): Stretch[] {
    const values = this.values(metric)
    const count = Math.min(STRETCHES, values.length)
    return Array.from({ length: count }, (_, i) => {
      const [from, to] = [i, i + 1].map((eighth) => Math.floor((eighth * values.length) / count))
      return stretchOf(metric, values.slice(from, to))
    })
  }

  /** The stretch with the highest mean of a metric that the run has, the first of equals. */
  highest(metric: string): Stretch {
    return highestOf(this.stretches(metric))
  }

  /** The last stretch of a metric that the run has. */
  last(metric: string): Stretch {
    return this.stretches(metric).at(-1)!
  }

  /** A metric in the updates of another's stretch; null if it has no value there. */
  during(metric: string, { first, last }: Stretch): Stretch | null {
    const values = this.values(metric).filter(({ update }) => update >= first && update <= last)
    return values.length === 0 ? null : stretchOf(metric, values)
  }

  /** Whether a metric, or one below its name, has a value in any update. */
  has(metric: string): boolean {
    const all = [metric, ...this.namesIn(metric).map((name) => `${metric}/${name}`)]
    return all.some((each) => this.values(each).length > 0)
  }

  /** The names below an object of metrics, like those of `components`. */
  namesIn(metric: string): string[] {
    const names = this.#lines.flatMap((line) => Object.keys(Object(line[metric])))
    return [...new Set(names)]
  }

  /** Null while fewer than two stretches are known. */
  get progress(): Progress | null {
    const stretches = this.stretches(this.goal)
    const [first] = stretches
    const last = stretches.at(-1)
    if (first === undefined || last === undefined || first === last) return null
    const best = highestOf(stretches)
    const { threshold } = this
    const clear = Math.abs(first.mean) * (this.kind === 'episodes' ? 0.1 : 0.05)
    const way = threshold === null ? clear : Math.max(0, threshold - first.mean) / 20
    const top = threshold ?? this.#bestGroup()
    // The best group is one of many: the mean never quite reaches it.
    const isAtTop = top !== null && last.mean >= top - 0.1 * Math.abs(top)
    return { first, best, last, hasRisen: best.mean - first.mean > way, isAtTop }
  }

  /** The highest mean reward of a group of conversations; null without any, or if nothing ever differed. */
  #bestGroup(): number | null {
    const groups = this.#lines.flatMap(({ groupRewards }) => (Array.isArray(groupRewards) ? groupRewards : []))
    const [least, most] = groups.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
    ] as [number, number])
    return most > least ? most : null
  }
}

function highestOf(stretches: readonly Stretch[]): Stretch {
  return stretches.reduce((highest, each) => (each.mean > highest.mean ? each : highest))
}

function stretchOf(metric: string, values: readonly { readonly update: number; readonly value: number }[]): Stretch {
  const mean = values.reduce((sum, { value }) => sum + value, 0) / values.length
  const variance = values.reduce((sum, { value }) => sum + (value - mean) ** 2, 0) / values.length
  return { metric, first: values[0]!.update, last: values.at(-1)!.update, mean, std: Math.sqrt(variance) }
}

/** Only of built-in environments without wrappers: modules are not run, and wrappers change returns. */
function thresholdOf(environment: (Part & { module?: unknown; wrappers?: unknown }) | undefined): number | null {
  const { id, parameters, wrappers } = environment ?? {}
  if (id === undefined || wrappers !== undefined || !listEnvironments().includes(id)) return null
  return createEnvironment({ id, ...(parameters && { parameters }) }).returnThreshold
}
