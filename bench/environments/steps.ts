/** Environment steps a second: reset, step and store over columns of random actions, without a policy. */
import {
  cartPole,
  createWorld,
  type EnvironmentDefinition,
  mlp,
  pendulum,
  reset,
  step,
  store,
} from '../../src/index.ts'
import { check, type Line, line, time } from '../measure.ts'

const TICKS = 100
const PATTERNS = 16

export async function environmentSteps(numLanes = 1024): Promise<Line[]> {
  return Promise.all([cartPole(), pendulum()].map((environment) => environmentLine(environment, numLanes)))
}

async function environmentLine(environment: EnvironmentDefinition, numLanes: number): Promise<Line> {
  const world = await createWorld({ environment, policy: mlp({ hidden: [1] }), numLanes, seed: 1 })
  const cohort = world.cohorts[0]!
  const isBox = environment.actionSpace.kind === 'box'
  const patterns = Array.from({ length: PATTERNS }, (_, p) =>
    Array.from(cohort.action.chosen, (_, n) =>
      isBox ? Math.sin(p * 7 + n) * 2 : (Math.imul(n + 1, p * 2654435761 + 1) >>> 9) & 1,
    ),
  ).map((actions) => (isBox ? Float32Array.from(actions) : Int32Array.from(actions)))
  const run = () => {
    for (let t = 0; t < TICKS; t++) {
      reset(world)
      cohort.action.chosen.set(patterns[t % PATTERNS]!)
      step(world)
      store(world)
    }
  }
  run()
  const episodes = cohort.episode.episode.reduce((sum, number) => sum + number, 0)
  if (environment.id === 'CartPole-v1') check(episodes > numLanes, 'random cart-pole episodes are short')
  check(cohort.observation.next.every(Number.isFinite), 'observations are finite')
  return line(`${environment.id}, environment only, ${numLanes} lanes`, 'steps', TICKS * numLanes, time(run))
}
