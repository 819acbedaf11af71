/** Progress on standard error: a live line on a terminal, plain lines elsewhere. */
import { group } from '../metrics.ts'
import { Sparkline } from './sparkline.ts'

const LIVE_MS = 80
const PLAIN_MS = 2000

export interface ProgressLine {
  /** So many of the total are done; `figures` are what else there is to say, and `value` is drawn as a curve on a terminal. */
  update(done: number, figures: readonly string[], value?: number | null): void
  /** Leaves the last figures standing. */
  end(): void
}

/** A progress line for a training of `total` steps, or whatever `noun` says. */
export function progressLine(total: number, noun: string, quiet: boolean): ProgressLine {
  const stream = process.stderr
  const live = stream.isTTY === true
  const start = performance.now()
  let shownAt = Number.NEGATIVE_INFINITY
  let first: number | undefined
  let last: string | undefined
  const curve = new Sparkline()
  /** Columns of the line that stands, which a terminal that was made narrower shows as several. */
  let width = 0
  const showLive = (line: string): void => {
    const columns = stream.columns > 0 ? stream.columns : Number.POSITIVE_INFINITY
    const above = Math.max(0, Math.ceil(width / columns) - 1)
    const cut = line.slice(0, columns - 1)
    stream.write(`${above > 0 ? `\u001b[${above}A` : ''}\r\u001b[J${cut}`)
    width = cut.length
  }
  const show = (line: string): void => {
    if (live) showLive(line)
    else stream.write(`${line}\n`)
    shownAt = performance.now()
    last = undefined
  }
  return {
    update(done, figures, value) {
      if (quiet) return
      if (live && value !== undefined && value !== null) curve.add(value)
      first ??= done
      const pace = (done - first) / ((performance.now() - start) / 1000)
      const left = pace > 0 ? `${duration(Math.max(0, total - done) / pace)} left` : ''
      const parts = [`${group(Math.min(done, total))}/${group(total)} ${noun}`, ...figures, left, String(curve)]
      last = parts.filter(Boolean).join('  ')
      if (performance.now() - shownAt >= (live ? LIVE_MS : PLAIN_MS)) show(last)
    },
    end() {
      if (last !== undefined) show(last)
      if (live && !quiet) stream.write('\n')
    },
  }
}

/** How returns are written beside one another: with three decimals where all are below 10, else with one. */
export function returnFormat(...returns: readonly number[]): (value: number) => string {
  const digits = returns.every((value) => Math.abs(value) < 10) ? 3 : 1
  return (value) => value.toFixed(digits)
}

/** Counts by their place, from 0, as parts of their sum: `0: 25 %, 1: 75 %`; none of those that are 0. */
export function shares(counts: readonly number[]): string {
  const sum = counts.reduce((total, count) => total + count, 0)
  const told = counts.map((count, place) => (count === 0 ? '' : `${place}: ${Math.round((100 * count) / sum)} %`))
  return told.filter(Boolean).join(', ')
}

/** Seconds for people: 8 s, 3 min 20 s, 2 h 5 min. */
export function duration(seconds: number): string {
  const whole = Math.ceil(seconds)
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`
}
