/** Samples as JSON Lines: ours, which read back as they were, and the form that Hugging Face's trainers take. */
import type { StopReason } from '../environments/text.ts'
import { InputError, show } from '../errors.ts'
import { readJsonLines, writeJsonLines } from './json-lines.ts'
import { checkSample, type Sample, type Status } from './sample.ts'

const TOKEN_COLUMNS = ['tokens', 'lossMask', 'rolloutLogProbs', 'weightVersions', 'turn', 'supportLength'] as const

/**
 * Writes samples as a JSONL file; token columns only where they are asked for. A logprob that is not recorded is null.
 * @throws InputError for a sample whose numbers are not finite or whose columns differ in length, and if the path cannot be
 * written; then there is no file.
 */
export async function exportSamplesToJsonl(
  samples: readonly Sample[],
  path: string,
  { includeTokens = false }: { includeTokens?: boolean } = {},
): Promise<void> {
  samples.forEach(checkSample)
  await writeJsonLines(
    path,
    samples.map((sample) => {
      const { tokens, lossMask, rolloutLogProbs, weightVersions, turn, supportLength, supportIds, ...rest } = sample
      if (!includeTokens) return rest
      const logprobs = Array.from(rolloutLogProbs, (value) => (Number.isNaN(value) ? null : value))
      const [ids, mask, versions, turns] = [tokens, lossMask, weightVersions, turn].map((column) => Array.from(column))
      return {
        ...rest,
        ...{ tokens: ids, lossMask: mask, rolloutLogProbs: logprobs, weightVersions: versions, turn: turns },
        ...(supportLength === undefined
          ? {}
          : { supportLength: Array.from(supportLength, (length) => (length === -1 ? null : length)) }),
        ...(supportIds === undefined ? {} : { supportIds: Array.from(supportIds) }),
      }
    }),
  )
}

/** What a sample has where its line does not say. */
const DEFAULTS = {
  ...{ index: 0, epoch: 0, promptId: 0, groupIndex: 0, member: 0, turns: 1 },
  ...{ groundTruth: null, reward: null, error: null, score: {}, metadata: {} },
}
/** Why a sample ended, where only its status says so. */
const STOP_REASON_OF: Record<Status, StopReason | null> = {
  pending: null,
  completed: 'stop',
  truncated: 'length',
  aborted: 'aborted',
  failed: null,
}

/**
 * Reads samples that `exportSamplesToJsonl` wrote, or others with such fields: `prompt` and `response` at least. Samples that
 * were written without their tokens have none.
 * @throws InputError with the number of the line that is not JSON, or not a sample.
 */
export async function loadSamplesFromJsonl(path: string, { limit }: { limit?: number } = {}): Promise<Sample[]> {
  if (limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0)) {
    throw new InputError('limit', show(limit), 'a whole number ≥ 0')
  }
  const samples: Sample[] = []
  for await (const { place, value } of readJsonLines(path)) {
    if (samples.length === limit) break
    samples.push(sampleFrom(value, place, samples.length))
  }
  return samples
}

function sampleFrom(value: unknown, place: string, index: number): Sample {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InputError(place, show(value), 'a sample, as an object')
  }
  const given = value as Partial<Record<keyof Sample, unknown>>
  const { prompt, response } = given
  if (typeof prompt !== 'string' && !Array.isArray(prompt)) {
    throw new InputError(`${place}, prompt`, show(prompt), 'a text, or messages')
  }
  if (typeof response !== 'string') throw new InputError(`${place}, response`, show(response), 'a text')
  const columns = Object.fromEntries(TOKEN_COLUMNS.map((name) => [name, column(given[name], `${place}, ${name}`)]))
  const { tokens } = columns
  const numTokens = tokens?.length ?? 0
  const fill = (value: number | null) => new Array<number | null>(numTokens).fill(value)
  const { lossMask = fill(0), weightVersions = fill(-1), turn = fill(0), rolloutLogProbs = fill(null) } = columns
  const status = (given.status ?? 'completed') as Status
  const stopReason = STOP_REASON_OF[status] ?? null
  const sample = {
    ...DEFAULTS,
    ...{ id: `${place}`, index, status, stopReason },
    ...given,
    tokens: tokens ?? [],
    lossMask,
    rolloutLogProbs: rolloutLogProbs.map((logprob) => logprob ?? Number.NaN), // Refused where it is known which weights chose.
    weightVersions,
    turn,
    ...(columns.supportLength === undefined
      ? {}
      : { supportLength: columns.supportLength.map((length) => length ?? -1) }),
    responseLength: lossMask.filter((flag) => flag !== 0).length,
  } as Sample
  try {
    checkSample(sample)
  } catch (error) {
    throw error instanceof InputError
      ? new InputError(`${place}: ${error.subject}`, error.got, error.expected, { cause: error })
      : error
  }
  return sample
}

function column(value: unknown, subject: string): (number | null)[] | undefined {
  if (value === undefined) return undefined
  const isColumn = Array.isArray(value) && value.every((element) => element === null || typeof element === 'number')
  if (!isColumn) throw new InputError(subject, show(value), 'a list of numbers')
  return value
}

/**
 * Writes samples as a JSONL file that `datasets` and TRL read: `prompt` and `completion` as texts, or, where the prompts are
 * messages, as lists of messages; and `reward`.
 * @throws InputError where some prompts are texts and others messages: a column has one type.
 */
export async function exportSamplesToHuggingfaceFormat(samples: readonly Sample[], path: string): Promise<void> {
  samples.forEach(checkSample)
  const areTexts = typeof samples[0]?.prompt === 'string'
  const other = samples.find(({ prompt }) => (typeof prompt === 'string') !== areTexts)
  if (other !== undefined) {
    throw new InputError(
      `sample ${other.id}, prompt`,
      show(other.prompt),
      areTexts ? 'a text, as of the first sample' : 'messages, as of the first sample',
    )
  }
  await writeJsonLines(
    path,
    samples.map(({ prompt, response, reward }) => ({
      prompt,
      completion: areTexts ? response : [{ role: 'assistant', content: response }],
      reward,
    })),
  )
}
