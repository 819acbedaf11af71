/** The four systems, each a function of the world; and the tick, which runs them in order. */
import { Work } from '../base/clock.ts'
import { checkGiven, InputError } from '../base/errors.ts'
import type { Cohort } from '../world/cohort.ts'
import type { EpisodeCohort } from '../world/episodes/cohort.ts'
import { settleLanes } from '../world/episodes/population.ts'
import type { Systems } from '../world/housing.ts'
import { kindOf, loadForConversations, type World } from '../world/world.ts'
import { bootstrapEpisodes } from './episodes/bootstrap.ts'
import { inferEpisodes } from './episodes/infer.ts'
import { runAfterRollout, withOwnSystems } from './episodes/own.ts'
import { resetEpisodes } from './episodes/reset.ts'
import { stepEpisodes } from './episodes/step.ts'
import { storeEpisodes } from './episodes/store.ts'

const episodes: Systems<EpisodeCohort> = withOwnSystems({
  reset: resetEpisodes,
  infer: inferEpisodes,
  step: stepEpisodes,
  store: storeEpisodes,
})

/** The four systems per kind; each gets cohorts of its kind only. */
const systemsOf = { episodes } as unknown as Record<Cohort['kind'], Systems<Cohort>>
loadForConversations(async () => {
  const { conversations } = await import('./conversations/systems.ts')
  systemsOf.conversations = conversations as unknown as Systems<Cohort>
})

/** Opens the tick: lanes whose episode or conversation is over begin another. Runs first. */
export function reset(world: World, cohorts: readonly Cohort[] = cohortsOf(world, 'reset')): void {
  for (const cohort of cohorts) systemsOf[cohort.kind].reset(world.kernels, cohort)
}

/** Policies choose an action in every lane, or a token where the model has the turn. Returns a promise if other threads help. */
export function infer(world: World, cohorts: readonly Cohort[] = cohortsOf(world, 'infer')): void | Promise<void> {
  return inferFrom(world, cohorts, 0)
}

function inferFrom(world: World, cohorts: readonly Cohort[], first: number): void | Promise<void> {
  for (let i = first; i < cohorts.length; i++) {
    const chosen = systemsOf[cohorts[i]!.kind].infer(world.kernels, cohorts[i]!)
    if (chosen !== undefined) return goOn(chosen, world, cohorts, i + 1)
  }
}

async function goOn(chosen: Promise<void>, world: World, cohorts: readonly Cohort[], first: number): Promise<void> {
  await chosen
  await inferFrom(world, cohorts, first)
}

/** The environments step or reply. */
export function step(world: World, cohorts: readonly Cohort[] = cohortsOf(world, 'step')): void {
  for (const cohort of cohorts) systemsOf[cohort.kind].step(world.kernels, cohort)
}

/** Closes the row, and stores finished episodes or conversations. Runs last. */
export function store(world: World, cohorts: readonly Cohort[] = cohortsOf(world, 'store')): void {
  for (const cohort of cohorts) systemsOf[cohort.kind].store(world.kernels, cohort)
}

/** Values the states after the rows of full rollouts, with the weights that filled them. Returns a promise for asynchronous policies. */
export function bootstrap(
  world: World,
  cohorts: readonly EpisodeCohort[] = cohortsOf(world, 'bootstrap').filter((cohort) => cohort.kind === 'episodes'),
): void | Promise<void> {
  const valued = cohorts
    .map((cohort) => bootstrapEpisodes(world.kernels, cohort))
    .filter((pending) => pending !== undefined)
  if (valued.length > 0) return Promise.all(valued).then(() => undefined)
}

/**
 * Makes one step in every lane. A cohort with an asynchronous policy continues when the answer has arrived. The tick then returns a
 * promise: of the first answer if every lane waits, otherwise of a turn of the event loop, in which answers can arrive.
 * @throws InputError if several threads share the lanes, which only their trainer steps.
 */
export function tick(world: World): void | Promise<void> {
  checkWorld('tick', world)
  const { cohorts, threads } = world
  if (threads.count > 1 && cohorts.some(({ kind }) => kind === 'episodes')) throw shared(world)
  settle(cohorts)
  const moved = runSystems(world, cohorts)
  return moved === undefined ? awaitAnswers(cohorts) : moved.then(() => awaitAnswers(cohorts))
}

/** Collects a whole rollout: `numSteps` steps of every lane and the bootstrap inference. Promise and errors as for `tick`. */
export function collect(world: World, numSteps: number): void | Promise<void> {
  checkWorld('collect', world)
  if (world.threads.count > 1) throw shared(world)
  settle(world.cohorts)
  return drive(collectWhole(world, numSteps))
}

function* collectWhole(world: World, numSteps: number): Generator<void | Promise<void>, void> {
  yield* collectShare(world, world.cohorts, numSteps)
  concludeRollouts(world, world.cohorts)
}

/** Runs the cohorts' `afterRollout` systems on full rollouts, in the caller's thread, when all lanes' rows are complete. */
export function concludeRollouts(world: World, cohorts: readonly Cohort[]): void {
  for (const cohort of cohorts) {
    if (cohort.kind === 'episodes' && cohort.recorded && cohort.t === cohort.numSteps)
      runAfterRollout(world.kernels, cohort)
  }
}

/** Updates the rows of cohorts between two rollouts to the present lanes. */
export function settle(cohorts: readonly Cohort[]): void {
  for (const cohort of cohorts) if (cohort.kind === 'episodes' && cohort.t === cohort.numSteps) settleLanes(cohort)
}

/** Asked after each tick; its promise lets the process do other work before the next one. */
export type Pause = () => Promise<void> | undefined

/**
 * Collects a whole rollout of this thread's lanes: `numSteps` steps of each cohort, or its own rollout's length. An unrecorded cohort
 * acts as long as the others. Yields the promise to await before it can continue.
 */
export function* collectShare(
  world: World,
  cohorts: readonly Cohort[],
  numSteps?: number,
  pause?: Pause,
): Generator<void | Promise<void>, void> {
  const lanes = cohorts.filter((cohort) => cohort.kind === 'episodes')
  const longest = lanes.reduce((most, { numSteps }) => Math.max(most, numSteps), 1)
  for (const cohort of lanes) cohort.ticksLeft = numSteps ?? (cohort.recorded ? cohort.numSteps : longest)
  try {
    while (lanes.some(({ ticksLeft }) => ticksLeft > 0)) {
      const moved = runSystems(world, cohorts)
      if (moved !== undefined) yield moved
      const waiting = awaitAnswers(cohorts)
      if (waiting !== undefined) yield waiting
      const paused = pause?.()
      if (paused !== undefined) yield paused
    }
  } finally {
    for (const cohort of lanes) {
      cohort.ticksLeft = Number.POSITIVE_INFINITY
      cohort.rests = cohort.answer !== null
    }
  }
  const valued = bootstrap(world, lanes)
  if (valued !== undefined) yield valued
  world.clock.mark(Work.bootstrap)
}

/**
 * Steps every lane of these cohorts that does not wait for an answer. Returns a promise if other threads decode conversations; a stop
 * takes effect after it.
 */
export function runSystems(world: World, cohorts: readonly Cohort[]): void | Promise<void> {
  const { clock } = world
  reset(world, cohorts) // Lanes whose episode ended begin a new one; all lanes see a running episode.
  clock.mark(Work.reset)
  const inferred = infer(world, cohorts) // The policies choose.
  return inferred === undefined ? conclude(world, cohorts) : inferred.then(() => conclude(world, cohorts))
}

function conclude(world: World, cohorts: readonly Cohort[]): void {
  const { clock } = world
  clock.mark(Work.infer)
  step(world, cohorts) // The environments respond.
  clock.mark(Work.step)
  store(world, cohorts) // The row is closed; ended and truncated lanes are marked.
  clock.mark(Work.store)
}

/** The promise to await before lanes of these cohorts can continue; undefined if no answer is pending. */
export function awaitAnswers(cohorts: readonly Cohort[]): Promise<void> | undefined {
  if (!cohorts.some(isOwed)) return undefined
  if (cohorts.some(canGoOn)) return new Promise((resolve) => setTimeout(resolve, 0))
  return Promise.race(cohorts.flatMap((cohort) => kindOf(cohort).owed(cohort)))
}

function isOwed(cohort: Cohort): boolean {
  return kindOf(cohort).owed(cohort).length > 0
}

function canGoOn(cohort: Cohort): boolean {
  return kindOf(cohort).canGoOn(cohort)
}

function drive(steps: Generator<void | Promise<void>, void>): void | Promise<void> {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return
    if (value !== undefined) {
      return value.then(
        () => drive(steps),
        (cause) => void steps.throw(cause),
      )
    }
  }
}

function shared(world: World): InputError {
  return new InputError('tick', `a world shared by ${world.threads.count} threads`, 'trainer.updates(), or threads: 1')
}

function cohortsOf(world: World, caller: string): readonly Cohort[] {
  checkWorld(caller, world)
  return world.cohorts
}

/** @throws InputError if the argument of `caller` is not a world. Allocates nothing for a valid one. */
export function checkWorld(caller: string, world: World): void {
  if (world?.cohorts === undefined) checkGiven(`world of ${caller}`, world, ['cohorts'])
}
