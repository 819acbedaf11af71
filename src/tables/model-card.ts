/** Model cards for hubs: Markdown after a YAML head. */
import { checkGiven } from '../base/errors.ts'
import { cardTable, cell } from './dataset-card.ts'

/** Contents of a card. */
export interface ModelCardContent {
  readonly title: string
  /** `transformers` for a language model in its format. */
  readonly library: string
  /** The hub's task category: `reinforcement-learning`, `text-generation`. */
  readonly task: string
  /** Tags besides reinforcement-learning and colonnade, which every card has. */
  readonly tags?: readonly string[]
  /** Evaluation on fresh episodes of an environment. */
  readonly result?: {
    readonly environment: string
    readonly mean: number
    readonly std: number
    readonly episodes: number
  }
  /** Shown as a table; undefined and empty values are omitted. */
  readonly facts: Readonly<Record<string, string | number | undefined>>
  /** Pictures next to the card, by their captions. */
  readonly pictures?: Readonly<Record<string, string>>
  /** How to use the model, in Markdown. */
  readonly use: string
}

/** Returns the text of a card. */
export function modelCard(given: ModelCardContent): string {
  checkGiven('content of modelCard', given, ['title', 'library', 'task', 'facts'])
  const { title, library, task, tags = [], result, facts, pictures = {}, use } = given

  const judged = result === undefined ? [] : resultLines(title, task, result)
  const score = result === undefined ? undefined : `${result.mean.toFixed(2)} ± ${result.std.toFixed(2)}`
  const over = result === undefined ? {} : { [`return of ${result.episodes} fresh episodes`]: score }
  return [
    '---',
    `library_name: ${library}`,
    `pipeline_tag: ${task}`,
    'tags:',
    ...[...new Set(['reinforcement-learning', 'colonnade', ...tags])].map((tag) => `- ${JSON.stringify(tag)}`),
    ...judged,
    '---',
    `# ${cell(title)}`,
    '',
    ...cardTable({ ...over, ...facts }),
    '',
    ...Object.entries(pictures).flatMap(([what, file]) => [`![${cell(what)}](${encodeURI(file)})`, '']),
    '## Use',
    '',
    use,
    '',
  ].join('\n')
}

/** The metadata from which hubs build result tables. */
function resultLines(title: string, task: string, { environment, mean, std }: NonNullable<ModelCardContent['result']>) {
  return [
    'model-index:',
    `- name: ${JSON.stringify(title)}`,
    '  results:',
    '  - task:',
    `      type: ${task}`,
    '      name: Reinforcement learning',
    '    dataset:',
    `      name: ${JSON.stringify(environment)}`,
    `      type: ${JSON.stringify(environment)}`,
    '    metrics:',
    '    - type: mean_reward',
    `      value: ${mean.toFixed(2)} +/- ${std.toFixed(2)}`,
    '      name: mean_reward',
    '      verified: false',
  ]
}
