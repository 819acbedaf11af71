/** Reads the whole of a run's `metrics.jsonl`. */

import { InputError, show } from '../base/errors.ts'
import { parseObject, readText } from '../base/files/files.ts'
import { join } from '../base/files/path.ts'

/** The lines of a run's `metrics.jsonl`; none without the file. @throws InputError for a line that is not an object. */
export async function readMetrics(folder: string): Promise<Record<string, unknown>[]> {
  const path = join(folder, 'metrics.jsonl')
  return (await readLines(path)).map((text, i) => {
    const line = parseObject(text)
    if (line === null) throw new InputError(`${path}:${i + 1}`, show(text), 'a line with a JSON object')
    return line
  })
}

/** A known figure of a line, like `entropy` or `components/exact`. */
export function figureIn(line: Readonly<Record<string, unknown>>, metric: string): number | undefined {
  const inside = (value: unknown, key: string) => (value as Record<string, unknown> | null | undefined)?.[key]
  const value = metric.split('/').reduce<unknown>(inside, line)
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined
}

/** The complete lines: a crash may cut off the last one. */
export async function readLines(path: string): Promise<string[]> {
  const text = await readText(path)
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter(Boolean)
}
