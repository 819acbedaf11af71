import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { fromMujoco, listEnvironments } from '../../src/entries/environments.ts'
import { createTrainer, createWorld, mlp, ppo } from '../../src/index.ts'
import { differences, lanesOf, type MujocoRecording } from '../support/mujoco-golden.ts'
import { thorough } from '../support/tiers.ts'

const file = new URL('../golden/mujoco.json', import.meta.url)
const { environments }: MujocoRecording = JSON.parse(readFileSync(file, 'utf8'))

test.each(Object.entries(environments))(
  'a step of %s from recorded full states is Gymnasium’s',
  async (id, recorded) => {
    const { state, observation, reward, terminated } = await differences(id, recorded)
    expect(state).toBeLessThan(1e-9)
    expect(observation).toBeLessThan(1e-6)
    expect(reward).toBeLessThan(1e-6)
    expect(terminated).toBe(0)
  },
)

test('every environment of MuJoCo is recorded', () => {
  expect(Object.keys(environments)).toEqual(
    listEnvironments()
      .filter((id) => id.endsWith('-v5'))
      .toSorted(),
  )
})

test('a lane’s bits do not depend on the lanes before it, which leave the solver elsewhere', async () => {
  const { environment, lanes, stateWidth } = await lanesOf('HalfCheetah-v5', 3)
  const { states, actions } = environments['HalfCheetah-v5']!
  const stepped = (order: readonly number[]) => {
    lanes.state.simulation.set(states.flat())
    lanes.action.set(actions.flat())
    for (const n of order) environment.step(lanes, n, n + 1)
    return lanes.state.simulation.slice()
  }
  const expected = stepped([0, 1, 2])
  expect(stepped([2, 0, 1])).toEqual(expected)
  expect(expected.subarray(0, stateWidth)).not.toEqual(expected.subarray(stateWidth, 2 * stateWidth))
})

test('the solver’s warm start acts, so it is part of a lane’s state', async () => {
  const { environment, lanes } = await lanesOf('Ant-v5', 3)
  const { states, actions } = environments['Ant-v5']!
  const stepped = (from: readonly number[][]) => {
    lanes.state.simulation.set(from.flat())
    lanes.action.set(actions.flat())
    environment.step(lanes, 0, 3)
    return lanes.state.simulation.slice()
  }
  const [first, width] = [1 + 15 + 14, 14]
  const cold = states.map((state) => state.map((each, i) => (i >= first && i < first + width ? 0 : each)))
  const [expected, got] = [stepped(states), stepped(cold)]
  const apart = got.map((each, i) => Math.abs(each - expected[i]!))
  expect(Math.max(...apart)).toBeGreaterThan(0)
  expect(Math.max(...apart.subarray(0, first))).toBeLessThan(1e-3)
})

thorough('one and two threads leave the same bits', async () => {
  const train = async (threads: number) => {
    const { halfCheetah } = await import('../../dist/src/entries/environments.js')
    const built = await import('../../dist/src/index.js')
    const environment = halfCheetah({ maxEpisodeSteps: 30 })
    const world = await built.createWorld({ environment, policy: built.mlp({ hidden: [8] }), numLanes: 6, seed: 3 })
    const trainer = built.createTrainer(world, built.ppo({ numSteps: 16, numMinibatches: 2 }), { threads })
    for await (const _ of trainer.updates({ totalSteps: 6 * 16 * 4 }));
    const weights = [...world.cohort().weights]
    trainer.close()
    return weights
  }
  expect(await train(2)).toEqual(await train(1))
})

const PENDULUM = `<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body>
      <joint name="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.5" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-2 3"/></actuator>
</mujoco>`

describe('a model of one’s own', () => {
  const options = { id: 'Mine-v0', model: PENDULUM, frameSkip: 2, maxEpisodeSteps: 50 } as const

  test('is trained, with actions within its controls and its joints as observation', async () => {
    const mine = await fromMujoco({
      ...options,
      begin: ({ data }, noise) => {
        data.qpos[0] = noise.uniform(1, 2)
      },
      reward: ({ data }) => -(data.qpos[0]! ** 2),
      isOver: ({ data }) => data.qpos[0]! < -2.5,
    })
    const environment = mine()
    expect(environment.actionSpace).toMatchObject({ low: [-2], high: [3] })
    const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes: 4, seed: 1 })
    const trainer = createTrainer(world, ppo({ numSteps: 20 }))
    for await (const _ of trainer.updates({ totalSteps: 4 * 20 * 2 })) {
      const { observation, reward } = world.cohort().rollout as { observation: Float32Array; reward: Float32Array }
      // The reward is that of the joint after the step, which is in the next row.
      for (let row = 0; row < reward.length - 4; row++) {
        const next = observation[2 * (row + 4)]!
        if (world.cohort().rollout.terminated[row] || world.cohort().rollout.truncated[row]) continue
        expect(reward[row]).toBeCloseTo(-(next ** 2), 5)
      }
    }
    // Energy: the pole falls as the formula of its period says, without torque: T = 2π √(I / (m g d)).
    const { state, observation, action } = await undriven(environment)
    let crossings = 0
    let [first, last] = [0, 0]
    for (let t = 1; t <= 300; t++) {
      const before = observation[0]!
      environment.step(state, 0, 1)
      if (before > 0 === observation[0]! > 0) continue
      crossings++
      if (crossings === 1) first = t
      last = t
    }
    expect(action[0]).toBe(0)
    const period = (2 * (last - first) * 0.02) / (crossings - 1)
    // A capsule of length 0.5 with round ends of radius 0.05, about its end: I ≈ m (L² / 3 + r² / 4) within a tenth.
    const inertia = 0.5 ** 2 / 3 + 0.05 ** 2 / 4
    expect(period / (2 * Math.PI * Math.sqrt(inertia / (9.81 * 0.25)))).toBeCloseTo(1, 1)
  })

  test('that cannot be is refused', async () => {
    const refused = (more: object) => expect(fromMujoco({ ...options, reward: () => 0, ...more } as never)).rejects
    await refused({ model: '<mujoco><bodies/></mujoco>' }).toThrow(
      'environment Mine-v0 model: got MuJoCo Error: Loading error: XML Error: Schema violation',
    )
    await refused({ model: '<mujoco><worldbody/></mujoco>' }).toThrow('no actuator')
    await refused({ model: PENDULUM.replace(' ctrlrange="-2 3"', '') }).toThrow('actuator 0: got no ctrlrange')
    await refused({ reward: undefined }).toThrow('environment Mine-v0 reward: got undefined, expected a function')
    await refused({ frameSkip: 0 }).toThrow('frameSkip: got 0')
    await refused({ observationWidth: 3 }).toThrow('observationWidth: got 3')
    await refused({ rewards: 1 }).toThrow('option of fromMujoco: got "rewards"')
  })
})

/** A lane near the lowest point, at rest, without torque or damping's share of the motion. */
async function undriven(environment: Awaited<ReturnType<typeof lanesOf>>['environment']) {
  const [, stateWidth] = environment.state.simulation as unknown as [string, number]
  const state = { simulation: new Float64Array(stateWidth), measured: new Float64Array(1) }
  state.simulation[1] = 0.1
  const observation = new Float32Array(2)
  const action = new Float32Array(1)
  const [reward, flags] = [new Float32Array(1), new Uint8Array(1)]
  const lanes = { state, observation, action, reward, terminated: flags, lane: new Uint32Array(1) }
  return { state: lanes as never, observation, action }
}
