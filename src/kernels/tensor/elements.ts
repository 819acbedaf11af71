/** Functions of single elements, and of pairs of elements with broadcasting. */

/** What `mapElements` computes. */
export const ElementMap = { tanh: 0, exp: 1, log: 2, softplus: 3, erf: 4 } as const

/** y[i] = f(x[i]). Softplus is log(1 + eˣ); erf is 2/√π ∫₀ˣ exp(−t²) dt. */
export function mapElements(y: Float32Array, x: Float32Array, map: number, length: number): void {
  for (let i = 0; i < length; i++) y[i] = mapped(x[i]!, map)
}

function mapped(x: number, map: number): number {
  switch (map) {
    case ElementMap.tanh:
      return Math.tanh(x)
    case ElementMap.exp:
      return Math.exp(x)
    case ElementMap.log:
      return Math.log(x)
    case ElementMap.softplus:
      return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))
    default:
      return erf(x)
  }
}

/** The series 2/√π · exp(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·5 … (2n+1)), whose terms are all of one sign (Abramowitz and Stegun 7.1.6). */
function erf(x: number): number {
  if (!(Math.abs(x) < 6)) return Math.sign(x)
  let term = x
  let sum = x
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1)
    sum += term
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum
}

/** What `combineRows` computes of a pair. */
export const Combination = { maximum: 0, minimum: 1 } as const
/** What `compareRows` asks of a pair. */
export const Comparison = { equal: 0, notEqual: 1, greater: 2, greaterEqual: 3, less: 4, lessEqual: 5 } as const

/**
 * out (numRows × width): the larger or smaller of a[row · aRow + k · aStep] and b[row · bRow + k · bStep], NaN where either
 * is. A step is 1, or 0 to repeat one element along the whole row.
 */
export function combineRows(
  out: Float32Array,
  a: Float32Array,
  b: Float32Array,
  combination: number,
  numRows: number,
  width: number,
  aRow: number,
  aStep: number,
  bRow: number,
  bStep: number,
): void {
  const combine = combination === Combination.maximum ? Math.max : Math.min
  for (let row = 0, i = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++, i++) out[i] = combine(a[row * aRow + k * aStep]!, b[row * bRow + k * bStep]!)
  }
}

/** out (numRows × width): 1 where the comparison of the two elements holds, else 0. Steps as in `combineRows`. */
export function compareRows(
  out: Uint8Array,
  a: Float32Array,
  b: Float32Array,
  comparison: number,
  numRows: number,
  width: number,
  aRow: number,
  aStep: number,
  bRow: number,
  bStep: number,
): void {
  for (let row = 0, i = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++, i++) {
      out[i] = Number(compare(a[row * aRow + k * aStep]!, b[row * bRow + k * bStep]!, comparison))
    }
  }
}

function compare(a: number, b: number, comparison: number): boolean {
  switch (comparison) {
    case Comparison.equal:
      return a === b
    case Comparison.notEqual:
      return a !== b
    case Comparison.greater:
      return a > b
    case Comparison.greaterEqual:
      return a >= b
    case Comparison.less:
      return a < b
    default:
      return a <= b
  }
}

/** out[i] = flag[i] ≠ 0 ? a[i] : b[i]. */
export function selectElements(
  out: Float32Array | Int32Array,
  flag: Uint8Array,
  a: Float32Array | Int32Array,
  b: Float32Array | Int32Array,
  length: number,
): void {
  for (let i = 0; i < length; i++) out[i] = flag[i] !== 0 ? a[i]! : b[i]!
}

/** out[i] = flag[i] ≠ 0 ? 1 : 0. */
export function flagsToFloats(out: Float32Array, flag: Uint8Array, length: number): void {
  for (let i = 0; i < length; i++) out[i] = flag[i] !== 0 ? 1 : 0
}
