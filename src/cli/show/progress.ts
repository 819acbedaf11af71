/** Progress on standard error: a live line on a terminal, plain lines elsewhere. */
import { environmentVariable } from '../../base/environment-variables.ts'
import { group } from '../../base/metrics.ts'
import { Sparkline } from './sparkline.ts'
import { styleFor } from './terminal.ts'

const LIVE_MS = 80
const PLAIN_MS = 2000
const SMOOTHED_SECONDS = 2
const BAR = { least: 10, most: 30 } as const

/** A speed, like 1,200 steps/s. */
export interface Rate {
  readonly value: number
  readonly unit: string
}

export interface ProgressLine {
  /** Shows the number done; `figures` are texts by importance, `value` is drawn as a curve, and `rate` is smoothed. */
  update(done: number, figures: readonly string[], value?: number | null, rate?: Rate | null): void
  /** Leaves the last line standing. */
  end(): void
}

/** A progress line for a training of `total` steps (or another `noun`). */
export function progressLine(total: number, noun: string, quiet: boolean): ProgressLine {
  const stream = process.stderr
  const live = stream.isTTY === true && environmentVariable('TERM') !== 'dumb'
  const style = styleFor(stream)
  const start = performance.now()
  let shownAt = Number.NEGATIVE_INFINITY
  let first: number | undefined
  let last: (() => void) | undefined
  const curve = new Sparkline()
  /** Columns of the current line; a terminal that was narrowed shows it as several. */
  let width = 0
  /** The maximum width of each part so far, so that shorter parts do not shift those after them. */
  const widths: number[] = []
  let smoothed: Rate | null = null
  let ratedAt = start

  const smooth = (rate: Rate): void => {
    const now = performance.now()
    const weight = 1 - Math.exp(-(now - ratedAt) / 1000 / SMOOTHED_SECONDS)
    ratedAt = now
    const value = smoothed?.unit === rate.unit ? smoothed.value + weight * (rate.value - smoothed.value) : rate.value
    smoothed = { value, unit: rate.unit }
  }
  /** Fits the line to the terminal: the bar takes the remaining width; the curve and the last parts are dropped if needed. */
  const showLive = (fraction: number, parts: readonly string[]): void => {
    const columns = stream.columns > 0 ? stream.columns : 80
    const above = Math.max(0, Math.ceil(width / columns) - 1)
    const percent = `${String(Math.floor(100 * fraction)).padStart(3)} %`
    for (const [i, part] of parts.entries()) widths[i] = Math.max(widths[i] ?? 0, part.length)
    const padded = parts.map((part, i) => part.padEnd(widths[i]!))
    let room = columns - 1 - percent.length - 2
    const shown: string[] = []
    for (const part of padded) {
      if (room - 2 - part.length < BAR.least) break
      shown.push(part)
      room -= 2 + part.length
    }
    const drawn = String(curve)
    const hasCurve = shown.length === parts.length && drawn !== '' && room - 2 - drawn.length >= BAR.least
    if (hasCurve) room -= 2 + drawn.length
    const length = Math.max(0, Math.min(BAR.most, room))
    const full = Math.round(fraction * length)
    const bar = style('green', '█'.repeat(full)) + style('dim', '░'.repeat(length - full))
    const [left = '', main = '', ...others] = shown
    const styled = [style('dim', left), style('bold', main), ...others, ...(hasCurve ? [style('cyan', drawn)] : [])]
    const line = [`${percent} ${bar}`, ...styled.filter((part) => part !== '')].join('  ')
    stream.write(`${above > 0 ? `\u001b[${above}A` : ''}\r\u001b[J${line}`)
    width =
      percent.length +
      1 +
      length +
      [...shown, ...(hasCurve ? [drawn] : [])].reduce((sum, part) => sum + 2 + part.length, 0)
  }
  return {
    update(done, figures, value, rate) {
      if (quiet) return
      if (live && value !== undefined && value !== null) curve.add(value)
      if (rate) smooth(rate)
      first ??= done
      const pace = (done - first) / ((performance.now() - start) / 1000)
      const left = pace > 0 ? `ETA ${duration(Math.max(0, total - done) / pace)}` : 'ETA …'
      const told = smoothed === null ? '' : `${group(Math.round(smoothed.value))} ${smoothed.unit}`
      const [main = '', ...others] = figures
      const fraction = total > 0 ? Math.min(1, done / total) : 1
      const counted = `${group(Math.min(done, total))}/${group(total)} ${noun}`
      last = () => {
        if (live) showLive(fraction, [left, main, told, ...others])
        else {
          const percent = `${Math.floor(100 * fraction)} %`
          stream.write(
            `${[percent, counted, ...figures, told, left].filter((part) => part !== '' && part !== 'ETA …').join('  ')}\n`,
          )
        }
        shownAt = performance.now()
        last = undefined
      }
      if (performance.now() - shownAt >= (live ? LIVE_MS : PLAIN_MS)) last()
    },
    end() {
      last?.()
      if (live && !quiet) stream.write('\n')
    },
  }
}

/** Formats returns side by side: three decimals if all are below 10, otherwise one. */
export function returnFormat(...returns: readonly number[]): (value: number) => string {
  const digits = returns.every((value) => Math.abs(value) < 10) ? 3 : 1
  return (value) => value.toFixed(digits)
}

/** Counts as fractions of their sum, by index: `0: 25 %, 1: 75 %`; zeros are left out. */
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
