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

/** Real numbers in a box: f32 of the given shape, each within its bounds, which may be infinite. */
export interface BoxSpace {
  readonly kind: 'box'
  readonly shape: readonly number[]
  /** One lower bound per element, row-major. */
  readonly low: readonly number[]
  /** One upper bound per element, row-major. */
  readonly high: readonly number[]
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
 * that of the arrays.
 *
 * @example box({ low: [-1, -8], high: [1, 8] })
 * @example box({ low: 0, high: 1, shape: [10, 10, 4] })
 */
export function box(bounds: {
  low: number | readonly number[]
  high: number | readonly number[]
  shape?: readonly number[]
}): BoxSpace {
  checkGiven('bounds of box', bounds, ['low', 'high'])
  const { low, high } = bounds
  const shape =
    bounds.shape ?? (typeof low !== 'number' ? [low.length] : typeof high !== 'number' ? [high.length] : [1])
  if (shape.length === 0 || shape.some((size) => !Number.isInteger(size) || size < 1)) {
    throw new InputError('box shape', show(shape), 'one or more whole numbers ≥ 1')
  }
  const size = shape.reduce((product, side) => product * side, 1)
  if (size > BOX_ELEMENTS_MAX) {
    throw new InputError('box shape', `${show(shape)}, ${size} elements`, `at most ${BOX_ELEMENTS_MAX} elements`)
  }
  const spread = (name: string, bound: number | readonly number[]): number[] => {
    const values = typeof bound === 'number' ? new Array<number>(size).fill(bound) : [...bound]
    if (values.length !== size)
      throw new InputError(`box ${name}`, `${values.length} bounds`, `${size} (shape ${show(shape)})`)
    return values
  }
  const space: BoxSpace = { kind: 'box', shape: [...shape], low: spread('low', low), high: spread('high', high) }
  for (let i = 0; i < size; i++) {
    if (!(space.low[i]! <= space.high[i]!)) {
      const expected = 'low ≤ high, neither NaN'
      throw new InputError(`box element ${i}`, `low ${space.low[i]} and high ${space.high[i]}`, expected)
    }
  }
  return space
}

/** Column elements per value of the space. */
export function spaceWidth(space: Space): number {
  if (space.kind === 'discrete') return 1
  if (space.kind === 'multi-discrete') return space.sizes.length
  return space.low.length
}

/** The column type of the space's values. */
export function spaceType(space: Space): 'i32' | 'f32' {
  return space.kind === 'box' ? 'f32' : 'i32'
}

/** The number of choices of each action dimension; empty for a box. */
export function choiceSizes(space: Space): readonly number[] {
  if (space.kind === 'discrete') return [space.n]
  return space.kind === 'multi-discrete' ? space.sizes : []
}

/** A space as JSON: infinite bounds, which JSON lacks, are the strings "Infinity" and "-Infinity". */
export function spaceToJson(space: Space): string {
  return JSON.stringify(space, (_, value) =>
    typeof value === 'number' && !Number.isFinite(value) ? String(value) : value,
  )
}
