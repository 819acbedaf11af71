/**
 * An update of an actor and a critic on a device. Weights, moments and the rollout are sent when it begins; the order of the units once a
 * pass; a few numbers per block. Gather, network, loss, gradients and Adam run there. The loss's sums are read once a pass, weights and
 * moments when it ends, so between two updates the arena's columns have everything.
 */
import { adamSteps, normColumnLength } from '../../kernels/webgpu/adam.ts'
import type { DeviceMemory, Gpu, ReadySteps } from '../../kernels/webgpu/gpu.ts'
import {
  type DeviceHead,
  type DeviceLoss,
  gatherRows,
  headAndLoss,
  headGroups,
  headSums,
  sumPartials,
} from '../../kernels/webgpu/rows.ts'
import { startGpu } from '../../kernels/webgpu/start.ts'
import { deviceColumn, Numbers, type Step } from '../../kernels/webgpu/step.ts'
import type { NetworkShape } from '../network-shape.ts'
import type { DeviceUpdate, MinibatchNumbers, UpdateColumns, UpdateOptions } from './contract.ts'
import { networkSteps } from './network.ts'

/** Largest column of a block, in bytes; larger minibatches are divided into blocks. */
const BLOCK_BYTES = 2 ** 28
const MAX_BLOCK_ROWS = 65_536

/** The plan of an update: its columns on the device and its steps. It needs no GPU. */
export function updatePlan(shape: NetworkShape, options: UpdateOptions, maxColumnBytes = BLOCK_BYTES) {
  const { numRows, minibatchRows, numMinibatches, hasMask, loss, adam, numTrained } = options
  const { parameters, head: actionHead, numInputs, inputs, logStd } = shape
  const widest = Math.max(numInputs, ...shape.stacks.flatMap(({ layers }) => layers.map((layer) => layer.numOutputs)))
  const fitting = Math.floor(Math.min(BLOCK_BYTES, maxColumnBytes) / 4 / widest)
  const blockRows = Math.max(1, Math.min(minibatchRows, fitting, MAX_BLOCK_ROWS))
  const maxBlocks = Math.ceil(minibatchRows / blockRows)
  const head: DeviceHead = {
    ...actionHead,
    logStd: logStd < 0 ? 0 : parameters.list[logStd]!.offset,
    hasMask,
  }
  const { numOutputs, actionWidth, choices } = actionHead
  const resultWidth = loss.numSums + 1
  const all = (name: string) => deviceColumn(name, parameters.size)
  const columns = {
    weights: all('weights'),
    moment: all('moment'),
    squareMoment: all('squareMoment'),
    gradient: all('gradient'),
    numbers: deviceColumn('numbers', Numbers.length),
    observation: deviceColumn('observation', numRows * numInputs),
    action: deviceColumn('action', numRows * actionWidth, choices.length > 0 ? 'i32' : 'f32'),
    mask: deviceColumn('mask', hasMask ? numRows * numOutputs : 0, 'u32'),
    recorded: deviceColumn('recorded', numRows * 4),
    order: deviceColumn('order', numRows, 'u32'),
    x: deviceColumn('observations of a block', blockRows * numInputs),
    outputs: deviceColumn('outputs', blockRows * (numOutputs + 1)),
    dOutputs: deviceColumn('gradient by outputs', blockRows * (numOutputs + 1)),
    partial: deviceColumn('sums of workgroups', maxBlocks * headGroups(blockRows) * headSums(head, loss)),
    squares: deviceColumn('squares', normColumnLength),
    results: deviceColumn('results', numMinibatches * resultWidth),
  }
  const { x, observation, order, numbers, weights, squares } = columns
  const moments = inputs && {
    ...{ weights, clip: inputs.clip },
    center: parameters.list[inputs.center]!.offset,
    deviation: parameters.list[inputs.deviation]!.offset,
  }
  const network = networkSteps(shape, columns, blockRows)
  const block: Step[] = [
    gatherRows(x, observation, order, numbers, numInputs, moments),
    ...network.forward,
    headAndLoss(head, loss, columns, blockRows),
    ...network.backward,
  ]
  const optimizer: Step[] = [
    sumPartials(head, loss, columns, columns.gradient, columns.results, blockRows),
    ...adamSteps(columns, squares, adam, numTrained, resultWidth),
  ]
  return { columns, block, optimizer, blockRows, resultWidth }
}

/** Starts the device; the result makes updates of networks. @throws InputError with the reason where it cannot start. */
export async function startUpdates(): Promise<
  (shape: NetworkShape, options: UpdateOptions, holding: Set<DeviceUpdate>) => DeviceUpdate
> {
  const gpu = await startGpu()
  return (shape, options, holding) => new ShaderUpdate(gpu, shape, options, holding)
}

/** An update on a device, used again for each update. */
export class ShaderUpdate implements DeviceUpdate {
  readonly #memory: DeviceMemory
  readonly #plan: ReturnType<typeof updatePlan>
  readonly #loss: DeviceLoss
  readonly #numbers = new Float32Array(Numbers.length)
  readonly #words = new Uint32Array(this.#numbers.buffer)
  readonly #recorded: Float32Array
  readonly #results: Float32Array
  #ready: { readonly block: ReadySteps; readonly optimizer: ReadySteps } | undefined
  /** The updates that hold device memory. */
  readonly #holding: Set<DeviceUpdate>
  #isBusy = false
  #isOver = false

  constructor(gpu: Gpu, shape: NetworkShape, options: UpdateOptions, holding: Set<DeviceUpdate>) {
    this.#holding = holding
    this.#memory = gpu.memory()
    this.#plan = updatePlan(shape, options, gpu.maxColumnBytes)
    this.#loss = options.loss
    this.#recorded = new Float32Array(options.numRows * 4)
    this.#results = new Float32Array(options.numMinibatches * this.#plan.resultWidth)
  }

  async begin({ weights, moment, squareMoment, rollout }: UpdateColumns): Promise<void> {
    const memory = this.#memory
    const { columns, block, optimizer } = this.#plan
    this.#isBusy = true
    this.#isOver = false
    this.#holding.add(this)
    this.#ready ??= { block: await memory.ready(block), optimizer: await memory.ready(optimizer) }
    const { logprob, value, advantage, return: returned } = rollout
    const recorded = this.#recorded
    for (let row = 0, i = 0; row < logprob.length; row++, i += 4) {
      recorded[i] = logprob[row]!
      recorded[i + 1] = value[row]!
      recorded[i + 2] = advantage[row]!
      recorded[i + 3] = returned[row]!
    }
    memory.send(columns.weights, weights)
    memory.send(columns.moment, moment)
    memory.send(columns.squareMoment, squareMoment)
    const seen = rollout.observation.subarray(0, columns.observation.length)
    memory.send(columns.observation, seen instanceof Float32Array ? seen : Float32Array.from(seen)) // Shaders read floats.
    memory.send(columns.action, rollout.action)
    if (rollout.actionMask.length > 0) memory.send(columns.mask, Uint32Array.from(rollout.actionMask))
    memory.send(columns.recorded, recorded)
  }

  order(order: Uint32Array, count: number): void {
    this.#memory.send(this.#plan.columns.order, order.subarray(0, count))
  }

  minibatch(index: number, first: number, count: number, given: MinibatchNumbers): void {
    const memory = this.#memory
    const { columns, blockRows } = this.#plan
    const { block, optimizer } = this.#ready!
    const numbers = this.#numbers
    const words = this.#words
    for (const [name, value] of Object.entries(given)) numbers[Numbers[name as keyof MinibatchNumbers]] = value
    const { names, numbers: own } = this.#loss
    names.forEach((name, i) => {
      numbers[Numbers.loss + i] = Math.min(own[name]!, LARGEST)
    })
    words[Numbers.minibatch] = index
    words[Numbers.numBlocks] = Math.ceil(count / blockRows)
    memory.clear(columns.gradient)
    for (let from = 0, b = 0; from < count; from += blockRows, b++) {
      words[Numbers.first] = first + from
      words[Numbers.count] = Math.min(blockRows, count - from)
      words[Numbers.block] = b
      memory.send(columns.numbers, numbers)
      memory.run(block)
    }
    memory.run(optimizer)
  }

  async results(): Promise<Float32Array> {
    await this.#memory.read([{ column: this.#plan.columns.results, into: this.#results }])
    return this.#results
  }

  async end({ weights, moment, squareMoment }: Omit<UpdateColumns, 'rollout'>): Promise<void> {
    const { columns } = this.#plan
    await this.#memory.read([
      { column: columns.weights, into: weights },
      { column: columns.moment, into: moment },
      { column: columns.squareMoment, into: squareMoment },
    ])
    this.#isBusy = false
    if (this.#isOver) this.release()
  }

  release(): void {
    this.#isOver = true
    if (this.#isBusy) return
    this.#memory.release()
    this.#ready = undefined
    this.#holding.delete(this)
  }

  get resultWidth(): number {
    return this.#plan.resultWidth
  }
}

/** Shaders may assume that no number is infinite. */
const LARGEST = 3e38
