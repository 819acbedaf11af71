/** Our MuJoCo beside Gymnasium's where it is installed: one step from each of 1,000 full states, 200 steps in a row, and starts. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { differences, lanesOf, type MujocoRecording } from '../support/mujoco-golden.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const script = new URL('../golden/record_mujoco.py', import.meta.url).pathname
const golden: MujocoRecording = JSON.parse(readFileSync(new URL('../golden/mujoco.json', import.meta.url), 'utf8'))

let why: string | undefined
let live: MujocoRecording

beforeAll(async () => {
  const found = await findInstalled('gymnasium.envs.mujoco, mujoco, numpy')
  if ('why' in found) {
    why = `Gymnasium's MuJoCo (${found.why})`
    console.warn(`SKIPPED: ${why}`)
    return
  }
  const folder = await temporaryFolder()
  const { code, stderr } = await attempt(found.python, [script, folder, '100'])
  expect(code, stderr).toBe(0)
  live = JSON.parse(readFileSync(join(folder, 'mujoco.json'), 'utf8'))
}, PYTHON_MS)

describe.each(Object.keys(golden.environments))('%s', (id) => {
  test('does what Gymnasium’s does', async ({ skip }) => {
    if (why !== undefined) skip(why)
    expect(live.versions.mujoco).toBe(golden.versions.mujoco)
    const recorded = live.environments[id]!
    expect(recorded.states).toHaveLength(100)
    const one = await differences(id, recorded)
    expect(one.state).toBeLessThan(1e-9)
    expect(one.observation).toBeLessThan(1e-6)
    expect(one.reward).toBeLessThan(1e-6)
    expect(one.terminated).toBe(0)

    const { environment, lanes } = await lanesOf(id, 1)
    const { state, actions, positions } = recorded.path!
    lanes.state.simulation.set(state)
    const apart = actions.map((action, t) => {
      lanes.action.set(action)
      environment.step(lanes, 0, 1)
      return Math.max(...positions[t]!.map((each, i) => Math.abs(each - lanes.state.simulation[1 + i]!)))
    })
    // Contacts multiply last bits, in Gymnasium's own two builds, too: only the first steps are held.
    expect(apart[9]).toBeLessThan(1e-9)
    const told = [10, 50, 100, 200].map((t) => `${t}: ${apart[t - 1]!.toExponential(0)}`).join(', ')
    console.log(`${id}: a step apart by ${one.state.toExponential(0)}; positions after steps ${told}`)

    const count = 2000
    const many = await lanesOf(id, count)
    many.environment.reset(
      many.lanes,
      Uint32Array.from({ length: count }, (_, i) => i),
      count,
    )
    const starts = recorded.starts!
    const width = many.stateWidth
    for (let k = 0; k < starts[0]!.length; k++) {
      const theirs = starts.map((start) => start[k]!)
      const ours = Array.from({ length: count }, (_, n) => many.lanes.state.simulation[n * width + 1 + k]!)
      const mean = (of: readonly number[]) => of.reduce((sum, each) => sum + each, 0) / of.length
      const deviation = (of: readonly number[]) => Math.sqrt(mean(of.map((each) => (each - mean(of)) ** 2)))
      // Of 50 starts the mean is within 0.6 deviations, and the deviation within 0.5 of itself, in all of 130 columns.
      expect(Math.abs(mean(theirs) - mean(ours)), `${k}`).toBeLessThanOrEqual(0.7 * deviation(ours) + 1e-12)
      expect(Math.abs(deviation(theirs) - deviation(ours)), `${k}`).toBeLessThanOrEqual(0.5 * deviation(ours) + 1e-12)
    }
  })
})
