/** What the page shows, and the link that restores it: the part of the address after `#`. */
import { isDrawable, type Range } from './series.ts'

/** Choices for the x axis, by the metric that they take. */
export const AXES: Readonly<Record<string, string>> = {
  line: 'updates',
  steps: 'environment steps',
  seconds: 'seconds',
}

/** All that a link restores. */
export interface View {
  /** A key of `AXES`. */
  over: string
  /** Weight of the moving average, 0 to 0.99. */
  smoothing: number
  isLog: boolean
  /** What a row holds: `seeds` (runs that differ only in their seed), `runs` (one each), or the name of a setting. */
  groupBy: string
  filter: string
  /** The column by which rows are sorted; with a minus, the largest first. Empty: as the folder lists them. */
  sort: string
  /** Columns of the table; null: those that differ, and the result. */
  columns: readonly string[] | null
  /** Runs without curves. */
  hidden: ReadonlySet<string>
  /** Runs whose rows stay at the top. */
  pinned: ReadonlySet<string>
  /** The visible range of x; null: all. */
  range: Range | null
}

export const PLAIN: View = {
  ...{ over: 'line', smoothing: 0.6, isLog: false, groupBy: 'seeds', filter: '', sort: '', columns: null },
  ...{ hidden: new Set<string>(), pinned: new Set<string>(), range: null },
}

/** A view as the part of an address after `#`; what is as in `PLAIN` is left out. `ids` are all runs: the shorter of shown and hidden is kept. */
export function linkOf(view: View, ids: readonly string[]): string {
  const query = new URLSearchParams()
  for (const name of ['over', 'groupBy', 'filter', 'sort'] as const)
    if (view[name] !== PLAIN[name]) query.set(name, view[name])
  if (view.smoothing !== PLAIN.smoothing) query.set('smoothing', String(view.smoothing))
  if (view.isLog) query.set('log', 'true')
  for (const column of view.columns ?? []) query.append('column', column)
  for (const id of view.pinned) query.append('pin', id)
  const hidden = ids.filter((id) => view.hidden.has(id))
  if (hidden.length * 2 <= ids.length) for (const id of hidden) query.append('hide', id)
  else {
    const shown = ids.filter((id) => !view.hidden.has(id))
    for (const id of shown.length === 0 ? [''] : shown) query.append('show', id)
  }
  if (view.range !== null) query.set('range', view.range.join(' '))
  return String(query)
}

/** Places of colors by run, as this browser stores them as JSON; empty if it stores anything else. */
export function placesOf(text: string | null): Map<string, number> {
  try {
    const places = JSON.parse(text ?? '[]') as [string, number][]
    if (places.every(([id, place]) => typeof id === 'string' && Number.isSafeInteger(place) && place >= 0))
      return new Map(places)
  } catch {
    // Another page of this address or a person wrote it: runs get their colors anew.
  }
  return new Map()
}

/** Bytes of a request's address: servers accept 16 KiB of head. */
const ADDRESS_BYTES = 8000

/** Queries with these values that name all the runs together, each short enough for an address. */
export function queriesOf(values: Readonly<Record<string, string>>, ids: Iterable<string>): string[] {
  const base = String(new URLSearchParams(values))
  const queries = [base]
  for (const id of ids) {
    const word = String(new URLSearchParams({ run: id }))
    const last = queries.at(-1)!
    if (last === base) queries[queries.length - 1] = base === '' ? word : `${base}&${word}`
    else if (last.length + word.length < ADDRESS_BYTES) queries[queries.length - 1] = `${last}&${word}`
    else queries.push(base === '' ? word : `${base}&${word}`)
  }
  return queries
}

/** The view of a link among these runs; anything unknown in it is as in `PLAIN`. */
export function viewOf(link: string, ids: readonly string[]): View {
  const query = new URLSearchParams(link)
  const range = (query.get('range') ?? '').split(' ').map(Number)
  const smoothing = Number(query.get('smoothing') ?? PLAIN.smoothing)
  const over = query.get('over') ?? PLAIN.over
  const shown = new Set(query.getAll('show'))
  return {
    over: Object.hasOwn(AXES, over) ? over : PLAIN.over,
    smoothing: smoothing >= 0 && smoothing <= 0.99 ? smoothing : PLAIN.smoothing,
    isLog: query.get('log') === 'true',
    groupBy: query.get('groupBy') ?? PLAIN.groupBy,
    filter: query.get('filter') ?? PLAIN.filter,
    sort: query.get('sort') ?? PLAIN.sort,
    columns: query.has('column') ? query.getAll('column') : null,
    hidden: query.has('show') ? new Set(ids.filter((id) => !shown.has(id))) : new Set(query.getAll('hide')),
    pinned: new Set(query.getAll('pin')),
    range: range.length === 2 && isDrawable(range as [number, number]) ? (range as [number, number]) : null,
  }
}
