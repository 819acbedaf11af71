/**
 * Samples as JSON Lines: our format, which reads back unchanged; other trainers' formats, if their columns correspond to ours; and the
 * format of Hugging Face's trainers.
 */
import { checkCount, checkGiven, checkOptions, InputError, show, unknownWord } from '../../base/errors.ts'
import { type RewardReduction, reduceTurnRewards, rewardReductions, type StopReason } from '../../environments/text.ts'
import { readJsonLines, writeJsonLines } from '../json-lines.ts'
import { checkSample, type Sample, type Status } from './sample.ts'

/** A sample's lists of numbers, and the meaning of null in each. If unknown values are not allowed, null becomes NaN, which is rejected. */
const LISTS = {
  tokens: Number.NaN,
  lossMask: Number.NaN,
  rolloutLogProbs: Number.NaN,
  weightVersions: -1,
  turn: Number.NaN,
  candidateCount: -1,
  candidateIds: Number.NaN,
  turnReward: Number.NaN,
} as const
type ListName = keyof typeof LISTS
const LIST_NAMES = Object.keys(LISTS) as ListName[]

/** Values for prompt tokens of per-token lists that a file gives only for the response. */
const OF_PROMPT = { lossMask: 0, rolloutLogProbs: Number.NaN, weightVersions: -1, turn: 0, candidateCount: 0 } as const

/**
 * Writes samples as a JSONL file, with token columns only on request. Unrecorded values are null.
 * @throws InputError, without a file, for numbers that are not finite, columns of different lengths, and a path that cannot be written.
 */
export async function exportSamplesToJsonl(
  samples: readonly Sample[],
  path: string,
  options: { readonly includeTokens?: boolean } = {},
): Promise<void> {
  checkGiven('samples of exportSamplesToJsonl', samples, 'a list')
  checkGiven('path of exportSamplesToJsonl', path, 'a text')
  checkOptions('exportSamplesToJsonl', options, ['includeTokens'])
  const { includeTokens = false } = options
  samples.forEach(checkSample)
  await writeJsonLines(
    path,
    samples.map((sample) => {
      const line: Record<string, unknown> = { ...sample }
      for (const name of LIST_NAMES) {
        const values = sample[name]
        if (values === undefined || (name !== 'turnReward' && !includeTokens)) delete line[name]
        else line[name] = Array.from(values, (value) => (isUnknown(name, value) ? null : value))
      }
      return line
    }),
  )
}

function isUnknown(name: ListName, value: number): boolean {
  return Number.isNaN(value) || (name === 'candidateCount' && value === LISTS.candidateCount)
}

/**
 * The columns of a line, and their other names in textpolicy, slime, TRL and verl; case and underscores are ignored. With TRL's
 * `promptIds` and `completionIds` there are no `tokens`.
 */
const SPELLINGS = {
  ...{ id: [], index: [], source: [], epoch: ['epochId'], promptId: [], groupIndex: ['group', 'groupId'], member: [] },
  ...{ segment: [], cutTurns: [], droppedReplies: ['unheard'] },
  ...{ prompt: ['input'], groundTruth: ['answer', 'label', 'gts'], response: ['completion', 'output'] },
  ...{ tokens: ['tokenIds', 'inputIds'], promptIds: [], completionIds: ['responseIds'] },
  lossMask: ['lossMasks', 'responseMask', 'completionMask', 'envMask'],
  rolloutLogProbs: ['logProbs'],
  ...{ weightVersions: [], turn: [], turns: [], responseLength: [] },
  ...{ candidateCount: ['supportLength'], candidateIds: ['supportIds'] }, // Names in our older files.
  forms: [],
  ...{ reward: [], turnReward: ['turnRewards'], error: [], score: [], status: [], stopReason: [], metadata: [] },
  removeSample: [],
} as const satisfies Record<string, readonly string[]>
type Column = keyof typeof SPELLINGS
const COLUMNS = Object.keys(SPELLINGS) as Column[]

const normal = (word: string) => word.replaceAll('_', '').toLowerCase()
const COLUMN_OF = new Map(
  COLUMNS.flatMap((column) => [column, ...SPELLINGS[column]].map((word) => [normal(word), column] as const)),
)

/** Options for reading a file of samples. */
export interface LoadSamplesOptions {
  /** Maximum number of samples. */
  readonly limit?: number
  /**
   * What happens to an unknown column: an error with the nearest name (default), nothing, or it is kept in the sample's `metadata`.
   * Unknown columns that are null are ignored.
   */
  readonly unknown?: 'error' | 'ignore' | 'keep'
  /** How turn rewards reduce to the reward if a line has only the former; default `last`. */
  readonly rewardReduction?: RewardReduction
}
const OPTIONS = ['limit', 'unknown', 'rewardReduction'] as const
const UNKNOWN = ['error', 'ignore', 'keep'] as const

/**
 * Reads samples from `exportSamplesToJsonl`, or files with such columns, in our naming or that of textpolicy, slime, TRL or verl, with at
 * least `prompt` and `response`. Samples written without tokens have none. Lists with the length of `responseLength`, or of the
 * completion's ids, cover only the response. A file without `source` is a source named by its path. Without `promptId`, prompts are
 * distinguished by their text; without `groupIndex`, the samples of a prompt form one group, with a warning.
 * @throws InputError with the number of a line that is not JSON or not a sample, and for an unknown option.
 */
export async function loadSamplesFromJsonl(path: string, options: LoadSamplesOptions = {}): Promise<Sample[]> {
  checkOptions('loadSamplesFromJsonl', options, OPTIONS)
  const { limit, unknown = 'error', rewardReduction = 'last' } = options
  if (limit !== undefined) checkCount('limit', limit, 0)
  if (!UNKNOWN.includes(unknown)) throw unknownWord('unknown', unknown, UNKNOWN)
  if (!rewardReductions.includes(rewardReduction)) {
    throw unknownWord('rewardReduction', rewardReduction, rewardReductions)
  }
  const samples: Sample[] = []
  const groups = new Groups(path)
  for await (const { place, value } of readJsonLines(path)) {
    if (samples.length === limit) break
    const line = columnsOf(value, place, unknown)
    samples.push(sampleFrom(groups.placed(line, place), place, samples.length, rewardReduction))
  }
  groups.tell()
  return samples
}

/** A line's columns by our names. */
type Line = { readonly [column in Column]?: unknown }

/** The columns of a line, with unknown ones handled by the option. */
function columnsOf(value: unknown, place: string, unknown: (typeof UNKNOWN)[number]): Line {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InputError(place, show(value), 'a sample, as an object')
  }
  const line: { [column in Column]?: unknown } = {}
  const words: { [column in Column]?: string } = {}
  const kept: Record<string, unknown> = {}
  for (const [word, given] of Object.entries(value)) {
    const column = COLUMN_OF.get(normal(word))
    if (column === undefined) {
      if (given !== null && unknown === 'error') {
        const error = unknownWord(`${place}, column`, word, COLUMNS)
        throw new InputError(error.subject, error.got, `${error.expected}; or unknown: 'ignore' or 'keep'`)
      }
      if (unknown === 'keep') kept[word] = given
    } else if (words[column] === undefined || line[column] === null) {
      line[column] = given
      words[column] = word
    } else if (given !== null && JSON.stringify(given) !== JSON.stringify(line[column])) {
      throw new InputError(`${place}, ${words[column]} and ${word}`, 'two values', `one ${column}`)
    }
  }
  // Slime's versions belong to its calls, not to tokens: the version of each token is unknown.
  const { weightVersions } = line
  if (Array.isArray(weightVersions) && weightVersions.some((version) => typeof version === 'string')) {
    kept.weightVersions = weightVersions
    delete line.weightVersions
  }
  // verl and textpolicy have a number in score: the reward, or a part of it.
  if (typeof line.score === 'number') {
    if (line.reward == null) line.reward = line.score
    else line.score = { score: line.score }
    if (typeof line.score === 'number') delete line.score
  }
  if (Object.keys(kept).length > 0) line.metadata = { ...(line.metadata as object), ...kept }
  return line
}

/** Assigns prompt, group and member to samples whose lines lack them. */
class Groups {
  readonly #path: string
  readonly #prompts = new Map<string, number>()
  readonly #members = new Map<string, number>()
  /** Whether the lines have them, as in the first line. */
  readonly #said: { promptId?: boolean; groupIndex?: boolean } = {}
  #isMadeUp = false

  constructor(path: string) {
    this.#path = path
  }

  placed(line: Line, place: string): Line {
    const { prompt, source = this.#path, epoch = 0 } = line
    for (const name of ['promptId', 'groupIndex'] as const) {
      const isSaid = line[name] != null
      this.#said[name] ??= isSaid
      if (this.#said[name] === isSaid) continue
      const expected = `${isSaid ? 'none' : 'one'}, as before`
      throw new InputError(`${place}, ${name}`, isSaid ? show(line[name]) : 'none', expected)
    }
    const promptId = line.promptId ?? this.#numberOf(JSON.stringify(prompt))
    const groupIndex = line.groupIndex ?? 0
    const group = JSON.stringify([source, epoch, promptId, groupIndex])
    const member = this.#members.get(group) ?? 0
    this.#members.set(group, member + 1)
    if (this.#said.groupIndex === false && member > 0) this.#isMadeUp = true
    return { ...line, source, epoch, promptId, groupIndex, member: line.member ?? member }
  }

  #numberOf(prompt: string): number {
    const number = this.#prompts.get(prompt) ?? this.#prompts.size
    this.#prompts.set(prompt, number)
    return number
  }

  /** Warns about groups that the file does not define. */
  tell(): void {
    if (this.#isMadeUp) process.emitWarning(`${this.#path} has no groupIndex: the samples of each prompt are one group`)
  }
}

const DEFAULTS = { groundTruth: null, reward: null, error: null, score: {}, metadata: {} }
/** Why a sample ended, from its status alone. */
const STOP_REASON_OF: Record<Status, StopReason | null> = {
  pending: null,
  completed: 'stop',
  truncated: 'length',
  aborted: 'aborted',
  failed: null,
}

function sampleFrom(line: Line, place: string, index: number, rewardReduction: RewardReduction): Sample {
  const { prompt, response, groundTruth, removeSample = false } = line
  if (typeof prompt !== 'string' && !Array.isArray(prompt)) {
    throw new InputError(`${place}, prompt`, show(prompt), 'a text, or messages')
  }
  if (typeof response !== 'string') throw new InputError(`${place}, response`, show(response), 'a text')
  if (groundTruth != null && typeof groundTruth !== 'string') {
    throw new InputError(`${place}, groundTruth`, show(groundTruth), 'a text, or null')
  }
  if (removeSample !== null && typeof removeSample !== 'boolean') {
    throw new InputError(`${place}, removeSample`, show(removeSample), 'true or false')
  }
  const lists = listsOf(line, place)
  const { tokens, turnReward } = lists
  const fill = (value: number) => tokens.map(() => value)
  const lossMask = removeSample ? fill(0) : lists.lossMask
  const turn = lists.turn ?? fill(0)
  const status = (line.status ?? 'completed') as Status
  const { promptIds: _, completionIds: __, removeSample: ___, ...rest } = line
  const given = Object.fromEntries(Object.entries(rest).filter(([name, value]) => value !== null || name === 'reward'))
  const sample = {
    ...DEFAULTS,
    ...{ id: place, index, status, stopReason: STOP_REASON_OF[status] ?? null },
    ...(turnReward === undefined ? {} : { reward: reduceTurnRewards(turnReward, rewardReduction) }),
    turns: turn.reduce((turns, number) => Math.max(turns, number + 1), 1),
    ...given,
    ...{ rolloutLogProbs: fill(Number.NaN), weightVersions: fill(-1), turn, ...lists, lossMask },
    responseLength: lossMask.filter((flag) => flag !== 0).length,
  } as unknown as Sample
  try {
    checkSample(sample)
  } catch (error) {
    throw error instanceof InputError
      ? new InputError(`${place}: ${error.subject}`, error.got, error.expected, { cause: error })
      : error
  }
  return sample
}

type Lists = { readonly [name in ListName]?: readonly number[] } & {
  readonly tokens: readonly number[]
  readonly lossMask: readonly number[]
}

/** A line's lists, all as long as the tokens. */
function listsOf(line: Line, place: string): Lists {
  const read = (name: Column, unknown: number = Number.NaN) => listFrom(line[name], `${place}, ${name}`, unknown)
  const lists: { [name in ListName]?: readonly number[] } = {}
  for (const name of LIST_NAMES) {
    const list = read(name, LISTS[name])
    if (list !== undefined) lists[name] = list
  }
  const [promptIds, completionIds] = [read('promptIds'), read('completionIds')]
  if ((promptIds === undefined) !== (completionIds === undefined)) {
    throw new InputError(`${place}, promptIds and completionIds`, 'one of them', 'both or none')
  }
  if (promptIds !== undefined && lists.tokens !== undefined) {
    throw new InputError(`${place}, tokens`, 'both tokens and promptIds', 'one of them')
  }
  const tokens = promptIds === undefined ? (lists.tokens ?? []) : [...promptIds, ...completionIds!]
  const length = completionIds?.length ?? (line.responseLength as number | null | undefined)
  const numPrompt = tokens.length - (length ?? Number.NaN)
  for (const name of Object.keys(OF_PROMPT) as (keyof typeof OF_PROMPT)[]) {
    const list = lists[name]
    if (list === undefined || list.length === tokens.length || list.length !== length || numPrompt < 0) continue
    lists[name] = [...new Array<number>(numPrompt).fill(OF_PROMPT[name]), ...list]
  }
  return { ...lists, tokens, lossMask: lists.lossMask ?? maskOf(tokens, numPrompt, place) }
}

/** The default mask: the response is trained. */
function maskOf(tokens: readonly number[], numPrompt: number, place: string): number[] {
  if (tokens.length === 0) return []
  if (Number.isInteger(numPrompt) && numPrompt >= 0) return tokens.map((_, t) => (t < numPrompt ? 0 : 1))
  throw new InputError(`${place}, lossMask`, 'none', 'a mask for the tokens, or responseLength')
}

function listFrom(value: unknown, subject: string, unknown: number): number[] | undefined {
  if (value === undefined || value === null) return undefined
  const isList = Array.isArray(value) && value.every((element) => element === null || typeof element === 'number')
  if (!isList) throw new InputError(subject, show(value), 'a list of numbers')
  return value.map((element) => element ?? unknown)
}

/**
 * Writes samples as a JSONL file for `datasets` and TRL: `prompt` and `completion` as strings, or as lists of messages if the prompts are
 * messages; and `reward`.
 * @throws InputError if some prompts are strings and others messages: a column has one type.
 */
export async function exportSamplesToHuggingfaceFormat(samples: readonly Sample[], path: string): Promise<void> {
  checkGiven('samples of exportSamplesToHuggingfaceFormat', samples, 'a list')
  checkGiven('path of exportSamplesToHuggingfaceFormat', path, 'a text')
  samples.forEach(checkSample)
  const areTexts = typeof samples[0]?.prompt === 'string'
  const other = samples.find(({ prompt }) => (typeof prompt === 'string') !== areTexts)
  if (other !== undefined) {
    const expected = areTexts ? 'a text, as in the first sample' : 'messages, as in the first sample'
    throw new InputError(`sample ${other.id}, prompt`, show(other.prompt), expected)
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
