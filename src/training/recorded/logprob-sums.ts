/**
 * Tests whether log-probabilities can be those with which actions were drawn, if only the drawn action's is known.
 *
 * If a policy draws action a with probability p(a), 1/p(a) has the mean Σₐ p(a) / p(a) = n, the number of actions; and
 * g(p)/p has the mean Σₐ g(p(a)) for any function g of the drawn probability. Three sums follow. Right
 * log-probabilities exceed their bounds less than once in a million tables, for any policy and any dependence between
 * rows (each row's mean holds given the rows before it: Freedman's inequality for martingales, Markov's for single
 * rows):
 *
 * - Too low: for each τ = 2⁻ᵏ, 1/p of rows with p > τ sums to at most the number of actions of all rows. A term is
 *   below 1/τ, and its second moment is at most n/τ. For single rows of tiny probability: the mean of 1/p exceeds 10⁶ n
 *   once in 10⁶.
 * - Too high: if p > ½ the action is its row's most probable one, and others are drawn with probability 1 − p. So (1 −
 *   p)/p of such rows sums to no more than the number of rows with p ≤ ½.
 * - Too high, if few actions have more than ½: the mean of 1/p is below n/2. This cannot be if each action has at least
 *   a tenth of an equal share, 1/(10 n). Policies that never take half of the actions do it too, so this is only a
 *   guess.
 */

/** Powers of ½ down to which probabilities are sorted. */
const BUCKETS = 48
/** −log of the false alarm rate: once in a million tables, divided among the sums. */
const SURPRISE = Math.log(1e6 * (BUCKETS + 2))
/** Minimum rows to test whether the mean is too low: exp(−rows/80) is then below 10⁻⁶. */
const ROWS_MIN = 1100

/** Maximum fraction of rows with p > ½ for that test. */
const DECIDED_MAX = 0.05

/** Sums over rows of choices, and their verdict. */
export class LogprobSums {
  readonly #inverse = new Float64Array(BUCKETS + 1)
  #rows = 0
  #actions = 0
  #likely = 0
  #others = 0
  #squares = 0

  /** Adds a row: the log-probability of its action in nats, and the number of legal actions. */
  add(logprob: number, numActions: number): void {
    const inverse = Math.exp(-logprob)
    const bucket = Math.min(BUCKETS, Math.max(0, Math.floor(-logprob * Math.LOG2E)))
    this.#inverse[bucket]! += inverse
    this.#rows++
    this.#actions += numActions
    if (inverse < 2) {
      const odds = inverse - 1
      this.#likely += inverse
      this.#others += odds
      this.#squares += odds * odds
    } else {
      this.#others--
      this.#squares++
    }
  }

  /** The warning about the rows; null if they are plausible. */
  verdict(): string | null {
    const rows = this.#rows
    const mean = this.#inverse.reduce((sum, each) => sum + each, 0) / rows
    const numActions = this.#actions / rows
    if (rows === 0) return null
    const say = (what: string) =>
      `logprob: the mean of 1/p over ${rows} rows is ${short(mean)} for ${short(numActions)} actions, whose number it should be: ${what}`
    if (mean > 1e6 * numActions || this.#exceeds()) {
      return say('log-probabilities are lower than those with which the actions were drawn')
    }
    const chance = Math.sqrt(2 * this.#squares * SURPRISE) + 3 * SURPRISE
    if (this.#others > chance) {
      return say(
        'log-probabilities are higher than those with which the actions were drawn, or the most probable were taken',
      )
    }
    if (rows < ROWS_MIN || this.#likely > DECIDED_MAX * rows || mean >= numActions / 2) return null
    return say(
      'log-probabilities are higher than those with which the actions were drawn, or most actions are never drawn',
    )
  }

  /** Whether 1/p of the rows above some τ sums to more than all actions, beyond chance. */
  #exceeds(): boolean {
    let sum = 0
    for (let k = 0; k < BUCKETS; k++) {
      sum += this.#inverse[k]!
      const inverse = 2 ** (k + 1)
      const chance = Math.sqrt(2 * this.#actions * inverse * SURPRISE) + (inverse * SURPRISE) / 3
      if (sum > this.#actions + chance) return true
    }
    return false
  }
}

function short(value: number): string {
  return String(Number(value.toPrecision(3)))
}
