/** Ends and reports turns without a new token for too long, while a trainer collects; their reward is unknown. */
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import { failTurn } from '../../../world/conversations/turns.ts'

export class TurnLimit {
  readonly #cohort: ConversationCohort
  /** For each lane: when its turn last made progress, in ms; how many tokens the turn had then; whether the engine has the turn. */
  readonly #heard: Float64Array
  readonly #length: Int32Array
  readonly #isSubmitted: Uint8Array
  /** Reported lanes that the run's end will stop. */
  readonly #told = new Set<number>()

  constructor(cohort: ConversationCohort) {
    this.#cohort = cohort
    this.#heard = new Float64Array(cohort.numLanes)
    this.#length = new Int32Array(cohort.numLanes)
    this.#isSubmitted = new Uint8Array(cohort.numLanes)
  }

  /** Starts counting now. */
  begin(): void {
    this.#heard.fill(performance.now())
    this.#told.clear()
  }

  /** Checks all lanes, and ends late turns. */
  look(): void {
    const { conversation, submitted, turnMilliseconds } = this.#cohort
    const now = performance.now()
    for (let n = 0; n < submitted.length; n++) {
      const length = conversation.length[n]!
      if (submitted[n] === 0 || this.#isSubmitted[n] === 0 || length !== this.#length[n]) {
        this.#heard[n] = now
        this.#told.delete(n)
        this.#length[n] = length
        this.#isSubmitted[n] = submitted[n]!
      } else if (now - this.#heard[n]! >= turnMilliseconds) this.#end(n)
    }
  }

  #end(n: number): void {
    const { engine, conversation, turnMilliseconds, onLate } = this.#cohort
    if (this.#told.has(n)) return
    this.#told.add(n)
    const seconds = turnMilliseconds / 1000
    const since = new Date(Date.now() - (performance.now() - this.#heard[n]!)).toISOString()
    const tokens = conversation.length[n]! - conversation.turnStart[n]!
    const which = `group ${conversation.group[n]}, member ${conversation.member[n]}`
    const message = `lane ${n} (${which}): engine ${engine.id} has given no token for ${seconds} s; last progress at ${since} after ${tokens} tokens of the turn`
    if (onLate?.(message) === 'stop') return
    failTurn(this.#cohort, n, `no token within ${seconds} s`)
  }

  /** Settles with the promise, or when the next turn is late. */
  async orLate(waiting: Promise<void>): Promise<void> {
    const { submitted, turnMilliseconds } = this.#cohort
    let first = Number.POSITIVE_INFINITY
    for (let n = 0; n < submitted.length; n++) {
      if (submitted[n] === 1 && !this.#told.has(n)) first = Math.min(first, this.#heard[n]! + turnMilliseconds)
    }
    if (first === Number.POSITIVE_INFINITY) return waiting
    let timer: ReturnType<typeof setTimeout> | undefined
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, Math.min(2 ** 31 - 1, Math.max(0, first - performance.now())))
    })
    await Promise.race([waiting, late])
    clearTimeout(timer)
  }
}
