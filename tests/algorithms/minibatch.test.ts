import { describe, expect, test } from 'vitest'
import { cutOf, cutPlan, listBlock, listLearned, listUnits } from '../../src/algorithms/minibatch.ts'
import { takeArena } from '../../src/components/arena.ts'
import type { RolloutColumns } from '../../src/components/rollout.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import type { PolicyModel } from '../../src/policies/policy.ts'
import * as fc from '../support/properties.ts'

const model = (part: Partial<PolicyModel>) => ({ numParameters: 1, parameters: [], ...part }) as unknown as PolicyModel

describe('cutOf', () => {
  test('counts units, blocks and rows, of single rows and of sequences', () => {
    const shape = { numSteps: 12, numLanes: 100, numMinibatches: 3 }
    expect(cutOf(shape, model({}))).toMatchObject({
      numUnits: 1200,
      minibatchUnits: 400,
      unitsPerBlock: 256,
      seenRows: 256,
      blockRows: 256,
      minibatchRows: 400,
      numBlocks: 2,
    })
    expect(cutOf(shape, model({ sequence: { length: 4, burnIn: 2 }, blockRows: 100 }))).toMatchObject({
      numUnits: 300,
      minibatchUnits: 100,
      unitsPerBlock: 16,
      seenRows: 96,
      blockRows: 64,
      minibatchRows: 400,
      numBlocks: 7,
    })
  })

  test('plans lists of as many sequences as a block has, or a minibatch where that has fewer', () => {
    const rowsOf = (numMinibatches: number, length = 4) => {
      const part = length === 0 ? {} : { sequence: { length, burnIn: 2 }, blockRows: 100 }
      const plan = cutPlan(cutOf({ numSteps: 12, numLanes: 100, numMinibatches }, model(part)))
      return Object.entries(plan).map(([name, { rows }]) => `${name} ${rows}`)
    }
    // 16 sequences a block, of 6 rows that are seen.
    const block = ['seen 96', 'continues 96', 'evaluated 64', 'learned 64', 'places 64']
    expect(rowsOf(3)).toEqual(['minibatch 400', ...block])
    const three = ['seen 18', 'continues 18', 'evaluated 12', 'learned 12', 'places 12']
    expect(rowsOf(100)).toEqual(['minibatch 12', ...three])
    expect(rowsOf(3, 0)).toEqual(
      ['minibatch', 'seen', 'continues', 'evaluated', 'learned', 'places'].map((name) => `${name} 0`),
    )
  })

  test.each([
    [
      { numSteps: 12, numLanes: 2, numMinibatches: 25 },
      null,
      "numMinibatches: got 25, expected at most the rollout's 24 rows",
    ],
    [
      { numSteps: 12, numLanes: 2, numMinibatches: 7 },
      { length: 4, burnIn: 0 },
      "numMinibatches: got 7, expected at most the rollout's 6 sequences",
    ],
    [
      { numSteps: 10, numLanes: 2, numMinibatches: 1 },
      { length: 4, burnIn: 0 },
      "numSteps: got 10, expected a multiple of the policy's sequence length, 4",
    ],
    [
      { numSteps: 8, numLanes: 2, numMinibatches: 1 },
      { length: 4, burnIn: 5 },
      "burnIn + sequenceLength: got 5 + 4, expected at most the 8 rows of a lane's rollout",
    ],
  ])('refuses %j with sequences %j', (shape, sequence, message) => {
    expect(() => cutOf(shape, model({ sequence }))).toThrow(message)
  })
})

/** A rollout whose rows are dead or begin an episode at random. */
const cases = fc.record({
  numLanes: fc.integer({ min: 1, max: 5 }),
  stretches: fc.integer({ min: 1, max: 4 }),
  length: fc.integer({ min: 1, max: 5 }),
  burnIn: fc.integer({ min: 0, max: 4 }),
  seed: fc.infiniteStream(fc.integer({ min: 0, max: 9 })),
})

test('sequences are stretches of one lane, and go on from the row before where the episode does', () => {
  fc.assert(
    fc.property(cases, ({ numLanes, stretches, length, burnIn: asked, seed }) => {
      const numSteps = stretches * length
      const burnIn = Math.min(asked, numSteps - length)
      const sequence = { length, burnIn }
      const numRows = numSteps * numLanes
      const dice = Array.from({ length: numRows }, () => seed.next().value as number)
      const rollout = {
        valid: Uint8Array.from(dice, (x) => (x === 0 ? 0 : 1)),
        step: Int32Array.from(dice, (x) => (x <= 1 ? 0 : x)),
      } as unknown as RolloutColumns
      const cut = cutOf({ numSteps, numLanes, numMinibatches: 1 }, model({ sequence }))
      const { columns } = takeArena({ ...cutPlan(cut) })
      const order = new Uint32Array(cut.numUnits)
      const kernels = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
      const listed = listUnits(order, cut, numLanes, rollout, kernels)
      // Every sequence that has a valid row, and no other.
      const isLearned = (unit: number) =>
        Array.from(
          { length },
          (_, k) => (Math.floor(unit / numLanes) * length + k) * numLanes + (unit % numLanes),
        ).some((row) => rollout.valid[row] === 1)
      const units = Array.from({ length: stretches * numLanes }, (_, unit) => unit)
      expect([...order.subarray(0, listed)]).toEqual(units.filter(isLearned))
      order.set(units.reverse())
      const learned = listLearned(columns.minibatch, order, 0, order.length, sequence, numLanes, rollout)
      // Every valid row once, and no other.
      const valid = Array.from({ length: numRows }, (_, row) => row).filter((row) => rollout.valid[row] === 1)
      expect([...columns.minibatch.subarray(0, learned)].sort((a, b) => a - b)).toEqual(valid)

      const count = Math.min(cut.unitsPerBlock, order.length)
      const numLearned = listBlock(columns, order, 0, count, sequence, numLanes, rollout)
      for (let i = 0; i < count; i++) {
        const [stretch, lane] = [Math.floor(order[i]! / numLanes), order[i]! % numLanes]
        for (let k = 0; k < burnIn + length; k++) {
          const t = stretch * length - burnIn + k
          const place = i * (burnIn + length) + k
          expect(columns.seen[place]).toBe(Math.max(0, t) * numLanes + lane)
          const goesOn = k > 0 && t > 0 && rollout.step[t * numLanes + lane] !== 0
          expect(columns.continues[place]).toBe(goesOn ? 1 : 0)
          if (k >= burnIn) expect(columns.evaluated[i * length + k - burnIn]).toBe(t * numLanes + lane)
        }
      }
      const places = [...columns.places.subarray(0, numLearned)]
      const evaluated = [...columns.evaluated.subarray(0, count * length)]
      expect(places).toEqual(evaluated.flatMap((row, place) => (rollout.valid[row] === 1 ? [place] : [])))
      expect([...columns.learned.subarray(0, numLearned)]).toEqual(places.map((place) => evaluated[place]))
    }),
    { numRuns: 300 },
  )
})
