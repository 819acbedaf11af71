/** Bookkeeping of the groups in a cohort's log, for collectors: admission, completion, ages, and free rows. */

import type { RlDefinition } from '../../../algorithms/tokens/rl.ts'
import { warn } from '../../../base/host.ts'
import { Admission, type Delivery, type FailurePolicy, type Ticket } from '../../../fleet/admission.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import type { AgeSpread, CollectorProgress, SavedCollector } from '../../loop/collector.ts'
import { isFresh, refusalOf, rowsOfGroup } from './group-filter.ts'

const NOTHING = { drops: {}, rolloutAgeSeconds: { mean: 0, max: 0, counts: [] }, queueDepth: 0, lanesIdleSeconds: 0 }

/** A warning follows if more than this fraction of the groups is dropped as stale, over at least so many batches. */
const STALE_FRACTION = 0.1
const STALE_BATCHES = 4

/** The spread of one or more ages in seconds. */
export function spreadOfAges(ages: readonly number[]): AgeSpread {
  const max = Math.max(...ages)
  const binOf = (age: number) => (age < 1 ? 0 : 1 + Math.floor(Math.log2(age)))
  const counts = new Array<number>(1 + binOf(max)).fill(0)
  for (const age of ages) counts[binOf(age)]!++
  return { mean: ages.reduce((sum, age) => sum + age, 0) / ages.length, max, counts }
}

export class LoggedGroups {
  readonly admission: Admission
  readonly #cohort: ConversationCohort
  readonly #rl: RlDefinition
  /** Start time of each group that is neither learned from nor dropped, in ms. */
  readonly #began = new Map<number, number>()
  #delivery: Delivery | null = null
  told: Omit<CollectorProgress, 'ticks'> = NOTHING
  /** Groups that were learned from, or dropped as stale; null after a warning. */
  #counts: { learned: number; stale: number } | null = { learned: 0, stale: 0 }

  constructor(cohort: ConversationCohort, rl: RlDefinition, failure: FailurePolicy) {
    const { groupsPerUpdate: groupsPerBatch, groupSize, dropsMax, updates } = rl.settings
    const { maxStaleness, overSampling, order } = rl.settings
    this.#cohort = cohort
    this.#rl = rl
    this.admission = new Admission({
      ...{ groupsPerBatch, groupSize, dropsMax, updates, maxStaleness, overSampling },
      ...{ order, failure },
    })
  }

  /** The next permitted conversation; null without one. */
  begin(): Ticket | null {
    const ticket = this.admission.begin()
    if (ticket !== null && !this.#began.has(ticket.group)) this.#began.set(ticket.group, performance.now())
    return ticket
  }

  /** Reports to the admission whether to learn from a complete group. */
  judge(group: number): void {
    const { trajectories, tokenizer } = this.#cohort
    const rows = rowsOfGroup(trajectories, group)
    const reason = refusalOf(trajectories, tokenizer, rows, this.#oldest, this.#rl.filter)
    this.admission.judge(group, reason === null ? { keep: true } : { keep: false, reason })
  }

  /** The oldest version whose tokens may be learned from. */
  get #oldest(): number {
    return this.#cohort.version - this.admission.settings.maxStaleness
  }

  /** Takes the next batch if it is complete. Groups that have become too old are dropped. */
  take(lanesIdleSeconds: number): boolean {
    const { trajectories } = this.#cohort
    const delivery = this.admission.take((group) =>
      isFresh(trajectories, rowsOfGroup(trajectories, group), this.#oldest),
    )
    if (delivery === null) return false
    this.#delivery = delivery
    this.#warnOfStale(delivery)
    const ages = delivery.groups.map((group) => (performance.now() - this.#began.get(group)!) / 1000)
    for (const group of delivery.groups) this.#began.delete(group)
    this.told = {
      drops: delivery.drops,
      rolloutAgeSeconds: spreadOfAges(ages),
      queueDepth: this.admission.waiting,
      lanesIdleSeconds,
    }
    return true
  }

  /** Warns once if many groups become too old, with the settings that help. */
  #warnOfStale({ groups, drops }: Delivery): void {
    if (this.#counts === null) return
    const learned = this.#counts.learned + groups.length
    const stale = this.#counts.stale + (drops.stale ?? 0)
    this.#counts = { learned, stale }
    const { groupsPerBatch, overSampling, order, maxStaleness } = this.admission.settings
    if (learned < STALE_BATCHES * groupsPerBatch || stale <= STALE_FRACTION * (learned + stale)) return
    this.#counts = null
    const help = [
      ...(overSampling > 1 ? [`a smaller overSampling than ${overSampling}`] : []),
      ...(order === 'arrival' ? ['order=number'] : []),
      `a larger maxStaleness than ${maxStaleness}`,
    ]
    const percent = Math.round((100 * stale) / (learned + stale))
    const message = `rl: ${percent} % of the groups were dropped as stale before an update took them; this helps: ${help.join(', or ')}`
    ;(this.#cohort.onNotice ?? warn)(message)
  }

  /** The last batch's rows, in an order that does not depend on which finished first. */
  rows(): number[] {
    const { trajectories } = this.#cohort
    const { group } = trajectories.columns()
    const delivered = new Set(this.#delivery?.groups)
    return trajectories.order().filter((row) => delivered.has(group[row]!))
  }

  /** Forgets the start times of dropped groups. */
  forgetBeginnings(): void {
    for (const group of this.#began.keys()) if (!this.admission.has(group)) this.#began.delete(group)
  }

  /** Frees the rows of groups that were learned from or dropped. */
  forgetRows(): void {
    const { trajectories } = this.#cohort
    const { group } = trajectories.columns()
    const kept = Array.from(group.keys()).filter((row) => this.admission.has(group[row]!))
    if (kept.length === 0) trajectories.clear()
    else if (kept.length < group.length) trajectories.keep(kept)
  }

  saved(): Pick<SavedCollector, 'admission' | 'delivery' | 'ages'> {
    return {
      admission: this.admission.saved(),
      delivery: this.#delivery,
      ages: [...this.#began].map(([group, began]) => [group, (performance.now() - began) / 1000]),
    }
  }

  restore({ admission, delivery, ages }: Pick<SavedCollector, 'admission' | 'delivery' | 'ages'>): void {
    this.#delivery = delivery
    this.admission.restore(admission)
    this.#began.clear()
    for (const [group, seconds] of ages) this.#began.set(group, performance.now() - 1000 * seconds)
  }
}
