/** The Arrow files of a run as a table: pages of rows, with filters. */
import type { ArrowPage as Page } from '../arrow-rows.ts'
import { element } from './elements.ts'
import { type Ask, FileView } from './run-view.ts'
import { table } from './tables.ts'

/** Rows per page. */
const COUNT = 50

/** The start of a query; a filter would continue with an operator. */
const SQL = /^\s*(select|with|from|summarize|describe)\s+[^\s=!<>~]/i

/** Shows the rows of a file that pass the entered filters, or DuckDB's answer to the entered query. */
export class FilesView extends FileView {
  protected readonly folders = ['rollouts', 'trajectories']
  protected readonly none =
    'This run has no rows. Set rollouts=last or all (or trajectories=last or all for a language model) to keep some.'
  readonly #filter = element('input', {
    ...{ type: 'text', size: '60', placeholder: 'reward > 0.5, done = 1    or    SELECT avg(reward) FROM rows' },
    change: () => void this.turn(0),
  })

  constructor(ask: Ask) {
    super(ask, 'files', 'Rows of rollouts and conversations', COUNT)
    this.layOut(element('label', {}, 'rows where, or SQL', this.#filter))
  }

  protected async fill(query: URLSearchParams): Promise<void> {
    query.set('count', String(COUNT))
    const typed = this.#filter.value
    if (SQL.test(typed)) query.set('sql', typed)
    else for (const filter of typed.split(',')) if (filter.trim() !== '') query.append('where', filter)
    await this.answer('api/rows', query, (answer) => {
      const { columns, numRows, numFound, places, rows } = answer as unknown as Page
      const last = this.from + rows.length
      const found = numFound === numRows ? `${numRows} rows` : `${numFound} of ${numRows} rows`
      this.told.textContent = rows.length === 0 ? `${found}` : `${this.from + 1} to ${last} of ${found}`
      this.hasMore = last < numFound
      this.shown.replaceChildren(
        table(
          ['row', ...columns.map(({ name, type }) => `${name} (${type})`)],
          rows.map((row, i) => [String(places[i]), ...row]),
        ),
      )
    })
  }
}
