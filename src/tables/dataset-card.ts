/** The cards of datasets, as hubs show them: Markdown behind a head in YAML. */

import { basename, dirname, extname, join } from 'node:path'
import { checkGiven } from '../base/errors.ts'
import { writeWhole } from '../base/files/files.ts'

/** What a card says. */
export interface CardContent {
  /** Beside reinforcement-learning, which all have. */
  readonly tags?: readonly string[]
  /** Shown as a table; what is undefined or empty is left out. */
  readonly facts: Readonly<Record<string, string | number | undefined>>
}

/** The text of a card. `dataFile` is the file of the dataset, where it is one. */
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

/** The lines of a table of facts; those that are undefined or empty are left out. */
export function cardTable(facts: CardContent['facts']): string[] {
  const rows = Object.entries(facts).flatMap(([name, value]) =>
    value === undefined || value === '' ? [] : [`| ${name} | ${cell(String(value))} |`],
  )
  return ['| | |', '|---|---|', ...rows]
}

/** A text for one line of a table, without HTML. */
export function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;').replace(/\s+/g, ' ')
}

/** Writes the card of a dataset that is one file beside it: `words.card.md` of `words.jsonl`. A hub wants it as `README.md`. */
export async function writeDatasetCard(file: string, content: CardContent): Promise<void> {
  checkGiven('file of writeDatasetCard', file, 'a text')
  checkGiven('content of writeDatasetCard', content, ['facts'])
  const ending = extname(file)
  const title = basename(file, ending)
  await writeWhole(join(dirname(file), `${title}.card.md`), [datasetCard(title, content, basename(file))])
}
