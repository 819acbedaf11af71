/** Lanes that come and go: a cohort a third alive beside a full one of that size, and what births and deaths cost. */
import {
  cartPole,
  createTrainer,
  createWorld,
  despawn,
  type EpisodeCohort,
  mlp,
  ppo,
  spawn,
  tick,
  type World,
} from '../../src/index.ts'
import { check, type Figure, figure, interleave, ratio, secondsOf } from '../measure.ts'

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

/** Figures of cohorts whose lanes come and go. */
export async function populationFigures(): Promise<Figure[]> {
  const runners = {
    third: await updates({ numLanes: CAPACITY, present: ALIVE }),
    full: await updates({ numLanes: ALIVE }),
  }
  const { third, full } = await interleave(runners, { repeats: 15, warmups: 3 })
  const changes = await interleave({ turnover: await turnover() }, { repeats: 25, warmups: 5 })
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
  ]
}
