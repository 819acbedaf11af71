/** Runs side by side: what differing settings explain of a result, and parallel coordinates of both. */
import type { ShownRun } from '../runs.ts'
import { colored, drawn, element, fill, shortNumber } from './elements.ts'
import { columnValue, differentSettings, explainedBy, resultOf } from './rows.ts'
import { table } from './tables.ts'

/** Size of the picture, and the room around its axes, in pixels. */
const [WIDTH, HEIGHT, EDGE] = [960, 280, { side: 70, top: 34, bottom: 14 }]
/** Axes besides the result: those that explain most. */
const MAX_AXES = 8
/** Colors from the lowest to the highest result: of viridis, which is even in lightness. */
const SHADES = ['#440154', '#3b528b', '#21918c', '#5ec962', '#fde725']

/** An axis: a place from 0 (bottom) to 1 for each value. */
interface Axis {
  readonly name: string
  readonly place: (value: string | number) => number
  readonly ends: readonly { readonly words: string; readonly at: number }[]
}

export class CompareView {
  readonly root: HTMLDetailsElement
  readonly #result = element('select', { change: () => this.#draw() })
  readonly #shown = element('div')
  #runs: readonly ShownRun[] = []

  constructor() {
    this.root = element(
      'details',
      { id: 'compare', toggle: () => this.#draw() },
      element('summary', {}, 'Which setting matters'),
      element('div', { class: 'legend' }, element('label', {}, 'result', this.#result)),
      this.#shown,
    )
  }

  show(runs: readonly ShownRun[]): void {
    this.#runs = runs
    this.root.hidden = differentSettings(runs).length === 0
    const names = [...new Set(runs.flatMap(({ last }) => Object.keys(last)))]
    const before = this.#result.value
    fill(this.#result, names, (name) => name)
    this.#result.value = names.includes(before) ? before : (resultOf(runs) ?? names[0] ?? '')
    this.#draw()
  }

  #draw(): void {
    if (!this.root.open || this.root.hidden) return
    const result = this.#result.value
    const known = this.#runs.filter((run) => Number.isFinite(columnValue(run, result)))
    const environments = new Set(known.map(({ environment }) => environment))
    if (environments.size > 1 || known.length < 3) {
      const words =
        known.length < 3
          ? 'Show three runs or more with this result.'
          : 'Show runs of one environment: results of several cannot be compared.'
      this.#shown.replaceChildren(element('p', { class: 'quiet' }, words))
      return
    }
    const explained = explainedBy(known, result)
    const settings = differentSettings(known)
    const order = [
      ...explained.map(({ setting }) => setting),
      ...settings.filter((name) => !explained.some(({ setting }) => setting === name)),
    ]
    const rows = explained.map(({ setting, share, best, mean, count }) => {
      const bar = colored(element('span', { class: 'bar' }), 'var(--accent)')
      bar.style.width = `${Math.round(100 * share)}%`
      const cell = element('div', { class: 'share' }, bar, `${Math.round(100 * share)} %`)
      return [setting, cell, best, mean, count]
    })
    this.#shown.replaceChildren(
      rows.length === 0
        ? element(
            'p',
            { class: 'quiet' },
            'Each value has one run only: what a setting explains cannot be told from chance.',
          )
        : table(
            ['setting', `explains of the variance of ${result}`, 'value with the highest mean', 'its mean', 'its runs'],
            rows,
          ),
      element(
        'p',
        { class: 'quiet' },
        `${known.length} runs. The share is that of each setting alone (epsilon squared, 0 on average without effect); numbers with many values are put into four ranges.`,
      ),
      parallel(known, order.slice(0, MAX_AXES), result),
    )
  }
}

function axisOf(name: string, runs: readonly ShownRun[]): Axis {
  const values = runs.map((run) => columnValue(run, name) ?? 'not set')
  if (values.every((value) => typeof value === 'number')) {
    const [least, most] = [Math.min(...values), Math.max(...values)]
    // Steps of a factor, like learning rates.
    const isLog = least > 0 && most / least >= 50
    const scale = isLog ? Math.log : (value: number) => value
    const span = scale(most) - scale(least)
    return {
      name,
      place: (value) => (span === 0 ? 0.5 : (scale(value as number) - scale(least)) / span),
      ends:
        span === 0
          ? [{ words: shortNumber(least), at: 0.5 }]
          : [least, most].map((end, at) => ({ words: shortNumber(end), at })),
    }
  }
  const words = [...new Set(values.map(String))].sort()
  const at = (value: string) => (words.length === 1 ? 0.5 : words.indexOf(value) / (words.length - 1))
  return { name, place: (value) => at(String(value)), ends: words.map((each) => ({ words: each, at: at(each) })) }
}

function parallel(runs: readonly ShownRun[], settings: readonly string[], result: string): Element {
  const axes = [...settings, result].map((name) => axisOf(name, runs))
  const x = (i: number) => EDGE.side + (i * (WIDTH - 2 * EDGE.side)) / Math.max(1, axes.length - 1)
  const y = (at: number) => HEIGHT - EDGE.bottom - at * (HEIGHT - EDGE.top - EDGE.bottom)
  const results = runs.map((run) => columnValue(run, result) as number)
  const [least, most] = [Math.min(...results), Math.max(...results)]
  const lines = runs.map((run, at) => {
    const points = axes.map(
      (axis, i) => `${x(i).toFixed(1)},${y(axis.place(columnValue(run, axis.name) ?? 'not set')).toFixed(1)}`,
    )
    const part = most === least ? 0.5 : (results[at]! - least) / (most - least)
    const line = drawn('polyline', { points: points.join(' '), class: 'way', stroke: shadeOf(part) })
    line.append(drawn('title', {}, `${run.id}: ${shortNumber(results[at]!)}`))
    return { line, part }
  })
  lines.sort((a, b) => a.part - b.part) // The best runs lie on top.
  const marks = axes.flatMap((axis, i) => [
    drawn('line', { x1: x(i), x2: x(i), y1: y(0), y2: y(1), class: 'axis' }),
    drawn(
      'text',
      { x: x(i), y: 14, 'text-anchor': 'middle', class: 'name' },
      axis.name.length > 22 ? `…${axis.name.slice(-21)}` : axis.name,
    ),
    ...axis.ends.map(({ words, at }) =>
      drawn('text', { x: x(i) + 5, y: y(at) + 4 }, words.length > 14 ? `${words.slice(0, 13)}…` : words),
    ),
  ])
  const label = `parallel coordinates of ${runs.length} runs: ${axes.map(({ name }) => name).join(', ')}; bright lines have a high ${result}`
  const picture = drawn('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: 'img',
    'aria-label': label,
    class: 'parallel',
  })
  picture.append(...lines.map(({ line }) => line), ...marks)
  return picture
}

function shadeOf(part: number): string {
  const at = part * (SHADES.length - 1)
  const i = Math.min(SHADES.length - 2, Math.floor(at))
  const [from, to] = [SHADES[i]!, SHADES[i + 1]!].map((shade) =>
    [1, 3, 5].map((place) => Number.parseInt(shade.slice(place, place + 2), 16)),
  )
  const mixed = from!.map((value, j) => Math.round(value + (at - i) * (to![j]! - value)))
  return `rgb(${mixed.join(' ')})`
}
