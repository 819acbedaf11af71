import { beforeAll, describe, expect, test } from 'vitest'
import { box, discrete } from '../../src/base/space.ts'
import { cartPole, defineEnvironment, evaluate, InputError, mlp, pendulum, recordEpisodes } from '../../src/index.ts'
import type { Table } from '../../src/tables/table.ts'
import { readCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { counter } from '../support/counter.ts'
import { lanesOf as columnsOf, resetAll } from '../support/lanes.ts'
import { advance, smallTrainer } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

const environment = cartPole({ maxEpisodeSteps: 60 })
const policy = mlp({ hidden: [8] })
let weights: Float32Array

/** Weights after a little training, whose actions depend on what they see. */
beforeAll(async () => {
  const folder = await temporaryFolder()
  const trainer = await smallTrainer({ maxEpisodeSteps: 60 })
  await advance(trainer, 10)
  await trainer.save(folder)
  const { tensors } = await readCheckpoint(folder)
  const { numParameters, parameters } = policy.build(environment.observationSpace, environment.actionSpace)
  weights = new Float32Array(numParameters)
  const bytes = new Uint8Array(weights.buffer)
  for (const { name, offset } of parameters) bytes.set(tensors.get(`mlp.weights.${name}`)!.bytes, offset * 4)
})

/** The rows of a table as arrays of numbers, by field. */
function rowsOf(table: Table, keep: (row: number) => boolean = () => true): Record<string, number[][]> {
  const rows = Array.from({ length: table.numRows }, (_, row) => row).filter(keep)
  return Object.fromEntries(
    table.fields.map(({ name, column, width, rows: held }) => {
      const valueAt = (row: number) => {
        const place = held === undefined ? row : held.indexOf(row)
        return place < 0 ? [] : [...column.subarray(place * width, (place + 1) * width)]
      }
      return [name, rows.map(valueAt)]
    }),
  )
}

function columnOf(table: Table, name: string) {
  return table.fields.find((field) => field.name === name)!.column
}

/** Rows of each lane, in the order of the table. */
function lanesOf(table: Table): number[][] {
  const lanes: number[][] = []
  for (const [row, lane] of [...columnOf(table, 'lane')].entries()) {
    lanes[lane] ??= []
    lanes[lane].push(row)
  }
  return lanes
}

describe('recordEpisodes', () => {
  test('gives one whole first episode of each lane, lane by lane and step by step', async () => {
    const table = await recordEpisodes({ environment, policy, weights, episodes: 12, seed: 5 })
    const lanes = lanesOf(table)
    expect(lanes.map((rows) => rows.length > 0)).toEqual(Array(12).fill(true))
    expect(lanes.flat()).toEqual(Array.from({ length: table.numRows }, (_, row) => row))
    const [step, episode, terminated, truncated] = ['step', 'episode', 'terminated', 'truncated'].map((name) =>
      columnOf(table, name),
    )
    for (const rows of lanes) {
      expect(rows.map((row) => step![row])).toEqual(rows.map((_, i) => i))
      expect(rows.every((row) => episode![row] === 0)).toBe(true)
      const ends = rows.map((row) => terminated![row]! + truncated![row]!)
      expect(ends).toEqual(rows.map((_, i) => (i === rows.length - 1 ? 1 : 0)))
    }
  })

  test('has every observation of an episode, the last one too, and the action that was executed', async () => {
    const swing = pendulum({ maxEpisodeSteps: 7 })
    const { numParameters } = policy.build(swing.observationSpace, swing.actionSpace)
    const random = Float32Array.from({ length: numParameters }, (_, i) => Math.sin(3 * i))
    const options = { environment: swing, policy, weights: random, episodes: 5, seed: 5, kernels: 'plain' } as const
    const rows = rowsOf(await recordEpisodes(options))
    const chosen = rows.action!.flat()
    const applied = rows.appliedAction!.flat()
    expect(chosen.some((torque) => Math.abs(torque) > 2)).toBe(true)
    expect(applied).toEqual(chosen.map((torque) => Math.max(-2, Math.min(2, torque))))
    // The environment itself, given what was executed, goes through the same episodes, one lane each.
    const lanes = columnsOf(swing, 5, 5)
    resetAll(swing, lanes)
    for (let t = 0; t < 7; t++) {
      for (let n = 0; n < 5; n++) {
        const row = 7 * n + t
        expect(rows.observation![row]).toEqual([...lanes.observation.subarray(3 * n, 3 * n + 3)])
        lanes.action[n] = applied[row]!
      }
      swing.step(lanes, 0, 5)
      const seen = Array.from({ length: 5 }, (_, n) => [...lanes.observation.subarray(3 * n, 3 * n + 3)])
      expect(seen.map((_, n) => rows.finalObservation![7 * n + t])).toEqual(t === 6 ? seen : seen.map(() => []))
    }
  })

  test('says by which policy it was, with which weights, and where they were read', async () => {
    const options = { environment, policy, weights, episodes: 2, version: 17 }
    const { metadata } = await recordEpisodes({ ...options, checkpoint: 'runs/a/checkpoints/17' })
    expect(metadata).toMatchObject({ update: '17', checkpoint: 'runs/a/checkpoints/17' })
    expect(JSON.parse(metadata.policy!)).toMatchObject({ id: 'mlp', parameters: { hidden: [8], activation: 'tanh' } })
    expect((await recordEpisodes(options)).metadata.checkpoint).toBe('null')
  })

  test('counts rewards into the return of the episode, and every row is valid', async () => {
    const table = await recordEpisodes({ environment, policy, weights, episodes: 6, seed: 5 })
    const [reward, sum] = [columnOf(table, 'reward'), columnOf(table, 'episodeReturn')]
    for (const rows of lanesOf(table)) {
      let total = 0
      for (const row of rows) {
        total += reward[row]!
        expect(sum[row]).toBe(total)
      }
    }
    expect([...columnOf(table, 'valid')].every((flag) => flag === 1)).toBe(true)
  })

  test('leaves out what belongs to an algorithm, and numbers the weights', async () => {
    const table = await recordEpisodes({ environment, policy, weights, episodes: 2, version: 17 })
    const names = table.fields.map(({ name }) => name)
    expect(names).not.toContain('advantage')
    expect(names).not.toContain('return')
    expect(names).toEqual(expect.arrayContaining(['step', 'lane', 'episode', 'observation', 'action', 'version']))
    expect([...columnOf(table, 'version')].every((version) => version === 17)).toBe(true)
    expect(table.metadata).toMatchObject({ environment: 'CartPole-v1', seed: '0', gamma: 'null', numLanes: '2' })
  })

  test('gives the same rows for the same seed, and others for another', async () => {
    const record = async (seed: number) =>
      rowsOf(await recordEpisodes({ environment, policy, weights, episodes: 5, seed }))
    const first = await record(1)
    expect(await record(1)).toEqual(first)
    expect((await record(2)).observation).not.toEqual(first.observation)
  })

  test('gives for 10 episodes the first 10 of 50', async () => {
    const few = await recordEpisodes({ environment, policy, weights, episodes: 10, seed: 4 })
    const many = await recordEpisodes({ environment, policy, weights, episodes: 50, seed: 4 })
    const lane = columnOf(many, 'lane')
    expect(rowsOf(few)).toEqual(rowsOf(many, (row) => lane[row]! < 10))
  })

  test('samples actions unless told otherwise', async () => {
    const actions = async (explore?: boolean) => {
      const table = await recordEpisodes({
        environment,
        policy,
        weights,
        episodes: 5,
        ...(explore !== undefined && { explore }),
      })
      return [...columnOf(table, 'action')]
    }
    expect(await actions()).toEqual(await actions(true))
    expect(await actions(false)).not.toEqual(await actions(true))
  })

  test('ends a truncated episode with the value of what came after it', async () => {
    const short = cartPole({ maxEpisodeSteps: 5 })
    const table = await recordEpisodes({ environment: short, policy, weights, episodes: 3 })
    const [truncated, nextValue] = [columnOf(table, 'truncated'), columnOf(table, 'nextValue')]
    const ends = lanesOf(table).map((rows) => rows.at(-1)!)
    expect(ends.map((row) => truncated[row])).toEqual([1, 1, 1])
    for (const row of ends) expect(nextValue[row]).not.toBe(0)
    for (const rows of lanesOf(table)) {
      const value = columnOf(table, 'value')
      for (const row of rows.slice(0, -1)) expect(nextValue[row]).toBe(value[row + 1])
    }
  })
})

describe('evaluate', () => {
  test('is summed up from the very episodes that recordEpisodes gives', async () => {
    const options = { environment, policy, weights, episodes: 20, seed: 9, explore: true }
    const evaluation = await evaluate(options)
    const table = await recordEpisodes(options)
    const lengths = lanesOf(table).map((rows) => rows.length)
    const returns = lanesOf(table).map((rows) => columnOf(table, 'episodeReturn')[rows.at(-1)!]!)
    const summary = (values: number[]) => {
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length
      const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length)
      return {
        mean: expect.closeTo(mean, 9),
        std: expect.closeTo(std, 9),
        min: Math.min(...values),
        max: Math.max(...values),
      }
    }
    expect(new Set(lengths).size).toBeGreaterThan(1)
    expect(evaluation).toEqual({
      environment: 'CartPole-v1',
      episodes: 20,
      seed: 9,
      explore: true,
      episodeReturn: summary(returns),
      episodeLength: summary(lengths),
    })
  })

  test('gives the same for the same seed, and plays 100 episodes of seed 0 unless told otherwise', async () => {
    const short = { environment: cartPole({ maxEpisodeSteps: 20 }), policy, weights }
    const evaluation = await evaluate(short)
    expect(evaluation).toMatchObject({ episodes: 100, seed: 0, explore: false })
    expect(await evaluate({ ...short, episodes: 100, seed: 0 })).toEqual(evaluation)
    const seeds = await Promise.all([1, 2].map((seed) => evaluate({ ...short, seed, explore: true })))
    expect(seeds[0]!.episodeReturn).not.toEqual(seeds[1]!.episodeReturn)
  })

  test('plays continuous actions too', async () => {
    const swing = pendulum({ maxEpisodeSteps: 30 })
    const { numParameters } = policy.build(swing.observationSpace, swing.actionSpace)
    const evaluation = await evaluate({
      environment: swing,
      policy,
      weights: new Float32Array(numParameters),
      episodes: 4,
    })
    expect(evaluation.episodeLength).toEqual({ mean: 30, std: 0, min: 30, max: 30 })
    expect(evaluation.episodeReturn.max).toBeLessThan(0)
  })

  test.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '3' as never])(
    'refuses %j episodes',
    async (episodes) => {
      const evaluating = evaluate({ environment, policy, weights, episodes })
      await expect(evaluating).rejects.toThrow(InputError)
      await expect(evaluating).rejects.toThrow(/episodes: got .+, expected a whole number ≥ 1/)
    },
  )

  test.each([-1, 1])('refuses weights that are %i too long, and says how long they should be', async (by) => {
    const size = weights.length
    for (const play of [evaluate, recordEpisodes]) {
      const playing = play({ environment, policy, weights: new Float32Array(size + by) })
      await expect(playing).rejects.toThrow(InputError)
      await expect(playing).rejects.toThrow(
        `weights: got ${size + by} numbers, expected ${size}, the parameters of mlp`,
      )
    }
  })

  test('ends once each lane has ended its first episode', async () => {
    const endless = counter({ terminalSteps: 2, maxEpisodeSteps: 9 })
    let steps = 0
    const counted = {
      ...endless,
      step: (...given: Parameters<typeof endless.step>) => {
        steps++
        endless.step(...given)
      },
    }
    const numParameters = mlp({ hidden: [8] }).build(endless.observationSpace, endless.actionSpace).numParameters
    const asked = { environment: counted, policy, weights: new Float32Array(numParameters), seed: 1 }
    // Lane 0 goes on to the time limit, lane 1 ends after two steps.
    expect((await evaluate({ ...asked, episodes: 1 })).episodeLength.mean).toBe(9)
    expect(steps).toBe(9)
    const short = { ...counted, ...counter({ terminalSteps: 2, maxEpisodeSteps: 3 }), maxEpisodeSteps: 90 }
    steps = 0
    const all = {
      ...short,
      step: (...given: Parameters<typeof endless.step>) => {
        steps++
        short.step(...given)
        given[0].terminated.fill(1) // In its first step.
      },
    }
    expect((await evaluate({ ...asked, environment: all, episodes: 4 })).episodeLength.mean).toBe(1)
    expect(steps).toBe(1)
  })

  test('refuses an environment whose episodes may never end', async () => {
    const endless = defineEnvironment({
      id: 'Endless-v0',
      settings: {},
      state: () => ({}),
      make: () => ({
        observationSpace: box({ low: [0], high: [1] }),
        actionSpace: discrete(2),
        maxEpisodeSteps: null,
        returnThreshold: null,
        reset() {},
        step() {},
      }),
    })
    const evaluating = evaluate({ environment: endless(), policy, weights })
    await expect(evaluating).rejects.toThrow(InputError)
    await expect(evaluating).rejects.toThrow(/environment Endless-v0: got no time limit, expected a time limit/)
  })
})
