/** What the checks of a run find, as `colonnade diagnose` prints it. */
import type { Diagnosis } from '../../diagnose/diagnose.ts'
import { element, shortNumber } from './elements.ts'
import { type Ask, RunView } from './run-view.ts'
import { table } from './tables.ts'

export class DiagnosisView extends RunView {
  constructor(ask: Ask) {
    super(ask, 'diagnosis', 'Why it does not learn')
    this.layOut()
  }

  protected async look(): Promise<void> {
    if (!this.isOpen) return
    await this.answer('api/diagnosis', new URLSearchParams({ run: this.run.value }), (answer) => {
      const { findings, checked, skipped } = answer as unknown as Diagnosis
      const found = findings.length === 0 ? 'nothing found' : `${findings.length} found`
      const left = Object.entries(skipped).map(([check, reason]) => `${check} was not checked: ${reason}`)
      this.told.textContent = [`${checked.length} checks, ${found}`, ...left].join('; ')
      this.shown.replaceChildren(
        ...findings.flatMap(({ check, problem, evidence, changes }) => [
          element('h3', {}, `${check}: ${problem}`),
          table(
            ['metric', 'updates', 'mean', 'expected'],
            evidence.map(({ metric, first, last, mean, expected }) => [
              ...[metric, `${first} to ${last}`, shortNumber(mean), expected],
            ]),
          ),
          ...changes.map(({ key, value, to }) =>
            element('p', {}, 'try ', element('code', {}, `${key}=${to}`), `, which was ${value}`),
          ),
        ]),
      )
    })
  }
}
