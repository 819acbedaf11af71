/** Levels of environments, and prioritized level replay beside a second calculation from the rows of its rollouts. */
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  beginLevel,
  LEVEL_STATE,
  maze,
  prioritizedLevels,
  timeLimit,
  wrap,
} from '../../dist/src/entries/environments.js'
import {
  box,
  cartPole,
  createTrainer,
  createWorld,
  defineEnvironment,
  defineSystem,
  discrete,
  mlp,
  ppo,
} from '../../dist/src/index.js'
import { temporaryFolder } from '../support/temporary.ts'

const [LEVELS, LANES, STEPS] = [12, 6, 40]
const [GAMMA, LAMBDA] = [0.9, 0.8]

const environment = () => wrap(maze({ side: 5, levels: LEVELS }), timeLimit({ maxEpisodeSteps: 17 }))

type Columns = Readonly<Record<string, Float32Array | Uint8Array | Int32Array>>

async function begin(given: object, { threads = 1, seed = 4, spies = [] as unknown[] } = {}) {
  const systems = [prioritizedLevels({ levels: LEVELS, gamma: GAMMA, gaeLambda: LAMBDA, ...given }), ...spies] as never
  const world = await createWorld({
    environment: environment(),
    policy: mlp({ hidden: [8] }),
    numLanes: LANES,
    seed,
    systems,
  })
  const trainer = createTrainer(world, ppo({ numSteps: STEPS, numMinibatches: 2, learningRate: 3e-3 }), { threads })
  const column = (name: string) =>
    world.columns().find(({ planned }) => planned.name.endsWith(`prioritizedLevels.shared.${name}`))!
      .column as Float64Array
  const bits = () =>
    world
      .columns()
      .filter(({ planned }) => /systems|weights|state/.test(planned.name))
      .map(({ planned, column }) => [planned.name, [...new Uint8Array(column.slice().buffer)].join()])
  return { world, trainer, column, bits }
}

interface Row {
  readonly [name: string]: number
}

/** Every row of a rollout that a lane acted in, in time-major order, with the advantage summed from its definition. */
function rowsOf(rollout: Columns, levels: Int32Array): Row[] {
  const rows = Array.from(
    levels,
    (level, row): Row => ({
      ...Object.fromEntries(Object.entries(rollout).map(([name, column]) => [name, column[row]!])),
      level,
      lane: row % LANES,
      row,
    }),
  )
  const delta = ({ reward, nextValue, value, terminated }: Row) =>
    reward! + (terminated === 1 ? 0 : GAMMA * nextValue!) - value!
  return rows.map((row) => {
    let advantage = 0
    let weight = 1
    for (let at = row.row!; at < rows.length; at += LANES) {
      advantage += weight * delta(rows[at]!)
      if (rows[at]!.terminated === 1 || rows[at]!.truncated === 1) break
      weight *= GAMMA * LAMBDA
    }
    return { ...row, advantage }
  })
}

describe.each([
  ['valueLoss', { temperature: 0.3, staleness: 0.2 }],
  ['regret', { scoreRate: 0.4, staleness: 0, temperature: 1 }],
  ['progress', { scoreRate: 0.7, replayMost: 0.5 }],
] as const)('prioritized level replay by %s', (score, given) => {
  const settings = { temperature: 0.1, staleness: 0.1, scoreRate: 1, replayMost: 1, score, ...given }

  test('has the scores and probabilities of the papers, and levels are drawn by them', async () => {
    let seen: Columns = {}
    const names = ['reward', 'value', 'nextValue', 'terminated', 'truncated', 'step', 'valid'] as const
    const spy = defineSystem({
      id: 'spy',
      settings: {},
      make: () => ({
        afterRollout({ rollout }) {
          seen = Object.fromEntries(names.map((name) => [name, rollout[name].slice()]))
        },
      }),
    })
    const { trainer, column } = await begin(settings, { spies: [spy()] })
    const running = Array.from({ length: LANES }, (): Row[] => [])
    const episodes: { level: number; score: number; return: number }[] = []
    const table = new Map<number, { score: number; last: number; at: number }>()
    const expected = new Float64Array(LEVELS)
    const drawn = new Float64Array(LEVELS)
    let probabilities = new Float64Array(LEVELS).fill(1 / LEVELS)
    const chosenBy: (Float64Array | undefined)[] = new Array(LANES)
    for await (const { update } of trainer.updates({ totalSteps: 40 * LANES * STEPS })) {
      const fields = trainer.rollout.table.fields
      const levels = fields.find(({ name }) => name === 'prioritizedLevels.level')!.column as Int32Array
      const ofRollout = probabilities
      for (const row of rowsOf(seen, levels)) {
        const { lane, level, step, terminated, truncated } = row
        if (step === 0 && chosenBy[lane!] !== undefined) {
          drawn[level!]! += 1
          for (const [i, p] of chosenBy[lane!]!.entries()) expected[i] = expected[i]! + p
        }
        running[lane!]!.push(row)
        if (terminated === 0 && truncated === 0) continue
        const rows = running[lane!]!
        running[lane!] = []
        chosenBy[lane!] = ofRollout
        const sum = (of: (row: Row) => number) => rows.reduce((total, each) => total + of(each), 0)
        const mean = (of: (row: Row) => number) => sum(of) / rows.length
        const total = sum(({ reward }) => reward!)
        const former = table.get(level!) ?? { score: 0, last: 0, at: 0 }
        const found = {
          valueLoss: mean(({ advantage }) => Math.abs(advantage!)),
          regret: mean(({ advantage }) => Math.max(0, advantage!)),
          progress: Math.abs(total - former.last),
        }[score]
        expect(new Set(rows.map((each) => each.level)).size).toBe(1)
        episodes.push({ level: level!, score: found, return: total })
        const mixed = former.score + settings.scoreRate * (found - former.score)
        table.set(level!, { score: mixed, last: total, at: episodes.length })
      }
      const known = [...table].map(([level, { score, at }]) => ({ level, score, age: episodes.length - at }))
      const ages = known.reduce((sum, { age }) => sum + age, 0)
      const weights = known.map(({ level, score }) => {
        const rank =
          1 + known.filter((other) => other.score > score || (other.score === score && other.level < level)).length
        return Math.exp(-Math.log(rank) / settings.temperature)
      })
      const whole = weights.reduce((sum, weight) => sum + weight, 0)
      const replayed = new Float64Array(LEVELS)
      known.forEach(({ level, age }, i) => {
        replayed[level] = (1 - settings.staleness) * (weights[i]! / whole) + settings.staleness * (age / ages)
      })
      const scores = column('score')
      for (const { level, score } of known) expect(scores[level], `${update}`).toBeCloseTo(score, 5)
      column('probability').forEach((p, level) => void expect(p, `${update}`).toBeCloseTo(replayed[level]!, 5))
      const numOthers = LEVELS - known.length
      const replay = numOthers === 0 ? 1 : Math.min(settings.replayMost, known.length / LEVELS)
      probabilities = replayed.map((p, i) => replay * p + (table.has(i) ? 0 : (1 - replay) / numOthers))
    }
    expect(table.size).toBeGreaterThan(LEVELS / 2)
    expect(episodes.length).toBeGreaterThan(300)
    const spread = drawn.map((count, i) => (count - expected[i]!) / Math.sqrt(Math.max(1, expected[i]!)))
    for (const each of spread) expect(Math.abs(each)).toBeLessThan(4)
  })

  test('has the same bits on three threads, and after a resume', async () => {
    const train = async ({ trainer }: Awaited<ReturnType<typeof begin>>, last = 6) => {
      for await (const { update } of trainer.updates({ totalSteps: 6 * LANES * STEPS })) if (update === last) break
      if (last === 6) trainer.close()
    }
    const whole = await begin(settings)
    await train(whole)
    const shared = await begin(settings, { threads: 3 })
    await train(shared)
    expect(shared.bits()).toEqual(whole.bits())
    const stopped = await begin(settings)
    await train(stopped, 3)
    const folder = await temporaryFolder()
    await stopped.trainer.save(folder)
    const resumed = await begin(settings)
    await resumed.trainer.restore(folder)
    await train(resumed)
    expect(resumed.bits()).toEqual(whole.bits())
    const other = await begin({ ...settings, score: score === 'regret' ? 'valueLoss' : 'regret' })
    await train(other)
    expect(other.bits()).not.toEqual(whole.bits())
  })
})

test('with replayMost 0 each next level is one that was not played before the rollout, until all were', async () => {
  const { trainer, column } = await begin({ replayMost: 0 })
  const before = new Set<number>()
  let chosen = 0
  for await (const _ of trainer.updates({ totalSteps: 40 * LANES * STEPS })) {
    const columnOf = (name: string) => trainer.rollout.table.fields.find((field) => field.name === name)!.column
    const [levels, steps] = [columnOf('prioritizedLevels.level'), columnOf('step')]
    for (let row = LANES; row < levels.length && before.size < LEVELS; row++) {
      if (Number(steps[row]) !== 0) continue
      chosen++
      expect(before).not.toContain(Number(levels[row]))
    }
    for (const [level, last] of column('lastEpisode').entries()) if (last > 0) before.add(level)
  }
  expect(before.size).toBe(LEVELS)
  expect(chosen).toBeGreaterThan(LEVELS / 2)
})

describe('levels', () => {
  /** The levels and fields of all lanes, after some steps with a system that chooses level `10 · lane + episode`, modulo the number. */
  async function played(seed: number, given: object) {
    const chosen = defineSystem({
      id: 'chosen',
      settings: {},
      make: () => ({
        before: 'reset',
        run({ nextLevel, lane, episode, levels }, from, to) {
          for (let n = from; n < to; n++) nextLevel[n] = 1 + ((10 * lane[n]! + episode[n]!) % levels)
        },
      }),
    })
    const policy = mlp({ hidden: [4] })
    const world = await createWorld({
      environment: environment(),
      policy,
      numLanes: 4,
      seed,
      systems: [chosen()] as never,
      ...given,
    })
    const trainer = createTrainer(world, ppo({ numSteps: 60 }))
    for await (const _ of trainer.updates({ totalSteps: 240 }));
    const { level, fields } = world.cohort().state as unknown as { level: Int32Array; fields: Uint8Array }
    return Array.from(level, (each, n) => [each, fields.slice(25 * n, 25 * (n + 1)).join('')] as const)
  }

  test('a system of one’s own chooses them, and a level is the same in every lane, episode and run', async () => {
    const first = await played(1, {})
    const second = await played(2, {})
    const layouts = new Map(first)
    expect(layouts.size).toBeGreaterThan(1)
    for (const [level, fields] of second) if (layouts.has(level)) expect(fields).toBe(layouts.get(level))
    expect(new Set(layouts.values()).size).toBeGreaterThan(1)
  })

  test('without a system an environment draws each of them about as often, and others from its first level on', async () => {
    const layoutsFrom = async (firstLevel: number) => {
      const layouts = new Map<number, string>()
      const counts = new Float64Array(4)
      const own = defineSystem({
        id: 'own',
        settings: {},
        make: () => ({
          after: 'reset',
          run({ state, step, level }, from, to) {
            const { fields } = state as { fields: Uint8Array }
            for (let n = from; n < to; n++) {
              if (step[n] !== 0) continue
              counts[level[n]!]!++
              layouts.set(level[n]!, fields.slice(81 * n, 81 * (n + 1)).join(''))
            }
          },
        }),
      })
      const short = wrap(maze({ levels: 4, firstLevel }), timeLimit({ maxEpisodeSteps: 2 }))
      const world = await createWorld({
        environment: short,
        policy: mlp({ hidden: [4] }),
        numLanes: 16,
        systems: [own()] as never,
      })
      const trainer = createTrainer(world, ppo({ numSteps: 50 }))
      for await (const _ of trainer.updates({ totalSteps: 800 }));
      return { layouts, counts }
    }
    const { layouts, counts } = await layoutsFrom(0)
    expect(new Set(layouts.values()).size).toBe(4)
    for (const count of counts) expect(Math.abs(count - 100)).toBeLessThan(40)
    const later = await layoutsFrom(3)
    expect(later.layouts.get(0)).toBe(layouts.get(3))
    expect([...layouts.values()]).not.toContain(later.layouts.get(1))
  })

  test('what does not fit is refused by name', async () => {
    const train = async (options: object, numSteps = 4) => {
      const world = await createWorld({ policy: mlp({ hidden: [4] }), numLanes: 2, ...options } as never)
      for await (const _ of createTrainer(world, ppo({ numSteps })).updates({ totalSteps: 2 * numSteps }));
    }
    const systems = [prioritizedLevels({ levels: 7 })]
    const made = (options: object) => createWorld({ policy: mlp({ hidden: [4] }), numLanes: 2, ...options } as never)
    await expect(made({ environment: environment(), systems })).rejects.toThrow(
      `prioritizedLevels.levels: got 7, and an environment with ${LEVELS}, expected ${LEVELS}`,
    )
    await expect(made({ environment: cartPole(), systems })).rejects.toThrow(
      'prioritizedLevels.levels: got 7, and an environment with none, expected one with levels',
    )
    const wild = defineSystem({
      id: 'wild',
      settings: {},
      make: () => ({
        before: 'reset',
        run({ nextLevel }) {
          nextLevel.fill(LEVELS + 1)
        },
      }),
    })
    await expect(train({ environment: environment(), systems: [wild()] })).rejects.toThrow(
      `nextLevel of lane 0: got ${LEVELS + 1}, expected 1 + a level from 0 to ${LEVELS - 1}, or 0`,
    )
    const own = (levels: unknown, state: object) =>
      defineEnvironment({
        id: 'Own-v0',
        settings: {},
        state: () => state as typeof LEVEL_STATE,
        make: () => ({
          ...{ observationSpace: box({ low: 0, high: 1 }), actionSpace: discrete(2), levels: levels as number },
          ...{ maxEpisodeSteps: 3, returnThreshold: null },
          reset(lanes, rows, count) {
            for (let i = 0; i < count; i++) lanes.observation[rows[i]!] = beginLevel(lanes as never, rows[i]!, 2)
          },
          step({ observation, reward }, from, to) {
            observation.fill(0, from, to)
            reward.fill(0, from, to)
          },
        }),
      })()
    expect(() => own(0, LEVEL_STATE)).toThrow('Own-v0 levels: got 0, expected a whole number ≥ 1')
    expect(() => own(2, { level: 'i32' })).toThrow(
      "Own-v0 levels: got a state without nextLevel: 'i32', expected LEVEL_STATE in it",
    )
    await train({ environment: own(2, LEVEL_STATE) })
  })
})
