/** Environment steps: reset, step and store over columns of random actions, without a policy. */
import { createWorld, type EnvironmentDefinition, mlp, reset, step, store } from '../../src/index.ts'
import { check, secondsOf } from '../measure.ts'

const PATTERNS = 16

/**
 * A world of one environment that is stepped with patterns of random actions. Returns the seconds of `ticks` steps; that
 * includes a copy of each tick's actions to where a policy would write them. Where actions are masked, legal ones are chosen
 * in their place, and the time of that is taken off.
 */
export async function environmentRunner(
  environment: EnvironmentDefinition,
  numLanes: number,
  ticks: number,
): Promise<() => number> {
  const world = await createWorld({ environment, policy: mlp({ hidden: [1] }), numLanes, seed: 1 })
  const cohort = world.cohorts[0]!
  const isBox = environment.actionSpace.kind === 'box'
  const patterns = Array.from({ length: PATTERNS }, (_, p) =>
    Array.from(cohort.action.chosen, (_, n) =>
      isBox ? Math.sin(p * 7 + n) * 2 : (Math.imul(n + 1, p * 2654435761 + 1) >>> 9) & 1,
    ),
  ).map((actions) => (isBox ? Float32Array.from(actions) : Int32Array.from(actions)))
  const isMasked = cohort.actionMask.current.length > 0
  const run = (count: number): number => {
    let seconds = 0
    const start = performance.now()
    for (let t = 0; t < count; t++) {
      reset(world)
      cohort.action.chosen.set(patterns[t % PATTERNS]!)
      if (isMasked) seconds -= secondsOf(() => chooseLegal(cohort.action.chosen, cohort.actionMask.current, t))
      step(world)
      store(world)
    }
    return seconds + (performance.now() - start) / 1000
  }
  const checked = 100
  run(checked)
  if (environment.id.includes('CartPole')) {
    const episodes = cohort.episode.episode.reduce((sum, number) => sum + number, 0)
    const length = (checked * numLanes) / episodes
    check(length > 15 && length < 30, `random cart-pole episodes are 15 to 30 steps long, not ${length}`)
  }
  check(cohort.observation.next.every(Number.isFinite), 'observations are finite')
  return () => run(ticks)
}

/** Takes a legal choice for each lane, from another one on in each tick. */
function chooseLegal(chosen: Int32Array | Float32Array, mask: Uint8Array, tick: number): void {
  const size = mask.length / chosen.length
  for (let n = 0; n < chosen.length; n++) {
    let choice = (tick * 7 + n) % size
    for (let tried = 0; tried < size && mask[n * size + choice] === 0; tried++) choice = (choice + 1) % size
    chosen[n] = choice
  }
}
