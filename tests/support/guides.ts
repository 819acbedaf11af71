/** The guides' pages, and the blocks of code that stand in them. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const guidesFolder = new URL('../../docs/guides/', import.meta.url).pathname

/** A block of code: a program, a file that its first line names (`// my-reward.mjs`), or lines for a shell. */
export interface Block {
  readonly language: 'js' | 'sh'
  /** The file that it is; null: none. */
  readonly file: string | null
  readonly text: string
}

/** Names of the pages, without `.md`. */
export const guides = readdirSync(guidesFolder)
  .filter((name) => name.endsWith('.md'))
  .map((name) => name.slice(0, -3))

/** The blocks of a page in their order. Throws for a block that is neither JavaScript nor a shell's: nothing would run it. */
export function blocksOf(guide: string): Block[] {
  const text = readFileSync(join(guidesFolder, `${guide}.md`), 'utf8')
  return [...text.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map(([, language, code]) => {
    if (language !== 'js' && language !== 'sh')
      throw new Error(`${guide}: got a block of ${language}, expected js or sh`)
    const file = /^\/\/ (\S+\.mjs)\n/.exec(code!)?.[1] ?? null
    return { language, file, text: code! }
  })
}
