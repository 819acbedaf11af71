/** Comma-separated values: `step`, `time` (ms since 1970) and a column per number. */
import { InputError } from '../../base/errors.ts'
import { appendText, isThere, readText, writeWhole } from '../../base/files/files.ts'
import { text } from '../../base/settings.ts'
import { defineLogger, placeOf } from './logger.ts'

const FIRST = ['step', 'time']

/**
 * A CSV file with a row per update. A number that first appears later gets a column at the end, empty in earlier rows. Rejects a file of
 * another training.
 */
export const csv = defineLogger({
  id: 'csv',
  settings: { path: text('', "the file; empty: metrics.csv in the run's folder") },
  async open({ path: told }, training) {
    const path = await placeOf('csv', told, training, 'metrics.csv')
    if (training.done === 0 && (await isThere(path))) {
      throw new InputError('logger csv', `${path}, which exists`, 'a new file')
    }
    const [header = '', ...rows] = (await readText(path)).split('\n').slice(0, -1) // Without an incomplete last row.
    let columns = header === '' ? FIRST : readRow(header)
    const kept = rows.filter((row) => Number.parseInt(row, 10) <= training.done)
    const rewrite = (all: readonly string[]) => writeWhole(path, [[rowOf(columns), ...all, ''].join('\n')])
    await rewrite(kept)
    return {
      place: path,
      async write(entries) {
        const others = new Set(entries.flatMap(({ values }) => Object.keys(values)))
        for (const name of columns) others.delete(name)
        if (others.size > 0) {
          columns = [...columns, ...others]
          const before = (await readText(path)).split('\n').slice(1, -1)
          await rewrite(before.map((row) => row + ','.repeat(others.size)))
        }
        const lines = entries.map(({ step, time, values }) => {
          return `${rowOf([step, time, ...columns.slice(FIRST.length).map((name) => values[name] ?? '')])}\n`
        })
        appendText(path, lines.join(''))
      },
    }
  },
})

/** Formats cells as a line; cells with a comma or a quote are quoted. */
function rowOf(cells: readonly (string | number)[]): string {
  return cells
    .map((cell) => {
      const words =
        typeof cell === 'number' && !Number.isFinite(cell) ? String(cell).replace('Infinity', 'inf') : `${cell}`
      return /[",\n\r]/.test(words) ? `"${words.replaceAll('"', '""').replaceAll(/[\n\r]/g, ' ')}"` : words
    })
    .join(',')
}

function readRow(line: string): string[] {
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!,
  )
}
