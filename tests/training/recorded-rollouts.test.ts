import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they share must be made by the same ones here.
import * as built from '../../dist/src/index.js'
import { bc } from '../../src/algorithms/on-policy/bc.ts'
import { dqn, qNetwork, replayTable } from '../../src/entries/algorithms.ts'
import {
  cartPole,
  createTrainer,
  createWorld,
  defineAlgorithm,
  type EnvironmentDefinition,
  mlp,
  pendulum,
  ppo,
  readArrow,
  recordEpisodes,
  recurrent,
  type Table,
  ticTacToe,
  toArrow,
  writeArrow,
} from '../../src/index.ts'
import { fromArrow } from '../../src/tables/read-arrow.ts'
import type { Field } from '../../src/tables/table.ts'
import { RecordedRollouts } from '../../src/training/recorded/recorded-rollouts.ts'
import { gradientOf, networkOf } from '../support/on-policy-twin.ts'
import { ppoTwin, type TwinSettings } from '../support/ppo-twin.ts'
import { temporaryFolder } from '../support/temporary.ts'

const NUM_LANES = 6
const NUM_STEPS = 16
const ROWS = NUM_LANES * NUM_STEPS

/** Episodes that end, and that are cut off, within a rollout. */
const cart = () => cartPole({ maxEpisodeSteps: 13 })

const small = { numSteps: NUM_STEPS, updateEpochs: 2, numMinibatches: 3, learningRate: 0.01 }

async function trainerOf(settings: object = {}, environment: EnvironmentDefinition = cart(), seed = 1) {
  const world = await createWorld({ environment, policy: mlp({ hidden: [3] }), numLanes: NUM_LANES, seed })
  const trainer = createTrainer(world, ppo({ ...small, ...settings }))
  return { trainer, cohort: world.cohort() }
}

/** A copy of a table that is live. */
async function copyOf(table: Table): Promise<Table> {
  return structuredClone({
    ...table,
    fields: table.fields.map((field) => ({ ...field })),
    metadata: { ...table.metadata },
  })
}

/** Another order of fields, and one replaced or left out. */
function changed(table: Table, name: string, change: object | null): Table {
  const fields = table.fields.flatMap((field) =>
    field.name !== name ? [field] : change === null ? [] : [{ ...field, ...change }],
  )
  return { ...table, fields: fields.toReversed() }
}

async function collected(settings: object = {}, seed = 1): Promise<Table> {
  const { trainer } = await trainerOf(settings, cart(), seed)
  for await (const _ of trainer.updates({ totalSteps: 1 }));
  return copyOf(trainer.rollout.table)
}

describe('a trainer that is given a table', () => {
  test.each([
    ['choices', cart()],
    ['a box', pendulum({ maxEpisodeSteps: 11 })],
    ['choices under a mask', ticTacToe()],
  ])(
    'learns from the rollouts of %s what the trainer learned that collected them, to the bit',
    async (_, environment) => {
      const folder = await temporaryFolder()
      const { trainer, cohort } = await trainerOf({}, environment)
      const paths: string[] = []
      const seen: Float32Array[] = []
      const told: object[] = []
      for await (const { policyLoss, learningRate, gradNorm, update } of trainer.updates({ totalSteps: 3 * ROWS })) {
        paths.push(join(folder, `${update}.arrow`))
        await writeArrow(paths.at(-1)!, trainer.rollout.table)
        seen.push(cohort.weights.slice())
        told.push({ policyLoss, learningRate, gradNorm, update })
      }
      const later = await trainerOf({}, environment)
      const again: Float32Array[] = []
      const toldAgain: object[] = []
      for await (const metrics of later.trainer.learn(await readArrow(...paths))) {
        const { policyLoss, learningRate, gradNorm, update, steps } = metrics
        toldAgain.push({ policyLoss, learningRate, gradNorm, update })
        expect(steps).toBe(0)
        again.push(later.cohort.weights.slice())
      }
      expect(again).toEqual(seen)
      expect(toldAgain).toEqual(told)
      const [{ rollout: expected }, { rollout }] = [cohort, later.cohort]
      for (const name of ['value', 'nextValue', 'advantage', 'return', 'observation', 'version'] as const) {
        expect(rollout[name], name).toEqual(expected[name])
      }
      const [table, whole] = [later.trainer.rollout.table, trainer.rollout.table]
      const finals = (of: Table) => of.fields.find(({ name }) => name === 'finalObservation')!
      expect(finals(table).rows).toEqual(finals(whole).rows)
      expect(finals(table).column).toEqual(finals(whole).column)
    },
  )

  test('cuts longer rollouts into those of its algorithm, and shows what came next by the rows that follow', async () => {
    const table = await collected({ numSteps: 4 * NUM_STEPS, numMinibatches: 1 })
    const { trainer, cohort } = await trainerOf()
    const updates: number[] = []
    for await (const { update } of trainer.learn(table, { epochs: 2 })) updates.push(update)
    expect(updates).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    const { value, nextValue, terminated, truncated } = cohort.rollout
    const evaluate = networkOf(cohort.model.parameters)
    // The last rollout's weights are not there any more; but where no update is made, the values are the weights'.
    const fixed = await trainerOf({ learningRate: 1e-30, learningRateSchedule: 'constant' })
    let part = 0
    for await (const _ of fixed.trainer.learn(table)) {
      const seen = table.fields.find(({ name }) => name === 'observation')!.column as Float32Array
      const { rollout, weights } = fixed.cohort
      // What came next is there for its own rows alone.
      const final = (of: Table) => [...of.fields.find(({ name }) => name === 'finalObservation')!.rows!]
      const own = final(table).flatMap((row) => (Math.floor(row / ROWS) === part ? [row % ROWS] : []))
      expect(final(fixed.trainer.rollout.table)).toEqual(own)
      for (let row = 0; row < ROWS; row++) {
        const whole = part * ROWS + row
        if (rollout.terminated[row] === 1 || rollout.truncated[row] === 1 || whole + NUM_LANES >= 4 * ROWS) continue
        const next = Array.from(seen.subarray(4 * (whole + NUM_LANES), 4 * (whole + NUM_LANES + 1)))
        expect(rollout.nextValue[row]).toBeCloseTo(evaluate(Array.from(weights), next).value, 5)
      }
      part++
    }
    expect(part).toBe(4)
    expect([value.length, nextValue.length, terminated.length, truncated.length]).toEqual([ROWS, ROWS, ROWS, ROWS])
  })

  test.each(['vtrace', 'decoupled'] as const)(
    'with %s makes of rows that another policy chose what the definition says',
    async (correction) => {
      const table = await collected()
      const settings = { gamma: 0.9, gaeLambda: 0.8, clipCoef: 0.05, entropyCoef: 0.02, normalizeAdvantage: false }
      const { trainer, cohort } = await trainerOf({ ...settings, maxGradNorm: 0.3 }, cart(), 5)
      cohort.weights.set(cohort.weights.map((weight) => 10 * weight)) // So that ratios are not all near 1.
      const before = cohort.weights.slice()
      const { parameters } = cohort.model
      const column = (name: string) => table.fields.find((field) => field.name === name)!
      const finals = column('finalObservation')
      const [rhoMax, cMax] = [0.97, 0.93]
      const recorded = column('logprob').column
      const evaluate = networkOf(parameters)
      /** V-trace: equation 1 of the paper, sum by sum; decoupled: weighted advantages, and returns that are not. */
      const estimate = (value: readonly number[], logprob: readonly number[]) => {
        const { terminated, truncated } = cohort.rollout
        const ratio = logprob.map((each, i) => Math.exp(each - recorded[i]!))
        const next = value.map((_, i) => {
          if (terminated[i] === 1) return 0
          const place = finals.rows!.indexOf(i)
          if (place < 0) return value[i + NUM_LANES]!
          return evaluate(Array.from(before), Array.from(finals.column.subarray(4 * place, 4 * place + 4))).value
        })
        const goesOn = (i: number) => terminated[i] === 0 && truncated[i] === 0 && i + NUM_LANES < ROWS
        const isVtrace = correction === 'vtrace'
        const rho = (i: number) => (isVtrace ? Math.min(rhoMax, ratio[i]!) : 1)
        const delta = value.map((each, i) => rho(i) * (cohort.rollout.reward[i]! + settings.gamma * next[i]! - each))
        const target = value.map((each, i) => {
          let [sum, factor] = [each, 1]
          for (let t = i; ; t += NUM_LANES) {
            sum += factor * delta[t]!
            if (!goesOn(t)) return sum
            factor *= settings.gamma * settings.gaeLambda * (isVtrace ? Math.min(cMax, ratio[t]!) : 1)
          }
        })
        const advantage = value.map((each, i) => {
          if (!isVtrace) return Math.min(rhoMax, ratio[i]!) * (target[i]! - each)
          const later = goesOn(i) ? target[i + NUM_LANES]! : next[i]!
          return rho(i) * (cohort.rollout.reward[i]! + settings.gamma * later - each)
        })
        expect(ratio.filter((each) => each > rhoMax).length).toBeGreaterThan(5)
        expect(ratio.filter((each) => each < cMax).length).toBeGreaterThan(5)
        return { advantage, target }
      }
      const moments = { first: [], second: [], steps: 0 }
      for await (const metrics of trainer.learn(table, { correction, rhoMax, cMax })) {
        const { key0, key1 } = cohort.environmentLanes.random
        const all = { ...trainerSettings(trainer), learningRate: 0.01 } as unknown as TwinSettings
        const twin = ppoTwin(
          parameters,
          before,
          cohort.rollout,
          NUM_LANES,
          all,
          moments,
          { update: 0, key0, key1 },
          estimate,
        )
        expect(twin.metrics.clipFraction).toBeGreaterThan(0)
        for (const [k, weight] of twin.weights.entries())
          expect(cohort.weights[k], `weight ${k}`).toBeCloseTo(weight, 4)
        for (const [name, value] of Object.entries(twin.metrics)) {
          expect(Math.abs(metrics[name as 'policyLoss']! - value), name).toBeLessThan(1e-5 + 2e-3 * Math.abs(value))
        }
      }
      function trainerSettings(_: unknown) {
        return ppo({ ...small, ...settings, maxGradNorm: 0.3 }).parameters
      }
    },
  )

  test('takes the log-probabilities of the table for those of the old policy where nothing is corrected', async () => {
    const table = await collected()
    const { trainer, cohort } = await trainerOf({}, cart(), 5)
    await trainer.learn(table).next()
    const { column } = table.fields.find(({ name }) => name === 'logprob')!
    expect(cohort.rollout.logprob).toEqual(column)
  })

  test('passes over rows in which nobody acted, and needs no column that says where rows are from', async () => {
    const options = { environment: cart(), policy: mlp({ hidden: [3] }), numLanes: NUM_LANES }
    const dead = createTrainer(await createWorld({ ...options, autoreset: 'next-step' }), ppo(small))
    for await (const _ of dead.updates({ totalSteps: 1 }));
    const table = await copyOf(dead.rollout.table)
    const { column: valid } = table.fields.find(({ name }) => name === 'valid')!
    const { column } = table.fields.find(({ name }) => name === 'reward')!
    expect(valid).toContain(0)
    const reward = column.map((each, row) => (valid[row] === 0 ? Number.NaN : each))
    const learned = async (given: Table) => {
      const { trainer, cohort } = await trainerOf()
      await trainer.learn(given).next()
      return cohort.weights
    }
    const expected = await learned(table)
    expect(await learned(changed(table, 'reward', { column: reward }))).toEqual(expected)
    expect(await learned(changed(changed(table, 'version', null), 'lane', null))).toEqual(expected)
  })

  test('goes on with its lanes where they stood, and takes as many steps as without', async () => {
    const table = await collected()
    const { trainer, cohort } = await trainerOf()
    const carried: number[][] = []
    const first: number[][] = []
    let updates = 0
    for (const totalSteps of [ROWS, 3 * ROWS]) {
      for await (const { steps, update } of trainer.updates({ totalSteps })) {
        if (carried.length === 0) carried.push([...cohort.rollout.observation.subarray(-4)])
        else if (updates === 4) first.push([...cohort.rollout.observation.subarray(4 * (NUM_LANES - 1), 4 * NUM_LANES)])
        updates++
        expect(update).toBe(updates)
        expect(steps).toBe((updates > 1 ? updates - 3 : updates) * ROWS)
      }
      if (totalSteps > ROWS) continue
      const ended = [cohort.rollout.terminated.at(-1), cohort.rollout.truncated.at(-1)]
      const finals = trainer.rollout.table.fields.find(({ name }) => name === 'finalObservation')!
      if (!ended.includes(1)) first.push([...finals.column.subarray(-4)])
      for await (const _ of trainer.learn(table, { epochs: 3 })) updates++
    }
    expect(updates).toBe(6)
    expect(first).toHaveLength(2)
    expect(first[1]).toEqual(first[0])
  })

  test('learns the same in two threads as in one', async () => {
    const of = async (threads: number) => {
      const world = await built.createWorld({
        environment: built.cartPole(),
        policy: built.mlp(),
        numLanes: 16,
        seed: 2,
      })
      const trainer = built.createTrainer(world, built.ppo({ numSteps: 64 }), { threads })
      for await (const _ of trainer.updates({ totalSteps: 2000 }));
      const table = await copyOf(trainer.rollout.table)
      const begun = world.cohort().weights.slice()
      for await (const _ of trainer.learn(table, { correction: 'vtrace', epochs: 2 }));
      for await (const _ of trainer.updates({ totalSteps: 3000 }));
      trainer.close()
      expect(world.cohort().weights).not.toEqual(begun)
      return world.cohort().weights
    }
    expect(await of(2)).toEqual(await of(1))
  })

  test('goes on behind the updates that were done, in the same rollouts and with the same schedules', async () => {
    const table = await collected({ numSteps: 2 * NUM_STEPS, numMinibatches: 1 })
    const whole = await trainerOf()
    const told: object[] = []
    const facts = ({
      policyLoss,
      learningRate,
      update,
    }: {
      policyLoss?: number
      learningRate?: number
      update: number
    }) => ({
      ...{ policyLoss, learningRate, update },
    })
    for await (const metrics of whole.trainer.learn(table, { epochs: 2 })) told.push(facts(metrics))
    expect(told).toHaveLength(4)
    const folder = await temporaryFolder()
    const first = await trainerOf()
    for await (const metrics of first.trainer.learn(table, { epochs: 2 })) {
      expect(facts(metrics)).toEqual(told[metrics.update - 1])
      if (metrics.update === 3) break
    }
    await first.trainer.save(folder)
    const second = await trainerOf({}, cart())
    await second.trainer.restore(folder)
    const rest: object[] = []
    for await (const metrics of second.trainer.learn(table, { epochs: 2, done: 3 })) rest.push(facts(metrics))
    expect(rest).toEqual(told.slice(3))
    expect(second.cohort.weights).toEqual(whole.cohort.weights)
  })

  test('refuses tables that do not fit, and says which column, or why', async () => {
    const table = await collected()
    const { trainer } = await trainerOf()
    const learn = (given: Table | object, options: object = {}) => trainer.learn(given as Table, options).next()
    const of = (name: string, change: object | null) => learn(changed(table, name, change))
    const flag = (name: string, row: number) => table.fields.find((field) => field.name === name)!.column[row]
    await expect(of('reward', null)).rejects.toThrow(
      'column reward of the table: got none, expected one number a row in a Float32Array',
    )
    await expect(of('observation', { width: 2 })).rejects.toThrow(
      'column observation of the table: got 2 numbers a row in a Float32Array of 384 for 96 rows, expected 4 numbers a row in a Float32Array',
    )
    await expect(of('action', { column: new Float32Array(ROWS) })).rejects.toThrow(
      /column action.*Float32Array.*Int32Array/,
    )
    await expect(of('finalObservation', null)).rejects.toThrow(/column finalObservation of the table: got none/)
    await expect(of('finalObservation', { rows: new Uint32Array(0), column: new Float32Array(0) })).rejects.toThrow(
      /finalObservation of row \d+: got null, expected the final observation/,
    )
    const finals = table.fields.find(({ name }) => name === 'finalObservation')!
    await expect(of('finalObservation', { column: new Float64Array(finals.column) })).rejects.toThrow(
      /column finalObservation of the table: got 4 numbers a row in a Float64Array/,
    )
    // Of a row in the middle that is truncated; the rows behind it are of another episode.
    const cut = Array.from(finals.rows!).findIndex((row) => row < ROWS - NUM_LANES && flag('truncated', row) === 1)
    const others = finals.rows!.filter((_, i) => i !== cut)
    const seen = finals.column.filter((_, i) => Math.floor(i / 4) !== cut)
    await expect(of('finalObservation', { rows: others, column: seen })).rejects.toThrow(
      `finalObservation of row ${finals.rows![cut]}: got null, expected the final observation`,
    )
    await expect(of('reward', { rows: Uint32Array.of(0) })).rejects.toThrow(/column reward of the table: got/)
    await expect(of('logprob', { column: new Float32Array(ROWS).fill(Number.NaN) })).rejects.toThrow(
      'logprob of row 0: got NaN',
    )
    await expect(learn({ ...table, metadata: { numLanes: '3' } })).rejects.toThrow(
      /lanes of the table: got 3, expected 6/,
    )
    await expect(learn({ ...table, numRows: ROWS - 1 })).rejects.toThrow(
      /rows of the table: got 95, expected whole rollouts/,
    )
    const metadata = (more: object) => learn({ ...table, metadata: { ...table.metadata, ...more } })
    await expect(metadata({ environment: 'Pendulum-v1' })).rejects.toThrow(
      'environment of the table: got "Pendulum-v1", expected "CartPole-v1"',
    )
    await expect(metadata({ actionSpace: '{"kind":"discrete","n":3}' })).rejects.toThrow(
      /actionSpace of the table: got/,
    )
    const column = (name: string) => table.fields.find((field) => field.name === name)!.column
    const put = (name: string, row: number, value: number) => {
      const { width } = table.fields.find((field) => field.name === name)!
      return of(name, { column: column(name).map((each, i) => (i === row * width ? value : each)) })
    }
    await expect(put('action', 7, 2)).rejects.toThrow('action of row 7: got 2, expected a choice below 2')
    await expect(put('action', 7, -1)).rejects.toThrow('action of row 7: got -1, expected a choice below 2')
    await expect(put('reward', 8, Number.NaN)).rejects.toThrow('reward of row 8: got NaN, expected a finite number')
    await expect(put('observation', 9, Number.POSITIVE_INFINITY)).rejects.toThrow('observation of row 9: got Infinity')
    await expect(put('lane', NUM_LANES, 3)).rejects.toThrow(/lane of row 6: got 3 after 0, expected rows of 6 lanes/)
    await expect(put('lane', 1, 0)).rejects.toThrow('lane of row 1: got 0 after 0')
    // Two rollouts that do not follow one another, as one of twice as many steps.
    const twice = fromArrow((await toArrow(table)).concat(await toArrow(table)))
    const long = await trainerOf({ numSteps: 2 * NUM_STEPS })
    await expect(long.trainer.learn(twice).next()).rejects.toThrow(
      /observation of row \d+: got that of another rollout, expected the next observation of row \d+/,
    )
    await expect(learn(table, { done: 2 })).rejects.toThrow('trainer.learn(table, { done }): got 2, expected at most 1')
    await expect(learn({})).rejects.toThrow(
      /trainer.learn\(table\): got \[object Object\], expected a table|expected a table/,
    )
    await expect(learn(table, { epochs: 0 })).rejects.toThrow(/epochs: got 0/)
    await expect(learn(table, { corection: 'vtrace' })).rejects.toThrow(/did you mean "correction"/)
    await expect(learn(table, { signal: 1 })).rejects.toThrow(/signal: got 1/)
    const plain = defineAlgorithm({
      id: 'plain',
      settings: {},
      metrics: {},
      make: () => ({
        numSteps: NUM_STEPS,
        gamma: null,
        plan: () => ({}),
        bind: () => ({
          // biome-ignore lint/correctness/useYield: it meets nobody.
          *learn() {
            return {}
          },
        }),
      }),
    })
    const world = (policy = mlp()) => createWorld({ environment: cart(), policy, numLanes: NUM_LANES, seed: 1 })
    const own = createTrainer(await world(), plain())
    await expect(own.learn(table, { correction: 'vtrace' }).next()).rejects.toThrow(/plain, which takes no advantages/)
    expect((await own.learn(table).next()).value).toMatchObject({ update: 1 })
    const open = await createWorld({ environment: cart(), policy: mlp(), numLanes: NUM_LANES, present: 2 })
    await expect(createTrainer(open, ppo(small)).learn(table).next()).rejects.toThrow(
      'got lanes that come and go, expected lanes that stay',
    )
    const remembering = createTrainer(await world(recurrent({ sequenceLength: 8 })), ppo({ numSteps: NUM_STEPS }))
    await expect(remembering.learn(table).next()).rejects.toThrow(/a policy with a memory/)
    remembering.close()
    const cohorts = ['one', 'other'].map((name) => ({ name, environment: cart(), policy: mlp(), numLanes: 2 }))
    const both = createTrainer(await createWorld({ cohorts, seed: 1 }), { one: ppo(), other: ppo() })
    await expect(both.learn(table).next()).rejects.toThrow(/2 cohorts that learn/)
  })
})

describe('a replay', () => {
  const joined = ({ rows, ...one }: Field, other: Field): Field => {
    const column = Float64Array.of(...one.column, ...other.column)
    const own = { ...one, column: new (one.column.constructor as Float32ArrayConstructor)(column) }
    return rows === undefined ? own : { ...own, rows: Uint32Array.of(...rows, ...other.rows!.map((row) => row + ROWS)) }
  }

  /** The rows of the replay of a table's passes, and its rows whose episode goes on in the next row of their lane. */
  async function replayed(table: Table, settings: object) {
    const world = await createWorld({
      environment: cart(),
      policy: qNetwork({ hidden: [3] }),
      numLanes: NUM_LANES,
      seed: 1,
    })
    const trainer = createTrainer(world, dqn({ replayRows: 8 * ROWS, learningStarts: 0, ...settings }))
    for await (const _ of trainer.learn(table, { epochs: 3 }));
    const replay = await copyOf(replayTable(world.cohort()))
    const column = (name: string) => replay.fields.find((field) => field.name === name)!.column
    const [terminated, truncated] = [column('terminated'), column('truncated')]
    const rows = Array.from({ length: replay.numRows - NUM_LANES }, (_, row) => row)
    return { replay, column, goOn: rows.filter((row) => terminated[row] === 0 && truncated[row] === 0) }
  }

  test('joins no row with one of another pass, or of another rollout that does not follow', async () => {
    const [first, other] = [await collected(), await collected({}, 2)]
    const both = {
      ...first,
      numRows: 2 * ROWS,
      fields: first.fields.map((field, i) => joined(field, other.fields[i]!)),
    }
    const counts: number[] = []
    for (const [table, numSteps] of [
      [first, NUM_STEPS],
      [first, 4],
      [both, NUM_STEPS],
    ] as const) {
      const { replay, column, goOn } = await replayed(table, { numSteps, nStep: 3 })
      const [step, episode, observation] = [column('step'), column('episode'), column('observation')]
      expect(replay.numRows).toBe(3 * table.numRows)
      const wrong = goOn.filter(
        (row) => step[row + NUM_LANES] !== step[row]! + 1 || episode[row + NUM_LANES] !== episode[row],
      )
      expect(wrong).toEqual([])
      counts.push(goOn.length)
      const { rows, column: final } = replay.fields.find(({ name }) => name === 'finalObservation')!
      const last = Array.from(rows!.keys()).filter((i) => rows![i]! % ROWS >= ROWS - NUM_LANES)
      expect(last.length).toBeGreaterThan(0)
      for (const i of last) {
        const next = rows![i]! + NUM_LANES
        const after = observation.slice(4 * next, 4 * next + 4)
        expect(final.slice(4 * i, 4 * i + 4)).not.toEqual(after)
      }
    }
    expect(counts[1]).toBe(counts[0]) // Rollouts that follow are joined, however long they are.
  })
})

describe('whole episodes', () => {
  const recorded = async (episodes: number) => {
    const { cohort } = await trainerOf()
    const weights = cohort.weights.slice()
    return recordEpisodes({ environment: cart(), policy: mlp({ hidden: [3] }), weights, episodes, seed: 2 })
  }

  test('are learned from row by row, each once, with the value of what came next', async () => {
    const table = await recorded(17)
    const column = (name: string) => table.fields.find((field) => field.name === name)!
    const wide = (name: string, place: number) => [...column(name).column.subarray(4 * place, 4 * place + 4)]
    const places = new Map(Array.from({ length: table.numRows }, (_, row) => [String(wide('observation', row)), row]))
    expect([places.size, table.numRows % ROWS > 0, table.numRows > ROWS]).toEqual([table.numRows, true, true])
    // Without an update the values are those of the weights.
    const { trainer, cohort } = await trainerOf({ learningRate: 1e-30, learningRateSchedule: 'constant' })
    const evaluate = networkOf(cohort.model.parameters)
    const valued = (seen: readonly number[]) => evaluate(Array.from(cohort.weights), [...seen]).value
    const learned: number[] = []
    for await (const _ of trainer.learn(table, { correction: 'vtrace' })) {
      const { rollout } = cohort
      for (let row = 0; row < ROWS; row++) {
        if (rollout.valid[row] === 0) {
          expect(rollout.nextValue[row]).toBe(0)
          continue
        }
        const place = places.get(String([...rollout.observation.subarray(4 * row, 4 * row + 4)]))!
        learned.push(place)
        const final = column('finalObservation').rows!.indexOf(place)
        const isOver = column('terminated').column[place] === 1
        const next = final < 0 ? wide('observation', place + 1) : wide('finalObservation', final)
        expect(rollout.nextValue[row]).toBeCloseTo(isOver ? 0 : valued(next), 5)
      }
    }
    expect(learned.toSorted((a, b) => a - b)).toEqual([...places.values()])
  })

  test('that are no longer whole, or have a wrong number, are refused with the row in which it stands', async () => {
    const table = await recorded(17)
    const { trainer } = await trainerOf()
    const { column } = table.fields.find(({ name }) => name === 'reward')!
    const wrong = column.map((each, row) => (row === table.numRows - 1 ? Number.NaN : each))
    await expect(trainer.learn(changed(table, 'reward', { column: wrong })).next()).rejects.toThrow(
      `reward of row ${table.numRows - 1}: got NaN`,
    )
    const arrow = await toArrow(table)
    await expect(trainer.learn(arrow.slice(0, table.numRows - 1)).next()).rejects.toThrow(
      `terminated and truncated of row ${table.numRows - 2}: got 0 and 0, expected an end of the last episode`,
    )
    await expect(trainer.learn(arrow.slice(0, 2).concat(arrow.slice(3))).next()).rejects.toThrow(
      'step of row 2: got 3, behind step 1 with terminated = 0 and truncated = 0 in row 1, expected 2: the next step',
    )
  })
})

test('what came next has room where every episode has one step, in the lists of several threads', async () => {
  const { trainer, cohort } = await trainerOf({}, cartPole({ maxEpisodeSteps: 1 }))
  for await (const _ of trainer.updates({ totalSteps: 1 }));
  const rollouts = new RecordedRollouts(await copyOf(trainer.rollout.table), cohort)
  const [{ row, observation }] = cohort.finals as [(typeof cohort.finals)[number]]
  cohort.finals = [0, ROWS / 2].map((from) => ({
    row: row.subarray(from, from + ROWS / 2),
    observation: observation.subarray(4 * from, 4 * (from + ROWS / 2)),
    actionMask: new Uint8Array(0),
    count: new Uint32Array(1),
  }))
  rollouts.load(0)
  expect(cohort.finals.flatMap(({ row, count }) => [...row.subarray(0, count[0])])).toEqual([...Array(ROWS).keys()])
})

test('every row of a table is learned from, also where other weights of a league acted in the rollout before', async () => {
  const table = await collected()
  const options = { environment: cart(), policy: mlp({ hidden: [3] }), numLanes: NUM_LANES }
  const world = await createWorld({ ...options, weightSets: 2 })
  const trainer = createTrainer(world, ppo(small))
  const { league, rollout } = world.cohort()
  league!.lanes.policy.fill(1, 2)
  for await (const _ of trainer.updates({ totalSteps: 1 }));
  expect([...league!.learned[0]!]).not.toEqual([...rollout.valid])
  for await (const _ of trainer.learn(table));
  expect([...league!.learned[0]!]).toEqual([...rollout.valid])
})

describe('behavior cloning', () => {
  test('takes the step that its definition says, weighted by advantages too', async () => {
    const table = await collected()
    for (const beta of [0, 0.7]) {
      const world = await createWorld({
        environment: cart(),
        policy: mlp({ hidden: [3] }),
        numLanes: NUM_LANES,
        seed: 3,
      })
      const settings = {
        numSteps: NUM_STEPS,
        numMinibatches: 1,
        optimizer: 'sgd',
        learningRate: 0.5,
        weightMax: 1.3,
      } as const
      const given = { ...settings, beta, entropyCoef: 0.1, valueCoef: 0.6, gamma: 0.9, maxGradNorm: 1e9 }
      const trainer = createTrainer(world, bc(given))
      const { weights, model, rollout } = world.cohort()
      const before = Array.from(weights)
      const { value: metrics } = await trainer.learn(table).next()
      const evaluate = networkOf(model.parameters)
      const rows = Array.from({ length: ROWS }, (_, i) => ({
        seen: [...rollout.observation.subarray(4 * i, 4 * i + 4)],
        action: rollout.action[i]!,
        target: rollout.return[i]!,
        advantage: rollout.advantage[i]!,
      }))
      const mean = rows.reduce((sum, { advantage }) => sum + advantage, 0) / ROWS
      const deviation = Math.sqrt(rows.reduce((sum, { advantage }) => sum + (advantage - mean) ** 2, 0) / (ROWS - 1))
      const lossAt = (at: readonly number[]) =>
        rows.reduce((sum, { seen, action, target, advantage }) => {
          const { logprobs, entropy, value } = evaluate(at, seen)
          const weight = beta === 0 ? 1 : Math.min(1.3, Math.exp((beta * (advantage - mean)) / (deviation + 1e-8)))
          return sum + (-weight * logprobs[action]! + 0.6 * 0.5 * (value - target) ** 2 - 0.1 * entropy) / ROWS
        }, 0)
      const gradient = gradientOf(before, lossAt)
      gradient.forEach((slope, k) => void expect(weights[k]).toBeCloseTo(before[k]! - 0.5 * slope, 4))
      const logprob = rows.reduce((sum, { seen, action }) => sum + evaluate(before, seen).logprobs[action]! / ROWS, 0)
      expect(metrics!.logprob).toBeCloseTo(logprob, 4)
    }
  })

  test('imitates a policy from its rows alone', async () => {
    const expert = createTrainer(
      await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 1 }),
      ppo(),
    )
    for await (const _ of expert.updates({ totalSteps: 40_000 }));
    const table = await copyOf(expert.rollout.table)
    const pupil = createTrainer(
      await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 16, seed: 9 }),
      bc({ numSteps: 128, learningRate: 5e-3 }),
    )
    const logprobs: number[] = []
    for await (const { logprob } of pupil.learn(table, { epochs: 12 })) logprobs.push(logprob!)
    // Nobody can find them more likely in the mean than the policy that drew them, but for chance.
    const { column } = table.fields.find(({ name }) => name === 'logprob')!
    const own = Array.from(column).reduce((sum, each) => sum + each, 0) / column.length
    expect(logprobs[0]).toBeLessThan(own - 0.02)
    expect(Math.abs(logprobs.at(-1)! - own)).toBeLessThan(0.02)
    await expect(pupil.updates({ totalSteps: 1 }).next()).rejects.toThrow(/bc, which learns from tables/)
  })
})

describe('an Arrow table as columns', () => {
  test('is what it was made of, in one record batch without a copy, in several as one', async () => {
    const table = await collected()
    const arrow = await toArrow(table)
    const one = fromArrow(arrow)
    expect(one).toEqual({ ...table, fields: table.fields.map((field) => ({ ...field })) })
    const column = (of: Table, name: string) => of.fields.find((field) => field.name === name)!
    expect(column(one, 'observation').column.buffer).toBe(column(table, 'observation').column.buffer)
    const two = fromArrow(arrow.concat(arrow))
    expect(two.numRows).toBe(2 * ROWS)
    expect(column(two, 'observation').column).toEqual(
      Float32Array.from([...column(table, 'observation').column, ...column(table, 'observation').column]),
    )
    const { rows } = column(table, 'finalObservation')
    expect(column(two, 'finalObservation').rows).toEqual(
      Uint32Array.from([...rows!, ...Array.from(rows!, (row) => row + ROWS)]),
    )
    // Rows in the middle of a batch.
    const part = fromArrow(arrow.slice(10, 30))
    expect(column(part, 'observation').column).toEqual(column(table, 'observation').column.slice(40, 120))
    expect(column(part, 'reward').column).toEqual(column(table, 'reward').column.slice(10, 30))
    const within = Array.from(rows!).flatMap((row, i) => (row >= 10 && row < 30 ? [i] : []))
    expect(column(part, 'finalObservation').rows).toEqual(Uint32Array.from(within, (i) => rows![i]! - 10))
    expect(Array.from(column(part, 'finalObservation').column)).toEqual(
      within.flatMap((i) => [...column(table, 'finalObservation').column.subarray(4 * i, 4 * i + 4)]),
    )
  })
})
