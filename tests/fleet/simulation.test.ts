import { describe, expect, it } from 'vitest'
import { drawSimulations } from '../../src/fleet/picture.ts'
import { type SimulationSettings, simulate, simulationSettings } from '../../src/fleet/simulation.ts'
import { parseSvg } from '../support/svg.ts'

/** Answers of one length on engines with a place for each. */
const even: Partial<SimulationSettings> = {
  lengthSigma: 0,
  lengthMedian: 100,
  tokensPerSecond: 50,
  engineTokensPerSecond: 1e9,
  slots: 64,
  groupsPerBatch: 8,
  groupSize: 4,
  learnerTokensPerSecond: 3200,
  updateSeconds: 0.5,
  deliverySeconds: 0.25,
  updates: 20,
}

describe('A simulated training', () => {
  it('takes sampling, learning and delivery one after another where it is synchronous', async () => {
    const { seconds, trainedTokens, sampledTokens, learnerIdle, enginesIdle, staleness } = await simulate(even)
    // 100 tokens at 50 a second; 3,200 tokens at 3,200 a second and half a second; a quarter of a second.
    expect(seconds).toBeCloseTo(20 * (2 + 1.5 + 0.25), 6)
    expect(trainedTokens).toBe(20 * 3200)
    expect(sampledTokens).toBeCloseTo(20 * 3200, 3)
    expect(learnerIdle).toBeCloseTo(2 / 3.75, 6)
    expect(enginesIdle).toBeCloseTo(1 - (2 / 3.75) * 0.5, 6) // 32 of 64 places, for 2 of 3.75 seconds.
    expect(staleness).toEqual({ mean: 0, max: 0, counts: [160] })
  })

  it('takes measured lengths of answers, each as often as it was measured', async () => {
    const { lengthMedian: _, lengthSigma: __, ...rest } = even
    const all = await simulate(rest, [100])
    expect(all).toEqual(await simulate(even))
    const { trainedTokens } = await simulate({ ...rest, updates: 50 }, [50, 50, 150, 150])
    expect(trainedTokens / (50 * 32)).toBeGreaterThan(95)
    expect(trainedTokens / (50 * 32)).toBeLessThan(105)
    for (const [given, lengths, message] of [
      [even, [100], 'lengthMedian: got 100, expected no such setting with measured lengths'],
      [{ lengthSigma: 0 }, [100], 'lengthSigma: got 0'],
      [{ lengthMax: 9 }, [100], 'lengthMax: got 9'],
      [rest, [], 'lengths: got none, expected tokens of at least one answer'],
      [rest, [100, 0], 'lengths: got 0, expected whole numbers ≥ 1'],
      [rest, [1.5], 'lengths: got 1.5, expected whole numbers ≥ 1'],
    ] as const) {
      await expect((async () => simulate(given, lengths))()).rejects.toThrow(message)
    }
  })

  it('takes measured speeds of engines over the number of answers', async () => {
    const { tokensPerSecond: _, engineTokensPerSecond: __, ...rest } = even
    const speeds = [
      { answers: 8, tokensPerSecond: 400 },
      { answers: 24, tokensPerSecond: 800 },
    ]
    const seconds = async (given: Partial<SimulationSettings>) =>
      (await simulate({ ...rest, updates: 1, ...given }, null, speeds)).seconds - 1.75
    // 32 answers of 100 tokens: beyond the last number the speed stays.
    expect(await seconds({})).toBeCloseTo(3200 / 800, 6)
    // 16 answers each, halfway between the numbers.
    expect(await seconds({ engines: 2 })).toBeCloseTo(1600 / 600, 6)
    // 4 answers each: below the first number each answer is as fast as there.
    expect(await seconds({ engines: 8 })).toBeCloseTo(400 / 200, 6)
    for (const [given, wrong, message] of [
      [{ tokensPerSecond: 1 }, speeds, 'tokensPerSecond: got 1, expected no such setting with measured speeds'],
      [{}, [], 'speeds: got none'],
      [{}, speeds.toReversed(), 'speeds[1].answers: got 8, expected a number above 24'],
      [{}, [{ answers: 1, tokensPerSecond: 0 }], 'speeds[0].tokensPerSecond: got 0, expected a number above 0'],
    ] as const) {
      await expect((async () => simulate({ ...rest, ...given }, null, wrong))()).rejects.toThrow(message)
    }
  })

  it('is as fast as the slower side where sampling runs ahead', async () => {
    const fast = await simulate({ ...even, maxStaleness: 2 })
    expect(fast.seconds).toBeCloseTo(2 + 20 * 1.75, 6) // The learner never waits but for its first batch.
    const slow = await simulate({ ...even, maxStaleness: 2, slots: 32, tokensPerSecond: 25 })
    // 32 places of 4 seconds a batch; the last update is learned from when the engines are already done.
    expect(slow.seconds).toBeCloseTo(20 * 4 + 1.75, 6)
    expect(slow.staleness.max).toBeLessThanOrEqual(2)
    const { counts, mean, max } = slow.staleness
    expect([max > 0, counts.length, counts.reduce((sum, count) => sum + count, 0)]).toEqual([true, max + 1, 160])
    expect(counts.reduce((sum, count, age) => sum + count * age, 0) / 160).toBeCloseTo(mean, 9)
  })

  it('shares an engine’s tokens among its answers, and lets answers wait for a place', async () => {
    const shared = await simulate({ ...even, engineTokensPerSecond: 800 }) // 25 a second for each of 32.
    expect(shared.seconds).toBeCloseTo(20 * (4 + 1.75), 6)
    const queued = await simulate({ ...even, slots: 16 })
    expect(queued.seconds).toBeCloseTo(20 * (2 + 2 + 1.75), 6)
    const two = await simulate({ ...even, slots: 16, engines: 2 })
    expect(two.seconds).toBeCloseTo(20 * (2 + 1.75), 6)
  })

  it('waits for the longest answer of a batch where it is synchronous, and not where it is not', async () => {
    const long = { ...even, lengthSigma: 1, lengthMax: 1000, groupSize: 1, groupsPerBatch: 32, slots: 32, updates: 40 }
    const synchronous = await simulate({ ...long, updateSeconds: 0, deliverySeconds: 0, learnerTokensPerSecond: 1e9 })
    const ahead = await simulate({
      ...long,
      updateSeconds: 0,
      deliverySeconds: 0,
      learnerTokensPerSecond: 1e9,
      maxStaleness: 4,
    })
    expect(synchronous.enginesIdle).toBeGreaterThan(0.5)
    expect(ahead.trainedTokensPerSecond / synchronous.trainedTokensPerSecond).toBeGreaterThan(2)
    expect(ahead.trainedTokens).toBe(synchronous.trainedTokens) // By number: the same groups.
  })

  it('refuses each setting beyond its bounds, by name', async () => {
    const beyond: Record<keyof SimulationSettings, unknown[]> = {
      ...{ engines: [0, 1.5], slots: [0, 1.5], tokensPerSecond: [0], engineTokensPerSecond: [0] },
      ...{
        lengthMedian: [0.9],
        lengthSigma: [-0.1],
        lengthMax: [0, 1.5],
        groupSize: [0, 1.5],
        groupsPerBatch: [0, 1.5],
      },
      ...{ maxStaleness: [-1, 0.5], overSampling: [0.9], order: ['chance'], dropFraction: [-0.1, 1] },
      ...{
        learnerTokensPerSecond: [0],
        updateSeconds: [-0.1],
        deliverySeconds: [-0.1],
        updates: [0, 1.5],
        seed: [-1, 0.5],
      },
    }
    expect(Object.keys(beyond).toSorted()).toEqual(Object.keys(simulationSettings).toSorted())
    for (const [name, values] of Object.entries(beyond)) {
      for (const value of [...values, null]) {
        await expect((async () => simulate({ [name]: value } as never))(), name).rejects.toThrow(`simulation.${name}`)
      }
    }
  })

  it('counts what a filter drops, and samples more for it', async () => {
    const dropped = await simulate({ ...even, dropFraction: 0.5, maxStaleness: 1 })
    const count = dropped.drops.filter!
    expect(count / (count + 160)).toBeGreaterThan(0.4)
    expect(count / (count + 160)).toBeLessThan(0.6)
    expect(dropped.sampledTokens).toBeGreaterThanOrEqual((160 + count) * 400 - 1)
  })

  it('is the same for a seed, and another for another', async () => {
    const settings = { ...even, lengthSigma: 1, maxStaleness: 2 }
    const first = await simulate({ ...settings, seed: 3 })
    expect(await simulate({ ...settings, seed: 3 })).toEqual(first)
    expect((await simulate({ ...settings, seed: 4 })).seconds).not.toBe(first.seconds)
  })
})

describe('every setting of a simulation', () => {
  const base: Partial<SimulationSettings> = {
    ...{ lengthSigma: 1, lengthMax: 600, slots: 8, groupSize: 2, groupsPerBatch: 4, updates: 6, engines: 2 },
    ...{ maxStaleness: 1, dropFraction: 0.2, overSampling: 1.5, engineTokensPerSecond: 300, lengthMedian: 100 },
  }
  const changes: SimulationSettings = {
    ...{ engines: 1, slots: 2, tokensPerSecond: 20, engineTokensPerSecond: 100, lengthMedian: 50, lengthSigma: 0.5 },
    ...{ lengthMax: 200, groupSize: 3, groupsPerBatch: 3, maxStaleness: 3, overSampling: 1, order: 'arrival' },
    ...{ dropFraction: 0, learnerTokensPerSecond: 500, updateSeconds: 3, deliverySeconds: 4, updates: 7, seed: 5 },
  }

  it.each(Object.keys(simulationSettings) as (keyof SimulationSettings)[])('acts: %s', async (name) => {
    const changed = await simulate({ ...base, [name]: changes[name] })
    expect(changed.seconds).not.toBe((await simulate(base)).seconds)
  })
})

describe('the picture of simulations', () => {
  it('has a curve for each maxStaleness, over the engines', async () => {
    const simulation = await simulate({ ...even, updates: 1 })
    const rows = [0, 3].flatMap((maxStaleness) => [1, 2].map((engines) => ({ engines, maxStaleness, simulation })))
    const svg = parseSvg(drawSimulations(rows))
    expect(svg.querySelectorAll('[aria-label=line] path')).toHaveLength(2)
    for (const words of ['maxStaleness 0', 'maxStaleness 3', 'engines', 'trained tokens/s']) {
      expect(svg.textContent).toContain(words)
    }
  })
})
