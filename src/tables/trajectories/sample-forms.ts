/**
 * Samples as text in dataset formats of other trainers: TRL's prompt-completion, conversational (`messages`) and preference formats, and
 * `words`, with prompt, answer, completion and reward. A format is written as JSON Lines or as Parquet.
 */
import { extname } from 'node:path'
import { InputError, unknownWord } from '../../base/errors.ts'
import type { Message } from '../../environments/text.ts'
import { arrowOfRows } from '../arrow-of-rows.ts'
import { writeDatasetCard } from '../dataset-card.ts'
import { writeJsonLines } from '../json-lines.ts'
import { writeParquet } from '../parquet.ts'
import type { Sample } from './sample.ts'

/** The text formats of samples. */
export const sampleForms = ['words', 'prompt-completion', 'messages', 'preference'] as const
/** A text format of samples. */
export type SampleForm = (typeof sampleForms)[number]

type Said = Pick<
  Sample,
  'id' | 'source' | 'epoch' | 'promptId' | 'groupIndex' | 'prompt' | 'groundTruth' | 'response' | 'reward' | 'turns'
>

/**
 * Writes samples in a format to a file that ends in .jsonl, .ndjson or .parquet, with a card next to it. Returns its number of rows: one
 * per sample, or for `preference` one per group with different rewards.
 * @throws InputError for another ending, for a mix of text and message prompts, for a conversation of several turns with message prompts
 * (its response also contains the replies), and if no row is left.
 * @example await writeSamplesAs('pairs.parquet', samples, 'preference')
 */
export async function writeSamplesAs(path: string, samples: readonly Said[], form: SampleForm): Promise<number> {
  if (!sampleForms.includes(form)) throw unknownWord('form', form, sampleForms)
  const ending = extname(path)
  if (!['.jsonl', '.ndjson', '.parquet'].includes(ending)) {
    throw new InputError('out', path, 'a name that ends in .jsonl, .ndjson or .parquet')
  }
  const rows = rowsOf(samples, form)
  if (ending === '.parquet') await writeParquet(path, await arrowOfRows(rows))
  else await writeJsonLines(path, rows)
  await writeDatasetCard(path, {
    tags: form === 'words' ? [] : ['trl'],
    facts: { form, rows: rows.length, samples: samples.length },
  })
  return rows.length
}

function rowsOf(samples: readonly Said[], form: SampleForm): object[] {
  const areTexts = typeof samples[0]?.prompt === 'string'
  for (const { id, prompt, turns } of samples) {
    if ((typeof prompt === 'string') !== areTexts) {
      const [got, expected] = areTexts ? ['messages', 'a text'] : ['a text', 'messages']
      throw new InputError(`sample ${id}, prompt`, got, `${expected}, as in the first sample`)
    }
    if (turns > 1 && !areTexts && form !== 'words') {
      throw new InputError(`sample ${id}`, `${turns} turns`, `one turn with the form ${form}; or the form words`)
    }
  }
  const rows = form === 'preference' ? pairsOf(samples) : samples.map((sample) => rowOf(sample, form))
  if (rows.length > 0) return rows
  const expected = form === 'preference' ? 'a group with different rewards' : 'at least one'
  throw new InputError('samples', samples.length === 0 ? 'none' : `${samples.length} without such a group`, expected)
}

function rowOf(sample: Said, form: Exclude<SampleForm, 'preference'>): object {
  const { prompt, groundTruth, response, reward } = sample
  if (form === 'words') return { prompt, answer: groundTruth, completion: response, reward }
  if (form === 'prompt-completion') return { prompt, completion: completionOf(sample), reward }
  const asked: readonly Message[] = typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt
  return { messages: [...asked, { role: 'assistant', content: response }], reward }
}

function completionOf({ prompt, response }: Said): string | Message[] {
  return typeof prompt === 'string' ? response : [{ role: 'assistant', content: response }]
}

/** The best and the worst sample of each group with different rewards; the first of equal ones. */
function pairsOf(samples: readonly Said[]): object[] {
  const groups = new Map<string, { best: Said; worst: Said }>()
  for (const sample of samples) {
    const { source, epoch, promptId, groupIndex, reward } = sample
    if (reward === null) continue
    const key = JSON.stringify([source, epoch, promptId, groupIndex])
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { best: sample, worst: sample })
    else if (reward > group.best.reward!) group.best = sample
    else if (reward < group.worst.reward!) group.worst = sample
  }
  return [...groups.values()]
    .filter(({ best, worst }) => best !== worst)
    .map(({ best, worst }) => ({
      prompt: best.prompt,
      chosen: completionOf(best),
      rejected: completionOf(worst),
      score_chosen: best.reward,
      score_rejected: worst.reward,
    }))
}
