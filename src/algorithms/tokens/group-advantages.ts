/** Custom advantages: a function of a group's answers in place of the kernel `groupAdvantage`. */
import { InputError, show } from '../../base/errors.ts'
import { Standing, type TokenSpans } from '../../kernels/bind.ts'

/** An answer with a known reward. */
export interface RewardedAnswer {
  /** After the penalties of the loss's settings. */
  readonly reward: number
  /** Number of its trained tokens. */
  readonly numTokens: number
}

/** Returns one advantage per answer of a group; NaN excludes an answer. */
export type GroupAdvantages = (group: readonly RewardedAnswer[]) => ArrayLike<number>

interface Trajectories {
  readonly shapedReward: Float64Array
  readonly known: Uint8Array
  readonly group: Int32Array
  readonly lossMask: Uint8Array
  readonly spans: TokenSpans
}

/**
 * Writes the advantages of all groups and the standing of their members; an excluded member counts as alone. Members with an unknown
 * reward are not changed.
 * @throws InputError for another number of advantages and for one that is infinite.
 */
export function writeGroupAdvantages(
  id: string,
  advantagesOf: GroupAdvantages,
  { advantage, standing }: { readonly advantage: Float64Array; readonly standing: Uint8Array },
  { shapedReward, known, group, lossMask, spans }: Trajectories,
): void {
  const groups = new Map<number, number[]>()
  for (let i = 0; i < spans.begin.length; i++) {
    if (known[i] === 0) continue
    const members = groups.get(group[i]!)
    if (members === undefined) groups.set(group[i]!, [i])
    else members.push(i)
  }
  for (const members of groups.values()) {
    const answers = members.map((i) => ({ reward: shapedReward[i]!, numTokens: countOf(lossMask, spans, i) }))
    const values = advantagesOf(answers)
    if (values?.length !== members.length) {
      const got = typeof values?.length === 'number' ? `${values.length} numbers` : show(values)
      throw new InputError(`advantages of ${id}`, got, `${members.length} numbers, one per answer of the group`)
    }
    for (const [k, i] of members.entries()) {
      const value = values[k]!
      const isLeftOut = Number.isNaN(value)
      if (!isLeftOut && !Number.isFinite(value)) {
        throw new InputError(`advantages of ${id}`, show(value), 'finite numbers, or NaN to exclude an answer')
      }
      advantage[i] = isLeftOut ? 0 : value
      standing[i] = isLeftOut ? Standing.alone : Standing.learns
    }
  }
}

function countOf(lossMask: Uint8Array, { begin, end }: TokenSpans, i: number): number {
  let count = 0
  for (let t = begin[i]!; t < end[i]!; t++) count += lossMask[t]!
  return count
}
