import { describe, expect, test } from 'vitest'
import { Expression, type Operand, where } from '../../src/base/expressions/expression.ts'
import {
  type ColumnStepInputs,
  type ColumnStepOutputs,
  checkEnvironment,
  columnStep,
} from '../../src/entries/environments.ts'
import type { Lanes, State } from '../../src/environments/environment.ts'
import { box, cartPole, defineEnvironment, discrete } from '../../src/index.ts'
import { bindColumnLoop, createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import * as fc from '../support/properties.ts'

const declaration = { x: 'f32', y: 'f32', count: 'i32', byte: 'u8', pair: ['f32', 2], bytes: ['u8', 3] } as const
type Declaration = typeof declaration
type Step = (columns: ColumnStepInputs<Declaration>) => ColumnStepOutputs<Declaration>

/** Lanes of that state in one memory, with the kernels of a build. */
function lanesOf(build: 'plain' | 'simd', numLanes: number, { numSeen = 2, shared = true } = {}) {
  const memory = new WebAssembly.Memory({ initial: 8, maximum: 8, shared })
  let end = 0
  const take = <A>(type: new (buffer: ArrayBufferLike, from: number, length: number) => A, width = 1): A => {
    const from = end
    end += 16 * Math.ceil((numLanes * width) / 4)
    return new type(memory.buffer, from, numLanes * width)
  }
  const lanes = {
    state: {
      x: take(Float32Array),
      y: take(Float32Array),
      count: take(Int32Array),
      byte: take(Uint8Array),
      pair: take(Float32Array, 2),
      bytes: take(Uint8Array, 3),
    },
    observation: take(Float32Array, numSeen),
    reward: take(Float32Array),
    terminated: take(Uint8Array),
    truncated: take(Uint8Array),
    action: take(Int32Array, 2),
    step: take(Int32Array),
    actionMask: new Uint8Array(0),
    died: new Uint8Array(0),
    kernels: createKernels(memory, build),
  }
  return lanes as typeof lanes & Lanes<State<Declaration>>
}

/** What two expressions of x and y come to, by a build, for lanes 1 to n − 1 of n. */
function rewards(build: 'plain' | 'simd', of: (x: Expression, y: Expression) => Operand, rows: readonly Row[]) {
  const lanes = lanesOf(build, rows.length + 2)
  lanes.reward.fill(-77)
  rows.forEach(([x, y], i) => {
    lanes.state.x[i + 1] = x
    lanes.state.y[i + 1] = y
  })
  const step: Step = ({ state }) => ({ observation: [0, 0], reward: of(state.x, state.y) })
  columnStep(declaration, step)(lanes, 1, rows.length + 1)
  expect([lanes.reward[0], lanes.reward.at(-1)]).toEqual([-77, -77])
  return [...lanes.reward.subarray(1, -1)]
}
type Row = readonly [x: number, y: number]

/** Once more, node by node, each rounded to f32. */
function numberOf(node: Expression, x: number, y: number): number {
  const [a = 0, b = 0, c = 0] = node.operands.map((operand) => numberOf(operand, x, y))
  const [low = 0, high = 0] = node.numbers.map(Math.fround)
  const values: Partial<Record<Expression['operation'], () => number>> = {
    constant: () => low,
    column: () => (node.name === 'state.x[0]' ? x : y),
    add: () => a + b,
    subtract: () => a - b,
    multiply: () => a * b,
    divide: () => a / b,
    negate: () => -a,
    sqrt: () => Math.sqrt(a),
    floor: () => Math.floor(a),
    abs: () => Math.abs(a),
    min: () => Math.min(a, b),
    max: () => Math.max(a, b),
    clip: () => Math.min(Math.max(a, low), high),
    greater: () => (a > b ? 1 : 0),
    less: () => (a < b ? 1 : 0),
    equal: () => (a === b ? 1 : 0),
    where: () => (a !== 0 ? b : c),
  }
  return Math.fround(values[node.operation]!())
}

type Pair = (x: Expression, y: Expression) => Expression
const { pair: pairs } = fc.letrec<{ pair: Pair }>((tie) => {
  const one = (of: (a: Expression) => Expression) =>
    tie('pair').map(
      (a): Pair =>
        (x, y) =>
          of(a(x, y)),
    )
  const two = (of: (a: Expression, b: Expression) => Expression) =>
    fc.tuple(tie('pair'), tie('pair')).map(
      ([a, b]): Pair =>
        (x, y) =>
          of(a(x, y), b(x, y)),
    )
  return {
    pair: fc.oneof(
      { maxDepth: 5 },
      fc.constantFrom<Pair>(
        (x) => x,
        (_, y) => y,
        (x) => x.times(0).plus(0.3),
      ),
      two((a, b) => a.plus(b)),
      two((a, b) => a.minus(b).times(1.7)),
      two((a, b) => a.times(b)),
      two((a, b) => a.over(b)),
      two((a, b) => a.min(b)),
      two((a, b) => a.max(b)),
      two((a, b) => where(a.greaterThan(b), a, b.plus(0.1))),
      two((a, b) => a.lessThan(b).or(a.equalTo(0.25)).and(b)),
      one((a) => a.negative().abs()),
      one((a) => a.abs().sqrt()),
      one((a) => a.times(3).floor()),
      one((a) => a.clip(-0.5, 0.7)),
    ),
  }
})
const numbers = fc.oneof(
  fc.float({ noNaN: true, min: -100, max: 100 }),
  fc.constantFrom(0, 0.25, -0.5, Math.fround(0.3)),
)
const rowsOf = fc.array(fc.tuple(numbers, numbers), { minLength: 1, maxLength: 11 })

describe('a step as arithmetic over columns', () => {
  test('is what its nodes say, each rounded to f32, whether compiled or not, and writes no other lane', () => {
    fc.assert(
      fc.property(pairs, rowsOf, (pair, rows) => {
        const x = new Expression('column', [], { name: 'state.x[0]' })
        const y = new Expression('column', [], { name: 'state.y[0]' })
        const wanted = rows.map((row) => numberOf(pair(x, y), ...row))
        expect(rewards('plain', pair, rows)).toEqual(wanted)
        if (kernelBuilds().includes('simd')) expect(rewards('simd', pair, rows)).toEqual(wanted)
      }),
    )
  })

  test('has the sine and cosine of angles up to some thousands, with the same bits whether compiled or not', () => {
    const rows = Array.from({ length: 4001 }, (_, i): Row => [Math.fround((i - 2000) * (i % 2 ? 1.7 : 0.0013)), 0])
    for (const name of ['sin', 'cos'] as const) {
      const plain = rewards('plain', (x) => x[name](), rows)
      const far = rows.map(([x], i) => Math.abs(plain[i]! - Math[name](x)))
      expect(Math.max(...far)).toBeLessThan(2e-7)
      expect(rewards('simd', (x) => x[name](), rows)).toEqual(plain)
    }
  })

  test.each(['plain', 'simd'] as const)('reads and writes each type and width (%s)', (build) => {
    for (const shared of [true, false]) {
      const lanes = lanesOf(build, 6, { shared })
      const { state, action, step } = lanes
      for (let n = 0; n < 6; n++) {
        state.count[n] = -7 * n
        state.byte[n] = 40 * n
        state.pair.set([n, 2 * n], 2 * n)
        state.bytes.set([n, 10 + n, 20 + n], 3 * n)
        action.set([n, -n], 2 * n)
        step[n] = 100 + n
      }
      columnStep(declaration, ({ state: { count, byte, pair, bytes }, action: [first, second], step: taken }) => ({
        state: {
          count: count.times(1.5),
          byte: byte.times(2).minus(30.5),
          pair: [pair[1]!, first.plus(second!.times(3))],
          bytes: [bytes[2]!, bytes[0]!, 7.9],
        },
        observation: [taken, bytes[1]!.plus(0.5)],
        reward: count.plus(byte),
        terminated: pair[0]!.minus(3),
        truncated: count.over(0).times(0),
      }))(lanes, 0, 6)
      const each = [0, 1, 2, 3, 4, 5]
      expect([...state.count]).toEqual([0, -10, -21, -31, -42, -52])
      expect([...state.byte]).toEqual([0, 49, 129, 209, 255, 255])
      expect([...state.pair]).toEqual(each.flatMap((n) => [2 * n, -2 * n + 0]))
      expect([...state.bytes]).toEqual(each.flatMap((n) => [20 + n, n, 7]))
      expect([...lanes.observation]).toEqual(each.flatMap((n) => [100 + n, 10.5 + n]))
      expect([...lanes.reward]).toEqual(each.map((n) => 33 * n))
      expect([...lanes.terminated]).toEqual([1, 1, 1, 0, 1, 1])
      expect([...lanes.truncated]).toEqual([1, 1, 1, 1, 1, 1]) // NaN is not 0.
    }
  })

  test('keeps the contract of environments', async () => {
    const { checks } = await checkEnvironment(columnCartPole(), { numLanes: 37 })
    expect(checks.filter(({ status }) => status !== 'held')).toEqual([])
  })

  test('refuses what it cannot do, by name', () => {
    const attempt = (step: unknown, numSeen = 2) => {
      const lanes = lanesOf('plain', 4, { numSeen })
      return () => columnStep(declaration, step as Step)(lanes, 0, 4)
    }
    const good = { observation: [0, 0], reward: 0 }
    expect(attempt(() => good)).not.toThrow()
    expect(attempt(() => good, 3)).toThrow(/columnStep, observation: got a list of 2, expected a list of 3/)
    expect(attempt(() => ({ reward: 0 }))).toThrow(/observation: got undefined/)
    expect(attempt(() => ({ observation: [0, 0] }))).toThrow(/operand of an expression: got undefined/)
    expect(attempt(() => undefined)).toThrow(/columnStep: got undefined/)
    expect(attempt(() => ({ ...good, terminate: 1 }))).toThrow(/result of columnStep.*terminate/)
    expect(attempt(() => ({ ...good, state: { z: 0 } }))).toThrow(/state column.*z/)
    expect(attempt(() => ({ ...good, state: { pair: [0] } }))).toThrow(
      /state\.pair: got a list of 1, expected a list of 2/,
    )
    expect(attempt(({ state }: { state: { z: Expression } }) => ({ ...good, reward: state.z }))).toThrow(
      /state column.*z/,
    )
    expect(attempt(({ state }: ColumnStepInputs<Declaration>) => ({ ...good, reward: state.x.exp() }))).toThrow(
      /exp of an expression/,
    )
    const lanes = lanesOf('plain', 4)
    const masked = { ...lanes, actionMask: new Uint8Array(8) } as never
    expect(() => columnStep(declaration, () => good)(masked, 0, 4)).toThrow(/an environment with actionMask/)
    const wide = { ...lanes, state: { x: new Float64Array(4) } } as never
    expect(() => columnStep(declaration, () => good)(wide, 0, 4)).toThrow(/state.x: got "Float64Array"/)
  })

  test('refuses kernels that are bound to no memory', () => {
    const program = { columns: {}, constants: [], steps: [], results: {}, numRegisters: 0 }
    const loop = { program, loads: [], stores: [], numColumns: 0 }
    expect(() => bindColumnLoop({} as never, loop)).toThrow(/kernels: got .*expected those of a thread/)
  })

  test('has the types of its declaration', () => {
    columnStep(declaration, ({ state }) => {
      // @ts-expect-error there is no such column
      const none: Expression = state.z
      // @ts-expect-error it has two elements
      const two: Expression = state.pair
      return { observation: [none, two], reward: 0 }
    })
    // @ts-expect-error there is no such column to write
    columnStep(declaration, ({ state }) => ({ observation: [state.x], reward: 0, state: { z: state.x } }))
    expect.assertions(0)
  })
})

const STATE = { position: 'f32', velocity: 'f32', angle: 'f32', angularVelocity: 'f32' } as const
const columnCartPole = defineEnvironment({
  id: 'ColumnCartPole-v0',
  settings: {},
  state: () => STATE,
  make: () => ({
    observationSpace: box({ low: -100, high: 100, shape: [4] }),
    actionSpace: discrete(2),
    maxEpisodeSteps: 500,
    returnThreshold: null,
    reset: cartPole().reset,
    step: columnStep(STATE, ({ state: { position, velocity, angle, angularVelocity }, action: [direction] }) => {
      const force = where(direction.equalTo(1), 10, -10)
      const [sin, cos] = [angle.sin(), angle.cos()]
      const push = force.plus(angularVelocity.square().times(0.05).times(sin)).over(1.1)
      const torque = sin.times(9.8).minus(cos.times(push))
      const angularAcceleration = torque.over(
        cos
          .square()
          .times(-0.05 / 1.1)
          .plus(2 / 3),
      )
      const acceleration = push.minus(angularAcceleration.times(cos).times(0.05 / 1.1))
      const x = position.plus(velocity.times(0.02))
      const dx = velocity.plus(acceleration.times(0.02))
      const theta = angle.plus(angularVelocity.times(0.02))
      const dTheta = angularVelocity.plus(angularAcceleration.times(0.02))
      return {
        state: { position: x, velocity: dx, angle: theta, angularVelocity: dTheta },
        observation: [x, dx, theta, dTheta],
        reward: 1,
        terminated: x
          .abs()
          .greaterThan(2.4)
          .or(theta.abs().greaterThan((12 * 2 * Math.PI) / 360)),
      }
    }),
  }),
})
