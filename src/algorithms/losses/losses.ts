/**
 * Losses of language models as descriptors: id, ratio level, input columns, reduction and settings. The formulas are in the kernels
 * (`kernels/advantage/`, `kernels/loss/`). A preset holds the settings of a paper or library (`loss-presets.ts`).
 *
 * Advantages, corrections and the denominator are computed once for the whole batch, so the losses and gradients of its micro-batches add
 * up to the batch's. A trajectory with an unknown reward, or alone in its group, is excluded and counted.
 */
import { assert, checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import { resolveSettings } from '../../base/settings.ts'
import { type Columns, column } from '../../components/column.ts'
import {
  type PolicyLossInputs,
  type PolicyLossOutputs,
  type PolicyLossSettings,
  Standing,
  type TokenSpans,
} from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { type GroupAdvantages, writeGroupAdvantages } from '../tokens/group-advantages.ts'
import { TokenLossRun } from '../tokens/token-loss.ts'
import { type AlgorithmPresets, algorithmPresets, type LossId, type Preset, projectSettings } from './loss-presets.ts'
import type { LossProgram } from './loss-program.ts'
import { type Aggregation, advantageSettings, type LossSettings, lossSettings } from './loss-settings.ts'
import { type ComparedRows, PreferenceRun } from './preference-run.ts'

/** A loss over columns of tokens, sequences and groups. */
export interface LossDescriptor {
  readonly id: string
  /** The preset; null for a custom loss. */
  readonly preset: Preset | null
  /** The level of ratios and clips; for a loss of preferences, what it compares: pairs of answers or single answers. */
  readonly level: 'token' | 'sequence' | 'pair' | 'answer'
  /** The columns that it reads from a batch, besides spans and lossMask. */
  readonly columns: readonly OptionalColumn[]
  readonly aggregation: Aggregation
  readonly settings: LossSettings
  /** The program of a custom loss, in place of surrogate, ratio, KL and entropy; null for built-in losses. */
  readonly program: LossProgram | null
  /** A custom function for group advantages; null if the settings define them. It stays in this thread. */
  readonly advantages: GroupAdvantages | null
}

/**
 * Recorded trajectories; the segments of a conversation are one trajectory. `reward`, `known` and `group` have one row per trajectory;
 * the other columns have one row per token, at the positions in `spans`. Token columns are aligned: logprob[t] belongs to token t.
 */
export interface LossBatch {
  /** Token range of each trajectory; ranges do not overlap. */
  readonly spans: TokenSpans
  /** 1 for tokens to learn from, which the policy chose. */
  readonly lossMask: Uint8Array
  readonly reward?: Float64Array
  /** 0 if the reward is unknown. */
  readonly known?: Uint8Array
  /** Group of each trajectory, from 0. */
  readonly group?: Int32Array
  /** Computed by the trainer with the weights before the update. */
  readonly oldLogprob?: Float32Array
  /** Recorded when the token was sampled. */
  readonly behaviorLogprob?: Float32Array
  readonly referenceLogprob?: Float32Array
  /** The critic's values before the update. */
  readonly value?: Float32Array
}

type OptionalColumn = Exclude<keyof LossBatch, 'spans' | 'lossMask'>

/**
 * Describes a loss.
 * @param id the loss: `grpo`, `gspo`, `sft` …
 * @param preset source of the settings: `paper`, or a library that has the loss
 * @param overrides settings that differ from the preset's
 * @throws InputError for an unknown loss, preset or setting, and for a missing setting that others require
 * @example describeLoss('dr-grpo', 'trl', { maxLength: 256 })
 */
export function describeLoss(
  id: LossId,
  preset: Preset = 'paper',
  overrides: Partial<LossSettings> = {},
): LossDescriptor {
  if (!Object.hasOwn(algorithmPresets, id)) throw unknownWord('loss', id, Object.keys(algorithmPresets))
  const { base, presets }: AlgorithmPresets = algorithmPresets[id]
  if (typeof overrides !== 'object' || overrides === null) {
    throw new InputError(`settings of ${id}`, show(overrides), 'an object of settings')
  }
  const own = presets[preset]
  if (own === undefined) throw unknownWord(`preset of ${id}`, preset, Object.keys(presets))
  const given = { ...projectSettings[preset], ...base, ...own, ...overrides }
  const settings = resolveSettings(id, lossSettings, given)
  checkSettings(id, settings)
  const level = settings.ratio === 'token' ? 'token' : 'sequence'
  const { aggregation } = settings
  const columns = columnsOf(settings, null)
  return { id, preset, level, columns, aggregation, settings, program: null, advantages: null }
}

/** @throws InputError for incompatible settings. */
export function checkSettings(id: string, settings: LossSettings): void {
  const { aggregation, maxLength, overlongCache, correction, correctionLow, correctionHigh } = settings
  if (maxLength === null && (aggregation.startsWith('constant') || overlongCache !== null)) {
    const why = overlongCache !== null ? 'overlongCache' : `aggregation ${aggregation}`
    throw new InputError(`${id}.maxLength`, 'null', `the maximum of tokens of an answer, for ${why}`)
  }
  if (maxLength !== null && overlongCache !== null && overlongCache > maxLength) {
    throw new InputError(`${id}.overlongCache`, show(overlongCache), `at most maxLength, ${maxLength}`)
  }
  if (correction !== 'none' && correctionHigh !== null && correctionHigh < correctionLow) {
    throw new InputError(`${id}.correctionHigh`, show(correctionHigh), `at least correctionLow, ${correctionLow}`)
  }
}

/** The columns that a loss reads with these settings, including those of its program. */
export function columnsOf(settings: LossSettings, program: LossProgram | null): OptionalColumn[] {
  const { advantage, surrogate, correction, klCoef, rewardKlCoef } = settings
  const columns: OptionalColumn[] = []
  if (advantage !== 'none') columns.push('reward', 'known')
  if (advantage === 'group') columns.push('group')
  if (surrogate !== 'cross-entropy') columns.push('oldLogprob')
  if (correction !== 'none') columns.push('behaviorLogprob')
  const readsReference = program !== null && Object.hasOwn(program.columns, 'referenceLogprob')
  if (klCoef > 0 || rewardKlCoef > 0 || readsReference) columns.push('referenceLogprob')
  if (advantage === 'critic') columns.push('value')
  return columns
}

/** How advantages are computed from rewards, independent of the loss that uses them. */
export interface AdvantageDescriptor {
  readonly settings: Pick<LossSettings, (typeof advantageSettings)[number]>
}

/** The advantage settings of a loss, for use in another. @example describeAdvantages(describeLoss('rloo')) */
export function describeAdvantages(loss: LossDescriptor): AdvantageDescriptor {
  checkGiven('loss of describeAdvantages', loss, ['settings'])
  return { settings: Object.fromEntries(advantageSettings.map((key) => [key, loss.settings[key]])) as never }
}

/** Replaces the advantages of a loss. Null: the caller writes `tokenAdvantage`. */
export function withAdvantages(loss: LossDescriptor, advantages: AdvantageDescriptor | null): LossDescriptor {
  const none = { advantage: 'none', whiten: false, rewardKlCoef: 0, overlongCache: null } as const
  const settings = { ...loss.settings, ...(advantages === null ? none : advantages.settings) }
  return { ...loss, settings, columns: columnsOf(settings, loss.program), advantages: null }
}

export type PreparedLoss = Columns<ReturnType<typeof preparedLossPlan>>

/** Plans the columns of a batch with at most these numbers of trajectories, tokens and groups. */
export function preparedLossPlan(numTrajectories: number, numTokens: number, numGroups: number) {
  return {
    /** The reward after penalties; one row per trajectory, like the next two. */
    shapedReward: column('f64', numTrajectories),
    advantage: column('f64', numTrajectories),
    /** The trajectory's `Standing`. */
    standing: column('u8', numTrajectories),
    /** Per group: the number, mean and deviation of its known rewards. */
    groupSize: column('u32', numGroups),
    groupMean: column('f64', numGroups),
    groupDeviation: column('f64', numGroups),
    /** 1 for tokens that are trained and counted. One row per token, like the others. */
    counted: column('u8', numTokens),
    tokenAdvantage: column('f32', numTokens),
    /** The correction's weight; only with a correction. */
    weight: column('f32', numTokens),
    /** Rewards per token and the critic's targets; only for returns and a critic. */
    tokenReward: column('f32', numTokens),
    returns: column('f32', numTokens),
  }
}

export interface LossTotals {
  /** The divisor of every micro-batch's sum. */
  readonly denominator: number
  /** Counted tokens and sequences. */
  readonly numTokens: number
  readonly numSequences: number
  /** Trajectories excluded because the reward is unknown or the group has no other member. */
  readonly numUnknown: number
  readonly numAlone: number
  /** Trajectories without advantage because the rewards of their group are equal. */
  readonly numEqual: number
  /** Tokens masked by the correction. */
  readonly numRejected: number
}

/**
 * Prepares a whole batch: writes the standing of trajectories, the tokens' advantages and the correction's weights.
 * @throws InputError if a column of the descriptor is missing or has another length, a known reward is not finite, or a group is out of
 * range
 */
export function prepareLoss(
  descriptor: LossDescriptor,
  batch: LossBatch,
  prepared: PreparedLoss,
  kernels: Kernels,
): LossTotals {
  const { settings } = descriptor
  const { spans, lossMask } = batch
  const { counted } = prepared
  const count = spans.begin.length
  checkBatch(descriptor, batch, prepared)
  if (settings.advantage === 'none') countAll(counted, lossMask, spans)
  else if (settings.advantage === 'group') groupAdvantages(descriptor, batch as Required<LossBatch>, prepared, kernels)
  else tokenAdvantages(settings, batch as Required<LossBatch>, prepared, kernels)
  if (settings.whiten) kernels.whitenTokens(prepared.tokenAdvantage, counted, spans, count)

  let numRejected = 0
  if (settings.correction !== 'none') {
    const { correction, correctionLow, correctionHigh, countsRejected } = settings
    const { oldLogprob, behaviorLogprob } = batch as Required<LossBatch>
    const high = correctionHigh ?? Number.POSITIVE_INFINITY
    numRejected = kernels.correctionWeights(
      prepared.weight,
      counted,
      oldLogprob,
      behaviorLogprob,
      spans,
      correction,
      correctionLow,
      high,
      countsRejected,
      count,
    )
  }
  return totalsOf(descriptor, prepared, spans, 0, count, numRejected)
}

function countAll(counted: Uint8Array, lossMask: Uint8Array, { begin, end }: TokenSpans): void {
  for (let i = 0; i < begin.length; i++) for (let t = begin[i]!; t < end[i]!; t++) counted[t] = lossMask[t]!
}

/**
 * Totals of trajectories `from` … `to` − 1 of a prepared batch, for example a minibatch. `spans` are those of `prepareLoss`, with the
 * segments of a conversation as one.
 */
export function totalsOf(
  { settings, aggregation }: LossDescriptor,
  { counted, standing }: PreparedLoss,
  { begin, end }: TokenSpans,
  from: number,
  to: number,
  numRejected: number,
): LossTotals {
  const totals = { numTokens: 0, numSequences: 0, numUnknown: 0, numAlone: 0, numEqual: 0, numRejected }
  for (let i = from; i < to; i++) {
    let tokens = 0
    for (let t = begin[i]!; t < end[i]!; t++) tokens += counted[t]!
    totals.numTokens += tokens
    if (tokens > 0 || settings.countsEmpty) totals.numSequences++
    if (settings.advantage === 'none') continue
    if (standing[i] === Standing.unknown) totals.numUnknown++
    if (standing[i] === Standing.alone) totals.numAlone++
    if (standing[i] === Standing.equal) totals.numEqual++
  }
  return { ...totals, denominator: denominatorOf(aggregation, settings.maxLength, totals) }
}

/** Whether a loss is one of preferences, which compares answers. */
export function comparesAnswers({ level }: LossDescriptor): boolean {
  return level === 'pair' || level === 'answer'
}

/** Whether a loss of preferences reads the scores of a value head. */
export function readsScores(loss: LossDescriptor): boolean {
  return comparesAnswers(loss) && Object.keys(loss.program!.columns).some((name) => name.endsWith('Score'))
}

/** The compared items of a loss of preferences: pairs of answers, their scores, or single answers; null for other losses. */
export function comparisonOf(loss: LossDescriptor): 'pair' | 'score' | 'answer' | null {
  if (readsScores(loss)) return 'score'
  return loss.level === 'pair' || loss.level === 'answer' ? loss.level : null
}

/**
 * Adds the loss of sequences `from` … `to` − 1, a micro-batch, to `sums` (in the order of `PolicySum`, or of `PreferenceSum`) and writes
 * its derivatives, those by values only for a loss of preferences. The inputs are columns of a prepared batch and its sequences' spans;
 * `totals` are the batch's.
 */
export function differentiateLoss(
  { settings, aggregation, program, level }: LossDescriptor,
  outputs: PolicyLossOutputs & { readonly dValue?: Float32Array },
  inputs: PolicyLossInputs & { readonly value?: Float32Array; readonly compared?: ComparedRows },
  { denominator }: LossTotals,
  from: number,
  to: number,
  kernels: Kernels,
): void {
  const perSequence = aggregation === 'sequence-mean'
  if (level === 'pair' || level === 'answer') {
    const { compared, value = NONE } = inputs
    assert(program !== null && compared !== undefined, 'a loss of preferences has nothing to compare')
    const run = runOf(preferenceRuns, program, PreferenceRun)
    run.differentiate({ dValue: NONE, ...outputs }, { ...inputs, value, compared }, denominator, from, to)
    return
  }
  if (program !== null) {
    runOf(runs, program, TokenLossRun).differentiate(outputs, inputs, perSequence, denominator, from, to)
    return
  }
  const { surrogate } = settings
  if (surrogate !== 'cross-entropy') {
    kernels.policyLoss(outputs, inputs, settings as PolicyLossSettings, perSequence, denominator, from, to)
    return
  }
  const { dLogprob, dEntropy, sums } = outputs
  const { logprob, counted, spans, wholeTokens } = inputs
  for (let i = from; i < to; i++) dEntropy.fill(0, spans.begin[i], spans.end[i])
  kernels.crossEntropyLoss(dLogprob, sums, logprob, counted, spans, wholeTokens, perSequence, denominator, from, to)
}

const NONE = new Float32Array(0)
const runs = new WeakMap<LossProgram, TokenLossRun>()
const preferenceRuns = new WeakMap<LossProgram, PreferenceRun>()

/** This thread's registers for a program. */
function runOf<R>(known: WeakMap<LossProgram, R>, program: LossProgram, Run: new (program: LossProgram) => R): R {
  const found = known.get(program) ?? new Run(program)
  known.set(program, found)
  return found
}

/**
 * Adds the critic's loss of sequences `from` … `to` − 1, a micro-batch, to `sums` (in the order of `TokenSum`) and writes dValue, which
 * is 0 without a critic. `spans` and `wholeTokens` are those of the batch's sequences.
 */
export function differentiateCritic(
  { settings, aggregation }: LossDescriptor,
  dValue: Float32Array,
  sums: Float64Array,
  value: Float32Array,
  oldValue: Float32Array | null,
  prepared: PreparedLoss,
  { spans, wholeTokens }: Pick<PolicyLossInputs, 'spans' | 'wholeTokens'>,
  { denominator }: LossTotals,
  from: number,
  to: number,
  kernels: Kernels,
): void {
  if (settings.advantage !== 'critic') {
    for (let i = from; i < to; i++) dValue.fill(0, spans.begin[i], spans.end[i])
    return
  }
  assert(oldValue !== null, 'a critic has no old values')
  const perSequence = aggregation === 'sequence-mean'
  kernels.valueLoss(
    dValue,
    sums,
    value,
    oldValue,
    prepared,
    spans,
    wholeTokens,
    settings,
    perSequence,
    denominator,
    from,
    to,
  )
}

function groupAdvantages(
  {
    id,
    settings: { overlongCache, overlongFactor, maxLength, rewardCoef, rewardKlCoef, ...settings },
    advantages,
  }: LossDescriptor,
  { reward, known, group, oldLogprob, referenceLogprob, lossMask, spans }: Required<LossBatch>,
  prepared: PreparedLoss,
  kernels: Kernels,
): void {
  const count = spans.begin.length
  const { shapedReward, advantage, standing, groupSize } = prepared
  setRewards(shapedReward, reward, rewardCoef)
  if (overlongCache !== null) {
    kernels.overlongPenalty(shapedReward, known, lossMask, spans, maxLength!, overlongCache, overlongFactor, count)
  }
  if (rewardKlCoef > 0) {
    kernels.klPenalty(shapedReward, known, oldLogprob, referenceLogprob, lossMask, spans, rewardKlCoef, count)
  }
  kernels.groupAdvantage(prepared, shapedReward, known, group, settings, count, groupSize.length)
  if (advantages !== null) {
    writeGroupAdvantages(id, advantages, prepared, { shapedReward, known, group, lossMask, spans })
  }
  kernels.spreadAdvantage(prepared.tokenAdvantage, prepared.counted, advantage, standing, lossMask, spans, count)
}

/** Copies the rewards times a factor. With factor 0, an unknown reward becomes 0. */
function setRewards(shaped: Float64Array, reward: Float64Array, factor: number): void {
  for (let i = 0; i < reward.length; i++) shaped[i] = factor === 0 ? 0 : factor * reward[i]!
}

function tokenAdvantages(
  { overlongCache, overlongFactor, maxLength, rewardCoef, rewardKlCoef, ...settings }: LossSettings,
  { reward, known, oldLogprob, referenceLogprob, value, lossMask, spans }: Required<LossBatch>,
  prepared: PreparedLoss,
  kernels: Kernels,
): void {
  const count = spans.begin.length
  const { shapedReward, advantage, standing, counted, tokenAdvantage, tokenReward, returns } = prepared
  setRewards(shapedReward, reward, rewardCoef)
  if (overlongCache !== null) {
    kernels.overlongPenalty(shapedReward, known, lossMask, spans, maxLength!, overlongCache, overlongFactor, count)
  }
  const mayLack = rewardCoef === 0 // Then no trajectory needs a reward.
  for (let i = 0; i < count; i++) standing[i] = known[i] === 0 && !mayLack ? Standing.unknown : Standing.learns
  kernels.spreadAdvantage(tokenAdvantage, counted, advantage, standing, lossMask, spans, count)
  const reference = rewardKlCoef > 0 ? referenceLogprob : null
  kernels.tokenRewards(tokenReward, shapedReward, oldLogprob, reference, counted, spans, rewardKlCoef, count)
  const [critic, lambda] = settings.advantage === 'critic' ? [value, settings.gaeLambda] : [null, 1]
  kernels.tokenGae(tokenAdvantage, returns, tokenReward, critic, counted, spans, settings.gamma, lambda, count)
}

function denominatorOf(
  aggregation: Aggregation,
  maxLength: number | null,
  { numTokens, numSequences }: { numTokens: number; numSequences: number },
): number {
  switch (aggregation) {
    case 'token-mean':
      return numTokens
    case 'sequence-mean':
    case 'sequence-sum':
      return numSequences
    case 'constant-length':
      return numSequences * maxLength!
    case 'constant-length-sum':
      return maxLength!
  }
}

function checkBatch({ id, columns }: LossDescriptor, batch: LossBatch, prepared: PreparedLoss): void {
  const { spans, lossMask, reward, known, group } = batch
  const { begin, end } = spans
  const count = begin.length
  let numTokens = 0
  for (let i = 0; i < count; i++) {
    if (!(begin[i]! >= 0 && begin[i]! <= end[i]!)) {
      throw new InputError(`${id}.spans`, `${begin[i]} to ${end[i]}`, 'a begin ≥ 0 and an end ≥ begin')
    }
    numTokens = Math.max(numTokens, end[i]!)
  }
  const rows = { reward: count, known: count, group: count }
  for (const name of ['lossMask', ...columns] as const) {
    const got = batch[name]?.length
    if (got !== undefined && (name in rows ? got === count : got >= numTokens)) continue
    const expected = name in rows ? `${count} rows` : `at least ${numTokens} rows`
    throw new InputError(`${id}.${name}`, got === undefined ? 'no column' : `${got} rows`, `a column of ${expected}`)
  }
  assert(prepared.standing.length >= count && prepared.counted.length >= numTokens, 'a batch is larger than planned')
  for (let i = 0; i < count; i++) {
    for (let t = begin[i]!; t < end[i]!; t++) assert(lossMask[t]! <= 1, 'a loss mask has a value other than 0 and 1')
  }
  if (!columns.includes('reward')) return
  const numGroups = prepared.groupSize.length
  for (let i = 0; i < count; i++) {
    if (known![i] !== 0 && !Number.isFinite(reward![i]))
      throw new InputError(`${id}.reward`, `${reward![i]} of trajectory ${i}`, 'a finite number, or known = 0')
    if (columns.includes('group') && !(group![i]! >= 0 && group![i]! < numGroups))
      throw new InputError(`${id}.group`, `${group![i]} of trajectory ${i}`, `0 to ${numGroups - 1}`)
  }
}
