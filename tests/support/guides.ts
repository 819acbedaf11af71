/** The pages whose code blocks run as tests: the guides, and those of custom environments and of the command line. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const guidesFolder = new URL('../../docs/guides/', import.meta.url).pathname

/** A code block: a program, a file named by its first line (`// my-reward.mjs`, `# look.py`), or shell lines. */
export interface Block {
  readonly language: 'js' | 'python' | 'sh'
  /** The file's name; null for none. */
  readonly file: string | null
  readonly text: string
  /** Whether its heading contains the word Python: it needs one with Gymnasium in `.venv`. */
  readonly takesPython: boolean
}

/** Names of the pages, without `.md`. */
export const guides = readdirSync(guidesFolder)
  .filter((name) => name.endsWith('.md'))
  .map((name) => name.slice(0, -3))

/** All pages. */
export const pages = [...guides, '../environments', '../cli']

/**
 * The blocks of a page in order, without those of `text`, which show output. Throws for a block that nothing would run:
 * in another language, or Python that is not a file for a later shell block.
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
