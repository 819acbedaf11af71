/** How many lanes the playground draws, by frames whose times are given here. */
import { expect, test } from 'vitest'
import { Pace } from '../../playground/pace.ts'

/** Lets frames pass, each so many milliseconds after the one before. */
function pass(pace: Pace, frames: number, ms: (i: number) => number, isMoving = true): number {
  for (let i = 0; i < frames; i++) {
    now += ms(i)
    pace.tick(now, isMoving)
  }
  return pace.allowed
}
let now = 0

test('draws all lanes while frames are in time, even if one in twenty is late', () => {
  const pace = new Pace(1000)
  expect(pass(pace, 2000, () => 16.7)).toBe(1000)
  expect(pass(pace, 2000, (i) => (i % 20 === 0 ? 33.3 : 16.7))).toBe(1000)
})

test('draws half of the lanes each time that frames are late, down to an eighth', () => {
  const pace = new Pace(1000)
  expect([40, 40, 40, 400].map((frames) => pass(pace, frames, () => 33.3))).toEqual([500, 250, 125, 125])
  expect(pass(new Pace(2), 400, () => 33.3)).toBe(2)
})

test('draws more again, and tries more seldom what was too many', () => {
  const pace = new Pace(1000)
  const tries: number[] = []
  // Half of the lanes are in time, all are late.
  for (let frame = 1; frame <= 40 * 200; frame++) {
    const before = pace.allowed
    pass(pace, 1, () => (before > 500 ? 33.3 : 16.7))
    if (before < pace.allowed) tries.push(frame)
  }
  const waits = tries.slice(0, 4).map((at, i) => at - (tries[i - 1] ?? 0))
  expect(tries.length).toBeGreaterThan(3)
  for (const [i, wait] of waits.entries()) if (i > 0) expect(wait).toBeGreaterThan(1.5 * waits[i - 1]!)
  // Once all are in time, all are drawn and stay.
  expect(pass(pace, 40 * 200, () => 16.7)).toBe(1000)
})

test('counts no frame while lanes stand still, and none after a pause as late', () => {
  const pace = new Pace(1000)
  expect(pass(pace, 400, () => 100, false)).toBe(1000)
  for (let i = 0; i < 400; i++) {
    pass(pace, 1, () => 5000, false)
    pass(pace, 5, () => 16.7)
  }
  expect(pace.allowed).toBe(1000)
})
