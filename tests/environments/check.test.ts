import { describe, expect, test } from 'vitest'
import { colony } from '../../examples/colony.ts'
import { Stream } from '../../src/base/random.ts'
import { box, discrete } from '../../src/base/space.ts'
import { checkEnvironment } from '../../src/environments/checks/check.ts'
import { where } from '../../src/environments/checks/check-written.ts'
import { type EnvironmentCheck, environmentChecks } from '../../src/environments/checks/checks.ts'
import { defineEnvironment, type EnvironmentModel, type State } from '../../src/environments/environment.ts'
import { doors } from '../support/doors.ts'

const STATE = { place: 'i32' } as const
type Model = EnvironmentModel<State<typeof STATE>>
type Lanes = Parameters<Model['step']>[0]

/** A walk over 20 places by masked choices and some chance, as one of a user's own would be written; `part` goes wrong. */
function walk(part: (model: Model) => Partial<Model>) {
  const show = ({ state, observation, actionMask }: Lanes, n: number) => {
    observation[n] = state.place[n]!
    actionMask[2 * n] = state.place[n]! > 0 ? 1 : 0
    actionMask[2 * n + 1] = 1
  }
  const model: Model = {
    observationSpace: box({ low: 0, high: 20 }),
    actionSpace: discrete(2),
    actionMask: true,
    maxEpisodeSteps: 40,
    returnThreshold: null,
    reset(lanes, rows, count) {
      const { state, lane, episode, random } = lanes
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
        state.place[n] = Math.floor(random.uniform(0, 5, 15))
        show(lanes, n)
      }
    },
    step(lanes, from, to) {
      const { state, reward, terminated, action, lane, episode, step, random } = lanes
      for (let n = from; n < to; n++) {
        random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
        const isBlown = random.uniform(0) < 0.2
        state.place[n] = Math.min(Math.max(state.place[n]! + (isBlown ? 0 : 2 * action[n]! - 1), 0), 20)
        reward[n] = state.place[n]! / 20
        terminated[n] = state.place[n] === 20 ? 1 : 0
        show(lanes, n)
      }
    },
  }
  const made = { ...model, ...part(model) }
  return defineEnvironment({ id: 'Walk-v0', settings: {}, state: () => STATE, make: () => made })()
}

/** The walk, with something that its step does besides, for each lane behind it. */
const stepping = (also: (lanes: Lanes, n: number, from: number) => void) =>
  walk((model) => ({
    step(lanes, from, to) {
      model.step(lanes, from, to)
      for (let n = from; n < to; n++) also(lanes, n, from)
    },
  }))

const resetting = (also: (lanes: Lanes, n: number) => void) =>
  walk((model) => ({
    reset(lanes, rows, count) {
      model.reset(lanes, rows, count)
      for (let i = 0; i < count; i++) also(lanes, rows[i]!)
    },
  }))

const options = { numLanes: 64, steps: 50, seed: 3 }
let kept: Float32Array | undefined
const remembered = new WeakMap<object, Float64Array>()

let calls = 0
/** An object of which nothing can be read. */
function hostile(): object {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

const thrown = (value: unknown): never => {
  throw value
}
const plain = walk(() => ({}))

/** The walk, whose step throws what `make` gives, if that is not undefined. */
const throwing = (make: () => unknown) =>
  walk((model) => ({
    step(lanes, from, to) {
      const thrown = make()
      if (thrown !== undefined) throw thrown
      model.step(lanes, from, to)
    },
  }))

/** What goes wrong, which check finds it, and what it says. */
const faults: [string, EnvironmentCheck, RegExp, ReturnType<typeof walk>][] = [
  [
    'a step that throws',
    'runs',
    /"no road" thrown by step in step 0 of the check/,
    stepping(() => {
      throw new Error('no road')
    }),
  ],
  ['a step that throws a text', 'runs', /^"no road" thrown by step/, throwing(() => 'no road')],
  ['a step that throws null', 'runs', /^"null" thrown by step/, throwing(() => null)],
  [
    'a step that throws what throws when it is read',
    'runs',
    /^"an object that throws when it is read" thrown by step/,
    throwing(hostile),
  ],
  [
    'a step that throws when it is called for the hundredth time',
    'runs',
    /^"too late" thrown by step/,
    throwing(() => (++calls > 100 ? new Error('too late') : undefined)),
  ],
  [
    'a step that is not done when it returns',
    'runs',
    /^a promise from step$/,
    walk(() => ({ step: async () => {} }) as never),
  ],
  [
    'a reset that returns what was seen',
    'runs',
    /^an array from reset$/,
    walk((model) => ({
      reset(lanes, rows, count) {
        model.reset(lanes, rows, count)
        return [0] as never
      },
    })),
  ],
  [
    'an observation outside its space',
    'values',
    /^21 in observation\[0\] of lane \d+ \(episode \d+, step \d+\) from step$/,
    stepping(({ observation, state }, n) => {
      if (state.place[n] === 20) observation[n] = 21
    }),
  ],
  [
    'an observation that is no number, at the start',
    'values',
    /^NaN in observation\[0\] of lane 7 \(episode 0, step 0\) from reset$/,
    resetting(({ observation, lane }, n) => {
      if (lane[n] === 7) observation[n] = Number.NaN
    }),
  ],
  [
    'a reward that is not finite',
    'values',
    /^Infinity in reward of lane 5/,
    stepping(({ reward, lane }, n) => {
      if (lane[n] === 5) reward[n] = 1 / 0
    }),
  ],
  ['a flag of 2', 'values', /^2 in truncated of lane 0/, stepping(({ truncated }, n) => truncated.fill(2, n, n + 1))],
  [
    'a mask that allows nothing',
    'values',
    /^no legal choice of action 0 for lane \d+ /,
    stepping(({ actionMask, step }, n) => {
      if (step[n] === 3) actionMask.fill(0, 2 * n, 2 * n + 2)
    }),
  ],
  [
    'a row that is left out',
    'rows',
    /^nothing in reward of lane 63/,
    walk((model) => ({
      step: (lanes, from, to) => model.step({ ...lanes, reward: lanes.reward.subarray(0, 63) }, from, to),
    })),
  ],
  [
    'a mask that is left out at the start',
    'rows',
    /^nothing in actionMask\[0\] of lane 0 .* from reset$/,
    walk((model) => ({
      reset: (lanes, rows, count) => model.reset({ ...lanes, actionMask: new Uint8Array(2) }, rows, count),
    })),
  ],
  [
    'a step that writes lanes beyond its range',
    'rows',
    /written to state.place of lane \d+ .* by step$/,
    walk((model) => ({ step: (lanes, from, to) => model.step(lanes, from, Math.min(to + 1, lanes.present)) })),
  ],
  [
    'a reset that writes lanes whose episode goes on',
    'rows',
    /^0 written to state.place of lane 9 .* by reset$/,
    resetting(({ state, episode }) => {
      if (episode[1] === 1) state.place[9] = 0
    }),
  ],
  [
    'an action that is changed',
    'inputs',
    /in action of lane \d+ after step$/,
    stepping(({ action }, n) => action.fill(7, n, n + 1)),
  ],
  [
    'a column that is kept from one call to the next',
    'aliasing',
    /^another observation of lane 3 .* from the step before, after step$/,
    stepping(({ observation }, n) => {
      if (kept === undefined) kept = observation
      else if (n === 3 && kept !== observation) kept[n] = kept[n]! + 1
    }),
  ],
  [
    'one agent of a game that goes on',
    'games',
    /^an end for one of lane \d+ \(.*\) and lane \d+ /,
    walk(() => ({ numPlayers: 2 })),
  ],
  [
    'numbers that are not keyed',
    'determinism',
    /in a second run with the same seed$/,
    stepping(({ reward }, n) => reward.fill(Math.random(), n, n + 1)),
  ],
  [
    'what depends on where a range begins',
    'split',
    /in reward\[0\] of lane \d+ .* when lanes were called in parts$/,
    stepping(({ reward }, n, from) => reward.fill(n - from, n, n + 1)),
  ],
  [
    'numbers that are keyed by the row',
    'lanes',
    /in state.place\[0\] of lane \d+ .* from reset when the lane ran alone$/,
    walk((model) => ({
      reset: (lanes, rows, count) =>
        model.reset({ ...lanes, lane: Uint32Array.from(lanes.lane, (_, n) => n), episode: lanes.episode }, rows, count),
    })),
  ],
  [
    'a memory beside the columns',
    'state',
    /^another reward of lane 0 .* from the same state and actions$/,
    stepping(({ reward, state, lane }, n) => {
      const steps = remembered.get(state) ?? new Float64Array(64)
      remembered.set(state, steps)
      steps[lane[n]!] = steps[lane[n]!]! + 0.5
      reward[n] = steps[lane[n]!]!
    }),
  ],
  [
    'an episode that begins with what the one before left',
    'reset',
    /in state.place\[0\] of lane 0 \(episode 0, step 0\) from reset over a used state$/,
    walk((model) => ({
      reset(lanes, rows, count) {
        const before = lanes.state.place.slice()
        model.reset(lanes, rows, count)
        for (let i = 0; i < count; i++) if (before[rows[i]!]! < 0) lanes.state.place[rows[i]!] = 1
      },
    })),
  ],
  [
    'a step that makes an object for each lane',
    'allocation',
    /^\d+\.\d bytes that a step allocates for each lane$/,
    stepping(({ observation, state }, n) => observation.set([state.place[n]!], n)),
  ],
]

describe('checkEnvironment', () => {
  test('finds nothing in a walk that keeps the contract', () => {
    const report = checkEnvironment(
      walk(() => ({})),
      options,
    )
    expect(report.checks.map(({ name, status }) => (name === 'games' ? 'held' : status))).toEqual(
      Object.keys(environmentChecks).map(() => 'held'),
    )
    expect(report).toMatchObject({ environment: 'Walk-v0', ...options, holds: true })
    expect(report.episodes).toBeGreaterThan(2)
  })

  test.each(faults)('finds %s', (_, check, got, environment) => {
    const { checks, holds } = checkEnvironment(environment, options)
    const failed = checks.filter(({ status }) => status === 'failed')
    expect(failed.map(({ name }) => name)).toEqual([check])
    expect(failed[0]!.got).toMatch(got)
    expect(failed[0]!.expected).not.toBe('')
    expect(holds).toBe(false)
  })

  test('has a fault for each of its checks', () => {
    expect(new Set(faults.map(([, check]) => check))).toEqual(new Set(Object.keys(environmentChecks)))
  })

  test('holds for populations, and for several choices at once with masks', () => {
    expect(
      checkEnvironment(colony({ meals: 10, lifespan: 40 }), options).checks.filter((each) => each.status === 'failed'),
    ).toEqual([])
    expect(checkEnvironment(doors(), options).holds).toBe(true)
  })

  test('minds no value that a function returns by the way', () => {
    const environment = walk((model) => ({
      reset(lanes, rows, count) {
        model.reset(lanes, rows, count)
        return lanes.observation.fill(lanes.observation[0]!, 0, 0) as never
      },
      step(lanes, from, to) {
        model.step(lanes, from, to)
        return (to - from) as never
      },
    }))
    expect(checkEnvironment(environment, options).holds).toBe(true)
  })

  test('refuses options that are none', () => {
    const environment = walk(() => ({ numPlayers: 2 }))
    expect(() => checkEnvironment(environment, { numLanes: 5 })).toThrow('a multiple of the 2 players of a game')
    for (const numLanes of [0, -2, 1.5, Number.NaN])
      expect(() => checkEnvironment(environment, { numLanes })).toThrow(`numLanes: got ${numLanes}, expected`)
    for (const steps of [0, 1.5]) expect(() => checkEnvironment(environment, { steps })).toThrow(`steps: got ${steps}`)
    expect(() => checkEnvironment(environment, { step: 3 } as never)).toThrow(
      /^option of checkEnvironment: got "step".*did you mean "steps"/,
    )
  })
})

test('a lane is told of by its episode and step, or as one whose first is still to begin', () => {
  const lanes = { lane: Uint32Array.of(7, 8), episode: Uint32Array.of(2, 0xffffffff), step: Uint32Array.of(5, 0) }
  const told = [0, 1].map((n) => where({ lanes } as never, n))
  expect(told).toEqual(['lane 7 (episode 2, step 5)', 'lane 8 (before its first episode)'])
})

test.each<[string, object | (() => object), string]>([
  ['a box without bounds', { observationSpace: { kind: 'box', shape: [1] } }, 'bounds of box: got {"kind":"box"'],
  [
    'a box with a bound too few',
    { observationSpace: { kind: 'box', shape: [2], low: [0], high: [1] } },
    'got 1 bounds, expected 2',
  ],
  ['a choice among none', { actionSpace: { kind: 'discrete' } }, 'discrete(n): got undefined, expected a whole number'],
  ['a choice among -3', { actionSpace: { kind: 'discrete', n: -3 } }, 'discrete(n): got -3, expected a whole number'],
  [
    'a space of another kind',
    { actionSpace: { kind: 'multi' } },
    'Walk-v0 actionSpace: got {"kind":"multi"}, expected a space',
  ],
  [
    'a threshold that is NaN',
    { returnThreshold: Number.NaN },
    'Walk-v0 returnThreshold: got NaN, expected a finite number, or null',
  ],
  ['a threshold in words', { returnThreshold: 'x' }, 'Walk-v0 returnThreshold: got "x", expected a finite number'],
  ['a picture that is none', { draw: 5 }, 'Walk-v0 draw: got 5, expected a function, or none'],
  ['a close that is none', { close: 'x' }, 'Walk-v0 close: got "x", expected a function, or none'],
  [
    'a make that throws null',
    () => thrown(null),
    'Walk-v0: got null thrown by make, expected an Error as the exception',
  ],
])('%s is refused when the environment is made', (_, part, message) => {
  const make = () => ({ ...plain, ...(typeof part === 'function' ? part() : part) }) as Model
  expect(defineEnvironment({ id: 'Walk-v0', settings: {}, state: () => STATE, make })).toThrow(message)
})

test.each([
  [null, 'Walk-v0 state: got null, expected columns by name'],
  [['i32'], 'Walk-v0 state: got ["i32"], expected columns by name'],
  [{ place: 'i33' }, 'Walk-v0 state.place: got "i33", expected one of f32, f64, i32, u32, u8, or a list'],
  [{ place: 'constructor' }, 'Walk-v0 state.place: got "constructor", expected one of'],
  [{ place: null }, 'Walk-v0 state.place: got null, expected one of'],
  [{ place: ['i32', -1] }, 'Walk-v0 state.place: got ["i32",-1], expected one of'],
  [{ place: ['i32', 1.5] }, 'Walk-v0 state.place: got ["i32",1.5], expected one of'],
])('a state of %j is refused when the environment is made', (state, message) => {
  const make = () => plain as EnvironmentModel<never>
  expect(defineEnvironment({ id: 'Walk-v0', settings: {}, state: () => state as never, make })).toThrow(message)
})
