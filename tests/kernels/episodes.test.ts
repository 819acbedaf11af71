import { describe, expect, test } from 'vitest'
import { accountEpisodes } from '../../src/kernels/rollout/episodes.ts'
import * as fc from '../support/properties.ts'

interface Row {
  episodeReturn: number
  step: number
  terminated: number
  truncated: number
  valid: number
}

const flag = fc.constantFrom(0, 0, 1)
const rows: fc.Arbitrary<Row[]> = fc.array(
  fc.record({
    episodeReturn: fc.integer({ min: -5, max: 9 }),
    step: fc.nat(50),
    terminated: flag,
    truncated: flag,
    valid: fc.constantFrom(1, 1, 0),
  }),
  { maxLength: 40, size: 'max' },
)

function run(rows: Row[], recent: Float64Array, recentLength: Float64Array, finished: number, threshold: number) {
  const totals = new Float64Array(3).fill(Number.NaN)
  const solvedRow = accountEpisodes(
    totals,
    recent,
    recentLength,
    Float32Array.from(rows, (row) => row.episodeReturn),
    Int32Array.from(rows, (row) => row.step),
    Uint8Array.from(rows, (row) => row.terminated),
    Uint8Array.from(rows, (row) => row.truncated),
    Uint8Array.from(rows, (row) => row.valid),
    finished,
    threshold,
    rows.length,
  )
  return { totals: [...totals], solvedRow }
}

const ended = (row: Row) => row.valid === 1 && (row.terminated === 1 || row.truncated === 1)

describe('accountEpisodes', () => {
  test('counts the episodes that ended and sums their returns and lengths', () => {
    fc.assert(
      fc.property(rows, fc.nat(20), (rows, finished) => {
        const episodes = rows.filter(ended)
        const { totals } = run(rows, new Float64Array(4), new Float64Array(4), finished, Number.POSITIVE_INFINITY)
        const returns = episodes.reduce((sum, row) => sum + row.episodeReturn, 0)
        const lengths = episodes.reduce((sum, row) => sum + row.step + 1, 0)
        expect(totals).toEqual([episodes.length, returns, lengths])
      }),
    )
  })

  test('keeps the last episodes in a ring that goes on from rollout to rollout', () => {
    fc.assert(
      fc.property(fc.array(rows, { maxLength: 5 }), fc.integer({ min: 1, max: 6 }), (rollouts, size) => {
        const recent = new Float64Array(size)
        const recentLength = new Float64Array(size)
        let finished = 0
        for (const rollout of rollouts) finished += run(rollout, recent, recentLength, finished, 1e9).totals[0]!
        const episodes = rollouts.flat().filter(ended)
        expect(finished).toBe(episodes.length)
        for (const [i, row] of episodes.entries()) {
          if (i < episodes.length - size) continue
          expect(recent[i % size]).toBe(row.episodeReturn)
          expect(recentLength[i % size]).toBe(row.step + 1)
        }
      }),
    )
  })

  test('says after which row the mean of a full ring first reached the threshold', () => {
    fc.assert(
      fc.property(
        rows,
        rows,
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: -3, max: 6 }),
        (before, now, size, threshold) => {
          const recent = new Float64Array(size)
          const recentLength = new Float64Array(size)
          const finished = run(before, recent, recentLength, 0, Number.POSITIVE_INFINITY).totals[0]!
          const { solvedRow } = run(now, recent, recentLength, finished, threshold)
          const returns = before.filter(ended).map((row) => row.episodeReturn)
          const expected = now.findIndex((row) => {
            if (!ended(row)) return false
            returns.push(row.episodeReturn)
            const last = returns.slice(-size)
            return last.length === size && last.reduce((sum, x) => sum + x, 0) / size >= threshold
          })
          expect(solvedRow).toBe(expected)
        },
      ),
      { numRuns: 500 },
    )
  })

  test('does not call a ring solved before it is full, however good its first episodes', () => {
    const good = { episodeReturn: 500, step: 499, terminated: 0, truncated: 1, valid: 1 }
    const ring = () => new Float64Array(3)
    expect(run([good, good], ring(), ring(), 0, 475).solvedRow).toBe(-1)
    expect(run([good, good, good], ring(), ring(), 0, 475).solvedRow).toBe(2)
  })
})
