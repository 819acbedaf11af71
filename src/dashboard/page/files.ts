/** The Arrow files of a run as a table: pages of rows, with filters. */
import { element } from './elements.ts'
import { table } from './tables.ts'

/** Rows of a page. */
const COUNT = 50

interface Page {
  readonly columns: readonly { readonly name: string; readonly type: string }[]
  readonly numRows: number
  readonly numFound: number
  readonly places: readonly number[]
  readonly rows: readonly (readonly string[])[]
}

/** Asks its server for rows only once it was opened. */
export class FilesView {
  readonly root: HTMLElement
  readonly #ask: (path: string) => Promise<Record<string, unknown>>
  readonly #run = element('select', { 'aria-label': 'run', change: () => void this.#list() })
  readonly #file = element('select', { 'aria-label': 'file', change: () => void this.#turn(0) })
  readonly #filter = element('input', {
    ...{ type: 'text', size: '40', placeholder: 'reward > 0.5, done = 1' },
    change: () => void this.#turn(0),
  })
  readonly #back = element('button', { type: 'button', click: () => void this.#turn(this.#from - COUNT) }, 'earlier')
  readonly #on = element('button', { type: 'button', click: () => void this.#turn(this.#from + COUNT) }, 'later')
  readonly #told = element('p', { class: 'quiet', role: 'status' })
  readonly #rows = element('div')
  #from = 0
  /** Counts requests: an answer that comes after a later request is old. */
  #asked = 0

  constructor(ask: (path: string) => Promise<Record<string, unknown>>) {
    this.#ask = ask
    const label = (words: string, control: HTMLElement) => element('label', {}, words, control)
    this.root = element(
      'details',
      { id: 'files', toggle: () => void this.#list() },
      element('summary', {}, 'Rows of rollouts and conversations'),
      element(
        'div',
        { class: 'legend' },
        ...[
          label('run', this.#run),
          label('file', this.#file),
          label('rows where', this.#filter),
          this.#back,
          this.#on,
        ],
      ),
      this.#told,
      this.#rows,
    )
  }

  /** The runs that can be looked at. */
  show(ids: readonly string[]): void {
    const known = [...this.#run.options].map(({ value }) => value)
    if (known.length === ids.length && known.every((id, i) => id === ids[i])) return
    const { value } = this.#run
    this.#run.replaceChildren(...ids.map((id) => element('option', {}, id)))
    if (ids.includes(value)) this.#run.value = value
    else void this.#list()
  }

  async #list(): Promise<void> {
    if (!(this.root as HTMLDetailsElement).open || this.#run.value === '') return
    await this.#answer(`api/files?${new URLSearchParams({ run: this.#run.value })}`, ({ files }) => {
      const paths = (files as { path: string; bytes: number }[]).map(({ path }) => path)
      const { value } = this.#file
      this.#file.replaceChildren(...paths.map((path) => element('option', {}, path)))
      this.#file.value = paths.includes(value) ? value : (paths.at(-1) ?? '')
      if (paths.length > 0) return void this.#turn(0)
      this.#told.textContent =
        'This run keeps no rows: rollouts=last or all, or trajectories=last or all of a language model, keeps some.'
      this.#rows.replaceChildren()
    })
  }

  async #turn(from: number): Promise<void> {
    this.#from = Math.max(0, from)
    const query = new URLSearchParams({
      run: this.#run.value,
      file: this.#file.value,
      from: String(this.#from),
      count: String(COUNT),
    })
    for (const filter of this.#filter.value.split(',')) if (filter.trim() !== '') query.append('where', filter)
    await this.#answer(`api/rows?${query}`, (answer) => {
      const { columns, numRows, numFound, places, rows } = answer as unknown as Page
      const last = this.#from + rows.length
      const found = numFound === numRows ? `${numRows} rows` : `${numFound} of ${numRows} rows`
      this.#told.textContent = rows.length === 0 ? `${found}` : `${this.#from + 1} to ${last} of ${found}`
      this.#back.disabled = this.#from === 0
      this.#on.disabled = last >= numFound
      this.#rows.replaceChildren(
        table(
          ['row', ...columns.map(({ name, type }) => `${name} (${type})`)],
          rows.map((row, i) => [String(places[i]), ...row]),
        ),
      )
    })
  }

  async #answer(path: string, take: (answer: Record<string, unknown>) => void): Promise<void> {
    const asked = ++this.#asked
    try {
      const answer = await this.#ask(path)
      if (asked === this.#asked) take(answer)
    } catch (error) {
      if (asked !== this.#asked) return
      this.#told.textContent = (error as Error).message
      this.#rows.replaceChildren()
    }
  }
}
