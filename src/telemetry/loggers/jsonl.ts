/** Entries as lines of JSON, in rotating files. */
import { stat } from 'node:fs/promises'
import { appendText, disk, isThere, parseObject, readText, removeWhole, writeWhole } from '../../base/files/files.ts'
import { integer, text } from '../../base/settings.ts'
import { defineLogger, placeOf } from './logger.ts'

/**
 * A file with a line of JSON per update. At `maxBytes` it is renamed to `<path>.1`, the former `<path>.1` to `<path>.2`, and so on up to
 * `<path>.<kept>`. Files of another training are renamed in the same way.
 */
export const jsonl = defineLogger({
  id: 'jsonl',
  settings: {
    path: text('', "the file; empty: log.jsonl in the run's folder"),
    maxBytes: integer(64 * 2 ** 20, 'bytes after which a new file begins', { min: 1 }),
    kept: integer(8, 'number of older files to keep', { min: 0 }),
  },
  async open({ path: told, maxBytes, kept }, training) {
    const path = await placeOf('jsonl', told, training, 'log.jsonl')
    const names = [path, ...Array.from({ length: kept }, (_, i) => `${path}.${i + 1}`)]
    const rotate = async (): Promise<void> => {
      await removeWhole(names.at(-1)!)
      for (let i = kept - 1; i >= 0; i--) if (await isThere(names[i]!)) await disk.rename(names[i]!, names[i + 1]!)
    }
    if (training.done > 0) for (const name of names) await dropLater(name, training.done)
    else if (await isThere(path)) await rotate()
    let bytes = await stat(path).then(
      ({ size }) => size,
      () => 0,
    )
    return {
      place: path,
      async write(entries) {
        for (const { step, time, values, texts, distributions } of entries) {
          const line = `${JSON.stringify({ step, time, ...values, ...texts, ...distributions })}\n`
          const size = Buffer.byteLength(line)
          if (bytes > 0 && bytes + size > maxBytes) {
            await rotate()
            bytes = 0
          }
          appendText(path, line)
          bytes += size
        }
      },
    }
  },
})

/** Removes lines of later steps, and an incomplete last line, from a file. */
async function dropLater(path: string, last: number): Promise<void> {
  if (!(await isThere(path))) return
  const lines = (await readText(path)).split('\n').slice(0, -1)
  const kept = lines.filter((line) => stepOf(line) <= last)
  await writeWhole(path, [kept.map((line) => `${line}\n`).join('')])
}

/** Infinity for a line that is not an entry. */
function stepOf(line: string): number {
  return Number(parseObject(line)?.step ?? Number.POSITIVE_INFINITY)
}
