import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { createKernels } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import * as fc from '../support/properties.ts'
import { Bench, Numbers, strict } from './calls.ts'
import { builds, RUNS } from './laws.ts'

const plain = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
const all: KernelBuild[] = ['plain', ...builds]

interface Filters {
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  readonly minP: number
}

/** Rows of whole logits and the running sums over them. */
function sumUp(logits: Float32Array, size: number, temperature: number) {
  const numRows = logits.length / size
  const [max, sum, weighted, targetLogit] = Array.from({ length: 4 }, () => new Float32Array(numRows))
  const target = new Int32Array(numRows)
  plain.sumVocabulary(max!, sum!, weighted!, targetLogit!, logits, target, 1 / temperature, numRows, 0, size)
  return { max: max!, sum: sum!, numRows }
}

/** The candidate sets that the kernel finds, row by row. */
function candidatesOf(logits: Float32Array, size: number, { temperature, topK, topP, minP }: Filters): number[][] {
  const { max, sum, numRows } = sumUp(logits, size, temperature)
  const candidates = new Int32Array(numRows * size)
  const offset = new Int32Array(numRows + 1)
  strict(plain.selectCandidates)(candidates, offset, logits, max, sum, 1 / temperature, topK, topP, minP, numRows, size)
  return Array.from({ length: numRows }, (_, row) => [...candidates.subarray(offset[row], offset[row + 1])])
}

/** The logprob of a candidate set's first token, and the entropy within it. */
function evaluateWithin(logits: Float32Array, ids: readonly number[], temperature: number) {
  const [candidates, begin, end, target] = [ids, [0], [ids.length], [ids[0]!]].map((column) => Int32Array.from(column))
  const [max, sum, weighted, targetLogit, logprob, entropy] = Array.from({ length: 6 }, () => new Float32Array(1))
  const [inverse, size] = [1 / temperature, logits.length]
  strict(plain.restrictVocabulary)(logits, candidates!, begin!, end!, inverse, 1, 0, size)
  plain.sumVocabulary(max!, sum!, weighted!, targetLogit!, logits, target!, inverse, 1, 0, size)
  plain.evaluateVocabulary(logprob!, entropy!, max!, sum!, weighted!, targetLogit!, 1)
  return { logprob: logprob![0]!, entropy: entropy![0]! }
}

/** By sorting, filter after filter. */
function slowCandidates(logits: readonly number[], { temperature, topK, topP, minP }: Filters): number[] {
  let ids = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b)
  const weight = (id: number) => Math.exp((logits[id]! - logits[ids[0]!]!) / temperature)
  if (topK > 0) ids = ids.slice(0, topK)
  const total = ids.reduce((sum, id) => sum + weight(id), 0)
  let before = 0
  ids = ids.filter((id) => {
    const isLeft = before < topP * total
    before += weight(id)
    return isLeft || topP === 1
  })
  return ids.filter((id) => weight(id) >= minP).sort((a, b) => a - b)
}

describe('candidate sets', () => {
  test("are those that transformers' warpers leave", () => {
    const path = new URL('../golden/sampling-candidates.json', import.meta.url)
    const { logits, cases } = JSON.parse(readFileSync(path, 'utf8')) as {
      logits: number[][]
      cases: (Filters & { rows: { candidates: number[]; logprob: number; entropy: number }[] })[]
    }
    for (const { rows, ...filters } of cases) {
      const found = candidatesOf(Float32Array.from(logits.flat()), 60, filters)
      expect(found, JSON.stringify(filters)).toEqual(rows.map(({ candidates }) => candidates))
      rows.forEach(({ candidates, logprob, entropy }, row) => {
        const evaluated = evaluateWithin(Float32Array.from(logits[row]!), candidates, filters.temperature)
        expect(Math.abs(evaluated.logprob - logprob)).toBeLessThan(1e-5)
        expect(Math.abs(evaluated.entropy - entropy)).toBeLessThan(1e-5)
      })
    }
    expect(cases.length).toBe(18)
  })

  test('are those that sorting finds, whatever the logits and the filters', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const numbers = new Numbers(seed)
        const size = numbers.whole(1, 90)
        const spread = [0, 0.1, 3, 40][numbers.whole(0, 3)]!
        // Every second time there are many equals.
        const isRound = numbers.uniform() < 0.5
        const logits = numbers.floats(3 * size, -spread, spread).map((x) => (isRound ? Math.round(x) : x))
        const filters = {
          temperature: [0.5, 1, 2][numbers.whole(0, 2)]!,
          topK: numbers.uniform() < 0.5 ? 0 : numbers.whole(1, size + 3),
          topP: numbers.uniform() < 0.3 ? 1 : numbers.uniform(0.01, 1),
          minP: numbers.uniform() < 0.5 ? 0 : numbers.uniform(),
        }
        candidatesOf(logits, size, filters).forEach((candidates, row) => {
          const wanted = slowCandidates([...logits.subarray(row * size, (row + 1) * size)], filters)
          // Where equals or exponentials meet the limit to the last bit, rounding may tell them apart otherwise.
          if (isRound && filters.topP < 1) expect(Math.abs(candidates.length - wanted.length)).toBeLessThanOrEqual(1)
          else expect(candidates).toEqual(wanted)
        })
      }),
      { numRuns: 4 * RUNS },
    )
  })

  test('of equal logits have the lower ids', () => {
    const logits = Float32Array.of(1, 2, 2, 2, 1, 2, 0)
    const filters = { temperature: 1, topK: 0, topP: 1, minP: 0 }
    expect(candidatesOf(logits, 7, { ...filters, topK: 2 })).toEqual([[1, 2]])
    expect(candidatesOf(logits, 7, { ...filters, topK: 5 })).toEqual([[0, 1, 2, 3, 5]])
    expect(candidatesOf(logits, 7, { ...filters, topP: 0.4 })).toEqual([[1, 2]])
  })

  test('of a large, even or peaked vocabulary are found without sorting it', () => {
    const size = 50_000
    for (const logits of [
      new Float32Array(size),
      new Numbers(4).floats(size, -9, 9),
      new Numbers(4).floats(size).sort(),
    ]) {
      const filters = { temperature: 1, topK: 0, topP: 0.5, minP: 0 }
      const [nucleus] = candidatesOf(logits, size, filters)
      expect(nucleus!.length).toBe(slowCandidates([...logits], filters).length)
      expect(candidatesOf(logits, size, { ...filters, topP: 1, topK: 40 })[0]).toEqual(
        slowCandidates([...logits], { ...filters, topP: 1, topK: 40 }),
      )
    }
  })

  test.each(all)('leave probability 0, and no gradient, to every other token, in whatever chunks (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const numbers = new Numbers(seed)
        const size = 64 * 5 - numbers.whole(0, 60)
        const inverse = 1 / [0.5, 1, 1.3, 3][numbers.whole(0, 3)]!
        const logits = numbers.floats(2 * size, -5, 5)
        const picked = [...new Set(numbers.wholes(numbers.whole(1, 12), 0, size - 1))].sort((a, b) => a - b)
        const candidates = Int32Array.from([7, ...picked])
        const target = Int32Array.of(picked[numbers.whole(0, picked.length - 1)]!, 3)
        // The second row has no candidate set of its own.
        const [begin, end] = [Int32Array.of(1, 0), Int32Array.of(candidates.length, 0)]
        const each = () => new Float32Array(2)
        let state = [each(), each(), each(), each()]
        const chunk = 64 * numbers.whole(1, 5)
        const parts: Float32Array[] = []
        for (let first = 0; first < size; first += chunk) {
          const count = Math.min(chunk, size - first)
          const part = Float32Array.from(
            { length: 2 * count },
            (_, i) => logits[Math.floor(i / count) * size + first + (i % count)]!,
          )
          const [restricted] = bench.call('restrictVocabulary', [
            part,
            candidates,
            begin,
            end,
            inverse,
            2,
            first,
            count,
          ]).columns
          parts.push(restricted as Float32Array)
          const call = bench.call('sumVocabulary', [...state, restricted!, target, inverse, 2, first, count])
          state = call.columns.slice(0, 4) as Float32Array<ArrayBuffer>[]
        }
        const [logprob, entropy] = bench.call('evaluateVocabulary', [each(), each(), ...state, 2]).columns
        for (const [row, ids] of [picked, Array.from({ length: size }, (_, id) => id)].entries()) {
          const z = ids.map((id) => logits[row * size + id]! * inverse)
          const highest = Math.max(...z)
          const total = Math.log(z.reduce((sum, x) => sum + Math.exp(x - highest), 0)) + highest
          expect(Math.abs(logprob![row]! - (logits[row * size + target[row]!]! * inverse - total))).toBeLessThan(2e-5)
          expect(
            Math.abs(entropy![row]! + z.reduce((sum, x) => sum + Math.exp(x - total) * (x - total), 0)),
          ).toBeLessThan(2e-5)
        }
        const [max, sum] = state as [Float32Array, Float32Array]
        parts.forEach((part, index) => {
          const [first, count] = [index * chunk, part.length / 2]
          const ones = new Float32Array(2).fill(1)
          const given = [part, ones, ones, entropy!, max, sum, target, inverse, 2, first, count]
          const gradient = bench.call('vocabularyBackward', given).columns[0]!
          const others = [...gradient].filter((_, i) => i < count && !picked.includes(first + i))
          expect(others.every((each) => each === 0)).toBe(true)
          expect(gradient.every(Number.isFinite)).toBe(true)
        })
      }),
      { numRuns: RUNS },
    )
  })
})
