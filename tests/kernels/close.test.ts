import { describe, expect, test } from 'vitest'
import { Phase } from '../../src/components/episode.ts'
import {
  closeRow,
  completeNextValue,
  Listed,
  limitSteps,
  listRows,
  scatterValues,
  settleDead,
} from '../../src/kernels/rollout/close.ts'
import * as fc from '../support/properties.ts'

const LANES = 9
const flags = () => fc.uint8Array({ max: 1, minLength: LANES, maxLength: LANES })
const phases = () => fc.uint8Array({ max: 2, minLength: LANES, maxLength: LANES })
const floats = (length = LANES) =>
  fc.float32Array({ min: -100, max: 100, noNaN: true, minLength: length, maxLength: length })
/** A range of lanes. */
const range = () => fc.tuple(fc.nat(LANES), fc.nat(LANES)).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const)

describe('settleDead', () => {
  test('marks the lanes that were ready valid, and takes reward and flags from the others', () => {
    fc.assert(
      fc.property(phases(), floats(), flags(), flags(), range(), (phase, reward, terminated, truncated, [from, to]) => {
        const valid = new Uint8Array(LANES).fill(9)
        const after = { reward: reward.slice(), terminated: terminated.slice(), truncated: truncated.slice() }
        const dead = settleDead(valid, after.reward, after.terminated, after.truncated, phase, Phase.ready, from, to)
        let expectedDead = 0
        for (let n = 0; n < LANES; n++) {
          const inside = n >= from && n < to
          const acted = phase[n] === Phase.ready
          if (inside && !acted) expectedDead++
          expect(valid[n]).toBe(inside ? +acted : 9)
          const kept = !inside || acted
          expect(after.reward[n]).toBe(kept ? reward[n] : 0)
          expect(after.terminated[n]).toBe(kept ? terminated[n] : 0)
          expect(after.truncated[n]).toBe(kept ? truncated[n] : 0)
        }
        expect(dead).toBe(expectedDead)
      }),
    )
  })
})

describe('limitSteps', () => {
  test('cuts off the step that is the last allowed one and any later, and leaves other flags as they are', () => {
    fc.assert(
      fc.property(flags(), fc.integer({ min: 1, max: 8 }), range(), (truncated, stepsMax, [from, to]) => {
        const step = Int32Array.from({ length: LANES }, (_, n) => n)
        const after = truncated.slice()
        limitSteps(after, step, stepsMax, from, to)
        for (let n = 0; n < LANES; n++) {
          // Step n is the (n + 1)-th of its episode.
          const last = n + 1 >= stepsMax && n >= from && n < to
          expect(after[n]).toBe(last ? 1 : truncated[n])
        }
      }),
    )
  })
})

describe('closeRow', () => {
  test('tells each row its episode and moves the episode on', () => {
    fc.assert(
      fc.property(floats(), flags(), flags(), flags(), range(), (reward, terminated, truncated, valid, [from, to]) => {
        const row = {
          lane: new Uint32Array(LANES).fill(77),
          episode: new Uint32Array(LANES).fill(77),
          step: new Int32Array(LANES).fill(77),
          episodeReturn: new Float32Array(LANES).fill(77),
          version: new Uint32Array(LANES).fill(77),
          nextValue: new Float32Array(LANES).fill(77),
        }
        const step = Int32Array.from({ length: LANES }, (_, n) => 3 * n)
        const episodeReturn = Float64Array.from({ length: LANES }, (_, n) => n / 7)
        const phase = new Uint8Array(LANES).fill(Phase.ready)
        const lane = Uint32Array.from({ length: LANES }, (_, n) => 100 + n)
        const episode = Uint32Array.from({ length: LANES }, (_, n) => 200 + n)
        const lanes = { lane, episode, step, episodeReturn, phase }
        closeRow({ ...row, reward, terminated, truncated, valid }, lanes, 42, Phase.ended, from, to)
        for (let n = 0; n < LANES; n++) {
          const seen = {
            lane: row.lane[n],
            episode: row.episode[n],
            version: row.version[n],
            nextValue: row.nextValue[n],
            rowStep: row.step[n],
            rowReturn: row.episodeReturn[n],
            step: step[n],
            episodeReturn: episodeReturn[n],
            phase: phase[n],
          }
          const untouched = { step: 3 * n, episodeReturn: n / 7, phase: Phase.ready }
          if (n < from || n >= to) {
            const all = { lane: 77, episode: 77, version: 77, nextValue: 77, rowStep: 77, rowReturn: 77 }
            expect(seen).toEqual({ ...all, ...untouched })
            continue
          }
          const named = { lane: 100 + n, episode: 200 + n, version: 42, nextValue: 0 }
          if (!valid[n]) {
            expect(seen).toEqual({ ...named, rowStep: -1, rowReturn: 0, ...untouched })
            continue
          }
          const sum = n / 7 + reward[n]!
          expect(seen).toEqual({
            ...named,
            rowStep: 3 * n,
            rowReturn: Math.fround(sum),
            step: 3 * n + 1,
            episodeReturn: sum,
            phase: terminated[n] || truncated[n] ? Phase.ended : Phase.ready,
          })
        }
      }),
    )
  })
})

/** The lists that a valid row with these flags belongs to. */
function kindsOf(terminated: number, truncated: number): number[] {
  if (terminated === 1) return [Listed.ended, Listed.any]
  return truncated === 1 ? [Listed.truncated, Listed.ended, Listed.any] : [Listed.goesOn, Listed.any]
}

describe('listRows', () => {
  test('appends the valid rows that go on, were cut, are over, or all of them, with what came after them', () => {
    const cases = fc.record({
      terminated: flags(),
      truncated: flags(),
      valid: flags(),
      wanted: fc.constantFrom(...Object.values(Listed)),
      length: fc.nat(3),
      width: fc.integer({ min: 1, max: 4 }),
      lanes: range(),
    })
    fc.assert(
      fc.property(cases, ({ terminated, truncated, valid, wanted, length, width, lanes: [from, to] }) => {
        const listRow = new Uint32Array(length + LANES + 1).fill(999)
        const listObservation = new Float32Array(listRow.length * width).fill(-7)
        const observation = Float32Array.from({ length: LANES * width }, (_, i) => i)
        const end = listRows(
          listRow,
          listObservation,
          observation,
          terminated,
          truncated,
          valid,
          wanted,
          length,
          1000,
          width,
          from,
          to,
        )
        const chosen = Array.from({ length: LANES }, (_, n) => n).filter(
          (n) => n >= from && n < to && valid[n] && kindsOf(terminated[n]!, truncated[n]!).includes(wanted),
        )
        const rest = Array(listRow.length - length - chosen.length).fill(999)
        expect(end).toBe(length + chosen.length)
        expect([...listRow]).toEqual([...Array(length).fill(999), ...chosen.map((n) => 1000 + n), ...rest])
        const seen = chosen.flatMap((n) => [...observation.subarray(n * width, (n + 1) * width)])
        expect([...listObservation.subarray(length * width, end * width)]).toEqual(seen)
        expect(listObservation.subarray(0, length * width).every((x) => x === -7)).toBe(true)
        expect(listObservation.subarray(end * width).every((x) => x === -7)).toBe(true)
      }),
    )
  })
})

test('completeNextValue takes the value of this row where the lane went on, and leaves the others', () => {
  fc.assert(
    fc.property(floats(), flags(), flags(), flags(), range(), (value, terminated, truncated, valid, [from, to]) => {
      const nextValue = new Float32Array(LANES).fill(-500)
      completeNextValue(nextValue, value, terminated, truncated, valid, from, to)
      for (let n = 0; n < LANES; n++) {
        const wentOn = valid[n] && !terminated[n] && !truncated[n] && n >= from && n < to
        expect(nextValue[n]).toBe(wentOn ? value[n] : -500)
      }
    }),
  )
})

test('completeNextValue and the bootstrap list together reach every row that has a next value, each once', () => {
  fc.assert(
    fc.property(flags(), flags(), flags(), (terminated, truncated, valid) => {
      const times = new Float32Array(LANES)
      completeNextValue(times, new Float32Array(LANES).fill(1), terminated, truncated, valid, 0, LANES)
      const rows = new Uint32Array(LANES)
      const observation = new Float32Array(LANES)
      const seen = new Float32Array(LANES)
      const length = listRows(rows, seen, observation, terminated, truncated, valid, 1, 0, 0, 1, 0, LANES)
      for (const row of rows.subarray(0, length)) times[row]!++
      expect([...times]).toEqual([...valid].map((flag, n) => +(flag === 1 && terminated[n] === 0)))
    }),
  )
})

test('scatterValues writes each value of the list to its place and no other', () => {
  const places = fc.uniqueArray(fc.nat(LANES - 1), { maxLength: LANES })
  fc.assert(
    fc.property(places, floats(), fc.nat(LANES), (rows, values, limit) => {
      const length = Math.min(limit, rows.length)
      const nextValue = new Float32Array(LANES).fill(-500)
      scatterValues(nextValue, Uint32Array.from(rows), values, length)
      const expected = Array(LANES).fill(-500)
      for (let i = 0; i < length; i++) expected[rows[i]!] = values[i]
      expect([...nextValue]).toEqual(expected)
    }),
  )
})
