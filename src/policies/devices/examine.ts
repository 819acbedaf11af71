/** The doctor's checks of one device: whether it starts, computes correctly, and how fast it is. */
import { NotInstalled } from '../../base/files/packages.ts'
import { type Device, type DeviceName, onlyIfNamed, startDevice } from './device.ts'
import type { Tf } from './tfjs.ts'

/** Results of a device's checks. */
export interface DeviceReport {
  readonly name: DeviceName
  /** `missing`: a package is not installed; `broken`: it cannot start, or computes wrongly. */
  readonly status: 'ready' | 'missing' | 'broken'
  /** Why it is not ready, or is used only by name; otherwise null. */
  readonly why: string | null
  readonly version: string | null
  readonly readsSynchronously: boolean | null
  readonly isGpu: boolean | null
  /** Measured speed in 1e9 floating-point operations per second, for products of two 512 × 512 matrices. */
  readonly gflops: number | null
}

const SIZE = 512
const MEASURE_MS = 200

/** Starts a device, compares a matrix product with plain loops, and measures its speed. */
export async function examineDevice(name: DeviceName): Promise<DeviceReport> {
  const nothing = { name, version: null, readsSynchronously: null, isGpu: null, gflops: null }
  let device: Device
  try {
    device = await startDevice(name)
  } catch (error) {
    const cause = (error as Error).cause
    if (!(cause instanceof Error)) throw error
    return { ...nothing, status: cause instanceof NotInstalled ? 'missing' : 'broken', why: cause.message }
  }
  const { version, readsSynchronously, isGpu } = device
  const found = { name, version, readsSynchronously, isGpu }
  try {
    return { ...found, status: 'ready', why: onlyIfNamed(device), gflops: await measure(device.tf) }
  } catch (error) {
    return { ...found, status: 'broken', why: (error as Error).message, gflops: null }
  }
}

async function measure(tf: Tf): Promise<number> {
  // Small whole numbers: the sums are exact in every order and in every format down to bfloat16.
  const values = (a: number, b: number) => Float32Array.from({ length: SIZE * SIZE }, (_, i) => ((i * a + b) % 7) - 3)
  const [a, b] = [values(11, 0), values(5, 2)]
  const [left, right] = [tf.tensor2d(a, [SIZE, SIZE]), tf.tensor2d(b, [SIZE, SIZE])]
  const first = tf.matMul(left, right)
  const product = await first.data()
  first.dispose()
  const expected = multiply(a, b)
  for (const [i, value] of expected.entries()) {
    if (product[i] === value) continue
    const [row, column] = [Math.floor(i / SIZE), i % SIZE]
    throw new Error(`a matrix product is wrong: got ${product[i]} at row ${row}, column ${column}, expected ${value}`)
  }
  // A device may queue its work, so double it each time and read one number at the end.
  let best = 0
  const start = performance.now()
  for (let calls = 1; best === 0 || performance.now() - start < MEASURE_MS; calls *= 2) {
    const from = performance.now()
    const corner = tf.tidy(() => {
      for (let i = 1; i < calls; i++) tf.matMul(left, right).dispose()
      return tf.slice(tf.matMul(left, right), [0, 0], [1, 1])
    })
    await corner.data()
    corner.dispose()
    best = Math.max(best, (2 * SIZE ** 3 * calls) / (performance.now() - from) / 1e6)
  }
  tf.dispose([left, right])
  return best
}

function multiply(a: Float32Array, b: Float32Array): Float32Array {
  const c = new Float32Array(SIZE * SIZE)
  for (let i = 0; i < SIZE; i++) {
    for (let k = 0; k < SIZE; k++) {
      const factor = a[i * SIZE + k]!
      for (let j = 0; j < SIZE; j++) c[i * SIZE + j]! += factor * b[k * SIZE + j]!
    }
  }
  return c
}
