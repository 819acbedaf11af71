/** Four carts at a time, in f32; the plain twin `cart-pole.ts` has the equations and the units. */
import { philox4, word0, word1, word2, word3 } from '../philox.simd'
import {
  bytes4,
  COS_4,
  COS_6,
  COS_8,
  cosQuarter,
  cosSeries,
  load4,
  madd,
  quarterTurns,
  SIN_3,
  SIN_5,
  SIN_7,
  sinQuarter,
  sinSeries,
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
const START_LIMIT: f64 = 0.05

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
  const some = i32(from < to)
  const one = <f32>some // 1, which the compiler must not know; see `tanhInPlace`.
  const ones = f32x4.splat(one)
  const unsigned = i32x4.splat(some * 0x7fffffff)
  const upright = f32x4.splat(one * 0.78) // Below ¼π: no quarter turn to take away.
  const sin7 = f32x4.splat(one * SIN_7)
  const sin5 = f32x4.splat(one * SIN_5)
  const sin3 = f32x4.splat(one * SIN_3)
  const cos8 = f32x4.splat(one * COS_8)
  const cos6 = f32x4.splat(one * COS_6)
  const cos4 = f32x4.splat(one * COS_4)
  const cos2 = f32x4.splat(one * -0.5)
  const seconds = f32x4.splat(one * STEP_SECONDS)
  const perTotalMass = f32x4.splat(one * (1 / TOTAL_MASS))
  const poleMoment = f32x4.splat(one * POLE_MOMENT)
  const poleShare = f32x4.mul(poleMoment, perTotalMass)
  const force = f32x4.splat(one * FORCE)
  const gravity = f32x4.splat(one * GRAVITY)
  const inertia0 = f32x4.splat(one * ((HALF_LENGTH * 4) / 3))
  const inertia2 = f32x4.splat(one * ((-HALF_LENGTH * POLE_MASS) / TOTAL_MASS))
  const positionLimit = f32x4.splat(one * POSITION_LIMIT)
  const angleLimit = f32x4.splat(one * ANGLE_LIMIT)
  let n: usize = from
  const end: usize = to
  while (n < end) {
    if (n + 4 <= end && stand(angle + (n << 2), unsigned, upright)) {
      // A loop with one way out, at its end: V8 of Node 20 moves constants out of no other.
      do {
        const theta = v128.load(angle + (n << 2))
        const z = f32x4.mul(theta, theta)
        const sin = sinSeries(theta, z, sin7, sin5, sin3)
        const cos = cosSeries(z, cos8, cos6, cos4, cos2, ones)
        move(
          position, velocity, angle, angularVelocity, observation, reward, terminated, action, sin, cos, n, 4,
          ones, unsigned, seconds, perTotalMass, poleMoment, poleShare, force, gravity, inertia0, inertia2, positionLimit,
          angleLimit,
        )
        n += 4
      } while (n + 4 <= end && stand(angle + (n << 2), unsigned, upright))
    } else {
      const left = min(4, <i32>(end - n))
      const theta = load4(angle + (n << 2), left)
      const q = quarterTurns(theta)
      const r = withinQuarter(theta, q)
      const sin = turn(sinQuarter(r), cosQuarter(r), q, 0)
      const cos = turn(sinQuarter(r), cosQuarter(r), q, 1)
      move(
        position, velocity, angle, angularVelocity, observation, reward, terminated, action, sin, cos, n, left,
        ones, unsigned, seconds, perTotalMass, poleMoment, poleShare, force, gravity, inertia0, inertia2, positionLimit,
        angleLimit,
      )
      n += 4
    }
  }
}

/** Whether four poles lean so little, as all do whose episode goes on, that their angle has no quarter turn in it. */
// @ts-ignore: decorator
@inline
function stand(angle: usize, unsigned: v128, upright: v128): bool {
  return i32x4.bitmask(f32x4.lt(v128.and(v128.load(angle), unsigned), upright)) == 15
}

/** One step of the carts n to n + left, four at most, whose poles' angles have this sine and cosine; then constants. */
// @ts-ignore: decorator
@inline
function move(
  position: usize,
  velocity: usize,
  angle: usize,
  angularVelocity: usize,
  observation: usize,
  reward: usize,
  terminated: usize,
  action: usize,
  sin: v128,
  cos: v128,
  n: usize,
  left: i32,
  ones: v128,
  unsigned: v128,
  seconds: v128,
  perTotalMass: v128,
  poleMoment: v128,
  poleShare: v128,
  force: v128,
  gravity: v128,
  inertia0: v128,
  inertia2: v128,
  positionLimit: v128,
  angleLimit: v128,
): void {
  const at = n << 2
  const x = load4(position + at, left)
  const dx = load4(velocity + at, left)
  const theta = load4(angle + at, left)
  const dTheta = load4(angularVelocity + at, left)
  const right = i32x4.eq(load4(action + at, left), i32x4.splat(1))
  const pushed = v128.xor(force, i32x4.shl(v128.not(right), 31)) // To the left: the sign bit set.

  const swing = f32x4.mul(f32x4.mul(poleMoment, f32x4.mul(dTheta, dTheta)), sin)
  const push = f32x4.mul(f32x4.add(pushed, swing), perTotalMass)
  const torque = f32x4.sub(f32x4.mul(gravity, sin), f32x4.mul(cos, push))
  const ddTheta = f32x4.div(torque, madd(inertia2, f32x4.mul(cos, cos), inertia0))
  const ddx = f32x4.sub(push, f32x4.mul(poleShare, f32x4.mul(ddTheta, cos)))

  const nextX = madd(seconds, dx, x)
  const nextDx = madd(seconds, ddx, dx)
  const nextTheta = madd(seconds, dTheta, theta)
  const nextDTheta = madd(seconds, ddTheta, dTheta)
  store4(position + at, nextX, left)
  store4(velocity + at, nextDx, left)
  store4(angle + at, nextTheta, left)
  store4(angularVelocity + at, nextDTheta, left)
  store4(reward + at, ones, left)
  const outside = v128.or(
    f32x4.ge(v128.and(nextX, unsigned), positionLimit),
    f32x4.ge(v128.and(nextTheta, unsigned), angleLimit),
  )
  storeBytes(terminated + n, bytes4(outside), left)
  const row = observation + (at << 2)
  storeRows(row, row + 16, row + 32, row + 48, nextX, nextDx, nextTheta, nextDTheta, left)
}

/** The first `left` observation rows, each at its own place, from four columns. */
// @ts-ignore: decorator
@inline
function storeRows(
  row0: usize,
  row1: usize,
  row2: usize,
  row3: usize,
  x: v128,
  dx: v128,
  theta: v128,
  dTheta: v128,
  left: i32,
): void {
  const low02 = v128.shuffle<i32>(x, dx, 0, 4, 1, 5)
  const low13 = v128.shuffle<i32>(theta, dTheta, 0, 4, 1, 5)
  const high02 = v128.shuffle<i32>(x, dx, 2, 6, 3, 7)
  const high13 = v128.shuffle<i32>(theta, dTheta, 2, 6, 3, 7)
  v128.store(row0, v128.shuffle<i64>(low02, low13, 0, 2))
  if (left > 1) v128.store(row1, v128.shuffle<i64>(low02, low13, 1, 3))
  if (left > 2) v128.store(row2, v128.shuffle<i64>(high02, high13, 0, 2))
  if (left > 3) v128.store(row3, v128.shuffle<i64>(high02, high13, 1, 3))
}

export function cartPoleReset(
  position: usize,
  velocity: usize,
  angle: usize,
  angularVelocity: usize,
  observation: usize,
  lane: usize,
  episode: usize,
  rows: usize,
  key0: i32,
  key1: i32,
  count: i32,
): void {
  const zero = i32x4.splat(0) // The first draw of the stream of resets.
  for (let left = count; left > 0; left -= 4, rows += 16) {
    // Rows that are not there are read as row 0, and not written.
    const four = i32x4.shl(load4(rows, left), 2)
    const at0: usize = i32x4.extract_lane(four, 0)
    const at1: usize = i32x4.extract_lane(four, 1)
    const at2: usize = i32x4.extract_lane(four, 2)
    const at3: usize = i32x4.extract_lane(four, 3)
    philox4(zero, loadEach(episode, at0, at1, at2, at3), loadEach(lane, at0, at1, at2, at3), zero, key0, key1)
    const x = start(word0)
    const dx = start(word1)
    const theta = start(word2)
    const dTheta = start(word3)
    storeEach(position, at0, at1, at2, at3, x, left)
    storeEach(velocity, at0, at1, at2, at3, dx, left)
    storeEach(angle, at0, at1, at2, at3, theta, left)
    storeEach(angularVelocity, at0, at1, at2, at3, dTheta, left)
    const row0 = observation + (at0 << 2)
    const row1 = observation + (at1 << 2)
    const row2 = observation + (at2 << 2)
    storeRows(row0, row1, row2, observation + (at3 << 2), x, dx, theta, dTheta, left)
  }
}

/** Uniform in [−START_LIMIT, START_LIMIT) from the upper 24 bits of each word: in f64 as the plain twin, for its bits. */
// @ts-ignore: decorator
@inline
function start(words: v128): v128 {
  const low = f64x2.splat(-START_LIMIT)
  const range = f64x2.splat(2 * START_LIMIT * 5.9604644775390625e-8) // A power of two changes no rounding.
  const bits = i32x4.shr_u(words, 8)
  const first = f64x2.add(low, f64x2.mul(range, f64x2.convert_low_i32x4_s(bits)))
  const last = v128.shuffle<i64>(bits, bits, 1, 1)
  const second = f64x2.add(low, f64x2.mul(range, f64x2.convert_low_i32x4_s(last)))
  return v128.shuffle<i64>(f32x4.demote_f64x2_zero(first), f32x4.demote_f64x2_zero(second), 0, 2)
}

/** One element of a column for each of four rows, `at…` bytes from its beginning. */
// @ts-ignore: decorator
@inline
function loadEach(column: usize, at0: usize, at1: usize, at2: usize, at3: usize): v128 {
  let v = v128.load32_zero(column + at0)
  v = v128.load32_lane(column + at1, v, 1)
  v = v128.load32_lane(column + at2, v, 2)
  return v128.load32_lane(column + at3, v, 3)
}

// @ts-ignore: decorator
@inline
function storeEach(column: usize, at0: usize, at1: usize, at2: usize, at3: usize, v: v128, left: i32): void {
  v128.store32_lane(column + at0, v, 0)
  if (left > 1) v128.store32_lane(column + at1, v, 1)
  if (left > 2) v128.store32_lane(column + at2, v, 2)
  if (left > 3) v128.store32_lane(column + at3, v, 3)
}
