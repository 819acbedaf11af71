/** The pages whose blocks of code are run as they stand: the guides, and those of environments of one's own and of the command line. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const guidesFolder = new URL('../../docs/guides/', import.meta.url).pathname

/** A block of code: a program, a file that its first line names (`// my-reward.mjs`, `# look.py`), or lines for a shell. */
export interface Block {
  readonly language: 'js' | 'python' | 'sh'
  /** The file that it is; null: none. */
  readonly file: string | null
  readonly text: string
  /** Whether it stands under a heading that has the word Python: it takes one with Gymnasium in `.venv`. */
  readonly takesPython: boolean
}

/** Names of the pages, without `.md`. */
export const guides = readdirSync(guidesFolder)
  .filter((name) => name.endsWith('.md'))
  .map((name) => name.slice(0, -3))

/** All pages. */
export const pages = [...guides, '../environments', '../cli']

/**
 * The blocks of a page in their order, without those of `text`, which show what a program says. Throws for one that nothing would run: in
 * another language, or of Python and no file, which a later block for the shell runs.
 */
export function blocksOf(page: string): Block[] {
  const sections = readFileSync(join(guidesFolder, `${page}.md`), 'utf8').split(/^(?=## )/m)
  return sections.flatMap((section) => {
    const takesPython = /^## .*Python/.test(section)
    return [...section.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].flatMap(([, language, code]): Block[] => {
      if (language === 'text') return []
      const file = /^(?:\/\/|#) (\S+\.(?:mjs|py))\n/.exec(code!)?.[1] ?? null
      if ((language === 'python' && file !== null) || language === 'js' || language === 'sh') {
        return [{ language, file, text: code!, takesPython }]
      }
      throw new Error(`${page}: got a block of ${language}, expected js, sh, text, or a file of python`)
    })
  })
}
