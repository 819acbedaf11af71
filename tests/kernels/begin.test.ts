import { expect, test } from 'vitest'
import { Phase } from '../../src/components/episode.ts'
import { beginEpisodes, clearFlags, listPhase } from '../../src/kernels/rollout/begin.ts'
import * as fc from '../support/properties.ts'

const LANES = 9
const phases = () => fc.uint8Array({ max: 2, minLength: LANES, maxLength: LANES })
/** A range of lanes. */
const range = () => fc.tuple(fc.nat(LANES), fc.nat(LANES)).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const)

test('listPhase lists the lanes of its range that are in the phase or a later one, rising', () => {
  fc.assert(
    fc.property(phases(), fc.constantFrom(...Object.values(Phase)), range(), (phase, lowest, [from, to]) => {
      const rows = new Uint32Array(LANES).fill(999)
      const count = listPhase(rows, phase, lowest, from, to)
      const expected = [...phase.keys()].filter((n) => n >= from && n < to && phase[n]! >= lowest)
      expect([...rows]).toEqual([...expected, ...Array(LANES - expected.length).fill(999)])
      expect(count).toBe(expected.length)
    }),
  )
})

test('beginEpisodes gives the listed lanes their next episode, from its beginning, and leaves the others', () => {
  const lists = fc.uniqueArray(fc.nat(LANES - 1), { maxLength: LANES })
  fc.assert(
    fc.property(lists, fc.nat(LANES), (list, limit) => {
      const count = Math.min(limit, list.length)
      const episode = Uint32Array.from({ length: LANES }, (_, n) => (n === 0 ? 0xffffffff : 10 * n)) // 2³² − 1: none yet.
      const step = new Int32Array(LANES).fill(7)
      const episodeReturn = new Float64Array(LANES).fill(2.5)
      const phase = new Uint8Array(LANES).fill(Phase.ended)
      beginEpisodes(episode, step, episodeReturn, phase, Uint32Array.from(list), Phase.ready, count)
      for (let n = 0; n < LANES; n++) {
        const seen = [episode[n], step[n], episodeReturn[n], phase[n]]
        const begun = list.slice(0, count).includes(n)
        if (begun) expect(seen).toEqual([n === 0 ? 0 : 10 * n + 1, 0, 0, Phase.ready])
        else expect(seen).toEqual([n === 0 ? 0xffffffff : 10 * n, 7, 2.5, Phase.ended])
      }
    }),
  )
})

test('clearFlags clears both flags of its lanes and no others', () => {
  fc.assert(
    fc.property(range(), ([from, to]) => {
      const [terminated, truncated] = [new Uint8Array(LANES).fill(1), new Uint8Array(LANES).fill(1)]
      clearFlags(terminated, truncated, from, to)
      const expected = Array.from({ length: LANES }, (_, n) => (n >= from && n < to ? 0 : 1))
      expect([...terminated]).toEqual(expected)
      expect([...truncated]).toEqual(expected)
    }),
  )
})
