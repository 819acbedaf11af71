/**
 * Actors: threads, or processes of a fleet, that collect rollouts while others learn (IMPALA, Espeholt et al. 2018). Each
 * has its own lanes and inference, collects as many rollouts as permitted, and then sleeps.
 *
 * A rollout of all lanes is a group of `Admission`, and an actor's part is a member: updates learn from whole rollouts,
 * in order, each once. A rollout is permitted at most `maxStaleness` updates before the one that learns from it, so
 * none is thrown away, and it reuses the columns of the rollout learned from last (`world/episodes/ahead.ts`).
 *
 * An actor uses the newest weights published when it begins a rollout, but none learned from the rollout before it. So
 * with `maxStaleness` 1 the weights of rollout r are always version r − 1, and a training has the same bits each time,
 * as with 0.
 *
 * A checkpoint between two updates has the lanes' state at the start of the next rollout, and the published weights;
 * rollouts collected ahead are collected again.
 */
import type { GradientPool } from '../../algorithms/shared-gradient.ts'
import { Work } from '../../base/clock.ts'
import { assert } from '../../base/errors.ts'
import type { MetricValues } from '../../base/metrics.ts'
import type { Column } from '../../components/column.ts'
import { Admission } from '../../fleet/admission.ts'
import { beginningOf } from '../../world/episodes/ahead-buffers.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import type { stalenessMetrics } from '../loop/metrics.ts'
import type { Crew } from './crew.ts'

type DeliveryTimes = MetricValues<Pick<typeof stalenessMetrics, 'rolloutAge' | 'rolloutAgeMax' | 'actorWaitSeconds'>>

/** The actors of a training, for the thread that they work for. */
export class Actors {
  readonly #cohort: EpisodeCohort
  readonly #numActors: number
  readonly #maxStaleness: number
  readonly #crew: Crew
  #admission: Admission
  isStarted = false
  /** Settles when no member of an earlier start writes any more. */
  #gone: Promise<unknown> = Promise.resolve()
  /** Whether lanes have advanced beyond the start of the next rollout. */
  #isAhead = false
  /** Permitted rollouts, and those that every actor has collected. */
  #permitted = 0
  readonly #collected: Uint32Array
  /** Seconds that all actors had waited at the last delivery. */
  #waited = 0
  times: DeliveryTimes = { rolloutAge: 0, rolloutAgeMax: 0, actorWaitSeconds: 0 }
  /** Seconds of the slowest actor for the delivered rollout. */
  rolloutSeconds = 0

  constructor(cohort: EpisodeCohort, numActors: number, crew: Crew) {
    this.#cohort = cohort
    this.#crew = crew
    this.#numActors = numActors
    this.#maxStaleness = cohort.ahead!.buffers.length - 1
    this.#collected = new Uint32Array(numActors)
    this.#admission = this.#admit(0)
  }

  /** New bookkeeping of groups, starting at the update with this number. */
  #admit(update: number): Admission {
    const settings = { groupsPerBatch: 1, groupSize: this.#numActors, maxStaleness: this.#maxStaleness }
    const admission = new Admission(settings)
    const counts = { version: update, next: update, taken: update, arrivals: update }
    admission.restore({ ...admission.saved(), ...counts })
    return admission
  }

  get pool(): GradientPool | undefined {
    return this.#crew.pool
  }

  /** The result ends them when the trainer is dropped. */
  async start(update: number, signal?: AbortSignal): Promise<{ end(): boolean }> {
    await this.#gone
    for (const [column, kept] of beginningOf(this.#cohort, update)) {
      if (this.#isAhead) column.set(kept)
      else kept.set(column)
    }
    this.#isAhead = true
    this.#collected.fill(update)
    this.#permitted = update
    this.#waited = 0
    this.#admission = this.#admit(update)
    this.isStarted = true
    return this.#crew.start(update, signal).catch((error) => {
      this.isStarted = false
      throw error
    })
  }

  /**
   * Publishes weights, permits rollouts ahead, and waits for this update's. Yields promises to await. False if the signal ends the wait
   * for members elsewhere.
   */
  *deliver(world: World, update: number, numUpdates: number, signal?: AbortSignal): Generator<Promise<void>, boolean> {
    this.#publish(update)
    while (this.#permitted < numUpdates && this.#admission.begin() !== null) {
      for (let member = 1; member < this.#numActors; member++) this.#admission.begin()
      this.#permitted++
    }
    this.#crew.permit(update, this.#permitted)
    let delivery = this.#take()
    for (; delivery === null; delivery = this.#take()) {
      if (this.#crew.isElsewhere && signal?.aborted) return false
      const member = this.#collected.findIndex((collected) => collected <= update)
      yield this.#crew.arrival(member, this.#collected[member]!, update, signal)
    }
    assert(delivery.groups[0] === update, 'actors deliver the rollout of another update')
    world.clock.mark(Work.waiting)
    const { began, took, waited } = this.#crew.times(update)
    const sum = (numbers: ArrayLike<number>) => Array.from(numbers).reduce((total, each) => total + each, 0)
    const now = performance.timeOrigin + performance.now()
    const ages = Array.from(began, (each) => (now - each) / 1000)
    this.rolloutSeconds = Math.max(...Array.from(took))
    this.times = {
      rolloutAge: sum(ages) / this.#numActors,
      rolloutAgeMax: Math.max(...ages),
      actorWaitSeconds: (sum(waited) - this.#waited) / this.#numActors,
    }
    this.#waited = sum(waited)
    return true
  }

  /** Marks the delivered rollout as learned from. */
  conclude(): void {
    this.#crew.learned(this.#admission.version)
    this.#admission.advance()
  }

  /** A checkpoint after this number of updates is on disk. */
  kept(updates: number): void {
    this.#crew.kept(updates)
  }

  /** Registers collected rollouts. Returns the next one if it is complete. */
  #take(): ReturnType<Admission['take']> {
    const { failure } = this.#crew
    if (failure !== null) throw failure
    for (let member = 0; member < this.#numActors; member++) {
      const collected = this.#crew.collected(member)
      for (; this.#collected[member]! < collected; this.#collected[member]!++) {
        const group = this.#collected[member]!
        if (this.#admission.finish({ group, member, attempt: 0 })) this.#admission.judge(group, { keep: true })
      }
    }
    return this.#admission.take()
  }

  #publish(update: number): void {
    const { published } = this.#cohort.ahead!
    published[update % published.length]!.set(this.#cohort.weights)
  }

  /** Columns saved in place of the lanes' current ones: the state at the start of this update's rollout. */
  instead(update: number): ReadonlyMap<Column, Column> {
    this.#publish(update) // So the saved state is the same before and during a delivery.
    return this.#isAhead ? beginningOf(this.#cohort, update) : new Map()
  }

  /** As `close`. When it settles, no thread writes in the lanes' columns, and lanes continue from their state. */
  async halt(): Promise<void> {
    this.close()
    await this.#gone
    this.#isAhead = false
  }

  /** Whether they keep the process alive. */
  hold(isHeld: boolean): void {
    this.#crew.hold(isHeld)
  }

  /** Ends them with a reason, which `deliver` throws. */
  fail(reason: Error): void {
    this.#crew.fail(reason)
  }

  /** Ends them. Rollouts collected ahead are collected again by the next ones. */
  close(): void {
    if (!this.isStarted) return
    this.#gone = this.#crew.close()
    this.isStarted = false
  }
}
