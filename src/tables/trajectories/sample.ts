/**
 * Samples: one trajectory each, as an object. What a sample says of tokens are views of the trajectories' columns, so a list
 * of samples costs no second copy of them; a sample that is made by hand has arrays of its own.
 */
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Example, Message, StopReason } from '../../environments/text.ts'
import { Trajectories } from './trajectories.ts'
import {
  checkCandidates,
  checkIdentity,
  checkTokens,
  checkTurnReward,
  completionOf,
  isOfModel,
  type Trajectory,
} from './trajectory.ts'
import type { TrajectoriesRead } from './trajectory-table.ts'

/** What can have become of a sample. */
export const statuses = ['pending', 'completed', 'truncated', 'aborted', 'failed'] as const
/**
 * What has become of a sample: its conversation goes on; the model ended it; its budget or the context cut it off; somebody
 * broke it off; it could not be had.
 */
export type Status = (typeof statuses)[number]

/** One trajectory, with the words that it is made of. */
export interface Sample {
  /** `epoch-promptId-groupIndex-member` after its source, where it has one, and before its segment, where that is not 0. */
  readonly id: string
  /** Its place among the samples that it was made with. */
  readonly index: number
  /** The source, as in trajectories. A group is (source, epoch, promptId, groupIndex). */
  readonly source?: string
  readonly epoch: number
  readonly promptId: number
  readonly groupIndex: number
  readonly member: number
  /** Its place among the samples of its conversation: not 0 where the chat template had rewritten what stood. */
  readonly segment?: number
  readonly prompt: string | readonly Message[]
  /** The right answer; null where the example has none. */
  readonly groundTruth: string | null
  /** All that was said after the prompt. */
  readonly response: string
  /** Token ids as sent and as sampled, those of the prompt first. The next four columns are as long. */
  readonly tokens: ArrayLike<number>
  /** 1 where there is something to learn. */
  readonly lossMask: ArrayLike<number>
  /** Log-probability under the distribution that the token was drawn from, in nats; NaN where none is recorded. */
  readonly rolloutLogProbs: ArrayLike<number>
  /** Version of the weights that chose the token; −1 if none did, or if it is unknown. */
  readonly weightVersions: ArrayLike<number>
  /** The turn that the token belongs to, from 0. */
  readonly turn: ArrayLike<number>
  /** From how many tokens each was drawn, and their ids, as trajectories have them; missing where nothing was left out. */
  readonly candidateCount?: ArrayLike<number>
  readonly candidateIds?: ArrayLike<number>
  /** Turns of the model, how many of them were cut off, and how many replies of the environment to them were dropped. */
  readonly turns: number
  readonly cutTurns?: number
  readonly droppedReplies?: number
  /** Tokens to learn from. */
  readonly responseLength: number
  /** Null where it cannot be told, and why. */
  readonly reward: number | null
  readonly error: string | null
  /** The reward of each turn; NaN if unknown. Missing: not recorded. */
  readonly turnReward?: ArrayLike<number>
  /** What the reward is made of, by name. */
  readonly score: Readonly<Record<string, number | null>>
  readonly status: Status
  /** Why the last turn ended; null while it is running. */
  readonly stopReason: StopReason | null
  /** The example's other columns, and whatever else a user keeps. */
  readonly metadata: Readonly<Record<string, unknown>>
}

/** What samples call the columns of tokens that trajectories call otherwise. */
const TOKEN_COLUMNS = { token: 'tokens', logprob: 'rolloutLogProbs', version: 'weightVersions' } as const

function tokensOf({ tokens, lossMask, rolloutLogProbs, weightVersions, turn }: Sample) {
  return { token: tokens, lossMask, logprob: rolloutLogProbs, version: weightVersions, turn }
}

/** What a sample's conversation begins with. */
export interface SampleStart {
  readonly source?: string
  readonly epoch: number
  readonly promptId: number
  readonly group: number
  readonly member: number
  readonly example: Example
  /** The prompt's ids. */
  readonly tokens: readonly number[]
}

/** A sample that has nothing but its prompt yet. */
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

/** What can be added to a sample's response. */
export interface ResponseTokens {
  readonly tokens: readonly number[]
  /** What they say. */
  readonly text: string
  /** True for what the model said; false for what it was told, by a tool or by the environment. */
  readonly trainable: boolean
  /** Of each token that the model said. */
  readonly logprobs?: readonly number[]
  /** Number of the weights that chose them. */
  readonly version?: number
}

/**
 * The sample with tokens at its end. What the model was told belongs to the turn that it leads to.
 * @throws InputError where tokens and logprobs differ in number, where what the model said lacks its logprobs or version, or
 * where what it was told has them.
 */
export function appendResponseTokens(sample: Sample, added: ResponseTokens): Sample {
  checkGiven('sample of appendResponseTokens', sample, ['tokens', 'status'])
  checkGiven('added of appendResponseTokens', added, ['tokens', 'text', 'trainable'])
  const { tokens, text, trainable, logprobs, version } = added
  const subject = `sample ${sample.id}`
  if (tokens.length === 0) throw new InputError(`${subject}, tokens`, 'none', 'at least one')
  if (trainable && (logprobs === undefined || version === undefined)) {
    const missing = logprobs === undefined ? 'logprobs' : 'version'
    throw new InputError(`${subject}, ${missing}`, 'none', 'one, for tokens that the model said')
  }
  if (!trainable && (logprobs !== undefined || version !== undefined)) {
    throw new InputError(`${subject}, logprobs or version`, 'some', 'none, for tokens that the model was told')
  }
  if (logprobs !== undefined && logprobs.length !== tokens.length) {
    throw new InputError(`${subject}, logprobs`, `${logprobs.length} numbers`, `${tokens.length}, as many as tokens`)
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

/** What each way of ending makes of a sample. */
const STATUS_OF: Record<StopReason, Status> = {
  stop: 'completed',
  length: 'truncated',
  context: 'truncated',
  aborted: 'aborted',
}

/**
 * The trajectories as samples, by source, epoch, group, prompt and member. Their token columns are views of the trajectories', and stand
 * until those are cleared.
 * @throws InputError for what is no such thing.
 * @example samplesOf(trainer.cohort.trajectories, trainer.cohort.environment, trainer.cohort.tokenizer)
 */
export function samplesOf(
  trajectories: Trajectories,
  examples: { example(promptId: number): Example },
  tokenizer: { decode(ids: ArrayLike<number>): string },
): Sample[] {
  checkTrajectories('samplesOf(trajectories)', trajectories)
  if (typeof examples?.example !== 'function') {
    const expected = 'an environment, or another object with example(promptId)'
    throw new InputError('samplesOf(…, examples)', show(examples), expected)
  }
  if (typeof tokenizer?.decode !== 'function') {
    throw new InputError('samplesOf(…, tokenizer)', show(tokenizer), 'a tokenizer, or another object with decode(ids)')
  }
  return samplesBy(trajectories, (row) => ({
    ...words(examples.example(row.promptId)),
    response: tokenizer.decode(completionOf(row)),
  }))
}

/**
 * Trajectories from files as samples, with the files' texts.
 * @throws InputError for files without the words of completions, as those of older versions.
 */
export function samplesOfFile(given: Pick<TrajectoriesRead, 'trajectories' | 'words'>): Sample[] {
  checkGiven('file of samplesOfFile', given, ['trajectories', 'words'])
  const { trajectories, words } = given
  checkTrajectories('samplesOfFile({ trajectories })', trajectories)
  return samplesBy(trajectories, (_, i) => {
    const { prompt, answer, completion } = words[i]!
    if (completion === null) throw new InputError(`trajectory ${i}`, 'no completion in words', 'a file that has it')
    return { prompt: JSON.parse(prompt), groundTruth: answer, metadata: {}, response: completion }
  })
}

function checkTrajectories(subject: string, trajectories: Trajectories): void {
  if (trajectories instanceof Trajectories) return
  throw new InputError(subject, show(trajectories), 'Trajectories, like cohort.trajectories')
}

/** Samples of trajectories, in order, and what is said of trajectory i in words. */
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
 * The samples as trajectories, in the order in which they are given.
 * @throws InputError for a sample that is pending or failed, and for one that is no trajectory.
 */
export function samplesToTrajectories(samples: readonly Sample[]): Trajectories {
  checkGiven('samples of samplesToTrajectories', samples, 'a list')
  const trajectories = new Trajectories()
  for (const sample of samples) trajectories.append(trajectoryOf(sample))
  return trajectories
}

function trajectoryOf(sample: Sample): Trajectory {
  const { source = '', epoch, promptId, groupIndex, member, turns, reward, error, score, stopReason, status } = sample
  const { segment = 0, cutTurns = 0, droppedReplies = 0 } = sample
  checkSample(sample)
  if (stopReason === null) throw new InputError(`sample ${sample.id}`, status, 'completed, truncated or aborted')
  return {
    ...{
      source,
      epoch,
      promptId,
      group: groupIndex,
      member,
      segment,
      turns,
      cutTurns,
      droppedReplies,
      reward,
      error,
      stopReason,
    },
    components: score,
    ...tokensOf(sample),
    ...optionalOf(sample),
  }
}

/** What trajectories and samples may lack. */
function optionalOf({
  candidateCount,
  candidateIds,
  turnReward,
}: Pick<Trajectory, 'candidateCount' | 'candidateIds' | 'turnReward'>) {
  return {
    ...(candidateCount === undefined || candidateIds === undefined ? {} : { candidateCount, candidateIds }),
    ...(turnReward === undefined ? {} : { turnReward }),
  }
}

/** Tokens to learn from. */
export function countLearned(lossMask: ArrayLike<number>): number {
  let count = 0
  for (let t = 0; t < lossMask.length; t++) if (lossMask[t] !== 0) count++
  return count
}

/**
 * Checks that a sample's columns are of one length and hold what they should, and that its numbers can be written and read.
 * @throws InputError that says which is not.
 */
export function checkSample(sample: Sample): void {
  const { id, tokens, reward, score, status } = sample
  const subject = `sample ${id}`
  checkIdentity(subject, { ...sample, group: sample.groupIndex }, { group: 'groupIndex' })
  checkTokens(subject, tokensOf(sample), TOKEN_COLUMNS)
  checkCandidates(subject, { ...sample, token: tokens })
  checkTurnReward(subject, sample.turnReward ?? [])
  const learned = countLearned(sample.lossMask)
  if (sample.responseLength !== learned) {
    const expected = `${learned}, the tokens to learn from`
    throw new InputError(`${subject}, responseLength`, show(sample.responseLength), expected)
  }
  if (!statuses.includes(status)) throw unknownWord(`${subject}, status`, String(status), statuses)
  const numbers = { reward, ...score }
  for (const [name, value] of Object.entries(numbers)) {
    if (value === null || Number.isFinite(value)) continue
    throw new InputError(`${subject}, ${name}`, show(value), 'a finite number, or null where it could not be told')
  }
}
