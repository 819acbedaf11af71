/** Steps of Gymnasium's MuJoCo environments, as `tests/golden/record_mujoco.py` wrote them, beside our own from the same states. */
import { Random } from '../../src/base/random.ts'
import { spaceWidth } from '../../src/base/space.ts'
import { createEnvironment } from '../../src/entries/environments.ts'
import type { Lanes } from '../../src/environments/environment.ts'
import { createKernels } from '../../src/kernels/bind.ts'

export interface RecordedSteps {
  readonly states: readonly number[][]
  readonly measured: readonly number[]
  readonly actions: readonly number[][]
  readonly after: readonly number[][]
  readonly observations: readonly number[][]
  readonly rewards: readonly number[]
  readonly terminated: readonly boolean[]
  readonly starts?: readonly number[][]
  readonly path?: {
    readonly state: readonly number[]
    readonly actions: readonly number[][]
    readonly positions: readonly number[][]
  }
}

export interface MujocoRecording {
  readonly versions: Readonly<Record<'gymnasium' | 'mujoco', string>>
  readonly environments: Readonly<Record<string, RecordedSteps>>
}

/** Lanes of an environment outside a world. */
export async function lanesOf(id: string, count: number, random = new Random(1)) {
  const environment = createEnvironment(id)
  await environment.prepare!()
  const width = spaceWidth(environment.observationSpace)
  const [, stateWidth] = environment.state.simulation as unknown as [string, number]
  const lanes = {
    state: { simulation: new Float64Array(count * stateWidth), measured: new Float64Array(count) },
    observation: new Float32Array(count * width),
    actionMask: new Uint8Array(0),
    action: new Float32Array(count * spaceWidth(environment.actionSpace)),
    reward: new Float32Array(count),
    terminated: new Uint8Array(count),
    truncated: new Uint8Array(count),
    lane: Uint32Array.from({ length: count }, (_, i) => i),
    episode: new Uint32Array(count),
    step: new Int32Array(count),
    random,
    kernels: createKernels({ buffer: new ArrayBuffer(8) }, 'plain'),
  }
  return { environment, stateWidth, lanes: lanes as typeof lanes & Lanes, width }
}

/** The largest differences of one step from each of the recorded states. */
export async function differences(id: string, recorded: RecordedSteps) {
  const count = recorded.states.length
  const { environment, lanes } = await lanesOf(id, count)
  lanes.state.simulation.set(recorded.states.flat())
  lanes.state.measured.set(recorded.measured)
  lanes.action.set(recorded.actions.flat())
  environment.step(lanes, 0, count)
  const furthest = (got: ArrayLike<number>, expected: readonly number[]) =>
    expected.reduce((most, each, i) => Math.max(most, Math.abs(got[i]! - each) / (1 + Math.abs(each))), 0)
  const terminated = recorded.terminated.filter((over, i) => over !== (lanes.terminated[i] === 1)).length
  return {
    state: furthest(lanes.state.simulation, recorded.after.flat()),
    observation: furthest(lanes.observation, recorded.observations.flat()),
    reward: furthest(lanes.reward, recorded.rewards),
    terminated,
  }
}
