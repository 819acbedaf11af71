/** Four pendulums at a time, in f32; the plain twin `pendulum.ts` has the equations and the units. */
import { clamp4, cosQuarter, load4, madd, quarterTurns, sinQuarter, store4, turn, withinQuarter } from '../vector.simd'

const STEP_SECONDS: f32 = 0.05
const SPEED_LIMIT: f32 = 8
const TORQUE_LIMIT: f32 = 2

export function pendulumStep(
  angle: usize,
  angularVelocity: usize,
  observation: usize,
  reward: usize,
  action: usize,
  gravity: f64,
  from: i32,
  to: i32,
): void {
  const fall = <f32>(1.5 * gravity) // 3 g / 2 l for l = 1 m.
  const first = <usize>from << 2
  angle += first
  angularVelocity += first
  reward += first
  action += first
  observation += 3 * first
  let left = to - from
  for (; left >= 4; left -= 4) {
    step(angle, angularVelocity, observation, reward, action, fall, 4)
    angle += 16
    angularVelocity += 16
    reward += 16
    action += 16
    observation += 48
  }
  if (left > 0) step(angle, angularVelocity, observation, reward, action, fall, left)
}

/** One step of four pendulums, or of the fewer that are left. */
// @ts-ignore: decorator
@inline
function step(
  angle: usize,
  angularVelocity: usize,
  observation: usize,
  reward: usize,
  action: usize,
  fall: f32,
  left: i32,
): void {
  const seconds = f32x4.splat(STEP_SECONDS)
  const torque = clamp4(load4(action, left), f32x4.splat(-TORQUE_LIMIT), f32x4.splat(TORQUE_LIMIT))
  const upright = wrap4(load4(angle, left))
  const speed = load4(angularVelocity, left)
  const effort = f32x4.mul(f32x4.mul(torque, torque), f32x4.splat(0.001))
  const cost = madd(upright, upright, madd(f32x4.mul(speed, f32x4.splat(0.1)), speed, effort))
  store4(reward, f32x4.neg(cost), left)

  const q = quarterTurns(upright)
  const r = withinQuarter(upright, q)
  const sin = turn(sinQuarter(r), cosQuarter(r), q, 0)
  const acceleration = madd(f32x4.splat(fall), sin, f32x4.mul(torque, f32x4.splat(3))) // 3 / m l² for 1 kg and 1 m.
  const faster = madd(acceleration, seconds, speed)
  const nextSpeed = clamp4(faster, f32x4.splat(-SPEED_LIMIT), f32x4.splat(SPEED_LIMIT))
  const nextAngle = wrap4(madd(nextSpeed, seconds, upright))
  store4(angularVelocity, nextSpeed, left)
  store4(angle, nextAngle, left)

  const nextQ = quarterTurns(nextAngle)
  const nextR = withinQuarter(nextAngle, nextQ)
  const sinR = sinQuarter(nextR)
  const cosR = cosQuarter(nextR)
  const nextSin = turn(sinR, cosR, nextQ, 0)
  const nextCos = turn(sinR, cosR, nextQ, 1)
  // Rows of three: c0 s0 v0 c1, s1 v1 c2 s2, v2 c3 s3 v3.
  const low = v128.shuffle<i32>(nextCos, nextSin, 0, 4, 1, 5)
  const high = v128.shuffle<i32>(nextCos, nextSin, 2, 6, 3, 7)
  const middle = v128.shuffle<i32>(low, nextSpeed, 3, 5, 3, 5)
  store4(observation, v128.shuffle<i32>(low, nextSpeed, 0, 1, 4, 2), 3 * left)
  if (left > 1) store4(observation + 16, v128.shuffle<i64>(middle, high, 0, 2), 3 * left - 4)
  if (left > 2) store4(observation + 32, v128.shuffle<i32>(nextSpeed, high, 2, 6, 7, 3), 3 * left - 8)
}

/** The same angle in [−π, π): whole turns taken away in two parts, so that an angle within keeps its bits. */
// @ts-ignore: decorator
@inline
function wrap4(angle: v128): v128 {
  const half = f32x4.splat(3.14159265358979324)
  const turns = f32x4.floor(f32x4.mul(f32x4.add(angle, half), f32x4.splat(0.159154943091895336)))
  return madd(turns, f32x4.splat(-1.9353071795864769e-3), madd(turns, f32x4.splat(-6.28125), angle))
}
