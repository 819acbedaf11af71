/**
 * How long a turn may take without a token: whoever exceeds it is told of by lane and by what was last heard, and its
 * conversation ends with an unknown reward. It counts only while a trainer collects.
 */
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import { failTurn } from '../../../world/conversations/turns.ts'

export class TurnLimit {
  readonly #cohort: ConversationCohort
  /** Of each lane: when its turn was last heard of, in ms; its tokens by then; and whether the engine has its turn. */
  readonly #heard: Float64Array
  readonly #length: Int32Array
  readonly #isSubmitted: Uint8Array
  /** Lanes that were told of, and are left to whoever stops. */
  readonly #told = new Set<number>()

  constructor(cohort: ConversationCohort) {
    this.#cohort = cohort
    this.#heard = new Float64Array(cohort.numLanes)
    this.#length = new Int32Array(cohort.numLanes)
    this.#isSubmitted = new Uint8Array(cohort.numLanes)
  }

  /** Counts from now on. */
  begin(): void {
    this.#heard.fill(performance.now())
    this.#told.clear()
  }

  /** Looks at all lanes, and ends the turns that are late. */
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
    const message = `lane ${n} (${which}): engine ${engine.id}, last heard of at ${since} after ${tokens} tokens of the turn, has given none for ${seconds} s`
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
