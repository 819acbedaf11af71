/** Spaces describe observations and actions: shape, column type and bounds. */
import { checkGiven, InputError, show } from './errors.ts'

/** One choice among `n`: 0 … n − 1. One i32 per lane. */
export interface DiscreteSpace {
  readonly kind: 'discrete'
  readonly n: number
}

/** Several choices at once, the k-th among `sizes[k]`. One i32 per choice and lane. */
export interface MultiDiscreteSpace {
  readonly kind: 'multi-discrete'
  readonly sizes: readonly number[]
}

/** How the numbers of a box are stored: as f32, or as bytes, whole numbers from 0 to 255. */
export type BoxType = 'f32' | 'u8'

/** Numbers in a box of the given shape, each within its bounds, which may be infinite where they are f32. */
export interface BoxSpace {
  readonly kind: 'box'
  /** `u8` where observations are stored as bytes; absent for f32. */
  readonly type?: 'u8'
  /** Of an observation: its last so many elements are for critics alone, and actors do not see them. Absent for none. */
  readonly criticOnly?: number
  readonly shape: readonly number[]
  /** One lower bound per element, row-major. */
  readonly low: readonly number[]
  /** One upper bound per element, row-major. */
  readonly high: readonly number[]
  /** Its named parts, one after another, of a box that `dict` made. */
  readonly parts?: readonly SpacePart[]
}

/** A named part of a box: `width` elements from element `from`. Choices are one-hot: 1 in the chosen place, else 0. */
export interface SpacePart {
  readonly name: string
  readonly from: number
  readonly width: number
  readonly space: Space
}

/** Maximum elements of a box: 64 MiB per row. Every thread also keeps two bounds for each. */
const BOX_ELEMENTS_MAX = 2 ** 24

/** An observation or action space. */
export type Space = DiscreteSpace | MultiDiscreteSpace | BoxSpace

function isChoiceSize(n: unknown): boolean {
  return Number.isInteger(n) && (n as number) >= 1 && (n as number) < 2 ** 31 // Choices are i32.
}

/** One choice among `n` ≥ 1. */
export function discrete(n: number): DiscreteSpace {
  if (!isChoiceSize(n)) throw new InputError('discrete(n)', show(n), 'a whole number ≥ 1 and < 2^31')
  return { kind: 'discrete', n }
}

/** Several choices at once, each among `sizes[k]` ≥ 1. */
export function multiDiscrete(sizes: readonly number[]): MultiDiscreteSpace {
  if (!Array.isArray(sizes) || sizes.length === 0 || !sizes.every(isChoiceSize)) {
    throw new InputError('multiDiscrete(sizes)', show(sizes), 'one or more whole numbers ≥ 1')
  }
  return { kind: 'multi-discrete', sizes: [...sizes] }
}

/**
 * A box of real numbers. `low` and `high` are one number for every element, or one per element; the default shape is
 * that of the arrays. Observations of `type: 'u8'` are stored as bytes (`observationType` of `defineEnvironment`); actions are f32.
 * The last `criticOnly` elements of an observation are for the critic alone: `mlp` and `recurrent` do not show them to their actor.
 * @throws InputError for bounds that are not in order, for those of bytes that are no whole numbers from 0 to 255, and for a `criticOnly` that
 * leaves nothing for actors.
 *
 * @example box({ low: [-1, -8], high: [1, 8] })
 * @example box({ low: 0, high: 1, shape: [10, 10, 4], type: 'u8' })
 */
export function box(bounds: {
  low: number | readonly number[]
  high: number | readonly number[]
  shape?: readonly number[]
  type?: BoxType
  criticOnly?: number
}): BoxSpace {
  checkGiven('bounds of box', bounds, ['low', 'high'])
  const { low, high, type, criticOnly = 0 } = bounds
  if (type !== undefined && type !== 'f32' && type !== 'u8') throw new InputError('box type', show(type), 'f32 or u8')
  const shape =
    bounds.shape ?? (typeof low !== 'number' ? [low.length] : typeof high !== 'number' ? [high.length] : [1])
  if (shape.length === 0 || shape.some((size) => !Number.isInteger(size) || size < 1)) {
    throw new InputError('box shape', show(shape), 'one or more whole numbers ≥ 1')
  }
  const size = shape.reduce((product, side) => product * side, 1)
  if (size > BOX_ELEMENTS_MAX) {
    throw new InputError('box shape', `${show(shape)}, ${size} elements`, `at most ${BOX_ELEMENTS_MAX} elements`)
  }
  if (!Number.isInteger(criticOnly) || criticOnly < 0 || criticOnly >= size) {
    throw new InputError(
      'box criticOnly',
      show(criticOnly),
      `a whole number from 0 to ${size - 1}, fewer than all elements`,
    )
  }
  const spread = (name: string, bound: number | readonly number[]): number[] => {
    const values = typeof bound === 'number' ? new Array<number>(size).fill(bound) : [...bound]
    if (values.length !== size)
      throw new InputError(`box ${name}`, `${values.length} bounds`, `${size} (shape ${show(shape)})`)
    return values
  }
  const space: BoxSpace = {
    kind: 'box',
    shape: [...shape],
    low: spread('low', low),
    high: spread('high', high),
    ...(type === 'u8' && { type }),
    ...(criticOnly > 0 && { criticOnly }),
  }
  const isByte = (bound: number) => Number.isInteger(bound) && bound >= 0 && bound <= 255
  for (let i = 0; i < size; i++) {
    const [least, most] = [space.low[i]!, space.high[i]!]
    if (least <= most && (type !== 'u8' || (isByte(least) && isByte(most)))) continue
    const expected = `low ≤ high, ${type === 'u8' ? 'whole numbers from 0 to 255, as bytes' : 'neither NaN'}`
    throw new InputError(`box element ${i}`, `low ${least} and high ${most}`, expected)
  }
  return space
}

/**
 * Several observations side by side in one box of f32, with their names: boxes as they are, choices one-hot, as Gymnasium flattens a `Dict`.
 * `parts` says where each begins; those of a `dict` within it are named `outer.inner`.
 * @throws InputError for no space, a name twice, a box of bytes, and one with a part for critics alone.
 *
 * @example dict({ room: discrete(16), speed: box({ low: -1, high: 1, shape: [2] }) }) // 18 elements, speed from 16 on.
 */
export function dict(spaces: Readonly<Record<string, Space>>): BoxSpace {
  checkGiven('spaces of dict', spaces, [])
  return sideBySide(Object.entries(spaces))
}

/** The same of spaces in an order of their own, which the keys of an object do not keep if some are numbers. */
export function sideBySide(spaces: readonly (readonly [name: string, space: Space])[]): BoxSpace {
  const parts: SpacePart[] = []
  let [low, high]: [readonly number[], readonly number[]] = [[], []]
  for (const [name, space] of spaces) {
    const isBox = space.kind === 'box'
    if (isBox && (space.type === 'u8' || space.criticOnly !== undefined)) {
      const got = space.type === 'u8' ? 'a box of bytes' : 'a box with a part for critics alone'
      throw new InputError(`dict ${name}`, got, 'a box of f32, or choices')
    }
    const from = low.length
    const width = isBox ? spaceWidth(space) : choiceSizes(space).reduce((sum, size) => sum + size, 0)
    low = low.concat(isBox ? space.low : new Array<number>(width).fill(0))
    high = high.concat(isBox ? space.high : new Array<number>(width).fill(1))
    const inner = isBox ? space.parts : undefined
    if (inner === undefined) parts.push({ name, from, width, space })
    else parts.push(...inner.map((part) => ({ ...part, name: `${name}.${part.name}`, from: from + part.from })))
  }
  if (parts.length === 0) throw new InputError('spaces of dict', '{}', 'one or more spaces by name')
  const names = parts.map(({ name }) => name)
  const twice = names.find((name, i) => names.indexOf(name) < i)
  if (twice !== undefined) throw new InputError('spaces of dict', `two parts named ${twice}`, 'a name for each')
  return { ...box({ low, high }), parts }
}

/** Column elements per value of the space. */
export function spaceWidth(space: Space): number {
  if (space.kind === 'discrete') return 1
  if (space.kind === 'multi-discrete') return space.sizes.length
  return space.low.length
}

/** How many elements of an observation, the first ones, actors see. */
export function actorWidth(space: Space): number {
  return spaceWidth(space) - (space.kind === 'box' ? (space.criticOnly ?? 0) : 0)
}

/** The column type of observations of the space. */
export function observationType(space: Space): BoxType {
  return space.kind === 'box' ? (space.type ?? 'f32') : 'f32'
}

/** The column type of actions of the space. */
export function spaceType(space: Space): 'i32' | 'f32' {
  return space.kind === 'box' ? 'f32' : 'i32'
}

/** The number of choices of each action dimension; empty for a box. */
export function choiceSizes(space: Space): readonly number[] {
  if (space.kind === 'discrete') return [space.n]
  return space.kind === 'multi-discrete' ? space.sizes : []
}

/**
 * A space as JSON: infinite bounds, which JSON lacks, are the strings "Infinity" and "-Infinity". Without the type of a box: columns have
 * their own, and those of f32 and of bytes have the same values.
 */
export function spaceToJson(space: Space): string {
  const { type: _, ...values } = space.kind === 'box' ? space : { ...space, type: undefined }
  return JSON.stringify(values, (_, value) =>
    typeof value === 'number' && !Number.isFinite(value) ? String(value) : value,
  )
}
