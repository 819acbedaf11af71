/** Training batches of samples: the samples by group, and their fields as lists. */
import { checkGiven, checkOptions, InputError, show } from '../../base/errors.ts'
import { checkSample, countLearned, type Sample, type Status, statuses } from '../trajectories/sample.ts'
import { compareText, groupNumbers } from '../trajectories/trajectories.ts'

/** Samples sorted by source, epoch, group, prompt and member. Element i of each field belongs to sample i; nothing is padded or copied. */
export interface RolloutBatch extends SampleFields {
  readonly responseLengths: readonly number[]
  readonly samples: readonly Sample[]
  readonly metadata: BatchMetadata
}

/** The fields of samples, as lists. */
export interface SampleFields {
  readonly tokens: readonly ArrayLike<number>[]
  readonly lossMasks: readonly ArrayLike<number>[]
  readonly rolloutLogProbs: readonly ArrayLike<number>[]
  /** Null if unknown. */
  readonly rewards: readonly (number | null)[]
  readonly groupIndices: readonly number[]
}

/** Statistics of a batch. */
export interface BatchMetadata {
  readonly epochId: number
  readonly stepId: number
  readonly numSamples: number
  readonly numGroups: number
  readonly numTokens: number
  readonly statuses: Readonly<Record<Status, number>>
  /** Minimum and maximum version of the weights that chose tokens; null if none is known. */
  readonly weightVersions: { readonly min: number; readonly max: number } | null
}

/**
 * Creates a batch of samples. The result does not depend on their order, and groups stay together.
 * @throws InputError if there is no sample, a sample occurs twice, or its columns differ in length.
 */
export function convertToBatch(
  samples: readonly Sample[],
  options: { readonly epochId?: number; readonly stepId?: number } = {},
): RolloutBatch {
  checkGiven('samples of convertToBatch', samples, 'a list')
  checkOptions('convertToBatch', options, ['epochId', 'stepId'])
  const { epochId = 0, stepId = 0 } = options
  if (samples.length === 0) throw new InputError('samples', 'none', 'at least one')
  const ids = new Set<string>()
  for (const sample of samples) {
    checkSample(sample)
    if (ids.has(sample.id)) throw new InputError('samples', `${show(sample.id)} twice`, 'each sample once')
    ids.add(sample.id)
  }
  const sorted = [...samples].sort(
    (a, b) =>
      compareText(a.source ?? '', b.source ?? '') ||
      a.epoch - b.epoch ||
      a.groupIndex - b.groupIndex ||
      a.promptId - b.promptId ||
      a.member - b.member ||
      (a.segment ?? 0) - (b.segment ?? 0),
  )
  const fields = extractSampleFields(sorted)
  return {
    ...fields,
    responseLengths: computeResponseLengths(fields.lossMasks),
    samples: sorted,
    metadata: buildBatchMetadata(sorted, epochId, stepId),
  }
}

/** The fields of samples, as lists in their order. */
export function extractSampleFields(samples: readonly Sample[]): SampleFields {
  checkGiven('samples of extractSampleFields', samples, 'a list')
  return {
    tokens: samples.map(({ tokens }) => tokens),
    lossMasks: samples.map(({ lossMask }) => lossMask),
    rolloutLogProbs: samples.map(({ rolloutLogProbs }) => rolloutLogProbs),
    rewards: samples.map(({ reward }) => reward),
    groupIndices: samples.map(({ groupIndex }) => groupIndex),
  }
}

/** The number of trained tokens of each sample. */
export function computeResponseLengths(lossMasks: readonly ArrayLike<number>[]): number[] {
  checkGiven('lossMasks of computeResponseLengths', lossMasks, 'a list')
  return lossMasks.map(countLearned)
}

/** The group of each sample, as a number from 0. */
function groupNumbersOf(samples: readonly Sample[]): Int32Array {
  return groupNumbers({
    source: samples.map(({ source = '' }) => source),
    epoch: Int32Array.from(samples, ({ epoch }) => epoch),
    promptId: Int32Array.from(samples, ({ promptId }) => promptId),
    group: Int32Array.from(samples, ({ groupIndex }) => groupIndex),
  })
}

/** The statistics of a batch of these samples. */
export function buildBatchMetadata(samples: readonly Sample[], epochId: number, stepId: number): BatchMetadata {
  checkGiven('samples of buildBatchMetadata', samples, 'a list')
  const count = (status: Status) => samples.filter((sample) => sample.status === status).length
  let [min, max] = [Number.POSITIVE_INFINITY, -1]
  for (const { weightVersions } of samples) {
    for (let t = 0; t < weightVersions.length; t++) {
      if (weightVersions[t] === -1) continue
      min = Math.min(min, weightVersions[t]!)
      max = Math.max(max, weightVersions[t]!)
    }
  }
  return {
    epochId,
    stepId,
    numSamples: samples.length,
    numGroups: new Set(groupNumbersOf(samples)).size,
    numTokens: samples.reduce((sum, { tokens }) => sum + tokens.length, 0),
    statuses: Object.fromEntries(statuses.map((status) => [status, count(status)])) as Record<Status, number>,
    weightVersions: max === -1 ? null : { min, max },
  }
}
