/** Dataset cards for hubs: Markdown after a YAML head. */

import { basename, dirname, extname, join } from 'node:path'
import { checkGiven } from '../base/errors.ts'
import { writeWhole } from '../base/files/files.ts'

/** Contents of a card. */
export interface CardContent {
  /** Tags besides reinforcement-learning, which every card has. */
  readonly tags?: readonly string[]
  /** Shown as a table; undefined and empty values are omitted. */
  readonly facts: Readonly<Record<string, string | number | undefined>>
}

/** Returns the text of a card. `dataFile` is the file of a single-file dataset. */
export function datasetCard(title: string, { tags = [], facts }: CardContent, dataFile?: string): string {
  return [
    '---',
    'tags:',
    ...['reinforcement-learning', ...tags].map((tag) => `- ${tag}`),
    ...(dataFile === undefined
      ? []
      : ['configs:', '- config_name: default', `  data_files: ${JSON.stringify(dataFile)}`]),
    '---',
    `# ${cell(title)}`,
    '',
    ...cardTable(facts),
    '',
  ].join('\n')
}

/** The lines of a table of facts, without undefined and empty ones. */
export function cardTable(facts: CardContent['facts']): string[] {
  const rows = Object.entries(facts).flatMap(([name, value]) =>
    value === undefined || value === '' ? [] : [`| ${name} | ${cell(String(value))} |`],
  )
  return ['| | |', '|---|---|', ...rows]
}

/** Formats a text for one line of a table, without HTML. */
export function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;').replace(/\s+/g, ' ')
}

/** Writes the card of a single-file dataset next to it: `words.card.md` for `words.jsonl`. A hub expects it as `README.md`. */
export async function writeDatasetCard(file: string, content: CardContent): Promise<void> {
  checkGiven('file of writeDatasetCard', file, 'a text')
  checkGiven('content of writeDatasetCard', content, ['facts'])
  const ending = extname(file)
  const title = basename(file, ending)
  await writeWhole(join(dirname(file), `${title}.card.md`), [datasetCard(title, content, basename(file))])
}
