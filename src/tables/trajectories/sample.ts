/**
 * Samples: a trajectory as an object. A sample's token fields are views of the trajectories' columns, so a list of samples has no second
 * copy of them; a sample made by hand has its own arrays.
 */
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Example, Message, StopReason } from '../../environments/text.ts'
import { Trajectories } from './trajectories.ts'
import {
  checkCandidates,
  checkForms,
  checkIdentity,
  checkTokens,
  checkTurnReward,
  completionOf,
  isOfModel,
  type Trajectory,
} from './trajectory.ts'
import type { TrajectoriesRead } from './trajectory-table.ts'

/** The states of a sample. */
export const statuses = ['pending', 'completed', 'truncated', 'aborted', 'failed'] as const
/**
 * State of a sample: `pending`, its conversation continues; `completed`, the model ended it; `truncated`, its budget or the context ended
 * it; `aborted`; `failed`, it could not be generated.
 */
export type Status = (typeof statuses)[number]

/** The fields that samples and trajectories share. */
type SharedField =
  | ('source' | 'epoch' | 'promptId' | 'member' | 'segment' | 'turns' | 'cutTurns' | 'droppedReplies')
  | ('lossMask' | 'turn' | 'candidateCount' | 'candidateIds' | 'forms' | 'reward' | 'error' | 'turnReward')

/** A trajectory with its texts. */
export interface Sample extends Pick<Trajectory, SharedField> {
  /** `epoch-promptId-groupIndex-member`, after its source if it has one, and before its segment if that is not 0. */
  readonly id: string
  /** Its index among the samples created with it. */
  readonly index: number
  /** A group is (source, epoch, promptId, groupIndex). */
  readonly groupIndex: number
  readonly prompt: string | readonly Message[]
  /** The right answer; null if the example has none. */
  readonly groundTruth: string | null
  /** All text after the prompt. */
  readonly response: string
  /** Token ids as sent and as sampled, the prompt first. The next four columns have the same length. */
  readonly tokens: ArrayLike<number>
  /** Log-probability under the sampled distribution, in nats; NaN if not recorded. */
  readonly rolloutLogProbs: ArrayLike<number>
  /** Version of the weights that chose the token; −1 if none did, or if it is unknown. */
  readonly weightVersions: ArrayLike<number>
  /** Number of trained tokens. */
  readonly responseLength: number
  /** Components of the reward, by name. */
  readonly score: Readonly<Record<string, number | null>>
  readonly status: Status
  /** Why the last turn ended; null while it is running. */
  readonly stopReason: StopReason | null
  /** The example's other columns, and custom data. */
  readonly metadata: Readonly<Record<string, unknown>>
}

/** Names in samples of token columns with another name in trajectories. */
const TOKEN_COLUMNS = { token: 'tokens', logprob: 'rolloutLogProbs', version: 'weightVersions' } as const

function tokensOf({ tokens, lossMask, rolloutLogProbs, weightVersions, turn }: Sample) {
  return { token: tokens, lossMask, logprob: rolloutLogProbs, version: weightVersions, turn }
}

/** The start of a sample's conversation. */
export interface SampleStart extends Pick<Trajectory, 'source' | 'epoch' | 'promptId' | 'group' | 'member'> {
  readonly example: Example
  readonly tokens: readonly number[]
}

/** Creates a sample that only has its prompt. */
export function startSample(given: SampleStart): Sample {
  checkGiven('options of startSample', given, ['epoch', 'promptId', 'group', 'member'])
  const { source = '', epoch, promptId, group, member, example, tokens } = given
  return {
    ...identity({ source, epoch, promptId, group, member }, member),
    ...words(example),
    response: '',
    tokens,
    lossMask: tokens.map(() => 0),
    rolloutLogProbs: tokens.map(() => Number.NaN),
    weightVersions: tokens.map(() => -1),
    turn: tokens.map(() => 0),
    ...{ turns: 0, responseLength: 0, reward: null, error: null, score: {}, status: 'pending', stopReason: null },
  }
}

function identity(
  row: Pick<Trajectory, 'source' | 'epoch' | 'promptId' | 'group' | 'member' | 'segment'>,
  index: number,
) {
  const { source = '', epoch, promptId, group, member, segment = 0 } = row
  const place = [epoch, promptId, group, member, ...(segment === 0 ? [] : [segment])].join('-')
  const id = source === '' ? place : `${source}/${place}`
  return { id, index, source, epoch, promptId, groupIndex: group, member, ...(segment === 0 ? {} : { segment }) }
}

function words({ prompt, answer, ...metadata }: Example) {
  return { prompt, groundTruth: answer ?? null, metadata }
}

/** Tokens to append to a sample's response. */
export interface ResponseTokens {
  readonly tokens: readonly number[]
  readonly text: string
  /** True for the model's output; false for input from a tool or the environment. */
  readonly trainable: boolean
  /** Per token of the model. */
  readonly logprobs?: readonly number[]
  /** Version of the weights that chose them. */
  readonly version?: number
}

/**
 * Returns the sample with appended tokens. Input tokens belong to the turn that follows them.
 * @throws InputError for different numbers of tokens and logprobs, for model tokens without logprobs or version, and for input tokens
 * with them.
 */
export function appendResponseTokens(sample: Sample, added: ResponseTokens): Sample {
  checkGiven('sample of appendResponseTokens', sample, ['tokens', 'status'])
  checkGiven('added of appendResponseTokens', added, ['tokens', 'text', 'trainable'])
  const { tokens, text, trainable, logprobs, version } = added
  const subject = `sample ${sample.id}`
  if (tokens.length === 0) throw new InputError(`${subject}, tokens`, 'none', 'at least one')
  if (trainable && (logprobs === undefined || version === undefined)) {
    const missing = logprobs === undefined ? 'logprobs' : 'version'
    throw new InputError(`${subject}, ${missing}`, 'none', 'a value, for tokens of the model')
  }
  if (!trainable && (logprobs !== undefined || version !== undefined)) {
    throw new InputError(`${subject}, logprobs or version`, 'some', 'none, for input tokens')
  }
  if (logprobs !== undefined && logprobs.length !== tokens.length) {
    throw new InputError(`${subject}, logprobs`, `${logprobs.length} numbers`, `${tokens.length}, one per token`)
  }
  const last = sample.tokens.length - 1
  const wasSaid = last >= 0 && isOfModel(sample.lossMask, sample.weightVersions, last)
  const turn = (sample.turn[last] ?? 0) + (wasSaid && !trainable ? 1 : 0)
  const longer = {
    ...sample,
    response: sample.response + text,
    tokens: [...Array.from(sample.tokens), ...tokens],
    lossMask: extended(sample.lossMask, tokens, () => (trainable ? 1 : 0)),
    rolloutLogProbs: extended(sample.rolloutLogProbs, tokens, (i) => logprobs?.[i] ?? Number.NaN),
    weightVersions: extended(sample.weightVersions, tokens, () => version ?? -1),
    turn: extended(sample.turn, tokens, () => turn),
    ...(sample.candidateCount === undefined
      ? {}
      : { candidateCount: extended(sample.candidateCount, tokens, () => 0) }),
    turns: trainable ? Math.max(sample.turns, turn + 1) : sample.turns,
    responseLength: sample.responseLength + (trainable ? tokens.length : 0),
  }
  checkSample(longer)
  return longer
}

function extended(
  column: ArrayLike<number>,
  tokens: readonly number[],
  elementOf: (i: number) => number,
): readonly number[] {
  return [...Array.from(column), ...tokens.map((_, i) => elementOf(i))]
}

const STATUS_OF: Record<StopReason, Status> = {
  stop: 'completed',
  length: 'truncated',
  context: 'truncated',
  aborted: 'aborted',
}

/**
 * Converts trajectories to samples, sorted by source, epoch, group, prompt and member. Their token columns are views, valid until the
 * trajectories are cleared.
 * @throws InputError for invalid arguments.
 * @example samplesOf(trainer.cohort.trajectories, trainer.cohort.environment, trainer.cohort.tokenizer)
 */
export function samplesOf(
  trajectories: Trajectories,
  examples: { example(promptId: number): Example },
  tokenizer: { decode(ids: ArrayLike<number>): string },
): Sample[] {
  checkTrajectories('samplesOf(trajectories)', trajectories)
  if (typeof examples?.example !== 'function') {
    const expected = 'an environment, or an object with example(promptId)'
    throw new InputError('samplesOf(…, examples)', show(examples), expected)
  }
  if (typeof tokenizer?.decode !== 'function') {
    throw new InputError('samplesOf(…, tokenizer)', show(tokenizer), 'a tokenizer, or an object with decode(ids)')
  }
  return samplesBy(trajectories, (row) => ({
    ...words(examples.example(row.promptId)),
    response: tokenizer.decode(completionOf(row)),
  }))
}

/**
 * Converts trajectories from files to samples, with the files' texts.
 * @throws InputError for files without completion texts, such as older ones.
 */
export function samplesOfFile(given: Pick<TrajectoriesRead, 'trajectories' | 'words'>): Sample[] {
  checkGiven('file of samplesOfFile', given, ['trajectories', 'words'])
  const { trajectories, words } = given
  checkTrajectories('samplesOfFile({ trajectories })', trajectories)
  return samplesBy(trajectories, (_, i) => {
    const { prompt, answer, completion } = words[i]!
    if (completion === null)
      throw new InputError(`trajectory ${i}`, 'no text of the completion', 'a file with completion texts')
    return { prompt: JSON.parse(prompt), groundTruth: answer, metadata: {}, response: completion }
  })
}

function checkTrajectories(subject: string, trajectories: Trajectories): void {
  if (trajectories instanceof Trajectories) return
  throw new InputError(subject, show(trajectories), 'Trajectories, like cohort.trajectories')
}

/** Samples of trajectories, in order, with the texts of trajectory i. */
function samplesBy(
  trajectories: Trajectories,
  wordsOf: (row: Trajectory, i: number) => Pick<Sample, 'prompt' | 'groundTruth' | 'metadata' | 'response'>,
): Sample[] {
  return trajectories.order().map((i, index) => {
    const row = trajectories.row(i)
    const { token, lossMask, logprob, version, turn, turns, reward, error, components, stopReason } = row
    const { cutTurns = 0, droppedReplies = 0 } = row
    return {
      ...identity(row, index),
      ...wordsOf(row, i),
      tokens: token,
      lossMask,
      rolloutLogProbs: logprob,
      weightVersions: version,
      turn,
      ...optionalOf(row),
      turns,
      ...(cutTurns === 0 ? {} : { cutTurns }),
      ...(droppedReplies === 0 ? {} : { droppedReplies }),
      responseLength: countLearned(lossMask),
      reward,
      error,
      score: components,
      status: STATUS_OF[stopReason],
      stopReason,
    }
  })
}

/**
 * Converts samples to trajectories, in the given order.
 * @throws InputError for a sample that is pending or failed, and for an invalid trajectory.
 */
export function samplesToTrajectories(samples: readonly Sample[]): Trajectories {
  checkGiven('samples of samplesToTrajectories', samples, 'a list')
  const trajectories = new Trajectories()
  for (const sample of samples) trajectories.append(trajectoryOf(sample))
  return trajectories
}

function trajectoryOf(sample: Sample): Trajectory {
  const { source = '', epoch, promptId, groupIndex: group, member, segment = 0, turns, stopReason } = sample
  const { cutTurns = 0, droppedReplies = 0, reward, error, score: components } = sample
  checkSample(sample)
  if (stopReason === null) throw new InputError(`sample ${sample.id}`, sample.status, 'completed, truncated or aborted')
  return {
    ...{ source, epoch, promptId, group, member, segment, turns, cutTurns, droppedReplies },
    ...{ reward, error, stopReason, components },
    ...tokensOf(sample),
    ...optionalOf(sample),
  }
}

function optionalOf({
  candidateCount,
  candidateIds,
  forms,
  turnReward,
}: Pick<Trajectory, 'candidateCount' | 'candidateIds' | 'forms' | 'turnReward'>) {
  return {
    ...(candidateCount === undefined || candidateIds === undefined ? {} : { candidateCount, candidateIds }),
    ...(forms === undefined ? {} : { forms }),
    ...(turnReward === undefined ? {} : { turnReward }),
  }
}

/** Counts the trained tokens. */
export function countLearned(lossMask: ArrayLike<number>): number {
  let count = 0
  for (let t = 0; t < lossMask.length; t++) if (lossMask[t] !== 0) count++
  return count
}

/**
 * Checks that a sample's columns have one length and valid values, and that its numbers survive writing and reading.
 * @throws InputError with the invalid field.
 */
export function checkSample(sample: Sample): void {
  const { id, tokens, reward, score, status } = sample
  const subject = `sample ${id}`
  checkIdentity(subject, { ...sample, group: sample.groupIndex }, { group: 'groupIndex' })
  checkTokens(subject, tokensOf(sample), TOKEN_COLUMNS)
  checkCandidates(subject, { ...sample, token: tokens })
  checkForms(subject, sample.forms ?? [])
  checkTurnReward(subject, sample.turnReward ?? [])
  const learned = countLearned(sample.lossMask)
  if (sample.responseLength !== learned) {
    const expected = `${learned}, the number of trained tokens`
    throw new InputError(`${subject}, responseLength`, show(sample.responseLength), expected)
  }
  if (!statuses.includes(status)) throw unknownWord(`${subject}, status`, String(status), statuses)
  const numbers = { reward, ...score }
  for (const [name, value] of Object.entries(numbers)) {
    if (value === null || Number.isFinite(value)) continue
    throw new InputError(`${subject}, ${name}`, show(value), 'a finite number, or null if unknown')
  }
}
