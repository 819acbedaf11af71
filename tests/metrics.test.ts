import { describe, expect, test } from 'vitest'
import { group, type Metric, MetricTotals } from '../src/base/metrics.ts'
import type { LearnerMetrics } from '../src/entries/algorithms.ts'
import { cartPole, createTrainer, createWorld, defineAlgorithm, InputError, mlp, ppo } from '../src/index.ts'
import * as fc from './support/properties.ts'

const metric = (reduction: Metric['reduction'], unit: string | null = null): Metric => ({
  unit,
  description: 'of a row',
  reduction,
})

describe('the totals of an update', () => {
  const declared = { loss: metric('rowMean', 'nats'), norm: metric('minibatchMean'), rate: metric('last') }

  test('are the mean over rows, the mean over minibatches and the last value', () => {
    const minibatches = fc.array(
      fc.record({
        rows: fc.array(fc.double({ min: -9, max: 9, noNaN: true }), { minLength: 1, maxLength: 5 }),
        norm: fc.double({ min: 0, max: 9, noNaN: true }),
        rate: fc.double({ min: 0, max: 1, noNaN: true }),
      }),
      { minLength: 1, maxLength: 6 },
    )
    const totals = new MetricTotals(declared)
    fc.assert(
      fc.property(minibatches, (given) => {
        totals.clear()
        for (const { rows, norm, rate } of given) {
          totals.add('rate', rate)
          totals.add('norm', norm)
          totals.add(
            'loss',
            rows.reduce((sum, row) => sum + row, 0),
            rows.length,
          )
        }
        const mean = (of: readonly number[]) => of.reduce((sum, each) => sum + each, 0) / of.length
        const { loss, norm, rate } = totals.values()
        expect(loss).toBeCloseTo(mean(given.flatMap(({ rows }) => rows)), 9)
        expect(norm).toBeCloseTo(mean(given.map((each) => each.norm)), 9)
        expect(rate).toBe(given.at(-1)!.rate)
      }),
      { endOnFailure: true },
    )
  })

  test('are NaN where nothing came in, and refuse what is not declared', () => {
    const totals = new MetricTotals(declared)
    totals.add('norm', 2)
    expect(totals.values()).toEqual({ loss: Number.NaN, norm: 2, rate: Number.NaN })
    expect(() => totals.add('nrom' as never, 2)).toThrow(
      'metric: got "nrom" (did you mean "norm"?), expected one of loss, norm, rate',
    )
  })
})

describe('metrics that an algorithm declares', () => {
  const declare = (metrics: unknown) => () =>
    defineAlgorithm({ id: 'mine', settings: {}, metrics: metrics as typeof ppo.metrics, make: () => ppo() })

  test.each([
    [undefined, 'without metrics, expected an object with id, settings, metrics, make'],
    [{ loss: null }, 'mine metrics loss: got null, expected { unit, description, reduction }'],
    [{ loss: { ...metric('last'), unit: 3 } }, 'mine metrics loss: got {"unit":3,'],
    [{ loss: { ...metric('last'), description: '' } }, 'mine metrics loss: got {'],
    [
      { loss: metric('maen' as never) },
      'mine metrics loss.reduction: got "maen", expected one of rowMean, minibatchMean, last',
    ],
    [{ loss: { ...metric('last'), sum: true } }, 'mine metrics loss: got "sum", expected one of unit, description'],
  ])('are refused where they are none: %j', (metrics, message) => {
    expect(declare(metrics)).toThrow(InputError)
    expect(declare(metrics)).toThrow(message)
  })

  async function trainer(metrics: Record<string, Metric>, told: () => unknown) {
    const mine = defineAlgorithm({
      id: 'mine',
      settings: {},
      metrics,
      make: () => ({
        numSteps: 4,
        gamma: null,
        plan: () => ({}),
        bind: () => ({
          // biome-ignore lint/correctness/useYield: it has nobody to wait for.
          *learn() {
            return told() as LearnerMetrics
          },
        }),
      }),
    })
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 2 })
    return createTrainer(world, mine())
  }

  async function firstUpdate(metrics: Record<string, Metric>, told: () => unknown) {
    for await (const update of (await trainer(metrics, told)).updates({ totalSteps: 8 })) return update
    throw new Error('no update')
  }

  test('stand among the figures of an update, and nothing else does', async () => {
    const update = await firstUpdate({ loss: metric('last'), odds: metric('last') }, () => ({
      odds: Number.NaN,
      loss: 3,
    }))
    expect(update).toMatchObject({ loss: 3, odds: Number.NaN, update: 1, steps: 8 })
    expect(Object.values(update.cohorts)).toEqual([expect.objectContaining({ loss: 3, odds: Number.NaN })])
    expect(Object.keys(update)).not.toContain('policyLoss')
  })

  test.each([
    [{}, 'mine metrics loss: got undefined, expected a number'],
    [{ loss: '3' }, 'mine metrics loss: got "3", expected a number'],
    [{ loss: 3, lost: 4 }, 'mine metrics: got "lost" (did you mean "loss"?), expected one of loss'],
    [undefined, 'mine metrics: got undefined, expected an object with a number for each metric'],
  ])('must be told, and no others: %j', async (told, message) => {
    const updating = firstUpdate({ loss: metric('last') }, () => told)
    await expect(updating).rejects.toThrow(InputError)
    await expect(updating).rejects.toThrow(message)
  })

  test.each(['steps', 'episodeReturn', 'phaseSeconds', 'cohorts'])('may not be called %s', async (name) => {
    await expect(trainer({ [name]: metric('last') }, () => ({}))).rejects.toThrow(
      `mine metrics: got ${name}, expected names that the trainer has not taken (`,
    )
  })

  test('of several learners are NaN at the top, each under its name', async () => {
    const other = defineAlgorithm({
      id: 'other',
      settings: {},
      metrics: { odds: metric('last') },
      make: () => ({
        numSteps: 4,
        gamma: null,
        plan: () => ({}),
        bind: () => ({
          // biome-ignore lint/correctness/useYield: it has nobody to wait for.
          *learn() {
            return { odds: 5 }
          },
        }),
      }),
    })
    const cohort = { environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 2 }
    const world = await createWorld({
      cohorts: [
        { ...cohort, name: 'a' },
        { ...cohort, name: 'b' },
      ],
    })
    const both = createTrainer(world, { a: ppo({ numSteps: 4, numMinibatches: 1 }), b: other() })
    for await (const update of both.updates({ totalSteps: 16 })) {
      expect(update).toMatchObject({ odds: Number.NaN, policyLoss: Number.NaN, episodes: Number.NaN })
      expect(update.cohorts.b).toMatchObject({ odds: 5 })
      expect(Object.keys(update.cohorts.b!)).not.toContain('policyLoss')
    }
  })
})

test('whole numbers are told with commas between their thousands', () => {
  const told = [0, 999, 1000, 1234567, 1e12].map(group)
  expect(told).toEqual(['0', '999', '1,000', '1,234,567', '1,000,000,000,000'])
})
