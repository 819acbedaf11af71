/** Systems of one's own: when they run, over what, in which thread, and what is kept and recorded of them. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromIPC } from 'apache-arrow'
import { query } from 'bitecs'
import { describe, expect, test } from 'vitest'
import { curiosity, hallway } from '../examples/curiosity.ts'
import { number } from '../src/entries/settings.ts'
import {
  cartPole,
  collect,
  createTrainer,
  createWorld,
  defineSystem,
  despawn,
  type EpisodeCohort,
  mlp,
  Present,
  ppo,
  type SystemDefinition,
  spawn,
  type Trainer,
  tick,
  writeArrow,
} from '../src/index.ts'
import { later } from './support/later.ts'
import { advanceTo, columnsOf } from './support/small-training.ts'
import { temporaryFolder } from './support/temporary.ts'

const policy = mlp({ hidden: [8] })

/** Gives each row a bonus that halves with each rollout, in the caller's thread. */
const fading = defineSystem({
  id: 'fading',
  settings: { first: number(1, 'bonus of the first rollout') },
  shared: () => ({ rollouts: 'i32' }),
  recorded: () => ({ pair: ['f32', 2] }),
  make: ({ first }) => ({
    afterRollout({ rollout, shared, recorded, numLanes, present }) {
      const bonus = first / 2 ** shared.rollouts[0]!
      shared.rollouts[0]!++
      for (let row = 0; row < rollout.reward.length; row++) {
        const isThere = row % numLanes < present
        recorded.pair[2 * row] = isThere ? bonus : -1
        recorded.pair[2 * row + 1] = row
        if (isThere) rollout.reward[row]! += bonus
      }
    },
  }),
})

async function begin(systems: readonly SystemDefinition[], options = {}, threads = 1): Promise<Trainer<EpisodeCohort>> {
  const world = await createWorld({
    ...{ environment: hallway({ length: 10 }), policy, numLanes: 12, seed: 4, systems },
    ...options,
  })
  const learner = ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 2, learningRate: 3e-3 })
  return createTrainer(world, learner, { threads }) as Trainer<EpisodeCohort>
}

describe('a system of one’s own', () => {
  test.each(['at once', 'later'])('runs before or after one of the four, of a policy that answers %s', async (kind) => {
    const calls: string[] = []
    const at = (side: 'before' | 'after', name: 'reset' | 'infer' | 'step' | 'store') =>
      defineSystem({
        id: `${side} ${name}`,
        settings: {},
        make: () => ({
          [side]: name,
          run: ({ step, valid, reward, observation, nextObservation }, from, to) => {
            expect([from, to]).toEqual([0, 2])
            calls.push(`${side} ${name} ${step[0]} ${valid[0]} ${reward[0]} ${observation === nextObservation}`)
          },
        }),
      })()
    const names = ['store', 'step', 'infer', 'reset'] as const
    const systems = names.flatMap((name) => [at('after', name), at('before', name)])
    const acting = kind === 'later' ? later() : policy
    const world = await createWorld({ environment: cartPole(), policy: acting, numLanes: 2, systems })
    world.reserve(world.draft(), { numSteps: 2, learner: {} })
    await collect(world, 1)
    expect(calls).toEqual([
      'before reset 0 0 0 false',
      'after reset 0 0 0 false',
      'before infer 0 0 0 false',
      'after infer 0 0 0 false',
      'before step 0 0 0 false',
      'after step 0 1 1 false',
      'before store 0 1 1 false',
      'after store 1 1 1 false',
    ])
  })

  test('sees a rollout when it is full, also where it is collected in parts', async () => {
    const world = await createWorld({ environment: hallway(), policy, numLanes: 3, systems: [fading()] })
    world.reserve(world.draft(), { numSteps: 2, learner: {} })
    const { rollouts } = world.cohort().systems[0]!.rollout.shared as { rollouts: Int32Array }
    const seen = []
    for (let part = 0; part < 4; part++) {
      await collect(world, 1)
      seen.push(rollouts[0])
    }
    expect(seen).toEqual([0, 1, 1, 2])
  })

  test('has a component on the lanes of its cohort, and columns with names in the plan and in the table', async () => {
    const trainer = await begin([curiosity({ cells: 10 }), fading()], { present: 7 })
    const { world } = trainer
    await advanceTo(trainer, 2)
    const cohort = world.cohort()
    const own = cohort.systems[0]!.lanes.own as { visits: Uint32Array }
    expect([...query(world.ecs, [own, Present])].sort((a, b) => a - b)).toEqual([...cohort.lanes])
    expect(world.plan().find(({ name }) => name === 'mlp.systems.curiosity.state.visits')).toMatchObject({
      ...{ rows: 12, width: 10, saved: true },
    })
    // Each lane has been in as many cells as it took steps; nobody was in rows in which nobody is.
    const visits = Array.from({ length: 12 }, (_, n) =>
      own.visits.subarray(10 * n, 10 * (n + 1)).reduce((a, b) => a + b),
    )
    expect(visits).toEqual([...Array(7).fill(32), ...Array(5).fill(0)])

    const path = join(await temporaryFolder(), 'rollout.arrow')
    await writeArrow(path, trainer.rollout.table)
    const table = tableFromIPC(await readFile(path))
    const names = table.schema.fields.map(({ name }) => name)
    expect(names.slice(-3)).toEqual(['version', 'curiosity.bonus', 'fading.pair'])
    const pairs = [...table.getChild('fading.pair')!].map((pair) => [...pair])
    expect(pairs).toEqual(Array.from({ length: 192 }, (_, row) => [row % 12 < 7 ? 0.5 : -1, row]))
    // What is learned from is the environment's reward and both bonuses; the return of episodes is the environment's alone.
    const [reward, bonus, valid, episodeReturn] = ['reward', 'curiosity.bonus', 'valid', 'episodeReturn'].map(
      (name) => [...table.getChild(name)!],
    ) as [number[], number[], number[], number[]]
    for (const [row, isValid] of valid.entries()) {
      if (!isValid) continue
      expect(bonus[row]).toBeGreaterThan(0)
      expect([0, 1]).toContain(Math.round((reward[row]! - bonus[row]! - 0.5) * 1e5) / 1e5)
      expect([0, 1]).toContain(episodeReturn[row])
    }
  })

  test('finds zeros in the columns of a lane that is new, whoever had its row', async () => {
    const trainer = await begin([curiosity({ cells: 10 })], { present: 4 })
    const cohort = trainer.world.cohort()
    await advanceTo(trainer, 1)
    const own = cohort.systems[0]!.lanes.own as { visits: Uint32Array }
    const kept = [...own.visits.subarray(20, 40)]
    despawn(cohort, cohort.lanes.slice(0, 2))
    spawn(cohort, 3)
    await trainer.save(await temporaryFolder()) // Settles who is there.
    expect(cohort.lanes).toHaveLength(5)
    expect([...own.visits]).toEqual([...kept, ...Array(100).fill(0)])
  })

  test('leaves the same bits with 1 to 4 threads, and after a checkpoint, in a population too', async () => {
    const systems = [curiosity({ cells: 10, scale: 0.1 }), fading()]
    const options = { present: 9 }
    const whole = async (threads: number) => {
      const trainer = await begin(systems, options, threads)
      await advanceTo(trainer, 3)
      spawn(trainer.world.cohort(), 2)
      await advanceTo(trainer, 8)
      trainer.close()
      return columnsOf(trainer)
    }
    const alone = await whole(1)
    for (const threads of [2, 4]) expect(await whole(threads), `${threads} threads`).toEqual(alone)
    const folder = await temporaryFolder()
    const first = await begin(systems, options)
    await advanceTo(first, 3)
    spawn(first.world.cohort(), 2)
    await first.save(folder)
    const again = await begin(systems, options)
    await again.restore(folder)
    await advanceTo(again, 8)
    expect(columnsOf(again)).toEqual(alone)
    const plain = await begin([curiosity({ cells: 10, scale: 0 }), fading()], options)
    await expect(plain.restore(folder)).rejects.toThrow(/systems/)
    await advanceTo(plain, 8)
    const weights = (state: string[][]) => state.find(([name]) => name === 'mlp.weights')
    expect(weights(columnsOf(plain) as string[][])).not.toEqual(weights(alone as string[][]))
  })

  test('that runs in every thread needs a module, one that only sees whole rollouts does not', async () => {
    const homeless = defineSystem({ id: 'homeless', settings: {}, make: () => ({ after: 'step', run() {} }) })
    await expect(begin([homeless()], {}, 2)).rejects.toThrow('system homeless: got no module, and 2 threads')
    const trainer = await begin([fading()], {}, 2)
    await advanceTo(trainer, 1)
    trainer.close()
  })

  test.each([
    ['reward', Number.NaN],
    ['reward', 2 ** 51],
    ['terminated', 2],
  ] as const)('that writes %s %d is named', async (column, value) => {
    const broken = (hasRun: boolean) =>
      defineSystem({
        id: 'broken',
        settings: {},
        make: () => {
          const write = (columns: Record<typeof column, { [row: number]: number }>) => {
            columns[column][1] = value
          }
          return hasRun ? { after: 'step', run: write } : { afterRollout: ({ rollout }) => write(rollout) }
        },
      })()
    const message =
      /^system broken of cohort mlp: got reward .+ in lane 1 \(episode 0, step 0.*, expected a finite reward/
    const world = await createWorld({ environment: hallway(), policy, numLanes: 2, systems: [broken(true)] })
    expect(() => tick(world)).toThrow(message)
    await expect(advanceTo(await begin([broken(false)]), 1)).rejects.toThrow(message)
  })

  test('that is none is refused', async () => {
    const define = (model: object) => () => defineSystem({ id: 'wrong', settings: {}, make: () => model })()
    const run = () => {}
    expect(define({})).toThrow('system wrong: got neither run nor afterRollout, expected run, afterRollout or both')
    expect(define({ run })).toThrow('system wrong place: got none, expected either before or after')
    expect(define({ run, before: 'step', after: 'step' })).toThrow('got before step, after step')
    expect(define({ run, before: 'steps' })).toThrow('system wrong place: got "steps"')
    expect(define({ afterRollout: run, before: 'step' })).toThrow('expected none without run')
    expect(define({ run: 7, before: 'step' })).toThrow('system wrong run: got 7, expected a function')
    const options = { environment: cartPole(), policy, numLanes: 1 }
    const wrong = (systems: unknown) => createWorld({ ...options, systems: systems as never })
    await expect(wrong({})).rejects.toThrow('systems: got {}, expected a list of systems')
    await expect(wrong([fading])).rejects.toThrow('expected systems made by factories of defineSystem')
    await expect(wrong([fading(), fading({ first: 2 })])).rejects.toThrow(
      'systems: got fading twice, expected each once',
    )
  })
})
