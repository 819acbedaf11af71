/** Shows an episode as an animated picture: the file that `colonnade replay` wrote to the run's folder. */
import type { ShownRun } from '../runs.ts'
import { element } from './elements.ts'
import { type Ask, RunView } from './run-view.ts'

export class ReplayView extends RunView {
  #runs: readonly ShownRun[] = []
  #shown = ''

  constructor(ask: Ask) {
    super(ask, 'replay', 'An episode as a picture')
    this.layOut()
  }

  set runs(runs: readonly ShownRun[]) {
    this.#runs = runs.filter(({ kind }) => kind === 'episodes')
    this.show(this.#runs.map(({ id }) => id))
    void this.look()
  }

  protected async look(): Promise<void> {
    const run = this.#runs.find(({ id }) => id === this.run.value)
    const wanted = this.isOpen && run !== undefined ? `${run.id} ${run.replayTime}` : ''
    if (wanted === this.#shown) return
    this.#shown = wanted
    this.shown.replaceChildren()
    if (wanted === '') return
    const { id, folder, environment, replayTime } = run!
    if (replayTime === null) {
      this.told.textContent =
        'There is no picture of this run yet. If the environment draws, or observations are grids, this command makes one:'
      this.shown.append(element('code', {}, `colonnade replay ${folder}`))
      return
    }
    this.told.textContent = `Made at ${new Date(replayTime).toLocaleString()}.`
    const src = `api/replay?${new URLSearchParams({ run: id, time: String(replayTime) })}`
    this.shown.append(element('img', { class: 'replay', src, alt: `an episode of ${environment}, played by ${id}` }))
  }
}
