/** Four carts at a time, in f32; the plain twin `cart-pole.ts` has the equations and the units. */
import {
  bytes4,
  cosQuarter,
  load4,
  madd,
  quarterTurns,
  sinQuarter,
  store4,
  storeBytes,
  turn,
  withinQuarter,
} from '../vector.simd'

const GRAVITY: f32 = 9.8
const TOTAL_MASS: f32 = 1.1
const POLE_MASS: f32 = 0.1
const POLE_MOMENT: f32 = 0.05
const HALF_LENGTH: f32 = 0.5
const FORCE: f32 = 10
const STEP_SECONDS: f32 = 0.02
/** Both are above their exact values, so that "at least" in f32 says the same as "above" in f64. */
const ANGLE_LIMIT: f32 = 0.20943951023931953
const POSITION_LIMIT: f32 = 2.4

export function cartPoleStep(
  position: usize,
  velocity: usize,
  angle: usize,
  angularVelocity: usize,
  observation: usize,
  reward: usize,
  terminated: usize,
  action: usize,
  from: i32,
  to: i32,
): void {
  const first = <usize>from << 2
  position += first
  velocity += first
  angle += first
  angularVelocity += first
  reward += first
  action += first
  observation += first << 2
  terminated += from
  let left = to - from
  for (; left >= 4; left -= 4) {
    step(position, velocity, angle, angularVelocity, observation, reward, terminated, action, 4)
    position += 16
    velocity += 16
    angle += 16
    angularVelocity += 16
    reward += 16
    action += 16
    observation += 64
    terminated += 4
  }
  if (left > 0) step(position, velocity, angle, angularVelocity, observation, reward, terminated, action, left)
}

/** One step of four carts, or of the fewer that are left. */
// @ts-ignore: decorator
@inline
function step(
  position: usize,
  velocity: usize,
  angle: usize,
  angularVelocity: usize,
  observation: usize,
  reward: usize,
  terminated: usize,
  action: usize,
  left: i32,
): void {
  const one = f32x4.splat(1)
  const seconds = f32x4.splat(STEP_SECONDS)
  const perTotalMass = f32x4.splat(1 / TOTAL_MASS)
  const poleMoment = f32x4.splat(POLE_MOMENT)
  const x = load4(position, left)
  const dx = load4(velocity, left)
  const theta = load4(angle, left)
  const dTheta = load4(angularVelocity, left)
  const right = i32x4.eq(load4(action, left), i32x4.splat(1))
  const force = v128.bitselect(f32x4.splat(FORCE), f32x4.splat(-FORCE), right)

  const q = quarterTurns(theta)
  const r = withinQuarter(theta, q)
  const sinR = sinQuarter(r)
  const cosR = cosQuarter(r)
  const sin = turn(sinR, cosR, q, 0)
  const cos = turn(sinR, cosR, q, 1)

  const swing = f32x4.mul(f32x4.mul(poleMoment, f32x4.mul(dTheta, dTheta)), sin)
  const push = f32x4.mul(f32x4.add(force, swing), perTotalMass)
  const torque = f32x4.sub(f32x4.mul(f32x4.splat(GRAVITY), sin), f32x4.mul(cos, push))
  const inertia = madd(f32x4.splat((-HALF_LENGTH * POLE_MASS) / TOTAL_MASS), f32x4.mul(cos, cos), f32x4.splat((HALF_LENGTH * 4) / 3))
  const ddTheta = f32x4.div(torque, inertia)
  const ddx = f32x4.sub(push, f32x4.mul(f32x4.mul(poleMoment, perTotalMass), f32x4.mul(ddTheta, cos)))

  const nextX = madd(seconds, dx, x)
  const nextDx = madd(seconds, ddx, dx)
  const nextTheta = madd(seconds, dTheta, theta)
  const nextDTheta = madd(seconds, ddTheta, dTheta)
  store4(position, nextX, left)
  store4(velocity, nextDx, left)
  store4(angle, nextTheta, left)
  store4(angularVelocity, nextDTheta, left)
  store4(reward, one, left)
  const outside = v128.or(
    f32x4.ge(f32x4.abs(nextX), f32x4.splat(POSITION_LIMIT)),
    f32x4.ge(f32x4.abs(nextTheta), f32x4.splat(ANGLE_LIMIT)),
  )
  storeBytes(terminated, bytes4(outside), left)

  const low02 = v128.shuffle<i32>(nextX, nextDx, 0, 4, 1, 5)
  const low13 = v128.shuffle<i32>(nextTheta, nextDTheta, 0, 4, 1, 5)
  const high02 = v128.shuffle<i32>(nextX, nextDx, 2, 6, 3, 7)
  const high13 = v128.shuffle<i32>(nextTheta, nextDTheta, 2, 6, 3, 7)
  v128.store(observation, v128.shuffle<i64>(low02, low13, 0, 2))
  if (left > 1) v128.store(observation, v128.shuffle<i64>(low02, low13, 1, 3), 16)
  if (left > 2) v128.store(observation, v128.shuffle<i64>(high02, high13, 0, 2), 32)
  if (left > 3) v128.store(observation, v128.shuffle<i64>(high02, high13, 1, 3), 48)
}
