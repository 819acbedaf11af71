/** Converts the answers of a user's generate function to samples. */

import { InputError, show, unknownWord } from '../base/errors.ts'
import { isMessage, type Message, type StopReason } from '../environments/text.ts'
import { checkSample, countLearned, type Sample, type Status, startSample } from '../tables/trajectories/sample.ts'
import type { Trajectory } from '../tables/trajectories/trajectory.ts'

/** A generate function's sample: text, tokens (the prompt's first) and optional fields, without its identity. */
export type GeneratedSample = Pick<Sample, 'response' | 'tokens' | 'lossMask'> & Partial<Sample>

export type SamplePlace = Pick<Trajectory, 'epoch' | 'promptId' | 'group' | 'member'>

/** Stop reasons of last turns that have none, by status. */
const STOP_REASON: Readonly<Record<Status, StopReason | null>> = {
  pending: null,
  completed: 'stop',
  truncated: 'length',
  aborted: 'aborted',
  failed: null,
}

const KEYS: readonly string[] = Object.keys({
  ...{ id: 0, index: 0, source: 0, epoch: 0, promptId: 0, groupIndex: 0, member: 0, segment: 0 },
  ...{ prompt: 0, groundTruth: 0, response: 0, tokens: 0, lossMask: 0, rolloutLogProbs: 0, weightVersions: 0, turn: 0 },
  ...{ candidateCount: 0, candidateIds: 0, forms: 0, turns: 0, cutTurns: 0, droppedReplies: 0, responseLength: 0 },
  ...{ reward: 0, error: 0, turnReward: 0, score: 0, status: 0, stopReason: 0, metadata: 0 },
} satisfies Record<keyof Sample, 0>)

/**
 * Makes a sample from an answer. Missing values are not recorded: log-probabilities are NaN, versions −1.
 * @throws InputError for an answer that is not an object, is unfinished, or has unknown keys or columns of different
 * lengths.
 */
export function sampleOf(given: unknown, place: SamplePlace, prompt: unknown): Sample {
  const { epoch, promptId, member } = place
  const subject = `sample of generateFn, epoch ${epoch}, prompt ${promptId}, member ${member}`
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw new InputError(subject, show(given), 'an object with response, tokens and lossMask')
  }
  for (const key of Object.keys(given)) if (!KEYS.includes(key)) throw unknownWord(`${subject}, key`, key, KEYS)
  const { response, tokens, lossMask } = given as Partial<GeneratedSample>
  if (typeof response !== 'string') throw new InputError(`${subject}, response`, show(response), 'a text')
  for (const [name, values] of Object.entries({ tokens, lossMask })) {
    if ((values?.length ?? 0) === 0) throw new InputError(`${subject}, ${name}`, show(values), 'a list of numbers')
  }
  if (tokens!.length !== lossMask!.length) {
    const got = `${lossMask!.length} elements`
    throw new InputError(`${subject}, lossMask`, got, `${tokens!.length}, the number of tokens, including the prompt's`)
  }
  const answer = given as GeneratedSample
  const each = (value: number) => Array.from(tokens!, () => value)
  const { status = 'completed' } = answer
  const sample: Sample = {
    ...startSample({ ...place, example: exampleOf(answer.prompt ?? prompt), tokens: Array.from(tokens!) }),
    rolloutLogProbs: each(Number.NaN),
    weightVersions: each(-1),
    turns: 1,
    responseLength: countLearned(lossMask!),
    status,
    stopReason: STOP_REASON[status] ?? null,
    ...answer,
    ...identityOf(place),
  }
  checkSample(sample)
  if (sample.stopReason === null) {
    throw new InputError(`${subject}, status`, status, 'completed, truncated or aborted')
  }
  return sample
}

function identityOf(place: SamplePlace): Pick<Sample, 'id' | 'epoch' | 'promptId' | 'groupIndex' | 'member'> {
  const { id, epoch, promptId, groupIndex, member } = startSample({ ...place, example: { prompt: '' }, tokens: [] })
  return { id, epoch, promptId, groupIndex, member }
}

/** A buffer's prompt (text, messages or a whole example) as an example. */
function exampleOf(prompt: unknown): { readonly prompt: string | readonly Message[] } {
  if (typeof prompt === 'string' || (Array.isArray(prompt) && prompt.every(isMessage))) return { prompt }
  const inner = (prompt as { prompt?: unknown } | null)?.prompt
  if (inner !== undefined) return { ...(prompt as object), ...exampleOf(inner) }
  throw new InputError('prompt of a buffer', show(prompt), 'a text, messages, or an example with a prompt')
}
