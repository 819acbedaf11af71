const BARS = '▁▂▃▄▅▆▇█'
/** Maximum columns of the terminal. */
const WIDTH = 14

/** A curve in a line of text: the values so far, from the least as ▁ to the greatest as █, averaged to fit. */
export class Sparkline {
  /** Means of neighboring values; the last may be incomplete. */
  #means: number[] = []
  /** Values per full column, and in the last one. */
  #perColumn = 1
  #inLast = 0

  /** Takes the next value; values that are not finite are skipped. */
  add(value: number): void {
    if (!Number.isFinite(value)) return
    if (this.#inLast === this.#perColumn || this.#means.length === 0) {
      if (this.#means.length === WIDTH) this.#halve()
      this.#means.push(0)
      this.#inLast = 0
    }
    this.#inLast++
    const last = this.#means.length - 1
    this.#means[last] = this.#means[last]! + (value - this.#means[last]!) / this.#inLast
  }

  toString(): string {
    const [least, greatest] = [Math.min(...this.#means), Math.max(...this.#means)]
    const scale = greatest > least ? (BARS.length - 1) / (greatest - least) : 0
    return this.#means.map((mean) => BARS[Math.round((mean - least) * scale)]).join('')
  }

  #halve(): void {
    this.#means = this.#means.flatMap((mean, i) => (i % 2 === 0 ? (mean + this.#means[i + 1]!) / 2 : []))
    this.#perColumn *= 2
  }
}
