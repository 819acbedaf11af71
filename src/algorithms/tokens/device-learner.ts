/**
 * The learner over tokens on a device (kernels/webgpu). Weights, moments and gradient stay on the device between
 * updates. The learner sends a block of packed sequences, reads its log-probabilities and entropies, differentiates the
 * loss in this thread as `TokenLearner` does, and sends the derivatives back. `home` reads weights and moments, so that
 * the arena's columns are complete after each update.
 */
import { InputError } from '../../base/errors.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { adamSteps, normColumnLength } from '../../kernels/webgpu/adam.ts'
import { RowField } from '../../kernels/webgpu/attention.ts'
import type { DeviceMemory, Gpu, ReadySteps } from '../../kernels/webgpu/gpu.ts'
import { startGpu } from '../../kernels/webgpu/start.ts'
import { deviceColumn, MAX_GROUPS, Numbers } from '../../kernels/webgpu/step.ts'
import { inverseTemperaturePlace } from '../../kernels/webgpu/tokens.ts'
import { activationColumns, checkDeviceLearning, deviceRowWidth } from '../../language/transformer/device-plan.ts'
import { transformerSteps } from '../../language/transformer/device-steps.ts'
import { checkToken } from '../../language/transformer/elements.ts'
import type { LoraAdapter } from '../../language/transformer/lora.ts'
import type { TransformerModel } from '../../language/transformer/model.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'
import { fillAngles } from '../../language/transformer/rope.ts'
import type { LossDescriptor, LossTotals } from '../losses/losses.ts'
import { decayingParts, type OptimizerColumns, type OptimizerSettings, powersAfter } from '../optimizers/optimizer.ts'
import type { TokenBatch } from './token-batch.ts'
import { type BatchLoss, type TokenLossSums, trainedOf, wholeSums } from './token-learner.ts'
import {
  type PartLoss,
  partLossOf,
  rowsToTokens,
  type TokenLossColumns,
  type TokensSaid,
  type TokenUpdateColumns,
  tokensToRows,
} from './token-thread.ts'

/** Bytes of activations of a block, and its rows, at most; a block of one sequence, or pair of answers, may have more. */
const [BLOCK_BYTES, MAX_BLOCK_ROWS] = [2 ** 30, 8192]

export interface DeviceLearnerOptions {
  readonly model: TransformerModel
  readonly weights: BaseWeights
  readonly adapter: LoraAdapter | null
  /** Maximum tokens of a sequence. */
  readonly context: number
  readonly optimizer: OptimizerColumns
  readonly reference: Float32Array
  readonly kernels: Kernels
}

/** Starts the device. @throws InputError with the reason where it cannot start, and for a model that has no shaders. */
export async function startDeviceLearner(options: DeviceLearnerOptions, optimizer: string): Promise<DeviceLearner> {
  const { model, weights, adapter } = options
  checkDeviceLearning(model, adapter?.lora ?? null, !(weights instanceof Float32Array), optimizer)
  const gpu = await startGpu()
  const room = Math.floor(gpu.maxColumnBytes / 4)
  if (model.numParameters > room) {
    const got = `webgpu, and a model of ${model.numParameters} parameters`
    throw new InputError('languageModel.device', got, `at most ${room}, for which a buffer of this device has room`)
  }
  return new DeviceLearner(gpu, options, weights as Float32Array)
}

/** The columns on the device and the prepared steps for a block size. */
interface Room {
  readonly blockRows: number
  readonly memory: DeviceMemory
  readonly columns: ReturnType<typeof columnsOf>
  readonly policy: ReadyPasses
  /** Null without a reference. */
  readonly reference: ReadyPasses | null
}

interface ReadyPasses {
  readonly forward: ReadySteps
  readonly backward: ReadySteps
}

function columnsOf(
  { model, adapter, context, reference }: Pick<DeviceLearnerOptions, 'model' | 'adapter' | 'context' | 'reference'>,
  blockRows: number,
) {
  const numTrained = (adapter?.lora ?? model).numParameters
  const trained = (name: string) => deviceColumn(name, numTrained)
  return {
    weights: deviceColumn('weights', model.numParameters),
    adapter: adapter === null ? null : trained('adapter'),
    reference: reference.length === 0 ? null : trained('reference'),
    gradient: trained('gradient'),
    moment: trained('moment'),
    squareMoment: trained('squareMoment'),
    numbers: deviceColumn('numbers', Numbers.length),
    rows: deviceColumn('rows', blockRows * RowField.length, 'i32'),
    angles: deviceColumn('angles', context * model.shape.rotaryWidth),
    evaluated: deviceColumn('evaluated', blockRows * 3),
    derivatives: deviceColumn('derivatives', blockRows * 3),
    squares: deviceColumn('squares', normColumnLength),
    results: deviceColumn('norm', 1),
  }
}

export class DeviceLearner {
  readonly #gpu: Gpu
  readonly #options: DeviceLearnerOptions
  readonly #base: Float32Array
  readonly #trained: Float32Array
  #room: Room | undefined
  /** Adam's steps, by its settings. */
  #adam: { readonly key: string; readonly ready: ReadySteps } | undefined
  /** Whether the device has the numbers of the arena's columns, and newer ones. */
  #isSent = false
  #isNewer = false
  /** Whether a gradient waits for its step. */
  #hasGradient = false
  readonly #numbers = new Float32Array(Numbers.length)
  readonly #words = new Uint32Array(this.#numbers.buffer)
  #packed = new Int32Array(0)
  #evaluated = new Float32Array(0)
  #derivatives = new Float32Array(0)
  /** A block's rows, a column each. */
  #said: { readonly logprob: Float32Array; readonly entropy: Float32Array; readonly value: Float32Array } | undefined
  #derived:
    | { readonly dLogprob: Float32Array; readonly dEntropy: Float32Array; readonly dValue: Float32Array }
    | undefined

  constructor(gpu: Gpu, options: DeviceLearnerOptions, base: Float32Array) {
    this.#gpu = gpu
    this.#options = options
    this.#base = base
    this.#trained = trainedOf(base, options.adapter)
  }

  /** As `TokenLearner.evaluate`. */
  async evaluate(
    batch: TokenBatch,
    temperature: number,
    whose: 'policy' | 'reference',
    said: TokensSaid,
  ): Promise<void> {
    const units = eachSequence(batch)
    const room = await this.#prepare(batch, units)
    const blocks = blocksOf(batch, units, room.blockRows)
    for (let block = 0; block + 1 < blocks.length; block++) {
      const [from, to] = [blocks[block]!, blocks[block + 1]!]
      const count = this.#send(room, batch, from, to, temperature)
      const evaluated = await this.#forward(room, whose, count)
      rowsToTokens(said.logprob, evaluated.logprob, batch.spans, from, to)
      rowsToTokens(said.entropy, evaluated.entropy, batch.spans, from, to)
      if (said.value.length > 0) rowsToTokens(said.value, evaluated.value, batch.spans, from, to)
    }
  }

  /** As `TokenLearner.differentiate`. */
  async differentiate(
    batch: TokenBatch,
    loss: LossDescriptor,
    totals: LossTotals,
    given: TokenLossColumns,
    update: TokenUpdateColumns,
    temperature: number,
  ): Promise<TokenLossSums> {
    const units = eachSequence(batch, given.compared?.unit)
    const room = await this.#prepare(batch, units)
    const whole = { ...batch, parts: blocksOf(batch, units, room.blockRows) }
    await this.#differentiate(
      room,
      whole,
      partLossOf({ batch: whole, loss, totals, given, update }, this.#options.kernels),
      temperature,
    )
    const { logprob, entropy, sums } = update
    return { ...wholeSums(sums, whole.parts.length - 1), logprob, entropy }
  }

  /** As `TokenLearner.backward`. */
  async backward(
    batch: TokenBatch,
    { dLogprob, dEntropy }: Parameters<BatchLoss>[1],
    temperature: number,
  ): Promise<void> {
    const units = eachSequence(batch)
    const room = await this.#prepare(batch, units)
    const parts = blocksOf(batch, units, room.blockRows)
    const lossOf: PartLoss = (part, _, rows) => {
      tokensToRows(rows.dLogprob, dLogprob, batch.spans, parts[part]!, parts[part + 1]!)
      tokensToRows(rows.dEntropy, dEntropy, batch.spans, parts[part]!, parts[part + 1]!)
      rows.dValue.fill(0)
    }
    await this.#differentiate(room, { ...batch, parts }, lossOf, temperature)
  }

  /** As `TrainedArray.descend`. */
  async descend(settings: OptimizerSettings, learningRate: number, maxNorm: number): Promise<number> {
    const { memory, columns } = this.#room!
    const { optimizer } = this.#options
    this.#sendState(this.#room!)
    this.#hasGradient = false
    const powers: number[] = []
    powersAfter(powers, settings, optimizer)
    const { beta1, beta2, epsilon, weightDecay } = settings
    const key = [beta1, beta2, epsilon, weightDecay].join()
    if (this.#adam?.key !== key) {
      const parameters = (this.#options.adapter?.lora ?? this.#options.model).parameters
      const undecayed = decayingParts(parameters).filter(({ decays }) => !decays)
      const trained = { ...columns, weights: columns.adapter ?? columns.weights }
      const steps = adamSteps(trained, columns.squares, settings, this.#trained.length, 1, undecayed)
      this.#adam = { key, ready: await memory.ready(steps) }
    }
    const numbers = this.#numbers
    numbers[Numbers.learningRate] = learningRate
    numbers[Numbers.correction1] = 1 - powers[0]!
    numbers[Numbers.correction2] = 1 - powers[1]!
    numbers[Numbers.maxNorm] = Math.min(maxNorm, LARGEST)
    this.#words[Numbers.minibatch] = 0
    memory.send(columns.numbers, numbers)
    memory.run(this.#adam.ready)
    const norm = new Float32Array(1)
    await memory.read([{ column: columns.results, into: norm }])
    if (!Number.isFinite(norm[0]!)) {
      const expected = 'a finite norm: try a smaller learningRate or smaller rewards'
      throw new InputError('gradient', `a norm of ${norm[0]}`, expected)
    }
    this.#isNewer = true
    optimizer.betaPowers.set(powers)
    return norm[0]!
  }

  /** Brings weights and moments to the arena's columns. */
  async home(): Promise<void> {
    if (!this.#isNewer) return
    const { memory, columns } = this.#room!
    const { moment, squareMoment } = this.#options.optimizer
    await memory.read([
      { column: columns.adapter ?? columns.weights, into: this.#trained },
      { column: columns.moment, into: moment },
      { column: columns.squareMoment, into: squareMoment },
    ])
    this.#isNewer = false
  }

  /** The arena's columns have other numbers. */
  moved(): void {
    this.#isSent = false
    this.#isNewer = false
  }

  /** Releases the device's memory. */
  release(): void {
    this.#room?.memory.release()
    this.#room = undefined
    this.#adam = undefined
    this.#hasGradient = false
    this.moved()
  }

  /** Gives the device room for the batch, whose blocks can begin at `units`, and the data that it lacks. */
  async #prepare(batch: TokenBatch, units: readonly number[]): Promise<Room> {
    if (batch.candidates !== null) {
      const got = 'webgpu, and tokens drawn from some of the vocabulary (topK, topP, minP, a grammar or penalties)'
      throw new InputError('languageModel.device', got, 'tokens drawn from the whole vocabulary, or none')
    }
    const rows = units.slice(1).map((to, i) => rowsOf(batch, units[i]!, to))
    const blockRows = this.#blockRows(
      rows.reduce((sum, each) => sum + each, 0),
      rows.reduce((most, each) => Math.max(most, each), 0),
    )
    if (this.#room === undefined || this.#room.blockRows < blockRows) {
      await this.home()
      const gradient = await this.#waitingGradient()
      this.release()
      this.#room = await this.#makeRoom(blockRows)
      if (gradient !== null) {
        this.#room.memory.send(this.#room.columns.gradient, gradient)
        this.#hasGradient = true
      }
    }
    this.#sendState(this.#room)
    return this.#room
  }

  /** Rows of a block, for so many rows in all of which `largest` cannot be divided. @throws InputError if the device has no room. */
  #blockRows(sum: number, largest: number): number {
    const { all, most } = deviceRowWidth(this.#options.model)
    const room = Math.min(Math.floor(this.#gpu.maxColumnBytes / 4 / most), MAX_GROUPS)
    if (largest > room) {
      const got = `webgpu, and ${largest} tokens to predict in a sequence or a pair`
      throw new InputError('languageModel.device', got, `at most ${room}, for which a buffer of this device has room`)
    }
    const fitting = Math.min(Math.max(1, Math.floor(BLOCK_BYTES / 4 / all)), room, MAX_BLOCK_ROWS)
    const rounded = (rows: number) => 2 ** Math.ceil(Math.log2(Math.max(64, rows)))
    return Math.max(Math.min(fitting, rounded(sum)), Math.min(room, largest > fitting ? rounded(largest) : 1))
  }

  async #waitingGradient(): Promise<Float32Array | null> {
    if (!this.#hasGradient || this.#room === undefined) return null
    const gradient = new Float32Array(this.#trained.length)
    await this.#room.memory.read([{ column: this.#room.columns.gradient, into: gradient }])
    return gradient
  }

  /** Sends what the arena's columns have and the device lacks. */
  #sendState({ memory, columns }: Room): void {
    if (this.#isSent) return
    const { optimizer, adapter, reference } = this.#options
    memory.send(columns.weights, this.#base)
    if (adapter !== null) memory.send(columns.adapter!, adapter.weights)
    if (columns.reference !== null) memory.send(columns.reference, reference)
    memory.send(columns.moment, optimizer.moment)
    memory.send(columns.squareMoment, optimizer.squareMoment)
    this.#isSent = true
  }

  async #makeRoom(blockRows: number): Promise<Room> {
    const { model, adapter, context } = this.#options
    const columns = columnsOf(this.#options, blockRows)
    const memory = this.#gpu.memory()
    const lora = adapter?.lora ?? null
    const activations = activationColumns(model, lora?.settings.rank ?? 0, blockRows, this.#gpu.maxColumnBytes / 4)
    const passes = async (own: Partial<typeof columns>): Promise<ReadyPasses> => {
      const steps = transformerSteps(model, lora, { ...columns, ...own }, activations, blockRows)
      for (const { column, values } of steps.constants) memory.send(column, values)
      return { forward: await memory.ready(steps.forward), backward: await memory.ready(steps.backward) }
    }
    const policy = await passes({})
    const { reference } = columns
    const other = reference && (await passes(adapter === null ? { weights: reference } : { adapter: reference }))
    const { rotaryWidth, rope, contextLength } = model.shape
    const angles = new Float32Array(context * rotaryWidth)
    const [cosine, sine] = [new Float32Array(angles.length / 2), new Float32Array(angles.length / 2)]
    fillAngles(cosine, sine, rotaryWidth, rope, contextLength)
    for (let i = 0; i < cosine.length; i++) [angles[2 * i], angles[2 * i + 1]] = [cosine[i]!, sine[i]!]
    memory.send(columns.angles, angles)
    const each = () => new Float32Array(blockRows)
    this.#packed = new Int32Array(blockRows * RowField.length)
    this.#evaluated = new Float32Array(blockRows * 3)
    this.#derivatives = new Float32Array(blockRows * 3)
    this.#said = { logprob: each(), entropy: each(), value: each() }
    this.#derived = { dLogprob: each(), dEntropy: each(), dValue: each() }
    return { blockRows, memory, columns, policy, reference: other }
  }

  /** Sends sequences `from` to `to` as a block, and returns its number of rows. @throws InputError for a token outside the vocabulary. */
  #send(
    { memory, columns }: Room,
    { token, spans }: TokenBatch,
    from: number,
    to: number,
    temperature: number,
  ): number {
    const { shape } = this.#options.model
    const packed = this.#packed
    let row = 0
    for (let s = from; s < to; s++) {
      const [start, end] = [spans.begin[s]!, spans.end[s]!]
      const [first, last] = [row, row + end - start - 2]
      for (let i = start; i < end; i++) {
        checkToken(shape, this.#options.context, token[i]!, i - start)
        if (i === end - 1) continue
        const at = row++ * RowField.length
        packed[at + RowField.first] = first
        packed[at + RowField.last] = last
        packed[at + RowField.token] = token[i]!
        packed[at + RowField.target] = token[i + 1]!
        packed[at + RowField.position] = i - start
      }
    }
    const order = Uint32Array.from({ length: row }, (_, i) => i)
    const tokenOf = (i: number) => packed[i * RowField.length + RowField.token]!
    order.sort((a, b) => tokenOf(a) - tokenOf(b) || a - b)
    order.forEach((each, i) => {
      packed[i * RowField.length + RowField.byToken] = each
    })
    this.#words[Numbers.count] = row
    this.#numbers[inverseTemperaturePlace] = 1 / temperature
    memory.send(columns.numbers, this.#numbers)
    memory.send(columns.rows, packed.subarray(0, row * RowField.length))
    return row
  }

  async #forward({ memory, columns, policy, reference }: Room, whose: 'policy' | 'reference', count: number) {
    memory.run((whose === 'policy' ? policy : reference!).forward)
    const evaluated = this.#evaluated
    await memory.read([{ column: columns.evaluated, into: evaluated }])
    const said = this.#said!
    for (let row = 0; row < count; row++) {
      said.logprob[row] = evaluated[row * 3]!
      said.entropy[row] = evaluated[row * 3 + 1]!
      said.value[row] = evaluated[row * 3 + 2]!
    }
    return said
  }

  async #differentiate(room: Room, batch: TokenBatch, lossOf: PartLoss, temperature: number): Promise<void> {
    const { memory, columns, policy } = room
    const { parts } = batch
    const [derivatives, derived] = [this.#derivatives, this.#derived!]
    memory.clear(columns.gradient)
    for (let block = 0; block + 1 < parts.length; block++) {
      const count = this.#send(room, batch, parts[block]!, parts[block + 1]!, temperature)
      lossOf(block, await this.#forward(room, 'policy', count), derived)
      for (let row = 0; row < count; row++) {
        derivatives[row * 3] = derived.dLogprob[row]!
        derivatives[row * 3 + 1] = derived.dEntropy[row]!
        derivatives[row * 3 + 2] = derived.dValue[row]!
      }
      memory.send(columns.derivatives, derivatives.subarray(0, count * 3))
      memory.run(policy.backward)
    }
    this.#hasGradient = true
  }
}

/** Where sequences begin in the batch, and its end; those with the same number in `together` are one. */
function eachSequence({ parts }: TokenBatch, together?: ArrayLike<number>): number[] {
  const [first, end] = [parts[0]!, parts.at(-1)!]
  const begins: number[] = []
  for (let i = first; i < end; i++) {
    if (i === first || together === undefined || together[i] !== together[i - 1]) begins.push(i)
  }
  return [...begins, end]
}

function rowsOf({ spans }: TokenBatch, from: number, to: number): number {
  let rows = 0
  for (let i = from; i < to; i++) rows += spans.end[i]! - spans.begin[i]! - 1
  return rows
}

/** Blocks of neighboring sequences, as many as fit into the rows of a block. */
function blocksOf(batch: TokenBatch, units: readonly number[], blockRows: number): number[] {
  const blocks = [units[0]!]
  let count = 0
  for (let unit = 0; unit + 1 < units.length; unit++) {
    const rows = rowsOf(batch, units[unit]!, units[unit + 1]!)
    if (count > 0 && count + rows > blockRows) {
      blocks.push(units[unit]!)
      count = 0
    }
    count += rows
  }
  if (units.length > 1) blocks.push(units.at(-1)!)
  return blocks
}

/** Shaders may assume that no number is infinite. */
const LARGEST = 3e38
