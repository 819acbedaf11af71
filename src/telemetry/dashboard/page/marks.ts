/** Marks on a curve where something was made at an update: rows, conversations, or a picture. A click shows it. */
import type { Moment } from '../moments.ts'
import type { ShownRun } from '../runs.ts'
import { element } from './elements.ts'
import type { Ask } from './run-view.ts'
import { queriesOf, type View } from './view.ts'

/** Runs whose moments are marked, and pixels between marks: the newest of those that are nearer is shown. */
const [RUNS_MAX, PIXELS] = [12, 24]
const SYMBOLS: Readonly<Record<Moment['kind'], string>> = { rows: '▤', conversations: '❝', picture: '▶' }

/** A mark at a place of x, for a run. */
export interface Mark {
  readonly run: string
  readonly moment: Moment & { readonly x: number }
}

/** Marks whose places in pixels are far enough apart, from the right. */
export function apart<T>(marks: readonly T[], pixelsOf: (mark: T) => number): T[] {
  let last = Number.POSITIVE_INFINITY
  return marks
    .toSorted((a, b) => pixelsOf(b) - pixelsOf(a))
    .filter((mark) => {
      if (last - pixelsOf(mark) < PIXELS) return false
      last = pixelsOf(mark)
      return true
    })
}

export function markButton({ run, moment }: Mark, open: (mark: Mark) => void): HTMLButtonElement {
  const { kind, update } = moment
  const words = `${kind} of update ${update}, ${run}`
  const click = () => open({ run, moment })
  return element('button', { type: 'button', class: 'mark', title: words, 'aria-label': words, click }, SYMBOLS[kind])
}

/** Asks for the moments of runs, of each once, and again when it has changed. */
export class Moments {
  readonly #ask: Ask
  readonly #view: Pick<View, 'over'>
  readonly #changed: () => void
  #known = new Map<string, Moment[]>()
  /** Runs that have changed since. */
  readonly #stale = new Set<string>()
  #over = ''

  /** `changed` is called when there are others. */
  constructor(ask: Ask, view: Pick<View, 'over'>, changed: () => void) {
    this.#ask = ask
    this.#view = view
    this.#changed = changed
  }

  /** The marks of these runs that are known. */
  of(runs: readonly ShownRun[]): Mark[] {
    return runs.flatMap(({ id }) =>
      (this.#known.get(id) ?? []).flatMap((moment) =>
        moment.x === null ? [] : [{ run: id, moment: { ...moment, x: moment.x } }],
      ),
    )
  }

  /** Requests those of the first runs that are missing. */
  async show(runs: readonly ShownRun[]): Promise<void> {
    const { over } = this.#view
    if (over !== this.#over) this.#known = new Map()
    this.#over = over
    const wanted = runs.slice(0, RUNS_MAX).filter(({ id }) => this.#stale.has(id) || !this.#known.has(id))
    if (wanted.length === 0) return
    for (const { id } of wanted) {
      this.#stale.delete(id)
      if (!this.#known.has(id)) this.#known.set(id, [])
    }
    const queries = queriesOf(
      { over },
      wanted.map(({ id }) => id),
    )
    for (const query of queries) {
      const { moments } = await this.#ask(`api/moments?${query}`)
      if (over !== this.#over) return
      for (const [id, found] of Object.entries(moments as Record<string, Moment[]>)) this.#known.set(id, found)
    }
    this.#changed()
  }

  /** Requests those of these runs again when they are shown next. */
  changed(ids: Iterable<string>): void {
    for (const id of ids) this.#stale.add(id)
  }
}
