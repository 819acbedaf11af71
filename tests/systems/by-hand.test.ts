import { describe, expect, test } from 'vitest'
import { bootstrap, cartPole, collect, createWorld, infer, mlp, reset, step, store } from '../../src/index.ts'

const NUM_LANES = 3
const NUM_STEPS = 8
const worldOf = () =>
  createWorld({
    environment: cartPole({ maxEpisodeSteps: 3 }),
    policy: mlp({ hidden: [4] }),
    numLanes: NUM_LANES,
    seed: 5,
  })

describe('the four systems, called by hand', () => {
  test('fill the rollout that collect fills', async () => {
    const [hand, collected] = [await worldOf(), await worldOf()]
    collect(collected, NUM_STEPS)
    for (let t = 0; t < NUM_STEPS; t++) {
      reset(hand)
      infer(hand)
      step(hand)
      store(hand)
    }
    bootstrap(hand)
    const [a, b] = [hand.cohort(), collected.cohort()]
    expect(a.observation.current.length).toBe(4 * NUM_LANES)
    expect(a.observation.current).toEqual(b.observation.current)
    expect(a.transition.reward).toEqual(b.transition.reward)
  })

  test('each do their own: only step moves the environment, and only store counts the row', async () => {
    const world = await worldOf()
    const cohort = world.cohort()
    reset(world)
    const begun = cohort.observation.current.slice()
    expect(begun.some((value) => value !== 0)).toBe(true)
    infer(world)
    expect(cohort.observation.current).toEqual(begun)
    step(world)
    expect(cohort.observation.next).not.toEqual(begun)
    store(world)
    expect(cohort.observation.current).not.toEqual(begun)
  })
})
