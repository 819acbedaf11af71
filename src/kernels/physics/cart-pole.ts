import { philox4x32, Stream, unitFromWord } from '../../base/random.ts'

/**
 * One Euler step of the cart and pole (Barto, Sutton, Anderson 1983; equations with the friction left out as in Florian
 * 2007), with the constants of Gymnasium's CartPole-v1, for rows `from` to `to`. State columns are updated in place;
 * observation rows are (position, velocity, angle, angular velocity).
 */
const GRAVITY = 9.8 // m/s²
const CART_MASS = 1.0 // kg
const POLE_MASS = 0.1 // kg
const TOTAL_MASS = CART_MASS + POLE_MASS
const HALF_LENGTH = 0.5 // m, half the pole
const POLE_MOMENT = POLE_MASS * HALF_LENGTH // kg·m
const FORCE = 10.0 // N, to the right for action 1, to the left for action 0
const STEP_SECONDS = 0.02
export const ANGLE_LIMIT = (12 * 2 * Math.PI) / 360 // rad
export const POSITION_LIMIT = 2.4 // m
const START_LIMIT = 0.05 // m, m/s, rad, rad/s: an episode starts with each of the four uniform in [−limit, limit)

export function cartPoleStep(
  position: Float32Array | Float64Array,
  velocity: Float32Array | Float64Array,
  angle: Float32Array | Float64Array,
  angularVelocity: Float32Array | Float64Array,
  observation: Float32Array,
  reward: Float32Array,
  terminated: Uint8Array,
  action: Int32Array,
  from: number,
  to: number,
): void {
  for (let n = from; n < to; n++) {
    const force = action[n] === 1 ? FORCE : -FORCE
    const sin = Math.sin(angle[n]!)
    const cos = Math.cos(angle[n]!)
    const push = (force + POLE_MOMENT * angularVelocity[n]! * angularVelocity[n]! * sin) / TOTAL_MASS
    const angularAcceleration =
      (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - (POLE_MASS * cos * cos) / TOTAL_MASS))
    const acceleration = push - (POLE_MOMENT * angularAcceleration * cos) / TOTAL_MASS

    position[n] = position[n]! + STEP_SECONDS * velocity[n]!
    velocity[n] = velocity[n]! + STEP_SECONDS * acceleration
    angle[n] = angle[n]! + STEP_SECONDS * angularVelocity[n]!
    angularVelocity[n] = angularVelocity[n]! + STEP_SECONDS * angularAcceleration

    observation[4 * n] = position[n]!
    observation[4 * n + 1] = velocity[n]!
    observation[4 * n + 2] = angle[n]!
    observation[4 * n + 3] = angularVelocity[n]!
    reward[n] = 1
    terminated[n] = Math.abs(position[n]!) > POSITION_LIMIT || Math.abs(angle[n]!) > ANGLE_LIMIT ? 1 : 0
  }
}

/**
 * Starts an episode in each of the lanes rows[0 … count): state and observation, from the four words of the episode's draw.
 * `words` (4) is workspace.
 */
export function cartPoleReset(
  position: Float32Array,
  velocity: Float32Array,
  angle: Float32Array,
  angularVelocity: Float32Array,
  observation: Float32Array,
  words: Uint32Array,
  lane: Uint32Array,
  episode: Uint32Array,
  rows: Uint32Array,
  key0: number,
  key1: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    philox4x32(words, 0, episode[n]!, lane[n]!, Stream.reset, key0, key1)
    position[n] = start(words[0]!)
    velocity[n] = start(words[1]!)
    angle[n] = start(words[2]!)
    angularVelocity[n] = start(words[3]!)
    observation[4 * n] = position[n]!
    observation[4 * n + 1] = velocity[n]!
    observation[4 * n + 2] = angle[n]!
    observation[4 * n + 3] = angularVelocity[n]!
  }
}

function start(word: number): number {
  return -START_LIMIT + 2 * START_LIMIT * unitFromWord(word)
}
