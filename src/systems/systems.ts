/** The four systems over a world's cohorts, for both kinds of cohort, and `bootstrap`, which closes a rollout. */

import { checkGiven } from '../base/errors.ts'
import type { Cohort } from '../world/cohort.ts'
import type { EpisodeCohort } from '../world/episodes/cohort.ts'
import type { Systems } from '../world/housing.ts'
import { loadForConversations } from '../world/kinds.ts'
import type { World } from '../world/world.ts'
import { bootstrapEpisodes } from './episodes/bootstrap.ts'
import { inferEpisodes } from './episodes/infer.ts'
import { withOwnSystems } from './episodes/own.ts'
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

function cohortsOf(world: World, caller: string): readonly Cohort[] {
  checkWorld(caller, world)
  return world.cohorts
}

/** @throws InputError if the argument of `caller` is not a world. Allocates nothing for a valid one. */
export function checkWorld(caller: string, world: World): void {
  if (world?.cohorts === undefined) checkGiven(`world of ${caller}`, world, ['cohorts'])
}
