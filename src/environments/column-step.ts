/**
 * An environment's step as arithmetic over columns. The function is called once with an expression per column and returns an expression
 * per written column, which runs over the lanes as one SIMD loop (`column-loop.ts`).
 */
import { InputError, show, unknownWord } from '../base/errors.ts'
import { columnOf, Expression, expressionOf, type Operand, where } from '../base/expressions/expression.ts'
import { programOf } from '../base/expressions/expression-program.ts'
import type { Column, ColumnType } from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { type BoundLoop, bindColumnLoop, type LoopColumn, type LoopElement, type LoopType } from '../kernels/bind.ts'
import type { Lanes, State, StateDeclaration } from './environment.ts'

/** The inputs of a step, one number per lane, with their values before the step. */
export interface ColumnStepInputs<D> {
  /** The state columns: an expression for each, or a list of expressions for a column with several elements. */
  readonly state: { readonly [K in keyof D]: D[K] extends ColumnType ? Expression : readonly Expression[] }
  /** The action: one number for a single choice, otherwise as many as its space has elements. */
  readonly action: readonly [Expression, ...Expression[]]
  /** Number of steps taken in this episode. */
  readonly step: Expression
}

/** The outputs of a step. */
export interface ColumnStepOutputs<D> {
  /** New state columns; omitted ones do not change. `i32` and `u8` are rounded toward 0. */
  readonly state?: { readonly [K in keyof D]?: D[K] extends ColumnType ? Operand : readonly Operand[] }
  /** The next observation, in the order of its space. */
  readonly observation: readonly Operand[]
  readonly reward: Operand
  /** Not 0 if the episode reached a terminal state. Default: never. */
  readonly terminated?: Operand
  /** Not 0 if the environment itself truncates the episode. Default: never. */
  readonly truncated?: Operand
}

/**
 * A step for `defineEnvironment`, written as arithmetic over columns, for a given state declaration. It is computed in f32, with the same
 * bits for every kernel build. Expressions have `plus`, `minus`, `times`, `over`, `negative`, `square`, `sqrt`, `abs`, `floor`, `sin`,
 * `cos` (of angles up to some thousands), `min`, `max`, `clip`, `greaterThan`, `lessThan`, `equalTo`, `or` and `and`; `where` of
 * `colonnade/algorithms` chooses between two. State columns are `f32`, `i32` or `u8`. For randomness, masks, births and deaths, write a
 * plain step. Observations of bytes are rounded toward 0, too.
 * @throws InputError at the first step, for unknown columns, lists of another length than a column's elements, and unsupported
 * operations.
 * @example
 * const state = { height: 'f32', speed: 'f32' } as const
 * // In defineEnvironment: state: () => state, and in what `make` returns:
 * step: columnStep(state, ({ state: { height, speed }, action: [thrust] }) => {
 *   const faster = speed.plus(thrust.times(20).minus(9.8).times(0.02))
 *   const higher = height.plus(faster.times(0.02)).max(0)
 *   return {
 *     state: { height: higher, speed: faster },
 *     observation: [higher, faster],
 *     reward: higher.minus(1).abs().negative(),
 *     terminated: higher.equalTo(0),
 *   }
 * })
 */
export function columnStep<const D extends StateDeclaration>(
  declaration: D,
  step: (columns: ColumnStepInputs<D>) => ColumnStepOutputs<D>,
): (lanes: Lanes<State<D>, ObservationColumn>, from: number, to: number) => void {
  const bound = new WeakMap<object, Bound>()
  return (lanes, from, to) => {
    let each = bound.get(lanes)
    if (each === undefined) {
      each = bind(declaration, lanes as AnyLanes, step as AnyStep)
      bound.set(lanes, each)
    }
    const { columns, run } = each
    // These columns move from step to step; the state does not.
    for (let c = 0; c < LANE_COLUMNS.length; c++) columns[c] = lanes[LANE_COLUMNS[c]!] as LoopColumn
    run(columns, from, to)
  }
}

type AnyLanes = Lanes<Readonly<Record<string, Column>>, ObservationColumn>
type Several = Readonly<Record<string, Expression | readonly Expression[]>>
type AnyStep = (columns: Omit<ColumnStepInputs<unknown>, 'state'> & { readonly state: Several }) => Omit<
  ColumnStepOutputs<unknown>,
  'state'
> & {
  readonly state?: Readonly<Record<string, Operand | readonly Operand[]>>
}

/** Columns that a step may read or write besides the state. */
const LANE_COLUMNS = ['observation', 'reward', 'terminated', 'truncated', 'action', 'step'] as const

interface Bound {
  readonly run: BoundLoop
  /** `LANE_COLUMNS`, then the state's columns. */
  readonly columns: LoopColumn[]
}

/** Calls the function with the columns' expressions, and binds its results to the lanes' kernels. */
function bind(declaration: StateDeclaration, lanes: AnyLanes, step: AnyStep): Bound {
  const { state, actionMask, died, kernels } = lanes
  if (actionMask.length > 0 || died.length > 0) {
    const what = actionMask.length > 0 ? 'actionMask' : 'population'
    throw new InputError('columnStep', `an environment with ${what}`, 'an environment without it, or a plain step')
  }
  const columns = [...LANE_COLUMNS.map((name) => lanes[name]), ...Object.values(state)] as LoopColumn[]
  const elements = elementsOf([...LANE_COLUMNS, ...Object.keys(state).map((name) => `state.${name}`)], columns, lanes)
  const namesOf = (column: string) => [...elements.keys()].filter((name) => name.startsWith(`${column}[`))
  const expressions = Object.keys(state).map((name) => {
    const declared = declaration[name]
    if (declared === undefined) throw unknownWord('state column of columnStep', name, Object.keys(declaration))
    const each = namesOf(`state.${name}`).map(columnOf)
    return [name, typeof declared === 'string' ? each[0]! : each] as const
  })
  const results = step({
    state: named(Object.fromEntries(expressions)),
    action: namesOf('action').map(columnOf) as [Expression],
    step: columnOf('step[0]'),
  })
  const simpler = new Map<Expression, Expression>()
  const wanted = new Map<string, Expression>()
  for (const [column, operands] of listResults(results, declaration)) {
    const names = namesOf(column)
    if (!Array.isArray(operands) || operands.length !== names.length) {
      const got = Array.isArray(operands) ? `a list of ${operands.length}` : show(operands)
      throw new InputError(`columnStep, ${column}`, got, `a list of ${names.length}`)
    }
    for (const [k, name] of names.entries()) wanted.set(name, simplify(expressionOf(operands[k]!), simpler))
  }
  const program = programOf(wanted)
  const placed = (registers: Readonly<Record<string, number>>): LoopElement[] =>
    Object.entries(registers).map(([name, register]) => ({ ...elements.get(name)!, register }))
  const [loads, stores] = [placed(program.columns), placed(program.results)]
  return { run: bindColumnLoop(kernels, { program, loads, stores, numColumns: columns.length }), columns }
}

/** The position of each element of a lane, by the name of its expression: `state.position[0]`. */
function elementsOf(
  names: readonly string[],
  columns: readonly LoopColumn[],
  { reward }: AnyLanes,
): Map<string, Omit<LoopElement, 'register'>> {
  const elements = new Map<string, Omit<LoopElement, 'register'>>()
  for (const [column, name] of names.entries()) {
    const type = name === 'terminated' || name === 'truncated' ? 'flag' : typeOf(name, columns[column]!)
    const width = columns[column]!.length / reward.length
    for (let element = 0; element < width; element++) {
      elements.set(`${name}[${element}]`, { column, type, width, element })
    }
  }
  return elements
}

function listResults(results: ReturnType<AnyStep>, declaration: StateDeclaration): [string, readonly Operand[]][] {
  if (typeof results !== 'object' || results === null) {
    throw new InputError('columnStep', show(results), 'an object with observation and reward')
  }
  const names = ['state', 'observation', 'reward', 'terminated', 'truncated']
  const unknown = Object.keys(results).find((name) => !names.includes(name))
  if (unknown !== undefined) throw unknownWord('result of columnStep', unknown, names)
  const { state = {}, observation, reward, terminated, truncated } = results
  const ofState = Object.entries(state).map(([name, operand]): [string, readonly Operand[]] => {
    const declared = declaration[name]
    if (declared === undefined) throw unknownWord('state column', name, Object.keys(declaration))
    return [`state.${name}`, (typeof declared === 'string' ? [operand] : operand) as readonly Operand[]]
  })
  return [
    ...ofState,
    ['observation', observation],
    ['reward', [reward]],
    ...(terminated === undefined ? [] : [['terminated', [terminated]] as [string, Operand[]]]),
    ...(truncated === undefined ? [] : [['truncated', [truncated]] as [string, Operand[]]]),
  ]
}

function typeOf(name: string, column: Column): LoopType {
  if (column instanceof Float32Array) return 'f32'
  if (column instanceof Int32Array) return 'i32'
  if (column instanceof Uint8Array) return 'u8'
  throw new InputError(`columnStep, ${name}`, show(column.constructor.name), 'a column of type f32, i32 or u8')
}

/** The state's expressions; reading an unknown name throws. */
function named(state: Several): Several {
  return new Proxy(state, {
    get(_, name) {
      if (typeof name === 'string' && !Object.hasOwn(state, name)) {
        throw unknownWord('state column', name, Object.keys(state))
      }
      return Reflect.get(state, name)
    },
  })
}

const LEFT_OUT = ['exp', 'log', 'tanh', 'sigmoid', 'sequenceSum']

/** Rewrites an expression with the operations of a column loop. */
function simplify(node: Expression, known: Map<Expression, Expression>): Expression {
  const found = known.get(node)
  if (found !== undefined) return found
  const { operation, name, numbers } = node
  if (LEFT_OUT.includes(operation)) {
    throw new InputError('columnStep', `${operation} of an expression`, 'another operation, or a plain step')
  }
  const operands = node.operands.map((operand) => simplify(operand, known))
  let simple: Expression
  if (operation === 'sin' || operation === 'cos') simple = waveOf(operands[0]!, operation)
  else simple = new Expression(operation, operands, { name, numbers })
  known.set(node, simple)
  return simple
}

/** Adding and subtracting it rounds a number below 2^22 to a whole one. */
const ROUNDER = 1.5 * 2 ** 23

/**
 * Sine or cosine by quarter turns: x = q · ½π + r with |r| ≤ ¼π. The multiple of ½π is subtracted in three parts (Cody and Waite), r goes
 * into polynomials (Cephes `sinf`, `cosf`), and q selects the polynomial and the sign.
 */
function waveOf(x: Expression, operation: 'sin' | 'cos'): Expression {
  const q = x
    .times(2 / Math.PI)
    .plus(ROUNDER)
    .minus(ROUNDER)
  const r = x.minus(q.times(1.5703125)).minus(q.times(4.837512969970703e-4)).minus(q.times(7.549789954891882e-8))
  const z = r.square()
  const sin = z.times(-1.9515295891e-4).plus(8.3321608736e-3).times(z).minus(1.6666654611e-1).times(z).times(r).plus(r)
  const tail = z.times(2.443315711809948e-5).minus(1.388731625493765e-3).times(z).plus(4.166664568298827e-2)
  const cos = tail
    .times(z)
    .times(z)
    .plus(expressionOf(1).minus(z.times(0.5)))
  const isOdd = q.minus(q.times(0.5).floor().times(2))
  const quarter = q.minus(q.times(0.25).floor().times(4)) // 0, 1, 2 or 3
  if (operation === 'sin') {
    const value = where(isOdd, cos, sin)
    return where(quarter.greaterThan(1.5), value.negative(), value)
  }
  const value = where(isOdd, sin, cos)
  return where(new Expression('within', [quarter], { numbers: [0.5, 2.5] }), value.negative(), value)
}
