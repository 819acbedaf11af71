import type { Cohort, World } from '../world.ts'

/**
 * Every lane's policy looks and chooses: one pass over all lanes of a cohort.
 *
 * Reads observation.current, episode. Writes action.chosen, logprob and value; completes nextValue of the row before with
 * this row's value, for lanes that went on. Runs when all lanes see a running episode.
 */
export function infer(world: World): void {
  const { kernels } = world
  for (const cohort of world.cohorts) {
    const { observation, action, episode, from, to, t, recorded, bootstrap, windows } = cohort
    if (recorded && bootstrap.length + to - from > bootstrap.row.length) valueBootstrapList(world, cohort)
    cohort.policy.infer(observation, action, episode, cohort.explore, from, to)
    if (recorded && t > 0) {
      const { nextValue, terminated, truncated, valid } = windows.transition[t - 1]!
      kernels.completeNextValue(nextValue, action.value, terminated, truncated, valid, from, to)
    }
  }
}

/**
 * The one bootstrap inference of a rollout, at its horizon and with the weights that filled it: values the final
 * observations of truncated rows, and the observations of lanes whose episode goes on.
 */
export function bootstrap(world: World): void {
  for (const cohort of world.cohorts) {
    if (!cohort.recorded) continue
    const { observation, transition, numLanes, from, to, t, bootstrap } = cohort
    const { terminated, truncated, valid } = transition
    if (bootstrap.length + to - from > bootstrap.row.length) valueBootstrapList(world, cohort)
    const firstRow = (t - 1) * numLanes
    const width = observation.next.length / numLanes
    const GOES_ON = 0
    bootstrap.length = world.kernels.listBootstrap(
      bootstrap.row,
      bootstrap.observation,
      observation.next,
      terminated,
      truncated,
      valid,
      GOES_ON,
      bootstrap.length,
      firstRow,
      width,
      from,
      to,
    )
    valueBootstrapList(world, cohort)
  }
}

/** Values the list, writes the values to their rows, and empties it. */
function valueBootstrapList(world: World, { bootstrap, policy, rollout }: Cohort): void {
  policy.values(bootstrap.value, bootstrap.observation, bootstrap.length)
  world.kernels.scatterValues(rollout.nextValue, bootstrap.row, bootstrap.value, bootstrap.length)
  bootstrap.length = 0
}
