/** The state of a run's fleet, as `colonnade fleet` prints it. */
import { type FleetRecord, fleetInWords } from '../../fleet-record.ts'
import { element } from './elements.ts'
import { type Ask, RunView } from './run-view.ts'
import { table } from './tables.ts'

/** Seconds after which a state counts as old; the learner reports one every two seconds. */
const OLD_SECONDS = 15

export class FleetView extends RunView {
  constructor(ask: Ask) {
    super(ask, 'fleet', 'Fleet')
    this.layOut()
  }

  protected async look(): Promise<void> {
    if (!this.isOpen) return
    await this.answer('api/fleet', new URLSearchParams({ run: this.run.value }), ({ fleet, ageSeconds }) => {
      const { address, ...status } = fleet as FleetRecord
      const { lines, tables } = fleetInWords(status)
      const isOld = status.learner.state !== 'ended' && (ageSeconds as number) > OLD_SECONDS
      this.told.textContent = isOld
        ? `the learner has told nothing for ${Math.round(ageSeconds as number)} s; then:`
        : ''
      this.shown.replaceChildren(
        ...lines.map((line) => element('p', {}, line)),
        ...tables.map(([heads, ...rows]) => table(heads!, rows)),
        element('p', { class: 'quiet' }, 'To end it: ', element('code', {}, `colonnade fleet ${address} order=stop`)),
      )
    })
  }
}
