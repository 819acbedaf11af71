/** Parts of the page about one run, loaded when they are opened. */
import { type Child, element } from './elements.ts'

/** Requests JSON from the server. */
export type Ask = (path: string) => Promise<Record<string, unknown>>

/** A part about a run that is chosen in it. */
export abstract class RunView {
  readonly root: HTMLDetailsElement
  protected readonly run = element('select', { 'aria-label': 'run', change: () => void this.look() })
  protected readonly told = element('p', { class: 'quiet', role: 'status' })
  protected readonly shown = element('div')
  readonly #ask: Ask
  /** The newest query of each path; answers to other queries are outdated. */
  readonly #asked = new Map<string, URLSearchParams>()

  constructor(ask: Ask, id: string, title: string) {
    this.#ask = ask
    this.root = element('details', { id, toggle: () => void this.look() }, element('summary', {}, title))
  }

  /** Lays out the part, with controls after the choice of the run. */
  protected layOut(...controls: readonly Child[]): void {
    const legend = element('div', { class: 'legend' }, element('label', {}, 'run', this.run), ...controls)
    this.root.append(legend, this.told, this.shown)
  }

  /** Sets the available runs; without any the part is hidden. */
  show(ids: readonly string[]): void {
    this.root.hidden = ids.length === 0
    const known = [...this.run.options].map(({ value }) => value)
    if (known.length === ids.length && known.every((id, i) => id === ids[i])) return
    const { value } = this.run
    this.run.replaceChildren(...ids.map((id) => element('option', {}, id)))
    if (ids.includes(value)) this.run.value = value
    else void this.look()
  }

  /** Opens the part with this run, and brings it into sight. */
  protected choose(run: string): void {
    this.run.value = run
    this.root.open = true
    void this.look()
    this.run.focus({ preventScroll: true })
    this.root.scrollIntoView()
  }

  /** Reloads if one of these runs is shown. */
  changed(ids: ReadonlySet<string>): void {
    if (ids.has(this.run.value)) void this.look()
  }

  protected get isOpen(): boolean {
    return this.root.open && this.run.value !== ''
  }

  /** Loads the chosen run if the part is open. */
  protected abstract look(): Promise<void>

  protected async answer(
    path: string,
    query: URLSearchParams,
    take: (answer: Record<string, unknown>) => void,
  ): Promise<void> {
    this.#asked.set(path, query)
    const isOld = () => this.#asked.get(path) !== query || query.get('run') !== this.run.value
    try {
      const answer = await this.#ask(`${path}?${query}`)
      if (!isOld()) take(answer)
    } catch (error) {
      if (isOld()) return
      this.told.textContent = (error as Error).message
      this.shown.replaceChildren()
    }
  }
}

/** A part about an Arrow file of the run, one page at a time. */
export abstract class FileView extends RunView {
  protected readonly file = element('select', { 'aria-label': 'file', change: () => void this.turn(0) })
  protected from = 0
  readonly #step: number
  readonly #back = element('button', { type: 'button', click: () => void this.turn(this.from - this.#step) }, 'earlier')
  readonly #on = element('button', { type: 'button', click: () => void this.turn(this.from + this.#step) }, 'later')
  /** The run and its files when the part was last filled. */
  #known = ''
  #ofRun = ''
  /** The file that `open` asks for. */
  #wanted: string | null = null

  constructor(ask: Ask, id: string, title: string, step: number) {
    super(ask, id, title)
    this.#step = step
  }

  protected override layOut(...controls: readonly Child[]): void {
    super.layOut(element('label', {}, 'file', this.file), ...controls, this.#back, this.#on)
  }

  /** Folders of the files, and the message if there are none. */
  protected abstract readonly folders: readonly string[]
  protected abstract readonly none: string

  protected async look(): Promise<void> {
    if (!this.isOpen) return
    await this.answer('api/files', new URLSearchParams({ run: this.run.value }), ({ files }) => {
      const known = JSON.stringify(files)
      const isOther = this.#ofRun !== this.run.value
      if (known === this.#known && !isOther) return
      this.#known = known
      this.#ofRun = this.run.value
      const paths = (files as { path: string }[])
        .map(({ path }) => path)
        .filter((path) => this.folders.includes(path.split('/')[0]!))
      const { value } = this.file
      const wasNewest = value === (this.file.options[this.file.options.length - 1]?.value ?? '')
      this.file.replaceChildren(...paths.map((path) => element('option', {}, path)))
      // Someone who viewed the newest file continues with the newest.
      const usual = paths.includes(value) && !(wasNewest && !isOther) ? value : (paths.at(-1) ?? '')
      this.file.value = this.#wanted !== null && paths.includes(this.#wanted) ? this.#wanted : usual
      this.#wanted = null
      if (paths.length > 0) return void this.turn(isOther ? 0 : this.from)
      this.told.textContent = this.none
      this.shown.replaceChildren()
    })
  }

  /** Opens the part with a file of a run. */
  open(run: string, file: string): void {
    this.#wanted = file
    this.#ofRun = '' // Its files are listed anew.
    this.choose(run)
  }

  /** Shows the page from this position; waits for the run's list of files if necessary. */
  protected async turn(from: number): Promise<void> {
    if (this.#ofRun !== this.run.value || this.file.value === '') return
    this.from = Math.max(0, from)
    const query = new URLSearchParams({ run: this.run.value, file: this.file.value, from: String(this.from) })
    await this.fill(query)
  }

  protected abstract fill(query: URLSearchParams): Promise<void>

  /** Whether there is a next page. */
  protected set hasMore(hasMore: boolean) {
    this.#back.disabled = this.from === 0
    this.#on.disabled = !hasMore
    this.#back.hidden = this.#on.hidden = this.from === 0 && !hasMore // There is one page.
  }
}
