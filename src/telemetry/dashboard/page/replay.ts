/** Shows an episode as an animated picture: a file that `colonnade replay` wrote to the run's folder. */
import type { Moment } from '../moments.ts'
import type { ShownRun } from '../runs.ts'
import { element, fill } from './elements.ts'
import { type Ask, RunView } from './run-view.ts'

export class ReplayView extends RunView {
  readonly #picture = element('select', { change: () => this.#draw() })
  #runs: readonly ShownRun[] = []
  #listed = ''
  #drawn = ''

  constructor(ask: Ask) {
    super(ask, 'replay', 'An episode as a picture')
    this.layOut(element('label', {}, 'picture', this.#picture))
  }

  set runs(runs: readonly ShownRun[]) {
    this.#runs = runs.filter(({ kind }) => kind === 'episodes')
    this.show(this.#runs.map(({ id }) => id))
    void this.look()
  }

  /** Opens a picture of a run. */
  open(run: string, file: string): void {
    fill(this.#picture, [file], wordsOf)
    this.choose(run)
  }

  get #run(): ShownRun | undefined {
    return this.#runs.find(({ id }) => id === this.run.value)
  }

  protected async look(): Promise<void> {
    const run = this.#run
    const wanted = this.isOpen && run !== undefined ? `${run.id} ${run.replayTime}` : ''
    if (wanted === this.#listed) return this.#draw()
    this.#listed = wanted
    if (wanted === '') return this.#draw()
    await this.answer('api/moments', new URLSearchParams({ run: run!.id }), ({ moments, newest }) => {
      const found = (moments as Record<string, Moment[]>)[run!.id]!.filter(({ kind }) => kind === 'picture')
      const names = [
        ...((newest as string[]).includes(run!.id) ? ['replay.gif'] : []),
        ...found.map(({ file }) => file),
      ]
      const before = this.#picture.value
      fill(this.#picture, names, wordsOf)
      this.#picture.value = names.includes(before) ? before : (names[0] ?? '')
      this.#draw()
    })
  }

  #draw(): void {
    const run = this.isOpen ? this.#run : undefined
    const file = this.#picture.value
    const wanted = run === undefined ? '' : `${this.#listed} ${file}`
    if (wanted === this.#drawn) return
    this.#drawn = wanted
    this.shown.replaceChildren()
    if (run === undefined) return
    const { id, folder, environment, replayTime } = run
    if (file === '') {
      this.told.textContent =
        'There is no picture of this run yet. If the environment draws, or observations are grids, this command makes one:'
      this.shown.append(element('code', {}, `colonnade replay ${folder}`))
      return
    }
    this.told.textContent = ''
    const src = `api/replay?${new URLSearchParams({ run: id, file, time: String(replayTime) })}`
    this.shown.append(element('img', { class: 'replay', src, alt: `an episode of ${environment}, played by ${id}` }))
  }
}

const wordsOf = (file: string) => (file === 'replay.gif' ? 'the newest' : `update ${/\d+/.exec(file)![0]}`)
