import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { ChangedRows, TurnChanges } from '../../src/kernels/transformer/changes.ts'
import { changeVocabulary } from '../../src/kernels/transformer/changes.ts'
import { Numbers } from './calls.ts'

interface Case {
  repetition: number
  frequency: number
  presence: number
  bias: Record<string, number>
  prompt: number
  ids: number[]
  logits: number[]
  changed: number[]
  weights: number[]
  gradient: number[]
}

const path = new URL('../golden/logit-changes.json', import.meta.url)
const { cases } = JSON.parse(readFileSync(path, 'utf8')) as { cases: Case[] }

function turnOf({
  repetition,
  frequency,
  presence,
  bias,
}: Pick<Case, 'repetition' | 'frequency' | 'presence' | 'bias'>): TurnChanges {
  const biases = Object.entries(bias)
  return {
    ...{ repetition: Float32Array.of(repetition), frequency: Float32Array.of(frequency) },
    ...{ presence: Float32Array.of(presence), biasBegin: Int32Array.of(0), biasEnd: Int32Array.of(biases.length) },
    biasId: Int32Array.from(biases, ([id]) => Number(id)),
    bias: Float32Array.from(biases, ([, value]) => value),
  }
}

function rowsOf(rows: readonly (readonly [first: number, answer: number, end: number])[], size: number): ChangedRows {
  const each = (k: number) => Int32Array.from(rows, (row) => row[k]!)
  return {
    ...{ change: new Int32Array(rows.length), first: each(0), answer: each(1), end: each(2) },
    ...{ times: new Int32Array(size), seen: new Int32Array(size) },
  }
}

/** The changed logits of one row, and the gradient by the logits before, in chunks of this size. */
function changed(given: Case, chunk: number) {
  const { logits, weights, ids, prompt } = given
  const out: number[] = []
  const gradient: number[] = []
  for (let first = 0; first < logits.length; first += chunk) {
    const part = Float32Array.from(logits.slice(first, first + chunk))
    const rows = rowsOf([[0, prompt, ids.length]], part.length)
    const wasAbove = new Uint8Array(part.length)
    changeVocabulary(part, wasAbove, ids, rows, turnOf(given), 1, first, part.length, false)
    out.push(...part)
    const slope = Float32Array.from(weights.slice(first, first + chunk))
    changeVocabulary(slope, wasAbove, ids, rows, turnOf(given), 1, first, part.length, true)
    gradient.push(...slope)
    expect(rows.times.every((count) => count === 0)).toBe(true)
  }
  return { out, gradient }
}

describe('changed logits', () => {
  test.each(cases.map((each, i) => [i, each] as const))(
    "are those of transformers' processors and torch, in one chunk and in several: case %i",
    (_, given) => {
      for (const chunk of [given.logits.length, 16, 7]) {
        const { out, gradient } = changed(given, chunk)
        expect(out).toEqual(given.changed.map(Math.fround))
        expect(gradient.length).toBe(given.gradient.length)
        gradient.forEach((value, i) => {
          expect(Math.abs(value - given.gradient[i]!)).toBeLessThan(1e-6)
        })
      }
    },
  )

  test('are, row after row of sequences, what each row alone is, also across turns and rows without changes', () => {
    const numbers = new Numbers(3)
    const size = 24
    const ids = numbers.wholes(60, 0, size - 1)
    const turn = turnOf({ repetition: 1.4, frequency: 0.3, presence: 0.2, bias: { 3: 1 } })
    // Two sequences; the first has two turns and a stretch without.
    const places = [4, 5, 6, 7, 11, 12, 13, 30, 31, 33].map((end) =>
      end < 20 ? ([0, end < 10 ? 4 : 11, end] as const) : ([20, 30, end] as const),
    )
    const logits = numbers.floats(places.length * size, -3, 3)
    const together = logits.slice()
    const rows = rowsOf(places, size)
    rows.change[2] = -1
    changeVocabulary(together, new Uint8Array(0), ids, rows, turn, places.length, 0, size, false)
    for (const [row, place] of places.entries()) {
      const alone = logits.slice(row * size, (row + 1) * size)
      if (row !== 2) changeVocabulary(alone, new Uint8Array(0), ids, rowsOf([place], size), turn, 1, 0, size, false)
      expect(together.slice(row * size, (row + 1) * size)).toEqual(alone)
    }
  })
})
