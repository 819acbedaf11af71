/**
 * A cart and pole as a user writes one: a plain step of `defineEnvironment`, a loop over a range of lanes. It is stepped by the
 * systems with all their checks, and beside that the same loop over the same columns without any.
 */
import { where } from '../../src/entries/algorithms.ts'
import { columnStep } from '../../src/entries/environments.ts'
import { box, cartPole, createWorld, defineEnvironment, discrete, mlp, reset } from '../../src/index.ts'
import { check, type Runner, secondsOf } from '../measure.ts'

const STATE = { position: 'f32', velocity: 'f32', angle: 'f32', angularVelocity: 'f32' } as const
const TOTAL_MASS = 1.1 // kg
const POLE_MOMENT = 0.05 // kg·m
const POSITION_LIMIT = 2.4 // m
const ANGLE_LIMIT = (12 * 2 * Math.PI) / 360 // rad
const BOUNDS = [4.8, Number.POSITIVE_INFINITY, 0.42, Number.POSITIVE_INFINITY]

/** CartPole-v1 with a step of one's own; it begins as the built-in one does. */
export const plainCartPole = defineEnvironment({
  id: 'PlainCartPole-v0',
  settings: {},
  state: () => STATE,
  make: () => ({
    observationSpace: box({ low: BOUNDS.map((bound) => -bound), high: BOUNDS }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 500,
    returnThreshold: null,
    reset: cartPole().reset,
    step({ state, observation, reward, terminated, action }, from, to) {
      const { position, velocity, angle, angularVelocity } = state
      for (let n = from; n < to; n++) {
        const force = action[n] === 1 ? 10 : -10
        const sin = Math.sin(angle[n]!)
        const cos = Math.cos(angle[n]!)
        const spin = angularVelocity[n]!
        const push = (force + POLE_MOMENT * spin * spin * sin) / TOTAL_MASS
        const angularAcceleration = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - (0.1 * cos * cos) / TOTAL_MASS))
        const acceleration = push - (POLE_MOMENT * angularAcceleration * cos) / TOTAL_MASS

        const x = position[n]! + 0.02 * velocity[n]!
        const dx = velocity[n]! + 0.02 * acceleration
        const theta = angle[n]! + 0.02 * spin
        const dTheta = spin + 0.02 * angularAcceleration
        position[n] = x
        velocity[n] = dx
        angle[n] = theta
        angularVelocity[n] = dTheta

        observation[4 * n] = x
        observation[4 * n + 1] = dx
        observation[4 * n + 2] = theta
        observation[4 * n + 3] = dTheta
        reward[n] = 1
        terminated[n] = Math.abs(x) > POSITION_LIMIT || Math.abs(theta) > ANGLE_LIMIT ? 1 : 0
      }
    },
  }),
})

/** The same, its step as arithmetic over columns. */
export const columnCartPole = defineEnvironment({
  id: 'ColumnCartPole-v0',
  settings: {},
  state: () => STATE,
  make: () => ({
    ...plainCartPole(),
    step: columnStep(STATE, ({ state: { position, velocity, angle, angularVelocity }, action: [direction] }) => {
      const force = where(direction.equalTo(1), 10, -10)
      const [sin, cos] = [angle.sin(), angle.cos()]
      const push = force.plus(angularVelocity.square().times(POLE_MOMENT).times(sin)).times(1 / TOTAL_MASS)
      const inertia = cos
        .square()
        .times(-0.05 / TOTAL_MASS)
        .plus(2 / 3)
      const angularAcceleration = sin.times(9.8).minus(cos.times(push)).over(inertia)
      const acceleration = push.minus(angularAcceleration.times(cos).times(POLE_MOMENT / TOTAL_MASS))

      const x = position.plus(velocity.times(0.02))
      const dx = velocity.plus(acceleration.times(0.02))
      const theta = angle.plus(angularVelocity.times(0.02))
      const dTheta = angularVelocity.plus(angularAcceleration.times(0.02))
      return {
        state: { position: x, velocity: dx, angle: theta, angularVelocity: dTheta },
        observation: [x, dx, theta, dTheta],
        reward: 1,
        terminated: x.abs().greaterThan(POSITION_LIMIT).or(theta.abs().greaterThan(ANGLE_LIMIT)),
      }
    }),
  }),
})

/** Steps after which the bare loop puts its lanes back to where they began: poles that fall would turn round and round. */
const BARE_STEPS = 16

/** The plain step alone, over columns of a world that no system fills. Seconds of `ticks` steps. */
export async function bareRunner(numLanes: number, ticks: number): Promise<Runner> {
  const environment = plainCartPole()
  const world = await createWorld({ environment, policy: mlp({ hidden: [1] }), numLanes, seed: 1 })
  reset(world)
  const lanes = world.cohorts[0]!.environmentLanes
  for (let n = 0; n < numLanes; n++) lanes.action[n] = (Math.imul(n + 1, 0x9e3779b1) >>> 9) & 1
  const columns = Object.values(lanes.state as Record<string, Float32Array>)
  const starts = columns.map((column) => column.slice())
  const run = () => {
    for (let t = 0; t < ticks; t++) {
      if (t % BARE_STEPS === 0) for (let c = 0; c < columns.length; c++) columns[c]!.set(starts[c]!)
      environment.step(lanes, 0, numLanes)
    }
  }
  run()
  check(lanes.observation.every(Number.isFinite), 'observations are finite')
  return () => secondsOf(run)
}
