/** The trained sets of weights of each cohort of episodes, with their learners and the statistics of their episodes. */
import type { AlgorithmDefinition, Learner, LearnerContext, LearnerShape } from '../../algorithms/algorithm.ts'
import { InputError } from '../../base/errors.ts'
import type { MetricValues } from '../../base/metrics.ts'
import type { ShareWork } from '../../base/parted.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import { Lives } from '../../components/population.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import { actionMaskWidth } from '../../environments/environment.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { PolicyModel } from '../../policies/policy.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { EpisodeDraft } from '../../world/episodes/options.ts'
import { ratePolicy } from '../../world/episodes/self-play.ts'
import type { World } from '../../world/world.ts'
import { meanAndStd, type selfPlayMetrics } from './metrics.ts'
import { proximalPlan, StaleRollout } from './stale-rollout.ts'

/** Episodes over which returns are averaged, as is common. */
const RECENT_EPISODES = 100

/** Statistics of a cohort's episodes so far. */
export interface EpisodeProgress {
  readonly episodes: number
  /** Mean and deviation of the last 100 returns, or of all if fewer; NaN before the first. */
  readonly episodeReturnLast100: { readonly mean: number; readonly std: number }
  /** Environment steps when the mean of the last 100 returns first reached the environment's threshold, or null. */
  readonly solvedAtStep: number | null
  /** Seconds of training at the end of that rollout, or null. */
  readonly solvedAtSeconds: number | null
  /** Numbers of present lanes, births and deaths. */
  readonly population: PopulationProgress
}

/** The lanes that joined and left a cohort so far. */
export interface PopulationProgress {
  readonly present: number
  readonly born: number
  readonly died: number
  /** Births for which there was no room. */
  readonly refused: number
}

/** A trained set of a cohort's weights. */
export interface TrainedSet {
  /** The cohort's name for its first set; `<cohort>.set1` and so on for further sets. */
  readonly name: string
  readonly cohort: EpisodeCohort
  /** Index of the cohort's set of weights. */
  readonly set: number
  readonly algorithm: AlgorithmDefinition
  /** One per buffer of rows that it trains on in turn. */
  readonly learners: readonly Learner[]
  /** Handles rows of older weights; null if all threads collect, then all learn. */
  readonly stale: StaleRollout | null
  readonly accounts: Columns<ReturnType<typeof accountsPlan>>
  /** Adds the rollout's observations to the running moments; undefined if the policy does not normalize. */
  readonly growMoments: (() => void) | undefined
  episodes: number
  solvedAtStep: number | null
  solvedAtSeconds: number | null
}

function accountsPlan() {
  return {
    /** Returns and lengths of the last episodes, a ring. */
    recent: saved(column('f64', RECENT_EPISODES)),
    recentLength: saved(column('f64', RECENT_EPISODES)),
    /** Of this rollout: episodes, sum of returns, sum of lengths. */
    totals: column('f64', 3),
  } satisfies Plan
}

/** The columns of a trained set of weights. */
function learnerPlan(algorithm: AlgorithmDefinition, shape: LearnerShape) {
  return { algorithm: algorithm.plan(shape), accounts: accountsPlan(), inputs: inputMomentsPlan(shape.model) }
}

/** The columns of further trained sets of weights, and of the advantages of all. */
function furtherSetsPlan(learningSets: number, numRows: number, learner: () => ReturnType<typeof learnerPlan>) {
  const further = Array.from({ length: learningSets - 1 }, (_, i) => [`set${i + 1}`, learner()])
  const keptRows = learningSets > 1 ? numRows : 0
  return {
    advantage: column('f32', keptRows),
    return: column('f32', keptRows),
    further: Object.fromEntries(further) as Record<string, ReturnType<typeof learnerPlan>>,
  } satisfies Plan
}

/** The columns of a cohort's trained sets: the first set's at the top, further sets' below `sets`. */
export function trainedSetsPlan(world: World, draft: EpisodeDraft, algorithm: AlgorithmDefinition): Plan {
  const { numLanes, learningSets = 1 } = draft.options
  const shape = shapeOf(world, draft)
  const numRows = algorithm.numSteps * numLanes
  const isStale = (algorithm.staleness?.maxStaleness ?? 0) > 0 && algorithm.staleness!.correction !== 'none'
  const own = learnerPlan(algorithm, shape)
  const sets = furtherSetsPlan(learningSets, numRows, () => learnerPlan(algorithm, shape))
  return { ...own, proximal: proximalPlan(isStale ? numRows : 0), sets }
}

/** @throws InputError if the cohort does not have episodes. */
export function draftOf(world: World, name: string): EpisodeDraft {
  const draft = world.draft(name)
  if (draft.kind === 'episodes') return draft
  throw new InputError(
    `algorithm of ${name}`,
    'an algorithm for episodes, and a cohort of conversations',
    'a cohort of episodes',
  )
}

function shapeOf(world: World, { options, model }: EpisodeDraft) {
  const { observationSpace, actionSpace } = options.environment
  const { count, actors } = world.threads
  return {
    numLanes: options.numLanes,
    model,
    observationSpace,
    actionSpace,
    actionMaskWidth: actionMaskWidth(options.environment),
    goal: options.environment.goal,
    threads: count - actors,
  }
}

function learnerColumns(cohort: EpisodeCohort) {
  return cohort.learner as Columns<{
    algorithm: Plan
    accounts: ReturnType<typeof accountsPlan>
    inputs: Plan
    proximal: ReturnType<typeof proximalPlan>
    sets: ReturnType<typeof furtherSetsPlan>
  }>
}

/** The trained sets of a cohort's weights. */
export function createTrainedSets(
  world: World,
  name: string,
  algorithm: AlgorithmDefinition,
  share: ShareWork,
  pool?: LearnerContext['pool'],
): TrainedSet[] {
  const draft = draftOf(world, name)
  const cohort = world.cohorts.find((cohort) => cohort.name === name) as EpisodeCohort
  const { rollout, league } = cohort
  const columns = learnerColumns(cohort)
  const { maxStaleness = 0, correction = 'none', rhoMax = 1, cMax = 1 } = algorithm.staleness ?? {}
  const stale =
    cohort.ahead === null
      ? null
      : new StaleRollout(world, cohort, { maxStaleness, correction, rhoMax, cMax }, columns.proximal, share)
  return Array.from({ length: league?.learned.length ?? 1 }, (_, set): TrainedSet => {
    const own = set === 0 ? columns : columns.sets.further[`set${set}`]!
    const weights = league?.weights[set] ?? cohort.weights
    const isNormalized = Object.keys(own.inputs).length > 0
    const seen = (rollout: EpisodeCohort['rollout']) =>
      league === null ? rollout : { ...rollout, valid: league.learned[set]! }
    const bind = (rollout: EpisodeCohort['rollout']) =>
      algorithm.bind({
        ...shapeOf(world, draft),
        rollout: stale === null ? seen(rollout) : stale.seen(rollout),
        finals: () => cohort.finals,
        columns: own.algorithm,
        weights,
        policy: league?.policies[set] ?? cohort.policy,
        kernels: world.kernels,
        random: cohort.environmentLanes.random,
        clock: world.clock,
        thread: world.threads.index,
        share,
        pool,
      })
    return {
      name: set === 0 ? cohort.name : `${cohort.name}.set${set}`,
      cohort,
      set,
      algorithm,
      learners: cohort.ahead === null ? [bind(rollout)] : cohort.ahead.buffers.map(({ rollout }) => bind(rollout)),
      stale,
      accounts: own.accounts,
      growMoments: isNormalized
        ? () => growMoments(own.inputs, weights, seen(cohort.rollout), world.kernels)
        : undefined,
      episodes: 0,
      solvedAtStep: null,
      solvedAtSeconds: null,
    }
  })
}

/** Statistics of a trained set's episodes so far. */
export function progressOf({ cohort, episodes, accounts, solvedAtStep, solvedAtSeconds }: TrainedSet): EpisodeProgress {
  return {
    episodes,
    episodeReturnLast100: meanAndStd(accounts.recent, Math.min(episodes, RECENT_EPISODES)),
    solvedAtStep,
    solvedAtSeconds,
    population: populationOf(cohort),
  }
}

export function episodeMetricsOf({ episodes, accounts }: TrainedSet) {
  const recent = Math.min(episodes, RECENT_EPISODES)
  return {
    episodes,
    episodeReturn: meanAndStd(accounts.recent, recent).mean,
    episodeLength: meanAndStd(accounts.recentLength, recent).mean,
  }
}

function populationOf({ population }: EpisodeCohort): PopulationProgress {
  const { present, totals } = population
  return { present: present[0]!, born: totals[Lives.born]!, died: totals[Lives.died]!, refused: totals[Lives.refused]! }
}

/** Counts finished episodes, and records when the environment was solved, `steps` before and `seconds` after. */
export function accountEpisodes(
  trained: TrainedSet,
  learning: readonly EpisodeCohort[],
  kernels: Kernels,
  steps: number,
  seconds: number,
): void {
  const { cohort, set, accounts, episodes } = trained
  const { rollout, environment, numLanes, league } = cohort
  const solvedRow = kernels.accountEpisodes(
    accounts.totals,
    accounts.recent,
    accounts.recentLength,
    rollout.episodeReturn,
    rollout.step,
    rollout.terminated,
    rollout.truncated,
    league?.learned[set] ?? rollout.valid,
    episodes,
    environment.returnThreshold ?? Number.POSITIVE_INFINITY,
    rollout.reward.length,
  )
  trained.episodes += accounts.totals[0]!
  if (solvedRow >= 0 && trained.solvedAtStep === null) {
    const ticks = Math.floor(solvedRow / numLanes) + 1
    // The lanes of all learners have taken the same number of steps until then, up to the length of their rollouts.
    const since = learning.reduce((sum, cohort) => sum + cohort.present * Math.min(ticks, cohort.numSteps), 0)
    trained.solvedAtStep = steps + since
    trained.solvedAtSeconds = seconds
  }
}

/** Rates a cohort's policy by the rollout's games against earlier selves, and returns the metrics. */
export function playedOf({
  selfPlay,
  league,
  rollout,
  environment,
}: EpisodeCohort): MetricValues<typeof selfPlayMetrics> | object {
  if (selfPlay === null) return {}
  const { games, score } = ratePolicy(selfPlay, league!, rollout, environment.numPlayers!)
  const [own, ...opponents] = selfPlay.rating
  return {
    eloRating: own!,
    eloRatingOpponents: opponents.reduce((sum, each) => sum + each, 0) / opponents.length,
    opponentGames: games,
    opponentScore: score,
  }
}

/** Collects advantages of several sets of weights until the last has learned, then copies them to the rollout. */
export function keepAdvantages({ cohort, set }: TrainedSet): void {
  const { rollout, league } = cohort
  if (league === null || league.learned.length === 1) return
  const learned = league.learned[set]!
  const { advantage, return: returns } = learnerColumns(cohort).sets
  if (set === 0) {
    advantage.fill(0)
    returns.set(rollout.value)
  }
  for (let row = 0; row < learned.length; row++) {
    if (learned[row] === 0) continue
    advantage[row] = rollout.advantage[row]!
    returns[row] = rollout.return[row]!
  }
  if (set < league.learned.length - 1) return
  rollout.advantage.set(advantage)
  rollout.return.set(returns)
}

/** Added to the variance, as in Gymnasium and Stable-Baselines3. */
const EPSILON = 1e-8

/** The moments of a set of weights; empty if its policy does not normalize. */
export function inputMomentsPlan({ normalizedInputs: width = 0 }: PolicyModel): Plan {
  if (width === 0) return {}
  return {
    mean: saved(column('f64', width)),
    squares: saved(column('f64', width)),
    count: saved(column('f64', 1)),
  }
}

type Moments = Readonly<Record<'mean' | 'squares' | 'count', Float64Array>>

/** Adds a rollout's valid rows to the moments, and writes the policy's normalization at the end of its weights. */
export function growMoments(
  columns: Columns<Plan>,
  weights: Float32Array,
  { observation, valid }: Pick<RolloutColumns, 'observation' | 'valid'>,
  kernels: Kernels,
): void {
  const { mean, squares, count } = columns as unknown as Moments
  const width = mean.length
  const center = weights.subarray(weights.length - 2 * width, weights.length - width)
  const deviation = weights.subarray(weights.length - width)
  kernels.updateRunning(mean, squares, count, observation, valid, valid.length, width)
  kernels.readRunning(center, deviation, mean, squares, count, EPSILON, width)
}
