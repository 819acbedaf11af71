/** The table of runs: seeds folded into one row, filtered, grouped, sorted, with chosen columns. */
import type { ShownRun } from '../runs.ts'
import { colored, element, fill, say, shortNumber } from './elements.ts'
import { cellOf, columnNames, columnsOf, type Row, rowsOf } from './rows.ts'
import { PLAIN, type View } from './view.ts'

/** What the table takes from the page. */
export interface TablePage {
  readonly view: View
  readonly colorOf: (id: string) => string
  /** Opens the notes of a row's runs; null if the server is read-only. */
  readonly annotate: () => ((row: Row) => void) | null
  /** Shows the page anew after a change of the view. */
  readonly change: () => void
}

const GROUPS: Readonly<Record<string, string>> = { seeds: 'same settings (seeds together)', runs: 'run' }

export class RunsTable {
  readonly root: HTMLElement
  readonly #page: TablePage
  readonly #filter: HTMLInputElement
  readonly #group: HTMLSelectElement
  readonly #column: HTMLInputElement
  readonly #names = element('datalist', { id: 'column-names' })
  readonly #found = element('span', { class: 'quiet', role: 'status' })
  readonly #table = element('table', { class: 'runs' })
  /** Keys of rows whose runs are listed. */
  readonly #open = new Set<string>()
  #runs: readonly ShownRun[] = []
  #rows: readonly Row[] = []

  constructor(page: TablePage) {
    this.#page = page
    const { view, change } = page
    this.#filter = element('input', {
      ...{ type: 'search', value: view.filter, placeholder: 'lr ppo.learningRate>=0.001 status=complete' },
      input: () => {
        view.filter = this.#filter.value
        change()
      },
    })
    this.#group = element('select', {
      change: () => {
        view.groupBy = this.#group.value
        change()
      },
    })
    this.#column = element('input', {
      ...{ list: 'column-names', placeholder: 'a setting or a metric' },
      change: () => this.#addColumn(),
    })
    const act = (words: string, action: () => void) => element('button', { type: 'button', click: action }, words)
    this.root = element(
      'section',
      { 'aria-label': 'runs', id: 'runs' },
      element(
        'div',
        { class: 'legend' },
        ...[element('label', {}, 'filter', this.#filter), element('label', {}, 'group by', this.#group)],
        ...[element('label', {}, 'add column', this.#column), this.#names],
        ...[act('show all', () => this.#hideAll(false)), act('hide all', () => this.#hideAll(true)), this.#found],
      ),
      element(
        'div',
        { class: 'scroll runs', tabindex: '0', role: 'region', 'aria-label': 'table of runs' },
        this.#table,
      ),
    )
  }

  /** The rows that pass the filter. */
  get rows(): readonly Row[] {
    return this.#rows
  }

  show(runs: readonly ShownRun[]): void {
    const { view } = this.#page
    this.#runs = runs
    this.#rows = rowsOf(runs, view)
    const names = columnNames(runs)
    const chosen = Object.hasOwn(GROUPS, view.groupBy) ? [] : [view.groupBy]
    const groups = [...new Set([...Object.keys(GROUPS), ...settingsOf(runs), ...chosen])]
    fill(this.#group, groups, (name) => (Object.hasOwn(GROUPS, name) ? GROUPS[name]! : name))
    fill(this.#names, names, () => '')
    this.#group.value = view.groupBy
    if (this.#filter.value !== view.filter) this.#filter.value = view.filter
    const passing = this.#rows.flatMap((row) => row.runs)
    say(this.#found, `${this.#rows.length} rows, ${passing.length} of ${runs.length} runs`)
    const columns = columnsOf(passing.length === 0 ? runs : passing, view)
    const focus = this.#placeOfFocus()
    this.#table.replaceChildren(this.#head(columns), this.#body(columns))
    if (focus !== null)
      (this.#table.querySelector(`[data-focus="${CSS.escape(focus)}"]`) as HTMLElement | null)?.focus()
  }

  #placeOfFocus(): string | null {
    const { activeElement } = document
    return this.#table.contains(activeElement) ? activeElement!.getAttribute('data-focus') : null
  }

  #head(columns: readonly string[]): HTMLElement {
    const { view, change } = this.#page
    const isSorted = (column: string) => view.sort.replace(/^-/, '') === column
    const cell = (column: string, words: string, removes: boolean) => {
      const direction = !isSorted(column) ? 'none' : view.sort.startsWith('-') ? 'descending' : 'ascending'
      const sort = () => {
        // The largest first, then the smallest, then as the folder lists them.
        view.sort = !isSorted(column) ? `-${column}` : view.sort.startsWith('-') ? column : ''
        change()
      }
      const arrow = { none: '', descending: ' ↓', ascending: ' ↑' }[direction]
      const remove = () => {
        view.columns = columns.filter((each) => each !== column)
        change()
      }
      return element(
        'th',
        { scope: 'col', 'aria-sort': direction },
        element(
          'button',
          { type: 'button', class: 'plain', click: sort, 'data-focus': `sort ${column}` },
          words + arrow,
        ),
        removes
          ? element(
              'button',
              {
                ...{ type: 'button', class: 'plain quiet', 'aria-label': `remove ${column}`, click: remove },
                'data-focus': `remove ${column}`,
              },
              '×',
            )
          : null,
      )
    }
    return element(
      'thead',
      {},
      element('tr', {}, cell('run', 'run', false), ...columns.map((each) => cell(each, each, true))),
    )
  }

  #body(columns: readonly string[]): HTMLElement {
    const rows = this.#rows.flatMap((row) => {
      const isOpen = this.#open.has(row.key) && row.runs.length > 1
      const inner = isOpen
        ? row.runs.map((run) => this.#line({ key: run.id, name: run.id, runs: [run] }, columns, true))
        : []
      return [this.#line(row, columns, false), ...inner]
    })
    return element('tbody', {}, ...rows)
  }

  #line(row: Row, columns: readonly string[], isInner: boolean): HTMLElement {
    const { view, change, colorOf } = this.#page
    const { key, name, runs } = row
    const ids = runs.map(({ id }) => id)
    const numHidden = ids.filter((id) => view.hidden.has(id)).length
    const place = isInner ? `run ${key}` : `row ${key}`
    const box = element('input', {
      ...{ type: 'checkbox', 'aria-label': `show ${name}`, 'data-focus': `show ${place}` },
      change: () => {
        view.hidden = changed(view.hidden, ids, !box.checked)
        change()
      },
    })
    box.checked = numHidden < ids.length
    box.indeterminate = numHidden > 0 && numHidden < ids.length
    const isPinned = ids.some((id) => view.pinned.has(id))
    const pin = element(
      'button',
      {
        ...{ type: 'button', class: 'plain', 'aria-pressed': String(isPinned), 'data-focus': `pin ${place}` },
        ...{ 'aria-label': `keep ${name} at the top`, title: 'keep at the top' },
        click: () => {
          view.pinned = changed(view.pinned, ids, !isPinned)
          change()
        },
      },
      isPinned ? '★' : '☆',
    )
    const fold = element(
      'button',
      {
        ...{
          type: 'button',
          class: 'plain',
          'aria-expanded': String(this.#open.has(key)),
          'data-focus': `fold ${place}`,
        },
        'aria-label': `runs of ${name}`,
        click: () => {
          if (!this.#open.delete(key)) this.#open.add(key)
          this.show(this.#runs)
        },
      },
      this.#open.has(key) ? '▾' : '▸',
    )
    const open = this.#page.annotate()
    const write =
      open === null
        ? null
        : element(
            'button',
            {
              ...{ type: 'button', class: 'plain quiet', 'data-focus': `notes ${place}`, title: 'notes and tags' },
              ...{ 'aria-label': `notes on ${name}`, click: () => open(row) },
            },
            '✎',
          )
    const words = runs.length === 1 ? name : `${name} (${runs.length} runs)`
    const head = element(
      'th',
      { scope: 'row', class: isInner ? 'inner' : '' },
      ...[box, colored(element('span', { class: 'swatch' }), colorOf(ids[0]!)), isInner ? null : pin],
      ...[runs.length > 1 ? fold : null, words, write],
    )
    return element(
      'tr',
      { class: numHidden === ids.length ? 'quiet' : '' },
      head,
      ...columns.map((each) => cellElement(runs, each)),
    )
  }

  #addColumn(): void {
    const { view, change } = this.#page
    const name = this.#column.value
    if (!columnNames(this.#runs).includes(name)) return
    this.#column.value = ''
    const columns = columnsOf(
      this.#rows.flatMap((row) => row.runs),
      view,
    )
    view.columns = [...columns.filter((each) => each !== name), name]
    change()
  }

  #hideAll(isHidden: boolean): void {
    const { view, change } = this.#page
    const ids = this.#rows.flatMap((row) => row.runs.map(({ id }) => id))
    view.hidden = changed(view.hidden, ids, isHidden)
    change()
  }
}

/** Settings by which runs can be grouped: all that differ, and the environment and algorithm. */
const settingsOf = (runs: readonly ShownRun[]) =>
  ['environment', 'algorithm', ...columnsOf(runs, PLAIN)].filter(
    (name, i, all) =>
      all.indexOf(name) === i &&
      !['status', 'updates'].includes(name) &&
      !runs.some(({ last }) => Object.hasOwn(last, name)),
  )

function changed(ids: ReadonlySet<string>, some: readonly string[], isIn: boolean): Set<string> {
  const all = new Set(ids)
  for (const id of some) {
    if (isIn) all.add(id)
    else all.delete(id)
  }
  return all
}

function cellElement(runs: readonly ShownRun[], column: string): HTMLElement {
  const cell = cellOf(runs, column)
  if (cell === null) return element('td', { class: 'quiet' }, '–')
  if ('several' in cell) return element('td', { class: 'quiet' }, `${cell.several} values`)
  if ('mean' in cell) return element('td', { class: 'number' }, `${shortNumber(cell.mean)} ± ${shortNumber(cell.std)}`)
  if (typeof cell.value === 'number') {
    // Counts are shown whole.
    const words = Number.isSafeInteger(cell.value) ? String(cell.value) : shortNumber(cell.value)
    return element('td', { class: 'number' }, words)
  }
  return element('td', {}, cell.value)
}
