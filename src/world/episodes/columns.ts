/** Creates a cohort of episodes over its columns: windows on the rollout, and the lanes' initial values. */
import { InputError } from '../../base/errors.ts'
import { Random } from '../../base/random.ts'
import { type BoxSpace, choiceSizes, spaceWidth } from '../../base/space.ts'
import { actionWindows } from '../../components/action.ts'
import type { Column, Columns, Plan } from '../../components/column.ts'
import { Phase } from '../../components/episode.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import { transitionWindows } from '../../components/transition.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Housing } from '../housing.ts'
import { LaneEntities } from '../lanes.ts'
import { bindSystem } from '../system.ts'
import { createAhead, type RolloutBuffer } from './ahead.ts'
import type { EpisodeCohort, Slider } from './cohort.ts'
import { type EpisodeCohortPlan, numbersOf } from './draft.ts'
import { LateLanes } from './late.ts'
import { createLeague } from './league.ts'
import type { EpisodeDraft } from './options.ts'
import { createSelfPlay } from './self-play.ts'
import { bootstrapList, collecting, createSlider, finalObservations, sharesOf } from './shares.ts'

/** Creates the cohort over its columns, in one of the world's threads. `isFresh`: the columns have no initial values yet. */
export function createEpisodes(
  draft: EpisodeDraft,
  columns: Columns<EpisodeCohortPlan>,
  world: Housing,
  kernels: Kernels,
  isFresh: boolean,
): EpisodeCohort {
  const { options, name, model, sets, reservation } = draft
  const { environment, numLanes } = options
  const { policy: policyDefinition, sharesWith } = draft
  const { actionSpace } = environment
  const recorded = reservation !== undefined
  const autoreset = options.autoreset ?? 'same-step'
  const sliding = recorded || autoreset === 'disabled' // Lanes whose episode ended must keep their observation.
  const numSteps = reservation?.numSteps ?? 1
  const { rollout, carried, episode, weights, laneList, bootstrap } = columns
  const { index } = world.threads
  if (isFresh) writeFirstValues(draft, columns, new Random(options.seed ?? world.seed))
  writeBounds(columns, environment)
  const refusal = whyNotLate(draft, world.threads.count)
  const { population } = columns
  const present = population.present[0]!
  const collector = collecting(world.threads)
  const shares = sharesOf({ sliding, numSteps, numLanes, environment }, collector.count, present)
  const share = shares[collector.index] ?? { sliding, numSteps, numLanes, from: 0, to: 0 }
  const { from, to } = share
  const finalsOf = (final: Columns<EpisodeCohortPlan>['final']) => {
    const finals = shares.map((each, thread) => finalObservations(final, each, thread))
    return { finals, final: finals[collector.index] ?? finalObservations(final, share, 0) }
  }
  const { finals, final } = finalsOf(columns.final)
  const slidersOf = (rollout: RolloutColumns) => ({
    observation: createSlider(rollout.observation, carried.observation, share),
    actionMask: createSlider(rollout.actionMask, carried.actionMask, share),
    memory: createSlider(rollout.memory, carried.memory, share),
  })
  const { observation, actionMask, memory } = slidersOf(rollout)
  const slides = ({ component }: Slider) => component.current.length > 0
  const sliders = [observation, actionMask, memory].filter(slides)
  const windowsOf = (rollout: RolloutColumns, seen: ReturnType<typeof slidersOf>) => ({
    observation: seen.observation.windows,
    actionMask: seen.actionMask.windows,
    memory: seen.memory.windows,
    action: actionWindows(rollout, numSteps, numLanes, spaceWidth(actionSpace)),
    transition: transitionWindows(rollout, numSteps, numLanes),
  })
  const windows = windowsOf(rollout, { observation, actionMask, memory })
  const action = { ...windows.action[0]! }
  const transition = { ...windows.transition[0]! }
  const random = new Random(options.seed ?? world.seed)
  const bind = (weights: Float32Array) => model.bind(weights, columns.workspaces[`thread${index}`]!, kernels, random)
  const policy = bind(weights)
  const league = sets.all > 1 ? createLeague(columns.league, { weights, policy }, bind, index) : null
  const own = Object.values(columns.systems).map(({ state }) => state as Columns<Plan>)
  const ownComponents = own.filter((state) => Object.keys(state).length > 0)
  const components = [
    ...sliders.map(({ component }) => component),
    ...[action, transition, episode, columns.state, ...(league === null ? [] : [league.lanes]), ...ownComponents],
  ]
  const entities = isFresh ? new LaneEntities(world.ecs, components, present) : null
  const buffers = (): RolloutBuffer[] => [
    { rollout, finals, final, windows, sliders: sliders.map(({ windows, firstBlock }) => ({ windows, firstBlock })) },
    ...Object.values(columns.ahead.others).map(({ rollout, final }): RolloutBuffer => {
      const others = slidersOf(rollout)
      const each = Object.values(others).filter(slides)
      return {
        ...{ rollout, ...finalsOf(final), windows: windowsOf(rollout, others) },
        sliders: each.map(({ windows, firstBlock }) => ({ windows, firstBlock })),
      }
    }),
  ]
  const isAhead = reservation?.numBuffers !== undefined
  const ahead = isAhead ? createAhead(columns.ahead, buffers(), collector.index < 0 ? null : bind) : null
  const late = new LateLanes(action, episode, spaceWidth(actionSpace))
  const environmentLanes: EpisodeCohort['environmentLanes'] = {
    answersLater(n, arrival) {
      if (refusal !== null) throw new InputError(`environment ${environment.id}`, 'a promise', refusal)
      late.add(n, arrival)
    },
    state: columns.state,
    observation: observation.component.current,
    actionMask: actionMask.component.current,
    action: action.applied,
    reward: transition.reward,
    terminated: transition.terminated,
    truncated: transition.truncated,
    died: population.died,
    births: population.births,
    present,
    lane: episode.lane,
    episode: episode.episode,
    step: episode.step,
    random,
    kernels,
  }
  return {
    kind: 'episodes',
    name,
    environment,
    policyDefinition,
    sharesWith,
    model,
    autoreset,
    explore: options.explore ?? true,
    numLanes,
    firstLane: draft.firstLane,
    numNumbers: numbersOf(draft),
    seed: random.seed,
    present,
    cleared: numLanes,
    sharers: collector.count,
    dealt: collector.count,
    from,
    to,
    recorded,
    sliding,
    numSteps,
    entities,
    lanes: entities?.lanes ?? NONE,
    population,
    observation: observation.component,
    actionMask: actionMask.component,
    memory: memory.component,
    action,
    transition,
    episode,
    state: columns.state,
    environmentLanes,
    watch: null,
    systems: (options.systems ?? []).map((system) =>
      bindSystem(
        system,
        columns.systems[system.id]!,
        environmentLanes,
        rollout,
        numSteps,
        numLanes,
        environment.levels ?? 0,
      ),
    ),
    policy,
    league,
    selfPlay:
      sets.selfPlay === null
        ? null
        : createSelfPlay(sets.selfPlay, columns.selfPlay, league!, environment.numPlayers!, isFresh),
    weights,
    rollout,
    ahead,
    learner: columns.learner,
    bootstrap: bootstrapList(bootstrap, share),
    final,
    finals,
    bounds: columns.bounds,
    observationBounds: columns.observationBounds,
    sliders,
    laneList: laneList.subarray(from, to),
    carried: [episode, columns.state, carried, league?.lanes ?? {}, ...own].flatMap((part) =>
      Object.values<Column>(part as Record<string, Column>),
    ),
    whole: { final: columns.final, bootstrap, laneList },
    threads: world.threads,
    windows,
    late,
    answer: null,
    rests: false,
    ticksLeft: Number.POSITIVE_INFINITY,
    t: numSteps,
    version: 0,
  }
}

/** Returns what an environment that must answer at once has to do; null if it may answer later. */
function whyNotLate({ model, options: { environment } }: EpisodeDraft, numThreads: number): string | null {
  if (numThreads > 1)
    return `an immediate answer, or lanes of one thread (threads: 1); ${numThreads} threads share them`
  if ((environment.numPlayers ?? 1) > 1) return 'an immediate answer: the lanes of a game step together'
  if (environment.population === true) return 'an immediate answer: lanes are born and die'
  return (model.memoryWidth ?? 0) > 0 ? 'an immediate answer, or a policy without memory' : null
}

const NONE = new Uint32Array(0)

/** Writes the lanes' initial state and the policy's initial weights, keyed by the seed and the cohort's number. */
function writeFirstValues(
  { key, sharesWith, firstLane, options, model }: EpisodeDraft,
  { episode, population, league, weights }: Columns<EpisodeCohortPlan>,
  random: Random,
): void {
  const present = options.present ?? options.numLanes
  for (let n = 0; n < present; n++) episode.lane[n] = firstLane + n
  episode.episode.fill(0xffffffff, 0, present) // −1: the first reset makes it 0.
  episode.phase.fill(Phase.fresh, 0, present)
  episode.phase.fill(Phase.absent, present)
  population.present[0] = present
  population.numbered[0] = present
  if (sharesWith === null) model.initialize(weights, random, key)
  for (let at = 0; at < (league.others?.length ?? 0); at += weights.length) league.others.set(weights, at)
}

function writeBounds(
  { bounds, observationBounds }: Columns<EpisodeCohortPlan>,
  { observationSpace, actionSpace }: EnvironmentDefinition,
): void {
  if (actionSpace.kind === 'box') {
    bounds.low.set(actionSpace.low)
    bounds.high.set(actionSpace.high)
  } else bounds.sizes.set(choiceSizes(actionSpace))
  const { low, high } = observationSpace as BoxSpace
  for (let k = 0; k < low.length; k++) {
    observationBounds.low[k] = Math.max(low[k]!, -F32_MAX)
    observationBounds.high[k] = Math.min(high[k]!, F32_MAX)
  }
}

/** The largest finite f32, for dimensions of a box without a bound. */
const F32_MAX = 3.4028234663852886e38
