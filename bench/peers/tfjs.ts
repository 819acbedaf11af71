/** The network of the kernels room in tfjs's wasm backend, as it comes, against ours: forward, and a PPO update. */
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { bestKernelBuild, createKernels } from '../../src/kernels/bind.ts'
import { Columns } from '../kernels/columns.ts'
import { Network, type TwinRows } from '../kernels/network.ts'
import { Pair } from '../kernels/pair.ts'
import { checkClose, type Figure, figure, interleave, rates, ratio, secondsOf } from '../measure.ts'
import { tfjsFolder } from './python.ts'

const FORWARD_ROWS = [1024, 8192]
const UPDATE_ROWS = [1024, 8192]
const REPEATS = 9

/** What is used of tfjs, which is not among our own packages. */
interface Tensor {
  dataSync(): Float32Array
}
type Binary = (a: Tensor, b: Tensor | number) => Tensor
type Unary = (x: Tensor) => Tensor
interface Tf {
  setBackend(name: string): Promise<boolean>
  ready(): Promise<void>
  tidy<T>(work: () => T): T
  tensor2d(values: Float32Array, shape: [number, number]): Tensor
  tensor1d(values: Float32Array | Int32Array, type?: string): Tensor
  variable(value: Tensor): Tensor
  reshape(value: Tensor, shape: number[]): Tensor
  oneHot(indices: Tensor, depth: number): Tensor
  cast(value: Tensor, type: string): Tensor
  add: Binary
  sub: Binary
  mul: Binary
  matMul: (a: Tensor, b: Tensor) => Tensor
  minimum: Binary
  tanh: Unary
  exp: Unary
  sqrt: Unary
  square: Unary
  neg: Unary
  mean: Unary
  logSoftmax: Unary
  sum(x: Tensor, axis?: number): Tensor
  clipByValue(x: Tensor, low: number, high: number): Tensor
  addN(values: Tensor[]): Tensor
  variableGrads(loss: () => Tensor, of: Tensor[]): { value: Tensor; grads: Record<string, Tensor> }
  train: { adam(rate: number, beta1: number, beta2: number, epsilon: number): Optimizer }
  memory(): { numTensors: number }
}
interface Optimizer {
  applyGradients(grads: Record<string, Tensor>): void
}

export async function tfjsFigures(): Promise<Figure[]> {
  const { tf, version } = await loadTfjs()
  const memory = new WebAssembly.Memory({ initial: 512, maximum: 512, shared: true })
  const [columns, kernels] = [new Columns(memory), createKernels(memory, bestKernelBuild())]
  const network = new Network(columns)
  const made = new Map([1024, 8192].map((count) => [count, network.rows(columns, count)]))
  const figures: Figure[] = []
  const pair = await Pair.start(bestKernelBuild(), [1024, 8192])
  const add = async (what: string, count: number, atLeast: number, theirs: () => void, ours: () => void) => {
    const calls = 16_384 / count
    const repeated = (work: () => void) => () =>
      secondsOf(() => {
        for (let i = 0; i < calls; i++) work()
      })
    const job = what === 'forward' ? 'forward' : 'update'
    const both = () => pair.run(job, count === 1024 ? 0 : 1, calls).seconds * calls
    const runners = { theirs: repeated(theirs), ours: repeated(ours), both }
    const seconds = await interleave(runners, { repeats: REPEATS, warmups: 2 })
    const name = `network 4-64-64-(2+1), ${what}, ${count} rows`
    figures.push(figure(`${name}, tfjs ${version} wasm`, 'rows/s', rates(calls * count, seconds.theirs)), {
      ...figure(`${name}, Colonnade, 1 thread`, 'rows/s', rates(calls * count, seconds.ours)),
      ratios: [ratio('tfjs wasm', seconds.theirs, seconds.ours, { atLeast })],
    })
    // tfjs's wasm as it comes has one thread; ours have as many as the machine has cores.
    figures.push({
      ...figure(`${name}, Colonnade, 2 threads`, 'rows/s', rates(calls * count, seconds.both)),
      ratios: [ratio('tfjs wasm', seconds.theirs, seconds.both, { atLeast })],
    })
  }
  for (const count of FORWARD_ROWS) {
    const [rows, twin] = [made.get(count)!, new TfjsNetwork(tf, network, made.get(count)!)]
    network.restart()
    checkClose(twin.forward(), network.forward(kernels, rows), 1e-4, 'the forward sum of tfjs')
    await add(
      'forward',
      count,
      10,
      () => twin.forward(),
      () => network.forward(kernels, rows),
    )
  }
  for (const count of UPDATE_ROWS) {
    network.restart()
    const [rows, twin] = [made.get(count)!, new TfjsNetwork(tf, network, made.get(count)!)]
    // The loss and the norm of the second update show that the first moved the weights alike.
    for (const which of ['first', 'second']) {
      checkClose(twin.update(), network.update(kernels, rows), 1e-3, `the ${which} update's sum of tfjs`)
    }
    const { numTensors } = tf.memory()
    await add(
      'PPO update',
      count,
      20,
      () => twin.update(),
      () => network.update(kernels, rows),
    )
    checkClose(tf.memory().numTensors, numTensors, 0, 'the number of tensors')
  }
  pair.close()
  return figures
}

async function loadTfjs(): Promise<{ tf: Tf; version: string }> {
  const folder = tfjsFolder()
  const require = createRequire(join(folder, 'package.json'))
  const tf = require('@tensorflow/tfjs') as Tf & { version_core: string }
  const wasm = require('@tensorflow/tfjs-backend-wasm') as { setWasmPaths(folder: string): void }
  wasm.setWasmPaths(join(folder, 'node_modules/@tensorflow/tfjs-backend-wasm/dist/'))
  if (!(await tf.setBackend('wasm'))) throw new Error('tfjs has no wasm backend here')
  await tf.ready()
  return { tf, version: tf.version_core }
}

/** The same network and rows in tensors. */
class TfjsNetwork {
  readonly #tf: Tf
  readonly #count: number
  readonly #weights: Tensor[]
  readonly #adam: Optimizer
  readonly #x: Tensor
  readonly #chosen: Tensor
  readonly #old: Tensor
  readonly #target: Tensor
  readonly #advantage: Tensor

  constructor(tf: Tf, { weights }: Network, { x, old, advantage, target, action, count }: TwinRows) {
    this.#tf = tf
    this.#count = count
    const { w0, b0, w1, b1, wA, bA, wV, bV } = weights
    const matrix = (values: Float32Array, rows: number) =>
      tf.variable(tf.tensor2d(values.slice(), [rows, values.length / rows]))
    const vector = (values: Float32Array) => tf.variable(tf.tensor1d(values.slice()))
    this.#weights = [matrix(w0, 4), vector(b0), matrix(w1, 64), vector(b1)]
    this.#weights.push(matrix(wA, 64), vector(bA), matrix(wV, 64), vector(bV))
    this.#adam = tf.train.adam(1e-3, 0.9, 0.999, 1e-5)
    this.#x = tf.tensor2d(x.slice(), [count, 4])
    this.#chosen = tf.cast(tf.oneHot(tf.tensor1d(action.slice(), 'int32'), 2), 'float32')
    this.#old = tf.tensor1d(old.slice())
    this.#target = tf.tensor1d(target.slice())
    this.#advantage = tf.tensor1d(advantage.slice())
  }

  #outputs(): { logits: Tensor; value: Tensor } {
    const tf = this.#tf
    const [w0, b0, w1, b1, wA, bA, wV, bV] = this.#weights
    const dense = (x: Tensor, w: Tensor | undefined, b: Tensor | undefined) => tf.add(tf.matMul(x, w!), b!)
    const hidden = tf.tanh(dense(tf.tanh(dense(this.#x, w0, b0)), w1, b1))
    return { logits: dense(hidden, wA, bA), value: tf.reshape(dense(hidden, wV, bV), [this.#count]) }
  }

  /** As `Network.forward`: the sum over blocks of 256 of the first row's value and second logit. */
  forward(): number {
    const [logits, value] = this.#tf.tidy(() => {
      const outputs = this.#outputs()
      return [outputs.logits.dataSync(), outputs.value.dataSync()] as const
    })
    let sum = 0
    for (let from = 0; from < this.#count; from += 256) sum += value[from]! + logits[2 * from + 1]!
    return sum
  }

  /** As `Network.update`: the loss (not divided by the rows) and the norm, summed. */
  update(): number {
    const tf = this.#tf
    return tf.tidy(() => {
      const { value: loss, grads } = tf.variableGrads(() => this.#loss(), this.#weights)
      const norm = tf.sqrt(tf.addN(Object.values(grads).map((gradient) => tf.sum(tf.square(gradient)))))
      const [normValue] = norm.dataSync()
      const clip = normValue! > 0.5 ? 0.5 / (normValue! + 1e-6) : 1
      this.#adam.applyGradients(
        Object.fromEntries(Object.entries(grads).map(([name, gradient]) => [name, tf.mul(gradient, clip)])),
      )
      return loss.dataSync()[0]! * this.#count + normValue!
    })
  }

  /** Clipped policy loss with normalized advantages, half the value loss, a hundredth of the entropy. */
  #loss(): Tensor {
    const tf = this.#tf
    const { logits, value } = this.#outputs()
    const logprobs = tf.logSoftmax(logits)
    const entropy = tf.neg(tf.sum(tf.mul(tf.exp(logprobs), logprobs), 1))
    const ratioOf = tf.exp(tf.sub(tf.sum(tf.mul(logprobs, this.#chosen), 1), this.#old))
    const centered = tf.sub(this.#advantage, tf.mean(this.#advantage))
    const deviation = Math.sqrt(tf.sum(tf.square(centered)).dataSync()[0]! / (this.#count - 1))
    const advantage = tf.mul(centered, 1 / (deviation + 1e-8))
    const clipped = tf.clipByValue(ratioOf, 0.8, 1.2)
    const policyLoss = tf.neg(tf.mean(tf.minimum(tf.mul(ratioOf, advantage), tf.mul(clipped, advantage))))
    const valueLoss = tf.mul(tf.mean(tf.square(tf.sub(value, this.#target))), 0.25)
    return tf.sub(tf.add(policyLoss, valueLoss), tf.mul(tf.mean(entropy), 0.01))
  }
}
