/** Reads a model's file. A page has another body (`model-file.page.ts`). */
import { readFileSync } from 'node:fs'

export function readModel(file: URL): string {
  return readFileSync(file, 'utf8')
}
