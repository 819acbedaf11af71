import { describe, expect, test } from 'vitest'
import { box, createTrainer, createWorld, defineEnvironment, InputError, mlp, ppo, tick } from '../../src/index.ts'
import { doors } from '../support/doors.ts'

const options = { environment: doors(), policy: mlp({ hidden: [8] }), seed: 5 }

describe('an environment with an action mask', () => {
  test.each(['same-step', 'next-step', 'disabled'] as const)('never gets an illegal action (%s)', async (autoreset) => {
    const world = await createWorld({ ...options, numLanes: 33, autoreset })
    const cohort = world.cohorts[0]!
    let acted = 0
    for (let t = 0; t < 40; t++) {
      tick(world)
      for (let n = 0; n < 33; n++) {
        if (cohort.transition.valid[n] === 0) continue
        expect(cohort.transition.reward[n]).toBe(1)
        acted++
      }
    }
    expect(acted).toBeGreaterThanOrEqual(autoreset === 'disabled' ? 33 * 7 : 33 * 30)
  })

  test('has its masks in the rollout and its table, and is learned', async () => {
    const world = await createWorld({ ...options, numLanes: 64 })
    const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2 }))
    for await (const { policyLoss } of trainer.updates({ totalSteps: 3 * 1024 })) expect(policyLoss).not.toBeNaN()
    const { fields, numRows } = trainer.rollout.table
    const find = (name: string) => fields.find((field) => field.name === name)!
    const mask = find('actionMask')
    expect(mask.width).toBe(6)
    const action = find('action').column
    for (let row = 0; row < numRows; row++) {
      for (let k = 0; k < 2; k++) {
        const locked = find('observation').column[2 * row + k]!
        expect([...mask.column.subarray(6 * row + 3 * k, 6 * row + 3 * k + 3)]).toEqual(
          [0, 1, 2].map((j) => +(j !== locked)),
        )
        expect(action[2 * row + k]).not.toBe(locked)
      }
    }
    expect(find('reward').column.every((reward) => reward === 1)).toBe(true)
  })

  test('that leaves a lane no way out is named with the lane, the episode and the step', async () => {
    const world = await createWorld({ ...options, environment: doors({ trap: 2 }), numLanes: 3 })
    for (let t = 0; t < 3; t++) tick(world)
    expect(() => tick(world)).toThrow(InputError)
    expect(() => tick(world)).toThrow(
      'environment Doors-v0: got an action mask without a legal choice in lane 1 (episode 0, step 3), expected at least one',
    )
  })

  test('gets no illegal action from a policy that ignores the mask', async () => {
    const world = await createWorld({ ...options, numLanes: 3 })
    const cohort = world.cohorts[0]!
    const { infer } = cohort.policy
    cohort.policy.infer = (lanes, ...rest) => {
      infer.call(cohort.policy, lanes, ...rest)
      lanes.action.chosen[3] = 1 // Lane 1, second dimension: the door that is locked at its first step.
    }
    expect(() => tick(world)).toThrow(
      'policy mlp: got 1 in action[1] of lane 1 (episode 0, step 0), expected a choice allowed by the action mask',
    )
  })

  test('needs choices to mask', () => {
    const masked = defineEnvironment({
      id: 'Masked-box-v0',
      settings: {},
      state: () => ({}),
      make: () => ({
        observationSpace: box({ low: 0, high: 1 }),
        actionSpace: box({ low: 0, high: 1 }),
        actionMask: true,
        maxEpisodeSteps: 1,
        returnThreshold: null,
        reset() {},
        step() {},
      }),
    })
    expect(() => masked()).toThrow(/Masked-box-v0 actionMask: got .+box.+, expected an action space of choices/)
  })
})
