/** Networks in tensors for the devices room: the perceptron of the peers room with its PPO update, and a small transformer. */
import type { Scalar, Tensor, Tensor2D, Variable } from '@tensorflow/tfjs-core'

type Tf = typeof import('@tensorflow/tfjs-core')

/** One training step of a network on fixed data. */
export interface Twin {
  /** Forward, backward, and Adam; the loss before it, for the caller to read and dispose. */
  descend(): Tensor
  /** As `descend`, on devices that can be read at once. */
  step(): number
  /** The gradients of the present weights, in the order of the weights. */
  gradients(): Float32Array[]
  /** Puts the first weights back, and forgets Adam's moments. */
  restart(): void
  dispose(): void
}

/** What both networks are made of: weights, their first values, a loss, and an optimizer. */
class Trained implements Twin {
  readonly #tf: Tf
  readonly #weights: readonly Variable[]
  readonly #first: readonly Tensor[]
  readonly #data: readonly Tensor[]
  readonly #loss: () => Scalar
  #adam: ReturnType<Tf['train']['adam']>

  constructor(tf: Tf, weights: readonly Variable[], data: readonly Tensor[], loss: () => Scalar) {
    this.#tf = tf
    this.#weights = weights
    this.#first = weights.map((weight) => tf.clone(weight))
    this.#data = data
    this.#loss = loss
    this.#adam = tf.train.adam(1e-3, 0.9, 0.999, 1e-5)
  }

  descend(): Tensor {
    return this.#tf.tidy(() => {
      const { value, grads } = this.#tf.variableGrads(this.#loss, [...this.#weights])
      this.#adam.applyGradients(grads as never)
      return value
    })
  }

  step(): number {
    const loss = this.descend()
    const [value] = loss.dataSync()
    loss.dispose()
    return value!
  }

  gradients(): Float32Array[] {
    return this.#tf.tidy(() => {
      const { grads } = this.#tf.variableGrads(this.#loss, [...this.#weights])
      return this.#weights.map(({ name }) => grads[name]!.dataSync().slice() as Float32Array)
    })
  }

  restart(): void {
    this.#weights.forEach((weight, i) => {
      weight.assign(this.#first[i]!)
    })
    this.#adam.dispose()
    this.#adam = this.#tf.train.adam(1e-3, 0.9, 0.999, 1e-5)
  }

  dispose(): void {
    this.#adam.dispose()
    for (const tensor of [...this.#weights, ...this.#first, ...this.#data]) tensor.dispose()
  }
}

/** 4 → 64 → 64 → 2 logits and a value, and PPO's clipped loss over `count` rows. `forward` gives logits beside values. */
export function perceptron(tf: Tf, count: number): Twin & { forward(): Tensor } {
  const random = seeded(1)
  const weight = (shape: [number, number]) => normal(tf, random, shape, 1 / Math.sqrt(shape[0]))
  const zeros = (length: number) => variable(tf, tf.zeros([length]))
  const weights = [weight([4, 64]), zeros(64), weight([64, 64]), zeros(64)]
  weights.push(weight([64, 2]), zeros(2), weight([64, 1]), zeros(1))
  const [w0, b0, w1, b1, wA, bA, wV, bV] = weights as Variable[]
  const column = (low: number, high: number) => tf.tensor1d(values(random, count, low, high))
  const x = tf.tensor2d(values(random, 4 * count, -1, 1), [count, 4])
  const choice = Int32Array.from({ length: count }, () => (random() < 0.5 ? 0 : 1))
  const chosen = tf.tidy(() => tf.cast(tf.oneHot(tf.tensor1d(choice, 'int32'), 2), 'float32'))
  const [old, advantage, target] = [column(-1, -0.4), column(-1, 1), column(-1, 1)]
  const dense = (input: Tensor, w: Tensor, b: Tensor) => tf.add(tf.matMul(input, w), b)
  const outputs = (): [logits: Tensor, value: Tensor] => {
    const hidden = tf.tanh(dense(tf.tanh(dense(x, w0!, b0!)), w1!, b1!))
    return [dense(hidden, wA!, bA!), dense(hidden, wV!, bV!)]
  }
  const loss = (): Scalar => {
    const [logits, values] = outputs()
    const logprobs = tf.logSoftmax(logits)
    const value = tf.reshape(values, [count])
    const entropy = tf.neg(tf.sum(tf.mul(tf.exp(logprobs), logprobs), 1))
    const ratio = tf.exp(tf.sub(tf.sum(tf.mul(logprobs, chosen), 1), old))
    const clipped = tf.clipByValue(ratio, 0.8, 1.2)
    const policyLoss = tf.neg(tf.mean(tf.minimum(tf.mul(ratio, advantage), tf.mul(clipped, advantage))))
    const valueLoss = tf.mul(tf.mean(tf.square(tf.sub(value, target))), 0.25)
    return tf.sub(tf.add(policyLoss, valueLoss), tf.mul(tf.mean(entropy), 0.01))
  }
  const twin = new Trained(tf, weights, [x, chosen, old, advantage, target], loss)
  return Object.assign(twin, { forward: () => tf.tidy(() => tf.concat(outputs(), 1)) })
}

/** What a transformer is sized by. */
export interface TransformerShape {
  readonly vocabulary: number
  readonly context: number
  readonly width: number
  readonly heads: number
  readonly layers: number
  readonly batch: number
}

/**
 * A decoder with learned positions, pre-norm blocks, gelu and an output tied to the embedding; next-token cross-entropy
 * over a batch. Weights: 12 · width² + 13 · width a layer, and the embeddings.
 */
export function transformer(tf: Tf, shape: TransformerShape): Twin & { readonly numWeights: number } {
  const { vocabulary, context, width, heads, layers, batch } = shape
  const random = seeded(2)
  const deviation = 0.05
  const ones = () => variable(tf, tf.ones([width]))
  const zeros = (length: number) => variable(tf, tf.zeros([length]))
  const weight = (sides: [number, number]) => normal(tf, random, sides, deviation)
  const [embedding, position] = [weight([vocabulary, width]), weight([context, width])]
  const blocks = Array.from({ length: layers }, () => ({
    gain1: ones(),
    shift1: zeros(width),
    qkv: weight([width, 3 * width]),
    qkvBias: zeros(3 * width),
    out: weight([width, width]),
    outBias: zeros(width),
    gain2: ones(),
    shift2: zeros(width),
    up: weight([width, 4 * width]),
    upBias: zeros(4 * width),
    down: weight([4 * width, width]),
    downBias: zeros(width),
  }))
  const [gain, shift] = [ones(), zeros(width)]
  const weights = [embedding, position, ...blocks.flatMap((block) => Object.values(block)), gain, shift]
  const ids = Int32Array.from({ length: batch * context }, () => Math.floor(random() * vocabulary))
  const tokens = tf.tensor2d(ids, [batch, context], 'int32')
  const targets = tf.tidy(() => {
    const next = Int32Array.from(ids, (_, i) => ids[(i + 1) % ids.length]!)
    return tf.cast(tf.oneHot(tf.tensor1d(next, 'int32'), vocabulary), 'float32')
  })
  const mask = tf.tensor2d(
    Float32Array.from({ length: context * context }, (_, i) => (i % context > Math.floor(i / context) ? -1e9 : 0)),
    [context, context],
  )
  const rows = batch * context
  const normed = (x: Tensor, gains: Tensor, shifts: Tensor): Tensor => {
    const centered = tf.sub(x, tf.mean(x, -1, true))
    const scale = tf.rsqrt(tf.add(tf.mean(tf.square(centered), -1, true), 1e-5))
    return tf.add(tf.mul(tf.mul(centered, scale), gains), shifts)
  }
  const dense = (x: Tensor, w: Tensor, b: Tensor) => tf.add(tf.matMul(x as Tensor2D, w as Tensor2D), b)
  const gelu = (x: Tensor) => {
    const inner = tf.mul(tf.add(x, tf.mul(tf.mul(tf.square(x), x), 0.044715)), Math.sqrt(2 / Math.PI))
    return tf.mul(tf.mul(x, 0.5), tf.add(tf.tanh(inner), 1))
  }
  const split = (x: Tensor) => tf.transpose(tf.reshape(x, [batch, context, heads, width / heads]), [0, 2, 1, 3])
  const loss = (): Scalar => {
    let x: Tensor = tf.reshape(tf.add(tf.gather(embedding, tokens), position), [rows, width])
    for (const block of blocks) {
      const [q, k, v] = tf.split(dense(normed(x, block.gain1, block.shift1), block.qkv, block.qkvBias), 3, 1)
      const scores = tf.mul(tf.matMul(split(q!), split(k!), false, true), 1 / Math.sqrt(width / heads))
      const mixed = tf.matMul(tf.softmax(tf.add(scores, mask)), split(v!))
      const joined = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [rows, width])
      x = tf.add(x, dense(joined, block.out, block.outBias))
      const wide = gelu(dense(normed(x, block.gain2, block.shift2), block.up, block.upBias))
      x = tf.add(x, dense(wide, block.down, block.downBias))
    }
    const logits = tf.matMul(normed(x, gain, shift) as Tensor2D, embedding as unknown as Tensor2D, false, true)
    return tf.neg(tf.mean(tf.sum(tf.mul(tf.logSoftmax(logits), targets), -1)))
  }
  const twin = new Trained(tf, weights, [tokens, targets, mask], loss)
  return Object.assign(twin, { numWeights: weights.reduce((sum, { size }) => sum + size, 0) })
}

function normal(tf: Tf, random: () => number, shape: [number, number], deviation: number): Variable {
  const draw = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())
  const drawn = Float32Array.from({ length: shape[0] * shape[1] }, () => deviation * draw())
  return variable(tf, tf.tensor2d(drawn, shape))
}

/** A variable in place of its first value. */
function variable(tf: Tf, first: Tensor): Variable {
  const made = tf.variable(first)
  first.dispose()
  return made
}

function values(random: () => number, length: number, low: number, high: number): Float32Array {
  return Float32Array.from({ length }, () => low + (high - low) * random())
}

/** Uniform numbers in [0, 1): a linear congruential generator's upper bits, which are good enough for data of a bench. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return (state >>> 8) / 2 ** 24
  }
}
