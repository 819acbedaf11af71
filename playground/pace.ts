/** How much is done beside the frames, such as lanes drawn: all, unless frames come late. */

/** Milliseconds between frames from which one is late: a display of 60 frames a second has skipped one. */
const LATE_MS = 25
/** Frames after which it decides, and how many of them may be late. */
const FRAMES = 40
const LATE_MAX = 2
/** The least part. */
const LEAST = 1 / 8
/** Decisions in a row without a late frame before twice as much is tried; each time that it was too much, twice as many. */
const CALM = 4
const CALM_MAX = 64

export class Pace {
  readonly #most: number
  readonly #least: number
  #allowed: number
  #last: number | undefined
  #numFrames = 0
  #numLate = 0
  #calm = 0
  #patience = CALM
  /** Whether the last change was to more. */
  #isTrying = false

  constructor(most: number) {
    this.#most = most
    this.#least = Math.min(most, Math.max(2, Math.round(most * LEAST)))
    this.#allowed = most
  }

  /** What is allowed now. */
  get allowed(): number {
    return this.#allowed
  }

  /** A frame begins at this time, in milliseconds. While nothing moves, none counts. */
  tick(now: number, isMoving: boolean): void {
    const isLate = this.#last !== undefined && now - this.#last > LATE_MS
    this.#last = isMoving ? now : undefined
    if (!isMoving) return
    this.#numFrames++
    if (isLate) this.#numLate++
    if (this.#numFrames === FRAMES) this.#decide()
  }

  #decide(): void {
    const numLate = this.#numLate
    this.#numFrames = 0
    this.#numLate = 0
    if (numLate > LATE_MAX) {
      if (this.#isTrying) this.#patience = Math.min(CALM_MAX, 2 * this.#patience)
      this.#isTrying = false
      this.#calm = 0
      this.#allowed = Math.max(this.#least, Math.floor(this.#allowed / 2))
    } else if (numLate === 0 && ++this.#calm >= this.#patience) {
      this.#calm = 0
      this.#isTrying = this.#allowed < this.#most
      this.#allowed = Math.min(this.#most, 2 * this.#allowed)
    }
  }
}
