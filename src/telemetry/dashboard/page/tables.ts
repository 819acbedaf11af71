/** Tables, and where the time of runs goes. */
import type { ShownRun } from '../runs.ts'
import { colored, element, shortNumber } from './elements.ts'

/** Colors of kinds of work, in order: as many as the longest update has. */
const WORK = [
  ...['#4477aa', '#66ccee', '#228833', '#ccbb44', '#ee6677', '#aa3377', '#888888', '#997700', '#004488', '#bb5566'],
  ...['#44bb99', '#ffaabb', '#b39ddb', '#ee7733', '#225522', '#6a5acd', '#a5d8c5', '#8d6e63', '#7a9a01', '#f5e663'],
]
const PHASE = 'phaseSeconds/'

export function table(head: readonly string[], rows: readonly (readonly (string | number | Node)[])[]): HTMLElement {
  const cell = (value: string | number | Node, i: number) => {
    if (i === 0) return element('th', { scope: 'row' }, value as string | Node)
    if (typeof value === 'number') return element('td', { class: 'number' }, shortNumber(value))
    return element('td', {}, value)
  }
  return element(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': head.join(', ') },
    element(
      'table',
      {},
      element('thead', {}, element('tr', {}, ...head.map((words) => element('th', { scope: 'col' }, words)))),
      element('tbody', {}, ...rows.map((row) => element('tr', {}, ...row.map(cell)))),
    ),
  )
}

/** How each run's last update spent its time: bars, and seconds. */
export function phasesOf(runs: readonly ShownRun[]): HTMLElement {
  const works = [...new Set(runs.flatMap(({ last }) => Object.keys(last).filter((name) => name.startsWith(PHASE))))]
  const colorOf = (work: string) => WORK[works.indexOf(work) % WORK.length]!
  const legend = works.map((work) => {
    const swatch = colored(element('span', { class: 'swatch' }), colorOf(work))
    return element('label', {}, swatch, work.slice(PHASE.length))
  })
  const rows = runs.map(({ id, last }) => {
    const total = works.reduce((sum, work) => sum + (last[work] ?? 0), 0)
    const bar = works.map((work) => {
      const part = colored(
        element('span', { title: `${work.slice(PHASE.length)}: ${shortNumber(last[work] ?? 0)} s` }),
        colorOf(work),
      )
      part.style.width = `${(100 * (last[work] ?? 0)) / (total || 1)}%`
      return part
    })
    return [id, element('div', { class: 'phases', role: 'img', 'aria-label': `time of ${id}` }, ...bar), total]
  })
  if (works.length === 0) return element('p', { class: 'quiet' }, 'No update has reported its times yet.')
  return element(
    'div',
    {},
    element('div', { class: 'legend' }, ...legend),
    table(['run', 'its last update', 'seconds'], rows),
  )
}
