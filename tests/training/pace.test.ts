/** How many threads pay, by times that are made up. */
import { describe, expect, test } from 'vitest'
import { Pace } from '../../src/training/threads/pace.ts'

/** Runs for so many milliseconds, each run as long as `cost` says. Returns the milliseconds spent with each number of threads. */
function runFor(pace: Pace, milliseconds: number, cost: (threads: number, now: number) => number): Map<number, number> {
  const spent = new Map<number, number>()
  for (let now = 0; now < milliseconds; ) {
    const { threads } = pace
    const took = cost(threads, now)
    pace.took(took)
    spent.set(threads, (spent.get(threads) ?? 0) + took)
    now += took
  }
  return spent
}

describe('the number of threads', () => {
  test('is that with the shortest runs, and trials of others cost little', () => {
    const cost = (threads: number) => 12 / threads + threads // 13, 8, 7, 9.5
    const spent = runFor(new Pace(8), 60_000, cost)
    expect([...spent.keys()].toSorted((a, b) => a - b)).toEqual([1, 2, 4, 8])
    expect(spent.get(4)! / 60_000).toBeGreaterThan(0.95)
  })

  test.each([
    ['five times as long', 5],
    ['as long', 1],
  ])('stays 1 where runs of two take %s: never below 0.95 of one thread', (_, factor) => {
    let runs = 0
    const spent = runFor(new Pace(2), 60_000, (threads) => {
      runs++
      return threads === 1 ? 1 : factor
    })
    expect(runs / 60_000).toBeGreaterThan(0.95)
    expect(spent.get(2)! / 60_000).toBeLessThan(0.05)
  })

  test('follows what changes: other processes come and go', () => {
    const pace = new Pace(2)
    const quiet = (threads: number) => (threads === 1 ? 10 : 6)
    const busy = (threads: number) => (threads === 1 ? 14 : 30)
    const shareOf = (threads: number, spent: Map<number, number>) => (spent.get(threads) ?? 0) / 200_000
    expect(shareOf(2, runFor(pace, 200_000, quiet))).toBeGreaterThan(0.9)
    expect(shareOf(1, runFor(pace, 200_000, busy))).toBeGreaterThan(0.6)
    expect(shareOf(2, runFor(pace, 200_000, quiet))).toBeGreaterThan(0.6)
  })

  test('is that of all threads if it is fixed, and 1 of one', () => {
    for (const [pace, threads] of [
      [new Pace(6, true), 6],
      [new Pace(1), 1],
    ] as const) {
      expect([...runFor(pace, 5000, (threads) => threads).keys()]).toEqual([threads])
    }
  })

  test('of three can be one, two or three', () => {
    expect([...runFor(new Pace(3), 5000, (threads) => 3 / threads).keys()].toSorted()).toEqual([1, 2, 3])
  })
})
