/**
 * One semi-implicit Euler step of a pendulum driven at its joint, with the constants of Gymnasium's Pendulum-v1, for rows
 * `from` to `to`. State columns are updated in place; the angle is kept in [−π, π), which does not change observations
 * and keeps the precision in f32. Observation rows are (cos angle, sin angle, angular velocity).
 */
const MASS = 1.0 // kg
const LENGTH = 1.0 // m
const STEP_SECONDS = 0.05
export const SPEED_LIMIT = 8.0 // rad/s
export const TORQUE_LIMIT = 2.0 // N·m

export function pendulumStep(
  angle: Float32Array | Float64Array,
  angularVelocity: Float32Array | Float64Array,
  observation: Float32Array,
  reward: Float32Array,
  action: Float32Array,
  gravity: number,
  from: number,
  to: number,
): void {
  for (let n = from; n < to; n++) {
    const torque = clamp(action[n]!, TORQUE_LIMIT)
    const upright = wrap(angle[n]!)
    const speed = angularVelocity[n]!
    reward[n] = -(upright * upright + 0.1 * speed * speed + 0.001 * torque * torque)

    const acceleration = ((3 * gravity) / (2 * LENGTH)) * Math.sin(upright) + (3 / (MASS * LENGTH * LENGTH)) * torque
    angularVelocity[n] = clamp(speed + acceleration * STEP_SECONDS, SPEED_LIMIT)
    angle[n] = wrap(upright + angularVelocity[n]! * STEP_SECONDS)

    observation[3 * n] = Math.cos(angle[n]!)
    observation[3 * n + 1] = Math.sin(angle[n]!)
    observation[3 * n + 2] = angularVelocity[n]!
  }
}

function clamp(value: number, limit: number): number {
  return Math.min(Math.max(value, -limit), limit)
}

/** The same angle in [−π, π). */
export function wrap(angle: number): number {
  const turns = (angle + Math.PI) / (2 * Math.PI)
  return (turns - Math.floor(turns)) * 2 * Math.PI - Math.PI
}
