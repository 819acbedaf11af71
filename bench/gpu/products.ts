/** Matrix products: checked against sums in f64, then timed beside our kernel on one thread of the processor. */
import { createKernels, MATMUL_SCRATCH } from '../../src/kernels/bind.ts'
import type { Gpu } from '../../src/kernels/webgpu/gpu.ts'
import { product, TILES, type Tile, tileFor } from '../../src/kernels/webgpu/product.ts'
import { deviceColumn, type Step } from '../../src/kernels/webgpu/step.ts'

interface Sizes {
  readonly rows: number
  readonly columns: number
  readonly depth: number
  readonly aTransposed: boolean
  readonly bTransposed: boolean
}

/** C = A · B with its columns on the device. */
function productOn({ rows, columns, depth, aTransposed, bTransposed }: Sizes, tile: Tile) {
  const [a, b, c] = [
    deviceColumn('a', rows * depth),
    deviceColumn('b', depth * columns),
    deviceColumn('c', rows * columns),
  ]
  const one: Step = product({
    ...{ name: 'product', rows, columns, depth, tile },
    a: {
      element: aTransposed ? `a[k * ${rows}u + row]` : `a[row * ${depth}u + k]`,
      alongDepth: !aTransposed,
    },
    b: {
      element: bTransposed ? `b[column * ${depth}u + k]` : `b[k * ${columns}u + column]`,
      alongDepth: bTransposed,
    },
    store: `c[row * ${columns}u + column] = value;`,
    bindings: { reads: { a, b }, writes: { c } },
  })
  return { a, b, c, one }
}

const numbers = (length: number, seed: number) =>
  Float32Array.from({ length }, (_, i) => Math.fround(Math.sin(i * 12.9898 + seed) * 0.5))

/** The largest error of each kind of product with each tile, as a part of the largest element. */
export async function checkProducts(gpu: Gpu): Promise<object[]> {
  const rows: object[] = []
  for (const [name, tile] of Object.entries(TILES)) {
    for (const [aTransposed, bTransposed] of [
      [false, false],
      [true, false],
      [false, true],
    ] as const) {
      const sizes = { rows: 150, columns: 141, depth: 77, aTransposed, bTransposed }
      const memory = gpu.memory()
      const { a, b, c, one } = productOn(sizes, tile)
      const ready = await memory.ready([one])
      const [left, right] = [numbers(a.length, 1), numbers(b.length, 2)]
      memory.send(a, left)
      memory.send(b, right)
      memory.run(ready)
      const got = new Float32Array(c.length)
      await memory.read([{ column: c, into: got }])
      memory.release()
      const { error, largest } = compare(got, left, right, sizes)
      rows.push({ tile: name, aTransposed, bTransposed, error: error / largest, isRight: error / largest < 1e-5 })
    }
  }
  return rows
}

function compare(got: Float32Array, a: Float32Array, b: Float32Array, sizes: Sizes) {
  const { rows, columns, depth, aTransposed, bTransposed } = sizes
  let error = 0
  let largest = 0
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      let sum = 0
      for (let k = 0; k < depth; k++) {
        sum +=
          a[aTransposed ? k * rows + row : row * depth + k]! *
          b[bTransposed ? column * depth + k : k * columns + column]!
      }
      error = Math.max(error, Math.abs(sum - got[row * columns + column]!))
      largest = Math.max(largest, Math.abs(sum))
    }
  }
  return { error, largest }
}

/** Seconds of products that are timed together, on the device. */
const BATCH_SECONDS = 0.2

/** GFLOP/s of square products beside one thread of the processor. */
export async function timeProducts(gpu: Gpu, size: 'full' | 'small', keep: (rows: object[]) => void): Promise<void> {
  const rows: object[] = []
  for (const side of size === 'full' ? [256, 512, 1024, 2048, 4096] : [64, 128]) {
    const sizes = { rows: side, columns: side, depth: side, aTransposed: false, bTransposed: false }
    const operations = 2 * side ** 3
    const cpuGflops = operations / cpuSeconds(side) / 1e9
    const memory = gpu.memory()
    const { a, b, c, one } = productOn(sizes, tileFor(side))
    const ready = await memory.ready([one])
    const [left, right] = [numbers(a.length, 1), numbers(b.length, 2)]
    memory.send(a, left)
    memory.send(b, right)
    const gpuGflops = operations / (await deviceSeconds(memory, ready)) / 1e9
    const got = new Float32Array(c.length)
    await memory.read([{ column: c, into: got }])
    memory.release()
    const errorOfSamples = sampleError(got, left, right, side)
    rows.push({ side, cpuGflops, gpuGflops, ratio: gpuGflops / cpuGflops, errorOfSamples })
    keep(rows)
  }
}

/** Median seconds of a product on the device: many are given at once, so that the device does not wait for the processor. */
async function deviceSeconds(
  memory: ReturnType<Gpu['memory']>,
  ready: Awaited<ReturnType<ReturnType<Gpu['memory']>['ready']>>,
): Promise<number> {
  const of = async (count: number) => {
    const start = performance.now()
    for (let i = 0; i < count; i++) memory.run(ready)
    await memory.done()
    return (performance.now() - start) / 1000
  }
  await of(2)
  const first = await of(3)
  const count = Math.max(3, Math.min(500, Math.round((3 * BATCH_SECONDS) / first)))
  const seconds = [await of(count), await of(count), await of(count)].map((each) => each / count)
  return seconds.toSorted((x, y) => x - y)[1]!
}

/** The largest error of some elements, as a part of the root of the depth. */
function sampleError(got: Float32Array, a: Float32Array, b: Float32Array, side: number): number {
  let worst = 0
  for (let i = 0; i < 200; i++) {
    const row = (i * 7919) % side
    const column = (i * 104_729) % side
    let sum = 0
    for (let k = 0; k < side; k++) sum += a[row * side + k]! * b[k * side + column]!
    worst = Math.max(worst, Math.abs(sum - got[row * side + column]!) / Math.sqrt(side))
  }
  return worst
}

/** Median seconds of our own kernel in this thread. */
function cpuSeconds(side: number): number {
  const floats = side * side
  const bytes = 4 * (3 * floats + MATMUL_SCRATCH) + 65_536
  const pages = Math.ceil(bytes / 65_536)
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
  const kernels = createKernels(memory, 'best')
  const at = (index: number, length: number) => new Float32Array(memory.buffer, 1024 + index * floats * 4, length)
  const [a, b, c, scratch, none] = [at(0, floats), at(1, floats), at(2, floats), at(3, MATMUL_SCRATCH), at(0, 0)]
  a.set(numbers(floats, 1))
  b.set(numbers(floats, 2))
  const once = () => {
    const start = performance.now()
    kernels.matmul(c, a, b, none, scratch, side, side, side, false, false, false)
    return (performance.now() - start) / 1000
  }
  once()
  const seconds = Array.from({ length: side > 1024 ? 1 : 5 }, once)
  return seconds.toSorted((x, y) => x - y)[Math.floor(seconds.length / 2)]!
}
