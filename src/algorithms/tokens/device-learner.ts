/**
 * The learner over tokens on a device (kernels/webgpu). Weights, moments and gradient lie there between updates; a block of packed
 * sequences is sent, its log-probabilities and entropies are read, the loss is differentiated in this thread as `TokenLearner` does it,
 * and its derivatives are sent back. `home` reads weights and moments, so that the arena's columns have everything after each update.
 */
import { InputError } from '../../base/errors.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { adamSteps, normColumnLength } from '../../kernels/webgpu/adam.ts'
import { RowField } from '../../kernels/webgpu/attention.ts'
import type { DeviceMemory, Gpu, ReadySteps } from '../../kernels/webgpu/gpu.ts'
import { startGpu } from '../../kernels/webgpu/start.ts'
import { deviceColumn, Numbers } from '../../kernels/webgpu/step.ts'
import { inverseTemperaturePlace } from '../../kernels/webgpu/tokens.ts'
import { activationColumns, checkDeviceModel, deviceRowWidth } from '../../language/transformer/device-plan.ts'
import { transformerSteps } from '../../language/transformer/device-steps.ts'
import { checkToken } from '../../language/transformer/forward.ts'
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

/** Bytes of activations of a block of rows, and its most rows. */
const [BLOCK_BYTES, MAX_BLOCK_ROWS] = [2 ** 30, 8192]

export interface DeviceLearnerOptions {
  readonly model: TransformerModel
  readonly weights: BaseWeights
  readonly adapter: LoraAdapter | null
  /** Rows that a micro-batch has at most, and positions of a sequence. */
  readonly rows: number
  readonly context: number
  readonly optimizer: OptimizerColumns
  readonly reference: Float32Array
  readonly kernels: Kernels
}

/** Starts the device. @throws InputError with the reason where it cannot start, and for a model that has no shaders. */
export async function startDeviceLearner(options: DeviceLearnerOptions, optimizer: string): Promise<DeviceLearner> {
  const { model, weights, adapter } = options
  checkDeviceModel(model, adapter?.lora ?? null)
  if (optimizer !== 'adam') throw new InputError('optimizer', `${optimizer} with device webgpu`, 'adam')
  if (!(weights instanceof Float32Array)) {
    throw new InputError('languageModel.quantize', 'fewer than 32 bits with device webgpu', '32, or device none')
  }
  return new DeviceLearner(await startGpu(), options, weights)
}

/** What a block size decides: columns on the device and steps made ready. */
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
    const room = await this.#prepare(batch)
    const blocks = this.#blocksOf(batch, room.blockRows)
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
    const room = await this.#prepare(batch)
    const whole = { ...batch, parts: this.#blocksOf(batch, room.blockRows) }
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
    const room = await this.#prepare(batch)
    const parts = this.#blocksOf(batch, room.blockRows)
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
    this.moved()
  }

  /** Gives the device room for the batch, and what it lacks. */
  async #prepare({ spans, parts, candidates }: TokenBatch): Promise<Room> {
    if (candidates !== null) {
      const got = 'tokens drawn from some of the vocabulary (topK, topP, minP, a grammar or penalties)'
      throw new InputError('device webgpu', got, 'tokens drawn from all of it, or device none')
    }
    const { model, rows } = this.#options
    let numRows = 0
    for (let i = parts[0]!; i < parts.at(-1)!; i++) numRows += spans.end[i]! - spans.begin[i]! - 1
    const { all, most } = deviceRowWidth(model)
    const fitting = Math.floor(Math.min(BLOCK_BYTES / 4 / all, this.#gpu.maxColumnBytes / 4 / most, MAX_BLOCK_ROWS))
    const blockRows = Math.max(rows, Math.min(fitting, 2 ** Math.ceil(Math.log2(Math.max(64, numRows)))))
    if (this.#room === undefined || this.#room.blockRows < blockRows) {
      await this.home()
      this.release()
      this.#room = await this.#makeRoom(blockRows)
    }
    const { memory, columns } = this.#room
    if (!this.#isSent) {
      const { optimizer, adapter, reference } = this.#options
      memory.send(columns.weights, this.#base)
      if (adapter !== null) memory.send(columns.adapter!, adapter.weights)
      if (columns.reference !== null) memory.send(columns.reference, reference)
      memory.send(columns.moment, optimizer.moment)
      memory.send(columns.squareMoment, optimizer.squareMoment)
      this.#isSent = true
    }
    return this.#room
  }

  async #makeRoom(blockRows: number): Promise<Room> {
    const { model, adapter, context } = this.#options
    const columns = columnsOf(this.#options, blockRows)
    const memory = this.#gpu.memory()
    const lora = adapter?.lora ?? null
    const activations = activationColumns(model, lora?.settings.rank ?? 0, blockRows)
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

  /** Neighboring micro-batches together, as many as a block takes. */
  #blocksOf({ parts, spans }: TokenBatch, blockRows: number): number[] {
    const blocks = [parts[0]!]
    let count = 0
    for (let part = 0; part + 1 < parts.length; part++) {
      let rows = 0
      for (let i = parts[part]!; i < parts[part + 1]!; i++) rows += spans.end[i]! - spans.begin[i]! - 1
      if (count > 0 && count + rows > blockRows) {
        blocks.push(parts[part]!)
        count = 0
      }
      count += rows
    }
    if (parts.length > 1) blocks.push(parts.at(-1)!)
    return blocks
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
  }
}

/** Shaders may assume that no number is infinite. */
const LARGEST = 3e38
