/**
 * `npm run bench -- population`: lanes that come and go. A cohort a third alive beside a full one of that size, and what births and
 * deaths cost: those that the program asks for, and those by an environment within a rollout.
 */

import { integer } from '../../src/entries/settings.ts'
import {
  box,
  cartPole,
  collect,
  createTrainer,
  createWorld,
  defineEnvironment,
  despawn,
  discrete,
  type EpisodeCohort,
  mlp,
  ppo,
  spawn,
  tick,
  type World,
} from '../../src/index.ts'
import { check, type Figure, figure, interleave, ratio, secondsOf } from '../measure.ts'
import { reportRoom } from '../report.ts'

const CAPACITY = 4096
const ALIVE = Math.floor(CAPACITY / 3)
const CHANGES = 1000

async function updates(lanes: { numLanes: number; present?: number }): Promise<() => Promise<number>> {
  const world = await createWorld({ environment: cartPole(), policy: mlp(), seed: 1, ...lanes })
  const settings = { numMinibatches: 8, updateEpochs: 4, learningRateSchedule: 'constant' } as const
  const trainer = createTrainer(world, ppo({ numSteps: 32, ...settings }))
  const updates = trainer.updates({ totalSteps: Number.MAX_SAFE_INTEGER })
  return async () => {
    const start = performance.now()
    await updates.next()
    return (performance.now() - start) / 1000
  }
}

/** Seconds in which so many lanes go, as many come, and the rows follow. */
async function turnover(): Promise<() => number> {
  const world = (await createWorld({
    ...{ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: CAPACITY, present: ALIVE },
    seed: 1,
  })) as World<EpisodeCohort>
  const cohort = world.cohort()
  tick(world)
  return () => {
    const quiet = secondsOf(() => tick(world))
    const changed = secondsOf(() => {
      // Every one that goes leaves a hole that the others close.
      despawn(cohort, cohort.lanes.slice(0, CHANGES))
      spawn(cohort, CHANGES)
      tick(world)
    })
    check(cohort.present === ALIVE && cohort.episode.step[ALIVE - 1] === 1, 'the last lanes are new')
    return changed - quiet
  }
}

const NUM_STEPS = 8

/**
 * Lanes without dynamics. In each rollout of `NUM_STEPS` as many as `mortal`, those in the last rows, have a child each and die: an
 * eighth of them in each step.
 */
const mayfly = defineEnvironment({
  id: 'Mayfly-v0',
  settings: { mortal: integer(CHANGES, 'lanes that die in a rollout', { min: 0 }) },
  state: () => ({ energy: 'f32' }),
  make: ({ mortal }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [2] }),
    actionSpace: discrete(2),
    population: true,
    maxEpisodeSteps: null,
    returnThreshold: null,
    reset({ state, observation }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        state.energy[n] = 1
        observation[2 * n] = observation[2 * n + 1] = 1
      }
    },
    step({ reward, terminated, died, births, step, present }, from, to) {
      for (let n = from; n < to; n++) {
        reward[n] = 1
        const dies = n >= present - mortal && step[n]! % NUM_STEPS === n % NUM_STEPS
        died[n] = terminated[n] = births[n] = dies ? 1 : 0
      }
    },
  }),
})

/** Seconds of processor time of a rollout of `ALIVE` lanes, of which as many as `mortal` die and have a child. */
async function generations(mortal: number): Promise<() => Promise<number>> {
  const world = (await createWorld({
    ...{ environment: mayfly({ mortal }), policy: mlp({ hidden: [4] }), numLanes: CAPACITY, present: ALIVE },
    seed: 1,
  })) as World<EpisodeCohort>
  world.reserve(world.draft(), { numSteps: NUM_STEPS, learner: {} })
  const cohort = world.cohort()
  await collect(world, NUM_STEPS) // Those who die in a rollout become entities and rows when the next one begins.
  return async () => {
    const before = cohort.population!.numbered[0]!
    const start = process.cpuUsage()
    await collect(world, NUM_STEPS)
    const { user, system } = process.cpuUsage(start)
    const seconds = (user + system) / 1e6
    const born = cohort.population!.numbered[0]! - before
    check(born === mortal && cohort.present === ALIVE, `${mortal} are born in a rollout, not ${born}`)
    return seconds
  }
}

/** Figures of cohorts whose lanes come and go. */
async function populationFigures(): Promise<Figure[]> {
  const runners = {
    third: await updates({ numLanes: CAPACITY, present: ALIVE }),
    full: await updates({ numLanes: ALIVE }),
  }
  const { third, full } = await interleave(runners, { repeats: 15, warmups: 3 })
  const changes = await interleave({ turnover: await turnover() }, { repeats: 25, warmups: 5 })
  const rollouts = await interleave(
    { mortal: await generations(CHANGES), immortal: await generations(0) },
    { repeats: 200, warmups: 40 },
  )
  const name = `CartPole-v1, ${CAPACITY} lanes × 32 steps, ${ALIVE} of them there`
  return [
    {
      ...figure(
        `${name}, an update`,
        'ms',
        third.map((seconds) => 1000 * seconds),
      ),
      ratios: [ratio(`as fast as ${ALIVE} lanes that are all there`, full, third, { atLeast: 1 / 1.2 })],
    },
    figure(
      `${CHANGES} lanes go and ${CHANGES} come, of ${ALIVE}`,
      'ms',
      changes.turnover.map((s) => 1000 * s),
      { atMost: 10 },
    ),
    figure(
      `${CHANGES} of ${ALIVE} lanes have a child and die in a rollout of ${NUM_STEPS} steps, beyond one without: processor time`,
      'ms',
      rollouts.mortal.map((seconds, i) => 1000 * (seconds - rollouts.immortal[i]!)),
      { atMost: 10 },
    ),
    figure(
      'the whole of such a rollout: processor time',
      'ms',
      rollouts.mortal.map((seconds) => 1000 * seconds),
    ),
  ]
}

reportRoom('population', await populationFigures())
