/** A cohort of episodes before it has memory: checks options and plans columns. */
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { checkSeed } from '../../base/random.ts'
import { canShare } from '../../base/shared.ts'
import { spaceWidth } from '../../base/space.ts'
import type { PlannedObjects } from '../../components/arena.ts'
import { column, saved } from '../../components/column.ts'
import { episodePlan } from '../../components/episode.ts'
import { populationPlan } from '../../components/population.ts'
import { finalPlan, observationColumn, observationOf, type RowWidths, rolloutPlan } from '../../components/rollout.ts'
import { actionMaskWidth, DONE, type EnvironmentDefinition, statePlan } from '../../environments/environment.ts'
import type { PolicyDefinition, PolicyModel } from '../../policies/policy.ts'
import type { CohortDraft } from '../housing.ts'
import { checkSystems, systemsPlan } from '../system.ts'
import { aheadPlan } from './ahead.ts'
import { checkSets, leaguePlan } from './league.ts'
import type { EpisodeCohortOptions, EpisodeDraft } from './options.ts'
import { checkSelfPlay, selfPlayPlan } from './self-play.ts'

/**
 * Checks the options of a cohort and builds its network. `before` are the world's earlier cohorts, whose lane numbers come first.
 * @throws InputError with the wrong option.
 */
export async function draftEpisodes(
  options: EpisodeCohortOptions,
  before: readonly CohortDraft[],
  helps = false,
): Promise<EpisodeDraft> {
  const { environment, numLanes, present, autoreset, explore } = options
  const owner = typeof options.policy === 'string' ? ownerOf(options, before) : null
  const policy = owner === null ? (options.policy as PolicyDefinition) : owner.policy
  if (typeof environment?.reset !== 'function' || typeof environment.step !== 'function') {
    throw new InputError('environment', show(environment), 'an environment, like cartPole()')
  }
  for (const name of ['reset', 'step'] as const) {
    if (isAsynchronous(environment[name])) {
      throw new InputError(`environment ${environment.id}`, `an async ${name}`, DONE)
    }
  }
  if (typeof policy?.build !== 'function') throw new InputError('policy', show(policy), 'a policy, like mlp()')
  if (!Number.isSafeInteger(numLanes) || numLanes < 1 || numLanes > 0xffffffff) {
    throw new InputError('numLanes', show(numLanes), 'a whole number ≥ 1')
  }
  const { numPlayers = 1 } = environment
  if (numLanes % numPlayers !== 0) {
    throw new InputError('numLanes', show(numLanes), `a multiple of ${numPlayers}, the players of ${environment.id}`)
  }
  if (options.seed !== undefined) checkSeed(options.seed)
  const isSeeded = options.seed !== undefined
  // A cohort with its own seed has its own lane numbers.
  const others = isSeeded ? [] : before.filter((draft) => draft.kind === 'episodes').filter(hasWorldsSeed)
  const last = others.at(-1)
  const isOpen = present !== undefined || environment.population === true
  if (present !== undefined && (!Number.isSafeInteger(present) || present < 0 || present > numLanes)) {
    throw new InputError('present', show(present), `a whole number from 0 to numLanes, ${numLanes}`)
  }
  if (isOpen && numPlayers > 1) {
    const expected = 'no option present: games need all their lanes'
    throw new InputError('present', `a cohort of ${environment.id}, which has ${numPlayers} players`, expected)
  }
  const firstLane = options.firstLane ?? (last === undefined ? 0 : last.firstLane + numbersOf(last))
  const numNumbers = numbersOf({ isOpen, options })
  if (!Number.isSafeInteger(firstLane) || firstLane < 0 || firstLane + numNumbers > 0xffffffff) {
    throw new InputError('firstLane', show(firstLane), 'a whole number ≥ 0, with all lane numbers below 4294967295')
  }
  if (autoreset !== undefined && !['same-step', 'next-step', 'disabled'].includes(autoreset)) {
    throw unknownWord('autoreset', String(autoreset), ['same-step', 'next-step', 'disabled'])
  }
  if (environment.population === true && (autoreset ?? 'same-step') !== 'same-step') {
    const expected = `same-step for lanes of ${environment.id}, which are born and die`
    throw new InputError('autoreset', show(autoreset), expected)
  }
  if (explore !== undefined && typeof explore !== 'boolean') {
    throw new InputError('explore', show(explore), 'true or false')
  }
  checkSystems(options.systems, environment)
  await environment.prepare?.()
  await policy.prepare?.(helps)
  const model = policy.build(environment.observationSpace, environment.actionSpace)
  if (owner !== null && show(model.parameters) !== show(owner.model.parameters)) {
    const got = `${owner.name}, whose network has other shapes than this environment requires`
    throw new InputError('policy', got, 'the policy of a cohort with the same spaces')
  }
  const sets = setsOf(options, policy.id, model)
  const name = options.name ?? policy.id
  const sharesWith = owner === null ? null : (owner.sharesWith ?? owner.name)
  return { kind: 'episodes', options, policy, sharesWith, name, key: others.length, firstLane, isOpen, model, sets }
}

function hasWorldsSeed({ options }: EpisodeDraft): boolean {
  return options.seed === undefined
}

function setsOf(
  { environment, weightSets, learningSets, selfPlay: asked }: EpisodeCohortOptions,
  id: string,
  model: PolicyModel,
) {
  const selfPlay = asked === undefined ? null : checkSelfPlay(asked, environment)
  for (const [name, given] of Object.entries({ weightSets, learningSets })) {
    if (selfPlay === null || given === undefined) continue
    throw new InputError(name, `${show(given)}, together with selfPlay`, 'only one of the two: selfPlay sets both')
  }
  const sets = {
    all: selfPlay === null ? (weightSets ?? 1) : 1 + selfPlay.opponents,
    learning: learningSets ?? 1,
    selfPlay,
  }
  checkSets(sets.all, sets.learning, id, model)
  return sets
}

/** Number of lane numbers reserved for a cohort whose lanes may join and leave. */
export const LANE_NUMBERS = 2 ** 27

/** How many lane numbers a cohort has, from its first one on. */
export function numbersOf({ isOpen, options }: Pick<EpisodeDraft, 'isOpen' | 'options'>): number {
  return isOpen ? Math.max(LANE_NUMBERS, options.numLanes) : options.numLanes
}

/** @throws InputError if no earlier cohort of episodes has the name given as policy. */
function ownerOf({ policy }: EpisodeCohortOptions, before: readonly CohortDraft[]): EpisodeDraft {
  const episodes = before.filter((draft) => draft.kind === 'episodes')
  const owner = episodes.find(({ name }) => name === policy)
  if (owner !== undefined) return owner
  const names = episodes.map(({ name }) => name)
  if (names.length > 0) throw unknownWord('policy', String(policy), names)
  throw new InputError('policy', show(policy), 'a policy, like mlp(), or the name of an earlier cohort')
}

/** The definitions that every thread creates for a cohort, with their kinds. Excludes systems that only have `afterRollout`. */
export function madeInThreads({
  environment,
  policy,
  systems = [],
}: Pick<EpisodeCohortOptions, 'environment' | 'systems'> & { readonly policy: PolicyDefinition }): readonly (readonly [
  noun: string,
  definition: DefinitionRecord,
])[] {
  const running = systems.filter(({ run }) => run !== undefined)
  return [
    ['environment', environment],
    ...(environment.wrappers ?? []).map((wrapper) => ['wrapper', wrapper] as const),
    ['policy', policy],
    ...running.map((system) => ['system', system] as const),
  ]
}

/** @throws InputError if the policy cannot leave its thread, or a definition has no module from which a thread could create it. */
export function checkEpisodeThreads({ options, policy, model }: EpisodeDraft, count: number): void {
  if (count === 1) return
  if (!canShare) {
    const expected = '1, since this page is not cross-origin isolated: doctor() says what it needs'
    throw new InputError('threads', String(count), expected)
  }
  if (model.staysInThread) {
    const expected = "threads: 1, since its device serves only the caller's thread"
    throw new InputError(`policy ${policy.id}`, `${count} threads`, expected)
  }
  for (const [noun, { id, module }] of madeInThreads({ ...options, policy })) {
    if (module !== undefined) continue
    const remedy = 'a definition with `module: import.meta.url`, which other threads can load; or threads: 1'
    throw new InputError(`${noun} ${id}`, `no module, and ${count} threads`, remedy)
  }
}

function isAsynchronous(f: { readonly constructor: { readonly name: string } }): boolean {
  return f.constructor.name.startsWith('Async')
}

export type EpisodeCohortPlan = ReturnType<typeof planEpisodes>

/** Plans a cohort's columns, with a workspace for each thread. */
export function planEpisodes(draft: EpisodeDraft, threads: number) {
  const { options, sharesWith, isOpen, model, sets, reservation } = draft
  const { environment, numLanes } = options
  const { actionSpace } = environment
  const widths = rowWidths(environment, model)
  const numRows = (reservation?.numSteps ?? 1) * numLanes
  const selfPlay = selfPlayPlan(sets.all)
  const league = leaguePlan(sets.all, sets.learning, environment, numLanes, numRows, model, widths, threads)
  const actionWidth = spaceWidth(actionSpace)
  const isBox = actionSpace.kind === 'box'
  const listLength = reservation === undefined ? 0 : (model.answersLater ? reservation.numSteps + 1 : 2) * numLanes
  const buffer = () => ({
    rollout: rolloutPlan(reservation?.numSteps ?? 1, numLanes, widths, actionSpace),
    final: finalPlan(reservation?.numSteps ?? 0, numLanes, widths, threads),
  })
  const episode = episodePlan(numLanes)
  const state = statePlan(environment, numLanes)
  const carried = {
    observation: saved(observationColumn(numLanes, widths)),
    actionMask: saved(column('u8', numLanes, widths.actionMask)),
    memory: saved(column('f32', numLanes, widths.memory)),
  }
  const { numBuffers = 0 } = reservation ?? {}
  const ahead = aheadPlan(Math.max(1, numBuffers), model.numParameters, buffer, { episode, state, carried })
  return {
    weights: saved(column('f32', sharesWith === null ? model.numParameters : 0)),
    episode,
    population: populationPlan(numLanes, environment.population === true, isOpen),
    state,
    league: sets.all > 1 ? league : ({} as typeof league),
    selfPlay: sets.selfPlay === null ? ({} as typeof selfPlay) : selfPlay,
    systems: systemsPlan(options.systems ?? [], numLanes, numRows),
    carried,
    ...buffer(),
    ahead: numBuffers > 0 ? ahead : ({} as typeof ahead),
    bounds: {
      low: column('f32', isBox ? actionWidth : 0),
      high: column('f32', isBox ? actionWidth : 0),
      sizes: column('i32', isBox ? 0 : actionWidth),
    },
    observationBounds: { low: observationColumn(1, widths), high: observationColumn(1, widths) },
    bootstrap: {
      row: column('u32', listLength),
      observation: observationColumn(listLength, widths),
      memory: column('f32', listLength, widths.memory),
      actionMask: column('u8', listLength, widths.actionMask),
      value: column('f32', listLength),
    },
    laneList: column('u32', numLanes),
    workspaces: Object.fromEntries(Array.from({ length: threads }, (_, i) => [`thread${i}`, model.workspace()])),
    learner: reservation?.learner ?? {},
  }
}

/** Measured bytes of a step's windows plus a lane's entity during creation, rounded up. */
const WINDOWS_BYTES = 3072
const ENTITY_BYTES = 640

/** A cohort's heap objects, besides its columns. */
export function episodeObjects({ name, options, reservation }: EpisodeDraft): PlannedObjects[] {
  return [
    { name: `${name}.windows`, count: reservation?.numSteps ?? 1, bytesEach: WINDOWS_BYTES },
    { name: `${name}.lanes`, count: options.numLanes, bytesEach: ENTITY_BYTES },
  ]
}

function rowWidths(environment: EnvironmentDefinition, model: PolicyModel): RowWidths {
  return {
    ...observationOf(environment.observationSpace),
    actionMask: actionMaskWidth(environment),
    memory: model.memoryWidth ?? 0,
  }
}
