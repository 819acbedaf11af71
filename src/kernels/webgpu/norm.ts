/** The root-mean-square norm as shaders (kernels/transformer/norm.ts), and sums over rows. */
import { type Bindings, type DeviceColumn, elementwise, floatOf, type Step, step, wholeNumber } from './step.ts'

/** Rows of numbers in a column: `each` of them begin in each row of the block, one after another from element `at`. */
export interface NormedRows {
  readonly column: DeviceColumn
  readonly stride: number
  readonly at: number
}

export interface DeviceNorm {
  readonly width: number
  /** Number of normalized vectors in a row of the block, such as heads. */
  readonly each: number
  readonly epsilon: number
  /** Added to the weights. */
  readonly offset: number
  /** WGSL of the place of the first weight; it may read the column `at`. */
  readonly weight: string
  readonly weights: DeviceColumn
  readonly at: DeviceColumn | null
  readonly numbers: DeviceColumn
  /** The factor of each row, which the forward pass leaves. */
  readonly inverse: DeviceColumn
}

const LANES = 64

const begin = ({ stride, at }: NormedRows, width: number) => `(group.x * ${stride}u + ${at}u + group.y * ${width}u)`

const SUM = `workgroupBarrier();
  for (var half = ${LANES / 2}u; half > 0u; half = half >> 1u) {
    if (lane < half) { work[lane] += work[lane + half]; }
    workgroupBarrier();
  }`

const MAIN = `var<workgroup> work: array<f32, ${LANES}>;
@compute @workgroup_size(${LANES})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  if (group.x >= ${wholeNumber('count')}) { return; }
  var sum = 0.0;`

const bindingsOf = ({ weights, at, numbers }: DeviceNorm) => ({ weights, numbers, ...(at && { at }) })

export function normForward(y: NormedRows, x: NormedRows, norm: DeviceNorm, blockRows: number): Step {
  const { width, each, epsilon, offset, weight, inverse } = norm
  return step(
    'norm',
    { reads: { x: x.column, ...bindingsOf(norm) }, writes: { y: y.column, inverse } },
    [blockRows, each, 1],
    `${MAIN}
  let source = ${begin(x, width)};
  let into = ${begin(y, width)};
  for (var k = lane; k < ${width}u; k += ${LANES}u) { sum += x[source + k] * x[source + k]; }
  work[lane] = sum;
  ${SUM}
  let r = 1.0 / sqrt(work[0] / ${width}.0 + ${epsilon});
  for (var k = lane; k < ${width}u; k += ${LANES}u) { y[into + k] = x[source + k] * r * (${floatOf(offset)} + weights[${weight} + k]); }
  if (lane == 0u) { inverse[group.x * ${each}u + group.y] = r; }
}`,
  )
}

/** Sets dx from dy, or adds to it. dx may be dy's own rows. After `normForward` of the same x. */
export function normBackward(
  dx: NormedRows,
  dy: NormedRows,
  x: NormedRows,
  norm: DeviceNorm,
  accumulate: boolean,
  blockRows: number,
): Step {
  const { width, each, offset, weight, inverse } = norm
  const isOne = dx.column === dy.column
  const reads = { x: x.column, ...bindingsOf(norm), inverse, ...(!isOne && { dy: dy.column }) }
  return step(
    'gradient through a norm',
    { reads, writes: { dx: dx.column } },
    [blockRows, each, 1],
    `${MAIN}
  let source = ${begin(x, width)};
  let into = ${begin(dx, width)};
  let by = ${begin(dy, width)};
  for (var k = lane; k < ${width}u; k += ${LANES}u) {
    sum += ${isOne ? 'dx' : 'dy'}[by + k] * (${floatOf(offset)} + weights[${weight} + k]) * x[source + k];
  }
  work[lane] = sum;
  ${SUM}
  let r = inverse[group.x * ${each}u + group.y];
  let mean = work[0] / ${width}.0 * r * r;
  for (var k = lane; k < ${width}u; k += ${LANES}u) {
    let output = ${isOne ? 'dx' : 'dy'}[by + k] * (${floatOf(offset)} + weights[${weight} + k]);
    dx[into + k] = ${accumulate ? 'dx[into + k] + ' : ''}r * (output - x[source + k] * mean);
  }
}`,
  )
}

/** Adds the gradient by the norm's weights; after `normForward` and before a `normBackward` that replaces dy. */
export function normWeightGradient(
  gradient: DeviceColumn,
  dy: NormedRows,
  x: NormedRows,
  { width, each, weight, at, numbers, inverse }: DeviceNorm,
  scratch: DeviceColumn,
  blockRows: number,
): Step[] {
  const place = (of: NormedRows) =>
    `[(row / ${each}u) * ${of.stride}u + ${of.at}u + (row % ${each}u) * ${width}u + column]`
  return addRowSums({
    name: 'gradient by a norm',
    width,
    rows: blockRows * each,
    each,
    element: `dy${place(dy)} * x${place(x)} * inverse[row]`,
    bindings: { dy: dy.column, x: x.column, inverse },
    place: `${weight} + column`,
    ...{ at, numbers, gradient, scratch },
  })
}

interface RowSums {
  readonly name: string
  readonly width: number
  /** The most rows, `each` per row of the block. */
  readonly rows: number
  readonly each: number
  /** WGSL of the element of `row` and `column`. */
  readonly element: string
  readonly bindings: Bindings['reads']
  /** WGSL of the place in the gradient of `column`; it may read the column `at`. */
  readonly place: string
  readonly at: DeviceColumn | null
  readonly numbers: DeviceColumn
  readonly gradient: DeviceColumn
  readonly scratch: DeviceColumn
}

/** Columns and rows of a workgroup, and the most parts of a sum. */
const [ACROSS, DOWN, MAX_PARTS] = [64, 4, 64]

/** Adds to the gradient the sum of each column over the rows. */
export function addRowSums(sums: RowSums): Step[] {
  const { name, width, rows, each, element, bindings, place, at, numbers, gradient, scratch } = sums
  const parts = Math.min(MAX_PARTS, Math.ceil(rows / 64))
  const perPart = Math.ceil(rows / parts)
  return [
    step(
      name,
      { reads: { ...bindings, numbers }, writes: { scratch } },
      [Math.ceil(width / ACROSS), parts, 1],
      `var<workgroup> work: array<f32, ${ACROSS * DOWN}>;
@compute @workgroup_size(${ACROSS * DOWN})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let column = group.x * ${ACROSS}u + lane % ${ACROSS}u;
  let end = min(${wholeNumber('count')} * ${each}u, (group.y + 1u) * ${perPart}u);
  var sum = 0.0;
  if (column < ${width}u) {
    for (var row = group.y * ${perPart}u + lane / ${ACROSS}u; row < end; row += ${DOWN}u) { sum += ${element}; }
  }
  work[lane] = sum;
  workgroupBarrier();
  if (lane < ${ACROSS}u && column < ${width}u) {
    scratch[group.y * ${width}u + column] = ${Array.from({ length: DOWN }, (_, i) => `work[lane + ${i * ACROSS}u]`).join(' + ')};
  }
}`,
    ),
    elementwise(
      `add ${name}`,
      { reads: { scratch, ...(at && { at }) }, writes: { gradient } },
      width,
      `let column = i;
  var sum = 0.0;
  for (var part = 0u; part < ${parts}u; part++) { sum += scratch[part * ${width}u + i]; }
  gradient[${place}] += sum;`,
    ),
  ]
}
