/**
 * Matrix products C = A · B as shaders. A workgroup computes a tile of C from tiles of A and B in its shared memory, and each invocation a
 * few rows and columns of it in registers. The code that reads an element of A or B is a parameter, so the same product
 * computes a dense layer, its gradients, and a convolution without unfolded patches.
 */
import { type Bindings, type DeviceColumn, elementwise, type Step, step, wholeNumber } from './step.ts'

/** Elements of C that a workgroup and an invocation compute, and of the summed dimension that are loaded at once. */
export interface Tile {
  readonly rows: number
  readonly columns: number
  readonly rowsEach: number
  readonly columnsEach: number
  readonly depth: number
}

/** A matrix whose element is a WGSL expression of `row`, `k` (of A) or `k`, `column` (of B). */
export interface Source {
  readonly element: string
  /** Whether neighbors in the summed dimension are neighbors in memory, and so are loaded by neighboring invocations. */
  readonly alongDepth: boolean
}

export interface Product {
  readonly name: string
  readonly rows: number
  readonly columns: number
  readonly depth: number
  /** The dimension of which only the block's `count` × `each` elements exist; the size given above is then the largest. */
  readonly counted?: { readonly dimension: 'rows' | 'depth'; readonly each: number }
  readonly a: Source
  readonly b: Source
  /** WGSL that stores `value`, the element of `row` and `column`. */
  readonly store: string
  readonly functions?: string
  readonly bindings: Bindings
  readonly tile?: Tile
  /** The number of parts of the summed dimension, whose results are stored separately: `part` in `store`. */
  readonly parts?: number
  /** WGSL that stores `sum`, that of column `column` of B over the summed dimension. */
  readonly storeSum?: string
}

/** Sizes of tiles. On a large GPU `square` reached 24 TFLOP/s, and 128 × 128 less at every size from 256 to 4,096. */
export const TILES = {
  square: { rows: 64, columns: 64, rowsEach: 4, columnsEach: 4, depth: 16 },
  narrow: { rows: 128, columns: 16, rowsEach: 4, columnsEach: 2, depth: 16 },
} as const satisfies Readonly<Record<string, Tile>>

/** Workgroups that keep a large GPU busy; below this the sum is divided. */
const BUSY_GROUPS = 256

/** The tile for a product with so many columns. */
export function tileFor(columns: number): Tile {
  return columns <= 16 ? TILES.narrow : TILES.square
}

/** The number of parts of a sum over `depth` with which a product of few tiles keeps the device busy. */
export function partsFor(rows: number, columns: number, depth: number): number {
  const tile = tileFor(columns)
  const groups = Math.ceil(rows / tile.rows) * Math.ceil(columns / tile.columns)
  return Math.max(1, Math.min(Math.floor(BUSY_GROUPS / groups), Math.floor(depth / 256)))
}

/** A product as one step. */
export function product(options: Product): Step {
  const { name, rows, columns, depth, counted, a, b, store, storeSum, functions = '', bindings, parts = 1 } = options
  const tile = options.tile ?? tileFor(columns)
  const across = tile.columns / tile.columnsEach
  const invocations = (tile.rows / tile.rowsEach) * across
  const perPart = Math.ceil(Math.ceil(depth / parts) / tile.depth) * tile.depth
  const count = counted && `${wholeNumber('count')} * ${counted.each}u`
  const rowLimit = counted?.dimension === 'rows' ? count! : `${rows}u`
  const depthLimit = counted?.dimension === 'depth' ? count! : `${depth}u`
  const groups = [Math.ceil(columns / tile.columns), Math.ceil(rows / tile.rows), parts] as const
  const lefts = sideOf('left', tile.rows, tile.rowsEach)
  const rights = sideOf('right', tile.columns, tile.columnsEach)
  const accumulators = range(tile.rowsEach).flatMap((i) => range(tile.columnsEach).map((j) => `c${i}_${j}`))
  const multiply = range(tile.rowsEach).flatMap((i) =>
    range(tile.columnsEach).map((j) => `c${i}_${j} = fma(${lefts.number(i)}, ${rights.number(j)}, c${i}_${j});`),
  )
  const stores = range(tile.rowsEach).map((i) => {
    const inRow = range(tile.columnsEach).map((j) => {
      const column = `group.x * ${tile.columns}u + ${rights.place(j, 'laneX')}`
      return `{ let column = ${column}; if (column < ${columns}u) { let value = c${i}_${j}; ${store} } }`
    })
    return `{ let row = group.y * ${tile.rows}u + ${lefts.place(i, 'laneY')}; if (row < rowLimit) { ${inRow.join('\n')} } }`
  })
  const sums = storeSum === undefined ? [] : range(tile.columnsEach).map((j) => `s${j}`)
  const body = `${functions}
var<workgroup> left: array<${lefts.type}, ${lefts.stride * tile.depth}>;
var<workgroup> right: array<${rights.type}, ${rights.stride * tile.depth}>;
fn elementOfA(row: u32, k: u32) -> f32 { return ${a.element}; }
fn elementOfB(k: u32, column: u32) -> f32 { return ${b.element}; }
@compute @workgroup_size(${invocations})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32) {
  let rowLimit = ${rowLimit};
  let firstRow = group.y * ${tile.rows}u;
  if (firstRow >= rowLimit) { return; }
  let firstColumn = group.x * ${tile.columns}u;
  let laneX = index % ${across}u;
  let laneY = index / ${across}u;
  let part = group.z;
  let end = min(${depthLimit}, (part + 1u) * ${perPart}u);
  ${[...accumulators, ...sums].map((each) => `var ${each} = 0.0;`).join(' ')}
  for (var begin = part * ${perPart}u; begin < end; begin += ${tile.depth}u) {
    ${lefts.load(a.alongDepth, tile.depth, invocations, (at, k) => {
      const row = `firstRow + ${at}`
      return `select(0.0, elementOfA(min(${row}, rowLimit - 1u), min(${k}, end - 1u)), ${row} < rowLimit && ${k} < end)`
    })}
    ${rights.load(b.alongDepth, tile.depth, invocations, (at, k) => {
      const column = `firstColumn + ${at}`
      return `select(0.0, elementOfB(min(${k}, end - 1u), min(${column}, ${columns - 1}u)), ${column} < ${columns}u && ${k} < end)`
    })}
    workgroupBarrier();
    for (var k = 0u; k < ${tile.depth}u; k++) {
      ${lefts.read('laneY')}
      ${rights.read('laneX')}
      ${multiply.join(' ')}
      ${sums.length > 0 ? sums.map((sum, j) => `${sum} += ${rights.number(j)};`).join(' ') : ''}
    }
    workgroupBarrier();
  }
  ${stores.join('\n  ')}
  ${
    storeSum === undefined
      ? ''
      : `if (group.y == 0u && laneY == 0u) { ${sums
          .map(
            (sum, j) =>
              `{ let column = firstColumn + ${rights.place(j, 'laneX')}; if (column < ${columns}u) { let sum = ${sum}; ${storeSum} } }`,
          )
          .join('\n')} }`
  }
}`
  return step(name, bindings, groups, body)
}

/** How one side's tile lies in shared memory: by fours if an invocation takes fours, with room between rows against bank conflicts. */
function sideOf(name: string, size: number, each: number) {
  const fours = each % 4 === 0 ? each / 4 : 0
  const stride = fours > 0 ? size / 4 + 1 : size + 1
  const width = fours > 0 ? 4 : 1
  return {
    type: fours > 0 ? 'vec4f' : 'f32',
    stride,
    /** The place of the invocation's i-th element in the tile. */
    place: (i: number, at: string) =>
      fours > 0 ? `${Math.floor(i / 4) * (size / fours) + (i % 4)}u + ${at} * 4u` : `${at} * ${each}u + ${i}u`,
    number: (i: number) => (fours > 0 ? `${name}${Math.floor(i / 4)}[${i % 4}]` : `${name}${i}`),
    read: (at: string) =>
      fours > 0
        ? range(fours)
            .map((i) => `let ${name}${i} = ${name}[k * ${stride}u + ${(i * size) / each}u + ${at}];`)
            .join(' ')
        : range(each)
            .map((i) => `let ${name}${i} = ${name}[k * ${stride}u + ${at} * ${each}u + ${i}u];`)
            .join(' '),
    load(alongDepth: boolean, depth: number, invocations: number, element: (at: string, k: string) => string) {
      const pieces = (size / width) * depth
      const [k, at] = alongDepth ? [`t % ${depth}u`, `t / ${depth}u`] : [`t / ${size / width}u`, `t % ${size / width}u`]
      const of = (j: number) => element(`(at * ${width}u + ${j}u)`, '(begin + k)')
      const value = width === 1 ? of(0) : `vec4f(${range(4).map(of).join(', ')})`
      const store = `{ let k = ${k}; let at = ${at}; ${name}[k * ${stride}u + at] = ${value}; }`
      if (pieces === invocations) return `{ let t = index; ${store} }`
      // Not unrolled: with a long `element`, some compilers would need minutes for the shader.
      return `for (var t = index; t < ${pieces}u; t += ${invocations}u) ${store}`
    },
  }
}

const range = (count: number) => Array.from({ length: count }, (_, i) => i)

/** Elements that the parts of a product need at most: as many workgroups as keep the device busy, a tile of results each. */
export const PARTS_LENGTH = BUSY_GROUPS * 64 * 64

/**
 * Adds a product to `into`, at the place that WGSL `place` has for `row` and `column`: at once, or in parts in `scratch` (PARTS_LENGTH
 * elements) where it has few tiles. `placed` are the columns that `place` reads.
 */
export function addProduct(
  { bindings, ...options }: Omit<Product, 'store' | 'parts' | 'bindings'> & { readonly bindings: Bindings['reads'] },
  into: DeviceColumn,
  place: string,
  placed: Bindings['reads'],
  scratch: DeviceColumn,
): Step[] {
  const { rows, columns, depth, name } = options
  const parts = partsFor(rows, columns, depth)
  if (parts === 1) {
    const direct = { reads: { ...bindings, ...placed }, writes: { into } }
    return [product({ ...options, store: `into[${place}] += value;`, bindings: direct })]
  }
  const length = rows * columns
  return [
    product({
      ...options,
      parts,
      store: `scratch[part * ${length}u + row * ${columns}u + column] = value;`,
      bindings: { reads: bindings, writes: { scratch } },
    }),
    elementwise(
      `add ${name}`,
      { reads: { scratch, ...placed }, writes: { into } },
      length,
      `let row = i / ${columns}u;
  let column = i % ${columns}u;
  var sum = scratch[i];
  for (var part = 1u; part < ${parts}u; part++) { sum += scratch[part * ${length}u + i]; }
  into[${place}] += sum;`,
    ),
  ]
}

/** A step that adds the parts of a divided product, `length` elements each, to `into` from element `at`. */
export function addParts(
  name: string,
  into: DeviceColumn,
  at: number,
  parts: DeviceColumn,
  numParts: number,
  length: number,
): Step {
  return elementwise(
    name,
    { reads: { parts }, writes: { into } },
    length,
    `var sum = parts[i];
  for (var part = 1u; part < ${numParts}u; part++) { sum += parts[part * ${length}u + i]; }
  into[${at}u + i] += sum;`,
  )
}
