/** Off-policy evaluation: estimates a policy's return from another's episodes, by ratios of action probabilities. */
import { type DefinitionRecord, recordOf } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { Random, Stream } from '../../base/random.ts'
import { BLOCK_ROWS, type Evaluated } from '../../policies/policy.ts'
import { isOfEpisodes, UNKNOWN_LOGPROB } from '../../tables/episodes/episode-rows.ts'
import type { ArrowTable } from '../../tables/read-arrow.ts'
import type { Table } from '../../tables/table.ts'
import { createWorld } from '../../world/world.ts'
import { checkRecordedRows, tellOnce } from '../recorded/recorded-checks.ts'
import { fieldsOf, refuseOtherEnvironment, storedAs } from '../recorded/recorded-rollouts.ts'
import { digestOf, type EvaluateOptions } from './evaluate.ts'
import { type FitOptions, type Fitted, fitValues } from './fitted-q.ts'
import { fittedRows } from './fitted-rows.ts'

/** Which policy to evaluate, on which episodes. */
export interface EvaluateOfflineOptions
  extends Pick<EvaluateOptions, 'environment' | 'policy' | 'weights' | 'kernels'> {
  /** Whole episodes: of `recordEpisodes`, of `colonnade export`, or of `readEpisodes`. */
  table: Table | ArrowTable
  /** Discount factor; default 1. */
  gamma?: number
  /** Keys the bootstrap samples of the intervals; default 0. */
  seed?: number
  /** Gradient steps of fitted Q evaluation, which also needs no recorded probabilities; default 0: none. */
  fittedSteps?: number
}

/** The result of `evaluateOffline`. */
export interface OfflineEvaluation {
  readonly environment: string
  readonly policy: DefinitionRecord
  readonly episodes: number
  readonly rows: number
  readonly gamma: number
  /** Mean discounted return of the recorded episodes. */
  readonly recordedReturn: number
  /** The policy's estimated return and its 95 % bootstrap interval; null if recorded probabilities are unknown. */
  readonly episodeReturn: { readonly mean: number; readonly low: number; readonly high: number } | null
  /** The same with weights of whole episodes, which has more variance. */
  readonly episodeReturnByWhole: number | null
  /**
   * The return by fitted Q evaluation, beyond truncations, and its 95 % bootstrap interval over episodes; null without `fittedSteps`. It is
   * as good as the network's values: it needs no probabilities, and fails where the policy leaves the recorded states and actions.
   */
  readonly fittedReturn: Fitted | null
  /** Effective number of the policy's own episodes, (Σ w)² / Σ w²; if small, the estimates are unreliable. */
  readonly effectiveEpisodes: number | null
  /** Mean of −log π of the recorded actions, in nats. */
  readonly negativeLogLikelihood: number
  /** Fraction of rows whose recorded action is the policy's most probable; null for continuous actions. */
  readonly agreement: number | null
  /** Mean squared difference of the policy's most probable action and the recorded one; null for choices. */
  readonly actionError: number | null
}

/** Bootstrap samples for the interval. */
const DRAWS = 400

/** One episode: its rewards, and the log weight of each row. */
interface Weighed {
  readonly rewards: readonly number[]
  readonly logWeights: readonly number[]
}

/**
 * Evaluates a policy on recorded episodes. The return is estimated by weighted per-decision importance sampling
 * (Precup, Sutton, Singh, "Eligibility traces for off-policy policy evaluation", 2000; ended episodes keep their last
 * weight, as in Thomas, "Safe reinforcement learning", 2015): Σₜ γᵗ Σᵢ wᵢₜ rᵢₜ / Σᵢ wᵢₜ with wᵢₜ the product of π / μ
 * up to step t.
 *
 * @throws InputError for a table of another environment or without whole episodes, weights that do not fit, a policy
 * with a memory, and a policy of action values, which has no probabilities; for rows that no environment and policy
 * produce (`checkRecordedRows`); and, if this policy recorded the episodes (metadata `weights`), for log-probabilities
 * that are not its own.
 */
export async function evaluateOffline(options: EvaluateOfflineOptions): Promise<OfflineEvaluation> {
  checkGiven('options of evaluateOffline', options, ['environment', 'policy', 'weights', 'table'])
  const { environment, policy, weights, table: given, gamma = 1, seed = 0, fittedSteps = 0, kernels } = options
  if (!(typeof gamma === 'number' && gamma >= 0 && gamma <= 1)) {
    throw new InputError('gamma', show(gamma), 'a number from 0 to 1')
  }
  const { fromArrow } = await import('../../tables/read-arrow.ts')
  const table = 'fields' in given ? given : fromArrow(given)
  if (!isOfEpisodes(table) || table.numRows === 0) {
    const got = table.numRows === 0 ? 'no row' : 'rollouts'
    throw new InputError('table', got, 'whole episodes, as colonnade export run=… or recordEpisodes writes them')
  }
  checkFitted(table, fittedSteps, gamma)
  const fit = { gamma, steps: fittedSteps, seed }
  const evaluated = await rowsUnder(table, { environment, policy, weights, kernels }, fit)
  tellOnce(given, evaluated.notes)
  const isKnown = table.metadata.logprob !== UNKNOWN_LOGPROB.logprob
  if (isKnown && table.metadata.weights === digestOf(weights)) checkOwn(table, evaluated.logprob)
  const episodes = weigh(table, evaluated.logprob)
  const discounted = episodes.map(({ rewards }) => rewards.reduce((sum, reward, t) => sum + gamma ** t * reward, 0))
  const all = episodes.map((_, i) => i)
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
  const last = episodes.map(({ logWeights }) => logWeights.at(-1)!)
  const greatest = last.reduce((most, logWeight) => Math.max(most, logWeight), Number.NEGATIVE_INFINITY)
  const whole = last.map((logWeight) => Math.exp(logWeight - greatest))
  const sum = whole.reduce((total, weight) => total + weight, 0)
  return {
    environment: environment.id,
    policy: recordOf(policy),
    episodes: episodes.length,
    rows: table.numRows,
    gamma,
    recordedReturn: mean(discounted),
    episodeReturn: isKnown ? { mean: perDecision(episodes, all, gamma), ...interval(episodes, gamma, seed) } : null,
    episodeReturnByWhole: isKnown ? whole.reduce((total, weight, i) => total + weight * discounted[i]!, 0) / sum : null,
    fittedReturn: evaluated.fitted,
    effectiveEpisodes: isKnown ? sum ** 2 / whole.reduce((total, weight) => total + weight ** 2, 0) : null,
    negativeLogLikelihood: -mean([...evaluated.logprob]),
    agreement: evaluated.agreement,
    actionError: evaluated.actionError,
  }
}

/** @throws InputError for steps that are not a whole number, and for values that need not be finite. */
function checkFitted({ fields }: Table, fittedSteps: number, gamma: number): void {
  if (!(Number.isInteger(fittedSteps) && fittedSteps >= 0)) {
    throw new InputError('fittedSteps', show(fittedSteps), 'a whole number from 0')
  }
  const truncated = fields.find(({ name }) => name === 'truncated')!.column
  if (fittedSteps === 0 || gamma < 1 || !truncated.includes(1 as never)) return
  throw new InputError(
    'gamma',
    '1, and truncated episodes',
    'below 1 for fitted values, which go on beyond a truncation',
  )
}

/** Tolerance of the policy's own recorded log-probabilities (kernel builds differ by a hundredth of it). */
const OWN_SLACK = 1e-3

/** @throws InputError if a table's log-probabilities differ from those of the policy that recorded it. */
function checkOwn({ fields }: Table, logprob: Float64Array): void {
  const { column: recorded } = fields.find(({ name }) => name === 'logprob')!
  for (const [row, own] of logprob.entries()) {
    if (Math.abs(recorded[row]! - own) <= OWN_SLACK * (1 + Math.abs(own))) continue
    const expected = `${Math.fround(own)}, as under the policy that recorded the episodes (metadata weights)`
    throw new InputError(`logprob of row ${row}`, String(recorded[row]), expected)
  }
}

/** The log-probability of each row's action under the policy, and the distance of the policy's own actions from it. */
async function rowsUnder(
  table: Table,
  { environment, policy, weights, kernels }: Omit<EvaluateOfflineOptions, 'table'>,
  fit: FitOptions,
) {
  const { numPlayers = 1 } = environment
  const numLanes = Math.ceil(BLOCK_ROWS / numPlayers) * numPlayers // Whole games, with room for a block.
  const world = await createWorld({
    environment,
    policy,
    numLanes,
    explore: false,
    ...(kernels && { kernels }),
  })
  try {
    const draft = world.draft()
    const { model } = draft
    if (weights.length !== model.numParameters) {
      const expected = `${model.numParameters}, the parameters of ${policy.id}`
      throw new InputError('weights', `${weights.length} numbers`, expected)
    }
    if (model.memoryWidth)
      throw new InputError(
        `policy ${policy.id}`,
        'a policy with a memory',
        'a policy without memory, whose state a table does not record',
      )
    if (model.actionValues !== undefined) {
      throw new InputError(`policy ${policy.id}`, 'a policy of action values', 'a policy of probabilities, like mlp')
    }
    world.reserve(draft, { numSteps: 1, learner: {} })
    const cohort = world.cohort()
    if (cohort.kind !== 'episodes')
      throw new InputError('environment', environment.id, 'an environment whose lanes step')
    refuseOtherEnvironment(table, cohort)
    cohort.weights.set(weights)
    cohort.policy.refresh?.()
    const { rollout, action } = cohort
    const stored = storedAs(table, rollout)
    const fields = fieldsOf(stored, rollout, numLanes)
    const notes = checkRecordedRows(stored, fields, cohort)
    const logprob = new Float64Array(table.numRows)
    const isBox = environment.actionSpace.kind === 'box'
    const chosenBy = fields.get('action')!
    const numActions = table.numRows * chosenBy.width
    let distance = 0
    const most = Math.min(BLOCK_ROWS, model.blockRows ?? BLOCK_ROWS)
    for (let from = 0; from < table.numRows; from += most) {
      const count = Math.min(most, table.numRows - from)
      for (const [name, target] of [
        ['observation', rollout.observation], // Of one step: lanes observe its content.
        ['action', rollout.action],
        ['actionMask', rollout.actionMask],
      ] as const) {
        const field = fields.get(name)
        if (field === undefined) continue
        const { column, width } = field
        target.set(column.subarray(from * width, (from + count) * width) as never)
      }
      const rows = { ...rollout, continues: new Uint8Array(0) }
      const said = (await cohort.policy.evaluate(rows, 0, count)) as Evaluated
      logprob.set(said.logprob.subarray(0, count), from)
      await cohort.policy.infer(cohort, false, 0, count)
      const { column, width } = chosenBy
      for (let row = 0; row < count; row++) {
        let differs = 0
        for (let k = 0; k < width; k++) {
          const apart = action.chosen[row * width + k]! - column[(from + row) * width + k]!
          differs += isBox ? apart ** 2 : apart === 0 ? 0 : 1
        }
        distance += isBox ? differs : Math.min(1, differs)
      }
    }
    return {
      notes,
      logprob,
      fitted: fit.steps === 0 ? null : fitValues(await fittedRows(table, cohort, most), fit),
      agreement: isBox ? null : 1 - distance / table.numRows,
      actionError: isBox ? distance / numActions : null,
    }
  } finally {
    world.close()
  }
}

/** The episodes of a table, with their log weights. */
function weigh(table: Table, logprob: Float64Array): Weighed[] {
  const column = (name: string) => table.fields.find((field) => field.name === name)!.column
  const [rewards, recorded, terminated, truncated] = ['reward', 'logprob', 'terminated', 'truncated'].map(column)
  const episodes: Weighed[] = []
  let begun: { rewards: number[]; logWeights: number[] } = { rewards: [], logWeights: [] }
  for (let row = 0; row < table.numRows; row++) {
    begun.rewards.push(rewards![row]!)
    begun.logWeights.push((begun.logWeights.at(-1) ?? 0) + logprob[row]! - recorded![row]!)
    if (terminated![row] === 0 && truncated![row] === 0 && row + 1 < table.numRows) continue
    episodes.push(begun)
    begun = { rewards: [], logWeights: [] }
  }
  return episodes
}

/** Σₜ γᵗ Σᵢ wᵢₜ rᵢₜ / Σᵢ wᵢₜ over the episodes at these indices. */
function perDecision(episodes: readonly Weighed[], places: readonly number[], gamma: number): number {
  const longest = places.reduce((most, i) => Math.max(most, episodes[i]!.rewards.length), 0)
  let total = 0
  for (let t = 0; t < longest; t++) {
    const weightOf = ({ logWeights }: Weighed) => logWeights[Math.min(t, logWeights.length - 1)]!
    const greatest = places.reduce((most, i) => Math.max(most, weightOf(episodes[i]!)), Number.NEGATIVE_INFINITY)
    let [paid, sum] = [0, 0]
    for (const i of places) {
      const weight = Math.exp(weightOf(episodes[i]!) - greatest) // Scaled by the largest weight: only ratios count, and nothing overflows.
      sum += weight
      paid += weight * (episodes[i]!.rewards[t] ?? 0)
    }
    total += (gamma ** t * paid) / sum
  }
  return total
}

/** The 95 % bootstrap interval. */
function interval(episodes: readonly Weighed[], gamma: number, seed: number): { low: number; high: number } {
  const random = new Random(seed)
  const figures = Array.from({ length: DRAWS }, (_, draw) => {
    const places = episodes.map((_, i) => {
      random.draw(Stream.shuffle, draw, 0, i)
      return Math.floor(random.uniform(0) * episodes.length)
    })
    return perDecision(episodes, places, gamma)
  }).sort((a, b) => a - b)
  return { low: figures[Math.floor(0.025 * DRAWS)]!, high: figures[Math.ceil(0.975 * DRAWS) - 1]! }
}
